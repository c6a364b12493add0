#!/usr/bin/env python3
"""Multiple choice, last words and texts of `swiftkv eval` against the transformers library: every
log-probability, and acc, acc_norm and perplexity of every task; status 1 where one is off.

    tools/checks/check_eval.py [--build FOLDER] [--assets FOLDER] [--model FOLDER] [--count N]

Needs torch and transformers. Prompts, and which tokens of them count, are built here again from
the files, without a look at the program's own.
"""

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOUND = 1e-3  # of a log-probability, in nats
LETTERS = "ABCD"


class Oracle:
    def __init__(self, folder):
        import torch
        from tokenizers import Tokenizer
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.torch = torch
        # The file itself: version 5 of transformers builds its own Llama tokenizer from it, which
        # drops characters that the file's has an <unk> for.
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.context = self.model.config.max_position_embeddings

    def logprob(self, context, continuation):
        """(sum of log-probabilities, greedy) of the continuation; None: too long."""
        n_space = len(context) - len(context.rstrip())
        if n_space:
            continuation = context[-n_space:] + continuation
            context = context[:-n_space]
        whole = self.tokenizer.encode(context + continuation).ids
        n_context = max(1, len(self.tokenizer.encode(context).ids))
        return self.of_ids(whole, n_context)

    def of_ids(self, ids, n_context):
        if len(ids) > self.context:
            return None
        with self.torch.no_grad():
            logits = self.model(self.torch.tensor([ids])).logits[0].double()
        table = logits.log_softmax(-1)
        total, greedy = 0.0, True
        for t in range(n_context, len(ids)):
            total += float(table[t - 1, ids[t]])
            greedy = greedy and int(table[t - 1].argmax()) == ids[t]
        return total, greedy


# Each reader gives (requests, judge): (context, continuation) pairs, and from their results the
# metrics of the example.


def best(scores):
    return max(range(len(scores)), key=lambda i: (scores[i], -i))


def choices(row):
    query = row["query"].rstrip()
    if "Question:" in query and not query.endswith(":"):
        query += "\nAnswer:"
    texts = [c.rstrip() for c in row["choices"]]

    def judge(found):
        scores = [x[0] for x in found]
        normed = [x[0] / len(c.encode()) for x, c in zip(found, texts)]
        return {"acc": best(scores) == row["gold"], "acc_norm": best(normed) == row["gold"]}

    return [(query, " " + c) for c in texts], judge


def partial(row):
    def judge(found):
        return {"acc": best([x[0] for x in found]) == row["gold"]}

    return [(c.rstrip(), " " + row["continuation"]) for c in row["context_options"]], judge


def sentences(row):
    def judge(found):
        return {"acc": found[0][0] >= found[1][0]}

    return [("", row["sentence_good"]), ("", row["sentence_bad"])], judge


def last_word(row):
    def judge(found):
        return {"acc": found[0][1], "perplexity": -found[0][0]}

    return [(row["context"].rstrip(), " " + row["continuation"])], judge


def letters(row):
    subject = row["subject"]
    prompt = f"The following are multiple choice questions (with answers) about {subject}.\n\n"
    prompt += row["question"].rstrip()
    for i, letter in enumerate(LETTERS):
        prompt += f"\n{letter}. {row[f'choice{i}']}"

    def judge(found):
        return {"acc": best([x[0] for x in found]) == int(row["answer"])}

    return [(prompt + "\nAnswer:", " " + letter) for letter in LETTERS], judge


def truthful(row):
    sets = [row["mc1_targets"], row["mc2_targets"]]
    pairs = [(f"Q: {row['question']}\nA:", " " + a) for s in sets for a in s]

    def judge(found):
        n = len(sets[0])
        labels = list(sets[1].values())
        p = [math.exp(x[0]) for x in found[n:]]
        right = sum(x for x, label in zip(p, labels) if label == 1)
        first = list(sets[0].values())
        return {"mc1": first[best([x[0] for x in found[:n]])] == 1, "mc2": right / sum(p)}

    return pairs, judge


