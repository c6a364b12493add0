"""Writes tiny models in 8 and 4 bits, as people publish them, and golden results.

    python tools/oracle/make_quantised.py [--out tests/data/models] [NAME ...]

The layouts are written here from their descriptions, and the numbers that they stand for are kept: the
golden results are those of `transformers` (SwiftKV: of plain_models.py) on these, in float64.
"""

import argparse
import json
import logging
import pathlib
import shutil

import safetensors.torch
import torch

import golden_cases
import make_models
import model_specs
import plain_models
from random_weights import generator

LINEAR, FULL = model_specs.LINEAR, model_specs.FULL
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def amax_scale(blocks, top, kind):
    """A scale for each block [..., n], of type `kind`."""
    return (blocks.abs().amax(-1) / top).clamp(min=1e-4).to(kind)


def fp8(w, scale):
    """Codes of w for a scale of its shape, and what they stand for."""
    codes = (w / scale.double()).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, codes.double() * scale.double()


def fp8_tensor(w, options):
    scale = amax_scale(w.flatten()[None], 448.0, torch.bfloat16)
    codes, value = fp8(w, scale.expand(w.shape))
    return {"weight": codes, "weight_scale": scale,
            "input_scale": torch.tensor([0.02], dtype=torch.bfloat16)}, value


def fp8_row(w, options):
    scale = amax_scale(w, 448.0, options.get("scales", torch.bfloat16))[:, None]
    codes, value = fp8(w, scale.expand(w.shape))
    return {"weight": codes, "weight_scale": scale}, value


