#!/usr/bin/env python3
"""What a step of decoding takes on machines that nobody had at hand: the pool of threads (src/base/pool.c), thread by
thread, with the runs of a real step.

    taskset -c 0 build/bench/bench_pool llama-3.2-1b 64 1024 >64.txt      # a file for each number of threads
    tools/simulate_pool.py [--near NS] [--far NS] [--node GB/S] [--link GB/S] 64.txt ...

A file has the runs of a step: how many tasks they have for so many threads, and what these took on one thread of this
machine. The times of all files are brought to those of the fastest. The rest is a model:

    cache lines   a line that another core has written comes after --near ns, from another memory node after --far; writers
                  queue for it, readers are served one every SERVE ns; a core has MISSES misses on their way at once
    memory        a thread reads as fast as it did here, from another node at REMOTE of that; all threads of a node share
                  --node GB/s, and what crosses between two nodes --link GB/s in each direction
    nodes         one up to 32 threads, two from 64 on

Pools: "counter" is the pool as it was until 2026-11-26: every worker counts itself in and out of one number, and a list
of tasks is one for all threads. "flags" is the pool of today: a worker writes a line of its own, the caller reads them, and
a list is for eight threads. Pages: "mixed" has each page on either node, "placed" on that of the thread which reads it.
"""

import argparse
import heapq
import math
from functools import lru_cache

SERVE, MISSES, REMOTE, CLAIM = 10.0, 8, 0.7, 5.0
MEMORY_US = 20.0  # a run that takes longer on one thread reads memory


class Machine:
    def __init__(self, threads, args, core_gbs):
        self.n, self.near, self.far = threads, args.near, args.far
        self.nodes = 2 if threads >= 64 else 1
        self.node_gbs, self.link_gbs, self.core_gbs = args.node, args.link, core_gbs

    def node(self, i):
        return i * self.nodes // self.n

    def hop(self, a, b):
        return self.near if self.node(a) == self.node(b) else self.far

    def mean_hop(self):
        return (self.near + self.far) / 2 if self.nodes > 1 else self.near

    def slower(self, readers, pages):
        """What each of `readers` threads takes, in times of what a thread alone takes."""
        rate = readers * self.core_gbs
        if self.nodes == 1 or pages == "placed":
            return max(1.0, rate / (self.nodes * self.node_gbs))
        if pages == "mixed":  # half of the reads cross, in both directions
            alone = 0.5 + 0.5 / REMOTE
            return max(alone, rate / (2 * self.node_gbs), rate / (4 * self.link_gbs))
        return max(1 / REMOTE, rate / self.node_gbs, rate / 2 / self.link_gbs)  # one node


class Line:
    """A cache line: who wrote it last, and when the next writer may."""

    def __init__(self, machine, owner=0):
        self.machine, self.owner, self.free = machine, owner, 0.0

    def write(self, core, at):
        cost = self.machine.hop(core, self.owner) if core != self.owner else CLAIM
        self.owner, self.free = core, max(at, self.free) + cost
        return self.free


