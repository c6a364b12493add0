#!/usr/bin/env python3
"""bench --costs and tools/simulate.py: fleets whose figures are known without it, and from a model to machines."""

import json
import math
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "swiftkv"
MODEL = ROOT / "models/mini/kv6"
sys.path.insert(0, str(ROOT / "tools"))
import simulated_fleet as fleet  # noqa: E402

COSTS = {"prompt_ms": [[1, 2], [512, 512]], "answer_ms": [[1, 10], [64, 73]], "prompt_context_us": 1, "step_tokens": 512,
         "answer_context_us": 5, "kv_bytes_per_token": 32768, "weight_bytes": 1e9}
# A millisecond for a prompt token; 10 for a step with an answer, and one more for each further.
EVEN = dict(COSTS, prompt_ms=[[1, 1], [512, 512]], prompt_context_us=0, answer_context_us=0, kv_bytes_per_token=1e6)
ROWS = 40


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.costs, self.trace = Path(folder.name) / "costs.json", Path(folder.name) / "trace.jsonl"

    def read_costs(self, costs):
        self.costs.write_text(json.dumps(costs))
        return fleet.Costs(str(self.costs))


class PartsTest(FolderTest):
    def test_costs_of_steps(self):
        costs = self.read_costs(EVEN)
        self.assertAlmostEqual(costs.step_ms(100, 0, 0, 0), 100)
        self.assertAlmostEqual(costs.step_ms(0, 1, 0, 0), 10)
        self.assertAlmostEqual(costs.step_ms(0, 11, 0, 0), 20)
        # Answers share the layers of prompts with prompts, and have the others for themselves.
        self.assertAlmostEqual(costs.step_ms(99, 1, 0, 0), 109)
        self.assertGreater(costs.step_ms(1024, 0, 0, 0), 1023)  # the last line goes on
        costs.answer_context_us = 500
        self.assertAlmostEqual(costs.step_ms(0, 1, 0, 4000), 12)

    def test_costs_in_a_file(self):
        for key, value in (("prompt_ms", [[8, 2], [1, 9]]), ("answer_ms", []), ("answer_ms", [[1, -3]]),
                           ("prompt_ms", 3), ("step_tokens", 0), ("step_tokens", True), ("weight_bytes", None),
                           ("kv_bytes_per_token", math.nan), ("prompt_context_us", -1)):
            with self.assertRaisesRegex(fleet.Refused, f"costs.json: {key}: "):
                self.read_costs(dict(EVEN, **{key: value}))
        for bad in ([], None, 3):
            with self.assertRaisesRegex(fleet.Refused, "costs.json"):
                self.read_costs(bad)
        self.costs.write_text("[" * 100000)
        with self.assertRaisesRegex(fleet.Refused, "costs.json"):
            fleet.Costs(str(self.costs))
        with self.assertRaisesRegex(fleet.Refused, "nowhere"):
            fleet.Costs("/nowhere")

    def test_traces(self):
        self.trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.5000000,374,44\n"
                              "2024-02-29 00:00:01.2500000,0,1\n2024-03-01 00:00:01.25,9,0\n")
        rows = fleet.read_trace(str(self.trace))
        self.assertEqual([row[1:] for row in rows], [(374, 44, []), (1, 1, []), (9, 1, [])])
        self.assertEqual([round(row[0], 6) for row in rows], [0, 1.75, 86401.75])
        for text in ("", "x\n", "2024-02-30 00:00:00,1,1\n", "2024-02-28 00:00:01,1,1\n2024-02-28 00:00:00,1,1\n",
                     '{"timestamp": 1e400, "input_length": 1, "output_length": 1}\n', "[" * 100000, '{"a":' * 100000,
                     '{"timestamp": 0, "input_length": 16777217, "output_length": 1}\n', "2024-02-28 00:00:00,1,-1\n",
                     '{"timestamp": 0, "input_length": 1e400, "output_length": 1}\n',
                     '{"timestamp": 1, "input_length": 4}\n', '{"timestamp": 0, "input_length": 1, "output_length"\n'):
            self.trace.write_text(text)
            with self.assertRaisesRegex(fleet.Refused, "trace.jsonl: (line [12]|no requests)"):
                fleet.read_trace(str(self.trace))

    def test_blocks_leave_by_age(self):
        blocks = fleet.Blocks(3)
        blocks.add([1, 2, 3])
        self.assertEqual(blocks.find([1, 2, 3, 4, 5]), 3)
        self.assertEqual(blocks.find([1]), 1)  # 1 is the newest
        blocks.add([4])  # 2 leaves
        self.assertEqual(blocks.find([1, 2, 3]), 1)
        self.assertEqual(blocks.find([3, 4]), 2)
        blocks.trim(1)
        self.assertEqual(list(blocks.names), [4])
        nothing = fleet.Blocks(0)
        nothing.add([1])
        self.assertEqual(nothing.find([1]), 0)


