#!/usr/bin/env python3
"""SwiftKV beside what its paper compares with, measured on one model, for docs/results/comparators.md.

    tools/results/make_comparator_results.py [PART ...] [--base models/mini/base] [--swiftkv MODEL,...] [--exit MODEL]
        [--pruned MODEL,...] [--build build] [--work DIR] [--page FILE] [--similar 0.9,0.95,...]
        [--above 0.5,0.8,0.95] [--lengths 512,2048] [--tasks lines,kv,needle] [--count N] [--prompt N]
        [--gen N] [--batch 1,8] [--threads N]

Parts: quality (answers against the arithmetic that is left, for FFN-SkipLLM, early exit, fewer
layers and SwiftKV: Tables 2 and 5 of arXiv:2410.03960 and its appendix B.4), throughput (Merge-all-Layers
beside SwiftKV: Table 3). Without one, both. The base is the ordinary model; --swiftkv names models made
from it, --exit one with an exit head (`distill --early-exit`), --pruned models with fewer layers that were trained
further (`make_kvpred_results.py --train-layer-pruned`); copies of
the base with fewer layers are made in WORK. What was measured is kept there, so a run that was stopped
goes on. Nothing else should run on the machine for `throughput`.
"""

import argparse
import pathlib

from results_lab import ROOT, Lab, by, fingerprint, page_of, put, table


def pruned_copies(lab, a):
    """Folders of the base with fewer layers."""
    out = []
    for how in ("lp-0.75", "lp-0.50"):
        folder = lab.work / how
        if not (folder / "config.json").exists():
            lab.run("transform", a.base, folder, "--keep-layers", how)
        out.append((f"{how}, not trained", folder, ()))
    return out


def runs(lab, a):
    """(what it is, model, options) of every row; the ordinary model first."""
    out = [("the ordinary model", a.base, ())]
    out += [(f"SwiftKV: {pathlib.Path(m).name}", m, ()) for m in a.swiftkv]
    out += [(f"FFN-SkipLLM, {s}", a.base, ("--ffn-skip", s)) for s in a.similar]
    if a.exit:
        out.append((f"SwiftKV with an exit: {pathlib.Path(a.exit).name}", a.exit, ()))
        out += [(f"early exit above {p}", a.exit, ("--early-exit", p)) for p in a.above]
    out += pruned_copies(lab, a)
    for path in map(pathlib.Path, a.pruned):
        name = path.parent.name if path.name == "auxiliary" else path.name  # of `task: kvpred` without a base's loss
        out.append((f"{name}, trained", path, ()))
    return out


def percent(metric):
    return f"{100 * metric['value']:.1f} ({100 * metric['low']:.0f} to {100 * metric['high']:.0f})"


def quality(lab, a):
    rows, whole = [], None
    tasks = a.tasks.split(",")
    for name, model, words in runs(lab, a):
        said = lab.ask("eval", model, "--task", a.tasks, "--lengths", a.lengths, "--count", a.count,
                       "--threads", a.threads, "--json", *words)
        work = said["work"]
        whole = whole or work["model_flops"]
        blocks = work["mlp_blocks"] + work["mlp_skipped"]
        asked = work["exits_asked"]
        found = {t["task"]: t["metrics"][t["metric"]] for t in said["tasks"]}
        cells = [percent(found[t]) for t in tasks]
        rows.append([name, f"{100 * work['flops'] / whole:.1f}",
                     f"{100 * work['mlp_skipped'] / blocks:.1f}" if "--ffn-skip" in words else "",
                     f"{100 * work['exits'] / asked:.1f}" if asked else "", *cells])
    head = ["", "arithmetic, %", "blocks left out, %", "exits, %", *(f"{t}, % (95 %)" for t in tasks)]
    return f"""## Answers against arithmetic

{a.count} documents of each task and each of {a.lengths.replace(",", " and ")} tokens; the arithmetic is
what the engine counted, prompts and answers together, as a share of the ordinary model's. In brackets 95 % intervals.

{table(head, rows)}"""


def throughput(lab, a):
    rows = []
    forms = [("the ordinary model", a.base, ()), ("Merge-all-Layers", a.base, ("--prefill", "merged"))]
    forms += [(f"SwiftKV: {pathlib.Path(m).name}", m, ()) for m in a.swiftkv]
    forms += [(f"SwiftKV: {pathlib.Path(m).name}, fp8", m, ("--kv", "fp8")) for m in a.swiftkv]
    for name, model, words in forms:
        cells = []
        for batch in a.batch:
            r = lab.ask("bench", model, "--prompt", a.prompt, "--gen", a.gen, "--batch", batch, "--threads",
                        a.threads, "--json", *words)
            seconds = r["ttft_ms"] / 1000 + (a.gen - 1) * int(batch) / r["decode_tok_s"]
            cells.append(f"{int(batch) * (a.prompt + a.gen) / seconds:.0f}")
        cells.append(f"{r['kv_bytes'] / int(batch) / 2**20:.2f}")
        rows.append([name, *cells])
    head = ["", *(f"tokens/s, batch {b}" for b in a.batch), "KV MiB a sequence"]
    text = f"## Prompt and answer together, {a.prompt} + {a.gen} tokens\n\n"
    return text + table(head, rows)


PARTS = {"quality": quality, "throughput": throughput}


def words_of(text):
    return [x for x in text.split(",") if x]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    parser.add_argument("--base", type=pathlib.Path, default=ROOT / "models/mini/base")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/comparators")
    parser.add_argument("--page", type=pathlib.Path, default=page_of("comparators"))
    parser.add_argument("--swiftkv", type=words_of, default="models/mini/kv6,models/mini/kv6-g3")
    parser.add_argument("--exit")
    parser.add_argument("--pruned", type=words_of, default=[])
    parser.add_argument("--similar", type=words_of, default="0.9,0.95,0.97,0.98,0.99")
    parser.add_argument("--above", type=words_of, default="0.5,0.8,0.95")
    parser.add_argument("--tasks", default="lines,kv,needle")
    parser.add_argument("--lengths", default="512,2048")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--batch", type=words_of, default="1,8")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.build, args.work, args.base = args.build.resolve(), args.work.resolve(), args.base.resolve()
    models = [pathlib.Path(m).resolve() for m in (*args.swiftkv, *args.pruned, *([args.exit] if args.exit else []))]
    lab = Lab(args.build / "swiftkv", args.work / fingerprint(args.base, *models))
    for part in args.parts or PARTS:
        put(f"comparators-{part}", by(f"tools/results/make_comparator_results.py {part}", PARTS[part](lab, args)), args.page)


if __name__ == "__main__":
    main()
