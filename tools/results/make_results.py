#!/usr/bin/env python3
"""The tables of docs/results/own-model.md, other-models.md, mixture.md and hybrid.md.

    tools/results/make_results.py [--build build] [--work DIR] [--ranks N] [--jobs N] [--row TEXT] [SECTION ...]

With --row only the rows of main tables whose title has TEXT are measured, and printed: "50 % (l = 6), recovered". A title
is what stands in front of the numbers, joined by commas. No page is written then.

Sections: others (people's models in ../shared), family (our own), mixture and hybrid (the small models
that tools/train_mixture.sh and tools/train_hybrid.sh train), heads (of the hybrid, that draft) and head-speed (what
that gains: by name alone, on an idle machine). Without one, all that can be made but head-speed.
What was measured is kept in WORK by the command that gave it, so a run that was stopped goes on, and
a page is drawn again from what is there. Each section stands between two marks that name it, and
nothing is written into it by hand; the findings in README.md are.
"""

import argparse
import json
import math
import pathlib
import shutil
import sys

import results_lab
from results_lab import ROOT, put, several, table

SHARED = ROOT.parent / "shared" / "assets"


class Lab(results_lab.Lab):
    """Makes models too."""

    def __init__(self, args):
        super().__init__(args.build / "swiftkv", args.work)
        self.threads = args.threads
        self.ranks = args.ranks
        self.jobs = args.jobs
        self.row = args.row

    def transform(self, name, model, kv_layers, group=1, *more):
        out = self.work / name
        if not (out / "config.json").exists():
            shutil.rmtree(out, ignore_errors=True)
            self.run("transform", model, out, "--kv-layers", kv_layers, "--group", group, *more)
        return out

    def distill(self, name, model, *more):
        """The folder and the losses of a recovery."""
        return self.train("distill", name, model, *more)

    def train(self, command, name, model, *more):
        out = self.work / name
        if not (out / "config.json").exists():
            resume = ["--resume"] if (out / "checkpoint" / "latest.json").exists() else []
            # Processes give the losses of threads, and are faster on shapes this small.
            mpi = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-np", str(self.ranks)]
            self.run(command, model, out, "--threads", max(self.threads // self.ranks, 1), "--held-out", 0, *more, *resume,
                     before=mpi if self.ranks > 1 else ())
        steps = {}
        for line in (out / "log.jsonl").read_text().splitlines():
            said = json.loads(line)
            steps[said["step"]] = said
        return out, [steps[i] for i in sorted(steps)]

    def nll(self, model, text, prefill, *more):
        """Mean nats a token of a text."""
        return self.ask("score", model, "--file", text, "--prefill", prefill, "--json", *more)["nll"]


    def wants(self, title):
        """Whether a row is asked for: --row says a part of its title."""
        return not self.row or self.row in title

    def show(self, section, head, rows, page):
        """Prints the rows that were asked for; without --row writes the section, which `page` makes of the table."""
        if not self.row:
            put(section, page(table(head, rows)))
        elif rows:
            print(table(head, rows))


def by_command(section, row):
    return f"`tools/results/make_results.py {section}` makes the table, with `--row '{row}'` one row of it."


# ---- other people's models ----

def repaired(teacher, before, after):
    return f"{100 * (before - after) / (before - teacher):.0f} %"


def other_rows(lab, model, kv_layers, train, test):
    """(what, function that measures nats a token) of the rows of a form."""
    recipe = ["--rows", 16, "--seq", 256, "--steps", 300, "--lr", "1e-3"]
    copied = lab.transform(f"stories-{kv_layers}-copied", model, kv_layers)

    def solved():
        return lab.transform(f"stories-{kv_layers}-ridge", model, kv_layers, 1, "--init", "ridge", "--text", train)

    def trained(label, start, *more):
        out, _ = lab.distill(f"stories-{kv_layers}-{label}", start, *more, *recipe)
        return lab.nll(out, test, "swiftkv-full")

    yield "teacher", lambda: lab.nll(copied, test, "teacher")
    yield "copied, not trained", lambda: lab.nll(copied, test, "swiftkv-full")
    yield "closed form, not trained", lambda: lab.nll(solved(), test, "swiftkv-full")
    yield "from copied, 300 steps", lambda: trained("from-copied-300-steps", copied, "--data", train)
    yield "from closed form, 300 steps", lambda: trained("from-closed-form-300-steps", solved(), "--data", train)
    yield ("from copied, self-written text, 300 steps",
           lambda: trained("from-copied-self-written-text-300-steps", copied, "--data", "self:1228800"))
    yield "from copied, loss lm, 300 steps", lambda: trained("lm", copied, "--data", train, "--loss", "lm")


def others(lab):
    model = SHARED / "models/stories260k/stories260k-f32.gguf"
    train, test = SHARED / "text/tinystories-a.txt", SHARED / "text/tinystories-b.txt"
    if not model.exists():
        print(f"others: {model} is absent, skipped", file=sys.stderr)
        return
    rows = []
    for kv_layers in (3, 2):
        measured = list(other_rows(lab, model, kv_layers, train, test))
        teacher, before = (measure for _, measure in measured[:2])
        for what, measure in measured:
            if not lab.wants(f"{kv_layers} of 5, {what}"):
                continue
            nats = measure()
            share = "" if measure in (teacher, before) else repaired(teacher(), before(), nats)
            rows.append([f"{kv_layers} of 5", what, f"{nats:.4f}", f"{math.exp(nats):.3f}", share])
    lab.show("others", ["l", "projections", "nats a token", "perplexity", "repaired"], rows, lambda shown: (
        "# Other people's models\n\n"
        "stories260k, five layers, knows only children's stories; text `tinystories-a`, measured on `tinystories-b`, which\n"
        "no run has read. 300 steps of 16 sequences of 256 tokens at a learning rate of 1e-3. `repaired` is the share of the\n"
        "damage done by copying that training repairs. " + by_command("others", "3 of 5, teacher")
        + " It transforms or distils the model, then asks `swiftkv score OUT --file TEXT --prefill swiftkv-full`.\n\n"
        + shown + "\n\n"
        "The loss `lm` goes on training a teacher that was not trained to its end, so judge it by agreement as well."))


# ---- our own family ----

LAYERS = 12
TASKS = "copy,edit,lines,kv,needle,variables,hops,table,labels,report,log"
LENGTHS = "512,2048"
COUNT = 25  # of each task and length
HELD_OUT = ROOT / "recipes/prose/held_out.txt"
PROSE = ROOT / "recipes/prose/grimm.txt"
RECIPE = ROOT / "recipes/mini/recover.yaml"


class Form:
    """A SwiftKV form of the model: which share of the layers prompts skip, and layers a group."""

    def __init__(self, share, kv_layers, group=1):
        self.kv_layers, self.group = kv_layers, group
        self.name = f"kv{kv_layers}" + (f"-g{group}" if group > 1 else "")
        self.title = f"{share} %" + (f", {group}-way" if group > 1 else "") + f" (l = {kv_layers})"


FORMS = [Form(25, 9), Form(50, 6), Form(62.5, 4), Form(83, 2), Form(50, 6, 2), Form(50, 6, 3), Form(50, 6, 6)]
SOLVED = FORMS[:5]  # started in closed form too
HALF = FORMS[1]
WHY = """By perplexity the papers' order holds: more layers cost more, wider groups cost more, and recovery brings most of it back. By
answers it holds at 83 % and among the unrecovered groups; the other differences, of 25 documents a cell, are chance. The papers' collapse
at 50 % does not occur. This model finds things in its first three layers, which began with heads that look back (src/learning/train/net_init.c). So
the deeper layers may read the output of layer 4 or a later one without harm, and only l = 2 breaks the model. The perplexity of prose,
which needs all layers, suffers at every l."""


class Family:
    """The base, its forms before and after recovery, and what they score."""

    def __init__(self, lab):
        self.lab = lab
        self.base = lab.work / "mini" / "base"
        if not self.base.exists():
            shutil.copytree(ROOT / "models/mini/base", self.base)

    def copied(self, form):
        return self.lab.transform(f"mini/{form.name}-copied", self.base, form.kv_layers, form.group)

    def solved(self, form):
        return self.lab.transform(f"mini/{form.name}-solved", self.base, form.kv_layers, form.group,
                                  "--init", "ridge", "--text", self.documents())

    def documents(self):
        """What the closed form is fitted on: documents as in training."""
        path = self.lab.work / "mini" / "documents.jsonl"
        if not path.exists():
            text = self.lab.run("documents", "--count", 400, "--seed", 77, "--vocab", self.base, "--prose", PROSE)
            path.write_text(text)
        return path

    def recovered(self, form, name="", start=None, *options):
        """Folder and losses of a recovery; the plain ones are stored as what differs from the base."""
        label = f"mini/{form.name}{name}"
        if start is None:
            options = ("--kv-layers", form.kv_layers, "--group", form.group, "--delta", *options)
        return self.lab.distill(label, start or self.base, "--recipe", RECIPE, *options)

    def said(self, model, *more):
        """What `swiftkv eval` says of a model on our tasks and the held-out tales."""
        return self.lab.ask("eval", model, "--task", f"{TASKS},{HELD_OUT}", "--lengths", LENGTHS, "--count", COUNT,
                            "--threads", max(self.lab.threads // self.lab.jobs, 1), "--json", *more)

    def measure(self, model, *more):
        """Share of right answers by task, their average, and perplexity; agreement with the teacher where asked for."""
        found = {task["task"]: task["metrics"] for task in self.said(model, *more)["tasks"]}
        names = TASKS.split(",")
        text = next(metrics for name, metrics in found.items() if name not in names)
        row = {name: found[name]["exact_match"]["value"] for name in names}
        row["average"] = sum(row.values()) / len(names)
        row["perplexity"] = text["perplexity"]["value"]
        if "agreement" in text:
            for metric in ("agreement", "kl"):
                row[metric] = text[metric]["value"]
                row[f"{metric} on answers"] = sum(found[name][metric]["value"] for name in names) / len(names)
        return row

    def measure_all(self, asked):
        """Rows of (title, model, option ...), several at a time."""
        return several(self.lab.jobs, lambda row: (row[0], self.measure(*row[1:])), asked)


def percent(x):
    return f"{100 * x:.1f}"


SCORES = ["", *TASKS.split(","), "average", "perplexity"]


def score_rows(rows):
    """rows: (title, what Family.measure gave)."""
    return [[title, *(percent(row[name]) for name in TASKS.split(",")), percent(row["average"]), f"{row['perplexity']:.2f}"]
            for title, row in rows]


def findings(rows):
    """What the main table says, in words."""
    score = {title: row["average"] for title, row in rows}
    teacher = score["teacher"]

    def lost(form, how):
        return f"{100 * (teacher - score[f'{form.title}, {how}']):.1f}"

    forms = "; ".join(f"{form.title} {lost(form, 'copied')} and {lost(form, 'recovered')}" for form in FORMS)
    return f"Points of the average ({percent(teacher)}) that are lost before and after recovery: {forms}."


def smooth(steps, width=10):
    """Mean losses of the last `width` steps at each step, weighted by what was learnt."""
    out = []
    for i in range(len(steps)):
        part = steps[max(0, i - width + 1):i + 1]
        tokens = sum(step["loss_tokens"] for step in part)
        out.append(sum(step["loss"] * step["loss_tokens"] for step in part) / max(tokens, 1))
    return out


def steps_to(losses, goal):
    return next((i + 1 for i, loss in enumerate(losses) if loss <= goal), None)


def recovery_table(f):
    """Closed form against copying: quality before training, and the steps to the same loss."""
    rows = []
    for form in SOLVED:
        _, from_copied = f.recovered(form)
        _, from_solved = f.recovered(form, "-from-solved", f.solved(form))
        a, b = smooth(from_copied), smooth(from_solved)
        half = a[len(a) // 2]
        rows.append([form.title, percent(f.measure(f.copied(form))["average"]), percent(f.measure(f.solved(form))["average"]),
                     f"{from_copied[0]['loss']:.3f}", f"{from_solved[0]['loss']:.3f}", f"{a[-1]:.4f}", f"{b[-1]:.4f}",
                     f"{steps_to(a, half)}", f"{steps_to(b, half) or 'not reached'}", f"{steps_to(b, a[-1]) or 'not reached'}"])
    return table(["form", "average, copied", "average, closed form", "first loss, copied", "first loss, closed form",
                  "last loss, copied", "last loss, closed form", "steps to half-way's loss, copied", "the same, closed form",
                  "steps to the last loss of copied, closed form"], rows)


def agreement_table(rows):
    head = ["at 50 %", "average", "perplexity", "same token on prose", "KL on prose", "same token on answers", "KL on answers"]
    return table(head, [[title, percent(row["average"]), f"{row['perplexity']:.2f}", percent(row["agreement"]),
                         f"{row['kl']:.4f}", percent(row["agreement on answers"]), f"{row['kl on answers']:.4f}"]
                        for title, row in rows])


def family_rows(f):
    """(title, function that makes the model, option ...) of the main table."""
    yield "teacher", lambda: f.base
    for form in FORMS:
        yield f"{form.title}, copied", lambda form=form: f.copied(form)
        if form in SOLVED:
            yield f"{form.title}, closed form", lambda form=form: f.solved(form)
        yield f"{form.title}, recovered", lambda form=form: f.recovered(form)[0]
    yield f"{HALF.title}, recovered, 8-bit keys and values", lambda: f.recovered(HALF)[0], "--kv", "int8"


def family(lab):
    if not (ROOT / "models/mini/base/config.json").exists():
        print("family: models/mini/base is absent, skipped", file=sys.stderr)
        return
    f = Family(lab)
    asked = [(title, make(), *more) for title, make, *more in family_rows(f) if lab.wants(title)]
    if lab.row:
        lab.show("family", SCORES, score_rows(f.measure_all(asked)), None)
        return
    half, half_steps = f.recovered(HALF)
    reference = ("--reference", "teacher")
    ablated = [("copied", f.copied(HALF), *reference), ("closed form", f.solved(HALF), *reference),
               ("recovered: loss kl, projections", half, *reference),
               ("loss lm", f.recovered(HALF, "-lm", None, "--loss", "lm")[0], *reference),
               ("loss kl, all of the deep layers", f.recovered(HALF, "-deep-layers", None, "--trainable", "deep-layers")[0],
                *reference)]
    for form in SOLVED:
        f.recovered(form, "-from-solved", f.solved(form))
    rows = f.measure_all(asked + ablated)
    main_rows, ablations = rows[:len(asked)], rows[len(asked):]
    similarity = lab.ask("similarity", f.base, "--text", HELD_OUT, "--json")["simscore"]
    minutes = half_steps[-1]["seconds"] / 60
    lab.show("family", SCORES, score_rows(main_rows), lambda scores: f"""# Our own model

`models/mini`: {LAYERS} layers; its card says how it was made. Exact match in per cent on held-out documents of 512 and 2048 tokens, {COUNT} of
each task and length, read with `--prefill auto`; perplexity of two tales that no run has read. Recoveries: `recipes/mini/recover.yaml`,
{len(half_steps)} steps, {minutes:.1f} minutes for the 50 % model on two cores. {by_command("family", HALF.title + ", recovered")} A row is
`swiftkv eval FORM --task {TASKS},recipes/prose/held_out.txt --lengths {LENGTHS} --count {COUNT}`.

{scores}

{findings(main_rows)} {WHY}

## What is trained, and on which loss

By `tools/results/make_results.py family`; a row is the same `swiftkv eval` with `--reference teacher`.

{agreement_table(ablations)}

## Closed form against copied

By `tools/results/make_results.py family`; losses are those of `log.jsonl` of `swiftkv distill`.

{recovery_table(f)}

## SimScore

`swiftkv similarity models/mini/base --text recipes/prose/held_out.txt`:

{table(["layer", *map(str, range(1, LAYERS))], [["mean cosine of its input with later ones", *(f"{x:.3f}" for x in similarity)]])}
""")


# ---- a mixture of experts, and a hybrid ----

SMALL_FORMS = [Form(25, 6), Form(50, 4), Form(75, 2), Form(50, 4, 2)]


def rewired_rows(lab, name, base):
    """(form, what, function that makes the model) of recipes/`name`; that of recoveries also tells their steps."""
    for form in SMALL_FORMS if name == "moe" else SMALL_FORMS[:3]:  # layers that keep a state share none
        def solved(form=form):
            return lab.transform(f"{name}/{form.name}-solved", base, form.kv_layers, form.group, "--init", "ridge", "--text", PROSE)

        def recovered(label, start, *shape, form=form):
            return lab.distill(f"{name}/{form.name}-from-{label}", start, "--recipe", ROOT / f"recipes/{name}/recover.yaml", *shape)

        yield form, "copied", lambda form=form: (lab.transform(f"{name}/{form.name}-copied", base, form.kv_layers, form.group), [])
        yield form, "closed form", lambda solved=solved: (solved(), [])
        yield form, "recovered from copied", lambda recovered=recovered, form=form: recovered(
            "copied", base, "--kv-layers", form.kv_layers, "--group", form.group)
        yield form, "recovered from closed form", lambda recovered=recovered, solved=solved: recovered("closed", solved())


def small_base(lab, name):
    """The folder of the model, None where it was not trained."""
    base = ROOT / "build" / name / "model"
    if not (base / "config.json").exists():
        print(f"{base} is absent (trained by a script of tools/), skipped", file=sys.stderr)
        return None
    (lab.work / name).mkdir(parents=True, exist_ok=True)
    return base


def beside_teacher(lab, model):
    """Perplexity, the same token in per cent and KL on tales that no run has read."""
    said = lab.ask("eval", model, "--task", HELD_OUT, "--reference", "teacher", "--threads", lab.threads, "--json")
    found = said["tasks"][0]["metrics"]
    return [f"{found['perplexity']['value']:.2f}", percent(found["agreement"]["value"]), f"{found['kl']['value']:.4f}"]


REWIRED_HEAD = ["form", "projections", "perplexity", "same token", "KL"]


def rewired_table(lab, name, base):
    """The rows of the teacher and its forms, the seconds of the longest recovery and the steps of one."""
    rows, longest, n_steps = [], 0, 0
    if lab.wants("teacher"):
        rows.append(["teacher", "", f"{math.exp(lab.nll(base, HELD_OUT, 'auto')):.2f}", "", ""])
    for form, what, make in rewired_rows(lab, name, base):
        if not lab.wants(f"{form.title}, {what}"):
            continue
        model, steps = make()
        if steps:
            longest, n_steps = max(longest, steps[-1]["seconds"]), len(steps)
        rows.append([form.title, what, *beside_teacher(lab, model)])
    return rows, longest, n_steps


def mixture(lab):
    base = small_base(lab, "moe")
    if not base:
        return
    rows, longest, n_steps = rewired_table(lab, "moe", base)
    lab.show("mixture", REWIRED_HEAD, rows, lambda shown: f"""# A small mixture of experts

`tools/train_mixture.sh`: Qwen3-MoE, 8 layers, 8 experts of which two compute a token, 6.2 million parameters, 2.6 million for a token; trained
on tales (`recipes/moe/prose.yaml`, with a loss that balances experts), measured on two that no run has read. Recoveries:
`recipes/moe/recover.yaml`, {n_steps} steps of the new projections alone, through frozen experts, at most {longest / 60:.1f} minutes. The
last two columns compare with the teacher: how often both choose the same token, in per cent, and the KL divergence in nats.
{by_command("mixture", SMALL_FORMS[1].title + ", copied")} A row is `swiftkv eval FORM --task recipes/prose/held_out.txt --reference teacher`.

{shown}

The teacher has read its tales eight times and knows them better than others: by perplexity its SwiftKV forms are as good as it is
on tales that are new. What rewiring costs shows beside the teacher's own choices. Recovery of 60 steps brings back most where most was lost;
where the closed form is near already (50 %), it does not help.
""")


def hybrid(lab):
    base = small_base(lab, "hybrid")
    if not base:
        return
    rows, _, n_steps = rewired_table(lab, "hybrid", base)
    lab.show("hybrid", REWIRED_HEAD, rows, lambda shown: f"""{by_command("hybrid", SMALL_FORMS[1].title + ", copied")} A row is
`swiftkv eval FORM --task recipes/prose/held_out.txt --reference teacher`. A recovery is {n_steps} steps of the new projections alone.

{shown}
""")


# ---- heads for further tokens, on the small hybrid ----

N_PROMPTS, PROMPT_CHARACTERS, ANSWER = 12, 1500, 96
SOURCES = ("none", "mtp", "mtp:1,0", "mtp:4,0", "text+mtp")
CHOICES = [("greedy", ()), ("temperature 0.8", ("--temp", 0.8, "--seed", 3))]


def headed_forms(lab, base):
    """(title, function that makes the model): the hybrid with a head that was trained for it, and its SwiftKV form of 50 %."""
    form = SMALL_FORMS[1]

    def train(name, model):
        return lab.train("train", f"hybrid/{name}", model, "--recipe", ROOT / "recipes/hybrid/head.yaml")[0]

    def teacher():
        return train("head", base)

    def copied():
        solved = lab.transform(f"hybrid/{form.name}-head-solved", teacher(), form.kv_layers, 1, "--init", "ridge", "--text", PROSE)
        return lab.distill(f"hybrid/{form.name}-head-copied", solved, "--recipe", ROOT / "recipes/hybrid/recover.yaml")[0]

    yield "unmodified", teacher
    yield f"SwiftKV {form.title}, the head as copied", copied
    yield f"SwiftKV {form.title}, the head trained again", lambda: train(f"{form.name}-head-again", copied())


def passages(lab):
    """Files of passages that no run has read, from equal distances."""
    text = HELD_OUT.read_text()
    for i in range(N_PROMPTS):
        at = i * (len(text) - PROMPT_CHARACTERS) // N_PROMPTS
        path = lab.work / f"hybrid/passage-{i}.txt"
        path.write_text(text[at:at + PROMPT_CHARACTERS])
        yield path


def answer_words(lab, model, path, source, choice=()):
    return ["generate", model, "--file", path, "--threads", lab.threads, "-n", ANSWER, "--ignore-eos", "--json", "--speculate", source, *choice]


def answers(lab, model, source, choice):
    """What the model said to each passage, drafted by `source`."""
    for path in passages(lab):
        yield lab.ask(*answer_words(lab, model, path, source, choice))


def right_drafts(said):
    """Drafted tokens, those that were right, and all tokens of the answers."""
    drafts = [n for answer in said for n in answer.get("drafts", [])]
    return sum(drafts[::2]), sum(drafts[1::2]), sum(len(answer["ids"]) for answer in said)


def head_rows(lab, title, model):
    """For each way to choose: how often the first drafted token is right; drafts of four tokens; those of the defaults."""
    for name, choice in CHOICES:
        first, four, usual = (right_drafts(list(answers(lab, model, source, choice))) for source in ("mtp:1,0", "mtp:4,0", "mtp"))
        yield [title, name, percent(first[1] / first[0]), f"{four[0]}, {four[1]}", f"{four[2] / (four[2] - four[1]):.2f}", f"{usual[0]}, {usual[1]}"]


def heads(lab):
    base = small_base(lab, "hybrid")
    if not base:
        return
    rows = [row for title, make in headed_forms(lab, base) if lab.wants(title) for row in head_rows(lab, title, make())]
    head = ["model", "answers", "first right, %", "`mtp:4,0`: drafted, right", "tokens a step", "`mtp`: drafted, right"]
    lab.show("hybrid heads", head, rows, lambda shown: f"""## A head that drafts

{by_command("heads", "unmodified")} The head of `--speculate mtp`, made by `swiftkv train --recipe recipes/hybrid/head.yaml`: 150 steps on the
model's own distribution two tokens ahead. {N_PROMPTS} passages of {PROMPT_CHARACTERS} characters that no run has read, and {ANSWER} tokens of answer
to each (`swiftkv generate --json`). `first right` drafts one token at every step (`mtp:1,0`). `mtp:4,0` drafts four
whatever their probability, and `tokens a step` counts those of the answers for each step of the model. `mtp` drafts as
long as the head is sure by 0.4, which a model of this perplexity seldom is.

{shown}
""")


def head_speed(lab):
    """Tokens a second, with drafts and without, in turns; only an idle machine can say."""
    base = small_base(lab, "hybrid")
    if not base:
        return
    rows, n_turns = [], 5
    for title, make in headed_forms(lab, base):
        if not lab.wants(title):
            continue
        model, best = make(), {}
        for turn in range(n_turns):
            for source in SOURCES if turn % 2 == 0 else SOURCES[::-1]:
                said = [json.loads(lab.run(*answer_words(lab, model, path, source)).strip()) for path in passages(lab)]
                spent = sum(len(answer["ids"]) / answer["decode_tok_s"] for answer in said)
                best[source] = min(best.get(source, spent), spent)
        rows.append([title, f"{N_PROMPTS * ANSWER / best['none']:.0f}",
                     *(f"{best['none'] / best[source]:.2f}" for source in SOURCES[1:])])
    lab.show("hybrid speed", ["model", "plain, tokens/s", *(f"`{source}`, times" for source in SOURCES[1:])], rows, lambda shown: f"""## What its drafts gain

`tools/results/make_results.py head-speed`, on an idle machine: the greedy answers above, {lab.threads} threads, the best of {n_turns}
turns that take the sources one after another. Above 1 is faster than without drafts.

{shown}
""")


SECTIONS = {"others": others, "family": family, "mixture": mixture, "hybrid": hybrid, "heads": heads, "head-speed": head_speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "results")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="processes of a recovery (mpirun), which share the threads")
    parser.add_argument("--jobs", type=int, default=2, help="evaluations at a time, which share the threads")
    parser.add_argument("--row", metavar="TEXT", help="measure and print only the rows with this in their title")
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    args = parser.parse_args()
    args.build, args.work = args.build.resolve(), args.work.resolve()
    lab = Lab(args)
    for name in args.sections or [name for name in SECTIONS if name != "head-speed"]:
        SECTIONS[name](lab)


if __name__ == "__main__":
    main()
