#!/bin/sh
# Trains the model of models/mini from nothing: a tokenizer, then the recipes of recipes/mini in
# their order, in build/mini. What is done already is not done again, and a recipe that was stopped
# goes on from its last checkpoint, so the command is simply given again.
#     tools/train_mini.sh [SWIFTKV]
# RANKS and MPIRUN_OPTIONS: see train_run.sh.
set -eu
cd "$(dirname "$0")/.."
swiftkv=${1:-build/swiftkv}
work=build/mini

. tools/train_run.sh

if [ ! -f $work/base/tokenizer.json ]; then
    mkdir -p $work
    "$swiftkv" vocab $work/base --size 3072 --data recipes/prose/grimm.txt --prose recipes/prose/grimm.txt
fi
cp recipes/mini/shape.json $work/base/config.json
for recipe in recipes/mini/[0-9]-*.yaml; do
    name=$(basename "$recipe" .yaml)
    run "$work/$name" train --recipe "$recipe"
done
