#!/usr/bin/env python3
"""Quality against time to first token, and against KV memory, of all methods and what they combine to.

    tools/results/make_pareto.py [MODEL_FOLDER ...] [--build build] [--work DIR] [--page FILE]
        [--prompt 2048] [--count 5] [--tasks copy,...] [--budgets 512,256] [--minutes 15]

A folder is a model, or holds models of one family (models/mini, the default): the base, its SwiftKV
and AcrossKV forms, kvpred. Writes two pictures beside the page and a table into it. What was measured
is kept in WORK by the command that gave it and the model's files, so a run that was stopped goes on;
a run that comes to its --minutes draws what there is, and says what is missing. Nothing else should
run on the machine.
"""

import argparse
import pathlib
import sys
import time

import results_lab
from results_lab import ROOT, fingerprint, page_of, put, table
from svg_chart import Dot, draw_scatter, front_of

SHAPES = {"as it is": "circle", "8-bit keys and values": "square", "SnapKV": "triangle", "both": "diamond"}
TASKS = "copy,lines,kv,needle,log"  # that the model can do: the others tell settings apart by chance alone
WINDOW = "48,15"  # SnapKV's w and k: what holds a question in our chat template


class Lab(results_lab.Lab):
    """Remembers by the model's files too: a model that was trained again is another."""

    model, deadline = None, None

    def key(self, line):
        return super().key(f"{line} {fingerprint(self.model)}")

    def start(self, words, before=()):
        if self.deadline and time.monotonic() > self.deadline:
            raise TimeoutError
        return super().start(words, before)


class Form:
    """A model's folder: what it is called, and to which family it belongs."""

    def __init__(self, lab, path):
        self.path = path
        lab.model = path
        info = lab.ask("info", path, "--json")
        layers, group = info["swiftkv_layers"], info["group"]
        share = f"{100 * (1 - (layers or 0) / info['layers']):.0f} %"
        if info.get("auxiliary_layers"):
            self.family, self.name, self.order = "KV Prediction", "KV Prediction", (3, 0, 0)
        elif layers is None:
            self.family, self.name, self.order = "unmodified", "unmodified", (0, 0, 0)
        elif group == 1:
            self.family, self.name, self.order = "SwiftKV", f"SwiftKV {share}", (1, -layers, 1)
        else:
            self.family, self.name = "SwiftKV + AcrossKV", f"SwiftKV {share}, {group}-way"
            self.order = (2, -layers, group)


class Setting:
    """A form with what is added to it."""

    def __init__(self, form, rows_8_bit=False, budget=None, weights=None):
        self.form, self.rows_8_bit, self.budget, self.weights = form, rows_8_bit, budget, weights
        self.words = ["--kv", "int8"] if rows_8_bit else []
        self.words += ["--snapkv", f"{budget},{WINDOW}"] if budget else []
        self.words += ["--weights", weights] if weights else []
        parts = [form.name, *(["8-bit KV"] if rows_8_bit else []), *([f"SnapKV {budget}"] if budget else []),
                 *([f"{weights} weights"] if weights else [])]
        self.name = ", ".join(parts)
        kind = "both" if rows_8_bit and budget else "SnapKV" if budget else "8-bit keys and values" if rows_8_bit else "as it is"
        self.shape = SHAPES[kind]

    def measure(self, lab, args):
        lab.model = self.form.path
        said = lab.ask("eval", self.form.path, "--task", args.tasks, "--lengths", args.prompt, "--count", args.count,
                       "--threads", args.threads, "--json", *self.words)
        self.quality, self.n = 100 * said["average"], sum(task["n"] for task in said["tasks"])
        bench = lab.ask("bench", self.form.path, "--prompt", args.prompt, "--gen", 16, "--repeat", 5,
                        "--threads", args.threads, "--json", *self.words)
        self.ttft, self.token = bench["ttft_ms"], 1000 / bench["decode_tok_s"]
        self.mib = bench["kv_bytes"] / 2 ** 20


def find_models(folders):
    for folder in folders:
        inside = sorted(p.parent for p in folder.glob("*/config.json") if p.parent.name != "auxiliary")
        if (folder / "config.json").exists():
            yield folder
        elif inside:
            yield from inside
        else:
            print(f"{folder}: holds no model, skipped", file=sys.stderr)
    family = ROOT / "models/mini"
    if family in folders and not (family / "kvpred/config.json").exists():
        print("models/mini/kvpred is absent: KV Prediction is skipped", file=sys.stderr)


