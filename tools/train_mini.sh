#!/bin/sh
# Trains the model of models/mini from nothing: a tokenizer, then the recipes of recipes/mini in
# their order, in build/mini. What is done already is not done again, and a recipe that was stopped
# goes on from its last checkpoint, so the command is simply given again.
#     tools/train_mini.sh [SWIFTKV]
# RANKS=2 runs every step in two processes (mpirun), which is faster than two threads on shapes as
# small as this.
set -eu
cd "$(dirname "$0")/.."
swiftkv=${1:-build/swiftkv}
ranks=${RANKS:-1}
work=build/mini

run() {
    if [ "$ranks" -gt 1 ]; then
        # shellcheck disable=SC2086 # one word an option
        mpirun ${MPIRUN_OPTIONS:-} --bind-to none --oversubscribe -np "$ranks" "$swiftkv" "$@" --threads 1
    else
        "$swiftkv" "$@"
    fi
}

if [ ! -f $work/base/tokenizer.json ]; then
    mkdir -p $work
    "$swiftkv" vocab $work/base --size 3072 --data recipes/prose/grimm.txt --prose recipes/prose/grimm.txt
fi
cp recipes/mini/shape.json $work/base/config.json
for recipe in recipes/mini/[0-9]-*.yaml; do
    name=$(basename "$recipe" .yaml)
    out=$work/$name
    [ -f "$out/config.json" ] && continue
    resume=
    [ -f "$out/checkpoint/latest.json" ] && resume=--resume
    # shellcheck disable=SC2086 # nothing or one word
    run train --recipe "$recipe" $resume
done
