"""Writes tests/data/delta: results and gradients of the gated delta rule, by torch's autograd in float64.

    python tools/oracle/make_delta_goldens.py [--out tests/data/delta]

The rule is written as in arXiv:2412.06464, equation 10, one token after the other, each document from a state of zeros.
The gradient by the results is random; A_log, dt_bias and the inputs before their norms are leaves.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

import plain_hybrids

CASES = (  # name, key heads, value heads, key_dim, value_dim, tiled, write_max, lengths of documents
    ("one-row", 1, 1, 3, 5, False, 1.0, (1,)),
    ("grouped", 2, 6, 5, 7, False, 1.0, (1, 2, 64, 3)),
    ("tiled", 2, 4, 8, 6, True, 1.0, (63, 65)),
    ("runs", 1, 2, 6, 5, False, 1.0, (130, 7)),
    ("both-signs", 3, 3, 20, 1, False, 2.0, (70,)),
    ("narrow-keys", 2, 4, 1, 17, False, 1.0, (40, 24)),
)


def leaves(r, shapes):
    scale = {"a": 2.0, "b": 2.0, "dt_bias": 1.0, "a_log": 1.0}
    return {n: torch.tensor(scale.get(n, 1.0) * r.standard_normal(s), dtype=torch.float32).double().requires_grad_()
            for n, s in shapes.items()}


def run(case, x):
    name, nk, nv, dk, dv, tiled, write_max, lengths = case
    heads = torch.tensor([h % nk if tiled else h // (nv // nk) for h in range(nv)])
    out, at = [], 0
    for n in lengths:
        rows = slice(at, at + n)
        g = -x["a_log"].exp() * torch.nn.functional.softplus(x["a"][rows] + x["dt_bias"])
        beta = write_max * torch.sigmoid(x["b"][rows])
        out.append(plain_hybrids.delta_rule(x["q"][rows][:, heads], x["k"][rows][:, heads], x["v"][rows], beta, g))
        at += n
    return torch.cat(out)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/delta")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    tensors, cases = {}, []
    for i, case in enumerate(CASES):
        name, nk, nv, dk, dv, tiled, write_max, lengths = case
        r, T = np.random.default_rng(i), sum(lengths)
        x = leaves(r, {"q": (T, nk, dk), "k": (T, nk, dk), "v": (T, nv, dv), "a": (T, nv), "b": (T, nv),
                       "a_log": (nv,), "dt_bias": (nv,)})
        out = run(case, x)
        d_out = torch.tensor(r.standard_normal(out.shape), dtype=torch.float32).double()
        (out * d_out).sum().backward()
        tensors |= {f"{name}.{n}": t.detach().float().flatten() for n, t in x.items()}
        tensors |= {f"{name}.d_{n}": t.grad.float().flatten() for n, t in x.items()}
        tensors |= {f"{name}.o": out.detach().float().flatten(), f"{name}.d_o": d_out.float().flatten()}
        cases.append({"name": name, "key_heads": nk, "value_heads": nv, "key_dim": dk, "value_dim": dv, "tiled": tiled,
                      "write_max": write_max, "lengths": lengths})
    save_file(tensors, options.out / "tensors.safetensors")
    (options.out / "cases.json").write_text("[\n" + ",\n".join(" " + json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
