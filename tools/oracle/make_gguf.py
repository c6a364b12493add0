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
import hybrid_gguf
import make_models
import mamba_gguf
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
GEMMA4 = {
    "config": model_specs.gemma4("ssfsfssf", num_kv_shared_layers=3, use_double_wide_mlp=True,
                                 hidden_size_per_layer_input=32, intermediate_size=64, head_dim=16,
                                 global_head_dim=32, attention_k_eq_v=True,
                                 num_global_key_value_heads=1),
    "types": {"token_embd": "Q8_0", "per_layer_token_embd": "Q8_0", "per_layer_model_proj": "BF16",
              "blk.0.ffn_up": "Q4_0", "blk.1.attn_q": "Q5_0", "blk.2.inp_gate": "F32",
              "blk.3.proj": "F16"},
    "default": "Q8_0",
}
GEMMA4_MOE = {
    "config": model_specs.gemma4("sfsf", num_kv_shared_layers=0, hidden_size_per_layer_input=0,
                                 intermediate_size=64, head_dim=16, global_head_dim=32,
                                 attention_k_eq_v=True, num_global_key_value_heads=1,
                                 enable_moe_block=True, num_experts=6, top_k_experts=2,
                                 moe_intermediate_size=32),
    "types": {"token_embd": "Q8_0", "blk.0.ffn_gate_up_exps": "Q4_0", "blk.1.ffn_gate_exps": "BF16",
              "blk.1.ffn_down_exps": "Q5_1", "blk.2.ffn_up": "F16"},
    "default": "Q8_0",
}
QWEN3_MOE = {
    "config": model_specs.qwen3_moe(model_specs.v5, hidden_size=64, moe_intermediate_size=32,
                                    head_dim=16, num_hidden_layers=2, tie_word_embeddings=True),
    "types": {"token_embd": "F16", "blk.0.ffn_gate_exps": "Q4_0", "blk.0.ffn_up_exps": "Q8_0",
              "blk.0.ffn_down_exps": "MXFP4", "blk.1.ffn_gate_exps": "BF16",
              "blk.1.ffn_down_exps": "Q4_1"},
    "default": "Q8_0",
    "architecture": "qwen3moe",
}
MIXTRAL = {
    "config": model_specs.mixtral(model_specs.v5, hidden_size=64, intermediate_size=32, head_dim=16,
                                  num_hidden_layers=2),
    "types": {"blk.1.ffn_gate_exps": "Q5_1", "blk.0.ffn_down_exps": "Q4_0"},
    "default": "F16",
    "architecture": "llama",
}
GPT_OSS = {
    "config": model_specs.gpt_oss(model_specs.v5, swiglu_limit=7.0, num_hidden_layers=2,
                                  rope_parameters={
                                      "beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0,
                                      "original_max_position_embeddings": 32, "rope_theta": 10000.0,
                                      "rope_type": "yarn", "truncate": False}),
    "types": {"blk.0.ffn_gate_exps": "MXFP4", "blk.0.ffn_up_exps": "MXFP4",
              "blk.0.ffn_down_exps": "MXFP4", "blk.1.ffn_gate_exps": "Q8_0"},
    "default": "Q8_0",
    "architecture": "gpt-oss",
}
SPECS = {"gemma4-gguf": GEMMA4, "gemma4-moe-gguf": GEMMA4_MOE, "llama-gguf": LLAMA, "qwen2-gguf": QWEN2, "gemma2-gguf": GEMMA2,
         "qwen3-moe-gguf": QWEN3_MOE, "mixtral-gguf": MIXTRAL, "gpt-oss-gguf": GPT_OSS}



def recent(name, architecture, **fields):
    """A family of 2025 or 2026, as make_models.py has it; all in Q8_0, rows of 32."""
    config = {**model_specs.recent_specs()[name]["config"], "hidden_size": 32, "intermediate_size": 64,
              "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, **fields}
    return {"config": config, "types": {}, "default": "Q8_0", "architecture": architecture}


SPECS |= {
    # The file does not say which layers turn: every fourth does not.
    "smollm3-gguf": recent("smollm3", "smollm3", no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0, 1],
                           num_hidden_layers=5),
    "ministral3-gguf": recent("ministral3", "mistral3"),
    "olmo2-gguf": recent("olmo2", "olmo2"),
    "olmo3-gguf": recent("olmo3", "olmo2"),
    "granite-gguf": recent("granite", "granite"),
    # As --fuse-qkv of llama.cpp's converter has it.
    "granite-fused-gguf": recent("granite", "granite", attention_bias=True, attention_multiplier=0.4) | {"fused": True},
    "glm4-gguf": recent("glm4", "glm4"),
}

