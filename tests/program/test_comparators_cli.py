#!/usr/bin/env python3
"""The comparators of docs/reference/comparators.md by what they count, with other methods and without; which combinations
work at all is test_combinations.py's. What is computed is held against torch in test_comparators.c."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402
from prompt_case import PromptCase, run  # noqa: E402

SWIFTKV = base.MODELS / "qwen2-swiftkv-g2"  # 6 layers, AcrossKV groups of 2, and its teacher
PLAIN = base.MODELS / "qwen3-v5"
KVPRED = base.ROOT / "tests/data/kvpred/openelm-lp"
EXIT = base.ROOT / "tests/data/comparators/exit"  # l = 2 of 4 layers, and a head for early exits
SKIP = ("--ffn-skip", "0.6,4,0,0,1")
SKIP_LESS = ("--ffn-skip", "0.9,8,1")
LEAVE = ("--early-exit", "0.3")
MERGED = ("--prefill", "merged")
PROMPT = [1] + [(i * i * 7 + 3 * i) % 90 + 3 for i in range(79)]


class ComparatorsTest(PromptCase):
    prompt = PROMPT

    def test_blocks_left_out_with_everything(self):
        for model, words in (
            (SWIFTKV, ()), (SWIFTKV, ("--prefill", "teacher")), (SWIFTKV, ("--kv", "int8")),
            (SWIFTKV, ("--kv", "fp8", "--weights", "int8")), (SWIFTKV, ("--snapkv", "30,8,5")),
            (SWIFTKV, ("--evict", "h2o:30")), (PLAIN, MERGED), (PLAIN, ("--prune", "random:0.5")),
            (PLAIN, ("--prune", "static:0.5")), (PLAIN, ("--prune", "lazy:0.75,0.25")),
            (KVPRED, ()), (KVPRED, ("--prefill", "full")), (EXIT, LEAVE),
        ):
            with self.subTest(model=model.name, words=words):
                full, out = self.generate(model, *words), self.generate(model, *SKIP, *words)
                self.assertEqual(out["kv_bytes"], full["kv_bytes"])
                self.assertEqual(full["work"]["mlp_skipped"], 0)
                self.assertGreater(out["work"]["mlp_skipped"], 0)
                self.assertLess(out["work"]["flops"], full["work"]["flops"])
                self.assertEqual(out["work"]["model_flops"], full["work"]["model_flops"])

    def test_blocks_left_out_are_the_tokens_own(self):
        want = self.generate(SWIFTKV, *SKIP_LESS)["ids"]
        for words in (("--chunk", 7), ("--prefill", "swiftkv-full")):
            self.assertEqual(self.generate(SWIFTKV, *SKIP_LESS, *words)["ids"], want)

    def test_exits_with_everything(self):
        for words in ((), ("--kv", "int8"), ("--kv", "fp8", "--weights", "int8"), ("--snapkv", "30,8,5"),
                      ("--evict", "h2o:30"), ("--evict", "streaming:4,30"), SKIP_LESS):
            with self.subTest(words=words):
                full, out = self.generate(EXIT, *words), self.generate(EXIT, *LEAVE, *words)
                self.assertEqual(out["kv_bytes"], full["kv_bytes"])
                self.assertEqual(full["work"]["exits_asked"], 0)
                self.assertGreater(out["work"]["exits"], 0)
                self.assertLess(out["work"]["mlp"], full["work"]["mlp"])

    def test_merged_with_everything(self):
        for words in ((), ("--kv", "int8"), ("--kv", "fp8", "--weights", "int8"), ("--snapkv", "30,8,5"),
                      ("--evict", "streaming:4,30"), ("--chunk", 7)):
            with self.subTest(words=words):
                full, out = self.generate(PLAIN, *words), self.generate(PLAIN, *MERGED, *words)
                self.assertEqual(4 * out["kv_bytes"], full["kv_bytes"])
                self.assertEqual(out["prompt_work"]["kv"], full["prompt_work"]["kv"])

    def test_fewer_layers(self):
        out = self.folder / "pruned"
        done = run("transform", PLAIN, out, "--keep-layers", "lp-0.50")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 layers of 4", done.stdout)
        full = self.generate(PLAIN)
        for words in ((), ("--snapkv", "30,8,5"), ("--prune", "random:0.5"), MERGED, SKIP):
            self.assertLess(self.generate(out, *words)["work"]["flops"], 0.6 * full["work"]["flops"])
        both = self.folder / "both"
        done = run("transform", out, both, "--kv-layers", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.generate(both)
        for words in (("--kv-layers", 1), ("--init", "copy")):
            self.refuses(2, ("transform", PLAIN, both, "--keep-layers", "0", *words), "--keep-layers")

    def test_commands(self):
        done = run("bench", EXIT, "--prompt", 64, "--gen", 3, "--repeat", 1, "--threads", 1,
                           "--json", *LEAVE, *SKIP)
        self.assertEqual(done.returncode, 0, done.stderr)
        work = json.loads(done.stdout.splitlines()[0])["work"]
        self.assertEqual(work["exits_asked"], 1)  # of the prompt, its last token
        self.assertGreater(work["mlp_skipped"], 0)
        done = run("score", EXIT, "--ids-file", self.ids, "--json", "--threads", 1, *LEAVE)
        self.assertEqual(json.loads(done.stdout)["work"]["exits_asked"], len(PROMPT))
        for words, part in ((("--early-exit", "1"), "--early-exit"), (("--ffn-skip", "0.9,"), "--ffn-skip")):
            self.refuses(2, ("generate", EXIT, "--ids-file", self.ids, *words), part)

    def test_refusals(self):
        ask = ("--ids-file", self.ids)
        for words, parts in (
            (("generate", SWIFTKV, *ask, *LEAVE), ("early-exit", "exit head")),
            (("generate", KVPRED, *ask, *LEAVE), ("early-exit", "exit head")),
            (("generate", EXIT, *ask, *LEAVE, "--prefill", "teacher"), ("early-exit", "teacher")),
            (("generate", EXIT, *ask, *LEAVE, "--prefill", "swiftkv-full"), ("early-exit", "swiftkv-full")),
            (("generate", EXIT, *ask, *LEAVE, "--prune", "random:0.5"), ("prune",)),
            (("generate", SWIFTKV, *ask, *MERGED), ("merged", "AcrossKV")),
            (("generate", PLAIN, *ask, *MERGED, "--prune", "random:0.5"), ("prune", "merged")),
            (("serve", PLAIN, "--port", 0, *MERGED), ("merged",)),
            (("serve", PLAIN, "--port", 0, *SKIP), ("serve", "ffn-skip")),
            (("serve", EXIT, "--port", 0, *LEAVE), ("serve", "early-exit")),
        ):
            self.refuses(None, words, *parts)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
