#!/usr/bin/env python3
"""swiftkv tune from outside. What it says of a setting is held against `swiftkv eval` with the
command line that it prints; the choice is made again from its own list of settings."""

import json
import math
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import test_eval_cli as base

from server_process import Server  # noqa: E402
from waiting import PATIENCE  # noqa: E402

STORIES = base.ROOT / "../shared/assets/models/stories260k/stories260k-f32.gguf"
TALES = base.ROOT / "../shared/assets/text/tinystories-b.txt"
MINI = base.ROOT / "models/mini/kv6"
FEW = ("--repeat", 1, "--gen", 3, "--threads", 1)


def run(*words):
    return subprocess.run([base.PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)


class TuneTest(unittest.TestCase):
    model, write = base.EvalTest.model, base.EvalTest.write
    eval, score = base.EvalTest.eval, base.EvalTest.score

    def setUp(self):
        base.EvalTest.setUp(self)
        self.text = self.write("text.txt", "the cat sat on the mat and looked at the hat. " * 40)
        self.words = ("--text", self.text, "--ctx", 128, "--scored", 32, *FEW)

    def tune(self, *words):
        done = run("tune", *words, "--json")
        self.assertEqual((done.returncode, base.without_notes(done.stderr)), (0, ""), words)
        out = json.loads(done.stdout)
        self.check(out)
        return out

    def check(self, out):
        """The best is the cheapest of the list that keeps the floor, within what times may differ."""
        best, settings = out["best"], out["settings"]
        costs = [s["cost"] for s in settings if s["keeps"]]
        self.assertLessEqual(0.99 * best["cost"], min(costs))
        self.assertEqual(out["found"], best != settings[0])
        self.assertEqual((settings[0]["quality"], settings[0]["keeps"]), (1, True))
        self.assertEqual(len({s["run"] for s in settings}), len(settings))
        for s in settings:  # the same options as to run it
            words, run_words = shlex.split(s["serve"]), shlex.split(s["run"])
            self.assertEqual(words[:3], ["swiftkv", "serve", s["model"]])
            context = words.index("--ctx") if "--ctx" in words else len(words)
            self.assertEqual(words[3:context] + words[context + 2 :], run_words[3:-2])
        self.assertEqual(run(*words[1:], "--help").returncode, 0)  # a command line that parses
        for s in settings[1:]:
            self.assertEqual(s["keeps"], s["quality"] >= out["floor"])
            key = {"ttft": s["ttft_ms"], "kv-bytes": s["kv_bytes"],
                   "total": s["ttft_ms"] + (out["gen"] - 1) * s["token_ms"]}[out["cost"]]
            self.assertAlmostEqual(s["cost"], key, delta=1e-9 * key)
            less = out["metric"] == "perplexity"
            ratio = settings[0]["score"] / s["score"] if less else s["score"] / settings[0]["score"]
            self.assertAlmostEqual(s["quality"], ratio, places=9)
            self.check_capacity(out, s)
        self.assertEqual("plain_cost_again" in out, out["cost"] != "kv-bytes")

    def check_capacity(self, out, setting):
        """Rows that stay are fewer than what was asked, or nothing would have been lost."""
        how = re.match(r"snapkv:(\d+),", setting["evict"])
        if how:
            self.assertLessEqual(int(how[1]), min(out["asked"], out["prompt"]) / 2)

    def eval_says(self, setting, metric):
        """What the printed command line gives: the mean of the tasks."""
        words = shlex.split(setting["eval"])
        self.assertEqual(words[:2], ["swiftkv", "eval"])
        done = run(*words[1:], "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        values = [task["metrics"][metric]["value"] for task in json.loads(done.stdout)["tasks"]]
        if metric == "perplexity":
            return math.exp(sum(map(math.log, values)) / len(values))
        return sum(values) / len(values)

    def swiftkv(self, layers, group=1):
        out = self.folder / f"swiftkv{layers}g{group}"
        self.assertEqual(run("transform", self.plain, out, "--kv-layers", layers, "--group", group).returncode, 0)
        return out

    def test_forms_and_what_is_added(self):
        also = [self.swiftkv(3), self.swiftkv(2, 2)]
        for cost in ("kv-bytes", "total", "ttft"):
            out = self.tune(self.plain, "--floor", 0.5, "--cost", cost, "--also", also[0], "--also", also[1], *self.words)
            self.assertEqual(out["metric"], "perplexity")
            self.assertEqual({s["model"] for s in out["settings"]}, set(map(str, [self.plain, *also])))
            for setting in out["settings"][:None if cost == "kv-bytes" else 0]:
                self.assertAlmostEqual(setting["score"], self.eval_says(setting, "perplexity"), places=9)
            if cost == "kv-bytes":  # AcrossKV has the fewest slots, and rows in 8 bits or fewer of them
                self.assertEqual(out["best"]["model"], str(also[1]))
                self.assertNotEqual((out["best"]["kv"], out["best"]["evict"]), ("auto", "none"))

    def test_eviction_is_measured_on_texts(self):
        """With --scored what stands before is a prompt, so evicting it changes the score."""
        words = ("--task", self.text, "--scored", 32, "--ctx", 128)
        full = self.eval(self.plain, *words)["tasks"][0]["metrics"]["perplexity"]
        fewer = self.eval(self.plain, *words, "--snapkv", "24,8")["tasks"][0]["metrics"]["perplexity"]
        whole = self.eval(self.plain, "--task", self.text, "--ctx", 128)["tasks"][0]["metrics"]["perplexity"]
        self.assertEqual(len({m["value"] for m in (full, fewer, whole)}), 3)
        text = self.text.read_text()[:128]
        scored = self.score(self.plain, text)["logprobs"][-32:]
        one = self.eval(self.plain, *words, "--count", 1)["tasks"][0]["metrics"]["perplexity"]["value"]
        self.assertAlmostEqual(one, math.exp(-sum(scored) / 32), delta=1e-4 * one)

    def test_what_is_not_asked_is_not_found(self):
        """Where all of a window is scored nothing is a prompt, so nothing tells what eviction loses; short
        windows are scored for a quarter, and a longer prompt that is timed keeps no more rows."""
        words = (self.plain, "--floor", 0.01, "--text", self.text, "--cost", "kv-bytes", *FEW)
        whole = self.tune(*words, "--ctx", 128, "--scored", 128)
        self.assertEqual((whole["asked"], {s["evict"] for s in whole["settings"]}), (0, {"none"}))
        part = self.tune(*words, "--ctx", 128)
        self.assertEqual((part["asked"], part["prompt"]), (96, 96))
        self.assertIn("snapkv:48", {s["evict"].partition(",")[0] for s in part["settings"]})
        self.assertIn("--scored 32 ", part["best"]["eval"])
        longer = self.tune(*words, "--ctx", 128, "--scored", 64, "--prompt", 120)
        self.assertEqual((longer["asked"], longer["prompt"]), (64, 120))
        self.assertEqual({s["evict"] for s in longer["settings"]}, {"none"})

    def test_one_example_and_the_command_line(self):
        """What is printed says what is not known, and runs as it stands."""
        done = run("tune", self.plain, "--floor", 0.01, *self.words, "--count", 1, "--cost", "kv-bytes")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("nan", done.stdout)
        self.assertIn("Too few examples for a confidence interval: 1", done.stdout)
        self.assertIn("Asked: prompts of 96 tokens", done.stdout)
        lines = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("  swiftkv ")]
        self.assertEqual([line[1] for line in lines], ["serve", "generate", "eval"])
        self.assertEqual(Server(*lines[0][2:]).stop(), 0)
        for words in (lines[1] + ["-n", "3"], lines[2]):
            self.assertEqual(run(*words[1:]).returncode, 0)

    def test_a_floor_that_nothing_keeps(self):
        words = (self.plain, "--floor", 5, "--also", self.swiftkv(2), *self.words)
        out = self.tune(*words)
        self.assertFalse(out["found"])
        self.assertEqual(out["best"], out["settings"][0])
        done = run("tune", *words)
        self.assertEqual(done.returncode, 0)
        self.assertIn("Nothing cheaper keeps 5 of the plain model's perplexity", done.stdout)
        self.assertIn("below the floor", done.stdout)
        self.assertIn("--prefill full", done.stdout)

    def test_what_is_given_is_not_searched(self):
        out = self.tune(self.plain, "--floor", 0.1, "--kv", "fp8", "--weights", "bf16", *self.words)
        self.assertEqual({(s["kv"], s["weights"]) for s in out["settings"]}, {("fp8", "bf16")})

    def test_a_log_is_gone_on_from(self):
        log = self.folder / "log.jsonl"
        words = (self.plain, "--floor", 0.5, "--cost", "ttft", "--log", log, *self.words)
        first = self.tune(*words)
        lines = log.read_text()
        again = self.tune(*words, "--resume")
        self.assertEqual(log.read_text(), lines)
        for s in again["settings"]:  # which additions are tried goes by times
            self.assertIn(s["score"], [s["score"] for s in first["settings"]])

    def test_errors(self):
        text = ("--text", self.text)
        for status, words, parts in (
            (2, (self.plain, *text), ("--floor",)),
            (2, (self.plain, "--floor", 0.99), ("--text", "--task")),
            (2, (self.plain, "--floor", 0.99, *text, "--task", "lines"), ("--text", "--task")),
            (2, (self.plain, "--floor", 0, *text), ("--floor", "--floor: 0 is not above 0")),
            (2, (self.plain, "--floor", "x", *text), ("--floor", "'x'")),
            (2, (self.plain, "--floor", 0.9, *text, "--cost", "joules"), ("--cost", "joules")),
            (2, (self.plain, "--floor", 0.9, *text, "--resume"), ("--resume", "--log")),
            (1, (self.plain, "--floor", 0.9, "--text", self.folder / "absent"), ("absent",)),
            (1, (self.folder / "none", "--floor", 0.9, *text), ("none",)),
            (1, (self.plain, "--floor", 0.9, "--also", self.folder / "none", *self.words), ("none",)),
            (1, (self.plain, "--floor", 0.9, "--task", self.write("a.jsonl", [{"prompt": "a", "answer": "zzzz"}]), *FEW),
             ("answers nothing correctly",)),
        ):
            done = run("tune", *words)
            self.assertEqual(done.returncode, status, (words, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for part in parts:
                self.assertIn(part, done.stderr)

    def test_interrupted(self):
        """What was measured until then is told."""
        self.text.write_text("the cat sat on the mat. " * 4000)
        command = [base.PROGRAM, "tune", self.plain, "--floor", 0.5, *self.words]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(2)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertIn("swiftkv generate", out)

    def test_stories(self):
        if not STORIES.exists() or not TALES.exists():
            self.skipTest("../shared/assets is absent")
        text = self.write("tales.txt", TALES.read_text()[:12000])
        out = self.tune(STORIES, "--floor", 0.99, "--text", text, "--ctx", 256, "--scored", 64, *FEW)
        for setting in out["settings"]:
            self.assertAlmostEqual(setting["score"], self.eval_says(setting, "perplexity"), places=9)
        self.assertTrue(any(s["weights"] == "int8" and s["keeps"] for s in out["settings"]))
        self.assertTrue(any(s["weights"] == "int4" for s in out["settings"]))

    def test_forms_are_made(self):
        work = self.folder / "forms"
        work.mkdir()
        out = self.tune(self.plain, "--floor", 0.01, "--work", work, "--cost", "ttft", *self.words)
        made = {s["model"] for s in out["settings"]} - {str(self.plain)}
        self.assertEqual(made, set(map(str, work.iterdir())))
        self.assertIn(str(work / "kv2"), made)  # of 4 layers, the least that is tried
        again = self.tune(self.plain, "--floor", 0.01, "--work", work, "--cost", "ttft", *self.words)
        # The plain model and the first form; what follows goes by times.
        self.assertEqual([s["score"] for s in out["settings"][:2]], [s["score"] for s in again["settings"][:2]])

    def test_mini(self):
        out = self.tune(MINI, "--floor", 0.9, "--task", "lines,needle", "--lengths", 128, "--count", 6, *FEW)
        self.assertEqual((out["metric"], out["n"]), ("exact_match", 12))
        self.assertEqual({s["prefill"] for s in out["settings"]} - {"teacher", "auto"}, set())
        for setting in out["settings"][:4]:
            self.assertAlmostEqual(setting["score"], self.eval_says(setting, "exact_match"), places=9)

    @unittest.skipUnless(MINI.exists(), "models/mini is absent")
    def test_wider_votes_where_the_published_ones_fail(self):
        """At a floor that narrow votes miss, and at one that they keep."""
        for floor in (0.97, 0.3):
            out = self.tune(MINI, "--floor", floor, "--cost", "kv-bytes", "--task", "needle,lines", "--lengths", 256,
                            "--count", 2, *FEW)
            forms = {}  # (did a narrow one keep the floor, is a wide one there), by what SnapKV was added to
            for s in out["settings"]:
                how = re.search(r"snapkv:\d+,\d+,(7|15),", s["run"])
                if not how:
                    continue
                narrow, wide = forms.get(key := re.sub(r"snapkv:\S+", "", s["run"]), (False, False))
                forms[key] = (narrow or (how[1] == "7" and s["keeps"]), wide or how[1] == "15")
            self.assertTrue(forms)
            for narrow, wide in forms.values():
                self.assertNotEqual(narrow, wide)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