def settings_of(forms, budgets):
    """Every form as it is; then the additions and their combinations, on one form of each family first."""
    out = [Setting(form) for form in forms]
    chosen = []
    for family in dict.fromkeys(form.family for form in forms):
        of_family = [form for form in forms if form.family == family]
        chosen.append(min(of_family, key=lambda form: abs(form.path.name.startswith("kv6") - 1)))
    for form in chosen:
        out += [Setting(form, rows_8_bit=True), *(Setting(form, budget=b) for b in budgets),
                *(Setting(form, rows_8_bit=True, budget=b) for b in budgets)]
    for form in chosen:
        out += [Setting(form, weights="int8"), Setting(form, rows_8_bit=True, budget=budgets[0], weights="int8")]
    return out


def measure_all(lab, settings, args):
    done = []
    for i, setting in enumerate(settings):
        try:
            setting.measure(lab, args)
        except TimeoutError:
            print(f"{args.minutes:g} minutes are over: {len(settings) - i} settings are left for the next run", file=sys.stderr)
            break
        done.append(setting)
        print(f"{i + 1} of {len(settings)}: {setting.name}: {setting.quality:.1f} %, {setting.ttft:.0f} ms, "
              f"{setting.mib:.2f} MiB", file=sys.stderr, flush=True)
    return done


def draw(settings, folder, prompt):
    fronts = []
    for name, title, x_label, x_of in (("pareto-ttft.svg", "Quality against time to first token",
                                        f"time to first token of {prompt} tokens, ms", lambda s: s.ttft),
                                       ("pareto-kv.svg", "Quality against memory", "keys and values, MiB", lambda s: s.mib)):
        dots = {Dot(s.form.family, s.shape, s.name, x_of(s), s.quality): s for s in settings}
        draw_scatter(folder / name, title, x_label, "right answers, %", list(dots), SHAPES)
        fronts.append([dots[dot] for dot in front_of(dots)])
    return fronts


def write_page(settings, fronts, args, total):
    rows = [[s.name, f"{s.quality:.1f}", f"{s.ttft:.1f}", f"{s.token:.2f}", f"{s.mib:.2f}",
             " ".join(word for word, front in zip(("time", "memory"), fronts) if s in front)] for s in settings]
    head = ["setting", "right answers, %", "first token, ms", "each token after, ms", "KV, MiB", "on the front"]
    base = settings[0]
    saved = []
    for front, of, what in zip(fronts, (lambda s: s.ttft, lambda s: s.mib), ("time to first token", "KV memory")):
        good = [s for s in front if s.quality >= 0.99 * base.quality]
        if good:
            best = min(good, key=of)
            saved.append(f"{what}: {best.name}, {of(base) / of(best):.1f} times less ({best.quality:.1f} %)")
    missing = f" {total - len(settings)} settings are not measured yet." if len(settings) < total else ""
    words = f"""`tools/results/make_pareto.py`: every method on one model, and their combinations. Right answers: the mean of {len(args.tasks.split(","))} tasks on held-out
documents of {args.prompt} tokens ({base.n} in all); times and memory by `swiftkv bench` with a prompt of the same length, {args.threads}
threads. A setting is on the front if no other is better in both. The unmodified model has {base.quality:.1f} %; the cheapest settings that
keep 99 % of that, by {"; by ".join(saved)}.{missing}"""
    put("pareto", f"""# What quality costs

{words}

![Quality against time to first token](pareto-ttft.svg)

![Quality against memory for keys and values](pareto-kv.svg)

{table(head, rows)}
""", args.page)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path, default=[ROOT / "models/mini"], metavar="MODEL_FOLDER")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "pareto")
    parser.add_argument("--page", type=pathlib.Path, default=page_of("pareto"))
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--count", type=int, default=12, help="documents of each task")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--budgets", default="512,256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=15)
    args = parser.parse_args()
    args.build, args.work, args.page = args.build.resolve(), args.work.resolve(), args.page.resolve()
    lab = Lab(args.build / "swiftkv", args.work)
    lab.deadline = time.monotonic() + 60 * args.minutes
    forms = [Form(lab, path) for path in find_models([folder.resolve() for folder in args.folders])]
    forms.sort(key=lambda form: form.order)
    if not forms or forms[0].family != "unmodified":
        sys.exit("no unmodified model among them")
    settings = settings_of(forms, list(map(int, args.budgets.split(","))))
    done = measure_all(lab, settings, args)
    if not done:
        sys.exit("nothing was measured")
    pictures = args.page.parent
    pictures.mkdir(parents=True, exist_ok=True)
    write_page(done, draw(done, pictures, args.prompt), args, len(settings))


if __name__ == "__main__":
    main()
