#!/bin/sh
# Trains a small hybrid of linear attention and attention from nothing in build/hybrid: the shape
# recipes/hybrid/shape.json by recipes/hybrid/prose.yaml. tools/results/make_results.py hybrid makes its
# SwiftKV forms and their table. What is done already is not done again, and
# a run that was stopped goes on.
#     tools/train_hybrid.sh [SWIFTKV]
# RANKS and MPIRUN_OPTIONS: see train_run.sh.
set -eu
cd "$(dirname "$0")/.."
swiftkv=${1:-build/swiftkv}
work=build/hybrid
. tools/train_run.sh

mkdir -p $work/base
cp models/mini/base/tokenizer.json models/mini/base/tokenizer_config.json $work/base
cp recipes/hybrid/shape.json $work/base/config.json
run $work/model train --recipe recipes/hybrid/prose.yaml
