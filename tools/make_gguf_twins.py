#!/usr/bin/env python3
"""Writes tests/data/format/twin-NAME.gguf: tiny files of every GGUF architecture.

    python tools/make_gguf_twins.py [--out tests/data/format]

Element k of the published tensor NAME is a hash of NAME and k (see `element`), so that
tests/test_source.c knows every value without a second file. The tensors' names come from the
`gguf` package's own tables and the keys from its writer; what llama.cpp's conversion does to the
data (rows of Llama's q and k in pair order, 1 added to Gemma's norms) is done here in numpy.
"""

import argparse
import pathlib

import gguf
import numpy as np

ARCH = gguf.MODEL_ARCH
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 2, 16, 4, 2, 4, 16, 12
Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


def element(name, count):
    """An integer in [-128, 127] over 64, exact in bfloat16."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 % 2**32
    k = np.arange(count, dtype=np.uint64)
    mixed = (value + 2654435761 * k) % 2**32 >> 24
    return ((mixed.astype(np.int64) - 128) / 64).astype(np.float32)


def tensor(name, *shape):
    return element(name, int(np.prod(shape))).reshape(shape)


def permute(rows, heads):
    """Published rotate-half rows -> pairs side by side."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def bf16(values):
    return (values.view(np.uint32) >> 16).astype(np.uint16)


class Twin:
    def __init__(self, path, arch):
        self.arch = arch
        self.writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
        self.names = gguf.get_tensor_name_map(arch, LAYERS)
        w = self.writer
        w.add_block_count(LAYERS)
        w.add_context_length(256)
        w.add_embedding_length(HIDDEN)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)

    def heads(self):
        self.writer.add_feed_forward_length(FFN)
        self.writer.add_head_count(HEADS)
        self.writer.add_head_count_kv(KV_HEADS)

    def add(self, hf_name, values):
        base, suffix = hf_name.rsplit(".", 1)
        name = self.names.get_name(base)
        assert name, hf_name
        self.add_raw(f"{name}.{suffix}", values)

    def add_raw(self, name, values):
        values = np.ascontiguousarray(values, dtype=np.float32)
        if values.ndim == 1:
            self.writer.add_tensor(name, values)
        else:
            self.writer.add_tensor(name, bf16(values).view(np.uint8),
                                   raw_dtype=gguf.GGMLQuantizationType.BF16)

    def put(self, hf_name, *shape, offset=0.0, heads=None):
        values = tensor(hf_name, *shape) + np.float32(offset)
        self.add(hf_name, permute(values, heads) if heads else values)

    def put_ends(self, head=True, offset=0.0):
        self.put("model.embed_tokens.weight", VOCAB, HIDDEN)
        self.put("model.norm.weight", HIDDEN, offset=offset)
        if head:
            self.put("lm_head.weight", VOCAB, HIDDEN)

    def put_layer(self, i, permuted=False, bias=(), norms=(), offset=0.0):
        at = f"model.layers.{i}."
        for part, rows, heads in (("q", Q, HEADS), ("k", KV, KV_HEADS), ("v", KV, None)):
            heads = heads if permuted else None
            self.put(f"{at}self_attn.{part}_proj.weight", rows, HIDDEN, heads=heads)
            if bias:
                self.put(f"{at}self_attn.{part}_proj.bias", rows, heads=heads)
        self.put(f"{at}self_attn.o_proj.weight", HIDDEN, Q)
        if "o" in bias:
            self.put(f"{at}self_attn.o_proj.bias", HIDDEN)
        for part, shape in (("gate", (FFN, HIDDEN)), ("up", (FFN, HIDDEN)), ("down", (HIDDEN, FFN))):
            self.put(f"{at}mlp.{part}_proj.weight", *shape)
            if "mlp" in bias:
                self.put(f"{at}mlp.{part}_proj.bias", shape[0])
        for norm in ("input_layernorm", "post_attention_layernorm", *norms):
            self.put(f"{at}{norm}.weight", HEAD_DIM if "self_attn" in norm else HIDDEN, offset=offset)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


QK_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
GEMMA_NORMS = ("pre_feedforward_layernorm", "post_feedforward_layernorm")


def llama(path):
    t = Twin(path, ARCH.LLAMA)
    t.heads()
    t.writer.add_rope_dimension_count(HEAD_DIM)
    t.writer.add_rope_freq_base(500000.0)
    t.writer.add_vocab_size(VOCAB)
    t.add_raw("rope_freqs.weight", np.array([1.0, 4.5], dtype=np.float32))
    t.put_ends()
    for i in range(LAYERS):
        t.put_layer(i, permuted=True)
    t.close()


def llama_bias(path):
    t = Twin(path, ARCH.LLAMA)
    t.heads()
    t.writer.add_rope_dimension_count(HEAD_DIM)
    t.writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    t.writer.add_rope_scaling_factor(4.0)
    t.put_ends(head=False)
    for i in range(LAYERS):
        t.put_layer(i, permuted=True, bias=("o", "mlp"))
    t.close()


