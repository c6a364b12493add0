#!/usr/bin/env python3
"""Damaged models and impossible requests through the program: exit status 1 (2 for the command
line), exactly one line on stderr, no crash, nothing left behind.

    tests/test_bad_input.py        SKV_BUILD names the build folder; under AddressSanitizer a leak or
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

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"
FOLDER, SHARDS, GGUF = "llama-mha", "llama3-v5", MODELS / "llama-gguf/model.gguf"
WORDS = {"num_attention_heads": "heads", "num_key_value_heads": "key-value heads",
         "num_hidden_layers": "number of layers", "hidden_size": "hidden size",
         "vocab_size": "vocabulary", "rms_norm_eps": "epsilon", "intermediate_size": "width",
         "max_position_embeddings": "context", "rope_scaling": "rope_type"}
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
        for name in ("model.safetensors", "config.json"):
            data = (path / name).read_bytes()
            for n in (0, 1, 7, 8, 9, len(data) // 3, len(data) // 2, len(data) - 2):
                (path / name).write_bytes(data[:n])
                self.refused(("generate", path, *IDS), name)
            (path / name).write_bytes(data)
        data = GGUF.read_bytes()
        for n in (0, 3, 4, 8, 23, 24, 25, 200, 1000, len(data) // 2, len(data) - 1):
            (self.folder / "cut.gguf").write_bytes(data[:n])
            self.refused(("info", self.folder / "cut.gguf"), "cut.gguf")

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
        for change, part in (
            (lambda h: {k: v for k, v in h.items() if k != name}, name),
            (twice, name),
            (field("dtype", "F8_E9M9"), "F8_E9M9"),
            (field("shape", shape[::-1][:1]), name),
            (field("shape", [shape[1] * 2, shape[0] // 2]), name),
            (field("shape", [1 << 62, 1 << 62]), name),
            (field("shape", [-1, 4]), name),
            (field("data_offsets", [0, 1 << 40]), name),
            (field("data_offsets", [8, 4]), name),
            (lambda h: b"[]", "model.safetensors"),
            (lambda h: b'{"a": \xff}', "model.safetensors"),
        ):
            self.refused(("generate", self.tensors(change), *IDS), part)

    def test_config(self):
        for key, value in (
            ("num_attention_heads", 0), ("num_attention_heads", 7), ("num_attention_heads", "x"),
            ("num_key_value_heads", 3), ("hidden_size", 1 << 60), ("hidden_size", -8),
            ("num_hidden_layers", 1 << 40), ("num_hidden_layers", ...), ("vocab_size", 1),
            ("intermediate_size", 3), ("model_type", "mamba"), ("hidden_act", "relu2"),
            ("rms_norm_eps", -1), ("max_position_embeddings", -5),
            ("rope_scaling", {"rope_type": "yarnish", "factor": 2}),
        ):
            path = self.config(FOLDER, **{key: value})
            text = self.refused(("generate", path, *IDS), path)
            # The checks that GGUF files share say the field in words.
            names = (key, WORDS.get(key, key), "model.safetensors", "model.")
            self.assertTrue(any(name in text for name in names), (key, value, text))
        for key, value in (("num_key_value_layers", 99), ("key_value_group_size", 0),
                           ("key_value_group_size", 3)):
            path = self.config("llama-swiftkv-g2", **{key: value})
            self.refused(("generate", path, *IDS), key)

    def test_shards(self):
        path = self.copy(SHARDS)
        shard = sorted(path.glob("model-*.safetensors"))[1]
        shard.unlink()
        self.refused(("generate", path, *IDS), shard.name)
        path = self.copy(SHARDS)
        index = path / "model.safetensors.index.json"
        for text in ("", "{", '{"weight_map": 1}', '{"weight_map": {"a": "../../etc/passwd"}}'):
            index.write_text(text)
            self.refused(("generate", path, *IDS), index.name)

    def test_no_model(self):
        (self.folder / "empty").mkdir()
        (self.folder / "text.gguf").write_text("hello")
        for path in ("empty", "absent", "text.gguf"):
            self.refused(("generate", self.folder / path, *IDS), path)


class RequestTest(BadInputTest):
    def test_ids(self):
        model = MODELS / FOLDER
        for data in ("[]", "[1, -1]", "[1, 100000]", "[1, 99999999999]", "[1.5]", '["a"]', "{}", "",
                     "[1", "nonsense", "[null]"):
            self.refused(("generate", model, *IDS), data=data)
        self.refused(("generate", model, *IDS), data=b"[1, \xff]")

    def test_empty_prompt_without_bos(self):
        self.refused(("generate", MODELS / FOLDER, "-p", "", "-n", "1"))

    def test_beyond_the_context(self):
        ids = json.dumps([1] * 40)
        text = self.refused(("generate", MODELS / FOLDER, "--ctx", "32", *IDS), "40", data=ids)
        self.assertIn("32", text)

    def test_memory(self):
        text = self.refused(("bench", "--preset", "llama-3.1-405b", "--prompt", "8"))
        self.assertRegex(text, r"[0-9.]+ .*[0-9.]+")
        self.refused(("generate", MODELS / FOLDER, "--ctx", str(1 << 28), *IDS))
        for tokens in (1 << 40, 99999999999999999999):
            words = ("generate", MODELS / FOLDER, "--ctx", str(tokens), *IDS)
            self.refused(words, "--ctx", tokens, status=2)

    def test_transform_leaves_nothing(self):
        out = self.folder / "out"
        for words in (("--kv-layers", "99"), ("--kv-layers", "1", "--group", "7")):
            self.refused(("transform", MODELS / FOLDER, out, *words))
            self.assertEqual(list(self.folder.iterdir()), [])
        (self.folder / "file").write_text("")
        words = ("transform", MODELS / FOLDER, self.folder / "file/out", "--kv-layers", "1")
        self.refused(words, "file")

    def test_disk_full(self):
        """A limit on the size of files stands in for a full disk: writing fails half way."""
        out = self.folder / "out"
        script = "trap '' XFSZ; ulimit -f 8; exec \"$@\""
        words = [PROGRAM, "transform", MODELS / FOLDER, out, "--kv-layers", "1"]
        result = subprocess.run(["sh", "-c", script, "sh", *map(str, words)], capture_output=True,
                                text=True, timeout=60)
        self.assertEqual((result.returncode, len(result.stderr.splitlines())), (1, 1), result)
        left = [str(p.relative_to(self.folder)) for p in self.folder.rglob("*")]
        self.assertEqual(left, [])

    def test_command_line(self):
        for words in (("generate",), ("nonsense",), ("info", "--what"), ("bench", "--prompt", "x"),
                      ("generate", "m", "-p", "a", "-n", "-1"), ("score", "m")):
            self.refused(words, status=2)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"{PROGRAM} was not built: skipped")
        sys.exit(77)
    unittest.main()
