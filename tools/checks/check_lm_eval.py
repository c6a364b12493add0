#!/usr/bin/env python3
"""The unmodified lm-evaluation-harness, through `swiftkv serve` or the Python package, against `swiftkv eval` on the same
rows: a likelihood task and a generation task; status 1 where a score or an answer differs.

    python3 -m venv venv && venv/bin/pip install -r tools/checks/lm-eval-requirements.txt
    tools/checks/check_lm_eval.py --lm-eval venv/bin/lm_eval [--build FOLDER] [--assets FOLDER]
                           [--model FOLDER] [--count N] [--python]

--python: as its model `swiftkv` of the package, which must be installed beside the harness.

The harness asks for tokens, likelihoods (echo with logprobs) and greedy answers as its model
`local-completions` does with any server. It leaves out what a tokenizer puts in front of a text, so
the prompts say it.
"""

import argparse
import json
import os
import re
import string
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 512
ANSWER_TOKENS = 32  # what `swiftkv eval` gives an answer of this format

TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
num_fewshot: 0
"""
LIKELIHOOD = TASK + """output_type: multiple_choice
doc_to_text: "{bos}{{{{query}}}}"
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - metric: acc
  - metric: acc_norm
"""
GENERATION = TASK + """output_type: generate_until
doc_to_text: "{bos}{{{{context}}}}"
doc_to_target: answer
generation_kwargs: {{until: ["\\n"], max_gen_toks: {tokens}, do_sample: false}}
process_results: !function judge.judge
metric_list:
  - metric: exact_match
"""
JUDGE = """import re
import string


def words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\\\\b(a|an|the)\\\\b", " ", text).split()


def judge(doc, results):
    return {"exact_match": float(words(results[0]) == words(doc["answer"]))}
""".replace("\\\\", "\\")


def run(*words, **more):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, **more)
    if result.returncode != 0:
        sys.exit(f"{words[0]}: {result.stdout[-4000:]}\n{result.stderr[-4000:]}")
    return result.stdout


class Server:
    def __init__(self, program, model):
        words = ("serve", model, "--port", 0, "--ctx", CONTEXT, "--weights", "f32")
        self.process = subprocess.Popen(
            list(map(str, (program, *words))), stderr=subprocess.PIPE, text=True
        )
        line = ""
        while not line.startswith("swiftkv: ready"):
            line = self.process.stderr.readline()
            if not line:
                sys.exit("the server did not start")
        self.url = re.search(r"http://\S+", line).group()
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        return json.loads(urllib.request.urlopen(request).read())

    def beginning(self):
        """What, in front of a text, gives the tokens that the text itself has for the model."""
        with urllib.request.urlopen(self.url + "/tokenizer_info") as answer:
            bos = json.loads(answer.read())["bos_token"] or ""
        want = self.post("/tokenize", prompt="Once upon")["tokens"]
        for text in ("", bos, bos + " "):
            got = self.post("/tokenize", prompt=text + "Once upon", add_special_tokens=False)
            if got["tokens"] == want:
                return text
        sys.exit("no text begins as the model's tokenizer begins them")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def evaluate(options, path, folder):
    """(metrics, lines of the log) of `swiftkv eval`."""
    log = folder / (path.stem + ".log")
    log.unlink(missing_ok=True)
    words = ("eval", options.model, "--task", path, "--count", options.count, "--ctx", CONTEXT)
    words += ("--weights", "f32", "--no-template", "--log", log, "--json")
    task = json.loads(run(options.program, *words))["tasks"][0]
    assert task["n"] == options.count and task["skipped"] == 0, task
    metrics = {name: entry["value"] for name, entry in task["metrics"].items()}
    return metrics, [json.loads(line) for line in log.read_text().splitlines()]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def joins(server, context, text):
    """Whether a context and what follows have the same tokens together as one after the other. Where
    they have not, the harness scores the context's own tokens with the rest of the joined ones, and
    `swiftkv eval` the joined ones."""
    alone = server.post("/tokenize", prompt=context)["tokens"]
    return server.post("/tokenize", prompt=context + text)["tokens"][: len(alone)] == alone


def likelihood_rows(options, server):
    """Questions with their choices. Characters are bytes in them: the harness norms by the one,
    `swiftkv eval` by the other."""
    rows = []
    for line in (options.assets / "eval/gauntlet/arc_easy.jsonl").read_text().splitlines():
        row = json.loads(line)
        query, choices = row["query"].rstrip(), [c.strip() for c in row["choices"]]
        query += "" if query.endswith(":") else "\nAnswer:"
        plain = (query + "".join(choices)).isascii() and len(query) < 300
        if plain and all(joins(server, query, " " + c) for c in choices):
            rows.append({"query": query, "choices": choices, "gold": row["gold"]})
        if len(rows) == options.count:
            return rows
    sys.exit(f"only {len(rows)} rows whose tokens both programs split alike")


def generation_rows(options, folder):
    """Beginnings of stories. Every other answer is the one that the model gives."""
    text = (options.assets / "text/tinystories-b.txt").read_text()
    words = text.split()
    rows = []
    for i in range(options.count):
        context = " ".join(words[i * 40 : i * 40 + 12])
        rows.append({"context": context, "answer": "none", "aliases": ["none"]})
    path = folder / "beginnings.jsonl"
    write_rows(path, rows)
    for row, line in list(zip(rows, evaluate(options, path, folder)[1]))[::2]:
        row["answer"] = line["answer"].strip()
        row["aliases"] = [row["answer"]]
    return rows


def harness(options, url, folder, names):
    """(metrics by task, samples by task) of the harness."""
    out = folder / "out"
    command = [options.lm_eval]
    if options.python:
        command = [Path(options.lm_eval).parent / "python", "-m", "swiftkv.lm_eval"]
        model = f"pretrained={options.model},weights=f32,context={CONTEXT}"
        words = ("--model", "swiftkv", "--model_args", model)
    else:
        model = f"model={options.model.name},base_url={url}/v1/completions,max_length={CONTEXT}"
        words = ("--model", "local-completions", "--model_args", model + ",num_concurrent=4")
    words += ("--tasks", ",".join(names), "--include_path", folder, "--output_path", out)
    offline = {"HF_HOME": str(folder / "home"), "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    run(*command, *words, "--log_samples", env=os.environ | offline)
    results = json.loads(next(out.rglob("results_*.json")).read_text())["results"]
    samples = {}
    for name in names:
        lines = next(out.rglob(f"samples_{name}_*.jsonl")).read_text().splitlines()
        samples[name] = sorted(map(json.loads, lines), key=lambda s: s["doc_id"])
    metrics = {}
    for name in names:
        entries = results[name].items()
        metrics[name] = {k.removesuffix(",none"): v for k, v in entries if k.endswith(",none")}
    return metrics, samples


def worst_logprob(samples, lines):
    """The largest difference of a choice's log-probability, in nats."""
    worst = 0.0
    for sample, line in zip(samples, lines, strict=True):
        theirs = [float(r[0][0]) for r in sample["resps"]]
        worst = max([worst] + [abs(a - b) for a, b in zip(theirs, line["logprobs"], strict=True)])
    return worst