def deal(machine, kind, n_tasks, pool):
    """[tasks of each list], and the list that each thread begins with."""
    n = machine.n
    n_lists = n if kind == "stretches" else 1 if pool == "counter" else -(-n // 8)
    if kind == "stretches":
        lists = [n_tasks * (i + 1) // n - n_tasks * i // n for i in range(n)]
    else:
        lists = [(n_tasks + n_lists - 1 - i) // n_lists for i in range(n_lists)]
    return lists, [i * n_lists // n for i in range(n)]


def work(machine, begin, kind, n_tasks, task_ns, pool):
    """When each thread finds nothing more to do, where they begin at these times."""
    left, own = deal(machine, kind, n_tasks, pool)
    lines = [Line(machine) for _ in left]
    ends = [0.0] * machine.n
    heap = [(at, i, 0) for i, at in enumerate(begin)]
    heapq.heapify(heap)
    look = machine.mean_hop() / MISSES
    while heap:
        at, i, k = heapq.heappop(heap)
        if k == len(left):
            ends[i] = at
            continue
        which = (own[i] + k) % len(left)
        if left[which] > 0:
            left[which] -= 1
            heapq.heappush(heap, (lines[which].write(i, at) + task_ns, i, k))
        elif sum(left) == 0:  # no event but looks is to come
            ends[i] = at + (len(left) - k) * look
        else:
            heapq.heappush(heap, (at + look, i, k + 1))
    return ends


def run_ns(machine, kind, n_tasks, alone_ns, pool, pages):
    """Nanoseconds of one run of the pool."""
    n = machine.n
    task_ns = alone_ns / n_tasks
    if alone_ns > MEMORY_US * 1e3:
        task_ns *= machine.slower(min(n, n_tasks), pages)
    n_lists = len(deal(machine, kind, n_tasks, pool)[0])
    opened = n_lists * machine.mean_hop() / MISSES + machine.near
    seen = [opened] + [opened + machine.hop(0, i) + i * SERVE for i in range(1, n)]
    if pool == "counter":
        state = Line(machine)
        begin = [opened] + [state.write(i, seen[i]) for i in range(1, n)]
        ends = work(machine, begin, kind, n_tasks, task_ns, pool)
        order = sorted(range(n), key=ends.__getitem__)
        for i in order:
            out = state.write(i, ends[i])
        return max(out, ends[0]) + machine.mean_hop()
    begin = [opened] + [seen[i] + machine.hop(0, i) for i in range(1, n)]
    ends = work(machine, begin, kind, n_tasks, task_ns, pool)
    last = max(end + machine.hop(0, i) for i, end in enumerate(ends))
    return max(last, ends[0] + machine.near) + n * machine.mean_hop() / MISSES


class Record:
    """What bench_pool wrote."""

    def __init__(self, path):
        self.runs = []
        for line in open(path):
            words = line.split()
            if line.startswith("# weight_bytes"):
                self.n_bytes = int(words[2])
            elif line.startswith("#"):
                self.name, self.threads = line[2:].rsplit(", ", 1)[0], int(line.rsplit(", ", 1)[1].split()[0])
            else:
                self.runs.append((words[0], int(words[1]), float(words[2])))


def step_ms(machine, runs, pool, pages):
    @lru_cache(None)
    def grouped(kind, n_tasks, size):
        return run_ns(machine, kind, n_tasks, math.exp(size / 20) * 1e3, pool, pages)

    total = 0.0
    for kind, n_tasks, us in runs:
        if n_tasks <= 1 or us <= 0:
            total += us * 1e3
        else:  # runs that differ by less than 5 % are simulated once
            total += grouped(kind, n_tasks, round(20 * math.log(us)))
    return total * 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--near", type=float, default=60)
    parser.add_argument("--far", type=float, default=150)
    parser.add_argument("--node", type=float, default=200)
    parser.add_argument("--link", type=float, default=100)
    parser.add_argument("records", nargs="+")
    args = parser.parse_args()
    records = [Record(path) for path in args.records]
    records.sort(key=lambda r: r.threads)
    fastest = min(sum(us for _, _, us in r.runs) for r in records)
    for r in records:
        slower = sum(us for _, _, us in r.runs) / fastest
        r.runs = [(kind, n_tasks, us / slower) for kind, n_tasks, us in r.runs]
    first = records[0]
    reading = sum(us for kind, _, us in first.runs if kind == "stretches" and us > MEMORY_US)
    core_gbs = first.n_bytes * 1e-3 / reading
    serial = sum(us for _, n_tasks, us in first.runs if n_tasks <= 1) * 1e-3
    print(f"{first.name}: {fastest * 1e-3:.1f} ms on one thread, which reads {core_gbs:.1f} GB/s; {serial:.2f} ms are"
          " never shared\n")
    print("| threads, memory nodes | reading | counter, pages mixed | flags, mixed | flags, placed |"
          " flags, all on one node |\n|---|---:|---:|---:|---:|---:|")
    for r in records:
        machine = Machine(r.threads, args, core_gbs)
        ideal = r.n_bytes * 1e-6 / min(r.threads * core_gbs, machine.nodes * args.node)
        cells = [step_ms(machine, r.runs, *which) for which in
                 (("counter", "mixed"), ("flags", "mixed"), ("flags", "placed"), ("flags", "one"))]
        print(f"| {r.threads}, {machine.nodes} | {ideal:.2f} | " + " | ".join(f"{ms:.2f}" for ms in cells) + " |")


if __name__ == "__main__":
    main()
