#!/usr/bin/env bash
# tools/gpu/check.sh prepare DIR [BEFORE] | run | gpu prepare DIR | gpu run [PIECE ...]
#
# Checks and times what needs a machine that is at hand for minutes: a processor with AMX or many cores, and with gpu, by
# card.sh beside this file, an NVIDIA GPU.
# prepare packs programs that are built here, with their libraries, into DIR/check.tar.xz (30 MB); BEFORE, the root of
# another checkout that is built, is timed beside them. There, in a folder with both files: bash check.sh run. It ends
# after TOTAL seconds (120), no program takes more than LIMIT (30), and the most important ones come first; what is
# missing here or there, or finds no time, is named. $OUT (out) gets log.txt, and tables in amx.md. PRESET is the model's
# shape (llama-3.2-1b).
set -eu
programs='swiftkv tests/checkkernels bench/bench_attention bench/bench_matmul bench/bench_pool bench/bench_tiles'

prepare() {
    local dir=$1 before=${2:-} work; work=$(mktemp -d); mkdir -p "$dir" "$work/lib"
    for program in $programs; do cp "build/$program" "$work/" 2>/dev/null || echo "left out: $program is not built"; done
    for program in ${before:+swiftkv bench/bench_matmul}; do
        cp "$before/build/$program" "$work/$(basename "$program")-before" 2>/dev/null || echo "left out: $program of $before is not built"
    done
    if [ -e /usr/include/dnnl.h ]; then cc -O2 -std=c11 -o "$work/bench_onednn" bench/peers/bench_onednn.c -ldnnl; else echo "left out: oneDNN (libdnnl-dev)"; fi
    ldd "$work"/* 2>/dev/null | awk '/=> \//{print $3}' | grep -v -E '/(libc|libm|ld-linux)[.-]' | sort -u | xargs -I{} cp -L {} "$work/lib/"
    for program in "$work"/bench_* "$work"/checkkernels; do if [ -e "$program" ]; then strip "$program"; fi; done
    tar -C "$work" -cf - . | xz -T0 -3 > "$dir/check.tar.xz"; cp "$0" "$dir/"; rm -rf "$work"; ls -la "$dir"
}

log() { echo "== $(($(date +%s) - began)) s: $*" >> "$out/log.txt"; }
row() { echo "$*" >> "$out/amx.md"; }

# try PROGRAM ...: its output in the log, and in $out/last.txt. 1: there is none.
try() {
    local left=$((began + ${TOTAL:-120} - $(date +%s))) status=0
    log "$*"; : > "$out/last.txt"
    if [ ! -x "$1" ]; then echo "skipped: $1 is missing" >> "$out/log.txt"; return 1; fi
    if [ $left -lt 1 ]; then echo "skipped: no time is left" >> "$out/log.txt"; row "Not run: $*"; return 1; fi
    if [ $left -gt "${LIMIT:-30}" ]; then left=${LIMIT:-30}; fi
    timeout "$left" stdbuf -oL "$@" > "$out/last.txt" 2>> "$out/log.txt" || status=$?
    cat "$out/last.txt" >> "$out/log.txt"
    if [ $status -ne 0 ]; then echo "status $status" >> "$out/log.txt"; row "Status $status: $*"; return 1; fi
}

# product THREADS PROGRAM [OPTION ...]: a row of the table for each product that it timed.
product() {
    local threads=$1 form=${*: -1}; shift; case $1 in *onednn) form=oneDNN ;; *before) form=before ;; esac
    try "$@" || true # rows of a program that was ended count, too
    sed -nE "s/^([a-z0-9_]+) +([0-9]+ x +[0-9]+ x +[0-9]+) +([0-9.]+ G[A-Za-z]+\/s).*/| $threads | $form | \1 | \2 | \3 |/p" "$out/last.txt" >> "$out/amx.md"
}

