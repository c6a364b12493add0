#!/usr/bin/env python3
"""Tables of docs/results/speculation.md: what drafts gain, and what their acceptance allows.

    bench/speculation.py [--swiftkv PROGRAM] [--work DIR] [--docs N] [--weights TYPE] [--exit-words W,...]
        [--llama DIR] STAGE ...

    tasks    models/mini/kv6 behind 2000 tokens: documents of copy, edit, log and report, and books; the
             drafts are kept in DIR for the stages below
    long     the same for answers of 160 tokens
    words    tasks and long (--only long-copy ...), drafted by the exit head: the whole one, and those of
             --exit-words tokens, the most frequent of other documents' answers, and for long of other pages
    shapes   the shape of llama-3.2-1b behind 2048 tokens, which repeats the drafts of the stage tasks: the
             whole model, SwiftKV, SwiftKV with each source (SwiftKV's Figure 7)
    turns    a shape (--shape) that repeats those drafts for --seconds, all variants by short turns in one
             process (bench_drafts): SwiftKV, the text, the exit head, and one of --exit-words tokens
    snapkv   SnapKV with and without drafts behind 2048, 4096 and 8000 tokens (SnapKV, Figure 9)
    server   1, 4 and 16 clients
    llama    llama.cpp's lookup and draft-model programs in DIR beside this engine, with a GGUF file
    pair     llama.cpp's server from the wheel of xllamacpp (--wheel PYTHON has it) beside this engine, both with
             the files --gguf and --draft, on the texts of the stage long

Each prints a table. What is allowed follows from the drafts of the run and the measured cost of a step
of k rows: a draft from text costs nothing, one from the exit its row's share of the layers below l and
of the head. Nothing else should run on the machine meanwhile.
"""

import argparse
import itertools
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
KV6 = ROOT / "models/mini/kv6"
TEXTS = ROOT.parent / "shared/assets/text"
TASKS = ("copy", "edit", "log", "report")
BOOKS = ("GrimmsFairyTales", "moby-dick", "war-and-peace")
ROWS = (1, 2, 3, 5, 9, 13)
GEN = 65  # tokens of an answer of a shape
# The head's share of a step's weights, where half of the layers are below l; tokens; and l.
HEAD = {"mini": 0.09, "llama-3.2-1b": 0.21, "llama-3.1-8b": 0.065}
VOCAB = {"mini": 3072, "llama-3.2-1b": 128256, "llama-3.1-8b": 128256}
LAYERS = {"llama-3.2-1b": 8, "llama-3.1-8b": 16}


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def lines(out):
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def pairs(drafts):
    return list(zip(drafts[::2], drafts[1::2]))


