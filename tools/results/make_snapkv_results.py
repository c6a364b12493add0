#!/usr/bin/env python3
"""What eviction costs and saves, measured on one model: docs/results/eviction.md.

    tools/results/make_snapkv_results.py [PART ...] [--model MODEL] [--swiftkv MODEL] [--build build] [--work DIR]
        [--budgets 64,128,256] [--window 48] [--kernel 15] [--lengths 512,1024,2048] [--tasks needle,lines,kv]
        [--count N] [--depths N] [--prompts 512,...] [--jobs N] [--page FILE]

Parts: pooling (heatmaps of length and depth for every budget, with and without pooling: figures 6
and 8 of arXiv:2404.14469), methods (all of them at the same budgets), voters (SwiftKV: the deep
layers for the window, or for the last token only), speed (decoding against the length of the
prompt, and KV bytes: figure 7), memory (the longest prompt). Without one, all. What was measured is
kept in WORK by the files of the models and the command that gave it, so a run that was stopped goes
on. All of it takes about a quarter of an hour on two cores; nothing else should run on the machine
for `voters` and `speed`. The window has to hold the question: the paper's 16 tokens with a kernel of
5 are too few for our models, whose chat template stands behind it.
"""

import argparse
import json
import os
import pathlib

from results_lab import ROOT, Lab, by, fingerprint, page_of, put, several, table
from svg_chart import Panel, draw, draw_maps