# Products, of BEFORE, of each form and of oneDNN.
products() {
    product "$1" ./bench_matmul-before --threads "$1" --kind i8 --kind bf16
    for form in $forms; do product "$1" ./bench_matmul --threads "$1" --kind i8 --kind bf16 --cpu "$form"; done
    for form in $codes; do product "$1" ./bench_matmul --threads "$1" --kind q4_0 --kind q4_k --cpu "$form"; done
    export OMP_NUM_THREADS=$1; product "$1" ./bench_onednn int8 bf16
}

value() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\"}]*\).*/\1/p" <<< "$2" | sed -E 's/^([0-9.]+),.*/\1/'; }

# bench PROGRAM THREADS WEIGHTS [OPTION ...]: a row for each prompt, and for decoding after it.
bench() {
    local program=$1 threads=$2 weights=$3 line form; shift 3
    try "$program" bench --preset "${PRESET:-llama-3.2-1b}" --threads "$threads" --kv int8 --weights "$weights" --gen 16 --repeat 1 --json "$@" || return 0
    while read -r line; do
        case $line in *prefill_tok_s*) ;; *) continue ;; esac
        form=$(value form "$line"); case $program in *before) form=before ;; esac
        row "| $threads | $weights | ${form:-$(value cpu "$line")} | $(value prompt "$line") | $(printf '%.0f | %.1f' "$(value prefill_tok_s "$line")" "$(value decode_tok_s "$line")") |"
    done < "$out/last.txt"
}

steps() {
    local all=$1 threads weights form turn
    row ''; row '| threads | weights | form | prompt | prompt tokens/s | decoded tokens/s |'; row '|--:|---|---|--:|--:|--:|'
    for threads in 1 2 4 8 "$all"; do
        if [ "$threads" -le "$all" ]; then bench ./swiftkv "$threads" int8 --prompt 512; fi
    done
    for turn in 1 2; do
        for weights in int8 bf16; do
            log "turn $turn"
            bench ./swiftkv-before "$all" $weights --prompt 512,2048
            for form in $forms avx512; do bench ./swiftkv "$all" $weights --prompt 512,2048 --cpu "$form"; done
        done
        for form in $codes; do bench ./swiftkv "$all" int4 --prompt 512 --cpu "$form"; done
    done
}

run() {
    out=$(realpath -m "${OUT:-out}"); began=$(date +%s); mkdir -p "$out" check; tar -C check -xJf check.tar.xz; cd check
    export LD_LIBRARY_PATH=$PWD/lib
    local all; all=$(nproc); lscpu >> "$out/log.txt"
    forms=best; codes=best; attention=avx512
    if grep -q amx_tile /proc/cpuinfo; then forms='amx-strided amx-paired amx-few amx-whole amx-attention'; codes='amx-strided amx-q amx-q-once'; attention='avx512 amx-attention'; else log "skipped: forms of AMX, which is not here"; fi
    row "# $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $all processors"; row ''
    try ./checkkernels && row "checkkernels: $(tail -n 1 "$out/last.txt")"
    try ./swiftkv doctor && row "memory nodes: $(grep '^memory nodes' "$out/last.txt" || echo one)"
    try ./swiftkv doctor --report --quick && row "forms: $(grep 'is the form of products that an engine takes' "$out/last.txt" || echo one)"
    steps "$all"
    row ''; row '| threads | form | weights | product | rate (median) |'; row '|--:|---|---|---|--:|'
    products "$all"
    products 1
    for threads in "$all" 1; do
        for level in $attention; do for kv in bf16 int8; do try ./bench_attention "$threads" "$level" prompt "$kv" 64 || true; done; done
    done
    try ./bench_tiles || true
    try ./bench_pool llama-3.2-1b "$all" || true
    log end; cat "$out/amx.md"
}

case ${1:-} in
prepare) prepare "${2:?prepare DIR}" "${3:-}" ;;
run) run ;;
gpu) shift; exec bash "$(dirname "$0")/card.sh" "$@" ;;
*) sed -n 2,11p "$0" >&2; exit 2 ;;
esac
