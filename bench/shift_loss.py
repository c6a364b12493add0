#!/usr/bin/env python3
"""What `serve --cache-shift` loses: answers to our tasks behind a first line that has changed.

    bench/shift_loss.py MODEL [--tasks stage:lookup,...] [--count 12] [--tokens 512 | --run 256] [--seed 1] [--kv bf16,...]
                        [--lines 1]

Each document of `swiftkv documents --evaluation` is sent twice with another first line in front of it, of another
length, so that the second time all of it stands at other positions. That answer is compared with the expected one, on a
server that computes it and on one with --cache-shift, which takes the rows of the first time. --lines more lines stand
before the document both times, so that a longer text differs. Prints right answers, answers that are equal, the mean
difference of the first token's log-probability, and the share of prompt tokens that were taken. --run N takes documents
of little more than N tokens, of which a run of N or some pages more is taken. With several types of KV memory, and with
--run, there is one row a type, over all tasks.
"""

import json
import pathlib
import random
import subprocess
import urllib.request

from own_servers import free_port, parser_for, wait_for


def ask(port, prompt, n):
    body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "logprobs": 1, "stop": ["\n"]}
    message = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(message, timeout=600) as answer:
        return json.load(answer)


def documents(args, task):
    least, most = args.tokens * 3 // 4, args.tokens
    if args.run:  # and a page that the run does not fill; documents have up to a sixth less than the estimate
        least = (args.run + 64) * 6 // 5
        most = least + 60
    words = [args.swiftkv, "documents", "--evaluation", "--tasks", task, "--count", args.count, "--seed", args.seed,
             "--tokens-min", least, "--tokens-max", most, "--vocab", args.model]  # fmt: skip
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def heads(rng, n_lines):
    """Beginnings of different lengths for the two times that a document is sent."""
    word = lambda: "".join(rng.choice("abcdefghij") for _ in range(5))  # noqa: E731
    return [" ".join(word() for _ in range(n)) + "\n" for _ in range(n_lines) for n in (3, 7)]


def run(args, kv, tasks, shift):
    """By task: (prompt tokens, tokens taken, text, log-probability of its first token, expected) of each document."""
    port = free_port()
    words = [args.swiftkv, "serve", args.model, "--port", port, "--ctx", 2 * max(args.tokens, args.run) + 512, "--kv", kv,
             *(["--cache-shift"] if shift else []), *args.options.split()]  # fmt: skip
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    out = {}
    try:
        wait_for(port, process)
        for task in tasks:
            rng, out[task] = random.Random(args.seed), []
            for d in documents(args, task):
                lines = heads(rng, args.lines)
                ask(port, "".join(lines[::2]) + d["prompt"], 1)
                answer = ask(port, "".join(lines[1::2]) + d["prompt"], 32)
                usage, choice = answer["usage"], answer["choices"][0]
                logprobs = (choice["logprobs"]["token_logprobs"] or [0])[0]
                out[task].append((usage["prompt_tokens"], usage["prompt_tokens_details"].get("shifted_tokens", 0),
                                  choice["text"].strip().rstrip("."), logprobs, d["answer"].strip().rstrip(".")))  # fmt: skip
    finally:
        process.terminate()
        process.wait()
    return out


def row(name, a, b):
    """Of documents computed, and taken over."""
    right = [100 * sum(r[2] == r[4] for r in rows) / len(rows) for rows in (a, b)]
    equal = 100 * sum(x[2] == y[2] for x, y in zip(a, b)) / len(a)
    moved = sum(abs(x[3] - y[3]) for x, y in zip(a, b)) / len(a)
    taken = 100 * sum(r[1] for r in b) / sum(r[0] for r in b)
    print(f"| {name} | {right[0]:.0f} % | {right[1]:.0f} % | {equal:.0f} % | {moved:.3f} | {taken:.0f} % |", flush=True)


def main():
    parser = parser_for(count=12, tokens=512, run=0, seed=1, lines=1)
    parser.add_argument("--tasks", default="lines,kv,needle,table,copy,report")
    parser.add_argument("--kv", default="bf16")
    args = parser.parse_args()
    tasks, types = args.tasks.split(","), args.kv.split(",")
    length = f"with a run of {args.run}" if args.run else f"of up to {args.tokens}"
    print(f"{pathlib.Path(args.model).name}, --kv {args.kv}, {args.count} documents {length} tokens a task")
    print("| | computed | taken | equal answers | log-probability | share taken |\n|---|--:|--:|--:|--:|--:|", flush=True)
    for kv in types:
        exact, shifted = run(args, kv, tasks, False), run(args, kv, tasks, True)
        if args.run or len(types) > 1:
            row(kv, *(sum(rows.values(), []) for rows in (exact, shifted)))
        else:
            for task in tasks:
                row(task, exact[task], shifted[task])


if __name__ == "__main__":
    main()
