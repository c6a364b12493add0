#!/usr/bin/env python3
"""KV Prediction measured: docs/results/kv-prediction.md.

    tools/results/make_kvpred_results.py [PART ...] [--base MODEL] [--kvp FOLDER,...] [--layer-pruned FOLDER,...]
        [--train-layer-pruned] [--recipe FILE] [--build build] [--work DIR] [--tasks ...] [--lengths ...] [--count N] [--prompt N] [--chunk N]
        [--ablation-steps N] [--pairs ...] [--openelm-prompt N] [--jobs N] [--page FILE]

Parts: figure (accuracy against the time to the first token, figure 3 of arXiv:2410.08391: KV
Prediction, its auxiliary alone, layer-pruned models, random and static pruning, LazyLLM), share
(KV Prediction's time to the first token over the auxiliary's alone, by the prompt's length), lambda
(the weight of the consistency loss: three short trainings by recipes/mini/kvpred.yaml with own-answers), openelm (the
pairs of the paper's Table 1 with random weights). Without one, all. FOLDER: what the recipe wrote; a
part that needs one which is absent is left out. --train-layer-pruned makes three, of 0.75, 0.5 and 0.25 of the
layers, by the same recipe with `--base-loss 0 --consistency-loss 0`. What was measured is kept in WORK by
the files of the models and the command that gave it. Nothing else should run on the machine.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys

from results_lab import ROOT, Lab, by, fingerprint, page_of, put, several, table
from svg_chart import Panel, draw

RECIPE = ROOT / "recipes/mini/kvpred.yaml"
PRUNED = {
    "random pruning": ["random:0.75", "random:0.5", "random:0.25"],
    "static pruning": ["static:0.5", "static:0.25"],
    "LazyLLM 0.75": [f"lazy:0.75,{e}" for e in (0.75, 0.5, 0.25, 0.1, 0.01)],
    "LazyLLM 0.5": [f"lazy:0.5,{e}" for e in (0.5, 0.25, 0.1, 0.01)],
}
LAMBDAS = [("0", "0"), ("1/n_B", None), ("1", "1")]
PAIRS = [f"openelm-1.1b+{a}" for a in ("openelm-450m", "openelm-270m", "lp-0.75", "lp-0.50", "lp-0.25")]
PAIRS += [f"openelm-3b+{a}" for a in ("openelm-1.1b", "openelm-450m", "openelm-270m", "lp-0.75", "lp-0.50", "lp-0.25")]


def present(models):
    for folder in models:
        if not (folder / "config.json").exists():
            print(f"kvpred: {folder} is absent, skipped", file=sys.stderr)
    return [folder for folder in models if (folder / "config.json").exists()]


class Bench:
    """The models with the settings of a run."""

    def __init__(self, args):
        self.args = args
        self.kvp = present(args.kvp)
        self.layer_pruned = present(args.layer_pruned)
        self.tasks = args.tasks.split(",")
        self.pictures = args.page.parent
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.labs = {}

    def lab(self, model):
        """What was measured of a model, and of the base where it is a difference to it."""
        if model not in self.labs:
            self.labs[model] = Lab(self.args.build / "swiftkv", self.args.work / fingerprint(self.args.base, model))
        return self.labs[model]

    def measure(self, row):
        """(name, model, option ...): what `eval` says of each task."""
        _, model, *more = row
        a = self.args
        said = self.lab(model).ask("eval", model, "--task", a.tasks, "--lengths", a.lengths, "--count", a.count, "--chunk", a.chunk,
                            "--threads", max(a.threads // a.jobs, 1), *more, "--json")
        return {task["task"]: task["metrics"][task["metric"]] for task in said["tasks"]}

    def times(self, row, prompts):
        """What `bench` says of each length of prompt."""
        _, model, *more = row
        a = self.args
        return self.lab(model).ask_lines("bench", model, "--prompt", prompts, "--gen", 2, "--repeat", a.repeat, "--chunk", a.chunk,
                                  "--threads", a.threads, *more, "--json")


def average(found):
    return sum(metric["value"] for metric in found.values()) / len(found)


def percent(metric):
    return f"{100 * metric['value']:.0f} ({100 * metric['low']:.0f}–{100 * metric['high']:.0f})"


# ---- figure 3 ----

def families(bench):
    """{name of a line: [(name of a point, model, option ...)]}."""
    base = bench.args.base
    out = {"the base": [("the base", base)]}
    if bench.kvp:
        out["KV Prediction"] = [(f"KV Prediction, {f.name}", f, "--prefill", "kvpred") for f in bench.kvp]
        out["auxiliary alone"] = [(f"auxiliary of {f.name}", f / "auxiliary") for f in bench.kvp]
    if bench.layer_pruned:
        out["layer-pruned"] = [(f"layer-pruned, {f.parent.name if f.name == 'auxiliary' else f.name}", f) for f in bench.layer_pruned]
    for name, hows in PRUNED.items():
        out[name] = [(f"{name.split(' 0')[0]} {how.partition(':')[2].replace(',', ' to ')}", base, "--prune", how) for how in hows]
    return out


def figure(bench):
    named = families(bench)
    rows = [row for family in named.values() for row in family]
    scores = dict(zip((row[0] for row in rows), several(bench.args.jobs, bench.measure, rows)))
    times = {row[0]: bench.times(row, bench.args.prompt)[0] for row in rows}
    base = times["the base"]
    def panel(title, value):
        lines = [(name, sorted((base["ttft_ms"] / times[row[0]]["ttft_ms"], 100 * value(scores[row[0]])) for row in family))
                 for name, family in named.items()]
        return Panel(title, "times faster to the first token", "right answers, %", lines)

    panels = [panel(f"average of {len(bench.tasks)} tasks", average)]
    panels += [panel(task, lambda found, task=task: found[task]["value"]) for task in bench.tasks[:2]]
    draw(bench.pictures / "kvpred-ttft.svg", "Right answers against the time to the first token", panels)
    cells = [[name, f"{base['prefill_gflops'] * base['ttft_ms'] / (t['prefill_gflops'] * t['ttft_ms']):.2f}",
              f"{t['ttft_ms']:.1f}", f"{base['ttft_ms'] / t['ttft_ms']:.2f}", f"{100 * average(scores[name]):.1f}",
              *(percent(scores[name][task]) for task in bench.tasks)] for name, t in times.items()]
    return f"""## Accuracy against the time to the first token

