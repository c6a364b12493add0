"""KV Prediction (arXiv:2410.08391) in plain torch, written from the paper, in float64.

Base and auxiliary are Llama-family or OpenELM models of any two shapes. Nothing is cached: a row is
recomputed from its text every time. Which rows of the base have keys and values of its own is a set
of positions, so that prompts, generated tokens and later turns are one formula.
"""

import math

import torch

from plain_models import heads, inverse_frequencies, linear, rms_norm, rope_settings, rotate


class Block:
    """One transformer with its attention in the open: q, k, v as the projections leave them."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.openelm = config["model_type"] == "openelm"
        self.vocab = config["vocab_size"]
        if self.openelm:
            self.n_layers, self.head_dim, self.eps = config["num_transformer_layers"], config["head_dim"], 1e-6
            self.frequency = inverse_frequencies(config["rope_freq_constant"], self.head_dim, None)
        else:
            self.n_layers, self.eps = config["num_hidden_layers"], config["rms_norm_eps"]
            self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
            theta, scaling = rope_settings(config)
            self.frequency = inverse_frequencies(theta, self.head_dim, scaling)

    def name(self, i, llama, openelm):
        return f"transformer.layers.{i}.{openelm}" if self.openelm else f"model.layers.{i}.{llama}"

    def kv_width(self, i):
        n = self.c["num_kv_heads"][i] if self.openelm else self.c["num_key_value_heads"]
        return n * self.head_dim

    def embed(self, ids):
        name = "transformer.token_embeddings.weight" if self.openelm else "model.embed_tokens.weight"
        return self.w[name][torch.tensor(ids)]

    def project(self, i, x):
        """Raw q, k, v [T, heads * head_dim] of layer i."""
        a = rms_norm(x, self.w[self.name(i, "input_layernorm.weight", "attn_norm.weight")], self.eps)
        if not self.openelm:
            return tuple(linear(self.w, f"model.layers.{i}.self_attn.{p}_proj", a) for p in "qkv")
        n_q = self.c["num_query_heads"][i] * self.head_dim
        y = linear(self.w, f"transformer.layers.{i}.attn.qkv_proj", a)
        return y.split((n_q, self.kv_width(i), self.kv_width(i)), dim=-1)

    def normed(self, i, what, y):
        """[heads, T, head_dim] behind the norm of heads, where there is one; before rotation."""
        y = heads(y, self.head_dim)
        weight = self.w.get(self.name(i, f"self_attn.{what}_norm.weight", f"attn.{what}_norm.weight"))
        return y if weight is None else rms_norm(y, weight, self.eps)

    def rotated(self, y, positions):
        n = int(max(positions)) + 1
        line = torch.zeros(y.shape[0], n, y.shape[2], dtype=y.dtype)
        line = line.index_copy(1, torch.tensor(positions), y)
        return rotate(line, self.frequency)[:, torch.tensor(positions)]

    def finish(self, i, x, o):
        """What follows attention: the output projection and the MLP."""
        x = x + linear(self.w, self.name(i, "self_attn.o_proj", "attn.out_proj"), o)
        b = rms_norm(x, self.w[self.name(i, "post_attention_layernorm.weight", "ffn_norm.weight")], self.eps)
        if self.openelm:
            gate, up = linear(self.w, f"transformer.layers.{i}.ffn.proj_1", b).chunk(2, dim=-1)
        else:
            gate, up = (linear(self.w, f"model.layers.{i}.mlp.{p}_proj", b) for p in ("gate", "up"))
        down = self.name(i, "mlp.down_proj", "ffn.proj_2")
        return x + linear(self.w, down, torch.nn.functional.silu(gate) * up)

    def logits(self, x):
        if self.openelm:
            x = rms_norm(x, self.w["transformer.norm.weight"], self.eps)
            return x @ self.w["transformer.token_embeddings.weight"].T
        x = rms_norm(x, self.w["model.norm.weight"], self.eps)
        return x @ self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"]).T

    def forward(self, ids):
        """(logits, raw (k, v) of every layer), every token through every layer."""
        everywhere = list(range(len(ids)))
        x, cache = self.embed(ids), []
        for i in range(self.n_layers):
            q, k, v = self.project(i, x)
            cache.append((k, v))
            x = self.finish(i, x, self.attend(i, q, everywhere, k, v))
        return self.logits(x), cache

    def attend(self, i, q, rows, k, v):
        """Raw q of the tokens at positions `rows` over raw k and v of tokens 0, 1, ..."""
        n = k.shape[0]
        q = self.rotated(self.normed(i, "q", q), rows)
        k = self.rotated(self.normed(i, "k", k), list(range(n)))
        v = heads(v, self.head_dim)
        group = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
        score = q @ k.transpose(1, 2) / math.sqrt(self.head_dim)
        later = torch.arange(n)[None, :] > torch.tensor(rows)[:, None]
        return (score.masked_fill(later, -math.inf).softmax(-1) @ v).transpose(0, 1).flatten(1)


class KvPrediction:
    """base, auxiliary: Block. maps: predictor.{key,value}.{i}.{weight,bias}; layers: j of each i."""

    def __init__(self, base, auxiliary, maps, layers):
        self.base, self.auxiliary, self.maps, self.layers = base, auxiliary, maps, layers

    def predict(self, cache):
        return [(linear(self.maps, f"predictor.key.{i}", cache[j][0]),
                 linear(self.maps, f"predictor.value.{i}", cache[j][1]))
                for i, j in enumerate(self.layers)]

    def predicted(self, ids):
        return self.predict(self.auxiliary.forward(ids)[1])

    def as_trained(self, ids, predicted=None):
        """Logits of every token where all keys and values are predicted (section 4.1)."""
        predicted = predicted or self.predicted(ids)
        x, rows = self.base.embed(ids), list(range(len(ids)))
        for i, (k, v) in enumerate(predicted):
            x = self.base.finish(i, x, self.base.attend(i, self.base.project(i, x)[0], rows, k, v))
        return self.base.logits(x)

    def with_own(self, ids, own, predicted=None):
        """Logits of the tokens at positions `own`, which alone run the base (figure 2b)."""
        x = self.base.embed([ids[t] for t in own])
        for i, (k, v) in enumerate(predicted or self.predicted(ids)):
            q, k_own, v_own = self.base.project(i, x)
            at = torch.tensor(own)
            k, v = k.index_copy(0, at, k_own), v.index_copy(0, at, v_own)
            x = self.base.finish(i, x, self.base.attend(i, q, own, k, v))
        return self.base.logits(x)


def map_canonical(n_base, n_auxiliary):
    """Consecutive layers of the base in runs as equal as can be, longer runs first."""
    out = []
    for j in range(n_auxiliary):
        out += [j] * (n_base // n_auxiliary + (1 if j < n_base % n_auxiliary else 0))
    return out


def map_pruned(n_base, kept):
    return [max(j for j, k in enumerate(kept) if k <= i) for i in range(n_base)]
