#!/usr/bin/env python3
"""torch.compile on a GPU in the shape of Llama-3.1-8B, random bfloat16 weights: prompts, as SwiftKV and in full.

    python3 bench/peers/torch_gpu.py [tiny]

Rows have the columns of tools/gpu/card.sh. A prompt is read at once, attention is torch's own choice, the head sees the
last row. As SwiftKV with l = 16, layers above l only compute keys and values of the boundary's rows, which g layers
share, but for the last token. `tiny` has a shape for a processor.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional

TINY = "tiny" in sys.argv[1:]
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCABULARY = (4, 64, 4, 2, 16, 128, 256) if TINY else (
    32, 4096, 32, 8, 128, 14336, 128256)
PROMPTS = [(1, 32)] if TINY else [(1, 2048), (4, 2048), (1, 8192), (1, 32768)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def rotated(x, cosine, sine):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)])
        self.q = nn.Linear(HIDDEN, HEADS * HEAD, bias=False)
        self.kv = nn.Linear(HIDDEN, 2 * KV_HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def keys_values(self, x, angles):
        k, v = self.kv(self.norms[0](x)).unflatten(-1, (2 * KV_HEADS, HEAD)).transpose(1, 2).chunk(2, 1)
        return rotated(k, *angles), v

    def forward(self, x, angles, cached):
        n = x.shape[1]
        q = self.q(self.norms[0](x)).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
        q = rotated(q, angles[0][-n:], angles[1][-n:])
        out = functional.scaled_dot_product_attention(q, *cached, is_causal=n > 1, enable_gqa=True)
        x = x + self.o(out.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids, angles, l, g):
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            if i == l:
                boundary, x = x, x[:, -1:]
            if i < l:
                cached = layer.keys_values(x, angles)
            elif (i - l) % g == 0:
                cached = layer.keys_values(boundary, angles)
            x = layer(x, angles, cached)
        return self.head(self.norm(x[:, -1:]))


def seconds_of(run):
    times = []
    for _ in range(4):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        begun = time.monotonic()
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic() - begun)
    return sorted(times[1:])[1]


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE), torch.inference_mode():
        model = Model().eval()
        compiled = torch.compile(model, dynamic=False)
        for batch, n in PROMPTS:
            turns = torch.arange(n).float()[:, None] * 5e5 ** (-torch.arange(HEAD // 2).float() / (HEAD // 2))
            angles = turns.cos().bfloat16(), turns.sin().bfloat16()
            ids = torch.randint(VOCABULARY, (batch, n))
            for name, l, g in (("full", LAYERS, 1), ("SwiftKV", LAYERS // 2, 1), ("SwiftKV", LAYERS // 2, 2)):
                seconds = seconds_of(lambda ids=ids, l=l, g=g, angles=angles: compiled(ids, angles, l, g))
                print(f"| torch.compile, {name} g={g} | bf16 | bf16 | {n} | 0 | {batch} | {batch * n / seconds:.0f} |"
                      f" {seconds * 1e3:.1f} | - | - |", flush=True)


if __name__ == "__main__":
    main()
