#!/usr/bin/env python3
"""Every number of docs/results.md, from the models in this repository.

    tools/make_results.py [--build build] [--work DIR] [--steps N] [SECTION ...]

Sections: others (people's models in ../shared), family (our own). Without one, all that can be
made. What was measured is kept in WORK by the command that gave it, so a run that was stopped goes
on, and a page is drawn again from what is there. Nothing is written by hand into the page: each
section stands between two marks that name it.
"""

import argparse
import hashlib
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "assets"
PAGE = ROOT / "docs" / "results.md"


class Lab:
    """Runs the program and remembers what it said."""

    def __init__(self, args):
        self.program = args.build / "swiftkv"
        self.work = args.work
        self.steps = args.steps
        self.threads = args.threads
        (self.work / "said").mkdir(parents=True, exist_ok=True)

    def run(self, *words):
        print("swiftkv", *words, file=sys.stderr, flush=True)
        result = subprocess.run([self.program, *map(str, words)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if result.returncode != 0:
            sys.exit(f"swiftkv {words[0]}: exit status {result.returncode}")
        return result.stdout

    def ask(self, *words):
        """The JSON that a command prints, from the last time where it was asked before."""
        line = " ".join(map(str, words)).replace(str(self.work), "WORK")
        key = hashlib.sha256(line.encode()).hexdigest()[:20]
        path = self.work / "said" / f"{key}.json"
        if not path.exists():
            said = json.loads(self.run(*words))
            path.write_text(json.dumps({"command": line, "said": said}))
        return json.loads(path.read_text())["said"]

    def transform(self, name, model, kv_layers, group=1, *more):
        out = self.work / name
        if not (out / "config.json").exists():
            shutil.rmtree(out, ignore_errors=True)
            self.run("transform", model, out, "--kv-layers", kv_layers, "--group", group, *more)
        return out

    def distill(self, name, model, *more):
        """The folder and the losses of a recovery."""
        out = self.work / name
        if not (out / "config.json").exists():
            resume = ["--resume"] if (out / "checkpoint" / "latest.json").exists() else []
            self.run("distill", model, out, "--threads", self.threads, *more, *resume)
        steps = {}
        for line in (out / "log.jsonl").read_text().splitlines():
            said = json.loads(line)
            steps[said["step"]] = said
        return out, [steps[i] for i in sorted(steps)]

    def nll(self, model, text, prefill, *more):
        """Mean nats a token of a text."""
        return self.ask("score", model, "--file", text, "--prefill", prefill, "--json", *more)["nll"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] + ["---:"] * (len(head) - 1)) + " |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def put(section, text):
    """Replaces a section of the page, or adds it."""
    page = PAGE.read_text() if PAGE.exists() else "# Results\n"
    begin, end = f"<!-- {section} -->", f"<!-- end of {section} -->"
    block = f"{begin}\n{text.strip()}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    page = pattern.sub(lambda _: block, page) if begin in page else page.rstrip() + "\n\n" + block + "\n"
    PAGE.write_text(page)


# ---- other people's models ----

def repaired(teacher, before, after):
    return f"{100 * (before - after) / (before - teacher):.0f} %"


def others(lab):
    model = SHARED / "models/stories260k/stories260k-f32.gguf"
    train, test = SHARED / "text/tinystories-a.txt", SHARED / "text/tinystories-b.txt"
    if not model.exists():
        print(f"others: {model} is absent, skipped", file=sys.stderr)
        return
    recipe = ["--rows", 16, "--seq", 256, "--steps", 300, "--lr", "1e-3"]
    rows = []
    for kv_layers in (3, 2):
        copied = lab.transform(f"stories-{kv_layers}-copied", model, kv_layers)
        solved = lab.transform(f"stories-{kv_layers}-ridge", model, kv_layers, 1, "--init", "ridge", "--text", train)
        teacher = lab.nll(copied, test, "teacher")
        before = lab.nll(copied, test, "swiftkv-full")

        def row(what, nats):
            share = "" if nats in (teacher, before) else repaired(teacher, before, nats)
            rows.append([f"{kv_layers} of 5", what, f"{nats:.4f}", f"{math.exp(nats):.3f}", share])

        row("teacher", teacher)
        row("copied, not trained", before)
        row("closed form, not trained", lab.nll(solved, test, "swiftkv-full"))
        for name, start, data in (("from copied, 300 steps", copied, train),
                                  ("from closed form, 300 steps", solved, train),
                                  ("from copied, self-written text, 300 steps", copied, "self:1228800")):
            label = re.sub(r"\W+", "-", name)
            out, _ = lab.distill(f"stories-{kv_layers}-{label}", start, "--data", data, *recipe)
            row(name, lab.nll(out, test, "swiftkv-full"))
        out, _ = lab.distill(f"stories-{kv_layers}-lm", copied, "--data", train, "--loss", "lm", *recipe)
        row("from copied, loss lm, 300 steps", lab.nll(out, test, "swiftkv-full"))
    put("others", "## Other people's models\n\n"
        "stories260k, five layers, knows only children's stories; text `tinystories-a`, measured on `tinystories-b`, which\n"
        "no run has seen. 300 steps of 16 sequences of 256 tokens at a learning rate of 1e-3. The share is that of the damage\n"
        "which copying does that is repaired.\n\n"
        + table(["l", "projections", "nats a token", "perplexity", "repaired"], rows) + "\n\n"
        "With the loss lm a teacher that was not trained to its end goes on being trained: judge it by agreement as well.")


# ---- our own family ----

# Layers of 12 that keep their own keys and values, layers a group.
FORMS = [("25 %", 9, 1), ("50 %", 6, 1), ("62.5 %", 4, 1), ("50 %, 2-way", 6, 2), ("50 %, 3-way", 6, 3), ("50 %, 6-way", 6, 6)]
TASKS = "lines,kv,copy,edit,needle,variables,hops,table,labels,report,log"


def scores(lab, model, prefill, *more):
    said = lab.ask("eval", model, "--task", TASKS, "--lengths", "256,1024,2048", "--count", 100, "--prefill", prefill,
                   "--json", *more)
    return {task["task"]: task["metrics"][task["metric"]]["value"] for task in said["tasks"]} | {"average": said["average"]}


def family(lab):
    base = ROOT / "models/mini"
    if not (base / "config.json").exists():
        print(f"family: {base} is absent, skipped", file=sys.stderr)
        return
    names = TASKS.split(",")
    prose = ROOT / "recipes/prose/grimm.txt"
    head = ["model", *names, "average", "perplexity"]
    rows = []

    def row(what, model, prefill, *more):
        said = scores(lab, model, prefill, *more)
        nats = lab.nll(model, prose, "teacher" if prefill == "teacher" else "swiftkv-full", *more)
        rows.append([what, *(f"{100 * said[name]:.1f}" for name in names), f"{100 * said['average']:.1f}",
                     f"{math.exp(nats):.2f}"])

    recipe = ["--recipe", ROOT / "recipes/mini/recover.yaml", "--steps", lab.steps]
    row("teacher", lab.transform("mini-50-copied", base, 6), "teacher")
    for what, kv_layers, group in FORMS:
        label = f"mini-{kv_layers}-{group}"
        copied = lab.transform(f"{label}-copied", base, kv_layers, group)
        solved = lab.transform(f"{label}-ridge", base, kv_layers, group, "--init", "ridge", "--text", prose)
        row(f"{what}, copied", copied, "auto")
        row(f"{what}, closed form", solved, "auto")
        out, _ = lab.distill(f"{label}-recovered", copied, *recipe)
        row(f"{what}, recovered", out, "auto")
        if (kv_layers, group) != (6, 1):
            continue
        row(f"{what}, recovered, 8-bit KV", out, "auto", "--kv", "int8")
        for name, option in (("loss lm", ["--loss", "lm"]), ("all of the deep layers", ["--trainable", "deep-layers"])):
            out, _ = lab.distill(f"{label}-{re.sub(r'[^a-z]+', '-', name)}", copied, *recipe, *option)
            row(f"{what}, {name}", out, "auto")
    put("family", "## Our own model\n\nExact match in per cent on held-out documents of 256 to 2048 tokens, 100 of each task and\n"
        "length; perplexity on prose.\n\n" + table(head, rows))


SECTIONS = {"others": others, "family": family}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "results")
    parser.add_argument("--steps", type=int, default=400, help="of each recovery of our own model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    args = parser.parse_args()
    args.build, args.work = args.build.resolve(), args.work.resolve()
    lab = Lab(args)
    for name in args.sections or SECTIONS:
        SECTIONS[name](lab)


if __name__ == "__main__":
    main()
