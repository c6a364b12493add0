# shellcheck shell=sh
# For scripts that train: run OUT WORD... trains OUT, unless it is there; what was stopped goes on. The
# variables: swiftkv, the program; RANKS, processes that share every step (mpirun), which is faster than
# two threads on small shapes; MPIRUN_OPTIONS.
run() {
    out=$1
    : "${swiftkv:?}"
    shift
    [ -f "$out/config.json" ] && return
    [ -f "$out/checkpoint/latest.json" ] && set -- "$@" --resume
    if [ "${RANKS:-1}" -gt 1 ]; then
        # shellcheck disable=SC2086 # one word an option
        mpirun ${MPIRUN_OPTIONS:-} --bind-to none --oversubscribe -np "$RANKS" "$swiftkv" "$@" --out "$out" --threads 1
    else
        "$swiftkv" "$@" --out "$out"
    fi
}
