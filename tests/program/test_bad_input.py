#!/usr/bin/env python3
"""Damaged models and impossible requests through the program: exit status 1 (2 for the command
line), exactly one line on stderr that names the file, the field and the value, no crash, nothing
left behind.

    tests/program/test_bad_input.py        SKV_BUILD names the build folder; under AddressSanitizer a leak or
                                   a bad access is a wrong status, so it fails here too
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"
FOLDER, SHARDS, GGUF = "llama-mha", "llama3-v5", MODELS / "llama-gguf/model.gguf"
IDS = ("--ids-file", "-", "-n", "2", "--threads", "1")


def run(*words, data="[1, 2, 3]", **more):
    command = [PROGRAM, *map(str, words)]
    if isinstance(data, str):
        data = data.encode()
    return subprocess.run(command, input=data, capture_output=True, timeout=300, **more)


class BadInputTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def refused(self, words, *parts, status=1, **more):
        """One line that holds all of `parts`: the file, the field, the value."""
        result = run(*words, **more)
        text = result.stderr.decode(errors="backslashreplace")
        self.assertEqual(result.returncode, status, (words, text[-3000:]))
        self.assertEqual((len(text.splitlines()), text[-1:]), (1, "\n"), (words, text))
        self.assertEqual(result.stdout, b"", words)
        for part in parts:
            self.assertIn(str(part), text, words)
        return text

    def survives(self, words, **more):
        """Damage that need not be seen: done, or refused in one line."""
        result = run(*words, **more)
        self.assertIn(result.returncode, (0, 1), (words, result.stderr[-3000:]))
        if result.returncode == 1:
            self.assertEqual(len(result.stderr.splitlines()), 1, (words, result.stderr[-3000:]))

    def copy(self, name):
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(MODELS / name, path)
        return path

    def config(self, name, **changes):
        path = self.copy(name)
        config = json.loads((path / "config.json").read_text())
        for key, value in changes.items():
            config.pop(key, None)
            if value is not ...:
                config[key] = value
        (path / "config.json").write_text(json.dumps(config))
        return path

    def tensors(self, change):
        """A model whose safetensors header was changed by change(header)."""
        path = self.copy(FOLDER)
        file = path / "model.safetensors"
        data = file.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        header = change(json.loads(data[8:8 + n]))
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n:])
        return path


class FilesTest(BadInputTest):
    def test_truncated(self):
        path = self.copy(FOLDER)
        file, config = path / "model.safetensors", path / "config.json"
        data = file.read_bytes()
        n_header = struct.unpack("<Q", data[:8])[0]
        for n in (0, 1, 7, 8, 9, len(data) // 3, len(data) // 2, len(data) - 2):
            file.write_bytes(data[:n])
            what = (("%d bytes" % n,) if n < 8 else
                    ("header of %d bytes" % n_header, "at most %d" % (n - 8)) if n < n_header else
                    (".weight: data_offsets: [", "outside the %d bytes" % (n - 8 - n_header)))
            self.refused(("generate", path, *IDS), f"{file}: ", *what)
        file.write_bytes(data)
        data = config.read_bytes()
        for n in (0, 1, 7, 8, 9, len(data) // 3, len(data) // 2, len(data) - 2):
            config.write_bytes(data[:n])
            self.refused(("generate", path, *IDS), f"{config}: line ", " near ")
        data = GGUF.read_bytes()
        for n, *what in ((0, "byte 0: magic", "0 more"), (3, "byte 0: magic", "3 more"),
                         (4, "byte 4: version", "0 more"), (8, "byte 8: tensor count", "0 more"),
                         (23, "byte 8: tensor count: 22", "7 more"),
                         (24, "byte 8: tensor count: 22", "8 more"),
                         (200, "byte 8: tensor count: 22", "184 more"),
                         (1000, "tokenizer.ggml.tokens: 96", "314 more"),
                         (len(data) // 2, ".weight: bytes ", "bytes of data"),
                         (len(data) - 1, ".weight: bytes ", "bytes of data")):
            (self.folder / "cut.gguf").write_bytes(data[:n])
            self.refused(("info", self.folder / "cut.gguf"), "cut.gguf: ", *what)

    def test_flipped_bits(self):
        path = self.copy(FOLDER)
        for file, words in ((path / "model.safetensors", ("generate", path, *IDS)),
                            (path / "config.json", ("info", path)),
                            (self.folder / "flip.gguf", ("info", self.folder / "flip.gguf"))):
            data = file.read_bytes() if file.exists() else GGUF.read_bytes()
            end = min(len(data), 2000)
            for i in [*range(0, 16), *range(16, end, max(1, end // 12))]:
                damaged = bytearray(data)
                damaged[i] ^= 1 << (i * 5 % 8)
                file.write_bytes(damaged)
                self.survives(words)
            file.write_bytes(data)

    def test_tensors(self):
        name = "model.layers.1.self_attn.k_proj.weight"

        def field(key, value):
            return lambda h: {**h, name: {**h[name], key: value}}

        def twice(h):
            text = json.dumps(h)
            return (text[:-1] + ', "%s": %s}' % (name, json.dumps(h[name]))).encode()

        shape = json.loads((MODELS / FOLDER / "model.safetensors").read_bytes()[8:].split(b"}}")[0] +
                           b"}}")[name]["shape"]
        rows, columns = shape
        for change, *parts in (
            (twice, "duplicate object key", name),
            (field("dtype", "F8_E9M9"), f"{name}: dtype F8_E9M9"),
            (field("shape", [rows]), f"{name}: data_offsets: {4 * rows * columns} bytes",
             f"takes {4 * rows}"),
            (field("shape", [columns * 2, rows // 2]), f"{name}: shape [{columns * 2},{rows // 2}]",
             f"num_key_value_heads * head_dim {rows}", f"hidden_size {columns}"),
            (field("shape", [1 << 62, 1 << 62]), f"{name}: header: shape: [{1 << 62},{1 << 62}]"),
            (field("shape", [-1, 4]), f"{name}: header: shape: -1"),
            (field("shape", "x"), f'{name}: header: shape: "x"'),
            (field("data_offsets", [0, 1 << 40]), f"{name}: data_offsets: [0, {1 << 40}]"),
            (field("data_offsets", [8, 4]), f"{name}: data_offsets: [8, 4]"),
            (field("data_offsets", 7), f"{name}: header: data_offsets: 7"),
            (lambda h: b"[]", "byte 8: the header", "0x5b"),
            (lambda h: b'{"a": \xff}', "line 1", "byte 0xff"),
        ):
            path = self.tensors(change)
            self.refused(("generate", path, *IDS), f"{path / 'model.safetensors'}: ", *parts)
        path = self.tensors(lambda h: {k: v for k, v in h.items() if k != name})
        self.refused(("generate", path, *IDS), f"{path}: {name}: missing", "num_hidden_layers is 4")

    def test_config(self):
        for key, value, said in (
            ("num_attention_heads", 0, ": 0"), ("num_attention_heads", 7, " 7"),
            ("num_attention_heads", "x", ': "x"'), ("num_attention_heads", [4], ": an array of 1"),
            ("num_key_value_heads", 3, " 3"), ("hidden_size", 1 << 60, f" {1 << 60}"),
            ("hidden_size", -8, ": -8"), ("hidden_size", 1.5, ": 1.5"),
            ("num_hidden_layers", 1 << 40, f" {1 << 40}"), ("model_type", "mamba", " mamba"),
            ("model_type", 7, ": 7"), ("hidden_act", "relu2", ": relu2"),
            ("rms_norm_eps", -1, " -1"), ("max_position_embeddings", -5, ": -5"),
            ("tie_word_embeddings", "yes", ': "yes"'), ("rope_scaling", 3, ": 3"),
            ("rope_scaling", {"rope_type": "yarnish"}, ": rope_type: not supported: yarnish"),
            ("rope_scaling", {"rope_type": "linear", "factor": -2}, ".factor -2"),
            ("rope_theta", 0, " 0"), ("eos_token_id", "</s>", ': "</s>"'),
        ):
            path = self.config(FOLDER, **{key: value})
            self.refused(("generate", path, *IDS), f"{path / 'config.json'}: ", key + said)
        for key, value, said in (
            ("num_key_value_layers", 99, "num_key_value_layers 99"),
            ("num_key_value_layers", "x", 'num_key_value_layers: "x"'),
            ("key_value_group_size", 0, "key_value_group_size 0"),
            ("key_value_group_size", 3, "key_value_group_size 3"),
        ):
            path = self.config("llama-swiftkv-g2", **{key: value})
            self.refused(("generate", path, *IDS), f"{path / 'config.json'}: ", said)
        # Sizes that are fine by themselves and contradict the weights.
        for key, value, tensor, have in (("vocab_size", 1, "model.embed_tokens.weight", "[101,32]"),
                                         ("intermediate_size", 3,
                                          "model.layers.0.mlp.gate_proj.weight", "[48,32]")):
            path = self.config(FOLDER, **{key: value})
            self.refused(("generate", path, *IDS), f"{path / 'model.safetensors'}: ",
                         f"{tensor}: shape {have}, expected [{key} {value}, hidden_size 32]")
        path = self.config(FOLDER, num_hidden_layers=...)
        self.refused(("generate", path, *IDS), f"{path}: ", "model.layers.4.input_layernorm.weight",
                     "missing, num_hidden_layers is 32")

    def test_shards(self):
        path = self.copy(SHARDS)
        shard = sorted(path.glob("model-*.safetensors"))[1]
        shard.unlink()
        self.refused(("generate", path, *IDS), shard.name)
        path = self.copy(SHARDS)
        index = path / "model.safetensors.index.json"
        for text, *parts in (("", "line 1"), ("{", "line 1", "'}' expected"),
                             ('{"weight_map": 1}', "weight_map: 1"),
                             ('{"weight_map": {"a": "../../etc/passwd"}}',
                              'weight_map: a: "../../etc/passwd"')):
            index.write_text(text)
            self.refused(("generate", path, *IDS), f"{index}: ", *parts)

    def test_no_model(self):
        (self.folder / "empty").mkdir()
        (self.folder / "text.gguf").write_text("hello")
        for path, said in (("empty/config.json", "cannot open"), ("absent", "cannot open"),
                           ("text.gguf", "byte 0: 68 65 6c 6c: not a GGUF file")):
            model = self.folder / path.split("/")[0]
            self.refused(("generate", model, *IDS), f"{self.folder / path}: ", said)


class CodesTest(BadInputTest):
    """Quantised weights with a scale that is no number, whatever holds them."""

    def broken(self, name, tensor, bits, i=0):
        model = self.copy(name)
        self.write(model / "model.safetensors", tensor, bits, i)
        return model

    def write(self, path, tensor, bits, i):
        data = bytearray(path.read_bytes())
        n = int.from_bytes(data[:8], "little")
        begin = 8 + n + json.loads(data[8 : 8 + n])[tensor]["data_offsets"][0] + i * len(bits)
        data[begin : begin + len(bits)] = bits
        path.write_bytes(data)

    def test_scales(self):
        mlp = "model.layers.1.mlp."
        for name, tensor, bits, i, said in (
            ("awq", mlp + "down_proj.scales", b"\x00\x7e", 5, ": row 5: nan"),
            ("gptq", mlp + "down_proj.scales", b"\x00\x7c", 2, ": row 2: inf"),
            ("fp8-block", mlp + "down_proj.weight_scale_inv", struct.pack("<f", float("-inf")), 0, ": row 0: "),
            ("fp8-tensor", mlp + "down_proj.weight", b"\x7f", 0, ": row 0: nan"),
            ("mixtral-int4", "model.layers.1.block_sparse_moe.experts.3.w2.weight_scale", b"\xc0\x7f", 1, "nan"),
        ):
            model = self.broken(name, tensor, bits, i)
            where = mlp + ("experts.3." if "experts" in tensor else "") + "down_proj.weight"
            for weights in ("auto", "int8", "f32"):
                self.refused(("generate", model, *IDS, "--weights", weights), str(model), where, said)

    def test_groups(self):
        """An order of columns is a group for each of them, or -1 for all: never for some."""
        tensor, minus = "model.layers.0.mlp.down_proj.g_idx", struct.pack("<i", -1)
        for columns in ([0], [0, 1], [1], [95], [5, 95], range(95), range(1, 96)):
            model = self.broken("gptq-order-swiftkv", tensor, minus, columns[0])
            for i in columns[1:]:
                self.write(model / "model.safetensors", tensor, minus, i)
            self.refused(("generate", model, *IDS), tensor, "]: -1, expected 0 to ")

    def test_contradictions(self):
        """quantization_config says one thing, the tensors another."""
        of_group = ("config_groups", "group_0", "weights")
        for name, keys, changes, *parts in (
            ("int4-zeros", of_group, {"group_size": 64}, "in groups of 32", "says 4 bits in groups of 64"),
            ("int4-zeros", of_group, {"num_bits": 8}, "int4 ", "says 8 bits in groups of 32"),
            ("int4-zeros", of_group, {"actorder": "group"}, "int4 ", "an order (g_idx)"),
            ("gptq", (), {"group_size": 64}, "in groups of 32", "says 4 bits in groups of 64"),
            ("gptq", (), {"quant_method": "awq"}, 'quant_method is "awq"'),
            ("fp8-block", (), {"weight_block_size": [32, 32]}, "one a block of [32, 32]"),
            ("fp8-block-odd", of_group, {"block_structure": None}, "does not say the size of a block"),
            ("fp8-block-odd", of_group, {"block_structure": [24, 24]}, "one a block of [24, 24]"),
        ):
            model = self.copy(name)
            config = json.loads((model / "config.json").read_text())
            inner = config["quantization_config"]
            for key in keys:
                inner = inner[key]
            inner.update(changes)
            (model / "config.json").write_text(json.dumps(config))
            self.refused(("info", model), f"{model}: model.layers.", *parts)

    def test_context(self):
        """Beyond the model's context, the angles of this RoPE are not those that the cache has."""
        changes = {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 64}
        path = self.config(FOLDER, **changes)
        self.refused(("generate", path, *IDS, "--ctx", 65), "context: 65 tokens, at most 64 with rope_type dynamic")