class Bench:
    """Steps of random prompts, measured by `swiftkv bench`."""

    def __init__(self, args, *model):
        self.args = args
        self.words = [args.swiftkv, "bench", *model, "--threads", 2, "--json"]

    def replay(self, drafts):
        path = self.args.work / "replay.json"
        path.write_text(json.dumps([n for pair in drafts for n in pair]))
        return "--replay", path

    def said(self, *words):
        return lines(run([*self.words, *words]))

    def row_costs(self, prompt, gen=61, passes=1):
        """Milliseconds of a step of k rows, for each k of ROWS: the best of several passes."""
        costs = {}
        for k in ROWS * passes:
            words = ["--speculate", f"text:{k - 1}", *self.replay([(k - 1, k - 1)])] if k > 1 else []
            steps = max(4, (gen - 1) // k)
            said = self.said("--prompt", prompt, "--gen", steps * k + 1, "--repeat", 1, *words)[0]
            costs[k] = min(costs.get(k, 1e9), 1e3 * k / said["decode_tok_s"])
        return costs


def cost(costs, k):
    """Between those that were measured, a line."""
    below = max(n for n in costs if n <= k)
    above = min((n for n in costs if n >= k), default=below)
    share = (k - below) / (above - below) if above > below else 0
    return costs[below] + share * (costs[above] - costs[below])


def used(drafts, n_tokens):
    """The drafts that a run of n_tokens repeats."""
    for n, right in itertools.cycle(drafts):
        if n_tokens == 0:
            return
        n = min(n, n_tokens - 1)
        yield n, min(right, n)
        n_tokens -= 1 + min(right, n)


def allowed(drafts, costs, source, head, exit_share=1):
    """Speed over plain decoding that these drafts allow; exit_share: tokens of the exit head, of all."""
    spent = tokens = 0
    part = (1 - head) / 2 + head  # the layers from l on and the head
    for n, right in drafts:
        tokens += 1 + right
        if source == "text":
            spent += cost(costs, 1 + n)
        else:  # the layers below l and the exit head for each row
            spent += (1 + n) * ((1 - head) / 2 + head * exit_share) * costs[1] + part * cost(costs, 1 + n)
    return tokens * costs[1] / spent


# ---- tasks ----


def generate(args, prompt, source, more=(), model=KV6):
    path = args.work / "prompt.txt"
    path.write_text(prompt)
    words = [args.swiftkv, "generate", model, "--file", path, "--threads", 2, "--weights", args.weights, "--json", *more]
    return lines(run([*words, "--parse-special", "--speculate", source]))[0]


def task_prompts(args, task):
    out = run([args.swiftkv, "documents", "--tasks", f"{task}=1", "--evaluation", "--tokens-min", 1900, "--tokens-max", 2000,
               "--vocab", ROOT / "models/mini/base", "--count", args.docs, "--seed", 7])
    return [f"<|begin|><|user|>{d['prompt']}<|end|><|assistant|>" for d in lines(out)]


def book_prompts(args, book):
    text = (TEXTS / f"{book}.txt").read_text(errors="replace")
    return [text[start:start + 6000] for start in range(50000, 50000 + 40000 * args.docs, 40000)]


def record(rng, i):
    return f"- item: part {rng.randrange(100, 999)}\n  shelf: {rng.choice('ABCDEF')}{i % 9 + 1}\n  count: {rng.randrange(2, 90)}\n  state: {rng.choice(('new', 'used', 'sold'))}\n"


def log_line(rng, i):
    return f"12:{i // 60 % 60:02}:{i % 60:02} node {rng.randrange(1, 4)} job {rng.randrange(10, 40)} {rng.choice(('started', 'finished', 'failed'))} after {rng.randrange(1, 9)} seconds\n"


def long_prompts(args, kind):
    """Texts that the model goes on with for long: a passage that begins again, as it was or with other
    names, lines of a log, records of a report."""
    prompts = []
    for i in range(args.docs):
        rng = random.Random(i)
        if kind in ("log", "report"):
            make, n = (log_line, 4800) if kind == "log" else (record, 4000)
            prompts.append("".join(make(rng, k) for k in range(400))[:n])
            continue
        passage = book_prompts(args, BOOKS[i % len(BOOKS)])[i][:5200]
        again = passage[:500]
        if kind == "edit":
            for old, new in ((" the ", " that "), (" he ", " she "), (" his ", " her ")):
                again = again.replace(old, new)
        prompts.append(f"{passage}\n\n{again}")
    return prompts


def tasks(args):
    more = ("-n", 100, "--ignore-eos")
    speeds(args, [*((task, task_prompts(args, task), ()) for task in TASKS if task in args.only),
                  *((book, book_prompts(args, book), more) for book in BOOKS if book in args.only)])


def long(args):
    speeds(args, [(kind, long_prompts(args, kind), ("-n", 160, "--ignore-eos")) for kind in TASKS if kind in args.only], keep=False)


def speeds(args, asked, keep=True):
    """A row of the table for each (name, prompts, words of the program)."""
    costs = Bench(args, KV6, "--weights", args.weights).row_costs(2000, gen=401, passes=5)
    print(f"Milliseconds of a step of {', '.join(map(str, ROWS))} rows: {', '.join(f'{costs[k]:.3f}' for k in ROWS)}\n")
    rows, kept = [], {source: [] for source in args.sources}
    for name, prompts, more in asked:
        spent, drafts = dict.fromkeys(args.sources, 0.0), {source: [] for source in args.sources}
        tokens = 0
        for prompt in prompts:
            best, answers, found = dict.fromkeys(args.sources, 1e9), set(), {}
            for _ in range(args.turns):
                for source in args.sources:
                    said = generate(args, prompt, source, more)
                    best[source] = min(best[source], 1 / said["decode_tok_s"])
                    answers.add(tuple(said["ids"]))
                    found[source] = pairs(said.get("drafts", []))
            assert len(answers) == 1, f"{name}: answers differ"
            n = len(said["ids"])
            tokens += n
            for source in args.sources:
                spent[source] += best[source] * n
                drafts[source] += found[source]
        row = [name, str(tokens), f"{tokens / spent['none']:.0f}" if spent["none"] else ""]
        for source in args.sources[1:]:
            d = drafts[source]
            row += [f"{sum(n for n, _ in d)}, {sum(r for _, r in d)}", f"{spent['none'] / spent[source]:.2f}"]
            if source in ("text", "self"):
                row.append(f"{allowed(d, costs, source, HEAD['mini']):.2f}" if d else "")
            if name in TASKS:
                kept[source] += d
        rows.append(row)
        if keep:
            (args.work / "drafts.json").write_text(json.dumps(kept))
    head = ["", "tokens", "plain, tokens/s"]
    for source in args.sources[1:]:
        head += [f"{source}: drafted, right", "times", *(["allowed"] if source in ("text", "self") else [])]
    table(head, rows)


# ---- shapes ----


def recorded(args):
    path = args.work / "drafts.json"
    if not path.exists():
        sys.exit("run the stage 'tasks' first: it records the drafts")
    return {source: [tuple(pair) for pair in d] for source, d in json.loads(path.read_text()).items()}


def shapes(args):
    drafts = recorded(args)
    shape = ("--preset", "llama-3.2-1b", "--weights", args.weights)
    whole, swift = Bench(args, *shape), Bench(args, *shape, "--kv-layers", 8)
    gen = ("--prompt", 2048, "--gen", GEN, "--repeat", 1)
    runs, costs = {}, {}
    for _ in range(args.rounds):  # in turns: what memory gives is not steady
        turn = {"the whole model": whole.said(*gen)[0], "SwiftKV": swift.said(*gen)[0]}
        for source, form in (("text", "text:31"), ("self", "self:31,0")):
            turn[f"SwiftKV, {source}"] = swift.said(*gen, "--speculate", form, *swift.replay(drafts[source]))[0]
        for k, ms in swift.row_costs(2048).items():
            costs[k] = min(ms, costs.get(k, ms))
        costs[1] = min(costs[1], 1e3 / turn["SwiftKV"]["decode_tok_s"])
        for name, said in turn.items():
            if name not in runs or runs[name]["decode_tok_s"] < said["decode_tok_s"]:
                runs[name] = said
    print(f"Milliseconds of a step of {', '.join(map(str, ROWS))} rows: {', '.join(f'{costs[k]:.1f}' for k in ROWS)}\n")
    rows, plain = [], runs["SwiftKV"]["decode_tok_s"]
    for name, said in runs.items():
        source = name.partition(", ")[2]
        most = f"{allowed(list(used(drafts[source], GEN - 1)), costs, source, HEAD['llama-3.2-1b']):.2f}" if source else ""
        speed = said["decode_tok_s"]
        rows.append([name, f"{said['ttft_ms']:.0f}", f"{1e3 / speed:.1f}", f"{speed:.1f}", f"{speed / plain:.2f}", most])
    table([args.weights, "first token, ms", "ms a token", "tokens/s", "times SwiftKV", "allowed"], rows)


def turns(args):
    """All variants in one process: a turn lasts some seconds, so its ratios are of one state of the machine."""
    drafts, n_words = recorded(args), args.exit_words[0] if args.exit_words else 0
    flat = {source: ",".join(str(n) for pair in drafts[source] for n in pair) for source in ("text", "self")}
    words_of = [args.swiftkv.parent / "bench/bench_drafts", args.shape, LAYERS[args.shape], args.weights, args.prompt, n_words, flat["text"], flat["self"]]
    with subprocess.Popen([str(word) for word in words_of], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        end, got = time.monotonic() + args.seconds, []
        while time.monotonic() < end or not got:
            process.stdin.write("\n")
            process.stdin.flush()
            got.append(json.loads(process.stdout.readline()))
        process.stdin.close()
    print_turns(args, got, drafts, n_words)


def print_turns(args, got, drafts, n_words):
    costs = {k: middle([turn["rows"][str(k)] / turn["rows"]["1"] for turn in got]) for k in ROWS}
    plain = middle([turn["plain"] for turn in got])
    print(f"{len(got)} turns. A step of {', '.join(map(str, ROWS))} rows takes {', '.join(f'{costs[k]:.2f}' for k in ROWS)} of one of 1 row.\n")
    rows = [["plain", "", f"{plain:.1f}", "1.00", "", ""]]
    for name, source, share in (("text", "text", 1), ("self", "self", 1), ("cut", "self", n_words / VOCAB[args.shape])):
        if name not in got[0]:
            continue
        most = allowed(drafts[source], costs, source, HEAD[args.shape], share)
        ratios = [turn["plain"] / turn[name] for turn in got]
        d = drafts[source]
        rows.append([f"self of {n_words} tokens" if name == "cut" else name, f"{sum(n for n, _ in d)}, {sum(right for _, right in d)}",
                     f"{middle([turn[name] for turn in got]):.1f}", interval(ratios), f"{most:.2f}", f"{middle(ratios) / most:.2f}"])
    table([f"{args.shape}, {args.weights}", "drafted, right", "ms a token", "times", "allowed", "of it"], rows)
    if n_words:
        print("The cut head over the whole one:", interval([turn["self"] / turn["cut"] for turn in got]))


# ---- exit heads of the frequent tokens ----


def cut_models(args, text):
    """{tokens of the exit head: model}, the whole one first; the others are cut by the text."""
    models = {VOCAB["mini"]: KV6}
    for n in args.exit_words:
        models[n] = args.work / f"kv6-{text.stem}-{n}"
        if not models[n].exists():
            print(run([args.swiftkv, "transform", KV6, models[n], "--exit-words", n, "--text", text]), end="")
    return models


def words(args):
    answers, pages = args.work / "answers.jsonl", args.work / "pages.txt"
    answers.write_text(run([args.swiftkv, "documents", "--tasks", ",".join(f"{task}=1" for task in TASKS), "--tokens-min", 400,
                            "--tokens-max", 2000, "--vocab", ROOT / "models/mini/base", "--count", 400, "--seed", 11]))
    pages.write_text("\n".join((TEXTS / f"{book}.txt").read_text(errors="replace")[-200000:] for book in BOOKS))
    of_answers, of_pages = cut_models(args, answers), cut_models(args, pages)
    asked = [(task, task_prompts(args, task), (), of_answers) for task in TASKS if task in args.only]
    asked += [(f"{kind}, long", long_prompts(args, kind), ("-n", 160, "--ignore-eos"), of_pages) for kind in TASKS if f"long-{kind}" in args.only]
    rows = []
    for name, prompts, more, models in asked:
        spent, drafts, tokens = dict.fromkeys((0, *models), 0.0), {n: [] for n in models}, 0
        for prompt in prompts:
            best, said_ids, found = dict.fromkeys(spent, 1e9), set(), {}
            for _ in range(args.turns):
                for n in spent:
                    said = generate(args, prompt, "self" if n else "none", more, models.get(n, KV6))
                    best[n] = min(best[n], 1 / said["decode_tok_s"])
                    said_ids.add(tuple(said["ids"]))
                    found[n] = pairs(said.get("drafts", []))
            assert len(said_ids) == 1, f"{name}: answers differ"
            n_tokens = len(said_ids.pop())
            tokens += n_tokens
            for n in spent:
                spent[n] += best[n] * n_tokens
                if n:
                    drafts[n] += found[n]
        row = [name, str(tokens), f"{tokens / spent[0]:.0f}"]
        for n in models:
            row += [f"{sum(k for k, _ in drafts[n])}, {sum(k for _, k in drafts[n])}", f"{spent[0] / spent[n]:.2f}"]
        rows.append(row)
    table(["", "tokens", "plain, tokens/s", *(word for n in of_answers for word in (f"{n}: drafted, right", "times"))], rows)


def snapkv(args):
    """Plain steps, and drafts of four tokens that are all right."""
    bench = Bench(args, KV6, "--weights", args.weights, "--ctx", 8192, "--prompt", "2048,4096,8000", "--gen", 97, "--repeat", 1)
    best = {}
    for _ in range(args.rounds):
        for evict, drafted in itertools.product((False, True), (False, True)):
            words = ["--evict", "snapkv:1024,32,7"] if evict else []
            words += ["--speculate", "text:4", *bench.replay([(4, 4)])] if drafted else []
            ms = [1e3 / said["decode_tok_s"] for said in bench.said(*words)]
            best[evict, drafted] = [min(pair) for pair in zip(ms, best.get((evict, drafted), ms))]
    rows = []
    for evict, name in ((False, "all rows"), (True, "SnapKV")):
        rows += [[name + how, *(f"{ms:.3f}" for ms in best[evict, drafted])] for drafted, how in ((False, ""), (True, ", drafts"))]
        rows.append([name + ", times", *(f"{a / b:.2f}" for a, b in zip(best[evict, False], best[evict, True]))])
    table(["ms a token behind", "2048", "4096", "8000"], rows)


# ---- server ----


def ask_server(args, port, text, clients, source, seed):
    body = json.dumps({"speculate": source, "temperature": 0})
    return json.loads(run([args.swiftkv, "load", f"http://127.0.0.1:{port}", "--text", text, "--prompt", 1500, "--gen", 64, "--ignore-eos",
                           "--clients", clients, "--requests", 8 + 3 * clients, "--warmup", clients, "--seed", seed, "--extra-body", body, "--json"]))


def drafted_by(port):
    """Tokens that were drafted so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines() if re.match(r"[a-z_]*drafted_tokens_total\{", line))


def middle(values):
    return sorted(values)[len(values) // 2]


def interval(ratios):
    """The geometric mean of ratios and, by Student's t, the interval that holds it in 95 of 100 cases."""
    logs = [math.log(ratio) for ratio in ratios]
    n, mean = len(logs), sum(logs) / len(logs)
    if n < 3:
        return f"{math.exp(mean):.3f}"
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / (n - 1) / n) * (1.96 + 2.4 / (n - 1))
    return f"{math.exp(mean):.3f} ({math.exp(mean - error):.3f} to {math.exp(mean + error):.3f})"


def wait_for(url, name):
    """Until a server answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"{name} did not start")


def server(args):
    port = 18431
    words = [args.swiftkv, "serve", KV6, "--port", port, "--threads", 2, "--weights", args.weights, "--ctx", 2400, "--kv-tokens", 80000, "--no-prefix-cache"]
    text = args.work / "text.txt"
    text.write_text(args.text.read_text() if args.text else "\n".join(p for task in TASKS for p in task_prompts(args, task)))
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}", "the server")
        kept = args.work / "server.json"  # rounds of earlier calls count too
        rounds = json.loads(kept.read_text()) if kept.exists() else {}
        for clients in args.clients:
            for _ in range(args.rounds):  # in turns: what the machine gives is not steady; each round asks other prompts
                seed = len(rounds.setdefault(str(clients), []))
                order = args.sources if seed % 2 == 0 else args.sources[::-1]
                got = {}
                for source in order:
                    before = drafted_by(port)
                    said = ask_server(args, port, text, clients, source, seed)
                    got[source] = said["output_throughput"], said["mean_tpot_ms"], (drafted_by(port) - before) / said["total_output_tokens"]
                rounds[str(clients)].append(got)
                kept.write_text(json.dumps(rounds))
        rows = []
        for clients, done in rounds.items():
            none = [r[args.sources[0]] for r in done]
            row = [clients, str(len(done)), f"{middle([n[0] for n in none]):.0f}", f"{middle([n[1] for n in none]):.2f}"]
            for source in args.sources[1:]:
                row += [interval([r[source][0] / n[0] for r, n in zip(done, none)]), interval([n[1] / r[source][1] for r, n in zip(done, none)]), f"{sum(r[source][2] for r in done) / len(done):.2f}"]
            rows.append(row)
        table(["clients", "rounds", "plain, tokens/s", "TPOT, ms", *itertools.chain(*((f"{s}: throughput", f"{s}: TPOT", f"{s}: drafted a token") for s in args.sources[1:]))], rows)
    finally:
        process.terminate()
        process.wait()


# ---- llama.cpp ----


def speed_of(words):
    """The decoding speed that a program of llama.cpp prints."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    speeds = re.findall(r"decoded.*speed:\s*([\d.]+) t/s", said)
    if not speeds:
        sys.exit(f"{' '.join(map(str, words))}: no speed\n{said[-2000:]}")
    counts = [re.findall(rf"n_{name}\s*=\s*(\d+)", said) for name in ("drafted", "accept")]
    return float(speeds[-1]), [c[-1] if c else "" for c in counts]


def llama(args):
    """Steps of k rows behind 512 tokens, and a run of each engine on the same text."""
    ours = Bench(args, args.gguf).row_costs(512)
    theirs = {}
    for k in ROWS:
        words = [args.llama / "llama-bench", "-m", args.gguf, "-t", 2, "-fa", 1, "-r", 5, "-d", 512, "-o", "json"]
        said = json.loads(run([*words, *(("-p", k, "-n", 0) if k > 1 else ("-p", 0, "-n", 16))]))
        theirs[k] = 1e3 * k / said[-1]["avg_ts"]
    rows = [[name, *(f"{costs[k]:.1f}" for k in ROWS)] for name, costs in (("swiftkv, ms", ours), ("llama.cpp, ms", theirs))]
    rows += [[f"{name}, times plain when all drafts are right", *(f"{k * costs[1] / costs[k]:.2f}" for k in ROWS)]
             for name, costs in (("swiftkv", ours), ("llama.cpp", theirs))]
    table(["rows of a step", *map(str, ROWS)], rows)
    prompt = args.work / "prompt.txt"
    prompt.write_text((TEXTS / f"{BOOKS[0]}.txt").read_text()[50000:52000])
    plain, said = ({"decode_tok_s": 0}, {"decode_tok_s": 0})
    for _ in range(2):
        for source in ("none", "text"):
            words = [args.swiftkv, "generate", args.gguf, "--file", prompt, "--threads", 2, "--json", "-n", 64, "--ignore-eos"]
            got = lines(run([*words, "--speculate", source]))[0]
            if source == "none":
                plain = max(plain, got, key=lambda g: g["decode_tok_s"])
            else:
                said = max(said, got, key=lambda g: g["decode_tok_s"])
    common = ["-m", args.gguf, "-f", prompt, "-n", 64, "-t", 2, "--temp", 0, "-c", 2048, "-fa", "on"]
    speed, counts = speed_of([args.llama / "llama-lookup", *common])
    drafts = pairs(said["drafts"])
    rows = [["swiftkv, text", f"{plain['decode_tok_s']:.1f}", f"{said['decode_tok_s']:.1f}",
             f"{said['decode_tok_s'] / plain['decode_tok_s']:.2f}", f"{sum(n for n, _ in drafts)}, {sum(r for _, r in drafts)}"],
            ["llama-lookup", f"{1e3 / theirs[1]:.1f}", f"{speed:.1f}", f"{speed * theirs[1] / 1e3:.2f}", ", ".join(counts)]]
    if args.draft:
        speed, counts = speed_of([args.llama / "llama-speculative-simple", *common, "-md", args.draft])
        rows.append(["llama-speculative-simple", f"{1e3 / theirs[1]:.1f}", f"{speed:.1f}", f"{speed * theirs[1] / 1e3:.2f}", ", ".join(counts)])
    table(["", "plain, tokens/s", "with drafts", "times", "drafted, right"], rows)


# ---- a model and its smaller one, in both engines ----


class Wheel:
    """llama.cpp's server, for one way of drafting."""

    def __init__(self, args, port, *words):
        script = ROOT / "tools/results/llama_wheel_server.py"
        common = ["-m", args.gguf, "--port", port, "-t", 2, "-tb", 2, "-np", 1, "-c", 8192, "-fa", "on", "-b", 2048, "-ub", 512, "--cache-ram", 0]
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(args.work / f"llama-{port}.log", "w")
        self.process = subprocess.Popen([str(word) for word in (args.wheel, script, *common, *words)], stdout=self.log, stderr=self.log)
        wait_for(self.url, f"llama.cpp ({self.log.name})")

    def answer(self, prompt):
        """(seconds a token, drafted, right) of 160 tokens."""
        body = {"prompt": prompt, "n_predict": 160, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
        request = urllib.request.Request(f"{self.url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        said = json.load(urllib.request.urlopen(request, timeout=300))["timings"]
        return 1 / said["predicted_per_second"], said.get("draft_n", 0), said.get("draft_n_accepted", 0)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Own:
    """This engine, for one way of drafting; a process an answer."""

    def __init__(self, args, *words):
        self.path = args.work / "pair.txt"
        self.words = [args.swiftkv, "generate", args.gguf, "--file", self.path, "--threads", 2, "--json", "-n", 160, "--ignore-eos", *words]

    def answer(self, prompt):
        self.path.write_text(prompt)
        said = lines(run(self.words))[0]
        drafts = pairs(said.get("drafts", []))
        return 1 / said["decode_tok_s"], sum(n for n, _ in drafts), sum(r for _, r in drafts)

    def close(self):
        pass


def pair(args):
    """A row for each kind of text and way of drafting: over the same engine's plain decoding."""
    model = ("--draft", args.draft)
    engines = [("swiftkv, none", Own(args, "--speculate", "none")), ("swiftkv, text", Own(args, "--speculate", "text")),
               ("swiftkv, model", Own(args, "--speculate", "model", *model)), ("swiftkv, auto", Own(args, "--speculate", "auto", *model)),
               ("llama.cpp, none", Wheel(args, 18431)), ("llama.cpp, ngram-simple", Wheel(args, 18432, "--spec-type", "ngram-simple")),
               ("llama.cpp, draft-simple", Wheel(args, 18433, "--spec-type", "draft-simple", "-md", args.draft))]
    rows = []
    for kind in (k for k in TASKS if k in args.only):
        spent, counts, plain = {}, {}, 1.0
        for prompt in long_prompts(args, kind):
            best = {}
            for _ in range(args.turns):
                for name, engine in engines:
                    best[name] = min(best.get(name, (1e9, 0, 0)), engine.answer(prompt))
            for name, (seconds, n, right) in best.items():
                spent[name] = spent.get(name, 0) + seconds
                counts[name] = tuple(a + b for a, b in zip(counts.get(name, (0, 0)), (n, right)))
        for name, seconds in spent.items():
            plain = seconds if name.endswith("none") else plain
            rows.append([kind, name, f"{args.docs / seconds:.0f}", "{}, {}".format(*counts[name]), f"{plain / seconds:.2f}"])
    table(["text", "engine, drafts", "tokens/s", "drafted, right", "times"], rows)
    for _, engine in engines:
        engine.close()


STAGES = {"tasks": tasks, "long": long, "words": words, "shapes": shapes, "turns": turns, "snapkv": snapkv, "server": server, "llama": llama, "pair": pair}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swiftkv", type=pathlib.Path, default=ROOT / "build/swiftkv")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/speculation")
    parser.add_argument("--docs", type=int, default=4, help="documents of each task")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3, help="runs of each answer, of which the best counts")
    parser.add_argument("--only", type=lambda text: text.split(","), default=TASKS + BOOKS, help="rows of the stages tasks and long: copy, edit, log, report, names of books")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--exit-words", type=lambda text: [int(n) for n in text.split(",")], default=[], help="tokens of the cut exit heads")
    parser.add_argument("--shape", choices=LAYERS, default="llama-3.2-1b")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens before the answers of the stage turns")
    parser.add_argument("--seconds", type=float, default=60, help="of the stage turns")
    parser.add_argument("--llama", type=pathlib.Path, help="the folder of llama.cpp's programs")
    parser.add_argument("--wheel", type=pathlib.Path, help="a Python that has xllamacpp")
    parser.add_argument("--gguf", type=pathlib.Path, help="the model of the stages llama and pair")
    parser.add_argument("--draft", type=pathlib.Path, help="a GGUF file that drafts for it")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16], help="of the stage server")
    parser.add_argument("--text", type=pathlib.Path, help="what the stage server asks about, in place of the tasks' documents")
    parser.add_argument("--sources", type=lambda text: text.split(","), default=["none", "text", "self", "text+self", "auto"], help="the first is the plain one")
    parser.add_argument("stages", nargs="+", choices=STAGES, metavar="STAGE")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for stage in args.stages:
        STAGES[stage](args)


if __name__ == "__main__":
    main()
