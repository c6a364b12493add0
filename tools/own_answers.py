#!/usr/bin/env python3
"""Generated documents whose first question the model has answered itself, to train an exit head for drafting on.

    tools/own_answers.py MODEL OUT.jsonl [--swiftkv build/swiftkv] [--count 3000] [--seed 1] [--tasks NAME=W,...]
        [--tokens-min 96] [--tokens-max 1024] [--prose FILE] [--vocab MODEL]

The documents are those of training (`swiftkv documents`), never those of the evaluation. The answers
are greedy ones, right or wrong: they are the text that the exit head will meet when it drafts.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile


def first_questions(a):
    """{"prompt", "answer"} of each document: its text and its first question."""
    words = [a.swiftkv, "documents", "--count", a.count, "--seed", a.seed, "--tasks", a.tasks,
             "--tokens-min", a.tokens_min, "--tokens-max", a.tokens_max]
    words += ["--vocab", a.vocab] * bool(a.vocab) + ["--prose", a.prose] * bool(a.prose)
    said = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout
    for line in said.splitlines():
        messages = json.loads(line).get("messages")
        if messages:  # documents of bare tokens ask nothing
            yield {"prompt": messages[0]["content"], "answer": messages[1]["content"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--swiftkv", default="build/swiftkv")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", default="stage:all")
    parser.add_argument("--tokens-min", type=int, default=96)
    parser.add_argument("--tokens-max", type=int, default=1024)
    parser.add_argument("--prose")
    parser.add_argument("--vocab")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked, log = pathlib.Path(folder) / "asked.jsonl", pathlib.Path(folder) / "log.jsonl"
        records = list(first_questions(a))
        asked.write_text("".join(json.dumps(r) + "\n" for r in records))
        subprocess.run([a.swiftkv, "eval", a.model, "--task", str(asked), "--log", str(log)], check=True)
        said = sorted((json.loads(line) for line in log.read_text().splitlines()), key=lambda r: r["index"])
    with a.out.open("w") as out:
        for r in said:
            answer = r["answer"].strip()
            if answer:
                out.write(json.dumps({"prompt": records[r["index"]]["prompt"], "answer": answer}) + "\n")


if __name__ == "__main__":
    main()
