#!/bin/sh
# Trains KV Prediction's small auxiliary and its predictor (KVP-C) from nothing, in
# build/mini: the first recipes of recipes/mini with the shape recipes/mini/auxiliary.json, then
# kvpred-small.yaml. What is done already is not done again, and a recipe that was stopped goes on.
#     tools/train_auxiliary.sh [SWIFTKV]
# RANKS and MPIRUN_OPTIONS: see train_run.sh.
set -eu
cd "$(dirname "$0")/.."
swiftkv=${1:-build/swiftkv}
work=build/mini/small

. tools/train_run.sh

mkdir -p $work/shape
cp models/mini/base/tokenizer.json models/mini/base/tokenizer_config.json $work/shape
cp recipes/mini/auxiliary.json $work/shape/config.json
model=$work/shape
for name in 1-copy 2-lookup 3-lookup 4-tasks; do
    run $work/$name train --recipe recipes/mini/$name.yaml --model $model
    model=$work/$name
done
# To 1024 tokens: beyond them the auxiliary is trained together with the predictor.
run $work/5-length train --recipe recipes/mini/5-length.yaml --model $model --stages \
    "[{steps: 1100, seq: 512, rows: 4, schedule: constant}, {steps: 500, seq: 1024, rows: 4, schedule: cosine, final-lr: 20%}]"
run build/mini/kvpred-small train --recipe recipes/mini/kvpred-small.yaml
