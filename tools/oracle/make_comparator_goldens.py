"""What the comparators of the papers compute: tests/data/comparators.

    python tools/oracle/make_comparator_goldens.py [--models tests/data/models] [--out tests/data/comparators]

Written from the papers in torch, float64, every token through every layer: log-probabilities of a
text with FFN-SkipLLM (and how many blocks are left out), with SwiftKV's early exit (and how many
tokens take it; the model with an exit head is made here), with Merge-all-Layers in steps of given
lengths, and of models without some of their layers. Ids are drawn again where a decision is close.
"""

import argparse
import json
import math
import pathlib

import numpy
import torch

import make_models
import model_specs
import plain_models
from plain_models import linear, rms_norm
from random_weights import tensor_for

CLOSE = 2e-4  # distance from a threshold below which rounding in float32 might decide


class CloseCall(Exception):
    pass


def draw(vocab, n, *words):
    random = numpy.random.default_rng(list("/".join(map(str, words)).encode()))
    return [int(i) for i in random.integers(3, vocab, n)]


def told(logits, ids):
    """Log-probabilities of ids[1:]."""
    logits = logits.log_softmax(-1)
    return [round(logits[t, ids[t + 1]].item(), 8) for t in range(len(ids) - 1)]


# ---- FFN-SkipLLM ----


class Skipping(plain_models.LlamaFamily):
    """Tokens leave out blocks behind one that has hardly turned them."""

    def start(self, how):
        numbers = [float(x) for x in how.split(",")]
        numbers += [0.0, 32.0, 0.0, 0.35, 0.85][len(numbers):]
        self.similarity, self.warm_up, self.n_skip = numbers[0], int(numbers[1]), int(numbers[2])
        self.first, self.end = (math.floor(x * self.n_layers + 0.5) for x in numbers[3:])

    def layer(self, i, x, q_suffix, shared):
        p = f"model.layers.{i}."
        a = rms_norm(x, self.w[p + "input_layernorm.weight"], self.eps)
        q = self.project(i, "q", a, q_suffix)
        k, v = shared or (self.project(i, "k", a), self.project(i, "v", a))
        x = x + linear(self.w, p + "self_attn.o_proj",
                       plain_models.attend(self.rope(q), self.rope(k), v, self.window))
        b = rms_norm(x, self.w[p + "post_attention_layernorm.weight"], self.eps)
        gate = torch.nn.functional.silu(linear(self.w, p + "mlp.gate_proj", b))
        after = x + linear(self.w, p + "mlp.down_proj", gate * linear(self.w, p + "mlp.up_proj", b))
        if i < self.first or i >= self.end:
            return after
        out = after.clone()
        for t in range(self.warm_up, x.shape[0]):
            if self.left[t] > 0:
                self.left[t] -= 1
                self.n_left_out += 1
                out[t] = x[t]
                continue
            similarity = torch.nn.functional.cosine_similarity(x[t], after[t], dim=0).item()
            if abs(similarity - self.similarity) < CLOSE:
                raise CloseCall
            if similarity >= self.similarity:
                self.left[t] = self.n_skip or self.n_layers
        return out

    def forward(self, ids, teacher=False, inputs=None):
        self.left, self.n_left_out = [0] * len(ids), 0
        return super().forward(ids, teacher, inputs)


SKIPS = [("llama3-v5", "0.9,0,0,0,1"), ("llama3-v5", "0.88,20,1,0.35,0.85"), ("llama3-v5", "0.87,7,2,0.2,1"),
         ("qwen3-v5", "0.85,0,0,0,1"), ("llama-swiftkv-g2", "0.88,10,0,0,0.9"), ("llama3-v5", "0.9")]


