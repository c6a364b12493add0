"""Plain torch forward passes of SwiftKV hybrids, in float64: Qwen 3.5 (gated delta rule) and dense Granite 4 H (Mamba-2).

States by their recurrences, token after token; no chunks, no cache, no skipping. make_models.py holds the teacher of
each model against `transformers` before it believes what the SwiftKV form gives. Above boundary l all that a token
writes into a state is made of n = NORM(x_l, norm_swiftkv); of the convolution of q the newest input is that of the
layer itself, and the older ones are of n.
"""

import math

import torch
from torch.nn.functional import silu, softplus

from plain_models import attend, heads, rms_norm, rotate

F64 = torch.float64


def convolve(older, newest, weight, bias):
    """silu of a causal convolution [T, C] by weight [C, K]: the row's own input is `newest`'s, others are of `older`."""
    taps = weight.reshape(weight.shape[0], -1)
    K = taps.shape[1]
    y = newest * taps[:, -1] + (0 if bias is None else bias)
    for j in range(1, K):
        past = torch.zeros_like(older)
        past[j:] = older[:older.shape[0] - j]
        y = y + past * taps[:, K - 1 - j]
    return silu(y)


def delta_rule(q, k, v, beta, g):
    """q, k [T, nv, dk], v [T, nv, dv], beta and g [T, nv] -> [T, nv, dv] (arXiv:2412.06464, equation 10)."""
    q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) / math.sqrt(q.shape[-1])
    k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
    state = torch.zeros(k.shape[1], k.shape[2], v.shape[2], dtype=F64)
    out = []
    for t in range(k.shape[0]):
        state = state * g[t].exp()[:, None, None]
        u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + torch.einsum("hk,hv->hkv", k[t], u)
        out.append(torch.einsum("hkv,hk->hv", state, q[t]))
    return torch.stack(out)


def mamba2(c, b, x, dt, rate):
    """C and B [T, nv, n], x [T, nv, p], dt [T, nv] -> [T, nv, p] (arXiv:2405.21060, section 3)."""
    state = torch.zeros(b.shape[1], b.shape[2], x.shape[2], dtype=F64)
    out = []
    for t in range(b.shape[0]):
        state = state * (rate * dt[t]).exp()[:, None, None]
        state = state + torch.einsum("hk,hv->hkv", b[t], dt[t][:, None] * x[t])
        out.append(torch.einsum("hkv,hk->hv", state, c[t]))
    return torch.stack(out)


