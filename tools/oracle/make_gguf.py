"""Writes tiny GGUF models with many tensor types, and golden results from the dequantised weights.

    python tools/oracle/make_gguf.py [--out tests/data/models] [NAME ...]

The bytes are dequantised by the `gguf` package and the model run by `transformers` in float64. The
package quantises the simple types only; blocks of the K types and of IQ4 are random bytes with
scales that give the weights the wanted spread, which no quantiser would restrict.
"""

import argparse
import copy
import logging
import pathlib
import shutil

import gguf
import numpy as np
import torch
import transformers

import golden_cases
import make_models
import model_specs
import plain_models
from random_weights import generator, tensor_for

TYPE = gguf.GGMLQuantizationType
# type -> (byte offset of d, byte offset of dmin or None, dmin / d that centres the weights)
RANDOM_BLOCKS = {
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0),
    "IQ4_NL": (0, None, 0),
    "IQ4_XS": (0, None, 0),
}

LLAMA = {
    "config": {
        **model_specs.llama(model_specs.v5, hidden_size=256, intermediate_size=64, head_dim=16,
                            num_hidden_layers=2, vocab_size=96),
        "rope_parameters": {"rope_theta": 10000.0, **model_specs.LLAMA3_SCALING},
    },
    "types": {
        "token_embd": "Q4_K", "output": "Q6_K",
        "blk.0.attn_q": "Q2_K", "blk.0.attn_k": "Q4_K", "blk.0.attn_v": "Q6_K",
        "blk.0.attn_output": "Q5_0", "blk.0.ffn_gate": "Q3_K", "blk.0.ffn_up": "Q5_K",
        "blk.0.ffn_down": "Q8_0",
        "blk.1.attn_q": "Q5_K", "blk.1.attn_k": "IQ4_XS", "blk.1.attn_v": "IQ4_NL",
        "blk.1.attn_output": "Q4_1", "blk.1.ffn_gate": "MXFP4", "blk.1.ffn_up": "Q2_K",
        "blk.1.ffn_down": "Q5_1",
    },
    "default": "Q4_0",
}
QWEN2 = {
    "config": model_specs.qwen(model_specs.v5, "Qwen2", tie_word_embeddings=True, num_hidden_layers=3,
                               intermediate_size=64, vocab_size=103),
    "types": {"token_embd": "F16", "blk.0.attn_q": "F32", "blk.0.ffn_down": "Q8_0",
              "blk.1.attn_k": "BF16", "blk.1.ffn_up": "Q8_0", "blk.2.ffn_gate": "BF16"},
    "default": "F16",
    "version": 2,
}
GEMMA2 = {
    # GGUF holds no query_pre_attn_scalar: the scale is 1 / sqrt(head_dim).
    "config": model_specs.gemma(model_specs.v5, "gemma2", head_dim=16, query_pre_attn_scalar=16,
                                intermediate_size=64, attn_logit_softcapping=5.0,
                                final_logit_softcapping=8.0),
    "types": {"token_embd": "Q8_0", "blk.0.ffn_up": "Q4_0", "blk.1.attn_q": "Q5_0",
              "blk.2.ffn_down": "Q4_1", "blk.3.ffn_gate": "Q5_1", "blk.1.attn_output": "F32"},
    "default": "Q8_0",
}
SPECS = {"llama-gguf": LLAMA, "qwen2-gguf": QWEN2, "gemma2-gguf": GEMMA2}

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def gguf_name(name, gemma):
    """model.layers.3.self_attn.q_proj.weight -> blk.3.attn_q.weight"""
    stem, kind = name.rsplit(".", 1)
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if stem in top:
        return f"{top[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    names = LAYER_NAMES | (GEMMA_NAMES if gemma else {})
    return f"blk.{layer}.{names[part]}.{kind}"


