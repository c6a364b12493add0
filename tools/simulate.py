#!/usr/bin/env python3
"""How many machines a trace of requests needs, or the load that a number of machines can take: docs/guides/load.md.

    swiftkv bench MODEL --costs >costs.json
    tools/simulate.py costs.json --trace FILE --goodput ttft:5000,tpot:200 [--machines N,...] [--rate R,...]

Replays the trace on simulated servers (simulated_fleet.py). With --rate and --machines it prints the latencies; with one of them it
finds the other at which the goals are met.
"""

import argparse
import json
import math
import sys

import simulated_fleet as fleet

FIRST_RATE = 0.05  # requests a second, by machine
HALVINGS, MACHINES_MOST = 6, 1 << 16
READER_SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75)


# ---- the command line ----


def number(low, high, kind=float):
    def read(text):
        value = kind(text)
        if not low <= value <= high or value == 0 and kind is float and low == 0:
            raise argparse.ArgumentTypeError(f"{text}: expected a number from {low:g} to {high:g}")
        return value

    read.__name__ = kind.__name__
    return read


def several(read):
    def read_all(text):
        return [read(word) for word in text.split(",")]

    read_all.__name__ = "list"
    return read_all


def goals(text):
    out = {}
    for word in text.split(","):
        name, _, value = word.partition(":")
        if name not in ("ttft", "tpot", "e2el"):
            raise argparse.ArgumentTypeError(f"{text}: expected goals like ttft:500,tpot:50,e2el:5000")
        out[name] = number(0, math.inf)(value)
    return out


def designs(text):
    names = text.split(",")
    if set(names) - set(fleet.DESIGNS):
        raise argparse.ArgumentTypeError(f"{text}: expected a list of {', '.join(fleet.DESIGNS)}")
    return names


def parse():
    size, above_0 = number(1, 1 << 24, int), number(0, 1e7)
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("costs", help="durations of steps, as `swiftkv bench --costs` prints them")
    p.add_argument("--trace", required=True, metavar="FILE", help="an Azure CSV or Mooncake JSONL trace")
    p.add_argument("--rate", type=several(above_0), metavar="R,...", help="requests a second; copies of the trace make them up")
    p.add_argument("--machines", type=several(number(1, MACHINES_MOST, int)), metavar="N,...", help="how many there are")
    p.add_argument("--goodput", type=goals, default={}, dest="goals", metavar="LIST",
                   help="milliseconds that a request may take: ttft:500,tpot:50,e2el:5000")
    p.add_argument("--share", type=number(0, 1), default=0.99, help="of the requests that have to meet the goals (0.99)")
    p.add_argument("--designs", type=designs, default=fleet.DESIGNS, metavar="LIST", help="replicas,store,readers")
    p.add_argument("--readers", type=size, help="of the machines, how many only read prompts (the best of six shares)")
    p.add_argument("--read-above", type=size, default=256, help="uncached tokens above which a reader reads a prompt (256)")
    p.add_argument("--kv-tokens", type=size, default=1 << 15, help="KV memory of a machine in tokens (32768)")
    p.add_argument("--max-running", type=number(1, 1024, int), default=64, help="most answers computed together (64)")
    p.add_argument("--step-ms", type=number(1, 60000), default=50, help="target time of a step (50)")
    p.add_argument("--duration", type=above_0, metavar="S", help="only requests of the first S seconds")
    p.add_argument("--length-scale", type=number(0, 1e3), default=1, metavar="X", help="multiplies the trace's lengths")
    p.add_argument("--link-gbs", type=above_0, default=1.25, help="network of a machine, 10^9 bytes a second (1.25)")
    p.add_argument("--store-gbs", type=above_0, default=1.25, help="network of the store, all its instances (1.25)")
    p.add_argument("--store-gb", type=above_0, default=64, help="memory of the store, 10^9 bytes (64)")
    p.add_argument("--latency-ms", type=above_0, default=0.5, help="until the first byte of a block (0.5)")
    p.add_argument("--seed", type=int, default=0, help="of the places where copies of the trace begin")
    p.add_argument("--json", action="store_true", help="print JSON")
    options = p.parse_args()
    if not (options.rate and options.machines) and not options.goals:
        p.error("without both --rate and --machines it looks for one of them, which needs --goodput")
    return options


# ---- looking ----