def qwen2(path):
    t = Twin(path, ARCH.QWEN2)
    t.heads()
    t.writer.add_rope_freq_base(1000000.0)
    t.put_ends(head=False)
    for i in range(LAYERS):
        t.put_layer(i, bias=("qkv",))
    t.close()


def qwen3(path):
    t = Twin(path, ARCH.QWEN3)
    t.heads()
    t.writer.add_key_length(HEAD_DIM)
    t.writer.add_value_length(HEAD_DIM)
    t.writer.add_rope_freq_base(1000000.0)
    t.put_ends()
    for i in range(LAYERS):
        t.put_layer(i, norms=QK_NORMS)
    t.close()


def phi3(path):
    t = Twin(path, ARCH.PHI3)
    t.heads()
    t.writer.add_rope_dimension_count(HEAD_DIM)
    t.writer.add_rope_freq_base(10000.0)
    t.writer.add_rope_scaling_orig_ctx_len(64)
    t.writer.add_rope_scaling_attn_factors(1.125)
    t.writer.add_sliding_window(100)
    for kind, factors in (("long", [2.0, 8.0]), ("short", [1.0, 1.5])):
        t.add_raw(f"rope_factors_{kind}.weight", np.array(factors, dtype=np.float32))
    t.put_ends()
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        parts = [tensor(f"{at}self_attn.{p}_proj.weight", rows, HIDDEN)
                 for p, rows in (("q", Q), ("k", KV), ("v", KV))]
        t.add(f"{at}self_attn.qkv_proj.weight", np.concatenate(parts))
        parts = [tensor(f"{at}mlp.{p}_proj.weight", FFN, HIDDEN) for p in ("gate", "up")]
        t.add(f"{at}mlp.gate_up_proj.weight", np.concatenate(parts))
        t.put(f"{at}self_attn.o_proj.weight", HIDDEN, Q)
        t.put(f"{at}mlp.down_proj.weight", HIDDEN, FFN)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            t.put(f"{at}{norm}.weight", HIDDEN)
    t.close()


def gemma(path, arch, norms):
    t = Twin(path, arch)
    t.heads()
    w = t.writer
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_sliding_window(64)
    if arch == ARCH.GEMMA2:
        w.add_attn_logit_softcapping(40.0)
        w.add_final_logit_softcapping(20.0)
    else:
        w.add_rope_freq_base(1000000.0)
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(8.0)
    t.put_ends(head=False, offset=1.0)
    for i in range(LAYERS):
        t.put_layer(i, norms=norms, offset=1.0)
    t.close()


def openelm(path):
    t = Twin(path, ARCH.OPENELM)
    w = t.writer
    n_heads, n_kv, ffns = [4, 8], [1, 2], [8, 16]
    w.add_head_count(n_heads)
    w.add_head_count_kv(n_kv)
    w.add_feed_forward_length(ffns)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(10000.0)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    t.put_ends(head=False)
    for i, (h, k, f) in enumerate(zip(n_heads, n_kv, ffns)):
        at, own = f"model.layers.{i}.", f"transformer.layers.{i}."
        parts = [tensor(f"{at}self_attn.{p}_proj.weight", rows * HEAD_DIM, HIDDEN)
                 for p, rows in (("q", h), ("k", k), ("v", k))]
        t.add(f"{own}attn.qkv_proj.weight", np.concatenate(parts))
        t.add(f"{own}attn.out_proj.weight", tensor(f"{at}self_attn.o_proj.weight", HIDDEN, h * HEAD_DIM))
        for p in ("q", "k"):
            t.add(f"{own}attn.{p}_norm.weight", tensor(f"{at}self_attn.{p}_norm.weight", HEAD_DIM))
        t.add(f"{own}attn_norm.weight", tensor(f"{at}input_layernorm.weight", HIDDEN))
        t.add(f"{own}ffn_norm.weight", tensor(f"{at}post_attention_layernorm.weight", HIDDEN))
        # The conversion splits proj_1 [gate | up].
        t.add(f"model.layers.{i}.mlp.gate_proj.weight", tensor(f"{at}mlp.gate_proj.weight", f, HIDDEN))
        t.add(f"model.layers.{i}.mlp.up_proj.weight", tensor(f"{at}mlp.up_proj.weight", f, HIDDEN))
        t.add(f"{own}ffn.proj_2.weight", tensor(f"{at}mlp.down_proj.weight", HIDDEN, f))
    t.close()


TWINS = {
    "llama": llama, "llama-bias": llama_bias, "qwen2": qwen2, "qwen3": qwen3, "phi3": phi3,
    "gemma2": lambda path: gemma(path, ARCH.GEMMA2, GEMMA_NORMS),
    "gemma3": lambda path: gemma(path, ARCH.GEMMA3, GEMMA_NORMS + QK_NORMS),
    "openelm": openelm,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/format"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, make in TWINS.items():
        make(out / f"twin-{name}.gguf")


if __name__ == "__main__":
    main()
