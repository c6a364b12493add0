#!/usr/bin/env python3
"""What `serve --cache-shift` loses: answers to our tasks behind a first line that has changed.

    bench/shift_loss.py MODEL [--tasks stage:lookup,...] [--count 12] [--tokens 512] [--seed 1] [--kv bf16] [--lines 1]

Each document of `swiftkv documents --evaluation` is sent twice with another first line in front of it, of another
length, so that the second time all of it stands at other positions. That answer is compared with the expected one, on a
server that computes it and on one with --cache-shift, which takes the rows of the first time. --lines more lines stand
before the document both times, so that a longer text differs. Prints right answers, answers that are equal, the mean
difference of the first token's log-probability, and the share of prompt tokens that were taken.
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
    words = [args.swiftkv, "documents", "--evaluation", "--tasks", task, "--count", args.count, "--seed", args.seed,
             "--tokens-min", args.tokens * 3 // 4, "--tokens-max", args.tokens, "--vocab", args.model]  # fmt: skip
    done = subprocess.run(list(map(str, words)), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def heads(rng, n_lines):
    """Beginnings of different lengths for the two times that a document is sent."""
    word = lambda: "".join(rng.choice("abcdefghij") for _ in range(5))  # noqa: E731
    return [" ".join(word() for _ in range(n)) + "\n" for _ in range(n_lines) for n in (3, 7)]


def run(args, tasks, shift):
    """By task: (prompt tokens, tokens taken, text, log-probability of its first token, expected) of each document."""
    port = free_port()
    words = [args.swiftkv, "serve", args.model, "--port", port, "--ctx", 2 * args.tokens + 512, "--kv", args.kv,
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


def main():
    parser = parser_for(count=12, tokens=512, seed=1, lines=1)
    parser.add_argument("--tasks", default="lines,kv,needle,table,copy,report")
    parser.add_argument("--kv", default="bf16")
    args = parser.parse_args()
    tasks = args.tasks.split(",")
    exact, shifted = run(args, tasks, False), run(args, tasks, True)
    print(f"{pathlib.Path(args.model).name}, --kv {args.kv}, {args.count} documents of up to {args.tokens} tokens a task")
    print("| task | computed | taken | equal answers | log-probability | share taken |\n|---|--:|--:|--:|--:|--:|")
    for task in tasks:
        a, b = exact[task], shifted[task]
        right = [100 * sum(r[2] == r[4] for r in rows) / len(rows) for rows in (a, b)]
        equal = 100 * sum(x[2] == y[2] for x, y in zip(a, b)) / len(a)
        moved = sum(abs(x[3] - y[3]) for x, y in zip(a, b)) / len(a)
        taken = 100 * sum(r[1] for r in b) / sum(r[0] for r in b)
        print(f"| {task} | {right[0]:.0f} % | {right[1]:.0f} % | {equal:.0f} % | {moved:.3f} | {taken:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