def words_of(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lm-eval", default="lm_eval")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--assets", type=Path, default=ROOT / "../shared/assets")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--python", action="store_true")
    options = parser.parse_args()
    options.program = options.build / "swiftkv"
    options.model = options.model or options.assets / "models/tinystories-656k"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "judge.py").write_text(JUDGE)
        server = Server(options.program, options.model)
        try:
            rows = {
                "questions": (LIKELIHOOD, likelihood_rows(options, server)),
                "stories": (GENERATION, generation_rows(options, folder)),
            }
            return compare(options, server, folder, rows)
        finally:
            server.stop()


def compare(options, server, folder, rows):
    own = {}
    bos = "" if options.python else server.beginning()
    for task, (template, records) in rows.items():
        path = folder / f"{task}.jsonl"
        write_rows(path, records)
        own[task] = evaluate(options, path, folder)
        values = {"name": task, "file": path, "bos": bos, "tokens": ANSWER_TOKENS}
        (folder / f"{task}.yaml").write_text(template.format(**values))
    return report(own, *harness(options, server.url, folder, list(own)))


def report(own, metrics, samples):
    print("| task | metric | swiftkv eval | lm-eval |\n|---|---|---:|---:|")
    failed = False
    for task, (values, _) in own.items():
        for name, value in values.items():
            theirs = metrics[task][name]
            same = abs(theirs - value) < 1e-9
            failed = failed or not same
            print(f"| {task} | {name} | {value:.4f} | {theirs:.4f}{'' if same else ' DIFFERS'} |")
    worst = worst_logprob(samples["questions"], own["questions"][1])
    answers = zip(samples["stories"], own["stories"][1], strict=True)
    n_same = sum(words_of(s["filtered_resps"][0]) == words_of(line["answer"]) for s, line in answers)
    n = len(samples["stories"])
    print(f"log-probabilities differ by at most {worst:.1e} nats; {n_same} of {n} answers are equal")
    return failed or worst > 1e-3 or n_same < n


if __name__ == "__main__":
    sys.exit(main())
