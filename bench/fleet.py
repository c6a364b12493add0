#!/usr/bin/env python3
"""Real servers beside the simulator: docs/results/fleet.md.

    bench/fleet.py MODEL --trace CSV [--swiftkv PROGRAM] [--servers 1,2] [--rate R,...] [--seconds S]
                   [--length-scale X] [--costs FILE]

Measures what steps take on one thread, with as many measurements at once as there will be servers; then
runs the trace against that many servers of one thread each behind HAProxy, which gives every request to
the least busy one, and simulates the same. Prints both. Nothing else should run on the machine.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from own_servers import ROOT, free_port, wait_for

PROXY = """
defaults
    mode http
    option http-no-delay
    timeout connect 2s
    timeout client 600s
    timeout server 600s
frontend clients
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance leastconn
{servers}
"""


def measure_costs(args, n):
    words = [args.swiftkv, "bench", args.model, "--costs", "--threads", "1", "--prompt", str(args.context)]
    words += args.run.split()
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(n)]
    return [run.communicate()[0] for run in runs][0]


def run_servers(args, n, rate, folder):
    ports = [free_port() for _ in range(n + 1)]
    words = [args.swiftkv, "serve", args.model, "--threads", "1", "--no-prefix-cache", *args.run.split(),
             "--kv-tokens", str(args.kv_tokens), "--max-running", "64", "--ctx", "8192"]
    all_words = [words + ["--port", str(port)] for port in ports[1:]]
    servers = [subprocess.Popen(w, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for w in all_words]
    lines = "\n".join(f"    server s{i} 127.0.0.1:{port}" for i, port in enumerate(ports[1:]))
    config = pathlib.Path(folder) / "haproxy.cfg"
    config.write_text(PROXY.format(port=ports[0], servers=lines))
    proxy = subprocess.Popen(["haproxy", "-f", str(config)], stderr=subprocess.DEVNULL)
    try:
        for port, server in zip(ports[1:], servers):
            wait_for(port, server)
        words = [args.swiftkv, "load", f"localhost:{ports[0]}", "--trace", args.trace, "--rate", str(rate),
                 "--duration", str(args.seconds), "--length-scale", str(args.length_scale), "--ignore-eos",
                 "--vocab", "1000", "--json"]
        return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    finally:
        for process in (*servers, proxy):
            process.terminate()
        for process in (*servers, proxy):
            process.wait()


def simulate(args, costs, n, rate):
    words = [sys.executable, ROOT / "tools/simulate.py", costs, "--trace", args.trace, "--rate", str(rate), "--machines", str(n),
             "--duration", str(args.seconds), "--length-scale", str(args.length_scale), "--designs", "replicas",
             "--kv-tokens", str(args.kv_tokens), "--json"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--trace", required=True)
    parser.add_argument("--swiftkv", default=ROOT / "build/swiftkv")
    parser.add_argument("--servers", default="1,2")
    parser.add_argument("--rate", default="0.3")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--length-scale", type=float, default=0.1)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--kv-tokens", type=int, default=16384)
    parser.add_argument("--run", default="--weights int8", help="options of how the model runs")
    args = parser.parse_args()
    args.swiftkv = str(args.swiftkv)
    print("| servers | requests/s each | | TTFT p50 | p90 | p99 | TPOT p50 | p90 | p99 |\n|---|---|---|" + "---:|" * 6)
    with tempfile.TemporaryDirectory() as folder:
        for n in map(int, args.servers.split(",")):
            costs = pathlib.Path(folder) / f"costs{n}.json"
            costs.write_text(measure_costs(args, n))
            for each in map(float, args.rate.split(",")):
                real = run_servers(args, n, each * n, folder)
                drawn = simulate(args, str(costs), n, each * n)
                for name, of in (("measured", real), ("simulated", drawn)):
                    values = [of[f"{p}_{m}_ms"] for m in ("ttft", "tpot") for p in ("median", "p90", "p99")]
                    print(f"| {n} | {each} | {name} | " + " | ".join(f"{v:.1f}" for v in values) + " |", flush=True)
            print(costs.read_text(), file=sys.stderr)


main()