def fp8_block(w, options):
    b, c = options["block"] if isinstance(options["block"], tuple) else [options["block"]] * 2
    n, k = w.shape
    scale = torch.zeros(-(-n // b), -(-k // c))
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            scale[i, j] = w[i * b:(i + 1) * b, j * c:(j + 1) * c].abs().max() / 448
    whole = scale.repeat_interleave(b, 0)[:n].repeat_interleave(c, 1)[:, :k]
    codes, value = fp8(w, whole)
    return {"weight": codes, options.get("name", "weight_scale_inv"): scale}, value


def int8_row(w, options):
    scale = amax_scale(w, 127.0, torch.bfloat16)[:, None]
    codes = (w / scale.double()).round().clamp(-127, 127).to(torch.int8)
    return {"weight": codes, "weight_scale": scale}, codes.double() * scale.double()


def grouped(w, options):
    """(codes 0..15, zero points, scales [N, K / g], group of each column, values)"""
    symmetric = options.get("symmetric")
    n, k = w.shape
    g = options["group"]
    groups = torch.arange(k) // g
    if options.get("order"):
        groups = groups[torch.from_numpy(generator("order", n, k).permutation(k))]
    scale, zero = torch.zeros(n, k // g), torch.zeros(n, k // g)
    for j in range(k // g):
        part = w[:, groups == j]
        low, high = part.min(1).values.clamp(max=0), part.max(1).values.clamp(min=0)
        if symmetric:
            high = torch.maximum(high, -low)
            low = -high
        scale[:, j] = (high - low) / 15
        zero[:, j] = 8 if symmetric else (-low / scale[:, j].double()).round().clamp(1, 15)
    scale = scale.to(options.get("scales", torch.float16))
    s, z = scale.double()[:, groups], zero.double()[:, groups]
    codes = (w / s + z).round().clamp(0, 15)
    return codes.to(torch.int64), zero.to(torch.int64), scale, groups, (codes - z) * s


def pack(codes, dim, order=range(8)):
    """Eight codes of a dimension to an int32; bits 4 i hold element order[i]. The last may be few."""
    codes = codes.movedim(dim, -1)
    n = codes.shape[-1]
    codes = torch.nn.functional.pad(codes, (0, -n % 8)).unflatten(-1, (-1, 8))
    words = sum(codes[..., e] << 4 * i for i, e in enumerate(order))
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return words.movedim(-1, dim).contiguous()


def packed(w, options):
    codes, zero, scale, groups, value = grouped(w, options)
    parts = {"weight_packed": pack(codes, 1), "weight_scale": scale,
             "weight_shape": torch.tensor(w.shape)}
    if not options.get("symmetric"):
        parts["weight_zero_point"] = pack(zero, 0)
    if options.get("order"):
        parts["weight_g_idx"] = groups.to(torch.int32)
    return parts, value


def awq(w, options):
    codes, zero, scale, _, value = grouped(w, options)
    return {"qweight": pack(codes.T, 1, AWQ_ORDER), "qzeros": pack(zero.T, 1, AWQ_ORDER),
            "scales": scale.T.contiguous()}, value


def gptq(w, options):
    codes, zero, scale, groups, value = grouped(w, options)
    stored = zero if options.get("v2") else zero - 1
    return {"qweight": pack(codes.T, 0), "qzeros": pack(stored.T, 1),
            "scales": scale.T.contiguous(), "g_idx": groups.to(torch.int32)}, value


def compressed(form, bits, kind, strategy, **more):
    weights = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights | more}}}


def gptq_config(group, **more):
    return {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, "sym": False,
            "checkpoint_format": "gptq", **more}


def specs():
    """name -> {config, how its matrices are quantised, options of that, quantization_config}"""
    llama, qwen, phi3 = model_specs.llama, model_specs.qwen, model_specs.phi3
    v4, v5, swiftkv = model_specs.v4, model_specs.v5, model_specs.swiftkv
    wide = {"hidden_size": 64, "intermediate_size": 96}
    shared = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    for_64 = shared | {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 2}
    for_128 = shared | {"hidden_size": 256, "head_dim": 32, "intermediate_size": 384,
                        "num_hidden_layers": 1, "vocab_size": 61}
    experts = {"hidden_size": 64, "head_dim": 16, "num_hidden_layers": 2, "num_experts": 5}
    half = {"torch_dtype": "bfloat16"}
    return {
        "fp8-tensor": {
            "config": llama(v4, num_hidden_layers=2, **half), "by": fp8_tensor, "options": {},
            "quantization": compressed("float-quantized", 8, "float", "tensor"),
        },
        "fp8-row-swiftkv": {  # the form of the published SwiftKV checkpoints in FP8
            "config": swiftkv(llama(v4, rope_scaling=model_specs.LLAMA3_SCALING, **half), 4, 2, 1),
            "by": fp8_row, "options": {},
            "quantization": compressed("float-quantized", 8, "float", "channel"),
        },
        "fp8-fbgemm": {
            "config": qwen(v5, "Qwen2", num_hidden_layers=2), "by": fp8_row,
            "options": {"scales": torch.float32},
            "quantization": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
        },
        "fp8-block": {  # partial blocks at both edges
            "config": qwen(v5, "Qwen3", head_dim=12, attention_bias=False, num_hidden_layers=2,
                           hidden_size=40),
            "by": fp8_block, "options": {"block": 16},
            "quantization": {"quant_method": "fp8", "weight_block_size": [16, 16]},
        },
        "fp8-block-odd": {  # sizes that only the configuration tells
            "config": llama(v4, num_hidden_layers=2), "by": fp8_block,
            "options": {"block": (20, 24), "name": "weight_scale"},
            "quantization": compressed("float-quantized", 8, "float", "block", block_structure=[20, 24]),
        },
        "fp8-block-fused": {  # q, k and v begin within blocks
            "config": phi3(v4, hidden_size=48, num_hidden_layers=2, rope_scaling=None),
            "by": fp8_block, "options": {"block": 32},
            "quantization": {"quant_method": "fp8", "weight_block_size": [32, 32]},
        },
        "fp8-scalar": {  # one scale without dimensions, as Ministral 3 is published
            "config": qwen(v5, "Qwen3", head_dim=12, attention_bias=False, num_hidden_layers=2),
            "by": lambda w, o: scalar(*fp8_tensor(w, o)), "options": {},
            "quantization": {"quant_method": "fp8", "activation_scheme": "static",
                             "weight_block_size": None},
        },
        "int8-row": {
            "config": qwen(v5, "Qwen2", num_hidden_layers=2, intermediate_size=64),
            "by": int8_row, "options": {},
            "quantization": compressed("int-quantized", 8, "int", "channel"),
        },
        "int4-zeros": {
            "config": llama(v4, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                            **wide, **half),
            "by": packed, "options": {"group": 32, "scales": torch.bfloat16},
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=32),
        },
        "int4-order": {
            "config": llama(v4, num_hidden_layers=2, **wide, **half),
            "by": packed, "options": {"group": 16, "order": True},
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=16,
                                       actorder="group"),
        },
        "awq": {
            "config": llama(v4, num_hidden_layers=2, **wide), "by": awq, "options": {"group": 32},
            "quantization": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
                             "version": "gemm", "modules_to_not_convert": None},
        },
        "awq-fused": {  # k and v begin within an int32
            "config": phi3(v4, hidden_size=48, num_key_value_heads=1, num_hidden_layers=2,
                           rope_scaling=None),
            "by": awq, "options": {"group": 16},
            "quantization": {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True,
                             "version": "gemm"},
        },
        "gptq": {
            "config": qwen(v5, "Qwen3", head_dim=16, attention_bias=False, num_hidden_layers=2,
                           hidden_size=64, intermediate_size=96),
            "by": gptq, "options": {"group": 32}, "quantization": gptq_config(32),
        },
        "gptq-order-swiftkv": {
            "config": swiftkv(llama(v4, **wide), 4, 2, 2), "by": gptq,
            "options": {"group": 32, "order": True, "v2": True},
            "quantization": gptq_config(32, desc_act=True, checkpoint_format="gptq_v2"),
        },
        "int4-64": {
            "config": llama(v4, **for_64, **half),
            "by": packed, "options": {"group": 64, "symmetric": True, "scales": torch.bfloat16},
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=64),
        },
        "int4-128-zeros": {
            "config": qwen(v5, "Qwen3", attention_bias=False, **for_128),
            "by": packed, "options": {"group": 128},
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=128,
                                       symmetric=False),
        },
        "awq-128": {
            "config": llama(v4, **for_128), "by": awq, "options": {"group": 128},
            "quantization": {"quant_method": "awq", "bits": 4, "group_size": 128,
                             "zero_point": True, "version": "gemm", "modules_to_not_convert": None},
        },
        "gptq-128": {
            "config": qwen(v5, "Qwen3", attention_bias=False, **for_128), "by": gptq,
            "options": {"group": 128, "symmetric": True},
            "quantization": gptq_config(128, sym=True),
        },
        "gptq-64-order": {
            "config": llama(v4, **for_64), "by": gptq,
            "options": {"group": 64, "order": True},
            "quantization": gptq_config(64, desc_act=True),
        },
        "qwen3-moe-fp8-block": {  # as published: a tensor and its blocks for each expert
            "config": model_specs.qwen3_moe(v5, num_hidden_layers=2), "by": fp8_block,
            "options": {"block": 16}, "split": True,
            "quantization": {"quant_method": "fp8", "weight_block_size": [16, 16],
                             "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]},
        },
        "qwen3-moe-gptq": {
            "config": model_specs.qwen3_moe(v5, moe_intermediate_size=32, **experts), "by": gptq,
            "options": {"group": 32}, "split": True, "quantization": gptq_config(32),
        },
        "qwen3-5-fp8-block": {  # as published: inside a model with images, b and a as they are; partial blocks
            "config": model_specs.delta("qwen3_5_text", "Qwen3_5", num_hidden_layers=3, dtype="bfloat16",
                                        layer_types=[LINEAR, FULL, LINEAR]),
            "by": fp8_block, "options": {"block": 16}, "wrapped": "qwen3_5", "floats": ("in_proj_a", "in_proj_b"),
            "quantization": {"quant_method": "fp8", "weight_block_size": [16, 16],
                             "modules_to_not_convert": ["lm_head", "model.language_model.layers.0.linear_attn.in_proj_a"]},
        },
        "qwen3-5-moe-fp8-block": {
            "config": model_specs.delta("qwen3_5_moe_text", "Qwen3_5Moe", num_hidden_layers=2, dtype="bfloat16",
                                        layer_types=[LINEAR, FULL], **model_specs.delta_experts()),
            "by": fp8_block, "options": {"block": 16}, "split": True, "floats": ("in_proj_a", "in_proj_b"),
            "quantization": {"quant_method": "fp8", "weight_block_size": [16, 16],
                             "modules_to_not_convert": ["lm_head"]},
        },
        "qwen3-5-int4": {  # every linear layer, b and a too
            "config": model_specs.delta("qwen3_5_text", "Qwen3_5", num_hidden_layers=3, hidden_size=64,
                                        intermediate_size=64, linear_key_head_dim=16, linear_value_head_dim=16,
                                        tie_word_embeddings=True, layer_types=[LINEAR, FULL, LINEAR]),
            "by": packed, "options": {"group": 32, "scales": torch.bfloat16}, "wrapped": "qwen3_5",
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=32),
        },
        "qwen3-5-awq": {
            "config": model_specs.delta("qwen3_5_text", "Qwen3_5", num_hidden_layers=2, hidden_size=64,
                                        intermediate_size=64, linear_key_head_dim=16, linear_value_head_dim=16,
                                        layer_types=[LINEAR, FULL]),
            "by": awq, "options": {"group": 32}, "floats": ("in_proj_a", "in_proj_b"),
            "quantization": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
                             "version": "gemm"},
        },
        "qwen3-next-fp8-block": {  # rows by key head, which begin within blocks
            "config": model_specs.delta("qwen3_next", "Qwen3Next", num_hidden_layers=2, decoder_sparse_step=1,
                                        mlp_only_layers=[0], norm_topk_prob=True, dtype="bfloat16",
                                        layer_types=[LINEAR, FULL], **model_specs.delta_experts()),
            "by": fp8_block, "options": {"block": 16}, "split": True, "floats": ("in_proj_ba",),
            "quantization": {"quant_method": "fp8", "weight_block_size": [16, 16],
                             "modules_to_not_convert": ["lm_head"]},
        },
        "granite-h-fp8-row": {
            "config": model_specs.mamba_specs()["granite-h"]["config"] | {
                "num_hidden_layers": 3, "layer_types": [LINEAR, FULL, LINEAR]},
            "by": fp8_row, "options": {},
            "quantization": compressed("float-quantized", 8, "float", "channel"),
        },
        "falcon-h1-int4": {  # with multipliers: such products lose their codes
            "config": model_specs.falcon_h1(model_specs.v4, num_hidden_layers=2, hidden_size=64, intermediate_size=64,
                                            mamba_d_ssm=64, mamba_d_head=16),
            "by": packed, "options": {"group": 32, "scales": torch.bfloat16},
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=32),
        },
        "mixtral-int4": {
            "config": model_specs.mixtral(v4, hidden_size=64, intermediate_size=32, head_dim=16,
                                          num_hidden_layers=2),
            "by": packed, "options": {"group": 32, "scales": torch.bfloat16}, "split": True,
            "quantization": compressed("pack-quantized", 4, "int", "group", group_size=32),
        },
    }


