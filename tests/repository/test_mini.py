#!/usr/bin/env python3
"""The family of models that the repository ships (models/mini): what it must be for anybody who
clones it. What it scores is measured by tools/results/make_results.py; here stands only what would make its
card a lie.
"""

import json
import os
import struct
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
FAMILY = ROOT / "models/mini"
BASE = FAMILY / "base"
# Folder: first layer that shares its input, layers a group.
FORMS = {"kv9": (9, 1), "kv6": (6, 1), "kv4": (4, 1), "kv2": (2, 1), "kv6-g2": (6, 2), "kv6-g3": (6, 3), "kv6-g6": (6, 6)}
LAYERS = 12
LARGEST = 40 * 2**20


def said(*words):
    result = subprocess.run([PROGRAM, *map(str, words), "--json"], capture_output=True, text=True, timeout=1200)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return json.loads(result.stdout)


def tensors(folder):
    """Names in a safetensors header."""
    with open(folder / "model.safetensors", "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        return set(json.loads(file.read(size))) - {"__metadata__"}


class FamilyTest(unittest.TestCase):
    def test_size(self):
        self.assertLess(sum(path.stat().st_size for path in FAMILY.rglob("*") if path.is_file()), LARGEST)

    def test_forms(self):
        """Every form opens from what differs, and has the slots that it says."""
        base = tensors(BASE)
        for name, (kv_layers, group) in FORMS.items():
            with self.subTest(name):
                info = said("info", FAMILY / name)
                self.assertEqual((info["layers"], info["swiftkv_layers"], info["group"]), (LAYERS, kv_layers, group))
                self.assertEqual(info["kv_slots"], kv_layers + (LAYERS - kv_layers) // group)
                self.assertFalse(tensors(FAMILY / name) & base)

    def test_teacher_inside(self):
        """The teacher within a form is the base itself."""
        text = ROOT / "README.md"
        base = said("score", BASE, "--file", text)
        inside = said("score", FAMILY / "kv6", "--file", text, "--prefill", "teacher")
        self.assertEqual(base["logprobs"], inside["logprobs"])

    def test_answers(self):
        """As SwiftKV it answers as its teacher does, and most of it is right."""
        lines = said("compare", FAMILY / "kv6", "--task", "lines,kv", "--lengths", 512, "--count", 8)
        self.assertGreaterEqual(sum(line["same"] for line in lines), 6)
        self.assertGreaterEqual(sum(line["teacher"]["text"].strip() == line["expected"] for line in lines), 5)

    def test_kv_prediction(self):
        """It opens, and its auxiliary, which is a model of its own, finds lines."""
        info = said("info", FAMILY / "kvpred")
        self.assertEqual((info["layers"], info["auxiliary_layers"]), (LAYERS, LAYERS // 2))
        asked = said("eval", FAMILY / "kvpred/auxiliary", "--task", "lines", "--lengths", 512, "--count", 8)
        self.assertGreaterEqual(asked["average"], 0.6)

    def test_memory(self):
        line, = said("compare", FAMILY / "kv6-g6", "--lengths", 1024, "--count", 1)
        self.assertAlmostEqual(line["swiftkv"]["kv_bytes"] / line["teacher"]["kv_bytes"], 7 / 12, delta=0.02)


if __name__ == "__main__":
    unittest.main()
