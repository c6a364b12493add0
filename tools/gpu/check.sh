#!/usr/bin/env bash
# tools/gpu/check.sh prepare DIR [BEFORE] | run | gpu prepare DIR | gpu run [PIECE ...]
#
# Checks and times what needs a machine that is at hand for minutes: a processor with AMX or many cores, and with gpu, by
# card.sh beside this file, an NVIDIA GPU.
# prepare packs programs that are built here, with their libraries, into DIR/check.tar.xz (30 MB); BEFORE, the root of
# another checkout that is built, is timed beside them. There, in a folder with both files: bash check.sh run. It takes
# three minutes, and writes $OUT/log.txt (OUT: out). What is missing here or there is skipped with a line, and nothing
# takes more than LIMIT seconds (30).
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
try() { log "$*"; if [ -x "$1" ]; then timeout "${LIMIT:-30}" "$@" >> "$out/log.txt" 2>&1 || echo "status $?" >> "$out/log.txt"; else echo "skipped: $1 is missing" >> "$out/log.txt"; fi; }

# Products, of BEFORE, of each form and of oneDNN.
products() {
    try ./bench_matmul-before --threads "$1" --kind i8 --kind bf16
    for form in $forms; do try ./bench_matmul --threads "$1" --kind i8 --kind bf16 --cpu "$form"; done
    for form in $codes; do try ./bench_matmul --threads "$1" --kind q4_0 --kind q4_k --cpu "$form"; done
    export OMP_NUM_THREADS=$1; try ./bench_onednn int8 bf16
}

# bench PROGRAM THREADS WEIGHTS [OPTION ...]: prompts, and decoding after them.
bench() {
    local program=$1 threads=$2 weights=$3; shift 3
    try "$program" bench --preset llama-3.2-1b --threads "$threads" --kv int8 --weights "$weights" --gen 16 --repeat 1 "$@"
}

run() {
    out=$(realpath -m "${OUT:-out}"); began=$(date +%s); mkdir -p "$out" check; tar -C check -xJf check.tar.xz; cd check
    export LD_LIBRARY_PATH=$PWD/lib
    local all; all=$(nproc); lscpu >> "$out/log.txt"
    forms=best; codes=best
    if grep -q amx_tile /proc/cpuinfo; then forms='amx-strided amx-paired amx-few amx-whole amx-attention'; codes='amx-strided amx-q'; else log "skipped: forms of AMX, which is not here"; fi
    try ./checkkernels
    try ./swiftkv doctor --report --quick
    try ./bench_tiles
    products 1
    products "$all"
    for threads in 1 "$all"; do
        for level in avx512 amx-attention; do for kv in bf16 int8; do try ./bench_attention "$threads" $level prompt $kv 64; done; done
    done
    for turn in 1 2; do
        for weights in int8 bf16; do
            log "turn $turn"
            bench ./swiftkv-before "$all" $weights --prompt 512,2048
            for form in $forms avx512; do bench ./swiftkv "$all" $weights --prompt 512,2048 --cpu "$form"; done
        done
    done
    for threads in 1 2 4 8; do if [ $threads -lt "$all" ]; then bench ./swiftkv $threads int8 --prompt 512; fi; done
    for form in $codes; do bench ./swiftkv "$all" int4 --prompt 512 --cpu "$form"; done
    try ./bench_pool llama-3.2-1b "$all"
    log end
}

case ${1:-} in
prepare) prepare "${2:?prepare DIR}" "${3:-}" ;;
run) run ;;
gpu) shift; exec bash "$(dirname "$0")/card.sh" "$@" ;;
*) sed -n 2,9p "$0" >&2; exit 2 ;;
esac
