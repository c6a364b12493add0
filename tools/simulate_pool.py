#!/usr/bin/env python3
"""What the pool of threads (src/base/pool.c) costs a step of decoding on machines that nobody had at hand.

    tools/simulate_pool.py [--threads 8,16,32,64,128] [--hop NS] [--far NS]

A step is a list of products; a product reads its bytes at what memory gives n threads. A cache line that is written
moves from core to core (--hop, across two sockets from 64 threads on --far), one after the other; lines that are only
read move at once. Every worker writes the pool's state twice a product (in and out), and claims tasks from its own
stretch, then from those of the others. "rmw" claims from empty stretches as from full ones; "look" reads first. The
last column has the weights of 64 threads and more on one of two memory nodes, as a file read by one thread leaves them.
"""

import argparse

MODELS = {"1B int8": (16, 1.24e9), "8B int8": (32, 8.0e9), "70B int4": (80, 40e9)}
PRODUCTS = 7  # runs of the pool a layer: norm, qkv, attention, o, norm, gate-up, down
CORE_GBS, SOCKET_GBS = 14.0, 200.0


def bandwidth(threads, one_node=False):
    sockets = 2 if threads >= 64 and not one_node else 1
    return min(threads * CORE_GBS, sockets * SOCKET_GBS)


def product(threads, work_ns, hop, look):
    """Nanoseconds of one run of the pool."""
    enter = [hop * i for i in range(threads)]  # the state's line passes from worker to worker
    done = [start + work_ns for start in enter]
    # Stretches are equal, so what is late began late: others take its tasks until all end together.
    even = sum(done) / threads
    ends = [max(start, even) for start in enter]
    if look:  # a missed line each, several on their way at once
        scan = threads * hop / 8
    else:  # every line is written by everybody, one after the other
        scan = threads * hop
    ends = sorted(end + scan for end in ends)
    at = 0.0
    for end in ends:  # and out
        at = max(at, end) + hop
    return at


def step(model, threads, hop, look, one_node=False):
    layers, n_bytes = MODELS[model]
    n = layers * PRODUCTS + 1
    work = n_bytes / bandwidth(threads, one_node) / n
    return n * product(threads, work, hop, look) * 1e-6, n_bytes / bandwidth(threads, one_node) * 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="8,16,32,64,128")
    parser.add_argument("--hop", type=float, default=40)
    parser.add_argument("--far", type=float, default=100)
    args = parser.parse_args()
    print("| model | threads | memory alone, ms | rmw | look | look, weights on one node |\n|---|---:|---:|---:|---:|---:|")
    for model in MODELS:
        for threads in map(int, args.threads.split(",")):
            hop = args.far if threads >= 64 else args.hop
            rmw, ideal = step(model, threads, hop, False)
            look, _ = step(model, threads, hop, True)
            node, _ = step(model, threads, hop, True, one_node=True)
            print(f"| {model} | {threads} | {ideal:.2f} | {rmw:.2f} | {look:.2f} | {node:.2f} |")


if __name__ == "__main__":
    main()