![Right answers against the time to the first token](kvpred-ttft.svg)

TTFT of a prompt of {bench.args.prompt} random tokens, the median of {bench.args.repeat}.

{table(["", "FLOPs, times fewer", "TTFT, ms", "times faster", "average", *bench.tasks], cells)}
"""


# ---- the cost of predicting ----

def alternate(bench, folder):
    """Medians over the rounds of the times of base, KV Prediction and auxiliary, [length][which]: machines drift."""
    a, lab = bench.args, bench.lab(folder)
    words = ("bench", "--prompt", a.prompts, "--gen", 2, "--repeat", 3, "--chunk", a.chunk, "--threads", a.threads, "--json")
    asked = [(folder, "--prefill", "full"), (folder, "--prefill", "kvpred"), (folder / "auxiliary",)]

    def read():
        rounds = []
        for _ in range(a.rounds):
            said = [lab.run(words[0], *what, *words[1:]).splitlines() for what in asked]
            rounds.append([[json.loads(line)["ttft_ms"] for line in lines] for lines in zip(*said)])
        return [[statistics.median(times) for times in zip(*lengths)] for lengths in zip(*rounds)]

    return lab.recall(("alternate", *words, folder, a.rounds), read)


def share(bench):
    if not bench.kvp:
        return None
    rows = []
    for folder in bench.kvp:
        for n, (base, kvp, auxiliary) in zip(bench.args.prompts.split(","), alternate(bench, folder)):
            rows.append([f"{folder.name}, {n} tokens", f"{base:.1f}", f"{kvp:.1f}", f"{auxiliary:.1f}", f"{kvp / auxiliary:.2f}",
                         f"{base / kvp:.2f}"])
    return f"""## What predicting adds to the auxiliary

{table(["", "base, ms", "KV Prediction, ms", "auxiliary alone, ms", "KV Prediction / auxiliary", "times faster than the base"], rows)}

The paper: within 10 to 20 % of the auxiliary alone (its figure 5b), 23 % in its Table 5.
"""


# ---- lambda ----

def train(bench, name, *options):
    """A folder that the recipe writes with some options, beside a copy of the base."""
    a, lab = bench.args, bench.lab(bench.args.base)
    base, out = lab.work / "base", lab.work / name
    if not base.exists():
        shutil.copytree(a.base, base)
    if not (out / "config.json").exists():
        resume = ["--resume"] if (out / "checkpoint/latest.json").exists() else []
        lab.run("train", "--recipe", a.recipe, "--model", base, "--out", out, "--threads", a.threads, *options, *resume)
    return out


def ablation(bench):
    a, rows = bench.args, []
    stage = f"[{{steps: {a.ablation_steps}, seq: 512, rows: 4, schedule: cosine, final-lr: 10%}}]"
    for title, weight in LAMBDAS:
        more = ["--consistency-loss", weight] if weight else []
        rows.append((title, train(bench, f"lambda-{title.replace('/', '-')}-{a.ablation_steps}", "--own-answers", "--stages", stage, *more)))
    found = several(a.jobs, bench.measure, [(title, out, "--prefill", "kvpred") for title, out in rows])
    alone = several(a.jobs, bench.measure, [(title, out / "auxiliary") for title, out in rows])
    cells = [[title, f"{100 * average(k):.1f}", *(percent(k[t]) for t in bench.tasks), f"{100 * average(x):.1f}"]
             for (title, _), k, x in zip(rows, found, alone)]
    return f"""## The weight of the consistency loss

