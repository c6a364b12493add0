"""What llama.cpp's converter makes of models with Mamba-2 layers: names, shapes and metadata."""

import numpy as np

TYPES = ("granitemoehybrid", "nemotron_h", "falcon_h1")
FFN = {f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
NAMES = {
    "granitemoehybrid": {"block_sparse_moe.router": "ffn_gate_inp"},
    "nemotron_h": {"norm": "attn_norm", "mixer.q_proj": "attn_q", "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v",
                   "mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down",
                   "mixer.gate": "ffn_gate_inp", "mixer.shared_experts.up_proj": "ffn_up_shexp",
                   "mixer.shared_experts.down_proj": "ffn_down_shexp", "mixer.fc1_latent_proj": "ffn_latent_down",
                   "mixer.fc2_latent_proj": "ffn_latent_up"},
    "falcon_h1": FFN | {"pre_ff_layernorm": "ffn_norm"},
}
PARTS = {"in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight", "conv1d.bias": "ssm_conv1d.bias",
         "dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "norm.weight": "ssm_norm.weight",
         "out_proj.weight": "ssm_out.weight"}
F32 = ("ssm_a", "ssm_d", "ssm_dt.bias", "ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_norm.weight")


def groups(config):
    return config.get("mamba_n_groups", config.get("n_groups"))


def is_converted(config, name):
    if config["model_type"] not in TYPES:
        return False
    return ".mamba." in name or ".shared_mlp." in name or (".mixer." in name and name.split(".", 4)[4] in PARTS)


def convert(config, name, t):
    """[(name in the layer; array)] of a tensor of a Mamba-2 layer or of a block that every token meets."""
    if ".shared_mlp." in name:
        kind = "_shexp" if config["num_local_experts"] else ""
        if "output_linear" in name:
            return [(f"ffn_down{kind}.weight", t)]
        return list(zip((f"ffn_gate{kind}.weight", f"ffn_up{kind}.weight"), np.split(t, 2)))
    part = name.split(".", 4)[4]
    if part == "A_log":
        t = -np.exp(t)
    if part in ("A_log", "D"):
        t = t.reshape(-1, 1)
    elif part == "norm.weight":
        t = t.reshape(groups(config), -1)
    elif part == "conv1d.weight":
        t = t[:, 0]
    return [(PARTS[part], t)]


def pattern(config):
    return config["hybrid_override_pattern"]


def extra_layers(config):
    """Blocks behind the model's own that predict further tokens: of experts and attention together."""
    return config.get("num_nextn_predict_layers", 0)


def block_width(config):
    """What feed_forward_length says: of an expert where there are any."""
    if config["model_type"] == "nemotron_h":
        widths = {"-": config["intermediate_size"], "E": config.get("moe_intermediate_size")}
        return [widths.get(kind, 0) for kind in pattern(config)] + [widths["E"]] * extra_layers(config)
    dense = config["model_type"] == "granitemoehybrid" and not config["num_local_experts"]
    return config["shared_intermediate_size" if dense else "intermediate_size"]


def kv_heads(config):
    """As many as a layer has: none without attention."""
    n = config["num_key_value_heads"]
    if config["model_type"] == "falcon_h1":
        return n
    kinds = pattern(config) if config["model_type"] == "nemotron_h" else config["layer_types"]
    return [n * (kind in ("*", "attention", "full_attention")) for kind in kinds] + [n] * extra_layers(config)


def metadata(writer, config):
    heads = config.get("mamba_n_heads", config.get("mamba_num_heads"))
    writer.add_ssm_conv_kernel(config.get("mamba_d_conv", config.get("conv_kernel")))
    writer.add_ssm_state_size(config.get("mamba_d_state", config.get("ssm_state_size")))
    writer.add_ssm_group_count(groups(config))
    writer.add_ssm_inner_size(heads * config.get("mamba_d_head", config.get("mamba_head_dim")))
    writer.add_ssm_time_step_rank(heads)
    if config["model_type"] != "falcon_h1":
        writer.add_rope_scaling_finetuned(False)
    if config["model_type"] == "granitemoehybrid" and config["num_local_experts"]:
        writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    if "n_routed_experts" in config:
        writer.add_expert_count(config["n_routed_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        if extra_layers(config):
            writer.add_nextn_predict_layers(extra_layers(config))
        if config.get("moe_latent_size"):
            writer.add_moe_latent_size(config["moe_latent_size"])
