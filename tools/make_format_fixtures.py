#!/usr/bin/env python3
"""Writes tests/data/format: what tests/test_dtype.c and test_safetensors.c compare with.

    python tools/make_format_fixtures.py [--out tests/data/format]

blocks.bin: for every element type, in the order of SKV_DTYPE_LIST, N_BLOCKS blocks of random bytes
(the 16-bit scales made finite) and, as f32, what the `gguf` package dequantises them to.
written.safetensors: a few tensors as the `safetensors` library writes them; tensor i has the
elements (i + 1) * (k - 4) / 8, exact in every type.
"""

import argparse
import pathlib

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

# type -> blocks, offsets of 16-bit scales
TYPES = {
    "F32": (8, ()), "F16": (8, ()), "BF16": (8, ()),
    "Q8_0": (3, (0,)), "Q4_0": (3, (0,)), "Q4_1": (3, (0, 2)), "Q5_0": (3, (0,)), "Q5_1": (3, (0, 2)),
    "Q2_K": (2, (80, 82)), "Q3_K": (2, (108,)), "Q4_K": (2, (0, 2)), "Q5_K": (2, (0, 2)),
    "Q6_K": (2, (208,)), "IQ4_NL": (3, (0,)),
}
WRITTEN = [
    ("model.norm.weight", "F32", [6]),
    ("lm_head.weight", "BF16", [3, 5]),
    ("b", "F16", [2, 3]),
    ("model.embed_tokens.weight", "BF16", [4, 3]),
    ('a "quoted" \u00e9 name', "F32", [1, 2, 3]),
]


def blocks(rng, name, count, scales):
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    if name in ("F32", "F16", "BF16"):
        values = rng.standard_normal(count).astype(np.float32)
        raw = gguf.quants.quantize(values, kind).view(np.uint8).reshape(count, size)
    else:
        raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
        for at in scales:
            scale = rng.uniform(-0.1, 0.1, count).astype(np.float16)
            raw[:, at:at + 2] = scale.view(np.uint8).reshape(count, 2)
    values = gguf.quants.dequantize(raw.reshape(-1), kind).astype("<f4")
    return raw.tobytes() + values.tobytes()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tests/data/format"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20241004)
    data = b"".join(blocks(rng, name, *facts) for name, facts in TYPES.items())
    (out / "blocks.bin").write_bytes(data)

    dtypes = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    tensors = {}
    for i, (name, dtype, shape) in enumerate(WRITTEN):
        k = torch.arange(int(np.prod(shape)), dtype=torch.float32)
        tensors[name] = ((i + 1) * (k - 4) / 8).reshape(shape).to(dtypes[dtype])
    save_file(tensors, out / "written.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
