#!/usr/bin/env python3
"""The tables of docs/guides/memory.md: what `swiftkv info` says of three models for machines of 16, 32 and 64 GB.

    tools/results/make_memory_guide.py [--build build]

Sizes depend a little on the processor, as weights and workspaces are laid out for its kernels.
"""

import argparse
import json
import pathlib
import subprocess

from results_lab import ROOT, put, table

MODELS = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b")
# GB of the machine and its threads; 1 GiB is left to the system.
MACHINES = ((16, 8), (32, 16), (32, 64), (64, 64))
GIB = 2**30


def ask(program, model, *words):
    said = subprocess.run([program, "info", f"preset:{model}", *map(str, words), "--json"], capture_output=True, text=True, check=True)
    return json.loads(said.stdout)["memory"]


def options(memory, row):
    """What the command line has to say; "" where nothing has to be."""
    own = memory["plans"][memory["own"]]
    words = [f"--weights {row['weights']}"] if row["weights"] != own["weights"] else []
    words += [f"--kv {row['kv']}"] if row["kv"] != own["kv"] else []
    return " ".join(words)


def gib(n):
    return f"{n / GIB:.1f}"


def sizes(program):
    """Weights by type, and keys and values of 8192 tokens by type."""
    rows = []
    for model in MODELS:
        plans = ask(program, model, "--context", 8192)["plans"]
        weights = {row["weights"]: gib(row["weight_bytes"]) for row in plans}
        kv = {row["kv"]: gib(row["kv_bytes"]) for row in plans}
        rows.append([f"`swiftkv info preset:{model}`", *(weights[name] for name in ("bf16", "int8", "int4")),
                     kv["bf16"], kv["int8"]])
    return rows


def machines(program):
    rows = []
    for model in MODELS:
        for gb, threads in MACHINES:
            words = ("--available", f"{gb - 1}Gi", "--threads", threads)
            memory = ask(program, model, *words)
            command = f"`swiftkv info preset:{model} {' '.join(map(str, words))}`"
            if memory["chosen"] is None:
                rows.append([command, "does not fit", "", "", ""])
                continue
            row = memory["plans"][memory["chosen"]]
            rows.append([command, f"`{options(memory, row)}`" if options(memory, row) else "no option", gib(row["bytes"]),
                         str(row["context_max"]), str(row["kv_tokens_max"])])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    program = parser.parse_args().build.resolve() / "swiftkv"
    put("memory sizes", f"""## What a model takes

Weights by `--weights`, and keys and values of one sequence of 8192 tokens by `--kv`, in GiB. The workspace is below 0.3 GiB
up to 64 threads.

{table(["by", "bf16 weights", "int8", "int4", "bf16 keys and values", "int8"], sizes(program))}

A mixture of experts computes with a part of its weights for each token, and holds all of them. An embedding of its own
stays in the file, which the system keeps in the memory that nothing else needs.""")
    put("memory machines", f"""## What fits a machine

Of a machine's memory 1 GiB is left to the system. `choose` is the most exact that fits with 8192 tokens.

{table(["by", "choose", "GiB, 8192 tokens", "longest context", "tokens of all sequences"], machines(program))}""")


if __name__ == "__main__":
    main()