def read(path):
    if path.suffix == ".csv":
        subject = path.stem.removesuffix("_test").replace("_", " ")
        with path.open(newline="") as file:
            return [row | {"subject": subject} for row in csv.DictReader(file)]
    if path.suffix == ".json":
        return json.loads(path.read_text())
    return [json.loads(line) for line in path.read_text().splitlines()]


TASKS = [
    ("gauntlet/arc_easy.jsonl", choices),
    ("gauntlet/arc_challenge.jsonl", choices),
    ("gauntlet/piqa.jsonl", choices),
    ("gauntlet/boolq.jsonl", choices),
    ("gauntlet/openbook_qa.jsonl", choices),
    ("gauntlet/copa.jsonl", choices),
    ("gauntlet/winogrande.jsonl", partial),
    ("gauntlet/winograd_wsc.jsonl", partial),
    ("gauntlet/lambada_openai_small.jsonl", last_word),
    ("blimp/wh_island.jsonl", sentences),
    ("blimp/left_branch_island_simple_question.jsonl", sentences),
    ("mmlu/test/astronomy_test.csv", letters),
    ("truthfulqa/mc_task.json", truthful),
]


def evaluate(program, model, path, count, log):
    words = [program, "eval", model, "--task", path, "--count", count, "--weights", "f32",
             "--log", log, "--json"]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return json.loads(result.stdout)["tasks"][0], lines


def compare(oracle, task, lines, rows, reader):
    """(largest difference of a log-probability, of a metric, examples, skipped)"""
    worst, sums, n, skipped = 0.0, {}, 0, 0
    for line, row in zip(lines, rows):
        requests, judge = reader(row)
        found = [oracle.logprob(*request) for request in requests]
        if any(x is None for x in found):
            assert line.get("skipped"), line
            skipped += 1
            continue
        assert not line.get("skipped") and len(found) == len(line["logprobs"]), line
        worst = max([worst] + [abs(x[0] - y) for x, y in zip(found, line["logprobs"])])
        for name, value in judge(found).items():
            sums[name] = sums.get(name, 0) + float(value)
        n += 1
    off = 0.0
    for name, total in sums.items():
        mean = math.exp(total / n) if name == "perplexity" else total / n
        off = max(off, abs(task["metrics"][name]["value"] / mean - 1) if mean else 0)
        assert mean or task["metrics"][name]["value"] == 0, (name, task)
    assert task["n"] == n and task["skipped"] == skipped, task
    return worst, off, n, skipped


def check_text(program, oracle, model, text, folder):
    task, _ = evaluate(program, model, text, 4, folder / "text.log")
    ids = oracle.tokenizer.encode(text.read_text(), add_special_tokens=False).ids
    step = oracle.context - 1
    nll, n = 0.0, 0
    for at in range(0, min(len(ids), 4 * step), step):
        window = oracle.tokenizer.encode("").ids[:1] + ids[at : at + step]
        nll -= oracle.of_ids(window, 1)[0]
        n += len(window) - 1
    return task["metrics"]["perplexity"]["value"], math.exp(nll / n)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--assets", type=Path, default=ROOT / "../shared/assets")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--count", type=int, default=60)
    options = parser.parse_args()
    program, model = options.build / "swiftkv", options.model
    model = model or options.assets / "models/tinystories-656k"
    oracle = Oracle(model)
    failed = 0
    print("| task | n | skipped | log-probability off by | metrics off by |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, reader in TASKS:
            path = options.assets / "eval" / file
            log = folder / (path.stem + ".log")
            task, lines = evaluate(program, model, path, options.count, log)
            worst, off, n, skipped = compare(oracle, task, lines, read(path), reader)
            good = worst <= BOUND and off <= BOUND
            failed += not good
            print(f"| {path.stem} | {n} | {skipped} | {worst:.1e} | {off:.1e}"
                  f"{'' if good else ' FAILED'} |", flush=True)
        text = options.assets / "text/tinystories-b.txt"
        got, want = check_text(program, oracle, model, text, folder)
        good = abs(got / want - 1) <= BOUND
        failed += not good
        print(f"| {text.stem}, 4 windows | | | perplexity {got:.5f} | {got / want - 1:+.1e}"
              f"{'' if good else ' FAILED'} |")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