def random_blocks(model, name, shape, type_name):
    """Rows of random quantised blocks whose weights have the spread of tensor_for's."""
    d_at, min_at, ratio = RANDOM_BLOCKS[type_name]
    elements, size = gguf.GGML_QUANT_SIZES[TYPE[type_name]]
    r = generator(model, name)
    blocks = r.integers(0, 256, (shape[0] * shape[1] // elements, size), dtype=np.uint8)
    unit = r.uniform(0.5, 1.5, len(blocks))

    def with_scale(scale):
        blocks[:, d_at:d_at + 2] = (unit * scale).astype("<f2").view(np.uint8).reshape(-1, 2)
        if min_at is not None:
            low = (unit * scale * ratio).astype("<f2")
            blocks[:, min_at:min_at + 2] = low.view(np.uint8).reshape(-1, 2)
        return blocks.reshape(shape[0], -1)

    spread = gguf.quants.dequantize(with_scale(0.01), TYPE[type_name]).std()
    wanted = tensor_for(model, name, shape).std().item()
    return with_scale(0.01 * wanted / spread).copy()


def stored(model, name, shape, type_name, gemma):
    """(bytes as the file has them, GGUF type) of one tensor, in Hugging Face's row order."""
    if type_name in RANDOM_BLOCKS:
        return random_blocks(model, name, shape, type_name), TYPE[type_name]
    values = tensor_for(model, name, shape, gemma).numpy()
    if gemma and "norm" in name:
        values = values + 1  # GGUF keeps the weight that is multiplied by
    return gguf.quants.quantize(values, TYPE[type_name]), TYPE[type_name]


def interleave(rows, n_heads):
    """The row order of the llama architecture's q and k in GGUF: (j, j + d/2) become neighbours."""
    return rows.reshape(n_heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def metadata(writer, config, tokenizer):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_rope_dimension_count(config["head_dim"])
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
        writer.add_sliding_window(config["sliding_window"])
    writer.add_tokenizer_model("llama" if tokenizer else "no_vocab")
    if tokenizer:
        letters = [chr(c) for c in range(33, 33 + config["vocab_size"] - 4)]
        writer.add_token_list(["<unk>", "<s>", "</s>", "\u2581"] + letters)
        writer.add_token_scores([0.0] * 3 + [-float(i) for i in range(config["vocab_size"] - 3)])
        writer.add_token_types([2, 3, 3] + [1] * (config["vocab_size"] - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def rope_factors(config):
    """rope_freqs.weight: what every frequency is divided by, as converters write llama3 scaling."""
    rope = config["rope_parameters"]
    plain = plain_models.inverse_frequencies(rope["rope_theta"], config["head_dim"], None)
    scaled = plain_models.inverse_frequencies(rope["rope_theta"], config["head_dim"], rope)
    return (plain / scaled).to(torch.float32).numpy()


def dequantised(data, kind, gemma, name):
    values = gguf.quants.dequantize(data, kind).astype(np.float32)
    return torch.from_numpy(values - 1 if gemma and "norm" in name else values)


def write_gguf(path, name, spec, shapes):
    """Writes the file; returns the float32 weights under Hugging Face's names and order."""
    config, weights = spec["config"], {}
    gemma, llama = (config["model_type"] == kind for kind in ("gemma2", "llama"))
    writer = gguf.GGUFWriter(path, config["model_type"])
    writer.add_name(name)
    metadata(writer, config, tokenizer=llama)
    if llama:
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    for hf_name, shape in shapes.items():
        out_name = gguf_name(hf_name, gemma)
        flat = len(shape) == 1
        kind = "F32" if flat else spec["types"].get(out_name.removesuffix(".weight"), spec["default"])
        data, raw = stored(name, hf_name, shape, kind, gemma)
        weights[hf_name] = dequantised(data, raw, gemma, hf_name)
        if llama and ("q_proj" in hf_name or "k_proj" in hf_name):
            key = "num_attention_heads" if "q_proj" in hf_name else "num_key_value_heads"
            data = interleave(data, config[key])
        writer.add_tensor(out_name, np.ascontiguousarray(data), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if spec.get("version") == 2:  # little-endian version 2 and 3 differ in this number only
        with open(path, "r+b") as file:
            file.seek(4)
            file.write((2).to_bytes(4, "little"))
    return weights


def check_file(path, name, config, weights, logits_of):
    """Reads the llama file back and runs it with neighbouring pairs, as GGUF means it."""
    by_gguf = {t.name: torch.tensor(gguf.quants.dequantize(t.data, t.tensor_type), dtype=torch.float64)
               for t in gguf.GGUFReader(path).tensors}
    read = {n: by_gguf[gguf_name(n, False)] for n in weights}
    plain = plain_models.LlamaFamily(config, read, interleaved=True)
    ids = [1] + [(7 * i) % 90 + 3 for i in range(60)]
    difference = logits_of(ids).log_softmax(-1) - plain.forward(ids).log_softmax(-1)
    worst = difference.abs().max().item()
    assert worst < make_models.AGREE, f"{name}: the file and its source differ by {worst}"


def make(root, name):
    spec, folder = SPECS[name], root / name
    config = spec["config"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with torch.device("meta"):
        empty = transformers.AutoModelForCausalLM.from_config(make_models.base_config(config))
    shapes = {n: tuple(t.shape) for n, t in empty.state_dict().items()}
    if config["tie_word_embeddings"]:
        shapes.pop("lm_head.weight")
    weights = write_gguf(folder / "model.gguf", name, spec, shapes)
    scratch = root / f"{name}.scratch"
    make_models.save(scratch, copy.deepcopy(config), weights)
    logits_of = make_models.transformers_logits(scratch)
    shutil.rmtree(scratch)
    if config["model_type"] == "llama":
        check_file(folder / "model.gguf", name, config, weights, logits_of)
    source = f"transformers {transformers.__version__} on weights dequantised by gguf"
    result = make_models.golden(name, config, {None: logits_of}, model_specs.LENGTHS, source)
    golden_cases.write_json(folder / "golden.json", result)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/models")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for name in options.names or SPECS:
        make(options.out, name)


if __name__ == "__main__":
    with torch.no_grad():
        main()
