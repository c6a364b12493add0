#!/usr/bin/env python3
"""bench --costs and simulate, from a model to machines."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "swiftkv"
MODEL = ROOT / "models/mini/kv6"
COSTS = {"prompt_ms": [[1, 2], [512, 512]], "answer_ms": [[1, 10], [64, 73]], "prompt_context_us": 1, "step_tokens": 512,
         "answer_context_us": 5, "kv_bytes_per_token": 32768, "weight_bytes": 1e9}


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=300, check=False)


class SimulateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.costs, self.trace = Path(folder.name) / "costs.json", Path(folder.name) / "trace.jsonl"
        self.svg = Path(folder.name) / "fleet.svg"
        self.costs.write_text(json.dumps(COSTS))
        rows = [{"timestamp": 500 * i, "input_length": 1100, "output_length": 4 + i % 7,
                 "hash_ids": [i % 3, 10 + i % 3, 1000 + i]} for i in range(200)]
        self.trace.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def simulate(self, *words):
        done = run("simulate", self.costs, "--trace", self.trace, "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_costs_of_a_model(self):
        done = run("bench", MODEL, "--costs", "--prompt", 64, "--threads", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        costs = json.loads(done.stdout)
        for key in ("prompt_ms", "answer_ms"):
            self.assertEqual([rows for rows, _ in costs[key]][:4], [1, 2, 4, 8])
            self.assertTrue(all(ms > 0 for _, ms in costs[key]))
        self.costs.write_text(done.stdout)
        self.assertEqual(len(self.simulate("--machines", 1, "--rate", 1, "--designs", "replicas")), 1)

    def test_latencies_of_fleets(self):
        all_of = self.simulate("--machines", "1,3", "--rate", "0.5,14")
        self.assertEqual([(one["design"], one["machines"]) for one in all_of if one["design"] != "readers"],
                         [(design, n) for design in ("replicas", "store") for n in (1, 1, 3, 3)])
        for one in all_of:
            self.assertIn(one["requests"], (200, 1400))  # 14 a second are seven copies of the trace
        shared = [one for one in all_of if one["design"] == "store" and one["machines"] == 3]
        alone = [one for one in all_of if one["design"] == "replicas" and one["machines"] == 1]
        self.assertAlmostEqual(shared[0]["cached_share"], alone[0]["cached_share"], delta=0.02)
        self.assertLess(shared[1]["median_ttft_ms"], alone[1]["median_ttft_ms"])

    def test_what_goals_need(self):
        goals = ("--goodput", "ttft:1500,tpot:100")
        fewest = self.simulate("--rate", 4, "--designs", "replicas,store", *goals)
        self.assertTrue(all(one["met"] for one in fewest))
        less = self.simulate("--rate", 4, "--designs", "replicas", "--machines", fewest[0]["machines"] - 1, *goals)
        self.assertFalse(less[0]["met"])
        most = self.simulate("--machines", "2,4", "--designs", "readers", "--svg", self.svg, *goals)
        self.assertGreater(most[1]["request_rate"], 1.5 * most[0]["request_rate"])
        self.assertIn("requests a second, by machine", self.svg.read_text())

    def test_what_is_refused(self):
        trace = ("--trace", self.trace)
        for words, says in (
            ((self.costs,), "--trace"),
            ((self.costs, *trace), "--goodput"),
            ((self.costs, *trace, "--rate", 1, "--machines", 1, "--designs", "mesh"), "mesh"),
            ((self.costs, *trace, "--goodput", "speed:1"), "--goodput"),
            ((self.trace, *trace, "--rate", 1, "--machines", 1), "trace.jsonl"),
            ((self.costs, "--trace", self.costs, "--rate", 1, "--machines", 1), "costs.json"),
            ((self.costs, *trace, "--rate", 1, "--machines", 2, "--designs", "readers", "--readers", 2), "readers"),
        ):
            done = run("simulate", *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    if not PROGRAM.exists():
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], "-q"])
