#!/usr/bin/env python3
"""docs/reference/methods.md, "What goes with what": the table is the program's. What works has to work, and what is
refused has to be refused for the reason of its number. The same few functions answer for all cells, so not every cell is
run: every row works somewhere, every value of every axis works in every column, and every rule refuses every value that
it names (in each of its columns, where it has some). SKV_TEST_ALL runs every cell."""

import collections
import concurrent.futures
import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import mpirun  # noqa: E402
import test_eval_cli  # noqa: E402
import server_process as base  # noqa: E402
from prompt_case import STALE, evictors, run  # noqa: E402
from waiting import PATIENCE  # noqa: E402

DATA = base.ROOT / "tests/data"
WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}
CHARACTERS = test_eval_cli.CHARACTERS
TEXT = "the quick brown fox jumps over the lazy dog and back again"
PRUNED = {"random": "random:0.5", "static": "static:0.5", "lazy": "lazy:0.75,0.5"}
EVICTORS = evictors()
EVICTED = {name: f"{name}:4,20" if form.startswith("SINKS") else f"{name}:20,4" if ",w[" in form else f"{name}:20" for name, form in EVICTORS.items()}
GROUPS = {"by KV head": list(EVICTED), "by query head": [f"{name}:query" for name, form in EVICTORS.items() if "query" in form]}
DRAFTED = {"text": "text:5", "self": "self:5,0", "aux": "aux:5,0", "model": "model:5,0", "text+self": "text+self:5,0",
           "text+aux": "text+aux:5,0", "text+model": "text+model:5,0", "mtp": "mtp:5,0", "text+mtp": "text+mtp:5,0", "auto": "auto:5,0"}
SKIPPED, EXITS = "0.6,4,0,0,1", "0.05"
# What says itself, and what is an option: the values of every axis.
VALUES = {"model": ["ordinary model", "SwiftKV model", "AcrossKV model", "SwiftKV model without its teacher", "KV Prediction model",
                    "model with shared keys and values", "hybrid model", "SwiftKV hybrid model",
                    "SwiftKV hybrid model without its teacher"],
          "windows": ["no sliding windows", "sliding windows in some layers"],
          "KV heads": ["as many KV heads in all layers", "KV heads that differ by layer"],
          "exit head": ["no exit head", "an exit head", "an exit head of some tokens"],
          "--prefill": ["full", "swiftkv", "swiftkv-full", "teacher", "kvpred", "merged"], "--prune": ["none", *PRUNED],
          "--evict": ["none", *GROUPS["by KV head"], *GROUPS["by query head"]],
          "--ffn-skip": ["none", "on"], "--early-exit": ["none", "on"], "--lora": ["none", "on"], "--speculate": ["none", *DRAFTED]}
TRAITS = [axis for axis in VALUES if not axis.startswith("--")]
AXIS_OF = {value: axis for axis in TRAITS for value in VALUES[axis]}
KINDS = [("f32", "f32"), ("bf16", "bf16"), ("fp8", "int8"), ("int8", "f32"), ("int8", "bf16"), ("f32", "int8"), ("fp8", "bf16")]
PROGRAMS = ("a request's own method", "batch invariance")  # what has no column
RANKS = "several ranks"  # a column of its own: generate under mpirun
UNDRAFTED = ("score", "similarity")  # they generate nothing, and do not take --speculate
SOLE = ("generate", "chat", "bench", "eval")  # where every row works
RANK_REFUSALS = 3  # of each reason, where every cell is run
DRAWS, CANDIDATES = 400, 12  # tries to find a combination, and those among which the best is chosen


def section():
    page = (base.ROOT / "docs/reference/methods.md").read_text()
    return page.partition("<!-- combinations -->\n")[2].partition("<!-- end of combinations -->")[0]


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def values_of(axis, names):
    out = []
    for name in names:
        out += VALUES[axis][1:] if name == "any but none" else GROUPS.get(name, [name])
    return out


def limits_of(cell):
    """{axis: values} of "SwiftKV model; --prefill full, swiftkv"; what is not named may be anything."""
    out = dict(VALUES)
    for part in cell.split("; "):
        option, _, rest = part.partition(" ") if part.startswith("--") else ("", "", part)
        names = rest.split(", ")
        axis = option or AXIS_OF[names[0]]
        out[axis] = values_of(axis, names)
    return out


def of_both(limits):
    """A row with and without windows: they part rows in the column of --cache-shift alone."""
    return {**limits, "windows": VALUES["windows"]}


