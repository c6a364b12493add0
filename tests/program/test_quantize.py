#!/usr/bin/env python3
"""swiftkv quantize from outside: the tensors that it writes against the weights, by the layout's own formula; that
the engine runs them; and what is said of input that cannot be right."""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"


def f16(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def read_tensors(folder):
    """name -> (type, shape, bytes)"""
    found = {}
    for path in folder.glob("model*.safetensors"):
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + n])
        header.pop("__metadata__", None)
        for name, t in header.items():
            begin, end = t["data_offsets"]
            found[name] = (t["dtype"], t["shape"], data[8 + n + begin : 8 + n + end])
    return found


def floats(tensor):
    dtype, _, data = tensor
    if dtype == "F32":
        return [x for (x,) in struct.iter_unpack("<f", data)]
    widen = f16 if dtype == "F16" else bf16
    return [widen(x) for (x,) in struct.iter_unpack("<H", data)]


def unpack(tensors, name, bits):
    """Rows of values and of scales, by the layout's formula."""
    _, shape, words = tensors[name + "_packed"]
    rows, columns = struct.unpack("<qq", tensors[name + "_shape"][2])
    scales = floats(tensors[name + "_scale"])
    group = columns * rows // len(scales)
    words = [w for (w,) in struct.iter_unpack("<I", words)]
    per_word, half, mask = 32 // bits, 1 << bits - 1, (1 << bits) - 1
    values, each_scale = [], []
    for j in range(rows):
        for k in range(columns):
            word = words[j * shape[1] + k // per_word]
            scale = scales[j * (columns // group) + k // group]
            values.append(((word >> k % per_word * bits & mask) - half) * scale)
            each_scale.append(scale)
    return values, each_scale, group


class QuantizeTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"

    def run_it(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=600)

    def run_ok(self, *words):
        result = self.run_it(*words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def fails(self, status, words, *parts):
        result = self.run_it(*words)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(str(part), result.stderr)

    def nll(self, model, *more):
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([i * i % 89 for i in range(60)]))
        return json.loads(self.run_ok("score", model, "--ids-file", ids, "--json", "--weights", "f32", *more))["nll"]

    def unpacked(self, model, bits):
        """The same model with the values of its packed matrices in f32."""
        out = self.folder / "unpacked"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        config = json.loads((model / "config.json").read_text())
        config.pop("quantization_config")
        (out / "config.json").write_text(json.dumps(config))
        tensors = read_tensors(model)
        for name in [n.removesuffix("_packed") for n in tensors if n.endswith("_packed")]:
            values = unpack(tensors, name, bits)[0]
            shape = list(struct.unpack("<qq", tensors[name + "_shape"][2]))
            tensors[name] = ("F32", shape, struct.pack(f"<{len(values)}f", *values))
            for suffix in ("_packed", "_scale", "_shape"):
                tensors.pop(name + suffix)
        header, data = {}, b""
        for name, (dtype, shape, content) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        (out / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return out

    def test_layout(self):
        for model, bits in (("llama3-v5", 4), ("llama3-v5", 8), ("llama-swiftkv-g2", 4), ("phi3", 8)):
            out = self.folder / f"{model}-{bits}"
            with self.subTest(model=model, bits=bits):
                self.run_ok("quantize", MODELS / model, out, "--weights", f"int{bits}", "--threads", 1)
                before, after = read_tensors(MODELS / model), read_tensors(out)
                n_packed = 0
                for name, tensor in before.items():
                    if name in after:
                        self.assertEqual(after.pop(name), tensor)
                        continue
                    n_packed += 1
                    want, (values, scales, group) = floats(tensor), unpack(after, name, bits)
                    self.assertEqual(group, 32)
                    for x, y, scale in zip(want, values, scales):
                        # Half a step, or what clipping may leave of the largest: scales down to 7/8.5 of its own.
                        self.assertLessEqual(abs(x - y), abs(scale) * (0.51 if bits == 8 else 1.6))
                    error = sum((x - y) ** 2 for x, y in zip(want, values)) / sum(x * x for x in want)
                    self.assertLess(error, 0.01 if bits == 4 else 1e-4)
                    for suffix in ("_packed", "_scale", "_shape"):
                        after.pop(name + suffix)
                self.assertFalse(after)
                self.assertGreater(n_packed, 8)
                config = json.loads((out / "config.json").read_text())
                scheme = config.pop("quantization_config")
                self.assertEqual(config, json.loads((MODELS / model / "config.json").read_text()))
                self.assertEqual(scheme["format"], "pack-quantized")
                self.assertEqual(scheme["config_groups"]["group_0"]["weights"]["num_bits"], bits)
                for name in scheme["ignore"]:
                    self.assertNotIn(name + ".weight_packed", read_tensors(out))
                self.assertLess(abs(self.nll(out) - self.nll(self.unpacked(out, bits))), 1e-4)

    def test_gguf_and_back_to_swiftkv(self):
        self.run_ok("quantize", MODELS / "llama-gguf/model.gguf", self.out, "--weights", "int8")
        self.assertLess(abs(self.nll(self.out) - self.nll(self.unpacked(self.out, 8))), 1e-4)
        # A folder of packed weights is a model as any other: what is made from it holds floats.
        other = self.folder / "swiftkv"
        self.run_ok("transform", self.out, other, "--kv-layers", 1)
        self.assertNotIn("quantization_config", json.loads((other / "config.json").read_text()))
        self.nll(other)

    def test_bad_input(self):
        model = MODELS / "llama3-v5"
        self.fails(2, ("quantize", model, self.out), "--weights")
        self.fails(2, ("quantize", model, self.out, "--weights", "bf16"), "bf16", "int4, int8")
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--group", 64), "group: 64")
        self.fails(1, ("quantize", self.folder / "none", self.out, "--weights", "int4"), "none")
        self.assertFalse(self.out.exists())
        self.run_ok("quantize", model, self.out, "--weights", "int4")
        self.fails(1, ("quantize", model, self.out, "--weights", "int4"), "already contains a model")
        self.fails(1, ("quantize", self.out, self.folder / "b", "--weights", "int8"), "quantised already")
        self.fails(1, ("quantize", model, self.folder / "b.gguf", "--weights", "int8"), "b.gguf", "as folders")
        self.assertFalse((self.folder / "b").exists() or (self.folder / "b.gguf").exists())


if __name__ == "__main__":
    unittest.main()
