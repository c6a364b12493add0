#!/usr/bin/env python3
"""Compares `swiftkv vocab` with the Python package tokenizers: the same merges learnt from a text,
and the same ids from the written tokenizer.json.

    tools/checks/check_vocab.py TEXT [SIZE]

The program is taken from $SKV_BUILD (build).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PROGRAM = Path(os.environ.get("SKV_BUILD", "build")) / "swiftkv"
SPECIALS = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
CASES = ["", " ", "line torpid-kid: REGISTER_CONTENT is <24169>", "\n\n  x  12 3", "Zürich ½ ٣ 日本"]


def learn(text, size):
    theirs = Tokenizer(models.BPE())
    split = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    theirs.pre_tokenizer = pre_tokenizers.Sequence(split)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    theirs.train_from_iterator([text], trainer)
    return json.loads(theirs.to_str())["model"]


def main():
    path = Path(sys.argv[1])
    size = sys.argv[2] if len(sys.argv) > 2 else "1500"
    with open(path, newline="", encoding="utf-8") as file:
        text = file.read()
    with tempfile.TemporaryDirectory() as folder:
        command = [PROGRAM, "vocab", folder, "--size", size, "--count", "0", "--data", path]
        subprocess.run(command, check=True)
        written = Path(folder) / "tokenizer.json"
        ours, theirs = json.loads(written.read_text())["model"], learn(text, int(size))
        merges = [m if isinstance(m, str) else " ".join(m) for m in theirs["merges"]]
        assert ours["vocab"] == theirs["vocab"] and ours["merges"] == merges, "merges differ"
        reader = Tokenizer.from_file(str(written))
        for case in [*CASES, text[:20000], text[-20000:]]:
            source = Path(folder) / "case"
            source.write_bytes(case.encode())
            command = [PROGRAM, "tokenize", folder, "--file", source, "--json", "--add-special"]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            got = json.loads(out)
            got = got["ids"] if isinstance(got, dict) else got
            assert got == reader.encode(case).ids, f"ids differ: {case[:40]!r}"
    print(f"{len(merges)} merges and the ids of {len(CASES) + 2} texts are the same")


if __name__ == "__main__":
    main()
