"""A plain transformer in numpy, float64, written from the published descriptions: what it attends to and with which keys and values."""

import json
import struct
from typing import NamedTuple

import numpy as np


class Layer(NamedTuple):
    keys: np.ndarray  # [KV heads, n, head size], rotated
    values: np.ndarray
    weights: np.ndarray  # [query heads, n, n]


def read(folder):
    """The tensors of a folder with one file of safetensors."""
    data = (folder / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, about in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        start, end = (8 + length + at for at in about["data_offsets"])
        raw = data[start:end]
        if about["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[about["dtype"]])
        out[name] = values.astype(np.float64).reshape(about["shape"])
    return out


class PlainModel:
    """Qwen 2, Qwen 3 and Gemma 2."""

    def __init__(self, folder):
        self.c = json.loads((folder / "config.json").read_text())
        self.w = read(folder)
        self.gemma = self.c["model_type"] == "gemma2"
        self.heads, self.kv_heads = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        self.size = self.c.get("head_dim") or self.c["hidden_size"] // self.heads

    def norm(self, x, name):
        scaled = x / np.sqrt((x**2).mean(-1, keepdims=True) + self.c["rms_norm_eps"])
        return scaled * (self.w[name] + 1 if self.gemma else self.w[name])

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0)

    def project(self, x, name, n_heads):
        """[heads, n, head size], normed where there is a norm."""
        out = self.linear(x, name).reshape(len(x), n_heads, self.size).swapaxes(0, 1)
        norm = name.replace("_proj", "_norm") + ".weight"
        return self.norm(out, norm) if norm in self.w else out

    def rotate(self, x):
        theta = self.c.get("rope_theta") or self.c["rope_parameters"]["rope_theta"]
        half = self.size // 2
        angles = np.arange(x.shape[1])[:, None] / theta ** (np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)

    def window(self, layer):
        types = self.c.get("layer_types")
        windowed = types[layer] == "sliding_attention" if types else self.gemma and layer % 2 == 0
        return self.c["sliding_window"] if windowed else 0

    def attend(self, x, layer, mask):
        p, n = f"model.layers.{layer}.self_attn.", len(x)
        q = self.rotate(self.project(x, p + "q_proj", self.heads))
        k = self.rotate(self.project(x, p + "k_proj", self.kv_heads))
        v = self.project(x, p + "v_proj", self.kv_heads)
        group = self.heads // self.kv_heads
        scores = q @ k.repeat(group, 0).swapaxes(1, 2) / np.sqrt(self.c.get("query_pre_attn_scalar", self.size))
        if cap := self.c.get("attn_logit_softcapping"):
            scores = cap * np.tanh(scores / cap)
        seen = np.tril(np.ones((n, n), bool)) & mask
        if window := self.window(layer):
            seen &= ~np.tril(np.ones((n, n), bool), -window)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = (weights @ v.repeat(group, 0)).swapaxes(0, 1).reshape(n, -1)
        return self.linear(out, p + "o_proj"), Layer(k, v, weights)

    def feed(self, x, layer):
        p = f"model.layers.{layer}.mlp."
        gate = self.linear(x, p + "gate_proj")
        if self.gemma:
            gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.linear(gate * self.linear(x, p + "up_proj"), p + "down_proj")

    def run(self, ids, mask=True):
        """(log-probabilities [n, V], the layers); mask [n, n]: False where a token does not see another."""
        x = self.w["model.embed_tokens.weight"][ids]
        x = x * np.sqrt(self.c["hidden_size"]) if self.gemma else x
        layers = []
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            out, layer = self.attend(self.norm(x, p + "input_layernorm.weight"), i, mask)
            layers.append(layer)
            if self.gemma:
                x = x + self.norm(out, p + "post_attention_layernorm.weight")
                out = self.feed(self.norm(x, p + "pre_feedforward_layernorm.weight"), i)
                x = x + self.norm(out, p + "post_feedforward_layernorm.weight")
            else:
                x = x + out
                x = x + self.feed(self.norm(x, p + "post_attention_layernorm.weight"), i)
        logits = self.norm(x, "model.norm.weight") @ self.w["model.embed_tokens.weight"].T
        if cap := self.c.get("final_logit_softcapping"):
            logits = cap * np.tanh(logits / cap)
        best = logits.max(-1, keepdims=True)
        return logits - best - np.log(np.exp(logits - best).sum(-1, keepdims=True)), layers
