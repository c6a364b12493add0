#!/usr/bin/env python3
"""docs/methods.md, "What goes with what": the table is the program's, and every cell is run. What
works has to work, and what is refused has to be refused for the reason of its number."""

import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import test_eval_cli
import test_server as base

DATA = base.ROOT / "tests/data"
WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}
CHARACTERS = test_eval_cli.CHARACTERS
TEXT = "the quick brown fox jumps over the lazy dog and back again"
PRUNED = {"random": "random:0.5", "static": "static:0.5", "lazy": "lazy:0.75,0.5"}
EVICTED = {name: f"{name}:20,4" for name in ("snapkv", "pyramidkv", "adakv")}
EVICTED |= {"h2o": "h2o:20", "streaming": "streaming:4,20"}
GROUPS = {"by KV head": list(EVICTED), "by query head": [f"{name}:query" for name in EVICTED if name != "streaming"]}
VALUES = {"--prefill": ["full", "swiftkv", "swiftkv-full", "teacher", "kvpred", "merged"], "--prune": ["none", *PRUNED],
          "--evict": ["none", *GROUPS["by KV head"], *GROUPS["by query head"]], "sliding windows": ["none", "some layers"]}
KINDS = [("f32", "f32"), ("bf16", "bf16"), ("fp8", "int8"), ("int8", "f32"), ("int8", "bf16"), ("f32", "int8"), ("fp8", "bf16")]


def run(*words, text=""):
    command = [base.PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, input=text, check=False)


def section():
    page = (base.ROOT / "docs/methods.md").read_text()
    return page.partition("<!-- combinations -->\n")[2].partition("<!-- end of combinations -->")[0]


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


class Table:
    def __init__(self, text):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        self.head = cells_of(lines[0])
        self.axes = self.head[:5]
        self.places = self.head[5:]
        self.rows = [(dict(zip(self.axes, cells)), dict(zip(self.places, cells[5:])))
                     for cells in map(cells_of, lines[1:])]
        self.reasons = dict(re.findall(r"^(\d+)\. .*?[^:]: (.*)\.$", text, re.M))


def values_of(axis, cell):
    out = []
    for name in cell.split(", "):
        if name == "any":
            out += VALUES[axis]
        elif name == "any but none":
            out += VALUES[axis][1:]
        else:
            out += GROUPS.get(name, [name])
    return out


class CombinationsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.keep.name)
        cls.models = {}
        for name, windows in (("none", {}), ("some layers", WINDOWS)):
            cls.make_models(name, windows)
        for name, content in (("ids.json", json.dumps([CHARACTERS.index(c) for c in TEXT])), ("text.txt", TEXT),
                              ("ask.jsonl", json.dumps({"prompt": TEXT, "answer": "cat"}) + "\n")):
            (cls.folder / name).write_text(content)

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    @classmethod
    def model(cls, source, name, **config):
        folder = cls.folder / name
        shutil.copytree(source, folder)
        model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(CHARACTERS)}, "merges": []}
        (folder / "tokenizer.json").write_text(json.dumps(
            {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
             "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}))
        (folder / "tokenizer_config.json").write_text("{}")
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
        return folder

    @classmethod
    def make_models(cls, windowed, windows):
        """One of each kind, all of two or more layers before the first window."""
        word = windowed.split()[0]
        ordinary = cls.model(DATA / "models/qwen2-window", f"ordinary-{word}",
                             **(windows or {"use_sliding_window": False, "sliding_window": None, "layer_types": None}))
        own = {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2} if windows else {}
        base_of = cls.model(DATA / "kvpred/qwen3-v5", f"base-{word}", **windows, **own)
        kinds = {"ordinary model": ordinary,
                 "SwiftKV model without its teacher":
                     cls.model(DATA / "models/qwen2-swiftkv-g1", f"student-{word}", **windows),
                 "KV Prediction model": cls.model(DATA / "kvpred/qwen3-c", f"kvpred-{word}", **windows, **own,
                                                  swiftkv_base=base_of.name)}
        for kind, group in (("SwiftKV model", 1), ("AcrossKV model", 2)):
            kinds[kind] = cls.folder / f"{kind.split()[0]}-{word}"
            done = run("transform", ordinary, kinds[kind], "--kv-layers", 2, "--group", group)
            assert done.returncode == 0, done.stderr
        cls.models |= {(kind, windowed): folder for kind, folder in kinds.items()}

    def command(self, place, model, words):
        ids, text, ask = (self.folder / name for name in ("ids.json", "text.txt", "ask.jsonl"))
        n, other = ("-n", 3), self.models["ordinary model", "none"]
        return {"generate": ("generate", model, "--ids-file", ids, *n, "--json", *words),
                "chat": ("chat", model, "--raw", *n, *words),
                "bench": ("bench", model, "--prompt", 40, "--gen", 2, "--repeat", 1, "--json", *words),
                "compare": ("compare", model, "-p", TEXT, *n, "--json", *words),
                "eval": ("eval", model, "--task", ask, *n, "--json", *words),
                "eval --reference MODEL": ("eval", model, "--task", text, "--reference", other, "--json", *words),
                "eval --reference teacher": ("eval", model, "--task", text, "--reference", "teacher", "--json", *words),
                "score": ("score", model, "--ids-file", ids, "--json", *words),
                "similarity": ("similarity", model, "--text", text, "--json", *words),
                "serve": ("serve", model, "--port", 0, *words)}[place]

    def serves(self, model, words):
        server = base.Server(model, *words)
        try:
            server.complete(prompt=[CHARACTERS.index(c) for c in TEXT], max_tokens=3)
        finally:
            self.assertEqual(server.stop(), 0)

    def check(self, i, place, model, values, said, reasons):
        kv, weights = KINDS[i % len(KINDS)]
        words = ["--threads", 1, "--kv", kv, "--weights", weights, "--prefill", values["--prefill"]]
        if values["--prune"] != "none":
            words += ["--prune", PRUNED[values["--prune"]]]
        if values["--evict"] != "none":
            name, _, how = values["--evict"].partition(":")
            words += ["--evict", EVICTED[name] + (f",{how}" if how else "")]
        line = (place, values, kv, weights)
        if place == "serve" and said == "yes":
            self.serves(model, words)
            return
        done = run(*self.command(place, model, words), text=TEXT + "\n")
        if said == "yes":
            self.assertEqual(done.returncode, 0, (line, done.stderr))
        else:
            self.assertIn(done.returncode, (1, 2), (line, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 1, (line, done.stderr))
            self.assertIn(reasons[said], done.stderr, line)

    def some_of(self, row, turn):
        """Values of a row's axes in turn, so that each is met in some place."""
        lists = {axis: values_of(axis, cell) for axis, cell in row.items()}
        for i in range(min(3, max(map(len, lists.values())))):
            yield {axis: values[(turn + i) % len(values)] for axis, values in lists.items()}

    def test_the_table_is_the_programs(self):
        self.assertEqual(section(), run("help", "--combinations").stdout)

    def test_every_value_is_known_here(self):
        table = Table(section())
        for axis, known in VALUES.items():
            self.assertLessEqual({v for row, _ in table.rows for v in values_of(axis, row[axis])}, set(known))

    def test_every_cell(self):
        table, jobs = Table(section()), []
        self.assertEqual(table.axes[0], "model")
        for row, said in table.rows:
            for i, place in enumerate(table.places):
                for values in self.some_of(row, 3 * i):
                    model = self.models[values["model"], values["sliding windows"]]
                    jobs.append((place, model, values, said[place], table.reasons))
        self.assertGreater(len(jobs), 500)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(self.check, i, *job) for i, job in enumerate(jobs)]:
                done.result()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
