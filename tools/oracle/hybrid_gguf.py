"""What llama.cpp's converter makes of Qwen 3.5 and Qwen3-Next: names, metadata, and the order of value heads.

Where there are more value heads than key heads, files of qwen35 and qwen35moe hold them tiled: head h of the file uses
key head h % nk, where it is h // (nv / nk) in transformers. qwen3next keeps the order.
"""

import numpy as np

TYPES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
NAMES = {
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
F32 = ("ssm_a", "ssm_dt.bias", "ssm_conv1d.weight", "ffn_gate_inp_shexp.weight", "ssm_norm.weight")


class Shape:
    def __init__(self, config):
        self.nk, self.nv = config["linear_num_key_heads"], config["linear_num_value_heads"]
        self.dk, self.dv = config["linear_key_head_dim"], config["linear_value_head_dim"]
        self.r = self.nv // self.nk
        self.tiled = config["model_type"] != "qwen3_next"

    def heads(self):
        """The head of transformers that stands at each place of the file."""
        order = np.arange(self.nv)
        return order.reshape(self.nk, self.r).T.reshape(-1) if self.tiled else order

    def tile(self, t, axis, size):
        """Value heads of `size` along an axis, as the file has them."""
        t = np.moveaxis(t, axis, 0)
        t = t.reshape(self.nv, size, *t.shape[1:])[self.heads()].reshape(t.shape)
        return np.moveaxis(t, 0, axis)

    def tile_last(self, t):
        """The v among rows of q, k and v."""
        n = 2 * self.nk * self.dk
        return np.concatenate((t[:n], self.tile(t[n:], 0, self.dv)))

    def split_qkvz(self, t):
        """Rows by key head: those of q, k and v, and those of z."""
        heads = t.reshape(self.nk, 2 * self.dk + 2 * self.r * self.dv, -1)
        at = np.cumsum([0, self.dk, self.dk, self.r * self.dv, self.r * self.dv])
        q, k, v, z = (heads[:, a:b].reshape(-1, t.shape[1]) for a, b in zip(at, at[1:]))
        return np.concatenate((q, k, v)), z


def convert(config, name, t):
    """[(name in the layer, without its type; array)] of a tensor of linear_attn."""
    shape = Shape(config)
    part = name.split("linear_attn.")[1]
    if part == "A_log":
        return [("ssm_a", shape.tile(-np.exp(t), 0, 1))]
    if part == "dt_bias":
        return [("ssm_dt.bias", shape.tile(t, 0, 1))]
    part = part.removesuffix(".weight")
    if part == "in_proj_qkvz" and int(name.split(".")[2]) % 2 == 0:  # as files of today have it
        qkv, z = shape.split_qkvz(t)
        return [("attn_qkv.weight", qkv), ("attn_gate.weight", z)]
    if part == "in_proj_qkvz":
        return [("ssm_in.weight", t)]
    out = NAMES["linear_attn." + part] + ".weight"
    if part == "in_proj_qkv":
        t = shape.tile_last(t)
    elif part == "conv1d":
        t = shape.tile_last(t[:, 0])
    elif part in ("in_proj_z", "in_proj_b", "in_proj_a"):
        t = shape.tile(t, 0, shape.dv if part == "in_proj_z" else 1)
    elif part == "out_proj":
        t = shape.tile(t, 1, shape.dv)
    return [(out, t)]


def metadata(writer, config):
    shape = Shape(config)
    arch = writer.arch
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(shape.dk)
    writer.add_ssm_group_count(shape.nk)
    writer.add_ssm_time_step_rank(shape.nv)
    writer.add_ssm_inner_size(shape.nv * shape.dv)
    if config["model_type"] == "qwen3_5_text":
        writer.add_array(f"{arch}.rope.dimension_sections", [1, 1, 0, 0])
        writer.add_uint32(f"{arch}.nextn_predict_layers", 1)
    if config["model_type"] == "qwen3_5_moe_text":
        kinds = [kind == "linear_attention" for kind in config["layer_types"]]
        writer.add_array(f"{arch}.attention.recurrent_layers", kinds)
    else:
        writer.add_uint32(f"{arch}.full_attention_interval", 4)
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