def delta(kind, name, architecture, **fields):
    """Qwen 3.5 or Qwen3-Next: value heads three to a key head, rows of 32 and more."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
    return {"config": model_specs.delta(kind, name, **sizes, **fields), "types": {"blk.0.ssm_out": "Q8_0"},
            "default": "F16", "architecture": architecture, "lengths": (1, 23, 80)}


EXPERTS = {"moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2,
           "shared_expert_intermediate_size": 64}
LINEAR, FULL = model_specs.LINEAR, model_specs.FULL
SPECS |= {
    "qwen3-5-gguf": delta("qwen3_5_text", "Qwen3_5", "qwen35", tie_word_embeddings=True, num_hidden_layers=4,
                          layer_types=[LINEAR, LINEAR, LINEAR, FULL]),
    "qwen3-5-moe-gguf": delta("qwen3_5_moe_text", "Qwen3_5Moe", "qwen35moe", num_hidden_layers=3,
                              layer_types=[LINEAR, FULL, LINEAR], **EXPERTS),
    "qwen3-next-gguf": delta("qwen3_next", "Qwen3Next", "qwen3next", num_hidden_layers=4, decoder_sparse_step=1,
                             mlp_only_layers=[], norm_topk_prob=True, layer_types=[LINEAR, LINEAR, LINEAR, FULL],
                             **EXPERTS),
}

SPECS |= {
    "lfm2-moe-gguf": {"config": model_specs.lfm2_moe(model_specs.v5, layer_types=["conv", "full_attention", "conv"],
                                                     num_hidden_layers=3, num_dense_layers=1, intermediate_size=64,
                                                     moe_intermediate_size=32, routed_scaling_factor=1.0,
                                                     rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"}),
                      "types": {"blk.1.ffn_gate_exps": "Q8_0"}, "default": "F16", "architecture": "lfm2moe",
                      "lengths": (1, 23, 80)},
    "lfm2-gguf": {"config": model_specs.lfm2(model_specs.v5, layer_types=["conv", "conv", "full_attention", "conv"],
                                             num_hidden_layers=4, block_ff_dim=64, block_auto_adjust_ff_dim=False,
                                             intermediate_size=64,
                                             rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"}),
                  "types": {"blk.0.shortconv.in_proj": "Q8_0"}, "default": "F16", "architecture": "lfm2",
                  "lengths": (1, 23, 80)},
}

def mamba(name, architecture, **fields):
    """A family with Mamba-2 layers, as make_models.py has it, with rows of 32 and more."""
    specs = model_specs.mamba_specs() | model_specs.nemotron_and_falcon_specs()
    config = {**specs[name]["config"], **fields}
    return {"config": config, "types": {"blk.0.ssm_in": "Q8_0"}, "default": "F16", "architecture": architecture,
            "lengths": (1, 23, 80)}


SPECS |= {
    "granite-h-gguf": mamba("granite-h", "granitehybrid", num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR],
                            mamba_n_groups=2),
    "nemotron-h-gguf": mamba("nemotron-h", "nemotron_h", hybrid_override_pattern="M-*M", num_hidden_layers=4),
    # With a block that predicts further tokens, which nobody reads.
    "nemotron-h-moe-gguf": mamba("nemotron-h-moe", "nemotron_h_moe", hybrid_override_pattern="ME*E",
                                 num_hidden_layers=4, num_nextn_predict_layers=1),
    "nemotron-h-latent-gguf": mamba("nemotron-h-moe", "nemotron_h_moe", hybrid_override_pattern="ME*E",
                                    num_hidden_layers=4, moe_latent_size=32, norm_topk_prob=False),
    # Files have the multipliers in their weights.
    "falcon-h1-gguf": mamba("falcon-h1", "falcon-h1", num_hidden_layers=2, mamba_rms_norm=True,
                            ssm_multipliers=[1.0] * 5, mlp_multipliers=[1.0, 1.0],
                            **{f"{key}_multiplier": 1.0 for key in (
                                "ssm_in", "ssm_out", "attention_in", "attention_out", "key", "embedding", "lm_head")}),
    "granite-h-moe-gguf": mamba("granite-h-moe", "granitehybrid", num_hidden_layers=3,
                                layer_types=[LINEAR, FULL, LINEAR]),
}

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
               "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
               "post_per_layer_input_norm": "post_norm", "router.proj": "ffn_gate_inp",
               "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
               "post_feedforward_layernorm_1": "post_ffw_norm_1",
               "post_feedforward_layernorm_2": "post_ffw_norm_2"}

OLMO_NAMES = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
GLM_NAMES = {"post_self_attn_layernorm": "post_attention_norm", "post_attention_layernorm": "ffn_norm",
             "post_mlp_layernorm": "post_ffw_norm", "mlp.gate_up_proj": "ffn_up"}
# What differs from LAYER_NAMES, by the beginning of the model type.
LFM2_NAMES = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
              "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
              "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
              "conv.conv": "shortconv.conv", "feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down",
              "feed_forward.w3": "ffn_up", "feed_forward.gate": "ffn_gate_inp"}
FAMILY_NAMES = {"lfm2": LFM2_NAMES, "gemma": GEMMA_NAMES, "olmo": OLMO_NAMES, "glm": GLM_NAMES, "qwen3_next": hybrid_gguf.NAMES,
                "qwen3_5": hybrid_gguf.NAMES} | mamba_gguf.NAMES
# The families whose q and k rows llama.cpp's converter puts in pair order.
PAIRED = ("llama", "mixtral", "smollm3", "ministral3", "granite", "granitemoehybrid")


def gguf_name(name, model_type):
    """model.layers.3.self_attn.q_proj.weight -> blk.3.attn_q.weight"""
    if name.endswith("layer_scalar"):
        return f"blk.{name.split('.')[2]}.layer_output_scale.weight"
    if name.endswith("router.scale"):
        return f"blk.{name.split('.')[2]}.ffn_gate_inp.scale"
    if name.endswith("router.per_expert_scale"):
        return f"blk.{name.split('.')[2]}.ffn_down_exps.scale"
    if name.endswith("self_attn.sinks"):
        return f"blk.{name.split('.')[2]}.attn_sinks.weight"
    if name.endswith(("expert_bias", "e_score_correction_bias")):
        return f"blk.{name.split('.')[2]}.exp_probs_b.bias"
    stem, kind = name.rsplit(".", 1)
    top = {"model.embeddings": "token_embd", "model.norm_f": "output_norm", "model.final_layernorm": "output_norm",
           "model.embed_tokens_per_layer": "per_layer_token_embd",
           "model.per_layer_model_projection": "per_layer_model_proj",
           "model.per_layer_projection_norm": "per_layer_proj_norm",
           "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
           "model.embedding_norm": "token_embd_norm"}
    if stem in top:
        return f"{top[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    names = LAYER_NAMES
    for begin, others in FAMILY_NAMES.items():
        names = names | (others if model_type.startswith(begin) else {})
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


def has_offset(gemma, name):
    return gemma and "norm" in name and "linear_attn" not in name


def stored(model, name, shape, type_name, gemma):
    """(bytes as the file has them, GGUF type) of one tensor, in Hugging Face's row order."""
    if type_name in RANDOM_BLOCKS:
        return random_blocks(model, name, shape, type_name), TYPE[type_name]
    values = tensor_for(model, name, shape, gemma).numpy()
    if has_offset(gemma, name):
        values = values + 1  # GGUF keeps the weight that is multiplied by
    return gguf.quants.quantize(values, TYPE[type_name]), TYPE[type_name]


