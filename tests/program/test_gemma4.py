#!/usr/bin/env python3
"""Gemma 4 through the program: parameter counts, rows that stop early, and what is refused.

    tests/program/test_gemma4.py          SKV_BUILD names the build folder
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"
NAMES = ("gemma4-e2b", "gemma4-e4b", "gemma4-dense", "gemma4-moe", "gemma4-gguf/model.gguf",
         "gemma4-moe-gguf/model.gguf")

# Of the text part, as transformers counts them.
PUBLISHED = {"gemma-4-e2b": 4628569344, "gemma-4-e4b": 7463013376, "gemma-4-12b": 11907350272,
             "gemma-4-31b": 30697345280, "gemma-4-26b-a4b": 25233141760}


def run(*words, data=None):
    return subprocess.run([PROGRAM, *map(str, words)], input=data, capture_output=True, text=True,
                          timeout=300)


class Gemma4Test(unittest.TestCase):
    def test_counts(self):
        for name, parameters in PUBLISHED.items():
            info = json.loads(run("info", f"preset:{name}", "--json").stdout)
            self.assertEqual(info["parameters"], parameters, name)

    def test_full_gives_the_same(self):
        """--prefill full, chunks of any size, every type of keys and values and an eviction run."""
        ids = json.dumps([1 + 7 * i % 90 for i in range(70)])
        for name in NAMES:
            words = ("generate", MODELS / name, "--ids-file", "-", "-n", "8", "--threads", "1")
            exact = (*words, "--weights", "f32")
            own = run(*exact, data=ids)
            self.assertEqual(own.returncode, 0, own.stderr)
            for more in (("--prefill", "full"), ("--chunk", "7"), ("--chunk", "1")):
                self.assertEqual(run(*exact, *more, data=ids).stdout, own.stdout, (name, more))
            for more in (("--weights", "int8", "--kv", "int8"), ("--weights", "int4"),
                         ("--snapkv", "40,8"), ("--evict", "streaming:4,40")):
                done = run(*words, *more, data=ids)
                self.assertEqual(done.returncode, 0, (name, more, done.stderr))

    def test_layers_by_number(self):
        """per_layer_config, transformers' newer spelling: the same model, with zeros in front or without."""
        for name in ("gemma4-e2b", "gemma4-dense"):
            words = ("--ids-file", "-", "-n", "6", "--threads", "1", "--weights", "f32")
            own = run("generate", MODELS / name, *words, data="[1, 2, 3]")
            self.assertEqual(own.returncode, 0, own.stderr)
            for width in (1, 2, 4):
                with tempfile.TemporaryDirectory() as folder:
                    out = Path(folder, "model")
                    shutil.copytree(MODELS / name, out)
                    config = json.loads((out / "config.json").read_text())
                    text = config.get("text_config") or config
                    large, few = text.pop("global_head_dim"), text.pop("num_global_key_value_heads", None)
                    layer = {"head_dim": large} | ({"num_key_value_heads": few} if few else {})
                    text["per_layer_config"] = {f"{i:0{width}}": layer for i, kind in enumerate(text["layer_types"])
                                                if kind == "full_attention"}
                    (out / "config.json").write_text(json.dumps(config))
                    done = run("generate", out, *words, data="[1, 2, 3]")
                    self.assertEqual((done.returncode, done.stdout), (0, own.stdout), (name, width, done.stderr))

    def test_what_the_configuration_denies(self):
        """Weights that a changed config.json would leave out make another model: refused by name."""
        denied = {"hidden_size_per_layer_input": ("gemma4-e2b", 0, "per_layer_input_gate"),
                  "enable_moe_block": ("gemma4-moe", False, "mlp.gate"),
                  "top_k_experts": ("gemma4-moe", 99, "top_k_experts 99"),
                  "sliding_window": ("gemma4-e2b", 0, "sliding_window"),
                  "global_head_dim": ("gemma4-e2b", 7, "heads of 7")}
        for field, (name, value, said) in denied.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "model")
                shutil.copytree(MODELS / name, out)
                config = json.loads((out / "config.json").read_text())
                (config.get("text_config") or config)[field] = value
                (out / "config.json").write_text(json.dumps(config))
                done = run("score", out, "--ids-file", "-", data="[1, 2, 3]")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), (field, done.stderr))
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"{PROGRAM} was not built: skipped")
        sys.exit(77)
    unittest.main()
