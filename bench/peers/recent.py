#!/usr/bin/env python3
"""Shapes of recent models on this engine beside llama.cpp: one file, in turns.

    bench/peers/recent.py [--work DIR] [--build DIR] [--turns N] [--prompt N] [--gen N] [--batch N] [--make] SHAPE

SHAPE: Gemma 4 E2B (e2b), Qwen3-30B-A3B (qwen), gpt-oss-20B (oss), and the hybrids Qwen3.5-0.8B (0.8b), 2B (2b) and
Qwen3.6-35B-A3B (35b). The GGUF file has the published widths and random blocks. Mixtures have 8 layers, to fit a small
machine's memory, and 32000 words. llama.cpp is that of peers.py; --make only writes the file. A row a measurement:
the engine, tokens/s of a prompt of N tokens and of N tokens behind it; with --batch in as many sequences, all of their
tokens counted. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import pathlib

import gguf
import numpy as np
from peers import ROOT, lines_of, made, measured_run

TYPES = gguf.GGMLQuantizationType
# The scale of a block that gives random codes the spread of trained weights.
SCALES = {"Q8_0": np.float16(0.0003).tobytes(), "Q4_0": np.float16(0.005).tobytes(), "MXFP4": b"\x77"}
E2B = {"arch": "gemma4", "layers": 35, "D": 1536, "F": 6144, "heads": (8, 1), "head": 512, "V": 262144, "own": 15,
       "type": "Q8_0", "attention": "Q8_0"}
QWEN = {"arch": "qwen3moe", "layers": 8, "D": 2048, "F": 768, "heads": (32, 4), "head": 128, "V": 32000,
        "experts": (128, 8), "type": "Q4_0", "attention": "Q4_0"}
OSS = {"arch": "gpt-oss", "layers": 8, "D": 2880, "F": 2880, "heads": (64, 8), "head": 64, "V": 32000,
       "experts": (32, 4), "type": "MXFP4", "attention": "Q8_0"}
# "state": key heads, value heads and their size in the layers that keep a state, which are all but each fourth.
HYBRID = {"arch": "qwen35", "layers": 24, "heads": (8, 2), "head": 256, "V": 248320, "state": (16, 16, 128),
          "type": "Q8_0", "attention": "Q8_0"}
MIXED = {"arch": "qwen35moe", "layers": 8, "D": 2048, "F": 512, "heads": (16, 2), "head": 256, "V": 32000,
         "experts": (256, 8), "state": (16, 32, 128), "type": "Q4_0", "attention": "Q4_0"}
SHAPES = {"e2b": E2B, "qwen": QWEN, "oss": OSS, "0.8b": {**HYBRID, "D": 1024, "F": 3584},
          "2b": {**HYBRID, "D": 2048, "F": 6144}, "35b": MIXED}


class Writer:
    """A GGUF file with random tensors."""

    def __init__(self, path, shape):
        self.s, self.r, self.out = shape, np.random.default_rng(1), gguf.GGUFWriter(path, shape["arch"])

    def blocks(self, name, kind, *shape):
        """One stretch of random blocks, repeated: what matters is that no two rows of a tile are equal."""
        elements, size = gguf.GGML_QUANT_SIZES[TYPES[kind]]
        n = int(np.prod(shape)) // elements
        some = self.r.integers(0, 256, (min(n, 999983), size), dtype=np.uint8)
        scale = np.frombuffer(SCALES[kind], np.uint8)
        some[:, :len(scale)] = scale
        data = np.resize(some, (n, size)).reshape(*shape[:-1], -1)
        self.out.add_tensor(name + ".weight", data, raw_dtype=TYPES[kind])

    def floats(self, name, *shape, centre=1.0, spread=0.1):
        self.out.add_tensor(name, (centre + spread * self.r.standard_normal(shape)).astype(np.float32))

    def norms(self, prefix, *names, n):
        for name in names:
            self.floats(f"{prefix}{name}.weight", n)

    def close(self):
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_tensors_to_file()
        self.out.close()


def common(w):
    s, out = w.s, w.out
    out.add_block_count(s["layers"])
    out.add_context_length(16384)
    out.add_embedding_length(s["D"])
    out.add_head_count(s["heads"][0])
    out.add_head_count_kv(s["heads"][1])
    out.add_layer_norm_rms_eps(1e-6)
    out.add_rope_freq_base(1e6)
    for add in (out.add_key_length, out.add_value_length):
        add(s["head"])
    out.add_rope_dimension_count(s["head"] // 4 if "state" in s else s["head"])
    out.add_vocab_size(s["V"])
    out.add_tokenizer_model("no_vocab")
    w.blocks("token_embd", "Q8_0", s["V"], s["D"])
    w.floats("output_norm.weight", s["D"])


def attention(w, prefix, head, own=True):
    s = w.s
    n_q, n_kv = (n * head for n in s["heads"])
    for name, rows in (("attn_q", n_q), *((("attn_k", n_kv), ("attn_v", n_kv)) if own else ())):
        w.blocks(prefix + name, s["attention"], rows, s["D"])
    w.blocks(prefix + "attn_output", s["attention"], s["D"], n_q)


def e2b(w):
    """Every fifth layer attends to everything; the last 20 read the keys and values of layers 13 and 14."""
    s, out, per_layer, small = w.s, w.out, 256, 256
    sliding = [i % 5 != 4 for i in range(s["layers"])]
    ffn = [s["F"] * (1 if i < s["own"] else 2) for i in range(s["layers"])]
    out.add_feed_forward_length(ffn)
    for add in (out.add_key_length_swa, out.add_value_length_swa, out.add_rope_dimension_count_swa):
        add(small)
    out.add_rope_freq_base_swa(1e4)
    out.add_shared_kv_layers(s["layers"] - s["own"])
    out.add_embedding_length_per_layer_input(per_layer)
    out.add_sliding_window(512)
    out.add_sliding_window_pattern(sliding)
    out.add_final_logit_softcapping(30.0)
    out.add_tensor("rope_freqs.weight", np.array([1.0] * 64 + [1e30] * 192, dtype=np.float32))
    w.blocks("per_layer_token_embd", "Q8_0", s["V"], s["layers"] * per_layer)
    w.blocks("per_layer_model_proj", "Q8_0", s["layers"] * per_layer, s["D"])
    w.floats("per_layer_proj_norm.weight", per_layer)
    for i, short in enumerate(sliding):
        p, head, own = f"blk.{i}.", small if short else s["head"], i < s["own"]
        attention(w, p, head, own)
        w.norms(p, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm", n=s["D"])
        w.norms(p, "attn_q_norm", *(("attn_k_norm",) if own else ()), n=head)
        w.floats(p + "layer_output_scale.weight", 1, centre=0.5)
        w.blocks(p + "inp_gate", "Q8_0", per_layer, s["D"])
        w.blocks(p + "proj", "Q8_0", s["D"], per_layer)
        for name, rows, columns in (("gate", ffn[i], s["D"]), ("up", ffn[i], s["D"]), ("down", s["D"], ffn[i])):
            w.blocks(f"{p}ffn_{name}", s["type"], rows, columns)


def mixture(w):
    s, out, (n, used) = w.s, w.out, w.s["experts"]
    oss = s["arch"] == "gpt-oss"
    out.add_feed_forward_length(s["F"])
    out.add_expert_count(n)
    out.add_expert_used_count(used)
    out.add_expert_feed_forward_length(s["F"])
    if oss:
        out.add_sliding_window(128)
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(32.0)
        out.add_rope_scaling_orig_ctx_len(4096)
    w.blocks("output", s["attention"], s["V"], s["D"])
    for i in range(s["layers"]):
        p = f"blk.{i}."
        attention(w, p, s["head"])
        w.norms(p, "attn_norm", "post_attention_norm" if oss else "ffn_norm", n=s["D"])
        w.floats(p + "ffn_gate_inp.weight", n, s["D"], centre=0, spread=0.03)
        if oss:
            rows = [x * s["head"] for x in s["heads"]]
            for name, width in (("attn_q", rows[0]), ("attn_k", rows[1]), ("attn_v", rows[1]), ("attn_output", s["D"]),
                                ("ffn_gate_inp", n)):
                w.floats(f"{p}{name}.bias", width, centre=0)
            w.floats(p + "attn_sinks.weight", s["heads"][0], centre=0)
            for name, width in (("gate", s["F"]), ("up", s["F"]), ("down", s["D"])):
                w.floats(f"{p}ffn_{name}_exps.bias", n, width, centre=0)
        else:
            w.norms(p, "attn_q_norm", "attn_k_norm", n=s["head"])
        for name, a, b in (("gate", s["F"], s["D"]), ("up", s["F"], s["D"]), ("down", s["D"], s["F"])):
            w.blocks(f"{p}ffn_{name}_exps", s["type"], n, a, b)


def linear_attention(w, p):
    s, (nk, nv, d) = w.s, w.s["state"]
    values, channels = nv * d, (2 * nk + nv) * d
    w.blocks(p + "attn_qkv", s["attention"], channels, s["D"])
    w.blocks(p + "attn_gate", s["attention"], values, s["D"])
    w.blocks(p + "ssm_out", s["attention"], s["D"], values)
    w.floats(p + "ssm_conv1d.weight", channels, 4, centre=0.25)
    for name, centre in (("ssm_a", -1.0), ("ssm_dt.bias", -4.0)):
        w.floats(p + name, nv, centre=centre)
    for name in ("ssm_alpha", "ssm_beta"):
        w.floats(f"{p}{name}.weight", nv, s["D"], centre=0, spread=0.03)
    w.floats(p + "ssm_norm.weight", d)


def hybrid(w):
    s, out = w.s, w.out
    nk, nv, d = s["state"]
    out.add_feed_forward_length(s["F"])
    out.add_full_attention_interval(4)
    out.add_rope_dimension_sections([11, 11, 10, 0])
    out.add_ssm_conv_kernel(4)
    out.add_ssm_state_size(d)
    out.add_ssm_group_count(nk)
    out.add_ssm_time_step_rank(nv)
    out.add_ssm_inner_size(nv * d)
    if "experts" in s:
        out.add_expert_count(s["experts"][0])
        out.add_expert_used_count(s["experts"][1])
        out.add_expert_feed_forward_length(s["F"])
        out.add_expert_shared_feed_forward_length(s["F"])
        w.blocks("output", s["attention"], s["V"], s["D"])
    ffn = (("gate", s["F"], s["D"]), ("up", s["F"], s["D"]), ("down", s["D"], s["F"]))
    for i in range(s["layers"]):
        p = f"blk.{i}."
        w.norms(p, "attn_norm", "post_attention_norm", n=s["D"])
        if i % 4 == 3:
            n_q, n_kv = (n * s["head"] for n in s["heads"])
            for name, rows in (("attn_q", 2 * n_q), ("attn_k", n_kv), ("attn_v", n_kv)):
                w.blocks(p + name, s["attention"], rows, s["D"])
            w.blocks(p + "attn_output", s["attention"], s["D"], n_q)
            w.norms(p, "attn_q_norm", "attn_k_norm", n=s["head"])
        else:
            linear_attention(w, p)
        if "experts" in s:
            w.floats(p + "ffn_gate_inp.weight", s["experts"][0], s["D"], centre=0, spread=0.03)
            w.floats(p + "ffn_gate_inp_shexp.weight", s["D"], centre=0, spread=0.03)
        for name, a, b in ffn:
            if "experts" in s:
                w.blocks(f"{p}ffn_{name}_exps", s["type"], s["experts"][0], a, b)
            w.blocks(f"{p}ffn_{name}" + ("_shexp" if "experts" in s else ""), s["type"], a, b)


def write(path, name):
    w = Writer(path, SHAPES[name])
    common(w)
    (e2b if name == "e2b" else hybrid if "state" in w.s else mixture)(w)
    w.close()


def ours(args, path, *more):
    words = [args.build / "swiftkv", "bench", path, "--weights", "auto", "--threads", args.threads, "--repeat", 1,
             "--prompt", args.prompt, "--gen", max(args.gen, 1), "--batch", args.batch, "--json", *more]
    words += ["--ctx", args.prompt + 128] if args.batch == 1 else []
    said = lines_of(measured_run(words)[0])[0]
    return said["prefill_tok_s"], said.get("decode_tok_s") if args.gen > 1 else None


def llama(args, path):
    if args.batch > 1:
        context = args.batch * (args.prompt + args.gen + 128)
        words = [args.work / "llama-build/bin/llama-batched-bench", "-m", path, "-t", args.threads, "-fa", "on", "-c", context,
                 "-npp", args.prompt, "-ntg", max(args.gen, 1), "-npl", args.batch, "--output-format", "jsonl"]
        said = lines_of(measured_run(words)[0])[-1]
        return said["speed_pp"], said["speed_tg"] if args.gen > 1 else None
    words = [args.work / "llama-build/bin/llama-bench", "-m", path, "-t", args.threads, "-fa", 1, "-r", 1, "-o", "json"]
    prompt = json.loads(measured_run([*words, "-p", args.prompt, "-n", 0])[0])[-1]["avg_ts"]
    if args.gen < 2:
        return prompt, None
    return prompt, json.loads(measured_run([*words, "-p", 0, "-n", args.gen, "-d", args.prompt])[0])[-1]["avg_ts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/peers")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("shape", choices=SHAPES, metavar="SHAPE")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    path = made(args.work.resolve() / f"{args.shape}.gguf", lambda part: write(part, args.shape))
    if args.make:
        return
    for _ in range(args.turns):
        said = {"swiftkv": ours(args, path)}
        if args.shape == "e2b":
            said["swiftkv, --prefill full"] = ours(args, path, "--prefill", "full")
        if (args.work / "llama-build/bin/llama-bench").exists():
            said["llama.cpp"] = llama(args, path)
        for engine, figures in said.items():
            print(engine, *(f"{figure:.1f}" for figure in figures if figure is not None), sep=" | ", flush=True)


if __name__ == "__main__":
    main()