class FleetTest(FolderTest):
    def make_trace(self, gap, n_prompt, n_output, shared=0, groups=1):
        """A request every `gap` seconds; the prompt's first blocks are `shared` of its group's, the others its own."""
        n_blocks = n_prompt // fleet.BLOCK_TOKENS if shared else 0
        return [(gap * i, n_prompt, n_output, [i % groups * 1000 + b if b < shared else 10**6 + i * 1000 + b
                                               for b in range(n_blocks)]) for i in range(ROWS)]

    def run_fleet(self, trace, design, n_machines, n_readers=0, rate=0.0, bad_share_most=1.0, **changes):
        options = {"goals": {}, "kv_tokens": 1 << 15, "max_running": 64, "step_ms": 50, "link_gbs": 10, "store_gbs": 10,
                   "store_gb": 64, "latency_ms": 0.5, "read_above": 256, "length_scale": 1, "duration": None, "seed": 7}
        one = fleet.Fleet(self.read_costs(EVEN), trace, types.SimpleNamespace(**dict(options, **changes)), design,
                          n_machines, n_readers)
        return one.run(rate, bad_share_most)

    def test_one_request_at_a_time(self):
        """Alone, a prompt of n tokens takes n ms and its last row's deep layers, an answer 10 ms a token."""
        of = self.run_fleet(self.make_trace(60, 1024, 21), "replicas", 1)
        self.assertEqual((of["requests"], of["good"]), (ROWS, ROWS))
        for key, ms in (("median_ttft", 1033), ("p99_ttft", 1033), ("median_tpot", 10), ("mean_e2el", 1233)):
            self.assertAlmostEqual(of[key + "_ms"], ms, places=6)
        self.assertAlmostEqual(of["answering_busy"], ROWS * 1.233 / (39 * 60 + 1.233), places=6)

    def test_machines_take_their_share(self):
        """Twice what a machine can do waits; so many machines as there are requests at once do not."""
        trace, goals = self.make_trace(0.5, 1000, 2), {"ttft": 1500}
        one = self.run_fleet(trace, "replicas", 1, goals=goals)
        self.assertGreater(one["p99_ttft_ms"], 10000)
        self.assertLess(one["good"], ROWS / 2)
        self.assertAlmostEqual(one["answering_busy"], 1, delta=0.05)
        three = self.run_fleet(trace, "replicas", 3, goals=goals)
        self.assertEqual(three["good"], ROWS)
        self.assertAlmostEqual(three["p99_ttft_ms"], 1009, delta=1)
        self.assertAlmostEqual(three["answering_busy"], 2 / 3, delta=0.07)
        stopped = self.run_fleet(trace, "replicas", 1, goals=goals, bad_share_most=0.1)
        self.assertLess(stopped["good"] + 6, ROWS)

    def test_caches(self):
        """Prompts of a group share 3 of 4 blocks. One machine finds them by itself; four find them with a store or when
        a group goes to one machine."""
        trace, share = self.make_trace(10, 2048, 2, 3, 2), (ROWS - 2) * 0.75 / ROWS
        alone = self.run_fleet(trace, "replicas", 1)
        self.assertAlmostEqual(alone["cached_share"], share)
        self.assertAlmostEqual(alone["median_ttft_ms"], 512 + 9)
        self.assertAlmostEqual(self.run_fleet(trace, "replicas", 4)["cached_share"], share)
        stored = self.run_fleet(trace, "store", 4)
        self.assertAlmostEqual(stored["cached_share"], share)
        # 1536 tokens of 1 MB at 10 GB/s, and the latency, where another machine had them.
        self.assertAlmostEqual(stored["p99_ttft_ms"], 2057, delta=206)
        self.assertLess(stored["median_ttft_ms"], 512 + 9 + 154.2)
        self.assertGreater(stored["store_network"], 0)
        nothing_fits = self.run_fleet(trace, "store", 4, store_gb=0.001)
        self.assertLess(nothing_fits["cached_share"], share)

    def test_readers_leave_answers_alone(self):
        """While a reader reads, answers go on at 10 ms a token, or a little more for two."""
        trace = self.make_trace(1, 640, 150)
        together, apart = self.run_fleet(trace, "replicas", 2), self.run_fleet(trace, "readers", 2, 1)
        self.assertLess(apart["p99_tpot_ms"], 13)
        self.assertGreater(together["p99_tpot_ms"], apart["p99_tpot_ms"] + 2)
        # 576 tokens there, the bytes of the last step's twice, 64 here.
        self.assertTrue(640 < apart["median_ttft_ms"] < 900)
        self.assertAlmostEqual(apart["reading_busy"], 0.576, delta=0.03)
        unused = self.run_fleet(trace, "readers", 2, 1, read_above=10000)
        self.assertEqual(unused["reading_busy"], 0)

    def test_what_does_not_fit_is_refused(self):
        trace = self.make_trace(1, 4096, 10)
        of = self.run_fleet(trace, "replicas", 1, kv_tokens=4000)
        self.assertEqual((of["refused"], of["good"]), (ROWS, 0))
        with self.assertRaisesRegex(fleet.Refused, "max-running"):
            self.run_fleet(trace, "replicas", 1, max_running=513)

    def test_rates(self):
        """Four times the rate of a trace is four of it, and every figure is the same in every run."""
        trace = self.make_trace(1, 100, 5)
        coming = fleet.arrivals(trace, 4, 30, 7)
        self.assertTrue(115 <= len(coming) <= 125)
        self.assertEqual(coming, sorted(coming))
        one, other = (self.run_fleet(trace, "store", 3, rate=12, duration=100) for _ in range(2))
        self.assertAlmostEqual(one["request_rate"], 12, delta=0.6)
        self.assertEqual(one, other)


class CommandTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.costs.write_text(json.dumps(COSTS))
        rows = [{"timestamp": 500 * i, "input_length": 1100, "output_length": 4 + i % 7,
                 "hash_ids": [i % 3, 10 + i % 3, 1000 + i]} for i in range(200)]
        self.trace.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run_tool(self, *words):
        words = [sys.executable, "-B", ROOT / "tools/simulate.py", *map(str, words)]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)

    def simulate(self, *words):
        done = self.run_tool(self.costs, "--trace", self.trace, "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_costs_of_a_model(self):
        words = [PROGRAM, "bench", MODEL, "--costs", "--prompt", "64", "--threads", "1"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
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
        most = self.simulate("--machines", "2,4", "--designs", "readers", *goals)
        self.assertGreater(most[1]["request_rate"], 1.5 * most[0]["request_rate"])
        table = self.run_tool(self.costs, "--trace", self.trace, "--machines", 2, "--rate", 1).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in table], ["design", "replicas", "store", "readers"])

    def test_what_is_refused(self):
        trace = ("--trace", self.trace)
        for words, says in (
            ((self.costs,), "--trace"),
            ((self.costs, *trace), "--goodput"),
            ((self.costs, *trace, "--rate", 1, "--machines", 1, "--designs", "mesh"), "mesh"),
            ((self.costs, *trace, "--goodput", "speed:1"), "--goodput"),
            ((self.costs, *trace, "--goodput", "ttft:x"), "--goodput"),
            ((self.costs, *trace, "--rate", 0, "--machines", 1), "--rate"),
            ((self.trace, *trace, "--rate", 1, "--machines", 1), "trace.jsonl"),
            ((self.costs, "--trace", self.costs, "--rate", 1, "--machines", 1), "costs.json"),
            ((self.costs, *trace, "--rate", 1, "--machines", 2, "--designs", "readers", "--readers", 2), "readers"),
        ):
            done = self.run_tool(*words)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(says, done.stderr.splitlines()[-1])
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    if not PROGRAM.exists():
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], "-q"])