def interleave(rows, n_heads):
    """The row order of the llama architecture's q and k in GGUF: (j, j + d/2) become neighbours."""
    return rows.reshape(n_heads, 2, rows.shape[0] // n_heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def metadata_gemma4(writer, config):
    """What differs by layer, and the keys that only this architecture has."""
    sliding = [kind == "sliding_attention" for kind in config["layer_types"]]
    first = len(sliding) - config["num_kv_shared_layers"]
    small, large = config["head_dim"], config["global_head_dim"]
    ffn = config["intermediate_size"]
    writer.add_feed_forward_length([ffn if i < first else 2 * ffn for i in range(len(sliding))])
    writer.add_head_count_kv([config["num_key_value_heads"] if s
                              else config["num_global_key_value_heads"] for s in sliding])
    for kind, size in (("", large), ("_swa", small)):
        for add in ("add_key_length", "add_value_length", "add_rope_dimension_count"):
            getattr(writer, add + kind)(size)
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(sliding)
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    turning = large // 8
    writer.add_tensor("rope_freqs.weight",
                      np.array([1.0] * turning + [1e30] * (large // 2 - turning), dtype=np.float32))


def metadata_rope(writer, config):
    """Rotation, and the windows of OLMo 3, as llama.cpp's converter writes them."""
    if config["model_type"] == "nemotron_h":  # no positions
        return
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"]}
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if config["model_type"] == "gpt_oss" or rope.get("rope_type") != "yarn":
        return
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if "attention_factor" in rope:
        writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
    if "mscale_all_dim" in rope:
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def metadata(writer, config, tokenizer):
    extra = mamba_gguf.extra_layers(config) + (config["model_type"] == "qwen3_5_text")
    writer.add_block_count(config["num_hidden_layers"] + extra)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    if config["model_type"] != "gemma4_text":
        writer.add_feed_forward_length(mamba_gguf.block_width(config))
        kinds = config.get("layer_types", []) if config["model_type"].startswith("lfm2") else []
        if config["model_type"] in mamba_gguf.TYPES:
            writer.add_head_count_kv(mamba_gguf.kv_heads(config))
        else:
            writer.add_head_count_kv([config["num_key_value_heads"] * (kind != "conv") for kind in kinds]
                                     or config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config.get("norm_eps") or config["layer_norm_epsilon"])
    if config["model_type"] == "lfm2_moe":
        writer.add_leading_dense_block_count(config["num_dense_layers"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if config["model_type"].startswith("lfm2"):
        writer.add_shortconv_l_cache(config["conv_L_cache"])
    if config["model_type"] == "gemma4_text":
        metadata_gemma4(writer, config)
    else:
        metadata_rope(writer, config)
    if config["model_type"] in hybrid_gguf.TYPES:
        hybrid_gguf.metadata(writer, config)
    if config["model_type"] in mamba_gguf.TYPES:
        mamba_gguf.metadata(writer, config)
    if config["model_type"].startswith("granite"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    writer.add_vocab_size(config["vocab_size"])
    if "head_dim" in config and "global_head_dim" not in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        partial = (config.get("rope_parameters") or {}).get("partial_rotary_factor", 1)
        writer.add_rope_dimension_count(int(config["head_dim"] * partial))
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
        writer.add_sliding_window(config["sliding_window"])
    experts = config.get("num_experts", config.get("num_local_experts"))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.get("top_k_experts") or config["num_experts_per_tok"])
        if config["model_type"] != "mixtral":
            writer.add_expert_feed_forward_length(
                config.get("moe_intermediate_size", config["intermediate_size"]))
    if config["model_type"] == "gpt_oss":
        rope = config["rope_parameters"]
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
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
    return torch.from_numpy(values - 1 if has_offset(gemma, name) else values)


def expert_pieces(config, name, t):
    """What GGUF has of a fused tensor of transformers: [(name in GGUF, array)], and the way back."""
    layer, part = name.split(".")[2], name.split(".experts.")[1]
    kind = "bias" if part.endswith("_bias") else "weight"
    oss = config["model_type"] == "gpt_oss"  # [E, in, out], gate and up by turns
    swap = (lambda x: x.transpose(1, 2)) if oss and kind == "weight" else (lambda x: x)
    rows = swap(t)
    if part.startswith("down_proj"):
        return [(f"blk.{layer}.ffn_down_exps.{kind}", rows)], lambda down: swap(down)
    if config["model_type"] == "gemma4_text" and int(layer) % 2 == 0:  # as converters write it
        return [(f"blk.{layer}.ffn_gate_up_exps.{kind}", t)], lambda both: both
    if part.startswith("up_proj"):
        return [(f"blk.{layer}.ffn_up_exps.{kind}", t)], lambda up: up
    names = [f"blk.{layer}.ffn_{what}_exps.{kind}" for what in ("gate", "up")]
    if oss:
        return (list(zip(names, (rows[:, 0::2], rows[:, 1::2]))),
                lambda gate, up: swap(torch.stack((gate, up), 2).flatten(1, 2)))
    return list(zip(names, rows.chunk(2, 1))), lambda gate, up: torch.cat((gate, up), 1)


def write_experts(writer, name, spec, hf_name, shape):
    """Writes what an expert tensor of transformers becomes; returns it as it was rounded."""
    pieces, back = expert_pieces(spec["config"], hf_name, tensor_for(name, hf_name, shape))
    rounded = []
    for out_name, piece in pieces:
        stem, kind = out_name.rsplit(".", 1)
        type_name = "F32" if kind == "bias" else spec["types"].get(stem, spec["default"])
        values = np.ascontiguousarray(piece.numpy())
        data = gguf.quants.quantize(values, TYPE[type_name])
        writer.add_tensor(out_name, data, raw_dtype=TYPE[type_name])
        rounded.append(dequantised(data, TYPE[type_name], False, out_name))
    return back(*rounded).contiguous()


def write_linear(writer, name, spec, hf_name, shape, converter):
    """Writes what the converter makes of a tensor; returns it as it was rounded."""
    config, layer = spec["config"], hf_name.split(".")[2]
    values = tensor_for(name, hf_name, shape).numpy()

    def rounded(array, out_name):
        kind = "F32" if out_name in converter.F32 else spec["types"].get(
            f"blk.{layer}.{out_name}".removesuffix(".weight"), spec["default"])
        data = gguf.quants.quantize(np.ascontiguousarray(array, dtype=np.float32), TYPE[kind])
        return data, TYPE[kind], gguf.quants.dequantize(data, TYPE[kind]).reshape(array.shape)

    back = values.copy()
    places = converter.convert(config, hf_name, np.arange(values.size, dtype=np.float64).reshape(shape)
                               if not hf_name.endswith("A_log") else values)
    for (out_name, array), (_, where) in zip(converter.convert(config, hf_name, values), places):
        data, kind, read = rounded(array, out_name)
        writer.add_tensor(f"blk.{layer}.{out_name}", data, raw_dtype=kind)
        if not hf_name.endswith("A_log"):  # f32: nothing is rounded but the exponential
            back.reshape(-1)[where.astype(np.int64).reshape(-1)] = read.reshape(-1)
    return torch.from_numpy(back)


def write_gguf(path, name, spec, shapes):
    """Writes the file; returns the float32 weights under Hugging Face's names and order."""
    config, weights = spec["config"], {}
    hybrid = config["model_type"] in hybrid_gguf.TYPES
    gemma, paired = hybrid or config["model_type"] == "gemma2", config["model_type"] in PAIRED
    kind = spec.get("architecture", config["model_type"].removesuffix("_text"))
    writer = gguf.GGUFWriter(path, kind)
    writer.add_name(name)
    metadata(writer, config, tokenizer=config["model_type"] == "llama")
    if config["model_type"] == "llama":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    fused = {}  # name of the fused tensor -> rows of q, k, v
    for hf_name, shape in shapes.items():
        if ".experts." in hf_name:
            weights[hf_name] = write_experts(writer, name, spec, hf_name, shape)
            continue
        converter = hybrid_gguf if "linear_attn." in hf_name else mamba_gguf
        if "linear_attn." in hf_name or mamba_gguf.is_converted(config, hf_name):
            weights[hf_name] = write_linear(writer, name, spec, hf_name, shape, converter)
            continue
        out_name = gguf_name(hf_name, config["model_type"])
        if spec.get("architecture") == "gpt-oss":
            out_name = out_name.replace("ffn_norm", "post_attention_norm")
        flat = len(shape) == 1 or "shortconv.conv" in out_name
        kind = "F32" if flat or "ffn_gate_inp" in out_name else spec["types"].get(out_name.removesuffix(".weight"), spec["default"])
        data, raw = stored(name, hf_name, shape, kind, gemma)
        weights[hf_name] = dequantised(data, raw, gemma, hf_name)
        if len(shape) == 3:  # [C, 1, K] of a convolution
            data = data[:, 0]
        if paired and ("q_proj" in hf_name or "k_proj" in hf_name):
            key = "num_attention_heads" if "q_proj" in hf_name else "num_key_value_heads"
            data = interleave(data, config[key])
        if spec.get("fused") and any(f"{part}_proj" in hf_name for part in "qkv"):
            whole = fused.setdefault(out_name.replace(out_name.split(".")[2], "attn_qkv"), {})
            whole[hf_name.split(".")[-2][0]] = data
            if len(whole) < 3:
                continue
            out_name, data = next(n for n, w in fused.items() if w is whole), np.concatenate([whole[p] for p in "qkv"])
        data = data[0] if "shexp" in out_name and data.shape[0] == 1 else data
        writer.add_tensor(out_name, np.ascontiguousarray(data), raw_dtype=raw)
    if config["model_type"] == "qwen3_5_text" or mamba_gguf.extra_layers(config):  # a layer that nobody reads
        writer.add_tensor(f"blk.{config['num_hidden_layers']}.attn_norm.weight", np.ones(3, dtype=np.float32))
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
    read = {n: by_gguf[gguf_name(n, "llama")] for n in weights}
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
    result = make_models.golden(name, config, {None: logits_of}, spec.get("lengths", model_specs.LENGTHS), source)
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
