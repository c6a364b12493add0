#!/usr/bin/env bash
# tools/gpu/check.sh prepare DIR [BEFORE] | run
#
# Checks and times what needs a machine that is at hand for minutes: today the processor's part (AMX, many cores).
# prepare packs programs that are built here, with their libraries, into DIR/check.tar.xz (30 MB); BEFORE, the root of
# another checkout that is built, is timed beside them. There, in a folder with both files: bash check.sh run. It takes
# three minutes, and writes $OUT/log.txt (OUT: out). Whatever the machine lacks is skipped with a line.
set -eu
programs='swiftkv tests/checkkernels bench/bench_attention bench/bench_matmul bench/bench_pool bench/bench_tiles'

prepare() {
    local dir=$1 before=${2:-} work; work=$(mktemp -d); mkdir -p "$dir" "$work/lib"
    for program in $programs; do cp "build/$program" "$work/"; done
    if [ -n "$before" ]; then
        for program in swiftkv bench/bench_matmul; do cp "$before/build/$program" "$work/$(basename "$program")-before"; done
    fi
    if [ -e /usr/include/dnnl.h ]; then cc -O2 -std=c11 -o "$work/bench_onednn" bench/peers/bench_onednn.c -ldnnl; fi
    ldd "$work"/* 2>/dev/null | awk '/=> \//{print $3}' | grep -v -E '/(libc|libm|ld-linux)[.-]' | sort -u | xargs -I{} cp -L {} "$work/lib/"
    strip "$work"/bench_* "$work"/checkkernels
    tar -C "$work" -cf - . | xz -T0 -3 > "$dir/check.tar.xz"; cp "$0" "$dir/"; rm -rf "$work"; ls -la "$dir"
}

log() { echo "== $(($(date +%s) - began)) s: $*" >> "$out/log.txt"; }
try() { log "$*"; if [ -x "$1" ]; then timeout 30 "$@" >> "$out/log.txt" 2>&1 || echo "status $?" >> "$out/log.txt"; else echo "skipped: $1 is missing" >> "$out/log.txt"; fi; }

run() {
    out=$(realpath -m "${OUT:-out}"); began=$(date +%s); mkdir -p "$out" check; tar -C check -xJf check.tar.xz; cd check
    export LD_LIBRARY_PATH=$PWD/lib
    local all; all=$(nproc); lscpu >> "$out/log.txt"
    try ./checkkernels
    try ./bench_tiles
    for threads in 1 "$all"; do
        for turn in 1 2; do
            for program in ./bench_matmul-before ./bench_matmul; do log "turn $turn"; try $program --threads "$threads" --kind i8 --kind bf16; done
        done
        for level in avx512 amx; do for kv in bf16 int8; do try ./bench_attention "$threads" $level prompt $kv 64; done; done
        export OMP_NUM_THREADS=$threads; try ./bench_onednn int8 bf16
    done
    for turn in 1 2 3; do
        for program in ./swiftkv-before ./swiftkv; do
            for weights in int8 bf16; do log "turn $turn"; try $program bench --preset llama-3.2-1b --threads "$all" --kv int8 --weights $weights --prompt 512,2048 --gen 32; done
        done
    done
    for threads in 1 2 4 8; do try ./swiftkv bench --preset llama-3.2-1b --threads $threads --kv int8 --weights int8 --prompt 512 --gen 16 --repeat 1; done
    try ./bench_pool llama-3.2-1b "$all"
    log end
}

case ${1:-} in
prepare) prepare "${2:?prepare DIR}" "${3:-}" ;;
run) run ;;
*) sed -n 2,8p "$0" >&2; exit 2 ;;
esac
