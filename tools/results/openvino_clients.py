#!/usr/bin/env python3
"""openvino-genai's continuous batching under a closed loop of clients, in its own process and without
HTTP: the part of tools/results/bench_serving.py that runs in the peers' environment.

    VENV/bin/python tools/results/openvino_clients.py FOLDER --clients 8 --requests 24 --prompt 2048 --gen 64
                                              --threads 2 --group 192

Each client sends its next request when its last one is answered. Prompts are random ids. One JSON
object is printed, with the names that `swiftkv load` uses.
"""

import argparse
import json
import random
import statistics
import time

import numpy
import openvino
import openvino_genai


class Client:
    """One request at a time; notes when its tokens came."""

    def __init__(self):
        self.handle, self.begun, self.times = None, 0.0, []

    def poll(self):
        """True when the answer has ended."""
        while self.handle.can_read():
            self.handle.read()
            self.times.append(time.monotonic())
        return self.handle.get_status() != openvino_genai.GenerationStatus.RUNNING and not self.handle.can_read()


def pipeline(args):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_batched_tokens = args.step_tokens
    scheduler.max_num_seqs = args.clients
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = args.cache_gib
    options = {"INFERENCE_NUM_THREADS": args.threads}
    if args.group:
        options["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = args.group
    if args.kv:
        options["KV_CACHE_PRECISION"] = getattr(openvino.Type, args.kv)
    return openvino_genai.ContinuousBatchingPipeline(args.folder, scheduler, "CPU", options)


def run(pipe, args, n_requests):
    draws = random.Random(args.seed)
    config = openvino_genai.GenerationConfig(max_new_tokens=args.gen, min_new_tokens=args.gen, ignore_eos=True,
                                             do_sample=False)
    clients, n_begun, done = [], 0, []

    def begin(client):
        nonlocal n_begun
        ids = numpy.array([[draws.randrange(3, args.vocab) for _ in range(args.prompt)]], dtype=numpy.int64)
        client.begun, client.times = time.monotonic(), []
        client.handle = pipe.add_request(n_begun, openvino.Tensor(ids), config)
        n_begun += 1

    start = time.monotonic()
    for _ in range(min(args.clients, n_requests)):
        clients.append(Client())
        begin(clients[-1])
    while clients:
        pipe.step()
        for client in list(clients):
            if not client.poll():
                continue
            done.append((client.begun, client.times))
            if n_begun < n_requests:
                begin(client)
            else:
                clients.remove(client)
    return time.monotonic() - start, done


def summary(name, values):
    values = sorted(values)
    return {f"mean_{name}_ms": 1e3 * statistics.fmean(values), f"median_{name}_ms": 1e3 * statistics.median(values),
            f"p99_{name}_ms": 1e3 * values[min(len(values) - 1, int(0.99 * len(values)))]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    for name, value in (("clients", 8), ("requests", 24), ("prompt", 2048), ("gen", 64), ("threads", 2), ("group", 0),
                        ("step-tokens", 2048), ("cache-gib", 2), ("vocab", 49152), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--kv", choices=["u8", "f16", "bf16", "f32"], help="how keys and values are held (u8)")
    args = parser.parse_args()
    pipe = pipeline(args)
    run(pipe, args, 1)
    duration, done = run(pipe, args, args.requests)
    n_out = sum(len(times) for _, times in done)
    result = {"duration": duration, "completed": len(done), "failed": 0, "total_input_tokens": args.prompt * len(done),
              "total_output_tokens": n_out, "total_token_throughput": (args.prompt * len(done) + n_out) / duration}
    result |= summary("ttft", [times[0] - begun for begun, times in done])
    result |= summary("e2el", [times[-1] - begun for begun, times in done])
    result |= summary("tpot", [(times[-1] - times[0]) / max(1, len(times) - 1) for _, times in done])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
