#!/usr/bin/env python3
"""swiftkv distill and train from outside: what a run leaves, a recipe beside options, a disk that is full, and what
is said of options, recipes and data that cannot be right: one line, and no folder."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from waiting import wait_until  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODEL = ROOT / "tests/data/models/llama-mha"
MIXTURE = ROOT / "tests/data/models/qwen3-moe-v4"
STEPS = 6


def tensors(path):
    """The bytes of every tensor of a safetensors file."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    return {name: data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
            for name, t in header.items() if name != "__metadata__"}


class TrainingTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"
        self.ids = self.write("ids.json", json.dumps([i * i % 97 for i in range(2000)]))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_it(self, *words, **more):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=1200, **more)

    def words(self, *more, out=None, data=None):
        return ("distill", MODEL, out or self.out, "--kv-layers", 2, "--data", data or self.ids, "--steps", STEPS,
                "--seq", 32, "--rows", 2, "--threads", 1, *more)

    def run_ok(self, *words):
        result = self.run_it(*words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def fails(self, status, words, *parts, **more):
        result = self.run_it(*words, **more)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(str(part), result.stderr)

    def losses(self, out):
        lines = map(json.loads, (out / "log.jsonl").read_text().splitlines())
        return {line["step"]: line["loss"] for line in lines}

    # ---- what a run leaves ----

    def test_a_run(self):
        said = self.run_ok(*self.words())
        self.assertEqual(said.count("\nstep "), STEPS)
        self.assertTrue(said.startswith("chosen: lr "), said)
        self.assertTrue(said.endswith(f"{self.out}: written\n"), said)
        self.assertEqual(sorted(self.losses(self.out)), list(range(1, STEPS + 1)))
        self.assertEqual({path.name for path in self.out.iterdir()} - {"tokenizer.json", "tokenizer_config.json"},
                         {"checkpoint", "config.json", "curves.svg", "log.jsonl", "model.safetensors"})
        curves = (self.out / "curves.svg").read_text()
        for word in ("<svg", "loss", "learning rate"):
            self.assertIn(word, curves)
        info = json.loads(self.run_ok("info", self.out, "--json"))
        self.assertEqual(info["swiftkv_layers"], 2)

    def test_what_is_chosen(self):
        """Half of the layers, rows that fit the model, a rate by its width."""
        info = json.loads(self.run_ok("info", MODEL, "--json"))
        said = self.run_ok("distill", MODEL, self.out, "--data", self.ids, "--rows", 1, "--threads", 1)
        rate = 2e-4 * (4096 / info["hidden"]) ** 0.5
        seq = min(info["context"], 1024)
        self.assertEqual(said.splitlines()[0], f"chosen: kv-layers {info['layers'] // 2} of {info['layers']}, "
                         f"lr {rate:.2g} for a width of {info['hidden']}, 300 steps of 1 x {seq} tokens")

    def test_without_an_option(self):
        """The model writes as much text as the run reads, rows that are held out included."""
        result = self.run_it("distill", MODEL, self.out, "--steps", 2, "--threads", 1)
        self.assertEqual(result.returncode, 0, result.stderr)
        said = result.stdout.splitlines()
        info = json.loads(self.run_ok("info", MODEL, "--json"))
        seq = min(info["context"], 1024)
        tokens = (2 + 4) * (1024 // seq) * seq
        self.assertIn(f"{tokens * 1e-6:.3g} M tokens of text that the model writes itself", said[0])
        text, = self.out.glob("self-*.u16")
        self.assertGreaterEqual(text.stat().st_size, 2 * tokens)
        self.assertLess(text.stat().st_size, 2 * (tokens + 16 * seq))
        self.assertRegex(said[-2], "^held out: [0-9.]+ at the beginning, [0-9.]+ now: -?[0-9]+ % of the damage repaired$")

    def test_what_was_held_out(self):
        """The share of the damage that was repaired is told at the end, also of a run that was stopped between; the
        rows are not trained on."""
        share = re.compile("held out: ([0-9.]+) at the beginning, ([0-9.]+) now: (-?[0-9]+) % of the damage repaired\n")
        words = self.words("--lr", "1e-3", "--checkpoint-every", 1)
        first, now, repaired = map(float, share.search(self.run_ok(*words)).groups())
        self.assertAlmostEqual(repaired, 100 * (1 - now / first), delta=0.6)
        held = json.loads((self.out / "log.jsonl").read_text().splitlines()[-1])["held_loss"]
        self.assertAlmostEqual(held, now, delta=1e-4)
        stopped = self.folder / "stopped"
        words = self.words("--lr", "1e-3", "--checkpoint-every", 1, "--log", "/dev/full", out=stopped)
        self.fails(1, words, "/dev/full: cannot be written")  # after the first step
        self.fails(1, self.words("--lr", "1e-3", "--held-out", 0, "--resume", out=stopped), "made with held-out")
        said = self.run_ok(*self.words("--lr", "1e-3", "--checkpoint-every", 1, "--resume", out=stopped))
        self.assertEqual(tuple(map(float, share.search(said).groups())), (first, now, repaired))
        none = self.run_ok(*self.words("--lr", "1e-3", "--held-out", 0, out=self.folder / "none"))
        self.assertIsNone(share.search(none))
        self.assertNotEqual(self.losses(self.folder / "none"), self.losses(self.out))

    def test_interrupted_while_the_text_is_written(self):
        command = [PROGRAM, *map(str, self.words("--threads", 1, data="self:50M"))]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: any(part.stat().st_size for part in self.out.glob("self-*.part")))
            process.send_signal(signal.SIGINT)
            said = process.stderr.read().splitlines()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(said[-1], "swiftkv: interrupted: run the same command to continue the text")

    def test_nothing_to_repair(self):
        """With one layer of its own input alone, a form computes what its teacher does: no text and no steps for it."""
        layers = json.loads(self.run_ok("info", MODEL, "--json"))["layers"]
        said = self.run_ok("distill", MODEL, self.out, "--kv-layers", layers - 1, "--threads", 1)
        self.assertIn("nothing to repair", said)
        self.assertEqual(list(self.losses(self.out)), [1])

    def test_until_flat(self):
        """It ends by itself; a run that was stopped holds out the same rows and takes the same steps."""
        words = [*self.words("--until-flat", "--lr", "1e-3")]
        words[words.index("--steps") + 1] = 2000
        said = self.run_ok(*words)
        self.assertIn("falls no more", said)
        log = [json.loads(line) for line in (self.out / "log.jsonl").read_text().splitlines()]
        self.assertLess(log[-1]["step"], 2000)
        held = [line["held_loss"] for line in log if "held_loss" in line]
        self.assertGreater(len(held), 4)
        self.assertLess(held[-1], held[0])
        self.assertRegex(said, r"held out: [0-9.]+ at the beginning, [0-9.]+ now: [0-9]+ % of the damage repaired")
        self.fails(1, self.words("--until-flat", "--stages", "[{steps: 1, seq: 32}, {steps: 1, seq: 32}]",
                                 out=self.folder / "two"), "one stage")

    def test_a_mixture(self):
        """Its experts and routers come out as they went in, and the loss falls."""
        self.run_ok("distill", MIXTURE, self.out, "--kv-layers", 1, "--data", self.ids, "--steps", 30, "--seq", 32,
                    "--rows", 2, "--lr", "1e-2", "--held-out", 0, "--threads", 1)
        losses = self.losses(self.out)
        self.assertLess(losses[30], losses[1] / 2)
        before, after = tensors(MIXTURE / "model.safetensors"), tensors(self.out / "model.safetensors")
        self.assertEqual([name for name in before if after[name] != before[name]], [])
        self.assertIn("model.layers.2.mlp.experts.6.down_proj.weight", before)
        self.assertIn("model.layers.1.self_attn.k_proj_swiftkv.weight", after)
        self.run_ok("score", self.out, "--ids-file", self.ids, "--ctx", 64)

    def test_a_recipe_is_the_options(self):
        self.run_ok(*self.words("--lr", "1e-3", "--tau", 3))
        other = self.folder / "other"
        recipe = self.write("run.yaml", f"""
model: {MODEL}
out: {other}
kv-layers: 2
tau: 3
threads: 2
data:
  - {{file: {self.ids}}}
stages:
  - {{steps: {STEPS}, seq: 32, rows: 2, lr: 1e-3}}
""")
        self.run_ok("distill", "--recipe", recipe)
        self.assertEqual(self.losses(self.out), self.losses(other))
        self.assertEqual((self.out / "model.safetensors").read_bytes(), (other / "model.safetensors").read_bytes())

    def test_dry_run(self):
        said = self.run_ok(*self.words("--dry-run"))
        rows = {line[:24].strip(): line[24:].split() for line in said.splitlines()}
        for name in ("parameters", "trained", "weights (f32)", "frozen weights, packed", "gradients", "optimiser",
                     "teacher's copies", "activations", "working memory", "together", "arithmetic a step",
                     "tokens of the run", "arithmetic of the run"):
            self.assertEqual(len(rows[name]), 2, name)
        self.assertEqual(rows["tokens a step"], ["64"])
        self.assertFalse(self.out.exists())

    # ---- a disk that is full ----

    def test_no_room_for_the_model(self):
        """The result does not fit: no part of it stays, and the run goes on from its checkpoint when there is room."""
        whole = self.folder / "whole"
        self.run_ok(*self.words("--checkpoint-every", 1, "--f32-weights", out=whole))
        sizes = [path.stat().st_size for path in whole.glob("checkpoint/*/state.safetensors")]
        room = (max(sizes) + (whole / "model.safetensors").stat().st_size) // 2
        self.assertGreater(room, max(sizes))

        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

        words = self.words("--checkpoint-every", 1, "--f32-weights")
        self.fails(1, words, "model.safetensors", "File too large", preexec_fn=little_room)
        self.assertEqual({path.name for path in self.out.iterdir()}, {"checkpoint", "curves.svg", "log.jsonl"})
        self.run_ok(*words, "--resume")
        for name in ("model.safetensors", "config.json"):
            self.assertEqual((whole / name).read_bytes(), (self.out / name).read_bytes())

    def test_log_that_cannot_be_written(self):
        self.fails(1, self.words("--log", "/dev/full"), "/dev/full: cannot be written: No space left")
        self.run_ok(*self.words("--resume"))
        shutil.rmtree(self.out)
        self.fails(1, self.words("--log", self.folder / "no/log"), "no/log: cannot be written: No such file")

    # ---- what cannot be right ----

    def test_options(self):
        for more, *parts in (
            (("--steps", 0), "--steps: 0 is not between 1 and"),
            (("--seq", 1), "--seq: 1 is not between 16 and 1048576"),
            (("--rows", 1 << 20), "--rows: 1048576 is not between 1 and 65535"),
            (("--lr", 0), "--lr: 0 is not between"),
            (("--lr", "nan"), "--lr: 'nan' is not a number"),
            (("--beta1", 1), "--beta1: 1 is not between 0 and"),
            (("--eps", 0), "--eps: 0 is not between"),
            (("--tau", 0), "--tau: 0 is not between 0.001 and 1000"),
            (("--loss", "mse"), "--loss: 'mse' is not one of kl, lm"),
            (("--trainable", "head"), "--trainable: 'head' is not one of qkv, deep-layers, all, exit"),
            (("--threads", 5000), "--threads: 5000 is not between 0 and 1024"),
        ):
            self.fails(2, self.words(*more), *parts)
        for more, *parts in (
            (("--kv-layers", 4), MODEL, "kv-layers 4, expected 1 to 3"),
            (("--kv-layers", 50), MODEL, "kv-layers 50, expected 1 to 3"),
            (("--group", 3), "key_value_group_size 3"),
            (("--cpu", "z80"), 'cpu: unknown name "z80"'),
            (("--resume",), f"{self.out}: no checkpoint to continue from"),
            (("--rows", 65535, "--seq", 1048576), "68718428160 tokens a batch"),
        ):
            self.fails(1, self.words(*more), *parts)
        self.assertFalse(self.out.exists())

    def test_data(self):
        cases = (
            ("none.json", None, "none.json: cannot open: No such file"),
            ("notes.txt", "abc", "notes.txt: this model has no tokenizer"),
            ("far.json", "[1, 2, 99999]", "far.json: token 2 is 99999, the vocabulary has"),
            ("no.json", "[1, 2", "no.json:"),
            ("odd.u16", "abc", "odd.u16: 3 bytes, not a multiple of 2"),
        )
        for name, text, *parts in cases:
            path = self.folder / name if text is None else self.write(name, text)
            self.fails(1, self.words(data=path), *parts)
        (self.folder / "a.json").mkdir()
        self.fails(1, self.words(data=self.folder / "a.json"), "a.json: not a regular file")
        self.fails(1, self.words(data="generate:lines"), "generated documents: this model has no tokenizer")
        self.assertFalse(self.out.exists())

    def test_recipes(self):
        for text, *parts in (
            ("step: 1\n", "r.yaml:1: step: unknown key"),
            ("seed: 1\nseed: 2\n", "r.yaml:2: seed: given twice"),
            ("stages: [{steps: 1, foo: 2}]\n", "r.yaml:1: foo: unknown key"),
            ("seed: 1\ndata: [{file: a, generate: b}]\n", "r.yaml:2: data: give one of file, generate, self"),
            (f"kv-layers: 2\nstages: [{{steps: 1, seq: 32, data: [{{file: {self.ids}}}]}}, "
             "{steps: 1, seq: 32, data: [{file: none.json}]}]\n", "none.json: cannot open"),
            ("a: b: c\n", "r.yaml:1: mapping values"),
            ("early-exit: maybe\n", "r.yaml:1: early-exit: 'maybe' is not one of no, yes"),
        ):
            self.fails(1, ("distill", MODEL, self.out, "--recipe", self.write("r.yaml", text)), *parts)
        self.fails(1, ("distill", "--recipe", self.folder / "none.yaml"), "none.yaml: cannot open")
        self.fails(2, ("distill",), "distill: MODEL is missing")
        self.fails(2, ("distill", MODEL), "distill: OUT is missing")
        self.fails(2, ("train", MODEL, self.out), "train: --data FILE is missing")
        self.assertFalse(self.out.exists())

    def test_where_it_cannot_write(self):
        """The folder is looked at before the text is written, and nothing is left in it or beside it."""
        words = ("--steps", 2, "--threads", 1)
        other = self.folder / "other"
        other.mkdir()
        (other / "notes.txt").write_text("mine")
        self.fails(1, ("distill", MODEL, other, *words), f"{other}: not empty, it holds notes.txt")
        self.fails(1, self.words(out=other), f"{other}: not empty, it holds notes.txt")
        self.assertEqual([path.name for path in other.iterdir()], ["notes.txt"])
        self.fails(1, ("distill", MODEL, other / "notes.txt", *words), "a file, expected a folder")
        self.fails(1, ("distill", MODEL, self.folder / "no/out", *words), f"there is no folder {self.folder}/no")
        large = ("--steps", 100_000_000, "--threads", 1)
        self.fails(1, ("distill", MODEL, self.out, *large), "MiB are free there, the run writes at least")
        self.assertFalse(self.out.exists())
        self.assertFalse((self.folder / "no").exists())

    def test_never_over_a_model(self):
        taken = self.folder / "taken"
        shutil.copytree(MODEL, taken)
        before = {path.name: path.read_bytes() for path in taken.iterdir()}
        self.fails(1, self.words(out=taken), f"{taken}: already contains a model")
        self.assertEqual(before, {path.name: path.read_bytes() for path in taken.iterdir()})


if __name__ == "__main__":
    unittest.main()
