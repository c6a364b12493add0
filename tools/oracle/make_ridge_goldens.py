"""The closed-form K and V projections of tiny SwiftKV models, by least squares on explicit rows.

    python tools/oracle/make_ridge_goldens.py [--models tests/data/models] [--out tests/data/ridge]

Nothing here is as the engine does it: all rows are kept in float64, every projection is solved by
itself, the penalty is more rows of the system, sqrt(lambda) (V - W0) = 0, a bias is a column of ones
without penalty, and torch.linalg.lstsq (QR) solves. cases.json holds the token ids; one .safetensors
a case the projections (f32 of float64).
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

# name, model, l, g, ridge, towards zero, sequences, tokens of a sequence
CASES = (
    ("g1", "llama3-v5", 2, 1, 0.3, False, 8, 48),
    ("g2", "llama3-v5", 2, 2, 0.3, False, 8, 48),
    ("small-ridge", "llama3-v5", 3, 3, 1e-3, False, 8, 48),
    ("zero", "llama3-v5", 2, 2, 0.1, True, 8, 48),
    ("few-rows", "llama3-v5", 4, 1, 0.1, False, 1, 24),
    ("bias-g1", "qwen2", 1, 1, 0.3, False, 8, 48),
    ("bias-g2", "llama-bias", 2, 2, 0.3, False, 8, 48),
    ("head-norms", "qwen3-v5", 2, 2, 0.3, False, 8, 48),
    ("states", "qwen3-5", 3, 1, 0.3, False, 8, 48),
    ("mamba", "granite-h", 1, 1, 0.3, False, 8, 48),
)


def load(folder):
    weights = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as f:
            weights |= {n: f.get_tensor(n).double() for n in f.keys()}
    return json.loads((folder / "config.json").read_text()), weights


def gather(config, weights, sequences, first):
    """{j: normed inputs of layer j [rows, D]} for j >= first."""
    hybrid = "layer_types" in config and "linear_attention" in config["layer_types"]
    model = plain_hybrids.plain(config, weights) if hybrid else plain_models.LlamaFamily(config, weights)
    rows = {j: [] for j in range(first, config["num_hidden_layers"])}
    for ids in sequences:
        inputs = []
        model.forward(ids, teacher=True, inputs=inputs)
        for j, parts in rows.items():
            norm = f"model.layers.{j}.input_layernorm"
            parts.append(model.norm(norm, inputs[j]) if hybrid else plain_models.rms_norm(
                inputs[j], weights[norm + ".weight"], config["rms_norm_eps"]))
    return {j: torch.cat(parts) for j, parts in rows.items()}


def solve(x, y, start, bias, ridge):
    """V [N, D] and a bias or None: least squares from x to y with a penalty on V - start."""
    about = x - x.mean(0) if bias else x
    weight = (ridge * about.pow(2).sum() / x.shape[1]).sqrt()
    eye = weight * torch.eye(x.shape[1], dtype=x.dtype)
    a, b = torch.cat((x, eye)), torch.cat((y, weight * start.T))
    if bias:
        ones = torch.cat((torch.ones(len(x), 1), torch.zeros(len(eye), 1))).to(x.dtype)
        a = torch.cat((a, ones), 1)
    v = torch.linalg.lstsq(a, b, driver="gelsd").solution
    return v[: x.shape[1]].T.contiguous(), v[-1].contiguous() if bias else None


def fit_state(config, weights, rows, first, ridge):
    """The projections of layers with a state that read the boundary alone."""
    out, model = {}, plain_hybrids.plain(config, weights)
    for j in range(first, config["num_hidden_layers"]):
        if config["layer_types"][j] == "linear_attention":
            for kind, part in model.own_parts(j).items():
                if kind in "kvab":
                    name = f"model.layers.{j}.linear_attn.in_proj_{kind}_swiftkv.weight"
                    out[name] = solve(rows[first], rows[j] @ part.T, part, False, ridge)[0]
    return out


def fit(config, weights, rows, first, group, ridge, to_zero):
    out = {}
    if "linear_attention" in config.get("layer_types", ()):
        out = fit_state(config, weights, rows, first, ridge)
    for j in range(first, config["num_hidden_layers"]):
        attends = "linear_attention" != (config.get("layer_types") or [None] * (j + 1))[j]
        for kind in ("k", "v") if attends and (j - first) % group == 0 else ():
            layers = range(j, j + group)
            names = [f"model.layers.{i}.self_attn.{kind}_proj" for i in layers]
            y = torch.stack([plain_models.linear(weights, n, rows[i]) for n, i in zip(names, layers)])
            start = torch.stack([weights[n + ".weight"] for n in names]).mean(0)
            bias = names[0] + ".bias" in weights
            if to_zero:
                start = torch.zeros_like(start)
            v, b = solve(rows[first], y.mean(0), start, bias, ridge)
            name = f"model.layers.{j}.self_attn.{kind}_proj_swiftkv"
            out[name + ".weight"] = v
            if b is not None:
                out[name + ".bias"] = b
    if to_zero:  # layer l, and what shares with it, reads its own input and is copied: no case here
        out = {n: t for n, t in out.items() if int(n.split(".")[2]) >= first + group}
    return out


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=pathlib.Path, default=here / "tests/data/models")
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/ridge")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    cases = []
    for name, model, l, g, ridge, to_zero, n_sequences, seq in CASES:
        config, weights = load(options.models / model)
        r = np.random.default_rng(len(cases))
        ids = [int(i) for i in r.integers(0, config["vocab_size"], n_sequences * seq)]
        sequences = [ids[i * seq : (i + 1) * seq] for i in range(n_sequences)]
        rows = gather(config, weights, sequences, l)
        tensors = fit(config, weights, rows, l, g, ridge, to_zero)
        save_file({n: t.float() for n, t in tensors.items()}, options.out / f"{name}.safetensors")
        cases.append({"name": name, "model": model, "kv_layers": l, "group": g, "ridge": ridge,
                      "to_zero": to_zero, "seq": seq, "rows": n_sequences * seq, "ids": ids})
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    (options.out / "cases.json").write_text('{"cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    with torch.no_grad():
        main()