{a.ablation_steps} steps of 4 x 512 tokens each with `own-answers`, from one seed and the base without every second layer. The paper on TriviaQA: 0 gives 8.95, 1/n_B 17.38, 1 15.96.

{table(["lambda_C", "average", *bench.tasks, "its auxiliary alone"], cells)}
"""


# ---- OpenELM ----

def openelm(bench):
    a, rows = bench.args, []
    lab = Lab(a.build / "swiftkv", a.work)
    for pair in a.pairs.split(","):
        said = lab.ask_lines("bench", "--preset", pair, "--compare", "--prompt", a.openelm_prompt, "--gen", 2,
                                   "--repeat", 1, "--weights", a.openelm_weights, "--threads", a.threads, "--json")
        base, kvp = (next(r for r in said if r["prefill"] == how) for how in ("full", "kvpred"))
        work = [r["prefill_gflops"] * r["ttft_ms"] for r in (base, kvp)]
        rows.append([pair, f"{base['ttft_ms']:.0f}", f"{kvp['ttft_ms']:.0f}", f"{100 * kvp['ttft_ms'] / base['ttft_ms']:.0f} %",
                     f"{100 * work[1] / work[0]:.0f} %"])
    return f"""## OpenELM, every pair of the paper's Table 1

Random weights ({a.openelm_weights}), prompts of {a.openelm_prompt} tokens.

{table(["base + auxiliary", "base, ms", "KV Prediction, ms", "share", "share of the arithmetic"], rows)}
"""


PARTS = {"figure": figure, "share": share, "lambda": ablation, "openelm": openelm}


def folders(text):
    return [pathlib.Path(name).resolve() for name in text.split(",") if name]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "kvpred-results")
    parser.add_argument("--base", type=pathlib.Path, default=ROOT / "models/mini/base")
    parser.add_argument("--kvp", type=folders, default=[ROOT / "models/mini/kvpred", ROOT / "build/mini/kvpred-small"])
    parser.add_argument("--layer-pruned", type=folders, default=[])
    parser.add_argument("--train-layer-pruned", action="store_true", help="train three first, in WORK")
    parser.add_argument("--recipe", type=pathlib.Path, default=RECIPE)
    parser.add_argument("--tasks", default="needle,lines,kv,copy,log")
    parser.add_argument("--lengths", default="512,1024")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=1024, help="tokens of a step: LazyLLM needs all of a prompt in one")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens that times of the figure are for")
    parser.add_argument("--prompts", default="64,512,1024,2048", help="those of the part share")
    parser.add_argument("--repeat", type=int, default=31)
    parser.add_argument("--rounds", type=int, default=5, help="of the part share")
    parser.add_argument("--ablation-steps", type=int, default=300)
    parser.add_argument("--pairs", default=",".join(PAIRS))
    parser.add_argument("--openelm-prompt", type=int, default=256)
    parser.add_argument("--openelm-weights", default="bf16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--jobs", type=int, default=2, help="evaluations at a time, which share the threads")
    parser.add_argument("--page", type=pathlib.Path, default=page_of("kvpred"))
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    args = parser.parse_intermixed_args()
    for name in ("build", "work", "base", "recipe"):
        setattr(args, name, getattr(args, name).resolve())
    return args


def main():
    args = read_options()
    bench = Bench(args)
    if args.train_layer_pruned:
        for kept in ("lp-0.75", "lp-0.5", "lp-0.25"):
            out = train(bench, kept, "--auxiliary", kept, "--base-loss", 0, "--consistency-loss", 0)
            bench.layer_pruned.append(out / "auxiliary")
    put("kvpred", f"""# KV Prediction

`{args.base.name}`, `tools/results/make_kvpred_results.py`: {args.count} documents of each task and of {args.lengths.replace(',', ', ')} tokens, exact match in per cent
(95 % confidence); `--threads {args.threads}`. [KV Prediction](../reference/kvpred.md) describes what is computed.""", args.page)
    for name in args.parts or PARTS:
        text = PARTS[name](bench)
        if text:
            put(f"kvpred {name}", by(f"tools/results/make_kvpred_results.py {name}", text), args.page)
    print(args.page)


if __name__ == "__main__":
    main()
