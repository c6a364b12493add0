#!/bin/sh
# Trains a small mixture of experts from nothing in build/moe, by the first recipes of recipes/mini with
# the shape recipes/moe/shape.json, makes its SwiftKV forms and recovers them (docs/results/mixture.md).
# What is done already is not done again, and a run that was stopped goes on.
#     tools/train_mixture.sh [SWIFTKV]
# RANKS and MPIRUN_OPTIONS: see train_run.sh.
set -eu
cd "$(dirname "$0")/.."
swiftkv=${1:-build/swiftkv}
work=build/moe
. tools/train_run.sh

mkdir -p $work/base
cp models/mini/base/tokenizer.json models/mini/base/tokenizer_config.json $work/base
cp recipes/moe/shape.json $work/base/config.json
run $work/1-copy train --recipe recipes/mini/1-copy.yaml --model $work/base
run $work/2-lookup train --recipe recipes/mini/2-lookup.yaml --model $work/1-copy
run $work/model train --recipe recipes/mini/3-lookup.yaml --model $work/2-lookup --stages \
    "[{steps: 100, seq: 256, rows: 8, schedule: constant}, {steps: 100, seq: 512, rows: 4, schedule: linear, final-lr: 10%}]"
