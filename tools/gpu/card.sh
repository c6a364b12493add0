#!/usr/bin/env bash
# tools/gpu/card.sh prepare DIR | run [--tiny] [PIECE ...]
#
# Checks and times the back end for NVIDIA GPUs on a machine that has one for minutes. prepare builds the program with
# its kernels, tests and measurements (nvcc: script/setup-cuda) and packs them into DIR/card.tar.xz. There, in a folder
# with both files: bash card.sh run. Its pieces, in order: checks peaks prompts combined steps torch server cards layers
# sanitizer. All end within eight minutes (TOTAL seconds: 480), each within its share of them and what those before it
# left, or within three minutes where pieces are named; what no longer fits says so. $OUT (out) gets a log of each
# process and gpu.md, a section for docs/results/gpu.md, which grows when other pieces run later. The status is 1 where a
# check fails or a process ends with an error. --tiny has shapes for an emulated card, and SLOW a factor for all limits.
set -eu
pieces='checks peaks prompts combined steps torch server cards layers sanitizer'
programs=(cuda_driver test_cuda_backend test_cuda_experts test_cuda_graphs test_cuda_layers test_cuda_ranks tool_cuda_peaks
    swiftkv_unrecorded)

usage() { sed -n 2,11p "$0" >&2; exit 2; }

# Of 480 seconds, a piece's share.
share() {
    case $1 in
    checks | prompts) echo 110 ;; combined) echo 60 ;; torch) echo 50 ;; server | peaks) echo 35 ;;
    *) echo 20 ;;
    esac
}

# ---- prepare ----

prepare() {
    local dir=$1 work; work=$(mktemp -d); mkdir -p "$dir" "$work/lib" "$work/tests/data" "$work/models/mini"
    if command -v ninja > /dev/null; then export CMAKE_GENERATOR=Ninja; fi
    cmake --preset release -B build-gpu -DSKV_CUDA=ON -DSKV_TESTS=ON -DSKV_MPI=OFF -DSKV_TEST_DATA=tests/data > /dev/null
    cmake --build build-gpu -j "$(nproc)" --target swiftkv cuda_kernels "${programs[@]}" > /dev/null
    cp build-gpu/swiftkv build-gpu/cuda_kernels.fatbin "$work/"
    for program in "${programs[@]}"; do cp "build-gpu/tests/$program" "$work/"; done
    cp -r tests/data/models tests/data/lora "$work/tests/data/"; cp -r models/mini/base models/mini/kvpred "$work/models/mini/"
    cp bench/peers/torch_gpu.py "$work/"; git describe --always --dirty > "$work/commit"
    for program in swiftkv "${programs[@]}"; do ldd "$work/$program"; done |
        awk '/=> \//{print $3}' | grep -v -E '/(libc|libm|ld-linux)[.-]' | sort -u | xargs -I{} cp -L {} "$work/lib/"
    (cd "$work" && strip swiftkv "${programs[@]}")
    # the kernels are in three files: a dictionary that reaches from one to the next
    tar -C "$work" -cf - . | xz -T0 --lzma2=preset=3,dict=96MiB > "$dir/card.tar.xz"; cp "$0" "$dir/"; rm -rf "$work"; ls -la "$dir"
}

# ---- processes with limits, and rows of tables ----

row() { echo "$*" >> "$page"; }
# Lines beneath a table.
note() { echo "- $*" >> "$page.notes"; }

# try NAME LIMIT COMMAND ...: its output in $out/NAME.txt. The status is its own: 124 for too long, 125 where there is no time.
try() {
    local name=$1 limit=$2 left=$((ends - SECONDS)) status=0; shift 2
    limit=$((limit * slow))
    if [ "$left" -lt 2 ]; then note "$name: left out, since its piece has no time left"; return 125; fi
    if [ "$limit" -gt "$left" ]; then limit=$left; fi
    timeout -k 2 "$limit" "$@" > "$out/$name.txt" 2> "$out/$name.err" || status=$?
    case $status in
    0) ;;
    124 | 137) note "$name: ended after its $limit seconds" ;;
    *) note "$name: status $status: $(tail -n 1 "$out/$name.err" | cut -c1-160)"; echo "$name" >> "$out/failed" ;;
    esac
    return $status
}

# A number of a line of JSON.
value() { printf '%.1f' "$(sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1" | head -n 1)"; }

# ---- pieces ----

