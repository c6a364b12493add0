#!/bin/bash
# guidellm and aiperf, unmodified, against `swiftkv serve`, with requests that they cut: no 5xx, no failed request, and pages
# and file descriptors back afterwards. Status 1 where something is amiss. Tried with guidellm 0.8.1 and aiperf 0.13.0.
#
#     tools/checks/check_load_clients.sh [MODEL]
#
# MODEL is a Hugging Face folder with a tokenizer.json (our own model, else tinystories-656k). BUILD is the folder of the
# program (build), VENV that of the clients (BUILD/load-clients, installed where absent: 4 GB), SECONDS_EACH how long each
# loads the server (60). Servers listen on loopback; nothing is fetched while they run.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
venv=${VENV:-$build/load-clients}
seconds=${SECONDS_EACH:-60}
model=${1:-models/mini/base}
[ -e "$model/config.json" ] || model=../shared/assets/models/tinystories-656k
model=$(realpath "$model")
work=$(mktemp -d)
server=

finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# What was installed elsewhere and moved here no longer runs: its programs name their interpreter.
if ! "$venv/bin/guidellm" --help >/dev/null 2>&1 || ! "$venv/bin/aiperf" --help >/dev/null 2>&1; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install -q uv
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" -r tools/checks/load-clients-requirements.txt
fi
venv=$(realpath "$venv")
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 GUIDELLM__LOGGING__CONSOLE_LOG_LEVEL=WARNING

# shellcheck disable=SC2086 # one word an option
"$build/swiftkv" serve "$model" --port 0 --name served --ctx 512 --kv-tokens 8192 ${SERVE_OPTIONS:-} 2>"$work/server" &
server=$!
until url=$(sed -n 's/.*ready on //p' "$work/server") && [ -n "$url" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/server"; exit 1; }
    sleep 0.2
done

metric() { # NAME[{LABELS}]
    curl -s "$url/metrics" | awk -v name="swiftkv_$1" '$1 == name { print $2 }'
}
descriptors() { find "/proc/$server/fd" -mindepth 1 | wc -l; }

# What has to be as before, once nobody asks for anything.
settle() { # WHO
    for _ in $(seq 100); do
        held=$(( $(metric kv_pages_used) - $(metric kv_pages_cached) ))
        busy=$(( $(metric requests_running) + $(metric requests_waiting) ))
        now=$(descriptors)
        [ $((held + busy)) -eq 0 ] && [ "$now" -le "$descriptors_before" ] && break
        sleep 0.1
    done
    stop=$(metric 'requests_finished_total{reason="stop"}') length=$(metric 'requests_finished_total{reason="length"}')
    cancelled=$(metric 'requests_finished_total{reason="cancelled"}')
    failed=$(metric 'requests_finished_total{reason="failed"}') refused=$(metric 'http_responses_total{class="4xx"}')
    errors=$(metric 'http_responses_total{class="5xx"}')
    echo "$1: so far $((stop + length)) answered, $cancelled cut, $failed failed, $refused 4xx, $errors 5xx;" \
        "$held pages held, $busy requests left, descriptors $descriptors_before -> $now"
    if [ $((held + busy + failed + errors)) -ne 0 ] || [ "$now" -gt "$descriptors_before" ]; then
        echo "$1: something is amiss" >&2
        exit 1
    fi
}

curl -s -o "$work/first" "$url/v1/completions" -d '{"prompt": "Once", "max_tokens": 2}'
sleep 1
descriptors_before=$(descriptors)

# At the end of the time guidellm cuts what is in flight.
"$venv/bin/guidellm" run --backend "kind=openai_http,target=$url,model=served,request_format=/v1/completions" \
    --profile kind=concurrent,streams=8 --constraint "kind=max_duration,seconds=$seconds" \
    --tokenizer "kind=hf_auto,model=$model" --data kind=synthetic_text,prompt_tokens=128,output_tokens=64 \
    --output "kind=json,path=$work/guidellm.json" --disable-console >"$work/guidellm" 2>&1 ||
    { tail -30 "$work/guidellm"; exit 1; }
settle guidellm
"$venv/bin/python" -c 'import json, sys
totals = [b["metrics"]["request_totals"] for b in json.load(open(sys.argv[1]))["benchmarks"]]
said = {key: sum(t[key] for t in totals) for key in ("successful", "incomplete", "errored")}
print("guidellm says:", *(f"{n} {key}" for key, n in said.items()))
sys.exit(said["errored"] > 0)' "$work/guidellm.json"
answered=$((stop + length))
[ "$answered" -gt 1 ] || { tail -30 "$work/guidellm"; exit 1; }

# aiperf cuts a third of the requests 50 ms after they were sent. Told to stay offline it looks for the folder in the hub's cache.
env -u HF_HUB_OFFLINE "$venv/bin/aiperf" profile -m served --url "$url" --endpoint-type completions --streaming --tokenizer "$model" \
    --use-server-token-count --concurrency 8 --benchmark-duration "$seconds" --benchmark-grace-period 10 \
    --synthetic-input-tokens-mean 64 --output-tokens-mean 64 --extra-inputs ignore_eos:true \
    --request-cancellation-rate 33 --request-cancellation-delay 0.05 --artifact-dir "$work/aiperf" --ui none \
    >"$work/said" 2>&1 || { tail -30 "$work/said"; exit 1; }
settle aiperf
if [ "$((stop + length))" -le "$answered" ] || [ "$cancelled" -eq 0 ]; then
    tail -30 "$work/said"
    exit 1
fi