def skips(root):
    for name, how in SKIPS:
        config = json.loads((root / name / "config.json").read_text())
        model = Skipping(config, make_models.read_float64(root / name))
        model.start(how)
        for attempt in range(200):
            ids = draw(config["vocab_size"], 60, name, how, attempt)
            try:
                logits = model.forward(ids)
                break
            except CloseCall:
                continue
        else:
            raise RuntimeError(f"{name} {how}: every text has a close call")
        print(f"{name} {how}: {model.n_left_out} of {60 * model.n_layers} blocks left out")
        yield {"model": name, "how": how, "ids": ids, "skipped": model.n_left_out,
               "blocks": 60 * model.n_layers - model.n_left_out, "logprobs": told(logits, ids)}


# ---- early exit ----

EXIT_GAIN = 6.0  # of the exit's head, so that it is often sure


def exit_config():
    rope = {"rope_theta": 10000.0, "rope_type": "default"}
    return model_specs.swiftkv(model_specs.llama(model_specs.v5, rope_parameters=rope), 4, 2, 2) | {
        "swiftkv_early_exit": True, "dtype": "bfloat16"}


def make_exit_model(folder):
    config = exit_config()
    base = make_models.base_tensors("exit", config)
    tensors = base | make_models.swiftkv_tensors("exit", config, base)
    shape = (config["vocab_size"], config["hidden_size"])
    tensors["lm_head_swiftkv.weight"] = EXIT_GAIN * tensor_for("exit", "exit_proj", shape)
    make_models.save(folder, config, tensors, "bf16")


def exits(root, folder):
    make_exit_model(folder)
    config, weights = exit_config(), make_models.read_float64(folder)
    model = plain_models.LlamaFamily(config, weights)
    for above in (0.3, 0.5, 0.95):
        for attempt in range(200):
            ids, inputs = draw(config["vocab_size"], 60, "exit", above, attempt), []
            final = model.forward(ids, inputs=inputs)
            x = rms_norm(inputs[model.kv_layers], weights["model.norm_swiftkv.weight"], model.eps)
            early = x @ weights["lm_head_swiftkv.weight"].T
            most = early.softmax(-1).max(-1).values
            if (most - above).abs().min() > CLOSE:
                break
        leaves = most > above
        logits = torch.where(leaves[:, None], early, final)
        print(f"exit above {above}: {leaves.sum().item()} of 60 tokens")
        yield {"above": above, "ids": ids, "exits": leaves.sum().item(),
               "leaves": leaves.int().tolist(), "logprobs": told(logits, ids),
               "argmax": logits.argmax(-1).tolist()}


# ---- Merge-all-Layers ----


def merged_logits(model, ids, step, noise=0.0):
    """One cache for all layers, in steps of `step` tokens; embeddings are off by `noise`."""
    n, c = len(ids), model.c
    shape = (c["num_key_value_heads"], n, model.head_dim)
    keys, values = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    times, out = c["num_attention_heads"] // c["num_key_value_heads"], []
    turn = plain_models.inverse_frequencies(plain_models.rope_settings(c)[0], model.head_dim,
                                            plain_models.rope_settings(c)[1])
    for at in range(0, n, step):
        rows = torch.arange(at, min(n, at + step))

        def rope(x):
            """x [heads, rows, head_dim] at its positions."""
            padded = torch.zeros(x.shape[0], n, x.shape[2], dtype=torch.float64)
            padded[:, rows] = x
            return plain_models.rotate(padded, turn)[:, rows]

        x = model.w["model.embed_tokens.weight"][torch.tensor(ids)[rows]]
        x = x * (1 + noise * (2 * (torch.arange(x.numel()).view(x.shape) % 2) - 1))
        for i in range(model.n_layers):
            p = f"model.layers.{i}."
            a = rms_norm(x, model.w[p + "input_layernorm.weight"], model.eps)
            keys[:, rows], values[:, rows] = rope(model.project(i, "k", a)), model.project(i, "v", a)
            q = rope(model.project(i, "q", a))
            k, v = (y[:, : rows[-1] + 1].repeat_interleave(times, 0) for y in (keys, values))
            score = q @ k.transpose(1, 2) / math.sqrt(model.head_dim)
            hidden = torch.arange(k.shape[1])[None, :] > rows[:, None]
            seen = score.masked_fill(hidden[None], -math.inf).softmax(-1) @ v
            x = x + linear(model.w, p + "self_attn.o_proj", seen.transpose(0, 1).flatten(1))
            b = rms_norm(x, model.w[p + "post_attention_layernorm.weight"], model.eps)
            gate = torch.nn.functional.silu(linear(model.w, p + "mlp.gate_proj", b))
            x = x + linear(model.w, p + "mlp.down_proj", gate * linear(model.w, p + "mlp.up_proj", b))
        head = model.w.get("lm_head.weight", model.w["model.embed_tokens.weight"])
        out.append(rms_norm(x, model.w["model.norm.weight"], model.eps) @ head.T)
    return torch.cat(out)


