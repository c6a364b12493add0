"""Losses, gradients and optimiser steps of the trainer by torch, from independent forward passes.

    python tools/oracle/make_train_goldens.py [--models tests/data/models] [--out tests/data/train]

The weights are those of the tiny models. Every case is two documents and a piece of a third packed
into one batch, with some positions masked. One .safetensors a case holds the gradients (f32 of
float64 arithmetic); cases.json holds ids, targets and losses. Ten steps of torch's own AdamW with
its own schedule and clipping give the losses that the trainer has to repeat.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import plain_hybrids
import plain_models

DOCS = (23, 1, 17, 9)
STEPS = 10
TAU = 2.0


def load(folder):
    weights = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as f:
            weights |= {n: f.get_tensor(n).double() for n in f.keys()}
    return json.loads((folder / "config.json").read_text()), expert_by_expert(weights)


def expert_by_expert(weights):
    """The trainer's names: fused experts cut into those of each, Mixtral's in the words of Qwen 3."""
    parts = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    out = {}
    for name, t in weights.items():
        prefix, _, what = name.partition(".experts.")
        if what == "gate_up_proj":
            for e, both in enumerate(t):
                for part, half in zip(("gate", "up"), both.chunk(2)):
                    out[f"{prefix}.experts.{e}.{part}_proj.weight"] = half.clone()
        elif what == "down_proj":
            for e, down in enumerate(t):
                out[f"{prefix}.experts.{e}.down_proj.weight"] = down.clone()
        else:
            name = name.replace("block_sparse_moe", "mlp")
            out[".".join(parts.get(word, word) for word in name.split("."))] = t
    return out


def is_hybrid(config):
    return config["model_type"].startswith("qwen3_5")


def plain(config, weights):
    return (plain_hybrids.plain if is_hybrid(config) else plain_models.LlamaFamily)(config, weights)


def split_hybrid(config, grads):
    """The trainer's names: q, k and v of a state apart, and a head's queries apart from its gate. A student does not
    compute with the queries of its teacher."""
    out, l = {}, config.get("num_key_value_layers", config["num_hidden_layers"])
    n_k = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    for name, g in grads.items():
        layer = int(name.split(".")[2]) if ".layers." in name else -1
        if name.endswith("in_proj_qkv.weight"):
            for x, part in zip("qkv", g.split([n_k, n_k, g.shape[0] - 2 * n_k])):
                out[name.replace("qkv", x)] = part.contiguous()
        elif name.endswith("self_attn.q_proj.weight"):
            q, gate = g.unflatten(0, (-1, 2, config["head_dim"])).unbind(1)
            out[name.replace("q_proj", "gate_proj")] = gate.flatten(0, 1).contiguous()
            if layer < l:
                out[name] = q.flatten(0, 1).contiguous()
        else:
            out[name] = g.reshape(g.shape[0], -1) if "conv1d" in name else g
    return out


EXIT_HEAD = "lm_head_swiftkv.weight"


def hidden(model, ids, teacher):
    """(logits, input of the last layer, logits of the early exit or None) of one document."""
    inputs = []
    ordinary = "num_key_value_layers" not in model.c
    logits = model.forward(ids, teacher=teacher or ordinary, inputs=inputs)
    exits = None
    if EXIT_HEAD in model.w:
        x = inputs[model.kv_layers]
        exits = plain_models.rms_norm(x, model.w["model.norm_swiftkv.weight"], model.eps) @ model.w[EXIT_HEAD].T
    return logits, inputs[-1], exits


def distance(logits, logits_t):
    p = (logits_t / TAU).log_softmax(-1)
    q = (logits / TAU).log_softmax(-1)
    return TAU**2 * (p.exp() * (p - q)).sum()


def cross_entropy(logits, targets):
    return -logits.log_softmax(-1)[range(len(targets)), targets].sum()


def batch_for(vocab, seed):
    """Documents; the targets of a third of the positions are masked."""
    r = np.random.default_rng(seed)
    docs = [[int(i) for i in r.integers(0, vocab, n)] for n in DOCS]
    targets = []
    for doc in docs:
        targets.append([int(t) if r.random() > 0.33 else -1 for t in doc[1:]] + [-1])
    return docs, targets


def losses(config, weights, docs, targets, case):
    """(loss that is minimised, its parts: at the head, hidden, at the exit) as tensors."""
    model = plain(config, weights)
    total, square, exit_total, n_loss, n_all, n_elements = 0.0, 0.0, torch.tensor(0.0), 0, 0, 0
    for ids, target in zip(docs, targets):
        logits, x, exits = hidden(model, ids, False)
        rows = [i for i, t in enumerate(target) if t >= 0]
        n_loss += len(rows)
        n_all += len(ids)
        if case["loss"] == "kl":
            with torch.no_grad():
                teacher = model if case.get("teacher") is None else case["teacher"]
                logits_t, x_t, _ = hidden(teacher, ids, True)
            total = total + distance(logits[rows], logits_t[rows])
            if case.get("exit"):
                exit_total = exit_total + distance(exits[rows], logits_t[rows])
            square = square + (x - x_t).pow(2).sum()
            n_elements += x.numel()
        elif rows:
            total = total + cross_entropy(logits[rows], [target[i] for i in rows])
            if case.get("exit"):
                exit_total = exit_total + cross_entropy(exits[rows], [target[i] for i in rows])
    n = n_all if case.get("all") else n_loss
    loss, exit_loss = total / n, exit_total / n
    hidden_loss = square / n_elements if n_elements else torch.tensor(0.0)
    total = loss + case.get("hidden", 0.0) * hidden_loss + exit_loss
    if case.get("balance"):
        case["balance_loss"] = balance(model, case)
        total = total + case["balance"] * case["balance_loss"]
    return total, loss, hidden_loss, exit_loss


def balance(model, case):
    """transformers' own loss, over the layers whose routers are trained."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func
    first = int(case["train"].removeprefix("deep-")) if case["train"].startswith("deep-") else 0
    logits = tuple(torch.cat(of) for i, of in sorted(model.router_logits.items()) if i >= first)
    n_experts = logits[0].shape[-1]
    return load_balancing_loss_func(logits, n_experts, model.c["num_experts_per_tok"])


