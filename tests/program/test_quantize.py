#!/usr/bin/env python3
"""swiftkv quantize from outside: the tensors that it writes against the weights, by the layout's own formula; that
the engine runs them; and what is said of input that cannot be right."""

import json
import os
import random
import re
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


def split_experts(name, tensor, family):
    """name -> tensor of each expert's parts of a fused one, under the names that the family publishes."""
    dtype, (n_experts, rows, columns), data = tensor
    size, found = 2 if dtype != "F32" else 4, {}
    names = {"mixtral": {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}}.get(family, {})
    before, part = name.replace(".mlp.", ".block_sparse_moe." if names else ".mlp.").rsplit(".", 1)
    each = len(data) // n_experts
    for e in range(n_experts):
        cells = [data[e * each + i * size : e * each + (i + 1) * size] for i in range(rows * columns)]
        matrix = [cells[i * columns : (i + 1) * columns] for i in range(rows)]
        if family == "gpt_oss":  # stored transposed, gate and up by turns
            matrix = list(map(list, zip(*matrix)))
        n = len(matrix) // 2
        parts = {"down_proj": matrix}
        if part == "gate_up_proj":
            halves = (matrix[::2], matrix[1::2]) if family == "gpt_oss" else (matrix[:n], matrix[n:])
            parts = dict(zip(("gate_proj", "up_proj"), halves))
        for which, lines in parts.items():
            content = b"".join(b"".join(line) for line in lines)
            found[f"{before}.{e}.{names.get(which, which)}.weight"] = (dtype, [len(lines), len(lines[0])], content)
    return found


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


