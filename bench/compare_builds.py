#!/usr/bin/env python3
"""Compares the speed of two builds of swiftkv on one model, in pairs that alternate:

    bench/compare_builds.py MODEL BEFORE/swiftkv AFTER/swiftkv [--options '--weights int8'] [--pairs 5]

A pair runs one build and then the other, in an order that changes from pair to pair, so that a machine whose speed
drifts slows both. Measured are tokens per second of 8 clients at a server, of a prompt and of decoding, and the seconds
from a server's start until /health says that it is ready. Printed are the medians of both builds and, of the ratios
after/before of all pairs, median, least and largest. A ratio above 1 is faster, also for the start. Run it on an
otherwise idle machine.
"""

import json
import shlex
import statistics
import subprocess
import time

from own_servers import free_port, parser_for, wait_for


def printed(command):
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def served(program, args, seed):
    """Tokens per second of the clients, and how many times a second the server could start."""
    port = free_port()
    begun = time.monotonic()
    words = [program, "serve", args.model, "--port", str(port), *shlex.split(args.options)]
    server = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        start = time.monotonic() - begun
        result = printed([program, "load", f"http://127.0.0.1:{port}", "--clients", str(args.clients), "--requests",
                          str(args.requests), "--prompt", str(args.prompt), "--gen", str(args.gen), "--ignore-eos",
                          "--warmup", str(args.clients), "--seed", str(seed), "--json"])
    finally:
        server.terminate()
        server.wait()
    return result["output_throughput"], 1 / start


def measure(program, args, seed):
    """figure -> its value, larger is better."""
    alone = printed([program, "bench", args.model, "--prompt", str(args.prompt), "--gen", str(args.gen), "--repeat", "1",
                     "--json", *shlex.split(args.options)])
    throughput, starts = served(program, args, seed)
    return {"served tokens/s": throughput, "prompt tokens/s": alone["prefill_tok_s"],
            "decoded tokens/s": alone["decode_tok_s"], "starts/s": starts}


def main():
    parser = parser_for(pairs=5, clients=8, requests=64, prompt=512, gen=256)
    parser.add_argument("before")
    parser.add_argument("after")
    args = parser.parse_args()
    pairs = []
    for i in range(args.pairs):
        found = {}
        for k in (0, 1) if i % 2 == 0 else (1, 0):
            found[k] = measure((args.before, args.after)[k], args, i)
        pairs.append((found[0], found[1]))
    print(f"{'':18}{'before':>10}{'after':>10}   after/before: median, least, largest")
    for name in pairs[0][0]:
        ratios = [after[name] / before[name] for before, after in pairs]
        before, after = (statistics.median(pair[k][name] for pair in pairs) for k in (0, 1))
        print(f"{name:18}{before:10.2f}{after:10.2f}   {statistics.median(ratios):.3f}, {min(ratios):.3f}, "
              f"{max(ratios):.3f}")


if __name__ == "__main__":
    main()