# check NAME LIMIT TITLE COMMAND ...: in the background, as many at once as there are processors. `results` has its row.
names=(); titles=()
check() {
    local name=$1 limit=$2; names+=("$name"); titles+=("$3"); shift 3
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    {
        local status=0; try "$name" "$limit" "$@" || status=$?
        case $status in 0) echo right ;; 124 | 125 | 137) echo 'no time' ;; *) echo wrong ;; esac > "$out/$name.result"
    } &
}

# Rows of checks. A test program that was asked for tests that it lacks, and one that finds no card, is wrong, too.
results() {
    wait
    local i name result
    for i in "${!names[@]}"; do
        name=${names[$i]}; result=$(cat "$out/$name.result")
        case ${titles[$i]} in kernels*) ;; *)
            if [ "$result" = right ] && ! grep -q 'PASSED  \] [1-9]' "$out/$name.txt" "$out/$name.err"; then result=wrong; fi ;;
        esac
        if [ "$result" != right ]; then echo "$name" >> "$out/failed"; fi
        row "| ${titles[$i]} | $result$(sed -n 's/^\([0-9]* .*models.*\)/: \1/p' "$out/$name.txt" 2> /dev/null) |"
    done
    names=(); titles=()
}

piece_checks() {
    local name
    row '| check | result |'; row '|---|---|'
    for name in exact oracle; do check "backend-$name" 110 "back end: $name" ./test_cuda_backend "*$name*" ${tiny:+1/29}; done
    for name in operations weights adapters methods states drafts refused memory; do
        check "backend-$name" 60 "back end: $name" ./test_cuda_backend "*$name*"
    done
    check experts 60 'back end: experts' ./test_cuda_experts
    check layers 60 'the first layers on the card' ./test_cuda_layers
    check graphs 60 'recorded launches' ./test_cuda_graphs
    for name in rows place attention votes codes pages experts states picks products; do
        check "kernels-$name" 60 "kernels: $name" ./cuda_driver "$name"
    done
    results
}

piece_peaks() {
    try peaks 60 ./tool_cuda_peaks ${tiny:+tiny} || true
    if [ -e "$out/peaks.txt" ]; then cat "$out/peaks.txt" >> "$page"; fi
}

bench_head() {
    row '| form | weights | pages | prompt | answer | batch | prompt tokens/s | first token, ms | decoding, tokens/s | together, tokens/s |'
    row '|---|---|---|--:|--:|--:|--:|--:|--:|--:|'
}

# bench NAME OPTION ...: rows of one process, a prompt length each. $with: what the form does not say, $program: another.
with=; program=./swiftkv
bench() {
    local name=$1; shift
    try "$name" 90 "$program" bench --preset "$shape" --device cuda --chunk "$chunk" --repeat 1 --json "$@" || true
    awk -v with="$with" 'function f(name, text) {
        if (!match($0, "\"" name "\":\"?[^,\"}]*")) return "-"
        text = substr($0, RSTART, RLENGTH); sub(/^[^:]*:"?/, "", text); return text }
    /^\{/ { prompt = f("prompt"); gen = f("gen"); batch = f("batch"); first = f("ttft_ms"); decode = f("decode_tok_s")
        seconds = first / 1e3; if (decode > 0) seconds += batch * (gen - 1) / decode
        printf("| %s%s | %s | %s | %s | %s | %s | %.0f | %.1f | %s | %s |\n", f("variant"), with, f("weights"), f("kv"), prompt, gen, batch,
            f("prefill_tok_s"), first, decode > 0 ? sprintf("%.1f", decode) : "-",
            gen > 0 ? sprintf("%.0f", batch * (prompt + gen) / seconds) : "-") }' "$out/$name.txt" >> "$page"
}

# Forms of SwiftKV, the words of a form for names of logs.
form() { case $1 in full) ;; *) echo "--kv-layers $half --group ${1#g}" ;; esac; }

