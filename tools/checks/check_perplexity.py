#!/usr/bin/env python3
"""Perplexity of the real models against tests/data/reference: a table, and status 1 where a
figure is off by more than 0.1 % (f32), 0.5 % (bf16) or 1 % (int8 weights).

    tools/checks/check_perplexity.py [--build FOLDER] [--assets FOLDER] [--text NAME]...

Takes minutes: whole books are scored. The texts are tinystories-b.txt and
pride-and-prejudice.txt unless --text names others that the references have.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["tinystories-b.txt", "pride-and-prejudice.txt"]
BOUNDS = {"f32": 0.001, "bf16": 0.005, "int8": 0.01}
# The file of each reference, and the tokenizer whose figures apply to it.
MODELS = {
    "stories260k": ("stories260k/stories260k-f32.gguf", "gguf"),
    "tinystories-656k": ("tinystories-656k", "tokenizer.json"),
    "tinystories-656k-f16": ("tinystories-656k-f16", "tokenizer.json"),
}


def score(program, model, text, weights):
    words = [program, "score", model, "--file", text, "--weights", weights]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    return dict(line.split() for line in result.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--assets", type=Path, default=ROOT / "../shared/assets")
    parser.add_argument("--text", action="append")
    options = parser.parse_args()
    failed = 0
    print("| model | text | weights | perplexity | reference | off by | bound |")
    print("|---|---|---|---:|---:|---:|---:|")
    for name, (path, tokenizer) in MODELS.items():
        reference = json.loads((ROOT / f"tests/data/reference/{name}.json").read_text())
        for want in reference["perplexity"]:
            if want["tokenizer"] != tokenizer or want["file"] not in (options.text or TEXTS):
                continue
            for weights, bound in BOUNDS.items():
                got = score(options.build / "swiftkv", options.assets / "models" / path,
                            options.assets / "text" / want["file"], weights)
                off = float(got["perplexity"]) / want["perplexity"] - 1
                good = abs(off) <= bound and int(got["tokens"]) >= want["n_ids"]
                failed += not good
                print(f"| {name} | {want['file']} | {weights} | {got['perplexity']} "
                      f"| {want['perplexity']:.5f} | {off:+.4%} | {bound:.1%}"
                      f"{'' if good else ' FAILED'} |", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
