"""What llama.cpp's converter makes of models with Mamba-2 layers: names, shapes and metadata."""

import numpy as np

TYPES = ("granitemoehybrid",)
NAMES = {
    "granitemoehybrid": {"block_sparse_moe.router": "ffn_gate_inp"},
}
PARTS = {"in_proj.weight": "ssm_in.weight", "conv1d.weight": "ssm_conv1d.weight", "conv1d.bias": "ssm_conv1d.bias",
         "dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d", "norm.weight": "ssm_norm.weight",
         "out_proj.weight": "ssm_out.weight"}
F32 = ("ssm_a", "ssm_d", "ssm_dt.bias", "ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_norm.weight")


def groups(config):
    return config.get("mamba_n_groups", config.get("n_groups"))


def is_converted(config, name):
    return config["model_type"] in TYPES and (".mamba." in name or ".shared_mlp." in name)


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


def block_width(config):
    """What feed_forward_length says: of an expert where there are any."""
    dense = config["model_type"] == "granitemoehybrid" and not config["num_local_experts"]
    return config["shared_intermediate_size" if dense else "intermediate_size"]


def kv_heads(config):
    """As many as a layer has: none without attention."""
    kinds = config["layer_types"]
    return [config["num_key_value_heads"] * (kind in ("attention", "full_attention")) for kind in kinds]


def metadata(writer, config):
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(groups(config))
    writer.add_ssm_inner_size(config["mamba_n_heads"] * config["mamba_d_head"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    if config["model_type"] == "granitemoehybrid":
        writer.add_rope_scaling_finetuned(False)
        if config["num_local_experts"]:
            writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