# Of GGUF files, by the format's description: (elements of a block, bytes of a block).
GGML_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 8: ("Q8_0", 32, 34), 30: ("BF16", 1, 2)}
SIMPLE = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Gguf:
    """A cursor over a file's bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n : self.at].decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, n = self.take("<I"), self.take("<Q")
            return [self.value(element) for _ in range(n)]
        return self.take(SIMPLE[kind])


def block_values(kind, data):
    if kind == "F32":
        return [x for (x,) in struct.iter_unpack("<f", data)]
    if kind in ("F16", "BF16"):
        return [(f16 if kind == "F16" else bf16)(x) for (x,) in struct.iter_unpack("<H", data)]
    values = []
    size = 18 if kind == "Q4_0" else 34
    for at in range(0, len(data), size):
        scale, codes = f16(int.from_bytes(data[at : at + 2], "little")), data[at + 2 : at + size]
        if kind == "Q4_0":
            values += [((c & 15) - 8) * scale for c in codes] + [((c >> 4) - 8) * scale for c in codes]
        else:
            values += [(c - 256 if c > 127 else c) * scale for c in codes]
    return values


def read_gguf(path, known=None):
    """name -> (shape, values); with `known` the tensors of these types alone"""
    g = Gguf(path.read_bytes())
    assert g.data[:4] == b"GGUF"
    g.at = 4
    assert g.take("<I") in (2, 3)
    n_tensors, n_entries = g.take("<Q"), g.take("<Q")
    for _ in range(n_entries):
        g.text()
        g.value(g.take("<I"))
    infos = []
    for _ in range(n_tensors):
        name = g.text()
        shape = [g.take("<Q") for _ in range(g.take("<I"))][::-1]
        infos.append((name, shape, g.take("<I"), g.take("<Q")))
    begin, found = (g.at + 31) // 32 * 32, {}
    for name, shape, number, offset in infos:
        kind, elements, size = GGML_TYPES.get(number, (None, 1, 0))
        if known and kind not in known:
            continue
        n = size
        for side in shape:
            n *= side
        n //= elements
        found[name] = (shape, block_values(kind, g.data[begin + offset : begin + offset + n]))
    return found


def published(name, gemma):
    """GGUF's name -> (Hugging Face's, "q" or "k" for these projections)"""
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
           "output.weight": "lm_head.weight"}
    if name in top:
        return top[name], ""
    _, layer, part, kind = name.split(".")
    parts = {
        "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
    }
    if gemma:
        parts |= {"ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
                  "post_ffw_norm": "post_feedforward_layernorm"}
    return f"model.layers.{layer}.{parts[part]}.{kind}", part.removeprefix("attn_")


def halves(values, heads, shape):
    """Rows of heads in pair order -> in rotate-half order."""
    columns = shape[1] if len(shape) > 1 else 1
    rows = [values[i * columns : (i + 1) * columns] for i in range(shape[0])]
    size = shape[0] // heads
    order = [h * size + i for h in range(heads) for i in [*range(0, size, 2), *range(1, size, 2)]]
    return [v for i in order for v in rows[i]]


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

    def test_without_an_option(self):
        """8 bits, the more exact of the two, which is told."""
        said = self.run_ok("quantize", MODELS / "llama3-v5", self.out)
        self.assertTrue(said.startswith("chosen: --weights int8 "), said)
        self.run_ok("quantize", MODELS / "llama3-v5", self.folder / "same", "--weights", "int8")
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((self.out / name).read_bytes(), (self.folder / "same" / name).read_bytes())

    def test_layout(self):
        for model, bits in (("llama3-v5", 4), ("llama3-v5", 8), ("llama-swiftkv-g2", 4), ("phi3", 8),
                            ("qwen3-moe-v5", 4), ("mixtral-v4", 8), ("mixtral-v5", 8), ("gpt-oss", 4),
                            ("gemma4-moe", 8)):
            out = self.folder / f"{model}-{bits}"
            with self.subTest(model=model, bits=bits):
                self.run_ok("quantize", MODELS / model, out, "--weights", f"int{bits}", "--threads", 1)
                before, after = read_tensors(MODELS / model), read_tensors(out)
                family = json.loads((out / "config.json").read_text())["model_type"]
                for name in [n for n in before if len(before[n][1]) == 3 and n not in after]:
                    before |= split_experts(name, before.pop(name), family)
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

    def random_model(self, hidden, intermediate):
        """A Qwen3 of one layer whose rows are long enough for wide groups."""
        config = json.loads((MODELS / "int4-128-zeros/config.json").read_text())
        del config["quantization_config"]
        config |= {"hidden_size": hidden, "intermediate_size": intermediate}
        heads, kv_heads, size = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
        shapes = {"self_attn.q_proj": [heads * size, hidden], "self_attn.k_proj": [kv_heads * size, hidden],
                  "self_attn.v_proj": [kv_heads * size, hidden], "self_attn.o_proj": [hidden, heads * size],
                  "mlp.gate_proj": [intermediate, hidden], "mlp.up_proj": [intermediate, hidden],
                  "mlp.down_proj": [hidden, intermediate], "self_attn.q_norm": [size], "self_attn.k_norm": [size],
                  "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}
        shapes = {f"layers.0.{name}": shape for name, shape in shapes.items()}
        shapes |= {"norm": [hidden], "embed_tokens": [config["vocab_size"], hidden]}
        draw, header, data = random.Random(1), {}, bytearray()
        for name, shape in shapes.items():
            n, spread = shape[0] * (shape + [1])[1], 0.02 if "embed" in name else 1.5 / shape[-1] ** 0.5
            values = [draw.uniform(0.5, 1.5) if "norm" in name else draw.gauss(0, spread) for _ in range(n)]
            begin = len(data)
            data += struct.pack(f"<{n}f", *values)
            header[f"model.{name}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
        out, text = self.folder / "wide", json.dumps(header).encode()
        out.mkdir()
        (out / "config.json").write_text(json.dumps(config))
        (out / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return out

    def test_groups_of_128(self):
        """As test_layout, for rows of several such groups. test_quantised_files has the levels of kernels."""
        model = self.random_model(256, 384)
        ids = self.folder / "ids.json"
        ids.write_text(json.dumps([3 + i * i % 57 for i in range(60)]))
        before = read_tensors(model)
        for bits in (4, 8):
            out = self.folder / f"int{bits}"
            self.run_ok("quantize", model, out, "--weights", f"int{bits}", "--group", 128)
            after, n_packed = read_tensors(out), 0
            scheme = json.loads((out / "config.json").read_text())["quantization_config"]
            self.assertEqual(scheme["config_groups"]["group_0"]["weights"]["group_size"], 128)
            for name, tensor in before.items():
                if name in after:
                    self.assertEqual(after[name], tensor)
                    continue
                n_packed += 1
                want, (values, scales, group) = floats(tensor), unpack(after, name, bits)
                self.assertEqual(group, 128)
                for x, y, scale in zip(want, values, scales):
                    self.assertLessEqual(abs(x - y), abs(scale) * (0.51 if bits == 8 else 1.6))
            self.assertEqual(n_packed, 7)
            self.assertIn(f"int{bits} in groups of 128: held as published", self.run_ok("info", out))
            want = self.logprobs(self.unpacked(out, bits), ids)
            for x, y in zip(want[1:], self.logprobs(out, ids)[1:]):
                self.assertLess(abs(x - y), 1e-4)
            said = self.run_ok("score", out, "--ids-file", ids, "--json", "--kv", "f32")
            apart = sum(abs(x - y) for x, y in zip(want[1:], json.loads(said)["logprobs"][1:])) / (len(want) - 1)
            self.assertLess(apart, 0.05)  # what activations of 8 bits cost

    def test_gguf_and_back_to_swiftkv(self):
        self.run_ok("quantize", MODELS / "llama-gguf/model.gguf", self.out, "--weights", "int8")
        self.assertLess(abs(self.nll(self.out) - self.nll(self.unpacked(self.out, 8))), 1e-4)
        # A folder of packed weights is a model as any other: what is made from it holds floats.
        other = self.folder / "swiftkv"
        self.run_ok("transform", self.out, other, "--kv-layers", 1)
        self.assertNotIn("quantization_config", json.loads((other / "config.json").read_text()))
        self.nll(other)

    def logprobs(self, model, ids):
        out = self.run_ok("score", model, "--ids-file", ids, "--json", "--weights", "f32", "--kv", "f32")
        return json.loads(out)["logprobs"]

    def test_calibrated(self):
        """On the text itself log-probabilities come nearer to the model's than rounding to nearest brings them: every
        kind of file, since a product that was paired with another's input would come out worse."""
        ids = self.folder / "ids.json"
        value, many = 1, []
        for _ in range(2048):
            value = value * 1103515245 + 12345 & 0x7FFFFFFF
            many.append((value >> 16) % 89)
        ids.write_text(json.dumps(many))
        for model in ("llama3-v5", "llama-swiftkv-g2", "phi3", "openelm", "gemma2", "gemma4-e2b", "qwen3-moe-v5",
                      "llama3-v5.gguf"):
            model, suffix = model.removesuffix(".gguf"), "".join(Path(model).suffixes)
            with self.subTest(model=model, suffix=suffix):
                want = self.logprobs(MODELS / model, ids)
                errors = []
                for name, more in (("nearest", ()), ("text", ("--text", ids))):
                    out = self.folder / model / f"{name}{suffix}"
                    out.parent.mkdir(exist_ok=True)
                    said = self.run_ok("quantize", MODELS / model, out, "--weights", "int4", *more)
                    self.assertEqual("calibrated with 2048 tokens" in said, name == "text")
                    got = self.logprobs(out, ids)
                    errors.append(sum((x - y) ** 2 for x, y in zip(want, got) if x is not None))
                self.assertLess(errors[1], 0.9 * errors[0])

    def with_outliers(self, model):
        """The model with norms that make a sixteenth of the columns eight times as large as they were."""
        out = self.folder / "outliers"
        out.mkdir()
        shutil.copy(MODELS / model / "config.json", out)
        header, data = {}, b""
        for name, (dtype, shape, content) in read_tensors(MODELS / model).items():
            if "layernorm" in name or "norm_swiftkv" in name:
                values = [v * (8 if i % 16 == 5 else 1) for i, v in enumerate(floats((dtype, shape, content)))]
                dtype, content = "F32", struct.pack(f"<{len(values)}f", *values)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        (out / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return out

    def test_scaled(self):
        """Columns with large inputs lose less once they are scaled, SwiftKV's stack included, and the file is an
        ordinary one: the values of its codes in f32 give the same."""
        ids = self.folder / "text.json"
        ids.write_text(json.dumps([(i * 7919 >> 3) % 89 for i in range(2048)]))
        model, errors = self.with_outliers("llama-swiftkv-g2"), {}
        want = self.logprobs(model, ids)
        for method in ("nearest", "gptq", "awq", "both"):
            out = self.folder / method
            more = () if method == "nearest" else ("--text", ids, "--method", method)
            said = self.run_ok("quantize", model, out, "--weights", "int4", *more)
            self.assertEqual("inputs of 19 are scaled" in said, method in ("awq", "both"), said)
            got = self.logprobs(out, ids)
            errors[method] = sum((x - y) ** 2 for x, y in zip(want, got) if x is not None)
            self.assertLess(abs(self.nll(out) - self.nll(self.unpacked(out, 4))), 1e-4)
        self.assertLess(errors["awq"], 0.8 * errors["nearest"])
        self.assertLess(errors["both"], errors["gptq"])
        norm = "model.norm_swiftkv.weight"
        self.assertNotEqual(read_tensors(self.folder / "awq")[norm], read_tensors(model)[norm])

    def losses(self, model, out, ids):
        said = self.run_it("distill", model, out, "--kv-layers", 3, "--data", ids, "--threads", 1,
                           "--stages", "[{steps: 4, seq: 128, rows: 2}]")
        self.assertEqual(said.returncode, 0, said.stderr)
        return [float(x) for x in re.findall(r"loss ([\d.]+)", said.stderr + said.stdout)]

    def test_teacher_in_codes(self):
        """A teacher that stays in its codes has the losses of the same values in f32, whatever holds the codes."""
        ids = self.folder / "text.json"
        ids.write_text(json.dumps([(i * 7919 >> 3) % 89 for i in range(4096)]))
        for bits in (4, 8):
            model = self.folder / f"int{bits}"
            self.run_ok("quantize", MODELS / "llama3-v5", model, "--weights", f"int{bits}")
            got = self.losses(model, self.folder / f"a{bits}", ids)
            want = self.losses(self.unpacked(model, bits), self.folder / f"b{bits}", ids)
            self.assertEqual(len(got), 4)
            self.assertEqual(got, want)

    def test_bad_text(self):
        model, ids = MODELS / "llama3-v5", self.folder / "ids.json"
        ids.write_text(json.dumps(list(range(80))))
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--text", ids), "80 tokens", "at least 256")
        ids.write_text("[]")
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--text", ids), "ids.json")
        ids.write_text(json.dumps([1 << 20] * 300))
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--text", ids), "ids.json")
        text = self.folder / "text.txt"
        text.write_text("A text that needs a tokenizer. " * 99)
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--text", text), "tokenizer")
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--text", self.folder / "none"), "none")
        self.assertFalse(self.out.exists())

    def dequantized(self, model, config):
        """A folder with the values of a GGUF file under the published names."""
        out = self.folder / "dequantized"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        config = {**config, "dtype": "float32", "torch_dtype": "float32"}
        (out / "config.json").write_text(json.dumps(config))
        heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
        header, data = {}, b""
        for name, (shape, values) in read_gguf(model).items():
            if name == "rope_freqs.weight":
                continue  # the configuration says it
            name, part = published(name, "gemma" in config["model_type"])
            if part in heads and config["model_type"] == "llama":
                values = halves(values, heads[part], shape)
            if "gemma" in config["model_type"] and "norm" in name:
                values = [v - 1 for v in values]
            content = struct.pack(f"<{len(values)}f", *values)
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        (out / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return out

    def test_gguf(self):
        for model, bits in (("llama3-v5", 8), ("llama3-v5", 4), ("qwen2", 8), ("qwen3-v5", 4), ("gemma2", 8),
                            ("gemma3-v5", 4), ("llama-bias", 8)):
            out = self.folder / f"{model}-{bits}.gguf"
            with self.subTest(model=model, bits=bits):
                if model == "qwen2":  # GGUF has no place for its windows
                    config = json.loads((MODELS / model / "config.json").read_text())
                    model = shutil.copytree(MODELS / model, self.folder / model)
                    config.update(use_sliding_window=False)
                    config.pop("layer_types", None)
                    (model / "config.json").write_text(json.dumps(config))
                self.run_ok("quantize", MODELS / model, out, "--weights", f"int{bits}")
                config = json.loads((MODELS / model / "config.json").read_text())
                want = self.dequantized(out, config)
                self.assertLess(abs(self.nll(out) - self.nll(want)), 1e-4)
                if bits == 8:  # the weights are random: of 4 bits each little error counts
                    self.assertLess(abs(self.nll(out) - self.nll(MODELS / model)), 0.1)

    def test_gguf_to_gguf(self):
        before = read_gguf(MODELS / "llama-gguf/model.gguf", known=("F32", "F16", "Q8_0", "Q4_0"))
        self.run_ok("quantize", MODELS / "llama-gguf/model.gguf", self.folder / "b.gguf", "--weights", "int8")
        after = read_gguf(self.folder / "b.gguf", known=("F32", "F16", "Q8_0", "Q4_0"))
        self.assertLess(abs(self.nll(self.folder / "b.gguf") - self.nll(MODELS / "llama-gguf/model.gguf")), 2e-2)
        for name, (shape, values) in before.items():
            self.assertEqual(shape, after[name][0])
            most = max(abs(v) for v in values)
            for x, y in zip(values, after[name][1]):
                self.assertLessEqual(abs(x - y), most / 127)
        self.assertGreater(len(before), 5)

    def test_gguf_of_a_real_model(self):
        """A tokenizer goes with it, and text stays what it was: in plain C, since other levels' sums fall otherwise where
        two words are as likely."""
        self.run_ok("quantize", ROOT / "models/mini/base", self.folder / "mini.gguf", "--weights", "int8")
        said = [
            self.run_ok("generate", model, "-p", "Once upon a time", "-n", 16, "--weights", "int8", "--cpu", "ref")
            for model in (ROOT / "models/mini/base", self.folder / "mini.gguf")
        ]
        self.assertEqual(said[0], said[1])

    def test_bad_input(self):
        model = MODELS / "llama3-v5"
        self.fails(2, ("quantize", model, self.out, "--weights", "bf16"), "bf16", "int4, int8")
        self.fails(1, ("quantize", model, self.out, "--weights", "int4", "--group", 64), "group: 64")
        self.fails(2, ("quantize", model, self.out, "--weights", "int4", "--method", "best"), "best", "both")
        self.fails(1, ("quantize", self.folder / "none", self.out, "--weights", "int4"), "none")
        self.assertFalse(self.out.exists())
        self.run_ok("quantize", model, self.out, "--weights", "int4")
        self.fails(1, ("quantize", model, self.out, "--weights", "int4"), "already contains a model")
        self.fails(1, ("quantize", self.out, self.folder / "b", "--weights", "int8"), "quantised already")
        to_gguf = ("quantize", model, self.folder / "b.gguf", "--weights", "int8")
        self.fails(1, (*to_gguf, "--group", 128), "group: 128", "groups of 32")
        self.fails(1, ("quantize", MODELS / "llama-swiftkv-g2", *to_gguf[2:]), "SwiftKV", "no place")
        self.fails(1, ("quantize", MODELS / "mistral", *to_gguf[2:]), "sliding_window")
        self.fails(1, ("quantize", MODELS / "phi3", *to_gguf[2:]), "model_type phi3")
        self.assertFalse((self.folder / "b").exists() or (self.folder / "b.gguf").exists())
        self.run_ok(*to_gguf)
        self.fails(1, to_gguf, "b.gguf: it exists already")


if __name__ == "__main__":
    unittest.main()