def scalar(parts, value):
    scale = parts.pop("weight_scale")
    parts.pop("input_scale")
    return parts | {"weight_scale_inv": scale[0], "activation_scale": torch.tensor(0.02)}, value


def is_linear(name, floats=()):
    if any(part in name for part in floats):
        return False
    if "linear_attn.in_proj" in name or name.endswith(("mamba.in_proj.weight", "_linear.weight")):
        return True
    of_expert = ".experts." in name and name.endswith((".w1.weight", ".w2.weight", ".w3.weight"))
    return of_expert or name.endswith(("_proj.weight", "_proj_swiftkv.weight"))


def make(root, name, spec):
    config, folder = spec["config"], root / name
    tensors = make_models.base_tensors(name, config)
    if spec.get("split"):
        tensors = make_models.split_experts(tensors, config["model_type"])
    is_swiftkv = config["model_type"].endswith("_swiftkv")
    if is_swiftkv:
        tensors |= make_models.swiftkv_tensors(name, config, tensors)
        tensors = make_models.without_teacher(tensors, config["num_key_value_layers"])
    stored, values = {}, {}
    for n, t in tensors.items():
        values[n] = t.double()
        if not is_linear(n, spec.get("floats", ())):
            stored[n] = t
            continue
        parts, values[n] = spec["by"](t.double(), spec["options"])
        stored |= {n.removesuffix("weight") + part: p.contiguous() for part, p in parts.items()}
    if is_swiftkv:
        logits_of = plain_models.LlamaFamily(config, values).forward
        source = "plain torch, float64"
    else:
        scratch = root / f"{name}.scratch"
        save_exact(scratch, config, values)
        logits_of = make_models.transformers_logits(scratch)
        shutil.rmtree(scratch)
        source = "transformers on the dequantised weights"
    written = config | {"quantization_config": spec["quantization"]}
    if spec.get("wrapped"):
        inner = {k: v for k, v in config.items() if k != "tie_word_embeddings"}
        written = {"architectures": [config["architectures"][0].replace("CausalLM", "ConditionalGeneration")],
                   "model_type": spec["wrapped"], "quantization_config": spec["quantization"],
                   "text_config": inner, "tie_word_embeddings": config["tie_word_embeddings"],
                   "vision_config": {"hidden_size": 3}}
        stored = {n.replace("model.", "model.language_model.", 1): t for n, t in stored.items()}
        stored |= {"model.visual.patch_embed.proj.weight": torch.ones(4, 3), "mtp.fc.weight": torch.ones(4, 8)}
    save_exact(folder, written, stored)
    result = make_models.golden(name, config, {None: logits_of}, model_specs.LENGTHS, source)
    golden_cases.write_json(folder / "golden.json", result)


def save_exact(folder, config, tensors):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    stored = {n: t.contiguous() for n, t in tensors.items()}
    safetensors.torch.save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/models")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    table = specs()
    for name in options.names or table:
        make(options.out, name, table[name])


if __name__ == "__main__":
    with torch.no_grad():
        main()