def merges(root):
    for name, step in (("llama3-v5", 60), ("qwen3-v5", 7), ("qwen3-v5", 1), ("llama-bias", 16)):
        config = json.loads((root / name / "config.json").read_text())
        model = plain_models.LlamaFamily(config, make_models.read_float64(root / name))
        for attempt in range(20):  # rows that feed back into other layers can blow rounding up
            ids = draw(config["vocab_size"], 60, name, "merged", step, attempt)
            logprobs = told(merged_logits(model, ids, step), ids)
            other = told(merged_logits(model, ids, step, 1e-7), ids)
            if max(abs(a - b) for a, b in zip(logprobs, other)) < CLOSE:
                break
        else:
            raise RuntimeError(f"{name} merged {step}: rounding grows in every text")
        print(f"{name} merged in steps of {step}: attempt {attempt}")
        yield {"model": name, "step": step, "ids": ids, "logprobs": logprobs}


# ---- fewer layers ----


def without_layers(weights, prefix, kept):
    out = {n: t for n, t in weights.items() if not n.startswith(prefix)}
    for j, i in enumerate(kept):
        mine = f"{prefix}{i}."
        out |= {f"{prefix}{j}.{n[len(mine):]}": t for n, t in weights.items() if n.startswith(mine)}
    return out


PRUNED = [("llama3-v5", "lp-0.50", [0, 2, 4]), ("llama3-v5", "lp-0.25", [0, 4]),
          ("llama3-v5", "lp-0.75", [0, 1, 2, 4, 5]), ("llama3-v5", "1,5", [1, 5]),
          ("qwen3-v5", "lp-0.50", [0, 2]), ("openelm", "0,2,3", [0, 2, 3])]


def pruned(root):
    for name, how, kept in PRUNED:
        config = json.loads((root / name / "config.json").read_text())
        weights = make_models.read_float64(root / name)
        if name == "openelm":
            for key in ("num_query_heads", "num_kv_heads"):
                config[key] = [config[key][i] for i in kept]
            config["num_transformer_layers"] = len(kept)
            model = plain_models.OpenElm(config, without_layers(weights, "transformer.layers.", kept))
        else:
            config["num_hidden_layers"] = len(kept)
            model = plain_models.LlamaFamily(config, without_layers(weights, "model.layers.", kept))
        ids = draw(config["vocab_size"], 60, name, how)
        yield {"model": name, "how": how, "kept": kept, "ids": ids, "logprobs": told(model.forward(ids), ids)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default="tests/data/models")
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/comparators")
    args = parser.parse_args()
    with torch.no_grad():
        parts = {"exits": list(exits(args.models, args.out / "exit")), "skips": list(skips(args.models)),
                 "merges": list(merges(args.models)), "pruned": list(pruned(args.models))}
    lines = [f' "{name}": [\n' + ",\n".join("  " + json.dumps(c, separators=(",", ":")) for c in cases)
             + "\n ]" for name, cases in parts.items()]
    (args.out / "comparators.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
