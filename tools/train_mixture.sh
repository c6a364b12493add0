#!/bin/sh
# Trains a small mixture of experts from nothing in build/moe: the shape recipes/moe/shape.json by
# recipes/moe/prose.yaml. tools/results/make_results.py mixture makes its SwiftKV forms and their table.
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
run $work/model train --recipe recipes/moe/prose.yaml
