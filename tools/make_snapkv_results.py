#!/usr/bin/env python3
"""What eviction costs and saves, measured on one model.

    tools/make_snapkv_results.py MODEL OUT [SECTION ...] [--build build] [--budgets 64,128,256]
        [--window 48] [--kernel 15] [--lengths 512,1024,2048] [--tasks needle,lines,kv] [--count N]
        [--depths N] [--prompts 512,...] [--threads N]

Sections: pooling (heatmaps of length and depth for every budget, with and without pooling: figures 6
and 8 of arXiv:2404.14469), methods (all of them at the same budgets), voters (SwiftKV: the deep
layers for the window, or for the last token only), speed (decoding against the length of the
prompt, and KV bytes: figure 7). Without one, all. OUT gets results.md and a folder of SVG charts a
run; what was measured is kept in OUT/said by the command that gave it, so a run that was stopped
goes on. Nothing else should run on the machine for `speed`. The window has to hold the question: the
paper's 16 tokens with a kernel of 5 are too few for our models, whose chat template stands behind it.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Lab:
    """Runs the program and remembers what it said."""

    def __init__(self, args):
        self.args = args
        self.said = args.out / "said"
        self.said.mkdir(parents=True, exist_ok=True)

    def ask(self, *words):
        """The JSON objects that a command prints, from the last time where it was asked before."""
        line = " ".join(map(str, words)).replace(str(self.args.out), "OUT")
        path = self.said / (hashlib.sha256(line.encode()).hexdigest()[:20] + ".json")
        if not path.exists():
            print("swiftkv", line, file=sys.stderr, flush=True)
            command = [self.args.build / "swiftkv", *map(str, words)]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if result.returncode != 0:
                sys.exit(f"swiftkv {words[0]}: exit status {result.returncode}")
            lines = [json.loads(x) for x in result.stdout.splitlines() if x.strip()]
            path.write_text(json.dumps({"command": line, "said": lines}))
        return json.loads(path.read_text())["said"]

    def evaluate(self, name, how):
        """{task: (value, low, high)} of our own tasks; the charts are in OUT/name."""
        a = self.args
        said = self.ask("eval", a.model, "--task", a.tasks, "--lengths", a.lengths, "--count", a.count,
                        "--depths", a.depths, "--svg", a.out / name, "--evict", how, "--threads", a.threads,
                        "--json")[0]
        out = {}
        for task in said["tasks"]:
            m = task["metrics"][task["metric"]]
            out[task["task"]] = (m["value"], m["low"], m["high"])
        return out


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |",
             "| " + " | ".join(["---"] + ["---:"] * (len(head) - 1)) + " |"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def percent(estimate):
    value, low, high = estimate
    return f"{100 * value:.1f} ({100 * low:.0f}–{100 * high:.0f})"


def quality(lab, title, runs):
    """A section: a row for each (name, method)."""
    tasks = lab.args.tasks.split(",")
    rows = []
    for name, how in runs:
        got = lab.evaluate(name, how)
        charts = ", ".join(f"[{t}]({name}/{t}.svg)" for t in tasks if (lab.args.out / name / f"{t}.svg").exists())
        rows.append([f"`{how}`", *(percent(got[t]) for t in tasks), charts])
    head = ["`--evict`", *(f"{t}, % (95 %)" for t in tasks), "heatmaps"]
    return f"## {title}\n\n" + table(head, rows)


def budgets(lab):
    return [int(b) for b in lab.args.budgets.split(",")]


def pooling(lab):
    runs = [("full", "none")]
    for c in budgets(lab):
        runs += [(f"snapkv-{c}", f"snapkv:{c},{lab.args.window},{lab.args.kernel}"),
                 (f"snapkv-{c}-avg", f"snapkv:{c},{lab.args.window},{lab.args.kernel},avg"),
                 (f"snapkv-{c}-unpooled", f"snapkv:{c},{lab.args.window},1")]
    return quality(lab, "SnapKV by budget, with and without pooling", runs)


def methods(lab):
    runs = [("full", "none")]
    for c in budgets(lab):
        runs += [(f"snapkv-{c}", f"snapkv:{c},{lab.args.window},{lab.args.kernel}"),
                 (f"query-{c}", f"snapkv:{c},{lab.args.window},{lab.args.kernel},query"),
                 (f"pyramidkv-{c}", f"pyramidkv:{c},{lab.args.window},{lab.args.kernel}"),
                 (f"adakv-{c}", f"adakv:{c},{lab.args.window},{lab.args.kernel}"), (f"h2o-{c}", f"h2o:{c}"),
                 (f"streaming-{c}", f"streaming:4,{c}")]
    return quality(lab, "All methods at the same budgets", runs)


def voters(lab):
    runs = []
    for c in budgets(lab):
        how = f"snapkv:{c},{lab.args.window},{lab.args.kernel}"
        runs += [(f"snapkv-{c}", how), (f"snapkv-{c}-last", how + ",last")]
    text = quality(lab, "Who votes in SwiftKV's deep layers", runs)
    rows = []
    for how in ["none"] + [how for _, how in runs]:
        times = speeds(lab, how)
        rows.append([f"`{how}`", *(f"{t['ttft_ms']:.0f}" for t in times)])
    head = ["`--evict`", *(f"{p} tokens" for p in lab.args.prompts.split(","))]
    return text + "\nTime to the first token in ms:\n\n" + table(head, rows)


def speeds(lab, how):
    a = lab.args
    return lab.ask("bench", a.model, "--prompt", a.prompts, "--gen", a.gen, "--ctx", max_context(a),
                   "--threads", a.threads, "--evict", how, "--json")


def max_context(args):
    return max(map(int, args.prompts.split(","))) + args.gen


def speed(lab):
    hows = ["none"] + [f"snapkv:{c},{lab.args.window},{lab.args.kernel}" for c in budgets(lab)]
    text = "## Decoding against the length of the prompt\n"
    head = ["`--evict`", *(f"{p} tokens" for p in lab.args.prompts.split(","))]
    measured = {how: speeds(lab, how) for how in hows}
    full = measured["none"]
    for title, cell in (
        ("Milliseconds a token", lambda r, f: f"{1000 / r['decode_tok_s']:.2f}"),
        ("Times as fast as with all rows", lambda r, f: f"{r['decode_tok_s'] / f['decode_tok_s']:.2f}"),
        ("KiB of keys and values behind the answer", lambda r, f: f"{r['kv_bytes'] / 1024:.0f}"),
        ("Times less than with all rows", lambda r, f: f"{f['kv_bytes'] / r['kv_bytes']:.2f}"),
    ):
        rows = [[f"`{how}`", *(cell(r, f) for r, f in zip(measured[how], full))] for how in hows]
        text += f"\n{title}:\n\n" + table(head, rows)
    return text + ("\nWhile a prompt is read its rows are all there: a single prompt is not longer for being "
                   "compressed afterwards; more answers fit side by side.\n")


SECTIONS = {"pooling": pooling, "methods": methods, "voters": voters, "speed": speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--budgets", default="64,128,256")
    parser.add_argument("--window", type=int, default=48)
    parser.add_argument("--kernel", type=int, default=15)
    parser.add_argument("--tasks", default="needle,lines,kv")
    parser.add_argument("--lengths", default="512,1024,2048")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--depths", type=int, default=10)
    parser.add_argument("--prompts", default="512,1024,2048,4096")
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_intermixed_args()
    lab = Lab(args)
    parts = [f"# Eviction on {args.model.name}\n\nMade by tools/make_snapkv_results.py: w {args.window}, k {args.kernel}, "
             f"{args.count} documents of each length ({args.lengths} tokens).\n"]
    for name in args.sections or SECTIONS:
        if name not in SECTIONS:
            sys.exit(f"no section {name}: it is one of {', '.join(SECTIONS)}")
        parts.append(SECTIONS[name](lab))
        (args.out / "results.md").write_text("\n".join(parts))
    print(args.out / "results.md")


if __name__ == "__main__":
    main()
