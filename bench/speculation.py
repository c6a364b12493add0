#!/usr/bin/env python3
"""Tables of docs/results/speculation.md: what drafts gain, and what their acceptance allows.

    bench/speculation.py [--swiftkv PROGRAM] [--work DIR] [--docs N] [--weights TYPE] [--llama DIR] STAGE ...

    tasks    models/mini/kv6 behind 2000 tokens: documents of copy, edit, log and report, and books; the
             drafts are kept in DIR for the stages below
    shapes   the shape of llama-3.2-1b behind 2048 tokens, which repeats those drafts: the whole model,
             SwiftKV, SwiftKV with each source (SwiftKV's Figure 7)
    snapkv   SnapKV with and without drafts behind 2048, 4096 and 8000 tokens (SnapKV, Figure 9)
    server   1, 4 and 16 clients
    llama    llama.cpp's lookup and draft-model programs in DIR beside this engine, with a GGUF file

Each prints a table. What is allowed follows from the drafts of the run and the measured cost of a step
of k rows: a draft from text costs nothing, one from the exit its row's share of the layers below l and
of the head. Nothing else should run on the machine meanwhile.
"""

import argparse
import itertools
import json
import pathlib
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
# The head's share of a step's weights, where half of the layers are below l.
HEAD = {"mini": 0.09, "llama-3.2-1b": 0.21}


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


def allowed(drafts, costs, source, head):
    """Speed over plain decoding that these drafts allow."""
    spent = tokens = 0
    part = (1 - head) / 2 + head  # layers below l and the head, or the layers from l on and the head
    for n, right in drafts:
        tokens += 1 + right
        if source == "text":
            spent += cost(costs, 1 + n)
        else:
            spent += (1 + n) * part * costs[1] + (part if n else (1 - head) / 2 + head) * cost(costs, 1 + n)
    return tokens * costs[1] / spent


# ---- tasks ----


def generate(args, prompt, source, more=()):
    path = args.work / "prompt.txt"
    path.write_text(prompt)
    words = [args.swiftkv, "generate", KV6, "--file", path, "--threads", 2, "--weights", args.weights, "--json", *more]
    return lines(run([*words, "--parse-special", "--speculate", source]))[0]


def task_prompts(args, task):
    out = run([args.swiftkv, "documents", "--tasks", f"{task}=1", "--evaluation", "--tokens-min", 1900, "--tokens-max", 2000,
               "--vocab", ROOT / "models/mini/base", "--count", args.docs, "--seed", 7])
    return [f"<|begin|><|user|>{d['prompt']}<|end|><|assistant|>" for d in lines(out)]


def book_prompts(args, book):
    text = (TEXTS / f"{book}.txt").read_text(errors="replace")
    return [text[start:start + 6000] for start in range(50000, 50000 + 40000 * args.docs, 40000)]


def tasks(args):
    costs = Bench(args, KV6, "--weights", args.weights).row_costs(2000, gen=401, passes=5)
    print(f"Milliseconds of a step of {', '.join(map(str, ROWS))} rows: {', '.join(f'{costs[k]:.3f}' for k in ROWS)}\n")
    rows, kept = [], {source: [] for source in args.sources}
    for name, prompts, more in itertools.chain(
            ((task, task_prompts(args, task), ()) for task in TASKS),
            ((book, book_prompts(args, book), ("-n", 100, "--ignore-eos")) for book in BOOKS)):
        spent, drafts = dict.fromkeys(args.sources, 0.0), {source: [] for source in args.sources}
        tokens = 0
        for prompt in prompts:
            best, answers, found = dict.fromkeys(args.sources, 1e9), set(), {}
            for _ in range(3):
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
                           "--clients", clients, "--requests", 12 + 4 * clients, "--warmup", clients, "--seed", seed, "--extra-body", body, "--json"]))


def middle(values):
    """The least, the median and the greatest."""
    values = sorted(values)
    return values[0], values[len(values) // 2], values[-1]


def server(args):
    port = 18431
    words = [args.swiftkv, "serve", KV6, "--port", port, "--threads", 2, "--weights", args.weights, "--ctx", 2400, "--kv-tokens", 40000, "--no-prefix-cache"]
    text = args.work / "text.txt"
    text.write_text(args.text.read_text() if args.text else "\n".join(p for task in TASKS for p in task_prompts(args, task)))
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        rows = []
        for clients in (1, 4, 16):
            pairs_of, plain = {source: [] for source in args.sources[1:]}, []
            for seed in range(args.rounds):  # in turns: what the machine gives is not steady; each round asks other prompts
                got = {source: ask_server(args, port, text, clients, source, seed) for source in args.sources}
                none = got[args.sources[0]]
                plain.append((none["output_throughput"], none["mean_tpot_ms"]))
                for source, said in list(got.items())[1:]:
                    pairs_of[source].append((said["output_throughput"] / none["output_throughput"], none["mean_tpot_ms"] / said["mean_tpot_ms"]))
            rows.append([str(clients), f"{middle(t for t, _ in plain)[1]:.0f}", f"{middle(m for _, m in plain)[1]:.2f}",
                         *("; ".join("{1:.2f} ({0:.2f} to {2:.2f})".format(*middle(column)) for column in zip(*pairs_of[source])) for source in pairs_of)])
        table(["clients", "plain, tokens/s", "TPOT, ms", *(f"{s}: throughput; TPOT" for s in args.sources[1:])], rows)
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


STAGES = {"tasks": tasks, "shapes": shapes, "snapkv": snapkv, "server": server, "llama": llama}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swiftkv", type=pathlib.Path, default=ROOT / "build/swiftkv")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/speculation")
    parser.add_argument("--docs", type=int, default=4, help="documents of each task")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--llama", type=pathlib.Path, help="the folder of llama.cpp's programs")
    parser.add_argument("--gguf", type=pathlib.Path, help="the model of the stage llama")
    parser.add_argument("--draft", type=pathlib.Path, help="a GGUF file that drafts for it in llama.cpp")
    parser.add_argument("--text", type=pathlib.Path, help="what the stage server asks about, in place of the tasks' documents")
    parser.add_argument("--sources", type=lambda text: text.split(","), default=["none", "text", "self", "text+self", "auto"], help="the first is the plain one")
    parser.add_argument("stages", nargs="+", choices=STAGES, metavar="STAGE")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for stage in args.stages:
        STAGES[stage](args)


if __name__ == "__main__":
    main()