piece_prompts() {
    local pages of line
    bench_head
    for line in $prompts_of; do # weights:form, the most important ones first
        of=${line#*:}; pages=bf16; if [ "${line%:*}" = fp8 ]; then pages=fp8; fi
        # shellcheck disable=SC2046 # words
        bench "prompts-${line%:*}-$of" --weights "${line%:*}" --kv $pages --prompt "$prompts" --gen "$answers" $(form "$of")
    done
    # shellcheck disable=SC2046 # words
    for of in full g1; do bench "prompts-4-$of" --weights bf16 --kv bf16 --prompt "$short" --batch 4 --gen 0 $(form $of); done
}

# The paper's load: prompts of 8192 tokens, answers of 256.
piece_combined() {
    local batch weights of
    bench_head
    for batch in $batches; do
        for weights in bf16 fp8; do
            # shellcheck disable=SC2046 # words
            for of in g1 full; do bench "combined-$weights-$batch-$of" --weights $weights --kv $weights --prompt "$long" --gen "$answer" --batch "$batch" $(form $of); done
        done
    done
}

# Decoding with launches that are recorded and without (cuda_graphs.h).
piece_steps() {
    local batch
    bench_head
    for batch in $step_batches; do
        bench "steps-$batch" --weights bf16 --kv bf16 --prompt "$step_prompt" --gen "$answer" --batch "$batch"
        with=', not recorded'; program=./swiftkv_unrecorded
        bench "steps-$batch-unrecorded" --weights bf16 --kv bf16 --prompt "$step_prompt" --gen "$answer" --batch "$batch"
        with=; program=./swiftkv
    done
}

# Several cards: sums by NCCL and by copies.
piece_cards() {
    local n sums of
    n=$(./swiftkv devices | sed -n 's/.*one of \([0-9]*\) GPUs.*/\1/p' | head -n 1)
    if [ "${n:-1}" -lt 2 ]; then note 'cards: there is one'; return; fi
    row '| check | result |'; row '|---|---|'
    check ranks 30 "two cards of $n" ./test_cuda_ranks 'two_are_near*'
    results; row
    bench_head
    for sums in nccl copies; do
        for of in full g1; do
            with=", two cards, $sums"
            # shellcheck disable=SC2046 # words
            bench "cards-$sums-$of" --gpus 2 --sums $sums --weights bf16 --kv bf16 --prompt "$prompts" --gen "$answers" $(form $of)
        done
    done
    with=
}

# Half of the layers on the card and half on the processor.
piece_layers() {
    local of
    bench_head; with=", $half layers on the card"
    # shellcheck disable=SC2046 # words
    for of in g1 full; do bench "layers-$of" --gpu-layers "$half" --weights bf16 --kv bf16 --prompt "$layers_prompt" --gen 8 $(form $of); done
    with=
}

piece_torch() {
    if ! python3 -c 'import torch' 2> /dev/null; then note 'torch: not installed here'; return; fi
    bench_head
    try torch 170 python3 torch_gpu.py ${tiny:+tiny} || true
    grep '^|' "$out/torch.txt" >> "$page" || true
}

# serve NAME OPTION ...: a server, and loads of more and more requests a second.
serve() {
    local name=$1 url='' rate served waited=0; shift
    ./swiftkv serve "preset:$shape" --device cuda --port 0 --chunk "$chunk" --ctx "$served_context" --kv-tokens "$served_tokens" "$@" > "$out/server-$name.txt" 2>&1 &
    served=$!
    while [ $waited -lt 60 ] && [ -z "$url" ] && kill -0 $served 2> /dev/null; do
        sleep 1; waited=$((waited + 1)); url=$(sed -n 's/.*ready on \(http[^ ]*\).*/\1/p' "$out/server-$name.txt" | head -n 1)
    done
    if [ -z "$url" ]; then note "server $name: $(tail -n 1 "$out/server-$name.txt")"; fi
    for rate in ${url:+$rates}; do
        try "load-$name-$rate" 30 ./swiftkv load "$url" --rate "$rate" --duration "$load_seconds" --prompt "$load_prompt" --gen "$load_answer" --ignore-eos --json || true
        local log=$out/load-$name-$rate.txt; if [ ! -s "$log" ]; then continue; fi
        row "| $name | $rate | $(value "$log" completed) | $(value "$log" total_token_throughput) | $(value "$log" median_ttft_ms) | $(value "$log" p99_ttft_ms) | $(value "$log" median_tpot_ms) | $(value "$log" p99_tpot_ms) |"
    done
    kill $served 2> /dev/null || true; wait $served || true
}

piece_server() {
    row "Prompts of $load_prompt tokens, answers of $load_answer."; row
    row '| form | requests/s | answered | tokens/s | first token, ms, median | 99 % | between tokens, ms, median | 99 % |'
    row '|---|--:|--:|--:|--:|--:|--:|--:|'
    serve full --weights bf16 --kv bf16
    serve SwiftKV --weights bf16 --kv bf16 --kv-layers "$half"
}

piece_sanitizer() {
    local program name tool
    program=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
    if [ -z "$program" ]; then note 'sanitizer: compute-sanitizer is not installed here'; return; fi
    row '| check | result |'; row '|---|---|'
    for name in rows place attention votes codes pages experts states picks; do
        for tool in memcheck racecheck; do
            check "$tool-$name" 100 "kernels: $name, $tool" "$program" --tool $tool --error-exitcode 9 ./cuda_driver $name
        done
    done
    results
}

# ---- run ----

shapes() {
    shape='llama-3.1-8b'; half=16; chunk=8192; prompts=2048,8192,32768; answers=33; short=2048; long=8192; answer=256; batches='32 64 8'; layers_prompt=512
    prompts_of='bf16:full bf16:g1 fp8:full fp8:g1 int4:full int4:g1 bf16:g2 bf16:g4 fp8:g2 fp8:g4 int4:g2 int4:g4'; step_prompt=2048; step_batches='1 16 64'
    rates='1 2 4 8'; load_seconds=6; load_prompt=2000; load_answer=100; served_context=4096; served_tokens=131072
    if [ -z "$tiny" ]; then return; fi
    shape='tiny-128k'; half=1; chunk=64; prompts=32,64; answers=4; short=32; long=64; answer=4; batches=2; layers_prompt=32
    prompts_of='bf16:full fp8:g1 int4:full'; step_prompt=32; step_batches='1 2'
    rates=2; load_seconds=1; load_prompt=32; load_answer=4; served_context=128; served_tokens=1024
}

# find_library NAME: the folder of a library of the system, of a toolkit or of the packages of PyPI.
find_library() {
    local file
    # shellcheck disable=SC2086,SC2231 # $1 is a pattern
    for file in /usr/local/cuda*/lib64/lib$1 /usr/lib/x86_64-linux-gnu/lib$1 \
        $(python3 -c 'import glob, nvidia, sys; print(*(f for d in nvidia.__path__ for f in glob.glob(d + "/*/lib/lib" + sys.argv[1])))' "$1" 2> /dev/null); do
        if [ -e "$file" ]; then dirname "$file"; return; fi
    done
}

# The sections that there are.
assemble() {
    local name
    {
        echo "## $card, $(cat commit), $(date +%F)"
        for name in $pieces; do
            if [ ! -e "$out/$name.md" ]; then continue; fi
            printf '\n### %s\n\n' "$name"; cat "$out/$name.md"
            if [ -e "$out/$name.md.notes" ]; then echo; cat "$out/$name.md.notes"; fi
        done
    } > "$out/gpu.md"
}

run() {
    tiny=; if [ "${1:-}" = --tiny ]; then tiny=tiny; shift; fi
    local piece named=$# total allowed=0; slow=${SLOW:-1}; total=$((${TOTAL:-480} * slow))
    for piece in "$@"; do case " $pieces " in *" $piece "*) ;; *) usage ;; esac; done
    out=$(realpath -m "${OUT:-out}"); mkdir -p "$out" card; rm -f "$out/failed"; if [ ! -e card/swiftkv ]; then tar -C card -xJf card.tar.xz; fi; cd card
    LD_LIBRARY_PATH="$PWD/lib:${LD_LIBRARY_PATH:-}:${CUBLASLT:+$(dirname "$CUBLASLT")}:$(find_library 'cublasLt.so.1[23]'):$(find_library nccl.so.2)"
    export LD_LIBRARY_PATH SKV_CUDA_IMAGE=cuda_kernels.fatbin
    shapes
    if ! ./swiftkv info preset:tiny-128k --device cuda > /dev/null 2> "$out/device.txt"; then
        echo "no GPU to check: $(sed 's/^swiftkv: //' "$out/device.txt" | head -n 1)" >&2; exit 1
    fi
    card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1 | sed 's/, /, driver /')
    card=${card:-$(./swiftkv devices | sed -n 's/^cuda *//p')}
    if [ $# -eq 0 ]; then
        # shellcheck disable=SC2086 # words
        set -- $pieces
    fi
    for piece in "$@"; do
        page=$out/$piece.md; : > "$page"; rm -f "$page.notes"
        allowed=$((allowed + $(share "$piece") * total / 480)); ends=$allowed
        if [ "$named" -gt 0 ]; then ends=$((SECONDS + 170 * slow)); fi
        if [ $ends -gt "$total" ]; then ends=$total; fi
        if [ $((ends - SECONDS)) -lt 5 ]; then note "$piece: left out, since no time is left"; else "piece_$piece"; fi
        assemble; echo "$piece: at $SECONDS s"
    done
    cat "$out/gpu.md"
    if [ -e "$out/failed" ]; then echo "failed: $(sort -u "$out/failed" | tr '\n' ' ')" >&2; exit 1; fi
}

case ${1:-} in
prepare) prepare "${2:?prepare DIR}" ;;
run) shift; run "$@" ;;
*) usage ;;
esac
