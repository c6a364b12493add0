#!/usr/bin/env python3
"""SwiftKV beside what its paper compares with, measured on one model.

    tools/make_comparator_results.py BASE OUT [SECTION ...] [--swiftkv MODEL,...] [--exit MODEL]
        [--pruned MODEL,...] [--build build] [--similar 0.9,0.95,...] [--above 0.5,0.8,0.95]
        [--lengths 512,1024] [--tasks lines,kv,needle] [--count N] [--prompt N] [--gen N]
        [--batch 1,8] [--threads N]

Sections: quality (answers against the arithmetic that is left, for FFN-SkipLLM, early exit, fewer
layers and SwiftKV: Tables 2 and 5 of arXiv:2410.03960 and its appendix B.4), throughput (Merge-all-Layers
beside SwiftKV: Table 3). Without one, both. BASE is the ordinary model; --swiftkv names models made
from it, --exit one with an exit head, --pruned models with fewer layers that were trained further; copies of
BASE with fewer layers are made in OUT. OUT gets results.md; what was measured is kept in OUT/said, so
a run that was stopped goes on. Nothing else should run on the machine for `throughput`.
"""

import argparse
import pathlib
import subprocess
import sys

from make_snapkv_results import ROOT, Lab, percent, table


def pruned_copies(lab):
    """Folders of BASE with fewer layers."""
    out = []
    for how in ("lp-0.75", "lp-0.50"):
        folder = lab.args.out / how
        if not (folder / "config.json").exists():
            command = [lab.args.build / "swiftkv", "transform", lab.args.base, folder, "--keep-layers", how]
            if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
                sys.exit(f"no copy with {how}")
        out.append((f"{how}, not trained", folder, ()))
    return out


def runs(lab):
    """(what it is, model, options) of every row; the ordinary model first."""
    a = lab.args
    out = [("the ordinary model", a.base, ())]
    out += [(f"SwiftKV: {pathlib.Path(m).name}", m, ()) for m in a.swiftkv]
    out += [(f"FFN-SkipLLM, {s}", a.base, ("--ffn-skip", s)) for s in a.similar]
    if a.exit:
        out.append((f"SwiftKV with an exit: {pathlib.Path(a.exit).name}", a.exit, ()))
        out += [(f"early exit above {p}", a.exit, ("--early-exit", p)) for p in a.above]
    out += pruned_copies(lab)
    out += [(f"fewer layers: {pathlib.Path(m).name}", m, ()) for m in a.pruned]
    return out


def quality(lab):
    a, rows, whole = lab.args, [], None
    tasks = a.tasks.split(",")
    for name, model, words in runs(lab):
        said = lab.ask("eval", model, "--task", a.tasks, "--lengths", a.lengths, "--count", a.count,
                       "--threads", a.threads, "--json", *words)[0]
        work = said["work"]
        whole = whole or work["model_flops"]
        blocks = work["mlp_blocks"] + work["mlp_skipped"]
        asked = work["exits_asked"]
        found = {t["task"]: t["metrics"][t["metric"]] for t in said["tasks"]}
        cells = [percent(tuple(found[t][k] for k in ("value", "low", "high"))) for t in tasks]
        rows.append([name, f"{100 * work['flops'] / whole:.1f}",
                     f"{100 * work['mlp_skipped'] / blocks:.1f}" if "--ffn-skip" in words else "",
                     f"{100 * work['exits'] / asked:.1f}" if asked else "", *cells])
    head = ["", "arithmetic, %", "blocks left out, %", "exits, %", *(f"{t}, % (95 %)" for t in tasks)]
    return "## Answers against arithmetic\n\n" + table(head, rows)


def throughput(lab):
    a, rows = lab.args, []
    forms = [("the ordinary model", a.base, ()), ("Merge-all-Layers", a.base, ("--prefill", "merged"))]
    forms += [(f"SwiftKV: {pathlib.Path(m).name}", m, ()) for m in a.swiftkv]
    forms += [(f"SwiftKV: {pathlib.Path(m).name}, fp8", m, ("--kv", "fp8")) for m in a.swiftkv]
    for name, model, words in forms:
        cells = []
        for batch in a.batch:
            r = lab.ask("bench", model, "--prompt", a.prompt, "--gen", a.gen, "--batch", batch, "--threads",
                        a.threads, "--json", *words)[0]
            seconds = r["ttft_ms"] / 1000 + (a.gen - 1) * int(batch) / r["decode_tok_s"]
            cells.append(f"{int(batch) * (a.prompt + a.gen) / seconds:.0f}")
        cells.append(f"{r['kv_bytes'] / int(batch) / 2**20:.2f}")
        rows.append([name, *cells])
    head = ["", *(f"tokens/s, batch {b}" for b in a.batch), "KV MiB a sequence"]
    text = f"## Prompt and answer together, {a.prompt} + {a.gen} tokens\n\n"
    return text + table(head, rows)


SECTIONS = {"quality": quality, "throughput": throughput}


def words_of(text):
    return [x for x in text.split(",") if x]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--swiftkv", type=words_of, default=[])
    parser.add_argument("--exit")
    parser.add_argument("--pruned", type=words_of, default=[])
    parser.add_argument("--similar", type=words_of, default="0.9,0.95,0.97,0.98,0.99")
    parser.add_argument("--above", type=words_of, default="0.5,0.8,0.95")
    parser.add_argument("--tasks", default="lines,kv,needle")
    parser.add_argument("--lengths", default="512,1024")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--batch", type=words_of, default="1,8")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    unknown = [s for s in args.sections if s not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]}: {', '.join(SECTIONS)}")
    lab = Lab(args)
    parts = [SECTIONS[s](lab) for s in args.sections or SECTIONS]
    (args.out / "results.md").write_text("\n".join(parts))
    print(args.out / "results.md")


if __name__ == "__main__":
    main()
