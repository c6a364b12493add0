"""Plain torch forward passes, written from the papers and specifications, in float64.

Two families: the Llama block (Llama, Mistral, Qwen2, Qwen3, SmolLM3, Ministral 3, Granite) with SwiftKV
and AcrossKV (arXiv:2410.03960), and OpenELM. make_models.py holds the Llama block against `transformers`
before it believes its SwiftKV results. No cache, no skipping: every token goes through every layer,
which is the definition that an engine that skips has to reproduce.
"""

import math

import torch

F64 = torch.float64


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def linear(weights, name, x):
    y = x @ weights[name + ".weight"].T
    bias = weights.get(name + ".bias")
    return y if bias is None else y + bias


def rope_settings(config):
    """(theta, scaling dict or None) from either spelling of config.json."""
    new = config.get("rope_parameters")
    if new is not None:
        kind = new.get("rope_type", "default")
        return new.get("rope_theta", 10000.0), (None if kind == "default" else new)
    scaling = config.get("rope_scaling")
    return config.get("rope_theta", 10000.0), scaling


def inverse_frequencies(theta, n_rot, scaling):
    frequency = theta ** (-torch.arange(0, n_rot, 2, dtype=F64) / n_rot)
    if scaling is None:
        return frequency
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return frequency / scaling["factor"]
    if kind == "yarn":
        return yarn_frequencies(frequency, theta, n_rot, scaling)
    if kind != "llama3":
        raise ValueError(f"the plain model knows no rope scaling {kind}")
    # Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
    out = []
    for f in frequency.tolist():
        turns = scaling["original_max_position_embeddings"] * f / (2 * math.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if turns < low:
            out.append(f / scaling["factor"])
        elif turns > high:
            out.append(f)
        else:
            s = (turns - low) / (high - low)
            out.append((1 - s) * f / scaling["factor"] + s * f)
    return torch.tensor(out, dtype=F64)


def yarn_frequencies(frequency, theta, n_rot, scaling):
    """YaRN (arXiv:2309.00071), section 3.2, with the ramp's ends in whole dimensions."""
    def dimension(turns):
        period = scaling["original_max_position_embeddings"] / (turns * 2 * math.pi)
        return n_rot * math.log(period) / (2 * math.log(theta))

    low = max(math.floor(dimension(scaling.get("beta_fast", 32.0))), 0)
    high = min(math.ceil(dimension(scaling.get("beta_slow", 1.0))), n_rot - 1)
    ramp = ((torch.arange(n_rot // 2, dtype=F64) - low) / (high - low)).clamp(0, 1)
    return frequency * (1 - ramp) + frequency / scaling["factor"] * ramp


def rotate(x, frequency, interleaved=False):
    """x [heads, T, head_dim]; token t stands at position t. Pairs are (j, j + n/2), as Hugging Face
    files have them, or (2j, 2j + 1), as the llama architecture of GGUF has them."""
    angle = torch.arange(x.shape[1], dtype=F64)[:, None] * frequency[None, :]
    cos, sin = angle.cos(), angle.sin()
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(q, k, v, window=0, scale=None):
    """q [H, T, d], k and v [Hk, T, d] -> [T, H*d]; causal; a token sees `window` rows with itself."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    score = q @ k.transpose(1, 2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    t = torch.arange(q.shape[1])
    back = t[:, None] - t[None, :]
    hidden = back < 0
    if window:
        hidden = hidden | (back >= window)
    score = score.masked_fill(hidden, -math.inf)
    return (score.softmax(-1) @ v).transpose(0, 1).flatten(1)


def heads(x, head_dim):
    return x.view(x.shape[0], -1, head_dim).transpose(0, 1)


class LlamaFamily:
    """Llama and its relatives, and their `_swiftkv` forms, from config.json and float64 weights."""

    def __init__(self, config, weights, interleaved=False):
        self.c, self.w, self.interleaved = config, weights, interleaved
        self.n_layers = config["num_hidden_layers"]
        self.head_dim = config.get("head_dim") or (
            config["hidden_size"] // config["num_attention_heads"]
        )
        self.eps = config["rms_norm_eps"]
        theta, scaling = rope_settings(config)
        self.frequency = inverse_frequencies(theta, self.head_dim, scaling)
        self.swiftkv = config["model_type"].endswith("_swiftkv")
        self.kv_layers = config.get("num_key_value_layers") or self.n_layers
        self.group = config.get("key_value_group_size") or 1
        self.windows = self.windows_of(config)
        self.router_logits = {}  # of each layer with experts: those of every document
        self.n_shared = config.get("num_kv_shared_layers", 0)
        self.turns = config.get("no_rope_layers") or [1] * self.n_layers
        self.residual = config.get("residual_multiplier", 1.0)
        scaling = scaling or {}
        self.beta = scaling.get("llama_4_scaling_beta", 0.0)
        self.original = scaling.get("original_max_position_embeddings", 1)

    def windows_of(self, config):
        """Rows that a token of each layer sees, itself included; 0: all."""
        window = config.get("sliding_window") or 0
        if config["model_type"] in ("mistral", "mixtral"):
            return [window] * self.n_layers
        if not config.get("use_sliding_window") or "layer_types" not in config:
            return [0] * self.n_layers
        return [window if kind == "sliding_attention" else 0 for kind in config["layer_types"]]

    def head_norm(self, layer, name, x):
        weight = self.w.get(f"model.layers.{layer}.self_attn.{name}.weight")
        return x if weight is None else rms_norm(x, weight, self.eps)

    def project(self, layer, what, x, suffix=""):
        """The heads of q, k or v: projection, then the head-wise norm where the model has one."""
        y = heads(linear(self.w, f"model.layers.{layer}.self_attn.{what}_proj{suffix}", x), self.head_dim)
        return y if what == "v" else self.head_norm(layer, f"{what}_norm{suffix}", y)

    def rope(self, i, x):
        return rotate(x, self.frequency, self.interleaved) if self.turns[i] else x

    def grown(self, q):
        """Ministral 3: queries grow with the logarithm of the position."""
        t = torch.arange(q.shape[1], dtype=F64)
        return q * (1 + self.beta * torch.log1p(torch.floor(t / self.original)))[:, None]

    def donor(self, i):
        """num_kv_shared_layers: the layer whose keys and values layer i of the last ones reads: the
        last one before them all with the same window. None: it has its own."""
        first = self.n_layers - self.n_shared
        if i < first:
            return None
        return max(j for j in range(first) if self.windows[j] == self.windows[i])

    def expert(self, i, e):
        """Weights of gate, up and down of an expert, which files hold fused or one by one."""
        p = f"model.layers.{i}.mlp.experts."
        fused = self.w.get(p + "gate_up_proj")
        if fused is not None:
            return *fused[e].chunk(2), self.w[p + "down_proj"][e]
        for names in (f"{p}{e}.{{}}_proj.weight".format, lambda part: (
                f"model.layers.{i}.block_sparse_moe.experts.{e}."
                f"{dict(gate='w1', up='w3', down='w2')[part]}.weight")):
            if names("gate") in self.w:
                return [self.w[names(part)] for part in ("gate", "up", "down")]
        raise KeyError(f"{p}{e}")

    def mixture(self, i, b):
        """Every row by the experts that the router chooses, one row after the other."""
        prefix = f"model.layers.{i}."
        router = next(self.w[prefix + n] for n in ("mlp.gate.weight", "block_sparse_moe.gate.weight")
                      if prefix + n in self.w)
        logits = b @ router.T
        self.router_logits.setdefault(i, []).append(logits)
        p = logits.softmax(-1)
        weight, chosen = p.topk(self.c["num_experts_per_tok"], dim=-1)
        if self.c["model_type"].startswith("mixtral") or self.c.get("norm_topk_prob"):
            weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(b)
        for t in range(b.shape[0]):
            for w, e in zip(weight[t], chosen[t].tolist()):
                gate, up, down = self.expert(i, e)
                out[t] += w * (torch.nn.functional.silu(b[t] @ gate.T) * (b[t] @ up.T)) @ down.T
        return out

    def feed_forward(self, i, b):
        p = f"model.layers.{i}.mlp."
        if p + "gate_proj.weight" not in self.w:
            return self.mixture(i, b)
        gate = torch.nn.functional.silu(linear(self.w, p + "gate_proj", b))
        return linear(self.w, p + "down_proj", gate * linear(self.w, p + "up_proj", b))

    def layer(self, i, x, q_suffix, shared):
        """One block and the (k, v) before RoPE that it has read: `shared`, or its own for None."""
        p = f"model.layers.{i}."
        a = rms_norm(x, self.w[p + "input_layernorm.weight"], self.eps)
        q = self.project(i, "q", a, q_suffix)
        k, v = shared or (self.project(i, "k", a), self.project(i, "v", a))
        mixed = attend(self.grown(self.rope(i, q)), self.rope(i, k), v, self.windows[i],
                       self.c.get("attention_multiplier"))
        x = x + self.residual * linear(self.w, p + "self_attn.o_proj", mixed)
        b = rms_norm(x, self.w[p + "post_attention_layernorm.weight"], self.eps)
        return x + self.residual * self.feed_forward(i, b), (k, v)

    def hidden(self, ids, teacher=False, inputs=None):
        """[T, D] after the final norm; `inputs`, a list, receives x_0..x_{L-1}, the inputs of the
        layers. With `teacher` every layer makes keys and values of its own input."""
        x = self.w["model.embed_tokens.weight"][torch.tensor(ids)]
        x = x * self.c.get("embedding_multiplier", 1.0)
        deep_from = self.kv_layers if self.swiftkv and not teacher else self.n_layers
        shared, made = None, []
        for i in range(self.n_layers):
            if inputs is not None:
                inputs.append(x)
            if i == deep_from:
                source = rms_norm(x, self.w["model.norm_swiftkv.weight"], self.eps)
            if i >= deep_from and (i - deep_from) % self.group == 0:
                shared = (
                    self.project(i, "k", source, "_swiftkv"),
                    self.project(i, "v", source, "_swiftkv"),
                )
            donor = None if teacher else self.donor(i)
            given = shared if donor is None else made[donor]
            x, kv = self.layer(i, x, "_swiftkv" if i >= deep_from else "", given)
            made.append(kv)
        return rms_norm(x, self.w["model.norm.weight"], self.eps)

    def forward(self, ids, teacher=False, inputs=None):
        """Logits [T, V]."""
        x = self.hidden(ids, teacher, inputs)
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return x @ head.T / self.c.get("logits_scaling", 1.0)


class OpenElm:
    """OpenELM (arXiv:2404.14619): every layer has its own head count and MLP width."""

    EPS = 1e-6

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.head_dim = config["head_dim"]
        self.frequency = inverse_frequencies(config["rope_freq_constant"], self.head_dim, None)

    def layer(self, i, x):
        p = f"transformer.layers.{i}."
        n_q, n_kv = self.c["num_query_heads"][i], self.c["num_kv_heads"][i]
        a = rms_norm(x, self.w[p + "attn_norm.weight"], self.EPS)
        qkv = heads(linear(self.w, p + "attn.qkv_proj", a), self.head_dim)
        q, k, v = qkv.split((n_q, n_kv, n_kv))
        q = rotate(rms_norm(q, self.w[p + "attn.q_norm.weight"], self.EPS), self.frequency)
        k = rotate(rms_norm(k, self.w[p + "attn.k_norm.weight"], self.EPS), self.frequency)
        x = x + linear(self.w, p + "attn.out_proj", attend(q, k, v))
        b = rms_norm(x, self.w[p + "ffn_norm.weight"], self.EPS)
        gate, up = linear(self.w, p + "ffn.proj_1", b).chunk(2, dim=-1)
        return x + linear(self.w, p + "ffn.proj_2", torch.nn.functional.silu(gate) * up)

    def forward(self, ids, teacher=False, inputs=None):
        x = self.w["transformer.token_embeddings.weight"][torch.tensor(ids)]
        for i in range(self.c["num_transformer_layers"]):
            if inputs is not None:
                inputs.append(x)
            x = self.layer(i, x)
        x = rms_norm(x, self.w["transformer.norm.weight"], self.EPS)
        return x @ self.w["transformer.token_embeddings.weight"].T


def similarity_scores(inputs):
    """SimScore of every layer, equation (1) of arXiv:2410.03960: the cosine of x_l and x_j, averaged
    over the tokens and then over the layers j > l. The last layer has none after it: None."""
    n = len(inputs)
    scores = []
    for l in range(n - 1):
        each = [torch.nn.functional.cosine_similarity(inputs[l], inputs[j], dim=-1).mean().item()
                for j in range(l + 1, n)]
        scores.append(sum(each) / len(each))
    return scores + [None]