def fits(values, limits):
    return all(values[axis] in limits[axis] for axis in VALUES)


class Table:
    def __init__(self, text):
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        self.places = cells_of(lines[0])[1:]
        self.rows = [(limits_of(cells[0]), dict(zip(self.places, cells[1:]))) for cells in map(cells_of, lines[1:])]
        rules = re.findall(r"^(\d+)\. (.*?[^:]): (.*)\.$", text, re.M)
        self.reasons = {number: reason for number, _, reason in rules}
        named = {number: limits.split("; ") for number, limits, _ in rules}
        places = {*self.places, *PROGRAMS}
        self.columnless = {number for number, parts in named.items() if parts[-1] in PROGRAMS}
        self.of_places = {number for number, parts in named.items() if places & set(parts[-1].split(", "))}
        self.rules = {number: limits_of("; ".join(parts[:-1] if number in self.of_places else parts))
                      for number, parts in named.items()}

    def axes_of(self, number):
        """Those that a rule is about."""
        return [axis for axis, values in self.rules[number].items() if values != VALUES[axis]] or ["model"]

    def everywhere(self, values):
        """The number of the rule that refuses a combination wherever it is run, or None."""
        fitting = (number for number, limits in self.rules.items() if number not in self.of_places and fits(values, limits))
        return next(fitting, None)


def copy_with_letters(source, folder):
    """A model without a tokenizer gets one, of a token for each character."""
    shutil.copytree(source, folder)
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(CHARACTERS)}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
         "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


# What SwiftKV's own projections stand for, in a hybrid's deep layers.
REPLACED = r"layers\.\d+\.(linear_attn\.(in_proj_[qkvab]\.weight|conv1d\.weight|A_log|dt_bias)|self_attn\.([qkv]_proj|[qk]_norm)\.weight)$"


def keep_tensors(folder, keeps, others=None):
    """And with them the MTP head of another file."""
    path, kept, out = folder / "model.safetensors", {}, b""
    for file, takes in ((path, keeps), (others, lambda name: name.startswith("mtp."))):
        data = file.read_bytes() if file else struct.pack("<Q", 2) + b"{}"
        n = struct.unpack("<Q", data[:8])[0]
        header, data = json.loads(data[8:8 + n]), data[8 + n:]
        for name, about in header.items():
            if name != "__metadata__" and takes(name):
                begin, end = about["data_offsets"]
                kept[name] = {**about, "data_offsets": [len(out), len(out) + end - begin]}
                out += data[begin:end]
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + out)