def trainable(case, names):
    if case["train"] == "all":
        return [n for n in names]
    if case["train"] == "swiftkv":
        return [n for n in names if "_swiftkv" in n]
    layer = int(case["train"].removeprefix("deep-"))
    return [n for n in names if ".layers." in n and int(n.split(".")[2]) >= layer]


def schedule(step):
    """Two steps of warm-up, then linear to zero at STEPS; step counts from 0."""
    warm = 2
    return (step + 1) / warm if step < warm else max(0.0, (STEPS - step) / (STEPS - warm))


def run_steps(config, weights, names, docs, targets, case):
    """Norms that multiply by 1 + weight decay as what they multiply by; the rates of states learn at a tenth."""
    shift = {n: float(is_hybrid(config) and "norm" in n and "linear_attn" not in n) for n in names}
    leaves = {n: (weights[n] + shift[n]).requires_grad_(True) for n in names}
    slow = [n for n in names if n.endswith(("A_log_swiftkv", "dt_bias_swiftkv"))]
    groups = [{"params": [leaves[n] for n in names if n not in slow]},
              {"params": [leaves[n] for n in slow], "lr": 3e-4}]
    optimiser = torch.optim.AdamW([g for g in groups if g["params"]], lr=3e-3, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, schedule)
    out = []
    for _ in range(STEPS):
        optimiser.zero_grad()
        now = {n: t - shift[n] for n, t in leaves.items()}
        loss, part, square, exits = losses(config, weights | now, docs, targets, case)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(leaves.values()), 0.5)
        out.append({"loss": part.item(), "hidden": square.item(), "norm": norm.item()})
        if case.get("exit"):
            out[-1]["exit"] = exits.item()
        optimiser.step()
        scheduler.step()
    return out


