"""Shows that the golden cases can see a mistake: every feature is broken in turn.

    python tools/oracle/check_sensitivity.py [--models tests/data/models]

A model is run again with one choice of its configuration changed, or one kind of weight made
neutral. Some token's log-probability must then move by far more than the tolerance of the tests.
"""

import argparse
import copy
import json
import logging
import pathlib

import torch
import transformers

import make_models
import plain_models

SEEN = 0.02  # twenty times the tolerance of 1e-3

CONFIG = {
    "llama3-v4": {"rope_scaling": None, "rope_theta": 10000.0, "rms_norm_eps": 0.1},
    "llama3-v5": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
    "llama-linear-v4": {"rope_scaling": None},
    "llama-linear-v5": {"rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}},
    "mistral": {"sliding_window": 9},
    "qwen2": {"use_sliding_window": True, "rope_theta": 10000.0},
    "qwen2-window": {"sliding_window": 9, "layer_types": ["sliding_attention"] * 4},
    "phi3": {"sliding_window": 9},
    "phi3-longrope-v4": {"original_max_position_embeddings": 100},
    "phi3-longrope-v5": {"original_max_position_embeddings": 8},
    "phi3-partial": {"partial_rotary_factor": 1.0},
    "gemma2": {"sliding_window": 9, "query_pre_attn_scalar": 12, "attn_logit_softcapping": None,
               "final_logit_softcapping": None, "hidden_activation": "silu",
               "layer_types": ["full_attention", "sliding_attention"] * 2},
    "gemma3-v4": {"sliding_window": 9, "rope_scaling": None, "rope_local_base_freq": 1000000.0,
                  "sliding_window_pattern": 2, "query_pre_attn_scalar": 12, "rope_theta": 10000.0},
}
WEIGHTS = {
    "llama-bias": ("q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias", "gate_proj.bias",
                   "up_proj.bias", "down_proj.bias"),
    "qwen2": ("q_proj.bias", "k_proj.bias", "v_proj.bias"),
    "qwen3-v4": ("q_norm.weight", "k_norm.weight"),
    "qwen3-v5": ("q_norm.weight", "k_norm.weight"),
    "gemma2": ("post_attention_layernorm.weight", "pre_feedforward_layernorm.weight",
               "post_feedforward_layernorm.weight"),
    "gemma3-v5": ("q_norm.weight", "k_norm.weight", "post_feedforward_layernorm.weight"),
    "llama-swiftkv-g1": ("norm_swiftkv.weight",),
    "llama-swiftkv-g3": ("q_proj_swiftkv.bias", "k_proj_swiftkv.bias", "v_proj_swiftkv.bias"),
    "qwen2-swiftkv-g2": ("norm_swiftkv.weight", "q_proj_swiftkv.bias", "k_proj_swiftkv.bias"),
    "qwen3-swiftkv-g2": ("q_norm_swiftkv.weight", "k_norm_swiftkv.weight", "norm_swiftkv.weight"),
    "openelm": ("q_norm.weight", "k_norm.weight", "ffn_norm.weight"),
}


def runner(config, weights):
    if config["model_type"] == "openelm":
        return plain_models.OpenElm(config, weights).forward
    if config["model_type"].endswith("_swiftkv"):
        return plain_models.LlamaFamily(config, weights).forward
    model = transformers.AutoModelForCausalLM.from_config(
        make_models.base_config(config), dtype=torch.float64, attn_implementation="eager")
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    return lambda ids: model(torch.tensor([ids]), use_cache=False).logits[0]


def movement(forward, cases):
    """The largest change of a log-probability, over all cases."""
    worst = 0.0
    for case in cases:
        rows = forward(case["ids"]).log_softmax(-1)
        for t in range(1, len(case["ids"])):
            worst = max(worst, abs(rows[t - 1, case["ids"][t]].item() - case["logprobs"][t]))
    return worst


def neutral(name, tensor, gemma):
    fill = 0.0 if gemma or name.endswith("bias") else 1.0
    return torch.full_like(tensor, fill)


def check(label, moved, problems):
    print(f"{label}: {moved:.3f}")
    if not moved > SEEN:
        problems.append(label)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=pathlib.Path, default=here / "tests/data/models")
    root = parser.parse_args().models
    logging.disable(logging.WARNING)
    problems = []
    for name in sorted(CONFIG.keys() | WEIGHTS.keys()):
        config = json.loads((root / name / "config.json").read_text())
        cases = json.loads((root / name / "golden.json").read_text())["cases"]
        weights = make_models.read_float64(root / name)
        for key, value in CONFIG.get(name, {}).items():
            changed = {**copy.deepcopy(config), key: value}
            check(f"{name}: {key} = {value}", movement(runner(changed, weights), cases), problems)
        gemma = config["model_type"].startswith("gemma")
        for suffix in WEIGHTS.get(name, ()):
            changed = {n: neutral(n, t, gemma) if n.endswith(suffix) else t for n, t in weights.items()}
            check(f"{name}: without {suffix}", movement(runner(config, changed), cases), problems)
    assert not problems, f"not visible in the golden cases: {problems}"


if __name__ == "__main__":
    with torch.no_grad():
        main()