def add_exit_head(folder):
    """An exit that has the weights of the embedding, as it comes of `distill --early-exit yes`."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8:8 + n]), data[8 + n:]
    like = header["model.embed_tokens.weight"]
    begin, end = like["data_offsets"]
    header["lm_head_swiftkv.weight"] = {**like, "data_offsets": [len(data), len(data) + end - begin]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data + data[begin:end])
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "swiftkv_early_exit": True}))


class CombinationsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.folder, cls.ranks_folder = Path(cls.keep.name), mpirun.short_folder(cls)
        (cls.folder / "key").write_text("0123456789abcdef\n")
        cls.models = {}  # by the values of TRAITS
        for name, windows in zip(VALUES["windows"], ({}, WINDOWS)):
            cls.make_models(name, windows)
        cls.make_uneven_models()
        cls.make_hybrid()
        for model in cls.models.values():
            cls.adapter_of(model)
        for name, content in (("ids.json", json.dumps([CHARACTERS.index(c) for c in TEXT])), ("text.txt", TEXT), ("key", "0123456789abcdef"),
                              ("ask.jsonl", json.dumps({"prompt": TEXT, "answer": "cat"}) + "\n")):
            (cls.folder / name).write_text(content)

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    @classmethod
    def model(cls, source, name, **config):
        folder = copy_with_letters(source, cls.folder / name)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
        return folder

    @classmethod
    def make_models(cls, windowed, windows):
        """One of each kind, all of two or more layers before the first window, with and without an exit head."""
        word = windowed.split()[0]
        whole = {"use_sliding_window": False, "sliding_window": None, "layer_types": None}
        ordinary = cls.model(DATA / "models/qwen2-window", f"ordinary-{word}", **(windows or whole))
        own = {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2} if windows else {}
        base_of = cls.model(DATA / "kvpred/qwen3-v5", f"base-{word}", **windows, **own)
        kinds = {"ordinary model": ordinary,
                 "SwiftKV model without its teacher":
                     cls.model(DATA / "models/qwen2-swiftkv-g1", f"student-{word}", **windows),
                 "KV Prediction model": cls.model(DATA / "kvpred/qwen3-c", f"kvpred-{word}", **windows, **own,
                                                  swiftkv_base=base_of.name)}
        kinds["model with shared keys and values"] = cls.model(DATA / "models/qwen2-window", f"shared-{word}",
                                                               num_kv_shared_layers=1, **(windows or whole))
        for kind, group in (("SwiftKV model", 1), ("AcrossKV model", 2)):
            kinds[kind] = cls.folder / f"{kind.split()[0]}-{word}"
            done = run("transform", ordinary, kinds[kind], "--kv-layers", 2, "--group", group)
            assert done.returncode == 0, done.stderr
        even = VALUES["KV heads"][0]
        cls.models |= {(kind, windowed, even, "no exit head"): folder for kind, folder in kinds.items()}
        for kind in VALUES["model"][1:4]:
            folder = Path(f"{kinds[kind]}-exit")
            shutil.copytree(kinds[kind], folder)
            add_exit_head(folder)
            cls.models[kind, windowed, even, "an exit head"] = folder
            some = Path(f"{kinds[kind]}-some")
            done = run("transform", folder, some, "--exit-words", 20)
            assert done.returncode == 0, done.stderr
            cls.models[kind, windowed, even, "an exit head of some tokens"] = some

    @classmethod
    def make_uneven_models(cls):
        traits = ("no sliding windows", "KV heads that differ by layer", "no exit head")
        cls.models["ordinary model", *traits] = cls.model(DATA / "models/openelm", "uneven")
        cls.models["KV Prediction model", *traits] = cls.model(DATA / "kvpred/openelm-lp", "uneven-kvpred")

    @classmethod
    def make_hybrid(cls):
        traits = (VALUES["windows"][0], VALUES["KV heads"][0], "no exit head")
        plain, swiftkv, student = (cls.folder / name for name in ("hybrid", "hybrid-swiftkv", "hybrid-student"))
        cls.model(DATA / "models/qwen3-5", plain.name)
        keep_tensors(plain, lambda name: True, DATA / "models/qwen3-5-wrapped/model.safetensors")
        done = run("transform", plain, swiftkv, "--kv-layers", 3)
        assert done.returncode == 0, done.stderr
        shutil.copytree(swiftkv, student)
        keep_tensors(student, lambda name: not (re.search(REPLACED, name) and int(name.split(".")[2]) >= 3))
        cls.models |= {(kind, *traits): folder for kind, folder in zip(VALUES["model"][6:], (plain, swiftkv, student))}

    @classmethod
    def draft_model_of(cls, model):
        """Its auxiliary or, as a hybrid model cannot draft, an ordinary one; else the model itself."""
        if (model / "auxiliary").exists():
            return model / "auxiliary"
        return cls.folder / "ordinary-no" if model.name.startswith("hybrid") else model

    @classmethod
    def adapter_of(cls, model):
        """Of rank 1, for layer 0's o_proj as the model or its base has it."""
        folder = cls.folder / f"{model.name}-adapter"
        if not folder.exists():
            base_of = json.loads((model / "config.json").read_text()).get("swiftkv_base")
            source = model.parent / base_of if base_of else model
            data = (source / "model.safetensors").read_bytes()
            header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
            own = r"^(model\.layers\.0\.self_attn\.o|model\.layers\.0\.linear_attn\.out|transformer\.layers\.0\.attn\.out)_proj\.weight"
            (n_out, n_in), = (about["shape"] for name, about in header.items() if re.search(own, name))
            folder.mkdir(exist_ok=True)
            name, values = "base_model.model.model.layers.0.self_attn.o_proj.lora_", [0.25] * (n_out + n_in)
            tensors = {f"{name}A.weight": {"dtype": "F32", "shape": [1, n_in], "data_offsets": [0, 4 * n_in]},
                       f"{name}B.weight": {"dtype": "F32", "shape": [n_out, 1], "data_offsets": [4 * n_in, 4 * (n_in + n_out)]}}
            text = json.dumps(tensors).encode()
            (folder / "adapter_model.safetensors").write_bytes(
                struct.pack("<Q", len(text)) + text + struct.pack(f"<{len(values)}f", *values))
            (folder / "adapter_config.json").write_text('{"r": 1, "lora_alpha": 1}')
        return folder

    def command(self, place, model, values, words):
        ids, text, ask = (self.folder / name for name in ("ids.json", "text.txt", "ask.jsonl"))
        n, other = ("-n", 3), self.models[("ordinary model", "no sliding windows", values["KV heads"], "no exit head")]
        return {"generate": ("generate", model, "--ids-file", ids, *n, "--json", *words),
                "chat": ("chat", model, "--raw", *n, *words),
                "bench": ("bench", model, "--prompt", 40, "--gen", 2, "--repeat", 1, "--json", *words),
                "compare": ("compare", model, "-p", TEXT, *n, "--json", *words),
                "eval": ("eval", model, "--task", ask, *n, "--json", *words),
                "eval --reference MODEL": ("eval", model, "--task", text, "--reference", other, "--json", *words),
                "eval --reference teacher": ("eval", model, "--task", text, "--reference", "teacher", "--json", *words),
                "score": ("score", model, "--ids-file", ids, "--json", *words),
                "similarity": ("similarity", model, "--text", text, "--json", *words),
                "serve": ("serve", model, "--port", 0, *words),
                "serve --cache-shift": ("serve", model, "--port", 0, "--cache-shift", *words),
                "serve --role read": ("serve", model, "--port", 0, *self.reader_words(), *words),
                RANKS: ("generate", model, "--ids-file", ids, *n, "--json", *words)}[place]

    def run_on_ranks(self, words):
        """On two of them, and what they themselves say: mpirun says more when a command fails."""
        command = [*mpirun.launch(2), str(base.PROGRAM), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
                              env=mpirun.environment(self.ranks_folder))
        done.stderr = "".join(line for line in done.stderr.splitlines(True) if line.startswith("swiftkv: "))
        return done

    def reader_words(self):
        """Of a reader whose store is away: it begins all the same."""
        return ("--role", "read", "--cache-store", "redis://127.0.0.1:1", "--cache-key-file", self.folder / "key")

    def serves(self, model, words, reads):
        server = base.Server(model, *(self.reader_words() if reads else ()), *words)
        ids = [CHARACTERS.index(c) for c in TEXT]
        try:
            if reads:
                self.assertIn("error", server.post("/read", prompt=ids * 2))
            else:
                server.complete(prompt=ids, max_tokens=3)
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
        words += ["--ffn-skip", SKIPPED] * (values["--ffn-skip"] == "on")
        words += ["--early-exit", EXITS] * (values["--early-exit"] == "on")
        words += ["--lora", f"a={self.adapter_of(model)}"] * (values["--lora"] == "on")
        if values["--speculate"] != "none" and place not in UNDRAFTED:
            words += ["--speculate", DRAFTED[values["--speculate"]]]
        if "model" in values["--speculate"] and place not in UNDRAFTED:
            words += ["--draft", self.draft_model_of(model)]
        line = (place, values, kv, weights)
        if place.startswith("serve") and said == "yes":
            self.serves(model, words, reads="read" in place)
            return
        command = self.command(place, model, values, words)
        done = self.run_on_ranks(command) if place == RANKS else run(*command, text=TEXT + "\n")
        if place == RANKS and said == "yes" and "differ" in values["KV heads"]:
            self.assertIn("which 2 ranks cannot divide", done.stderr, line)  # this model's first layer has one
        elif said == "yes":
            self.assertEqual(done.returncode, 0, (line, done.stderr))
        else:
            # mpirun has been seen to crash after a command had failed: its own status says that it did.
            failed = done.returncode != 0 if place == RANKS else done.returncode in (1, 2)
            self.assertTrue(failed, (line, done.returncode, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 1, (line, done.stderr))
            self.assertIn(reasons[said], done.stderr, line)

    def draw(self, draw, limits, wanted):
        """Some combinations within these limits; none where there is no such model, or none that is wanted."""
        fitting = [traits for traits in self.models if all(v in limits[axis] for axis, v in zip(TRAITS, traits))]
        found = []
        for _ in range(DRAWS if fitting else 0):
            traits = draw.choice(fitting)
            options = {axis: draw.choice((limits[axis][0], draw.choice(limits[axis]))) for axis in VALUES}  # often none
            values = options | dict(zip(TRAITS, traits))
            found += [values] if wanted(values) else []
            if len(found) == CANDIDATES:
                break
        return found

    def cover(self, rows, axes, seed, wanted=lambda values: True):
        """Combinations of these rows, always the same ones, in which each value of these axes comes that can."""
        draw, found = random.Random(seed), []
        left = {(axis, value): limits for limits in rows for axis in axes for value in limits[axis]}
        for (axis, value), limits in sorted(left.items(), key=lambda item: item[0]):
            if (axis, value) not in left:
                continue
            candidates = self.draw(draw, {**limits, axis: [value]}, wanted)
            if candidates:
                values = max(candidates, key=lambda c: sum((a, v) in left for a, v in c.items()))
                found.append(values)
                for pair in values.items():
                    left.pop(pair, None)
        self.assertTrue(found, (rows, axes))
        return found

    def model_of(self, values):
        return self.models[tuple(values[axis] for axis in TRAITS)]

    def can_run(self, place):
        return place != RANKS or mpirun.AVAILABLE

    def test_the_table_is_the_programs(self):
        self.assertEqual(section(), run("help", "--combinations").stdout, STALE)

    def test_every_value_is_known_here(self):
        table = Table(section())
        met = {axis: set() for axis in VALUES}
        for limits in [*(limits for limits, _ in table.rows), *table.rules.values()]:
            for axis, values in limits.items():
                met[axis] |= set(values)
        self.assertEqual(met, {axis: set(values) for axis, values in VALUES.items()})

    def test_every_combination_is_told_once(self):
        """It stands in one row, or a rule refuses it wherever it is run."""
        table, draw = Table(section()), random.Random(0)
        for _ in range(20000):
            values = {axis: draw.choice(VALUES[axis]) for axis in VALUES}
            rows = [said for limits, said in table.rows if fits(values, limits)]
            self.assertEqual(len(rows), table.everywhere(values) is None, values)

    def working(self, table):
        """[(place, values)]: every value in every column, then what is left of the rows."""
        jobs = []
        for place in filter(self.can_run, table.places):
            rows = [limits for limits, said in table.rows if said[place] == "yes"]
            jobs += [(place, values) for values in self.cover(rows, VALUES, place)]
        places = itertools.cycle(SOLE)
        for limits, said in table.rows:
            if not any(fits(values, of_both(limits)) for _, values in jobs):
                jobs += [(next(places), values) for values in self.cover([limits], ["model"], str(limits))[:1]]
        return jobs

    def refused(self, table):
        """[(place, values, number)]: each value that a rule names. Those of several ranks are test_ranks_mpi.py's;
        what is refused wherever it is run is tried in one column after the other."""
        jobs = []
        for place in (place for place in table.places if place != RANKS):
            for number in sorted({said[place] for _, said in table.rows} - {"yes"}):
                rows = [limits for limits, said in table.rows if said[place] == number]
                jobs += [(place, values, number) for values in self.cover(rows, table.axes_of(number), number + place)]
        places = itertools.cycle(place for place in table.places if place != RANKS)
        for number in sorted(table.rules.keys() - table.of_places, key=int):
            drafts = "none" not in table.rules[number]["--speculate"]
            for values in self.cover([table.rules[number]], table.axes_of(number), number,
                                     lambda v, n=number: table.everywhere(v) == n):
                place = next(place for place in places if not (drafts and place in UNDRAFTED))
                jobs.append((place, values, number))
        return jobs

    def cells(self, table):
        """[(place, values, said)]: one combination of every cell; on several ranks, some of each refusal."""
        jobs, refusals = [], collections.Counter()
        for limits, said in table.rows:
            refusals[said[RANKS]] += 1
            for place in filter(self.can_run, table.places):
                if place != RANKS or said[place] == "yes" or refusals[said[place]] <= RANK_REFUSALS:
                    values = self.draw(random.Random(f"{limits} {place}"), limits, lambda values: True)[0]
                    jobs.append((place, values, said[place]))
        return jobs

    def test_cells(self):
        if not self.can_run(RANKS):
            print(f"the column of several ranks is not run: {mpirun.why_not()}", file=sys.stderr)
        table = Table(section())
        working, refused = self.working(table), self.refused(table)
        for limits, _ in table.rows:
            self.assertTrue(any(fits(values, of_both(limits)) for _, values in working), limits)
        of_ranks = {said[RANKS] for _, said in table.rows}
        self.assertEqual({job[2] for job in refused}, table.rules.keys() - table.columnless - of_ranks)
        jobs = [(*job, "yes") for job in working] + refused
        jobs += self.cells(table) if os.environ.get("SKV_TEST_ALL") else []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = [pool.submit(self.check, i, place, self.model_of(values), values, said, table.reasons)
                       for i, (place, values, said) in enumerate(jobs)]
            for done in running:
                done.result()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