# The norm of a state's output multiplies it by up to 1 / sqrt(eps) = 1000 where it nearly vanishes, as in the first row
# of a document whose q and k are almost orthogonal, and the rounding of f32 with it. Of twelve batches for the student
# of qwen3-5-swiftkv the gradients of some move by 9e-5 in float64 when the weights are moved by half a unit in f32's last
# place (torch's own in f32 are off by 4e-4); they would test the batch, not the trainer. Seed 30's move by 1.6e-5.
#
# Ten steps that train every expert are no test: torch's own losses move by 1e-5 when the weights that it begins
# with are rounded to f32.
CASES = {
    "llama-mha": [{"train": "all", "loss": "lm", "steps": True}],
    "llama-bias": [{"train": "all", "loss": "lm"}],
    "llama3-v5": [{"train": "deep-4", "loss": "lm"}],
    "mistral": [{"train": "deep-2", "loss": "lm"}],
    "qwen2": [{"train": "deep-1", "loss": "lm"}],
    "qwen3-v5": [{"train": "all", "loss": "lm"}],
    "llama-swiftkv-g1": [{"train": "swiftkv", "loss": "kl", "steps": True}],
    "llama-swiftkv-g2": [{"train": "all", "loss": "lm"}],
    "llama-swiftkv-g3": [{"train": "swiftkv", "loss": "kl", "all": True, "steps": True},
                         {"train": "deep-2", "loss": "kl", "steps": True}],
    "qwen2-swiftkv-g2": [{"train": "swiftkv", "loss": "kl", "hidden": 0.7, "all": True, "steps": True}],
    "qwen3-swiftkv-g1": [{"train": "swiftkv", "loss": "kl", "hidden": 1.0},
                         {"train": "swiftkv", "loss": "kl", "exit": True, "steps": True}],
    "qwen3-swiftkv-g2": [{"train": "swiftkv", "loss": "lm", "exit": True}],
    "qwen3-moe-swiftkv-g2": [{"train": "swiftkv", "loss": "kl", "hidden": 0.5, "steps": True},
                             {"train": "all", "loss": "lm"}],
    "qwen3-moe-v4": [{"train": "deep-1", "loss": "lm", "balance": 0.5}],
    "qwen3-moe-v5": [{"train": "all", "loss": "lm", "balance": 0.5}],
    "mixtral-v5": [{"train": "all", "loss": "lm"}],
    "qwen3-5": [{"train": "deep-2", "loss": "lm"}],
    "qwen3-5-swiftkv": [{"train": "swiftkv", "loss": "kl", "hidden": 0.5, "steps": True, "seed": 30},
                        {"train": "deep-2", "loss": "kl"}],
    "qwen3-5-swiftkv-wide-keys": [{"train": "all", "loss": "lm"}],
}


def make_case(folder, case, seed):
    config, weights = load(folder)
    docs, targets = batch_for(config["vocab_size"], case.get("seed", seed))
    if case.get("exit"):
        head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        weights[EXIT_HEAD] = head.clone()
    frozen = {n: t.clone() for n, t in weights.items()}
    if case["loss"] == "kl":
        case["teacher"] = plain(config, frozen)
    names = trainable(case, sorted(weights))
    leaves = {n: weights[n].clone().requires_grad_(True) for n in names}
    loss, part, square, exits = losses(config, weights | leaves, docs, targets, case)
    loss.backward()
    grads = {n: t.grad.float() for n, t in leaves.items() if t.grad is not None}
    if is_hybrid(config):
        grads = split_hybrid(config, grads)
    out = {"model": folder.name, "train": case["train"], "loss_kind": case["loss"],
           "hidden_mult": case.get("hidden", 0.0), "all": case.get("all", False),
           "docs": docs, "targets": targets, "loss": part.item(), "hidden": square.item()}
    if case.get("exit"):
        out["exit"] = exits.item()
    if case.get("balance"):
        out |= {"balance": case["balance"], "balance_loss": case["balance_loss"].item()}
    if case.get("steps"):
        out["steps"] = run_steps(config, weights, names, docs, targets, case)
    return out, grads


def main():
    parser = argparse.ArgumentParser()
    here = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--models", type=pathlib.Path, default=here / "tests/data/models")
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/train")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name, cases in CASES.items():
        for i, case in enumerate(cases):
            out, grads = make_case(args.models / name, dict(case), len(found) + 1)
            out["file"] = f"{name}-{i}.safetensors"
            save_file(grads, args.out / out["file"])
            found.append(out)
            print(f"{out['file']}: loss {out['loss']:.6f}, {len(grads)} gradients")
    lines = ",\n ".join(json.dumps(c) for c in found)
    (args.out / "cases.json").write_text("[\n " + lines + "\n]\n")


if __name__ == "__main__":
    main()