class Search:
    def __init__(self, options):
        self.o = options
        self.costs, self.trace = fleet.Costs(options.costs), fleet.read_trace(options.trace)

    def run(self, design, n_machines, n_readers, rate, stops):
        """One fleet at one rate. `stops`: it matters only whether the goals are met."""
        one = fleet.Fleet(self.costs, self.trace, self.o, design, n_machines, n_readers)
        out = one.run(rate, 1 - self.o.share if stops else 1.0)
        met = out["good"] >= self.o.share * out["requests"]
        return {"design": design, "machines": n_machines, "readers": n_readers, "met": met, "rate": rate, **out}

    def splits(self, design, n_machines):
        """The numbers of readers that are tried; 0 where the design has none."""
        if design != "readers" or self.o.readers:
            return [self.o.readers or 0] if design == "readers" else [0]
        wanted = {max(1, math.floor(share * n_machines + 0.5)) for share in READER_SHARES}
        return sorted(n for n in wanted if n < n_machines)

    def try_splits(self, design, n_machines, rate):
        """The first split that meets the goals, or the best one."""
        best = None
        for n_readers in self.splits(design, n_machines):
            one = self.run(design, n_machines, n_readers, rate, True)
            if one["met"]:
                return one
            if best is None or one["good"] > best["good"]:
                best = one
        return best

    def find_rate(self, design, n_machines):
        """The highest rate that the machines take: doubled until it is too much, then halved in between. A low rate may
        miss goals that a higher one meets, since it sees less of the trace."""
        low, high, best, tried = 0.0, FIRST_RATE * n_machines, None, None
        for i in range(64):
            if i and not tried["met"] and (low > 0 or i >= HALVINGS):
                break
            tried = self.try_splits(design, n_machines, high)
            if tried["met"]:
                best, low = tried, high
            if tried["met"] or low == 0:
                high *= 2
        high = high if low > 0 else FIRST_RATE * n_machines
        for _ in range(HALVINGS):
            rate = (low + high) / 2
            tried = self.try_splits(design, n_machines, rate)
            low, high, best = (rate, high, tried) if tried["met"] else (low, rate, best)
        return best or tried

    def find_machines(self, design, rate):
        low = 1 if design == "readers" else 0  # too few
        high, best = low + 1, None
        while best is None:
            tried = self.try_splits(design, high, rate)
            if tried["met"]:
                best = tried
            else:
                low, high = high, 2 * high
            if high > MACHINES_MOST:
                return tried
        while high - low > 1:
            tried = self.try_splits(design, (low + high) // 2, rate)
            if tried["met"]:
                best, high = tried, tried["machines"]
            else:
                low = tried["machines"]
        return best

    def outcomes(self):
        for design in self.o.designs:
            for n_machines in self.o.machines or [None]:
                for rate in self.o.rate or [0.0]:
                    if design == "readers" and n_machines == 1:
                        continue  # none would answer
                    if n_machines is None:
                        best = self.find_machines(design, rate)
                    elif not self.o.rate:
                        best = self.find_rate(design, n_machines)
                    else:
                        best = self.try_splits(design, n_machines, rate)
                    if best["met"] or (n_machines and self.o.rate):  # all numbers, whatever was stopped
                        best = self.run(design, best["machines"], best["readers"], best["rate"], False)
                    yield best


# ---- telling ----


def busiest(one):
    """The part with the least to spare."""
    parts = {"answering": "answering_busy", "reading": "reading_busy", "the store's network": "store_network",
             "a machine's network": "machine_network"}
    return max(parts, key=lambda name: one[parts[name]])


def print_table(outcomes, finds):
    print(f"{'design':9} {'machines':>8} {'readers':>7} {'requests/s':>10} {'good':>6} {'TTFT p50':>9} {'p99 ms':>9} "
          f"{'TPOT p50':>8} {'p99 ms':>8} {'cached':>6} {'busy':>6} {'read':>6} {'store':>6}")
    for one in outcomes:
        if finds and not one["met"]:
            print(f"{one['design']:9} {one['machines']:8}: no answer meets the goals")
            continue
        print(f"{one['design']:9} {one['machines']:8} {one['readers']:7} {one['request_rate']:10.3f} "
              f"{100 * one['good'] / max(1, one['requests']):5.1f}% {one['median_ttft_ms']:9.0f} {one['p99_ttft_ms']:9.0f} "
              f"{one['median_tpot_ms']:8.1f} {one['p99_tpot_ms']:8.1f} {100 * one['cached_share']:5.0f}% "
              f"{100 * one['answering_busy']:5.0f}% {100 * one['reading_busy']:5.0f}% {100 * one['store_network']:5.0f}%  "
              f"{busiest(one)}", flush=True)


def main():
    options = parse()
    try:
        outcomes = Search(options).outcomes()
        if options.json:
            shown = [{key: value for key, value in one.items() if key != "rate"} for one in outcomes]
            print(json.dumps(shown, indent=1))
        else:
            print_table(outcomes, not (options.rate and options.machines))
    except fleet.Refused as error:
        sys.exit(f"simulate: {error}")


if __name__ == "__main__":
    main()
