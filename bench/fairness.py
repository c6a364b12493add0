#!/usr/bin/env python3
"""Ten short chats, alone and beside an agent's long prompt: docs/results/agents.md.

    bench/fairness.py MODEL [--tokens N] [--chats N] [--answer N] [--step N] [--options "..."]

Chats of 64 prompt tokens begin again as soon as they end, first alone and then while the server reads one prompt of
--tokens. Prints the times to the first token and between tokens of both, and how long the prompt took with and without
the chats. Nothing else should run on the machine.
"""

import json
import shlex
import statistics
import subprocess
import threading
import time
import urllib.request

from own_servers import free_port, parser_for, prompt_of, wait_for

SHORT = 64


def ask(port, ids, n_answer):
    """Seconds to the first token, and between tokens. With log-probabilities tokens without a text have events too."""
    body = json.dumps({"prompt": ids, "max_tokens": n_answer, "stream": True, "temperature": 0, "ignore_eos": True, "logprobs": 0})
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body.encode(),
                                     {"Content-Type": "application/json"})
    times = [time.monotonic()]
    with urllib.request.urlopen(request, timeout=900) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
    gaps = [b - a for a, b in zip(times, times[1:])]
    return gaps[0], gaps[1:]


def run_chats(port, args, seed, ends):
    """Chats one after the other, in --chats threads, until `ends()`."""
    firsts, gaps, lock = [], [], threading.Lock()

    def chat(i):
        for turn in range(10**6):
            first, others = ask(port, prompt_of(SHORT, seed + 1000 * i + turn), args.answer)
            with lock:
                firsts.append(first)
                gaps.extend(others)
            if ends():
                return

    threads = [threading.Thread(target=chat, args=(i,)) for i in range(args.chats)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return firsts, gaps


def row(name, firsts, gaps):
    values = [statistics.median(firsts), max(firsts), statistics.median(gaps), sorted(gaps)[len(gaps) * 99 // 100], max(gaps)]
    print(f"| {name} | {len(firsts)} | " + " | ".join(f"{1e3 * value:.0f}" for value in values) + " |", flush=True)


def main():
    args = parser_for(tokens=60000, chats=10, answer=32, step=50).parse_args()
    port = free_port()
    words = [args.swiftkv, "serve", args.model, "--port", str(port), "--ctx", str(args.tokens + 64), "--step-ms", str(args.step)]
    server = subprocess.Popen(words + shlex.split(args.options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        begin = time.monotonic()
        ask(port, prompt_of(args.tokens, 1), 2)
        alone = time.monotonic() - begin
        print("| chats | answers | TTFT p50, ms | most | gap p50, ms | p99 | most |\n|---|" + "--:|" * 6)
        until = time.monotonic() + min(alone, 20)
        row("alone", *run_chats(port, args, 10**6, lambda: time.monotonic() > until))
        took = []

        def agent():
            start = time.monotonic()
            ask(port, prompt_of(args.tokens, 2), 2)
            took.append(time.monotonic() - start)

        thread = threading.Thread(target=agent)
        thread.start()
        row("beside the prompt", *run_chats(port, args, 2 * 10**6, lambda: not thread.is_alive()))
        thread.join()
        print(f"\nThe prompt of {args.tokens} tokens: {alone:.1f} s alone, {took[0]:.1f} s beside the chats.")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