class Bench:
    """A model with the settings of a run."""

    def __init__(self, args):
        self.args = args
        self.tasks = args.tasks.split(",")
        self.pictures = args.page.parent
        self.pictures.mkdir(parents=True, exist_ok=True)
        self.lengths = [int(n) for n in args.lengths.split(",")]
        self.budgets = [int(c) for c in args.budgets.split(",")]
        self.labs = {model: Lab(args.build / "swiftkv", args.work / fingerprint(args.model, model))
                     for model in (args.model, args.swiftkv)}

    def threads(self):
        return max(self.args.threads // self.args.jobs, 1)

    def snapkv(self, capacity, *more):
        return ",".join([f"snapkv:{capacity}", str(self.args.window), str(self.args.kernel), *more])

    def evaluate(self, model, how):
        """What `eval` says of each task."""
        a = self.args
        said = self.labs[model].ask("eval", model, "--task", a.tasks, "--lengths", a.lengths, "--count", a.count,
                            "--depths", a.depths, "--evict", how, "--threads", self.threads(), "--json")
        return {task["task"]: task for task in said["tasks"]}

    def evaluate_all(self, model, hows):
        """{how: what evaluate gave}, several at a time."""
        hows = list(dict.fromkeys(hows))
        return dict(zip(hows, several(self.args.jobs, lambda how: self.evaluate(model, how), hows)))

    def speeds(self, model, how):
        """What `bench` says of each length of prompt."""
        a, prompts = self.args, [int(n) for n in self.args.prompts.split(",")]
        return self.labs[model].ask_lines("bench", model, "--prompt", a.prompts, "--gen", a.gen, "--ctx",
                                  max(prompts) + a.gen, "--threads", a.threads, "--evict", how, "--json")


def share(task):
    return task["metrics"][task["metric"]]["value"]


def percent(task):
    metric = task["metrics"][task["metric"]]
    return f"{100 * metric['value']:.0f} ({100 * metric['low']:.0f}–{100 * metric['high']:.0f})"


def cells(task):
    """A map of length and depth."""
    return [[depth["value"] for depth in length["depths"]] for length in task["lengths"]]


def score_table(bench, found, rows):
    """rows: (name, how)."""
    return table(["", *bench.tasks], [[name, *(percent(found[how][t]) for t in bench.tasks)] for name, how in rows])


# ---- figures 6 and 8 ----

def pooling(bench):
    columns = [("all rows", "none")]
    unpooled = [(f"C {c}, k 1", f"snapkv:{c},{bench.args.window},1") for c in bench.budgets]
    pooled = [(f"C {c}, k {bench.args.kernel}", bench.snapkv(c)) for c in bench.budgets]
    averaged = [(f"C {c}, k {bench.args.kernel}, mean", bench.snapkv(c, "avg")) for c in bench.budgets]
    columns += pooled + unpooled
    rows = columns + averaged
    found = bench.evaluate_all(bench.args.model, [how for _, how in rows])
    maps = [(task, [cells(found[how][task]) for _, how in columns]) for task in bench.tasks]
    draw_maps(bench.pictures / "snapkv-heatmaps.svg", "Right answers by length of the prompt and place of the answer",
                  maps, [name for name, _ in columns], bench.lengths,
                  "rows: tokens of the prompt; from left to right: where the answer stands, from the beginning to the end; empty: no document")
    return f"""## By budget, with and without pooling

C rows of a prompt stay, including its last {bench.args.window} tokens; the others are chosen with pooling over k (by the maximum, or the mean), or without pooling (k 1).

![Right answers by length and depth](snapkv-heatmaps.svg)

{score_table(bench, found, rows)}

{figures_6_and_8(bench, found)}
"""


def points(bench, found, how, tasks):
    return 100 * sum(share(found[how][t]) for t in tasks) / len(tasks)


def figures_6_and_8(bench, found):
    """What holds of the papers' two pictures."""
    def lost(name, tasks):
        full = points(bench, found, "none", tasks)
        return ", ".join(f"{full - points(bench, found, name(c), tasks):.1f} at C {c}" for c in bench.budgets)

    w, needles, lines = bench.args.window, ["needle"], [t for t in bench.tasks if t != "needle"]
    names = {"max": bench.snapkv, "k 1": lambda c: f"snapkv:{c},{w},1", "mean": lambda c: bench.snapkv(c, "avg")}
    gain = [points(bench, found, names["max"](c), lines) - points(bench, found, names["k 1"](c), lines) for c in bench.budgets]
    least, most = bench.budgets[0], bench.budgets[-1]
    share_kept = max(bench.lengths) / most
    return f"""Figure 6 of the paper finds needles in prompts 380 times as long as the rows that stay (C 1024), with hardly a loss.
Points of right answers that needles lose here, with pooling: {lost(names["max"], needles)}; C {most} is one row in {share_kept:.0f} of the longest prompt, C {least} one in
{max(bench.lengths) / least:.0f}, of which the window takes {w} and leaves {least - w} to be chosen. 380 times is more than the model's context allows.

Figure 8 of the paper: without pooling, retrieval by line fails. {" and ".join(f"`{t}`" for t in lines)} lose with pooling {lost(names["max"], lines)};
by the mean {lost(names["mean"], lines)}; without {lost(names["k 1"], lines)}. Pooling brings
{", ".join(f"{g:+.1f} points at C {c}" for g, c in zip(gain, bench.budgets))}: {verdict(gain)}"""


def verdict(gain):
    if min(gain) > 2:
        return "that holds here."
    if max(gain) < -2:
        return "here it is the other way round."
    return "that does not hold at every budget here." if max(gain) > 2 else "that does not hold here."


# ---- the same budget ----

def contenders(bench, c):
    """(name, how) of every method at one budget."""
    wk = f"{bench.args.window},{bench.args.kernel}"
    return [("SnapKV", bench.snapkv(c)), ("SnapKV by query head", bench.snapkv(c, "query")),
            ("PyramidKV", f"pyramidkv:{c},{wk}"), ("AdaKV", f"adakv:{c},{wk}"), ("H2O", f"h2o:{c}"),
            ("StreamingLLM", f"streaming:4,{c}")]


def methods(bench):
    named = {c: contenders(bench, c) for c in bench.budgets}
    hows = ["none"] + [how for rows in named.values() for _, how in rows]
    found = bench.evaluate_all(bench.args.model, hows)
    names = [name for name, _ in named[bench.budgets[0]]]
    panels = []
    for task in bench.tasks:
        lines = [(name, [(c, 100 * share(found[dict(named[c])[name]][task])) for c in bench.budgets]) for name in names]
        full = 100 * share(found["none"][task])
        panels.append(Panel(task, "rows that stay (C)", "right answers, %", lines, bound=(full, "all rows")))
    draw(bench.pictures / "snapkv-methods.svg", "Right answers by the rows that stay, by method", panels)
    means = "Mean of the tasks: all rows " + f"{points(bench, found, 'none', bench.tasks):.0f}; " + "; ".join(
        f"C {c} " + ", ".join(f"{name} {points(bench, found, how, bench.tasks):.0f}" for name, how in named[c])
        for c in bench.budgets) + "."
    rows = [("all rows", "none")]
    rows += [(f"C {c}: {name}", how) for c in bench.budgets for name, how in named[c]]
    return f"""## Beside other methods, at the same budget

![Right answers by method and budget](snapkv-methods.svg)

{score_table(bench, found, rows)}

{means}

H2O lets every token of the prompt vote, so rows that only the question attends to lose against rows that all tokens attend to. StreamingLLM
does not choose at all. In the paper H2O keeps most of the full cache's score, with 4096 rows of prompts of 13 thousand tokens that are read
as a whole; single rows that one question needs are another matter. By query head, C rows are stored for each query head: that many times
the bytes of the others.
"""


# ---- SwiftKV ----

def voters(bench):
    model = bench.args.swiftkv
    rows = [("all rows", "none")]
    for c in bench.budgets:
        rows += [(f"C {c}, the window runs the deep layers", bench.snapkv(c)),
                 (f"C {c}, the last token alone", bench.snapkv(c, "last"))]
    found = bench.evaluate_all(model, [how for _, how in rows])
    timed = [("all rows", "none"), ("the window runs the deep layers", bench.snapkv(bench.budgets[-1])),
             ("the last token alone", bench.snapkv(bench.budgets[-1], "last"))]
    times = {how: bench.speeds(model, how) for _, how in timed}
    lost = [sum(share(found[bench.snapkv(c)][t]) - share(found[bench.snapkv(c, "last")][t]) for t in bench.tasks)
            / len(bench.tasks) for c in bench.budgets]
    cost = [100 * (a["ttft_ms"] / b["ttft_ms"] - 1) for a, b in zip(*(times[timed[i][1]] for i in (1, 2)))]
    prompts = bench.args.prompts.split(",")
    return f"""## Who votes in SwiftKV's deep layers

`{model.name}`: prompts stop half-way, so only tokens that run the deep layers have queries there: those of the window's
{bench.args.window} tokens (the exact way), or of the last one alone, which costs nothing.

{score_table(bench, found, rows)}

Points of the mean that voting by the last token alone loses: {", ".join(f"{100 * x:.1f} at C {c}" for c, x in zip(bench.budgets, lost))}.

Time to the first token in ms, C {bench.budgets[-1]}; the window's votes cost {sum(cost) / len(cost):.0f} % more than the last token's in the
mean of the lengths, from {min(cost):.0f} to {max(cost):.0f} %, which is what the machine drifts by from run to run:

{table(["", *(f"{p} tokens" for p in prompts)],
       [[name, *(f"{t['ttft_ms']:.1f}" for t in times[how])] for name, how in timed])}
"""


# ---- figure 7 ----

def speed(bench):
    prompts = [int(n) for n in bench.args.prompts.split(",")]
    named = [("all rows", "none")] + [(f"SnapKV, C {c}", bench.snapkv(c)) for c in bench.budgets]
    found = {name: bench.speeds(bench.args.model, how) for name, how in named}
    full = found["all rows"]
    lines = [(name, [(p, 1000 / r["decode_tok_s"]) for p, r in zip(prompts, found[name])]) for name, _ in named]
    bytes_lines = [(name, [(p, r["kv_bytes"] / 2**20) for p, r in zip(prompts, found[name])]) for name, _ in named]
    draw(bench.pictures / "snapkv-decode.svg", "Decoding against the length of the prompt",
         [Panel("time per token", "tokens of the prompt", "ms", lines),
          Panel("keys and values", "tokens of the prompt", "MiB", bytes_lines)])
    text = ""
    for title, cell in (
        ("Milliseconds a token", lambda r, _: f"{1000 / r['decode_tok_s']:.2f}"),
        ("KiB of keys and values behind the answer", lambda r, _: f"{r['kv_bytes'] / 1024:.0f}"),
        ("Time to the first token, ms", lambda r, _: f"{r['ttft_ms']:.1f}"),
    ):
        rows = [[name, *(cell(r, f) for r, f in zip(found[name], full))] for name, _ in named]
        text += f"\n{title}:\n\n" + table(["", *(f"{p} tokens" for p in prompts)], rows) + "\n"
    last = named[-1][0]
    faster = found[last][-1]["decode_tok_s"] / full[-1]["decode_tok_s"]
    smaller = full[-1]["kv_bytes"] / found[last][-1]["kv_bytes"]
    grows = full[0]["decode_tok_s"] / full[-1]["decode_tok_s"], found[last][0]["decode_tok_s"] / found[last][-1]["decode_tok_s"]
    return f"""## Decoding against the length of the prompt

![Milliseconds a token and MiB](snapkv-decode.svg)

At {prompts[-1]} tokens C {bench.budgets[-1]} decodes {faster:.1f} times as fast as all rows (the paper: 3.6 times at 16K tokens) with {smaller:.1f} times
less memory for keys and values. From {prompts[0]} to {prompts[-1]} tokens a token takes {grows[0]:.2f} times as long with all rows and {grows[1]:.2f} times with
C {bench.budgets[-1]}.
{text}"""


# ---- the longest prompt ----

PAGE_ROWS = 64


def fits(bench, model, ids, n, how):
    """What `generate` says of n tokens where the KV memory has room for --kv-tokens ones; None: they do not fit."""
    path = bench.args.work / f"prompt-{n}.json"
    path.write_text(json.dumps(ids[:n]))
    a = bench.args
    return bench.labs[model].try_ask("generate", model, "--ids-file", path, "-n", 2, "--ignore-eos", "--kv-tokens", a.kv_tokens,
                                     "--ctx", len(ids) + PAGE_ROWS, "--evict", how, "--threads", a.threads, "--json")


def longest(bench, model, ids, how):
    """Tokens of the longest prompt, in whole pages less the two that are generated."""
    low, high = 0, len(ids) // PAGE_ROWS
    while low < high:
        middle = (low + high + 1) // 2
        if fits(bench, model, ids, middle * PAGE_ROWS - 2, how):
            low = middle
        else:
            high = middle - 1
    return low * PAGE_ROWS - 2


def longest_rows(bench, model):
    """The table's rows of a model, and its best ratio."""
    config = json.loads((bench.args.model / "config.json").read_text())
    tracks = config["num_hidden_layers"] * config["num_key_value_heads"]
    ids = [3 + i * i * 31 % (config["vocab_size"] - 3) for i in range(bench.args.longest)]
    full = longest(bench, model, ids, "none")
    row = fits(bench, model, ids, full, "none")["kv_bytes"] / (full + 2)  # bytes of a token in all layers
    rows, best = [[f"`{model.name}`, all rows", str(full), "1.0", "0", str(full), "1.0"]], 1
    for c in bench.budgets:
        n = longest(bench, model, ids, bench.snapkv(c))
        deep = bench.args.window if model == bench.args.swiftkv else 0
        beside = 4 * ((n + deep) * config["hidden_size"] + n * tracks)  # the residual stream and the votes, f32
        same = full + beside / row
        best = max(best, n / same)
        rows.append([f"`{model.name}`, C {c}", str(n), f"{n / full:.1f}", f"{beside / 2**20:.1f}", f"{same:.0f}", f"{n / same:.1f}"])
    return rows, best


def memory(bench):
    found = [longest_rows(bench, model) for model in (bench.args.model, bench.args.swiftkv)]
    llama = 4096 + 4 * 4096 + 4 * 32 * 8  # bytes: keys and values of a layer, residual stream, votes
    return f"""## The longest prompt

Memory for keys and values of {bench.args.kv_tokens} tokens. A prompt that does not fit whole is read layer by layer: keys and values of one
layer are held whole, of the layers before it only the C rows that stay, and besides them the residual stream of all tokens. Nothing is
lost: rows and answers are the same to the bit.

{table(["", "longest prompt", "times all rows", "residual stream and votes, MiB", "tokens of all rows in the whole", "times longer in the same memory"],
       [row for rows, _ in found for row in rows])}

In the same memory, all counted, {max(best for _, best in found):.1f} times longer at most (the paper: 8.2 times; its program, too, compresses each layer
before it runs the next). A token of Llama 3.1 8B takes 128 KiB with all rows in 16 bits, and {llama / 1024:.0f} KiB so: {131072 / llama:.1f} times less.
"""


PARTS = {"pooling": pooling, "methods": methods, "voters": voters, "speed": speed, "memory": memory}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "snapkv-results")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/mini/base")
    parser.add_argument("--swiftkv", type=pathlib.Path, default=ROOT / "models/mini/kv6", help="for the part voters")
    parser.add_argument("--budgets", default="64,128,256")
    parser.add_argument("--window", type=int, default=48)
    parser.add_argument("--kernel", type=int, default=15)
    parser.add_argument("--tasks", default="needle,lines,kv")
    parser.add_argument("--lengths", default="512,1024,2048")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--depths", type=int, default=6)
    parser.add_argument("--prompts", default="512,1024,2048,4096,8000")
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--kv-tokens", type=int, default=512, help="tokens of KV memory for the part memory")
    parser.add_argument("--longest", type=int, default=6144, help="tokens that it tries at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--jobs", type=int, default=2, help="evaluations at a time, which share the threads")
    parser.add_argument("--page", type=pathlib.Path, default=page_of("snapkv"))
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    args = parser.parse_intermixed_args()
    for name in ("build", "work", "model", "swiftkv"):
        setattr(args, name, getattr(args, name).resolve())
    return args


def main():
    args = read_options()
    bench = Bench(args)
    put("snapkv", f"""# Eviction

`{args.model.name}`, `tools/results/make_snapkv_results.py`: {args.count} documents of each task and of {args.lengths.replace(',', ', ')} tokens, exact match in per cent
(95 % confidence); w {args.window}, k {args.kernel}; `--threads {args.threads}`. [Methods](../reference/methods.md) describes the methods.""", args.page)
    for name in args.parts or PARTS:
        put(f"snapkv {name}", by(f"tools/results/make_snapkv_results.py {name}", PARTS[name](bench)), args.page)
    print(args.page)


if __name__ == "__main__":
    main()
