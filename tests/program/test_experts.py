#!/usr/bin/env python3
"""Mixtures of experts through the program: parameter counts of published models, and SwiftKV.

    tests/program/test_experts.py          SKV_BUILD names the build folder
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"

# As published: all parameters, and those that a token meets.
PUBLISHED = {
    "qwen3-30b-a3b": (30532122624, 3353032704),
    "qwen3-235b-a22b": (235093634560, 22190763520),
    "mixtral-8x7b": (46702792704, 12879925248),
    "gpt-oss-20b": (20914757184, None),
    "gpt-oss-120b": (116829156672, None),
}


def run(*words, data=None):
    result = subprocess.run([PROGRAM, *map(str, words)], input=data, capture_output=True, text=True,
                            timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def tensor_names(folder):
    names = set()
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as f:
            names |= set(json.loads(f.read(int.from_bytes(f.read(8), "little"))))
    return names - {"__metadata__"}


class ExpertsTest(unittest.TestCase):
    def test_counts(self):
        for name, (parameters, active) in PUBLISHED.items():
            info = json.loads(run("info", f"preset:{name}", "--json"))
            self.assertEqual(info["parameters"], parameters, name)
            if active:
                self.assertEqual(info["active_parameters"], active, name)

    def test_published_names(self):
        """Mixtral's experts are written under the names that transformers gives them, from fused ones and GGUF too."""
        published = tensor_names(MODELS / "mixtral-v4")
        self.assertIn("model.layers.0.block_sparse_moe.experts.0.w1.weight", published)
        ids = [1 + 7 * i % 90 for i in range(40)]
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "ids.json")
            data.write_text(json.dumps(ids * 4))
            words = ("--ids-file", "-", "-n", "8", "--threads", "1", "--weights", "f32")
            for name in ("mixtral-v4", "mixtral-v5", "mixtral-gguf/model.gguf"):
                out, trained = Path(folder, name.split("/")[0]), Path(folder, "trained-" + name.split("/")[0])
                layers = json.loads(run("info", MODELS / name, "--json"))["layers"]
                run("transform", MODELS / name, out, "--keep-layers", ",".join(map(str, range(layers))))
                expected = {n for n in published if int(n.split(".")[2] if ".layers." in n else 0) < layers}
                self.assertEqual(tensor_names(out), expected, name)
                own = run("generate", MODELS / name, *words, data=json.dumps(ids))
                self.assertEqual(run("generate", out, *words, data=json.dumps(ids)), own, name)
                if name.endswith(".gguf"):
                    continue  # no tokenizer
                run("train", "--model", MODELS / name, "--out", trained, "--data", data, "--steps", 1, "--seq", 16,
                    "--threads", 1, "--router-loss", "0.1")
                self.assertEqual(tensor_names(trained), expected, name)

    def test_swiftkv(self):
        """Any mixture in SwiftKV form runs; with every layer's own K and V it is the model itself."""
        ids = [1 + 7 * i % 90 for i in range(40)]
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder, "ids.json")
            text.write_text(json.dumps(ids))
            for name in ("qwen3-moe-v5", "mixtral-v4", "gpt-oss", "gpt-oss-mxfp4", "gpt-oss-gguf/model.gguf",
                         "qwen3-moe-gguf/model.gguf", "mixtral-gguf/model.gguf"):
                out = Path(folder, name.split("/")[0])
                layers = json.loads(run("info", MODELS / name, "--json"))["layers"]
                words = ("--ids-file", "-", "-n", "8", "--threads", "1", "--weights", "f32")
                own = run("generate", MODELS / name, *words, data=json.dumps(ids))
                run("transform", MODELS / name, out, "--kv-layers", layers)
                self.assertEqual(run("generate", out, *words, data=json.dumps(ids)), own, name)
                inits = [("--init", "copy"), ("--init", "ridge", "--text", text)]
                for init in inits[:1] if name.endswith(".gguf") else inits:  # no tokenizer, no text
                    half = Path(folder, f"{out.name}-{init[1]}")
                    run("transform", MODELS / name, half, "--kv-layers", layers - 1, *init)
                    skipped = run("generate", half, *words, data=json.dumps(ids))
                    run("generate", half, *words, "--weights", "int8", data=json.dumps(ids))
                    full = run("generate", half, *words, "--prefill", "swiftkv-full", data=json.dumps(ids))
                    self.assertEqual(skipped, full, (name, init))


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"{PROGRAM} was not built: skipped")
        sys.exit(77)
    unittest.main()
