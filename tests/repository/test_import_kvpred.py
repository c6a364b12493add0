#!/usr/bin/env python3
"""tools/import_kvpred.py: a checkpoint under its authors' names, with their padded vocabulary, becomes a
folder that says what the folder says whose tensors it was made of; and which layers predict which, by the
paper's Table 1. Stand-ins for torch and safetensors hold the bytes, so that neither has to be there."""

import contextlib
import io
import json
import shutil
import struct
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from prompt_case import run  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import import_kvpred  # noqa: E402

PAIR = ROOT / "tests/data/kvpred/openelm-lp"
IDS = [1, 7, 40, 99, 12, 64, 3, 88, 21, 50, 9]
PADDED = 11  # rows that are no word's


class Tensor:
    """What the tool asks of one: rows, and to lie in one piece."""

    def __init__(self, kind, shape, data):
        self.kind, self.shape, self.data = kind, shape, data

    def __getitem__(self, rows):
        assert rows.start is None and rows.step is None
        n = min(rows.stop, self.shape[0])
        return Tensor(self.kind, [n, *self.shape[1:]], self.data[:len(self.data) // self.shape[0] * n])

    def contiguous(self):
        return self

    def padded(self, n):
        row = len(self.data) // self.shape[0]
        return Tensor(self.kind, [self.shape[0] + n, *self.shape[1:]], self.data + b"\x40" * (row * n))


def load_file(path):
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    return {name: Tensor(t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def save_file(tensors, path, metadata):
    at, header = 0, {"__metadata__": metadata}
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.kind, "shape": tensor.shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(t.data for t in tensors.values()))


def as_published(prefix, path):
    """Under the names of their model of one transformer, which has words that nobody says."""
    out = {}
    for name, tensor in load_file(path / "model.safetensors").items():
        name = prefix + name.removeprefix("transformer.")
        out[name] = tensor.padded(PADDED) if name.endswith("token_embeddings.weight") else tensor
    return out


def checkpoint():
    state = as_published("base.", PAIR) | as_published("auxiliary.", PAIR / "auxiliary")
    for name, tensor in load_file(PAIR / "predictor.safetensors").items():
        _, kind, i, what = name.split(".")
        state[f"predicter.auxkv_to_basekv.{kind}_transforms.{i}.{what}"] = tensor
    return state


class ImportTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        package, module = types.ModuleType("safetensors"), types.ModuleType("safetensors.torch")
        module.save_file = package.torch = save_file
        kept = {name: sys.modules.get(name) for name in ("safetensors", "safetensors.torch")}
        sys.modules.update({"safetensors": package, "safetensors.torch": module})
        self.addCleanup(self.put_back, kept)

    @staticmethod
    def put_back(modules):
        for name, module in modules.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module

    def convert(self, state, layers=None, out="out"):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            import_kvpred.convert(import_kvpred.state_of(state), PAIR, PAIR / "auxiliary", self.folder / out, layers)
        return self.folder / out, said.getvalue()

    def answers(self, folder):
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps(IDS))
        out = []
        for words in (("score", folder), ("generate", folder, "-n", 6, "--ignore-eos"),
                      ("score", folder / "auxiliary")):
            done = run(*words, "--ids-file", ids, "--threads", 1, "--json")
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            said = json.loads(done.stdout)
            out.append(said.get("logprobs") or said["ids"])
        return out

    def test_a_checkpoint_is_its_folder(self):
        folder, said = self.convert(checkpoint())
        self.assertIn("layers 0,0,1,1", said)
        self.assertEqual(self.answers(folder), self.answers(PAIR))
        again, _ = self.convert({"epoch": 3, "model_state_dict": checkpoint()}, [0, 0, 1, 1], "again")
        for file in ("config.json", "model.safetensors", "predictor.safetensors", "auxiliary/model.safetensors"):
            self.assertEqual((again / file).read_bytes(), (folder / file).read_bytes())
        self.assertEqual(json.loads((folder / "config.json").read_text())["kv_prediction"],
                         {"auxiliary": "auxiliary", "layers": [0, 0, 1, 1]})

    def test_table_1(self):
        pairs = {
            (28, 20): [*[j for j in range(8) for _ in "12"], *range(8, 20)],
            (28, 16): [*[j for j in range(12) for _ in "12"], *range(12, 16)],
            (28, 21): [0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15, 16, 17, 17, 18, 19, 20, 20],
            (28, 14): [j for j in range(14) for _ in "12"],
            (28, 7): [j for j in range(7) for _ in "1234"],
            (36, 28): [*[j for j in range(8) for _ in "12"], *range(8, 28)],
            (36, 20): [*[j for j in range(16) for _ in "12"], *range(16, 20)],
            (36, 16): [*[j for j in range(4) for _ in "123"], *[j for j in range(4, 16) for _ in "12"]],
            (36, 27): [i - (i + 1) // 4 for i in range(36)],
            (36, 18): [j for j in range(18) for _ in "12"],
            (36, 9): [j for j in range(9) for _ in "1234"],
        }
        for (n_base, n_own), layers in pairs.items():
            self.assertEqual(import_kvpred.default_layers(n_base, n_own), layers, (n_base, n_own))

    def test_refusals(self):
        state = checkpoint()
        for layers in ([0, 0, 1], [0, 0, 1, 2], [0, 0, 1, -1]):
            with self.assertRaisesRegex(SystemExit, "--layers"):
                self.convert(state, layers)
        for name in ("base.", "auxiliary.", "predicter.auxkv_to_basekv.key_transforms.3.bias"):
            less = {n: t for n, t in state.items() if not n.startswith(name)}
            with self.assertRaisesRegex(SystemExit, "predictor"):
                self.convert(less)
        self.assertEqual([path.name for path in self.folder.iterdir()], [])
        self.convert(state)
        with self.assertRaisesRegex(SystemExit, "exists"):
            self.convert(state)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