class Hybrid:
    """What both families share: blocks, attention with a gate or without, and where states are fed from."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.n_layers = config["num_hidden_layers"]
        self.qwen = config["model_type"].startswith("qwen")
        self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.residual = config.get("residual_multiplier", 1.0)
        n_rot = int(self.head_dim * config["rope_parameters"].get("partial_rotary_factor", 1.0))
        theta = config["rope_parameters"]["rope_theta"]
        self.frequency = theta ** (-torch.arange(0, n_rot, 2, dtype=F64) / n_rot)

    def norm(self, name, x):
        weight = self.w[name + ".weight"]
        return rms_norm(x, 1 + weight if self.qwen else weight, self.c["rms_norm_eps"])

    def rope(self, x):
        if not self.qwen:  # no positions
            return x
        n = 2 * len(self.frequency)
        return torch.cat((rotate(x[..., :n], self.frequency), x[..., n:]), dim=-1)

    def attention(self, i, a, n):
        """n None: the layer's own keys and values."""
        p, end = f"model.layers.{i}.self_attn.", "" if n is None else "_swiftkv"
        q = self.w[p + "q_proj.weight"]
        if self.qwen:
            q, gate = q.unflatten(0, (-1, 2, self.head_dim)).unbind(1)
            q, gate = q.flatten(0, 1), gate.flatten(0, 1)
        if end:
            q = self.w[p + "q_proj_swiftkv.weight"]
        source = a if n is None else n
        q = heads(a @ q.T, self.head_dim)
        k, v = (heads(source @ self.w[f"{p}{what}_proj{end}.weight"].T, self.head_dim) for what in "kv")
        if self.qwen:
            q, k = self.norm(p + "q_norm" + end, q), self.norm(p + "k_norm" + end, k)
        mixed = attend(self.rope(q), self.rope(k), v, scale=self.c.get("attention_multiplier"))
        if self.qwen:
            mixed = mixed * torch.sigmoid(a @ gate.T)
        return mixed @ self.w[p + "o_proj.weight"].T

    def feed_forward(self, i, b):
        p = f"model.layers.{i}."
        if self.qwen:
            gate, up, down = (self.w[f"{p}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        else:
            gate, up = self.w[p + "shared_mlp.input_linear.weight"].chunk(2)
            down = self.w[p + "shared_mlp.output_linear.weight"]
        return (silu(b @ gate.T) * (b @ up.T)) @ down.T

    def projected(self, i, a, n):
        """Inputs of the convolution (older q, newest q, k, v) before it, and of the scan."""
        p, parts = f"model.layers.{i}.linear_attn.", self.own_parts(i)
        if n is None:
            q, k, v = (a @ parts[x].T for x in "qkv")
            return q, q, k, v, {x: a @ parts[x].T for x in "ab" if x in parts}
        fed = {x: self.w[f"{p}in_proj_{x}_swiftkv.weight"] for x in parts if x != "z"}
        return (n @ fed["q"].T, a @ fed["q"].T, n @ fed["k"].T, n @ fed["v"].T,
                {x: n @ fed[x].T for x in "ab" if x in fed})

    def state_layer(self, i, a, n):
        c, end = self.c, "" if n is None else "_swiftkv"
        names = self.names(i, end)
        older, newest, k, v, gates = self.projected(i, a, n)
        order = "qkv" if self.qwen else "vkq"  # of the channels
        inputs = {"q": (older, newest), "k": (k, k), "v": (v, v)}
        at, made = 0, {}
        for x in order:
            size = inputs[x][0].shape[1]
            bias = self.w.get(names["conv1d.bias"])
            made[x] = convolve(*inputs[x], self.w[names["conv1d.weight"]][at:at + size],
                               None if bias is None else bias[at:at + size])
            at += size
        nv, dv = self.value_heads
        group = nv // self.key_heads
        q, k = (made[x].unflatten(1, (self.key_heads, -1)).repeat_interleave(group, 1) for x in "qk")
        v = made["v"].unflatten(1, (nv, dv))
        step = softplus(gates["a"] + self.w[names["dt_bias"]])
        rate = -self.w[names["A_log"]].exp()
        z = a @ self.own_parts(i)["z"].T
        if self.qwen:
            o = delta_rule(q, k, v, torch.sigmoid(gates["b"]), rate * step)
            o = rms_norm(o, self.w[names["norm.weight"]], c["rms_norm_eps"]).flatten(1) * silu(z)
        else:
            o = (mamba2(q, k, v, step, rate) + self.w[names["D"]][:, None] * v).flatten(1) * silu(z)
            weight = self.w[names["norm.weight"]].unflatten(0, (self.key_heads, -1))
            o = rms_norm(o.unflatten(1, (self.key_heads, -1)), weight, c["rms_norm_eps"]).flatten(1)
        return o @ self.w[names["out_proj.weight"]].T

    def forward(self, ids, teacher=False, inputs=None):
        """Logits [T, V]; `inputs`, a list, receives the inputs of the layers."""
        x = self.w["model.embed_tokens.weight"][torch.tensor(ids)] * self.c.get("embedding_multiplier", 1.0)
        deep_from = self.n_layers if teacher else self.c["num_key_value_layers"]
        n = None
        for i in range(self.n_layers):
            if inputs is not None:
                inputs.append(x)
            if i == deep_from:
                n = self.norm("model.norm_swiftkv", x)
            p = f"model.layers.{i}."
            mix = self.attention if self.c["layer_types"][i] == "full_attention" else self.state_layer
            x = x + self.residual * mix(i, self.norm(p + "input_layernorm", x), n)
            x = x + self.residual * self.feed_forward(i, self.norm(p + "post_attention_layernorm", x))
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return self.norm("model.norm", x) @ head.T / self.c.get("logits_scaling", 1.0)


class Qwen35(Hybrid):
    @property
    def key_heads(self):
        return self.c["linear_num_key_heads"]

    @property
    def value_heads(self):
        return self.c["linear_num_value_heads"], self.c["linear_value_head_dim"]

    def own_parts(self, i):
        p = f"model.layers.{i}.linear_attn."
        n_k = self.key_heads * self.c["linear_key_head_dim"]
        qkv = self.w[p + "in_proj_qkv.weight"]
        return dict(zip("qkv", qkv.split([n_k, n_k, qkv.shape[0] - 2 * n_k]))) | {
            x: self.w[f"{p}in_proj_{x}.weight"] for x in "zab"}

    def names(self, i, end):
        p = f"model.layers.{i}.linear_attn."
        return {"conv1d.weight": f"{p}conv1d{end}.weight", "conv1d.bias": None, "dt_bias": f"{p}dt_bias{end}",
                "A_log": f"{p}A_log{end}", "norm.weight": p + "norm.weight", "out_proj.weight": p + "out_proj.weight"}


class GraniteH(Hybrid):
    @property
    def key_heads(self):
        return self.c["mamba_n_groups"]

    @property
    def value_heads(self):
        return self.c["mamba_n_heads"], self.c["mamba_d_head"]

    def own_parts(self, i):
        n_v, n_k = math.prod(self.value_heads), self.key_heads * self.c["mamba_d_state"]
        parts = self.w[f"model.layers.{i}.mamba.in_proj.weight"].split([n_v, n_v, n_k, n_k, self.value_heads[0]])
        return dict(zip("zvkqa", parts))

    def names(self, i, end):
        p, own = f"model.layers.{i}.linear_attn.", f"model.layers.{i}.mamba."
        fed = {"conv1d.weight": f"{p}conv1d_swiftkv.weight", "conv1d.bias": f"{p}conv1d_swiftkv.bias",
               "dt_bias": f"{p}dt_bias_swiftkv", "A_log": f"{p}A_log_swiftkv"}
        names = {n: own + n for n in ("conv1d.weight", "conv1d.bias", "dt_bias", "A_log", "D", "norm.weight",
                                      "out_proj.weight")}
        return names | fed if end else names


def plain(config, weights):
    return (Qwen35 if config["model_type"].startswith("qwen") else GraniteH)(config, weights)


def student_sources(config, weights):
    """{name that SwiftKV adds: what `transform` copies there}, for layers from num_key_value_layers on."""
    model, l = plain(config, weights), config["num_key_value_layers"]
    added = {"model.norm_swiftkv.weight": weights[f"model.layers.{l}.input_layernorm.weight"]}
    for i in range(l, config["num_hidden_layers"]):
        p = f"model.layers.{i}.self_attn."
        if config["layer_types"][i] == "full_attention":
            q = weights[p + "q_proj.weight"]
            if model.qwen:
                q = q.unflatten(0, (-1, 2, model.head_dim))[:, 0].flatten(0, 1)
            added[p + "q_proj_swiftkv.weight"] = q
            for what in ("k_proj", "v_proj", "q_norm", "k_norm"):
                if f"{p}{what}.weight" in weights:
                    added[f"{p}{what}_swiftkv.weight"] = weights[f"{p}{what}.weight"]
            continue
        p, own = f"model.layers.{i}.linear_attn.", model.names(i, "")
        for x, part in model.own_parts(i).items():
            if x != "z":
                added[f"{p}in_proj_{x}_swiftkv.weight"] = part
        taps = weights[own["conv1d.weight"]]
        added[p + "conv1d_swiftkv.weight"] = taps.reshape(taps.shape[0], -1)
        if own["conv1d.bias"]:
            added[p + "conv1d_swiftkv.bias"] = weights[own["conv1d.bias"]]
        for what in ("A_log", "dt_bias"):
            added[f"{p}{what}_swiftkv"] = weights[own[what]]
    return {n: t.contiguous() for n, t in added.items()}