class ExpertsTest(BadInputTest):
    """Mixtures of experts whose configuration and tensors do not fit one another."""

    def model(self, name, rename=None, drop=None, **changes):
        """A copy of a model whose configuration, or the name or shape of whose tensors, differs."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(MODELS / name, path)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | changes))
        if rename or drop:
            file = path / "model.safetensors"
            data = file.read_bytes()
            n = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8:8 + n])
            for old, new in (rename or {}).items():
                header[new] = header.pop(old)
            for tensor, shape in (drop or {}).items():
                header[tensor]["shape"] = shape
            text = json.dumps(header).encode()
            file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n:])
        return path

    def test_configuration(self):
        for name, changes, *parts in (
            ("qwen3-moe-v4", {"num_experts": 0}, "num_experts 0"),
            ("qwen3-moe-v4", {"num_experts_per_tok": 8}, "num_experts_per_tok 8, expected 1 to the 7"),
            ("qwen3-moe-v4", {"num_experts": 8}, "mlp.gate.weight: shape [7,32]", "num_experts 8"),
            ("qwen3-moe-v4", {"mlp_only_layers": []}, "model.layers.1.mlp.gate.weight: missing"),
            ("qwen3-moe-v4", {"mlp_only_layers": [0, 1]}, "model.layers.0.mlp.gate_proj.weight: missing"),
            ("qwen3-moe-v4", {"moe_intermediate_size": 23},
             "model.layers.0.mlp.experts.0.gate_proj.weight: shape [24,32]"),
            ("qwen3-moe-v5", {"num_experts": 6}, "mlp.experts.", "_proj: shape [7,"),
            ("qwen3-moe-v5", {"moe_intermediate_size": 2 ** 62}, "intermediate_size"),
            ("mixtral-v5", {"num_local_experts": 4}, "_proj: shape [5,"),
        ):
            self.refused(("info", self.model(name, **changes)), *parts)

    def test_tensors(self):
        expert = "model.layers.2.mlp.experts.6.down_proj.weight"
        path = self.model("qwen3-moe-v4", {expert: expert.replace(".6.", ".7.")})
        self.refused(("info", path), f"{expert}: missing")
        path = self.model("qwen3-moe-v4", drop={expert: [24, 32]})
        self.refused(("info", path), f"{expert}: shape [24,32], expected [hidden_size 32")
        fused = "model.layers.1.mlp.experts.gate_up_proj"
        for shape in ([7, 24, 64], [7, 48 * 32], [336, 32], [1, 7, 48, 32]):
            path = self.model("qwen3-moe-v5", drop={fused: shape})
            self.refused(("info", path), "model.layers.1.mlp.experts.", "shape")


class KvPredictionTest(BadInputTest):
    """A base, an auxiliary and a predictor that do not fit one another."""

    def pair(self, **changes):
        """A folder of KV Prediction beside its base; `changes` are of "kv_prediction"."""
        for name in ("qwen3-v5", "qwen3-c"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            shutil.copytree(ROOT / "tests/data/kvpred" / name, self.folder / name)
        path = self.folder / "qwen3-c"
        config = json.loads((path / "config.json").read_text())
        config["kv_prediction"] |= changes
        (path / "config.json").write_text(json.dumps(config))
        return path

    def edit(self, path, **changes):
        config = json.loads(path.read_text())
        path.write_text(json.dumps(config | changes))

    def header(self, file, change):
        data = file.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        text = json.dumps(change(json.loads(data[8:8 + n]))).encode()
        text += b" " * (-len(text) % 8)
        file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n:])

    def test_config(self):
        for changes, *parts in (
            ({"layers": [0, 0, 1]}, "kv_prediction.layers: an array of 3", "a list of 4 layers"),
            ({"layers": 7}, "kv_prediction.layers: 7"), ({"layers": None}, "kv_prediction.layers: missing"),
            ({"layers": [0, 0, -1, 1]}, "kv_prediction.layers: -1"),
            ({"layers": [0, 0, 512, 1]}, "kv_prediction.layers: 512"),
            ({"auxiliary": "../qwen3-v5"}, 'kv_prediction.auxiliary: "../qwen3-v5"'),
            ({"auxiliary": ""}, 'kv_prediction.auxiliary: ""'), ({"auxiliary": 3}, "auxiliary: 3"),
        ):
            path = self.pair(**changes)
            self.refused(("generate", path, *IDS), f"{path / 'config.json'}: ", *parts)
        path = self.pair(layers=[0, 0, 1, 2])
        self.refused(("generate", path, *IDS), f"{path}: ", "kv_prediction.layers[3]: 2",
                     "the auxiliary has 2 layers")
        path = self.pair()
        self.edit(path / "config.json", kv_prediction=[1])
        self.refused(("generate", path, *IDS), f"{path / 'config.json'}: ", "kv_prediction: an array")
        self.edit(path / "config.json", kv_prediction={"layers": [0, 0, 1, 1]}, swiftkv_base="gone")
        self.refused(("generate", path, *IDS), "swiftkv_base", "gone")

    def test_auxiliary(self):
        path = self.pair()
        self.edit(path / "auxiliary/config.json", vocab_size=102)
        self.refused(("generate", path, *IDS), f"{path / 'auxiliary'}", "vocab_size 102")
        path = self.pair()
        shutil.rmtree(path / "auxiliary")
        self.refused(("generate", path, *IDS), f"{path / 'auxiliary'}", "cannot open")

    def test_predictor(self):
        name = "predictor.key.1.weight"
        path = self.pair()
        file = path / "predictor.safetensors"
        self.header(file, lambda h: {n: t for n, t in h.items() if n != name})
        self.refused(("generate", path, *IDS), f"{path}: predictor.safetensors: {name}: missing")
        path = self.pair()
        self.header(file, lambda h: {**h, name: {**h[name], "shape": h[name]["shape"][::-1]}})
        self.refused(("generate", path, *IDS), f"predictor.safetensors: {name}: shape [8,24]",
                     "expected [24,8]", "base's layer 1", "auxiliary's 0")
        bias = "predictor.value.3.bias"
        path = self.pair()
        self.header(file, lambda h: {**h, bias: {**h[bias], "shape": [2, 12]}})
        self.refused(("generate", path, *IDS), f"predictor.safetensors: {bias}: shape [2,12]", "[24]")
        path = self.pair()
        data = file.read_bytes()
        for n in (0, 7, 100, len(data) - 2):
            file.write_bytes(data[:n])
            self.refused(("generate", path, *IDS), f"{file}: ")
        for i in range(0, 400, 37):
            damaged = bytearray(data)
            damaged[i] ^= 1 << (i % 8)
            file.write_bytes(damaged)
            self.survives(("generate", path, *IDS))
        file.unlink()
        self.refused(("generate", path, *IDS), f"{file}: cannot open")

    def test_names_of_the_authors(self):
        path = self.pair()
        words = ("score", path, "--ids-file", "-", "--threads", "1", "--json")
        ours = run(*words).stdout

        def rename(name):
            if not name.startswith("predictor."):
                return name
            _, kind, i, what = name.split(".")
            return f"predicter.auxkv_to_basekv.{kind}_transforms.{i}.{what}"
        self.header(path / "predictor.safetensors", lambda h: {rename(n): t for n, t in h.items()})
        self.assertEqual(run(*words).stdout, ours)
        self.assertIn(b"logprobs", ours)

    def test_other_tokenizer(self):
        path = self.pair()

        def write(folder, words):
            vocab = {w: i for i, w in enumerate(words)}
            (folder / "tokenizer.json").write_text(json.dumps(
                {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                 "post_processor": None, "decoder": None,
                 "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
        words = [chr(ord("!") + i) for i in range(90)]
        write(path, words)
        write(path / "auxiliary", words)
        self.assertEqual(run("generate", path, *IDS).returncode, 0)
        write(path / "auxiliary", words[:1] + ["~~"] + words[2:])
        self.refused(("generate", path, *IDS), "auxiliary", '"~~" for id 1', f'"{words[1]}"')
        write(path / "auxiliary", words[:-1])
        self.refused(("generate", path, *IDS), "auxiliary", "89 tokens", "90")

    def test_what_does_not_go_together(self):
        path = self.pair()
        self.refused(("similarity", path, "--text", ROOT / "README.md"), "hidden states")
        self.refused(("train", path, self.folder / "out", "--task", "finetune", "--data", "x"),
                     f"{path}: only task kvpred trains a model with an auxiliary model")
        self.refused(("generate", MODELS / FOLDER, "--prefill", "kvpred", *IDS), "no auxiliary model")


class RequestTest(BadInputTest):
    def test_ids(self):
        model = MODELS / FOLDER
        for data, *parts in (
            ("[]", "0 tokens"), ("[1, -1]", "[1]: id -1", "size, 101"),
            ("[1, 100000]", "[1]: id 100000", "size, 101"), ("[1, 101]", "[1]: id 101"),
            ("[1, 99999999999]", "[1]: id 99999999999"), ("[1.5]", "[0]: 1.5"),
            ('["a"]', '[0]: "a"'), ("[null]", "[0]: null"), ('{"a": 1}', '{"a":1} is not'),
            ("", "line 1", "end of file"), ("[1", "line 1", "']' expected"),
            ("nonsense", "line 1", "'nonsense'"), (b"[1, \xff]", "line 1", "byte 0xff"),
        ):
            self.refused(("generate", model, *IDS), "standard input: ", *parts, data=data)

    def test_text(self):
        path = self.folder / "text"
        for data, i, byte in ((b"a\xff", 1, "0xff"), (b"\xc0\xaf", 0, "0xc0"),
                              (b"abc\xed\xa0\x80", 3, "0xed"), (b"caf\xc3", 3, "0xc3")):
            path.write_bytes(data)
            said = f"{path}: byte {i}: {byte} is not UTF-8"
            for command in ("tokenize", "generate", "score"):
                self.refused((command, GGUF, "--file", path), said)
            self.refused(("similarity", GGUF, "--text", path), said)
        self.refused(("tokenize", GGUF, "--file", "-"), "standard input: byte 1: 0xff", data=b"a\xff")
        self.refused(("tokenize", GGUF, "-p", b"a\xff".decode(errors="surrogateescape")),
                     "-p: byte 1: 0xff")

    def test_empty_prompt_without_bos(self):
        self.refused(("generate", MODELS / FOLDER, "-p", "", "-n", "1"), MODELS / FOLDER,
                     "no tokenizer")

    def test_beyond_the_context(self):
        ids = json.dumps([1] * 40)
        self.refused(("generate", MODELS / FOLDER, "--ctx", "32", *IDS), "prompt: 40 tokens",
                     "--ctx is 32", data=ids)

    def test_memory(self):
        text = self.refused(("bench", "--preset", "llama-3.1-405b", "--prompt", "8"))
        self.assertRegex(text, r"weights \d+ MiB \+ KV cache \d+ MiB .* workspace \d+ MiB, \d+ MiB are")
        self.refused(("generate", MODELS / FOLDER, "--ctx", str(1 << 28), *IDS),
                     f"context: {1 << 28} tokens, at most {1 << 24}")
        for tokens in (1 << 40, 99999999999999999999):
            words = ("generate", MODELS / FOLDER, "--ctx", str(tokens), *IDS)
            self.refused(words, "--ctx", tokens, status=2)

    def test_transform_leaves_nothing(self):
        out = self.folder / "out"
        for words, said in ((("--kv-layers", "99"), "--kv-layers 99, expected 1 to 4"),
                            (("--kv-layers", "1", "--group", "7"),
                             "key_value_group_size 7, expected a divisor of the 3 layers")):
            self.refused(("transform", MODELS / FOLDER, out, *words), MODELS / FOLDER, said)
            self.assertEqual(list(self.folder.iterdir()), [])
        (self.folder / "file").write_text("")
        words = ("transform", MODELS / FOLDER, self.folder / "file/out", "--kv-layers", "1")
        self.refused(words, self.folder / "file/out", "Not a directory")

    def test_disk_full(self):
        """A limit on the size of files stands in for a full disk: writing fails half way."""
        out = self.folder / "out"
        script = "trap '' XFSZ; ulimit -f 8; exec \"$@\""
        words = [PROGRAM, "transform", MODELS / FOLDER, out, "--kv-layers", "1"]
        result = subprocess.run(["sh", "-c", script, "sh", *map(str, words)], capture_output=True,
                                text=True, timeout=300)
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (1, 1), result)
        self.assertRegex(result.stderr, r"out/model.safetensors.*: cannot write: File too large")
        left = [str(p.relative_to(self.folder)) for p in self.folder.rglob("*")]
        self.assertEqual(left, [])

    def test_command_line(self):
        for words, *parts in (
            (("generate",), "generate: MODEL is missing"), (("nonsense",), "'nonsense'"),
            (("transform", "m"), "transform: OUT is missing"), (("vocab",), "vocab: OUT is missing"),
            (("render",), "render: (MODEL | FILE.jinja) is missing"), (("load",), "load: URL is missing"),
            (("cache",), "cache: explain is missing"),
            (("cache", "explode"), "cache: 'explode': expected explain"),
            (("cache", "explode", "m", "r"), "cache: 'explode': expected explain"),
            (("cache", "explain"), "cache: MODEL is missing"),
            (("cache", "explain", "m"), "cache: REQUEST.json... is missing"),
            (("info", "--what"), "info: no option '--what'"),
            (("bench", "--prompt", "x"), "--prompt: 'x'"),
            (("generate", "m", "-p", "a", "-n", "-1"), "-n: -1 is not between"),
            (("score", "m"), "score: give one of -p, --file, --ids-file"),
        ):
            self.refused(words, *parts, status=2)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"{PROGRAM} was not built: skipped")
        sys.exit(77)
    unittest.main()
