#!/usr/bin/env python3
"""What long prompts cost answers that are under way, with a reader and without, and what of it costs what:
docs/results/fleet.md.

    bench/readers.py MODEL [--options "..."] [--prompt N] [--prompts N] [--answers N] [--seconds S] [--parts ...]
                     [--under COMMAND]

Servers of one thread each: one that answers, pinned to processor 1, and a reader, pinned to processor 0 together with
the store and this script. Clients stream answers all the time, through these parts one after the other:

    idle      nothing beside them
    spin      a loop without memory on processor 0
    copy      a loop on processor 0 that copies 64 MiB over and over
    elsewhere the reader reads prompts, which nobody loads
    stored    the same prompts, now in the store: pages are loaded, the last tokens computed
    known     the same once more, now in memory: the last tokens are computed
    reader    other prompts through the reader: all of it together
    own       the same without a reader, which is another server

"idle" is measured before and after each of them, since answers grow. Prints the time per token of the running answers
and how many times the idle time that is, and the times to the first token of the prompts. Only what is measured runs
under COMMAND. Nothing else should run on the machine.
"""

import http.client
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from own_servers import free_port, key_file, parser_for, prompt_of, store_command, wait_for

PARTS = ("spin", "copy", "elsewhere", "stored", "known", "reader")
HOGS = {"spin": "while True: pass",
        "copy": "a = bytearray(64 << 20); b = bytearray(64 << 20)\nwhile True: a[:] = b"}


def post(port, path, **body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"{path}: {response.status}: {response.read()}")
    return connection, response


def stream(port, prompt, n, times, stop):
    """Appends the moment of every token."""
    connection, response = post(port, "/v1/completions", prompt=prompt, max_tokens=n, temperature=0, ignore_eos=True,
                                stream=True, logprobs=0)
    while not stop.is_set() and (line := response.readline()):
        if line.startswith(b"data: {"):
            times.append(time.monotonic())
    connection.close()


class Answers:
    """Those under way."""

    def __init__(self, args):
        self.stop = threading.Event()
        self.times = [[] for _ in range(args.answers)]
        self.threads = [threading.Thread(target=stream, args=(args.port, prompt_of(64, 1 + i), 8000, one, self.stop))
                        for i, one in enumerate(self.times)]
        for thread in self.threads:
            thread.start()
        while min(map(len, self.times)) < 4:
            time.sleep(0.01)

    def during(self, action):
        """(ms between tokens while it went on, what it returns)"""
        start = time.monotonic()
        value = action()
        end = time.monotonic()
        kept = [[t for t in one if start <= t <= end] for one in self.times]
        return [1e3 * (b - a) for one in kept for a, b in zip(one, one[1:])], value

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def long_prompts(args, seed):
    """Seconds to their first tokens, one after the other."""
    took = []
    for i in range(args.prompts):
        start = time.monotonic()
        connection, response = post(args.port, "/v1/completions", prompt=prompt_of(args.prompt, seed + i), max_tokens=1,
                                    temperature=0)
        response.read()
        connection.close()
        took.append(time.monotonic() - start)
    return took


def read_elsewhere(args, seed):
    took = []
    for i in range(args.prompts):
        start = time.monotonic()
        connection, response = post(args.reader, "/read", prompt=prompt_of(args.prompt, seed + i))
        if not response.read().endswith(b'{"done":true}\n'):
            sys.exit("the reader does not read")
        connection.close()
        took.append(time.monotonic() - start)
    return took


def beside(args, code):
    hog = subprocess.Popen([sys.executable, "-c", code])
    time.sleep(args.seconds)
    hog.kill()
    hog.wait()
    return []


def measure(args):
    signal.alarm(args.limit)  # it ends by itself: whoever runs it under a command must not have to kill that
    actions = {name: lambda code=code: beside(args, code) for name, code in HOGS.items()}
    actions |= {"elsewhere": lambda: read_elsewhere(args, 1000)}
    actions |= {name: lambda seed=seed: long_prompts(args, seed)
                for name, seed in (("stored", 1000), ("known", 1000), ("reader", 2000), ("own", 3000))}
    answers = Answers(args)
    idle = lambda: answers.during(lambda: time.sleep(args.seconds))[0]  # noqa: E731
    before = idle()
    for name in args.parts.split(","):
        gaps, took = answers.during(actions[name])
        after = idle()
        print(json.dumps({"name": name, "idle": before + after, "gaps": gaps, "took": took}), flush=True)
        before = after
    answers.end()


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def tell(lines, args):
    for part in map(json.loads, lines):
        idle, busy = statistics.mean(part["idle"]), statistics.mean(part["gaps"])
        line = f"{part['name']}: {busy:.1f} ms a token (p99 {percentile(part['gaps'], .99):.1f}), idle {idle:.1f}: " \
               f"{busy / idle:.2f} times"
        if part["took"]:
            over = sum(gap - idle for gap in part["gaps"]) / args.answers / len(part["took"])
            line += f"; {over:.0f} ms a prompt; prompts took {', '.join(f'{s:.2f}' for s in part['took'])} s"
        print(line, flush=True)


def run(args, processes, words, reader, parts):
    port = free_port()
    extra = ["--prefill-from", f"http://127.0.0.1:{reader}", "--prefill-above", "256"] if reader else []
    processes.append(subprocess.Popen(["taskset", "-c", "1", *words, "--port", str(port), *extra]))
    wait_for(port, processes[-1])
    own = [sys.executable, __file__, args.model, "--port", str(port), "--reader", str(reader), "--parts", parts]
    for name in ("prompt", "prompts", "answers", "seconds", "limit"):
        own += [f"--{name}", str(getattr(args, name))]
    done = subprocess.run([*args.under.split(), "taskset", "-c", "0", *own], stdout=subprocess.PIPE, text=True, check=False)
    tell(done.stdout.splitlines(), args)  # up to where the time was over
    processes[-1].terminate()
    processes.pop().wait()


def main():
    parser = parser_for(prompt=1056, prompts=2, answers=2, port=0, reader=0)
    parser.add_argument("--under", default="")
    parser.add_argument("--parts", default=",".join((*PARTS, "own")))
    parser.add_argument("--seconds", type=float, default=4, help="of idle parts and of loops")
    parser.add_argument("--limit", type=int, default=80, help="seconds that one measurement may take")
    args = parser.parse_args()
    if args.port:
        measure(args)
        return
    store_port, reader_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = [args.swiftkv, "serve", args.model, "--threads", "1", *args.options.split(), "--cache-store",
                 f"redis://127.0.0.1:{store_port}", "--cache-key-file", str(key_file(folder))]
        store = store_command(store_port, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
        processes = [subprocess.Popen(["taskset", "-c", "0", *store], stdout=subprocess.DEVNULL)]
        try:
            processes.append(subprocess.Popen(["taskset", "-c", "0", *words, "--role", "read", "--port",
                                               str(reader_port)]))
            wait_for(reader_port, processes[-1])
            parts = args.parts.split(",")
            shared = ",".join(part for part in parts if part != "own")
            if shared:
                run(args, processes, words, reader_port, shared)
            if "own" in parts:
                run(args, processes, words, 0, "own")
        finally:
            for process in processes:
                process.terminate()


if __name__ == "__main__":
    main()
