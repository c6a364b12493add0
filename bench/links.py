#!/usr/bin/env python3
"""Both forms of a block over links of several speeds: docs/results/fleet.md.

    bench/links.py MODEL [--options "..."] [--prompt N] [--rates 10gbit,1gbit] [--rounds N] [--limit S]

A store and two servers on hosts that are network namespaces; `tc tbf` bounds what the store sends. One server reads
prompts, the other finds them in the store. Prints the bytes that left the store and the time to the first token of the
second server. Needs root and iproute2. MODEL is a SwiftKV model. It ends after S seconds (85), whatever it is at. Nothing
else should run on the machine.
"""

import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from own_servers import ROOT, key_file, parser_for, prompt_of, store_command

sys.path.insert(0, str(ROOT / "tests/support"))

import hosts  # noqa: E402

PORT = 6379


def ask(address, port, method, path, body=None):
    connection = http.client.HTTPConnection(address, port, timeout=300)
    connection.request(method, path, json.dumps(body) if body else None)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def first_token(address, port, n, seed):
    """(seconds, tokens found)"""
    start = time.monotonic()
    answer = json.loads(ask(address, port, "POST", "/v1/completions", {"prompt": prompt_of(n, seed), "max_tokens": 1}))
    return time.monotonic() - start, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class HostServer:
    def __init__(self, args, host, key, form, store):
        words = [args.swiftkv, "serve", args.model, "--host", host.address, "--insecure", "--port", "8080", "--threads", "1",
                 "--cache-store", f"redis://{store.address}:{PORT}", "--cache-key-file", key, "--cache-store-timeout", "5",
                 "--cache-disk-form", form, *args.options.split()]
        self.address = host.address
        self.process = subprocess.Popen([*host.launch, *map(str, words)], stderr=subprocess.PIPE, text=True)
        while not (line := self.process.stderr.readline()).startswith("swiftkv: ready"):
            if not line:
                sys.exit("a server has ended")

    def written(self):
        return int(re.search(r"swiftkv_cache_store_written_total (\d+)", ask(self.address, 8080, "GET", "/metrics"))[1])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def shape(store, rate):
    subprocess.run(["tc", "-n", store.name, "qdisc", "del", "dev", "eth0", "root"], capture_output=True, check=False)
    subprocess.run(["tc", "-n", store.name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "1mb",
                    "latency", "50ms"], check=True)


def sent(store):
    said = subprocess.run([*store.launch, "cat", "/sys/class/net/eth0/statistics/tx_bytes"], capture_output=True, text=True)
    return int(said.stdout)


def measure(args, form, first, key, machines):
    """Lines of the table of one form; prompts from seed `first` on, since both forms have the same names."""
    store, one, other = machines
    reads, finds = (HostServer(args, host, key, form, store) for host in (one, other))
    rates = args.rates.split(",")
    for seed in range(len(rates) * args.rounds):
        first_token(one.address, 8080, args.prompt, first + seed)
    while reads.written() < len(rates) * args.rounds * ((args.prompt - 1) // 64):
        time.sleep(0.1)
    for i, rate in enumerate(rates):
        shape(store, rate)
        before = sent(store)
        found = [first_token(other.address, 8080, args.prompt, first + i * args.rounds + k) for k in range(args.rounds)]
        took, n_found = [t for t, _ in found], {n for _, n in found}
        print(f"{form}, {rate}: {(sent(store) - before) / args.rounds / 1e6:.1f} MB a prompt, first token after "
              f"{', '.join(f'{t:.2f}' for t in took)} s, median {statistics.median(took):.2f}; found {n_found}", flush=True)
    again = [first_token(other.address, 8080, args.prompt, first + seed)[0] for seed in range(args.rounds)]
    print(f"{form}, from memory: {', '.join(f'{t:.2f}' for t in again)} s", flush=True)
    for server in (reads, finds):
        server.stop()


def main():
    parser = parser_for(prompt=1056, rounds=2, limit=85)
    parser.add_argument("--rates", default="10gbit,1gbit")
    args = parser.parse_args()
    hosts.enter()
    # The first process of a namespace gets no signal that it does not handle; with it all others end.
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.alarm(args.limit)
    machines = [hosts.Host(name, i + 1) for i, name in enumerate(("store", "one", "other"))]
    store = store_command(PORT, "--bind", machines[0].address, "--protected-mode", "no", "--maxmemory", "2gb")
    with tempfile.TemporaryDirectory() as folder:
        key = key_file(folder)
        process = subprocess.Popen([*machines[0].launch, *store], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        for i, form in enumerate(("kv", "rows")):
            measure(args, form, 100 * i, key, machines)
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
