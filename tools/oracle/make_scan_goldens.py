"""Rows of linear attention by transformers' and torch's own formulas, in float64.

    python tools/oracle/make_scan_goldens.py [--out tests/data/scan/goldens.json]

The gated delta rule is transformers' torch_recurrent_gated_delta_rule and its chunked twin, with
float64 in place of the float32 that they convert to; both must agree. Mamba-2 is its recurrence,
written plainly. The convolution is torch's conv1d. Inputs are uniform numbers that tests make again
by themselves (`numbers`), so that the file holds results of some rows alone.
"""

import argparse
import inspect
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

DELTA, MAMBA2 = "delta", "mamba2"
# name, rule, key and value heads, their widths, tiled, rows, sizes of a, b and rate, write_max, limits of dt
CASES = (
    ("grouped", DELTA, 2, 6, 16, 24, False, 200, 2, 2, 1, 1, (0, 0)),
    ("tiled", DELTA, 2, 6, 20, 9, True, 130, 2, 2, 1, 1, (0, 0)),
    ("beta to 2", DELTA, 3, 3, 64, 16, False, 150, 1, 3, 0.2, 2, (0, 0)),
    ("large decays", DELTA, 1, 2, 32, 17, False, 100, 80, 2, 3, 1, (0, 0)),
    ("all or nothing written", DELTA, 1, 2, 32, 16, False, 100, 1, 90, 0.1, 1, (0, 0)),
    ("4096 rows", DELTA, 1, 2, 128, 16, False, 4096, 1, 2, 0.002, 1, (0, 0)),
    ("mamba2", MAMBA2, 2, 4, 16, 24, False, 200, 2, 0, 1, 1, (0, 0)),
    ("mamba2, limits", MAMBA2, 1, 4, 48, 16, False, 150, 4, 0, 1, 1, (0.1, 1.5)),
    ("mamba2, 4096 rows", MAMBA2, 1, 3, 32, 16, False, 4096, 1, 0, 0.01, 1, (0, 0)),
)
CONVOLUTIONS = ((3, False, False), (4, True, False), (4, True, True), (7, False, True))
CHANNELS, CONV_ROWS = 37, 50


def numbers(seed, shape, size=1.0):
    """Uniform in [-size, size), the same as in test_scan.c."""
    state, out = seed * 2 + 1, []
    for _ in range(math.prod(shape)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(((state >> 40) / 2**23 - 1))
    out = torch.tensor(out, dtype=torch.float32) * torch.tensor(size, dtype=torch.float32)
    return out.double().reshape(shape)


def in_float64(function):
    source = inspect.getsource(function).replace("torch.float32", "torch.float64")
    scope = dict(vars(qwen))
    exec(source, scope)
    return scope[function.__name__]


RECURRENT = in_float64(qwen.torch_recurrent_gated_delta_rule)
CHUNKED = in_float64(qwen.torch_chunk_gated_delta_rule)


def delta(q, k, v, g, beta):
    """[T, heads, width] each."""
    batch = [x.unsqueeze(0) for x in (q, k, v)] + [g.unsqueeze(0), beta.unsqueeze(0)]
    results = [
        rule(*batch, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=True)[0][0]
        for rule in (RECURRENT, CHUNKED)
    ]
    torch.testing.assert_close(results[0], results[1], rtol=1e-8, atol=1e-10)
    return results[0]


def mamba2(c, b, x, dt, rate, skip):
    state, out = torch.zeros(x.shape[1], x.shape[2], b.shape[2], dtype=torch.float64), []
    for t in range(x.shape[0]):
        state = torch.exp(rate * dt[t])[:, None, None] * state
        state = state + (dt[t][:, None] * x[t])[:, :, None] * b[t][:, None, :]
        out.append((state * c[t][:, None, :]).sum(-1) + skip[:, None] * x[t])
    return torch.stack(out)


def scan(i, case):
    name, rule, nk, nv, dk, dv, tiled, T, size_a, size_b, size_rate, write_max, limits = case
    seeds = range(100 * i, 100 * i + 8)
    q, k = (numbers(seeds[j], (T, nk, dk)) for j in (0, 1))
    v = numbers(seeds[2], (T, nv, dv))
    a, b = numbers(seeds[3], (T, nv), size_a), numbers(seeds[4], (T, nv), size_b)
    rate, bias = -numbers(seeds[5], (nv,), size_rate).abs(), numbers(seeds[6], (nv,))
    skip = numbers(seeds[7], (nv,))
    heads = torch.tensor([h % nk if tiled else h // (nv // nk) for h in range(nv)])
    q, k, dt = q[:, heads], k[:, heads], F.softplus(a + bias)
    if rule == DELTA:
        out = delta(q, k, v, rate * dt, write_max * torch.sigmoid(b))
    else:
        dt = dt.clamp(limits[0], limits[1] or math.inf)
        out = mamba2(q, k, v, dt, rate, skip)
    rows = sorted({0, 1, 15, 16, 63, 64, T // 2, T - 1})
    return {
        "name": name, "mamba2": rule == MAMBA2, "key_heads": nk, "value_heads": nv, "key_dim": dk,
        "value_dim": dv, "tiled": tiled, "n": T, "size_a": size_a, "size_b": size_b,
        "size_rate": size_rate, "write_max": write_max, "dt_min": limits[0], "dt_max": limits[1],
        "seed": 100 * i, "rows": rows, "out": [[float(f"{x:.9g}") for x in out[t].flatten()] for t in rows],
    }  # fmt: skip


def convolution(i, taps, bias, silu):
    seed = 10000 + 10 * i
    x, w = numbers(seed, (CONV_ROWS, CHANNELS)), numbers(seed + 1, (taps, CHANNELS))
    b = numbers(seed + 2, (CHANNELS,)) if bias else None
    y = F.conv1d(F.pad(x.T[None], (taps - 1, 0)), w.T[:, None], b, groups=CHANNELS)[0].T
    y = F.silu(y) if silu else y
    rows = [0, 1, taps - 1, taps, CONV_ROWS - 1]
    return {
        "taps": taps, "bias": bias, "silu": silu, "n": CONV_ROWS, "channels": CHANNELS, "seed": seed,
        "rows": rows, "out": [[float(f"{v:.9g}") for v in y[t]] for t in rows],
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/scan/goldens.json"))
    arguments = parser.parse_args()
    goldens = {
        "scans": [scan(i, case) for i, case in enumerate(CASES)],
        "convolutions": [convolution(i, *case) for i, case in enumerate(CONVOLUTIONS)],
    }
    arguments.out.write_text(json.dumps(goldens, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
