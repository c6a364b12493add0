#!/usr/bin/env python3
"""swiftkv eval from outside: metrics worked out again from `swiftkv score`, which asks one text at
a time; runs that resume; errors.

The models are those of tests/data/models with a tokenizer of single characters beside them.
"""

import gzip
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
QUESTIONS = [
    {"query": "Question: Is water wet?", "choices": ["yes", "not at all, never"], "gold": 0},
    {"query": "Question: Which is red?", "choices": ["a leaf", "blood", "milk"], "gold": 1},
    {"query": "The sun shines because", "choices": ["it is hot.", "we want it"], "gold": 0},
    {"query": "A cat says", "choices": ["woof", "meow, mostly", "moo"], "gold": 1},
]


def without_notes(text):
    """Standard error without the notes on contexts longer than these models were made for."""
    return re.sub(r"(?m)^swiftkv: note: .* beyond, answers may be noise\n", "", text)


def run(*words):
    command = [PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200)


class EvalTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.plain = self.model("llama3-v4")

    def model(self, name, template=None):
        folder = self.folder / f"{name}{'-chat' if template else ''}"
        shutil.copytree(MODELS / name, folder)
        model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(CHARACTERS)}, "merges": []}
        tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None,
                     "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
                     "model": model}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        config = {"chat_template": template} if template else {}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    def write(self, name, content):
        path = self.folder / name
        if not isinstance(content, str):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_text(content)
        return path

    def eval(self, model, *words):
        result = run("eval", model, "--weights", "f32", "--ctx", 512, "--json", *words)
        self.assertEqual((result.returncode, without_notes(result.stderr)), (0, ""), words)
        return json.loads(result.stdout)

    def fails(self, status, words, *parts):
        result = run("eval", *words)
        self.assertEqual(result.returncode, status, (words, result.stderr))
        self.assertEqual(len(without_notes(result.stderr).splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(str(part), result.stderr)

    def score(self, model, text, *words):
        path = self.write("ids.json", json.dumps([CHARACTERS.index(c) for c in text]))
        result = run("score", model, "--ids-file", path, "--weights", "f32", "--ctx", 512, "--json",
                     *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def logprob(self, model, context, continuation):
        scores = self.score(model, context + continuation)["logprobs"]
        return sum(scores[max(1, len(context)):])

    def lines(self, log):
        return [json.loads(line) for line in log.read_text().splitlines()]

    # ---- likelihood ----

    def test_choices(self):
        path, log = self.write("quiz.jsonl", QUESTIONS), self.folder / "log"
        task = self.eval(self.plain, "--task", path, "--log", log)["tasks"][0]
        acc = acc_norm = 0
        for row, line in zip(QUESTIONS, self.lines(log)):
            query = row["query"]
            query += "\nAnswer:" if "Question:" in query else ""
            scores = [self.logprob(self.plain, query, " " + c) for c in row["choices"]]
            for score, logged in zip(scores, line["logprobs"]):
                self.assertAlmostEqual(score, logged, places=3)
            normed = [s / len(c) for s, c in zip(scores, row["choices"])]
            acc += scores.index(max(scores)) == row["gold"]
            acc_norm += normed.index(max(normed)) == row["gold"]
        self.assertEqual(task["metric"], "acc")
        self.assertAlmostEqual(task["metrics"]["acc"]["value"], acc / 4)
        self.assertAlmostEqual(task["metrics"]["acc_norm"]["value"], acc_norm / 4)
        self.assertEqual((task["n"], task["skipped"], task["format"]), (4, 0, "choices"))

    def test_partial_and_pairs_and_words(self):
        partial = self.write("p.jsonl", [{"context_options": ["Ann met Bo so Ann", "Ann met Bo so Bo"],
                                          "continuation": "smiled.", "gold": 1}])
        pairs = self.write("s.jsonl", [{"sentence_good": "He runs.", "sentence_bad": "He run."}])
        words = self.write("w.jsonl", [{"context": "to be or not to ", "continuation": "be"}])
        log = self.folder / "log"
        result = self.eval(self.plain, "--task", f"{partial},{pairs},{words}", "--log", log)
        p, s, w = [line["logprobs"] for line in self.lines(log)]
        for option, found in zip(("Ann met Bo so Ann", "Ann met Bo so Bo"), p):
            self.assertAlmostEqual(self.logprob(self.plain, option, " smiled."), found, places=3)
        self.assertAlmostEqual(self.logprob(self.plain, "", "He runs."), s[0], places=3)
        self.assertAlmostEqual(self.logprob(self.plain, "to be or not to", " be"), w[0], places=3)
        tasks = result["tasks"]
        self.assertEqual(tasks[0]["metrics"]["acc"]["value"], p[1] > p[0])
        self.assertEqual(tasks[1]["metrics"]["acc"]["value"], s[0] > s[1])
        self.assertAlmostEqual(tasks[2]["metrics"]["perplexity"]["value"] / math.exp(-w[0]), 1)
        self.assertAlmostEqual(result["average"],
                               sum(t["metrics"]["acc"]["value"] for t in tasks) / 3)

    def test_truthful_and_letters(self):
        truth = [{"question": "Is it?", "mc1_targets": {"yes": 1, "no": 0},
                  "mc2_targets": {"yes": 1, "sure": 1, "no": 0}}]
        path, log = self.write("mc.json", json.dumps(truth)), self.folder / "log"
        task = self.eval(self.plain, "--task", path, "--log", log)["tasks"][0]
        s = [self.logprob(self.plain, "Q: Is it?\nA:", " " + a) for a in ("yes", "sure", "no")]
        p = [math.exp(x) for x in s]
        self.assertAlmostEqual(task["metrics"]["mc2"]["value"], (p[0] + p[1]) / sum(p), places=4)
        self.assertEqual(task["metrics"]["mc1"]["value"], s[0] > s[2])

        csv = 'question,choice0,choice1,answer\n"What, now?",one,"two, ""2""",1\n'
        path, log = self.write("odd_sums_test.csv", csv), self.folder / "log2"
        task = self.eval(self.plain, "--task", path, "--log", log)["tasks"][0]
        prompt = ("The following are multiple choice questions (with answers) about odd sums.\n\n"
                  'What, now?\nA. one\nB. two, "2"\nAnswer:')
        s = [self.logprob(self.plain, prompt, " " + letter) for letter in "AB"]
        self.assertAlmostEqual(self.lines(log)[0]["logprobs"][1], s[1], places=3)
        self.assertEqual(task["metrics"]["acc"]["value"], s[1] > s[0])

    def test_primer_and_text(self):
        primer = self.write("primer", "Q: one?\nA: 1\n\n")
        path, log = self.write("w.jsonl", [{"context": "Q: two?\nA:", "continuation": "2"}]), self.folder / "log"
        self.eval(self.plain, "--task", path, "--log", log, "--primer", primer)
        want = self.logprob(self.plain, "Q: one?\nA: 1\n\nQ: two?\nA:", " 2")
        self.assertAlmostEqual(self.lines(log)[0]["logprobs"][0], want, places=3)

        text = "It was a dark and stormy night; the rain fell in torrents. " * 20
        path = self.write("text.txt", text)
        task = self.eval(self.plain, "--task", path)["tasks"][0]
        score = run("score", self.plain, "--file", path, "--weights", "f32", "--ctx", 512, "--json")
        score = json.loads(score.stdout)
        self.assertAlmostEqual(task["metrics"]["perplexity"]["value"] / score["perplexity"], 1, places=5)
        bits = score["nll"] * score["scored"] / math.log(2) / len(text)
        self.assertAlmostEqual(task["metrics"]["bits_per_byte"]["value"], bits, places=5)
        self.assertEqual(task["n"], math.ceil(len(text) / 512))
        path = self.write("text.jsonl", [{"text": text}])
        again = self.eval(self.plain, "--task", path)["tasks"][0]
        self.assertAlmostEqual(again["metrics"]["perplexity"]["value"] / score["perplexity"], 1, places=5)

    # ---- generation ----

    def test_documents(self):
        log = self.folder / "log"
        result = self.eval(self.plain, "--task", "lines,table", "--lengths", "192,384", "--count", 6,
                           "--depths", 4, "--log", log, "-n", 12, "--svg", self.folder / "charts")
        for task in result["tasks"]:
            self.assertEqual((task["metric"], task["n"]), ("exact_match", 12))
            self.assertEqual([row["length"] for row in task["lengths"]], [192, 384])
            for row in task["lengths"]:
                self.assertEqual([d["from"] for d in row["depths"]], [0, 0.25, 0.5, 0.75])
                self.assertEqual(sum(d["n"] for d in row["depths"]), 6)
        charts = {path.name for path in (self.folder / "charts").iterdir()}
        self.assertEqual(charts, {"lines.svg", "table.svg", "lengths.svg"})
        self.assertEqual(len(self.lines(log)), 24)

    def test_generated_answers(self):
        """What the model says is what `generate` says, and is right when that was expected."""
        prompt = "line K1: <17>\n\nWhat is in line K1?"
        ids = self.write("p.json", json.dumps([CHARACTERS.index(c) for c in prompt + "\n"]))
        result = run("generate", self.plain, "--ids-file", ids, "-n", 5, "--weights", "f32",
                     "--ignore-eos", "--json")
        said = "".join(CHARACTERS[i] if i < len(CHARACTERS) else "" for i in json.loads(result.stdout)["ids"])
        rows = [{"prompt": prompt, "answer": answer} for answer in (said, "no such answer")]
        log = self.folder / "log"
        task = self.eval(self.plain, "--task", self.write("d.jsonl", rows), "-n", 5, "--log", log)["tasks"][0]
        logged = self.lines(log)
        self.assertTrue(said.lstrip("\n ").startswith(logged[0]["answer"].strip()), (said, logged))
        whole = "\n" not in said.strip()
        self.assertEqual(task["metrics"]["exact_match"]["value"], 0.5 if whole and said.strip() else 0)

    def test_template(self):
        chat = self.model("llama3-v4", TEMPLATE)
        path, log = self.write("d.jsonl", [{"prompt": "one", "answer": "two"}]), self.folder / "log"
        words = ("--task", path, "--log", log, "--resume", "-n", 4)
        with_template = self.eval(chat, *words)["tasks"][0]
        self.assertEqual(with_template["resumed"], 0)
        self.assertEqual(self.eval(chat, *words)["tasks"][0]["resumed"], 1)
        self.assertEqual(self.eval(chat, *words, "--no-template")["tasks"][0]["resumed"], 0)
        # The prompt's tokens by length: <user>one</><assistant> and one, with a new line.
        lengths = [line["length"] for line in self.lines(log)]
        self.assertEqual(lengths, [len("<user>one</><assistant>"), len("one\n")])

    def test_template_that_fails(self):
        chat = self.model("llama3-v4", "{{ raise_exception('not for you') }}")
        choices = self.write("quiz.jsonl", QUESTIONS)
        self.assertEqual(self.eval(chat, "--task", choices)["tasks"][0]["n"], 4)
        self.fails(1, (chat, "--task", "lines", "--ctx", 512), "not for you", "no-template")
        words = ("--task", "lines", "--lengths", 128, "--count", 2, "--no-template")
        self.assertEqual(self.eval(chat, *words)["tasks"][0]["n"], 2)

    def test_reference(self):
        student = self.model("qwen2-swiftkv-g2")
        text = "It was a dark and stormy night; the rain fell in torrents."
        path = self.write("text.txt", text)
        metrics = self.eval(student, "--task", path, "--reference", "teacher")["tasks"][0]["metrics"]
        mine = self.score(student, text)["argmax"][:-1]
        theirs = self.score(student, text, "--prefill", "teacher")["argmax"][:-1]
        same = sum(a == b for a, b in zip(mine, theirs)) / len(mine)
        self.assertAlmostEqual(metrics["agreement"]["value"], same)
        self.assertGreater(metrics["kl"]["value"], 0)
        metrics = self.eval(student, "--task", path, "--reference", student)["tasks"][0]["metrics"]
        self.assertEqual(metrics["agreement"]["value"], 1)
        self.assertLess(abs(metrics["kl"]["value"]), 1e-6)

    # ---- resuming ----

    def test_resume(self):
        words = ("--task", "lines,kv", "--lengths", "128,256", "--count", 8, "-n", 8)
        whole = self.eval(self.plain, *words)
        work = whole.pop("work")["flops"]
        log = self.folder / "log"
        self.eval(self.plain, *words, "--log", log)
        data = log.read_bytes()
        for size in (0, 1, len(data) // 3, len(data) - 1, len(data)):
            log.write_bytes(data[:size])
            again = self.eval(self.plain, *words, "--log", log, "--resume")
            done = sum(task.pop("resumed") for task in again["tasks"])
            self.assertEqual(done, data[:size].count(b"\n"))
            # What this run computed: the examples that the log tells are not among it.
            self.assertTrue(again.pop("work")["flops"] < work if done else again.pop("work")["flops"] == work)
            for task in whole["tasks"]:
                task.pop("resumed", None)
            self.assertEqual(again, whole)
            self.assertEqual(len(self.lines(log)), 32)
        other = self.eval(self.plain, *words, "--log", log, "--resume", "--kv", "int8")
        self.assertEqual(sum(task["resumed"] for task in other["tasks"]), 0)

    def test_killed(self):
        log = self.folder / "log"
        words = ["eval", self.plain, "--task", "all", "--lengths", 256, "--count", 200, "-n", 64,
                 "--ctx", 512, "--log", log]
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL)
        while not log.exists() or log.stat().st_size < 100:
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertGreater(len(self.lines(log)), 0)  # every line is whole

    # ---- errors ----

    def test_errors(self):
        m = self.plain
        good = {"query": "a", "choices": ["b", "c"], "gold": 0}
        bad = self.write("bad.jsonl", [good, good | {"gold": 2}])
        self.fails(1, (m, "--task", bad), "bad.jsonl:2", "gold", "2", "0 to 1")
        bad = self.write("bad.jsonl", [good, good | {"choices": "b"}])
        self.fails(1, (m, "--task", bad), "bad.jsonl:2", "choices")
        bad = self.write("bad.jsonl", json.dumps(good) + "\n{oops}\n")
        self.fails(1, (m, "--task", bad), "bad.jsonl:2")
        bad = self.write("bad.jsonl", [good, {"text": "x"}])
        self.fails(1, (m, "--task", bad), "bad.jsonl:2", "text", "choices")
        bad = self.write("bad.jsonl", [{"a": 1}])
        self.fails(1, (m, "--task", bad), "bad.jsonl:1", "no known format")
        self.fails(1, (m, "--task", "nothing"), "nothing")
        self.fails(1, (m, "--task", "lines,,kv"), "empty")
        self.fails(1, (m, "--task", self.write("none.txt", "")), "none.txt", "empty")
        packed = self.folder / "x.jsonl.gz"
        packed.write_bytes(gzip.compress(b"{}"))
        self.fails(1, (m, "--task", packed), "x.jsonl.gz", "gunzip")
        self.fails(1, (m, "--task", "lines", "--reference", "teacher"), "teacher", m)
        self.fails(1, (m, "--task", "lines", "--lengths", 32), "32 tokens")
        self.fails(1, (MODELS / "llama3-v4", "--task", "lines"), "tokenizer")
        self.fails(2, (m,), "--task")
        self.fails(2, (m, "--task", "lines", "--resume"), "--log")

    def test_too_long(self):
        rows = [{"query": "x" * n, "choices": ["a", "b"], "gold": 0} for n in (10, 600, 20)]
        task = self.eval(self.plain, "--task", self.write("q.jsonl", rows))["tasks"][0]
        self.assertEqual((task["n"], task["skipped"]), (2, 1))
        table = run("eval", self.plain, "--ctx", 512, "--task", self.folder / "q.jsonl").stdout
        self.assertIn("1 skipped: longer than the context", table)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"{PROGRAM} is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0]])
