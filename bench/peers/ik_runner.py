#!/usr/bin/env python3
"""Times ik_llama.cpp through the library of its wheel (ik-llama-cpp-python), as peers.py asks for it.

    python ik_runner.py MODEL.gguf PROMPT GEN THREADS [SEQUENCES]

One process, one measurement: SEQUENCES prompts of PROMPT tokens each, then GEN tokens of each answer in common steps.
Weights are repacked when they are loaded, and attention is fused. Prints one line of JSON: prompt_tok_s, decode_tok_s,
and total_tok_s over everything.
"""

import json
import sys
import time

from ik_llama_cpp import _ctypes_api as ik

MOST = 512   # tokens of a step


def step(ctx, batch, rows):
    """One step over (token, position, sequence, wants logits) rows."""
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, wants) in enumerate(rows):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants
        batch.seq_id[i][0] = sequence
    if code := ik.llama_decode(ctx, batch):
        sys.exit(f"llama_decode: {code}")
    ik.llama_get_logits_ith(ctx, len(rows) - 1)


def open_model(path, n_ctx, threads, sequences):
    how = ik.llama_model_default_params()
    how.use_mmap, how.repack_tensors, how.flash_attn = False, True, True
    model = ik.llama_model_load_from_file(path.encode(), how)
    context = ik.llama_context_default_params()
    context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max = n_ctx, MOST, MOST, sequences
    context.n_threads = context.n_threads_batch = threads
    context.flash_attn = True
    ctx = model and ik.llama_init_from_model(model, context)
    if not ctx:
        sys.exit(f"{path}: ik_llama.cpp cannot open it")
    return ctx


def main():
    path, prompt, gen, threads = sys.argv[1], *map(int, sys.argv[2:5])
    sequences = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    ik.llama_backend_init()
    ctx = open_model(path, sequences * (prompt + gen + 64), threads, sequences)
    batch = ik.llama_batch_init(MOST, 0, 1)
    step(ctx, batch, [(1 + i, i, 0, i == 31) for i in range(32)])   # first touches of weights and workspace
    ik.llama_kv_cache_clear(ctx)
    rows = [(1000 + (i * 7919 + s) % 20000, i, s, i == prompt - 1) for s in range(sequences) for i in range(prompt)]
    start = time.perf_counter()
    for at in range(0, len(rows), MOST):
        step(ctx, batch, rows[at:at + MOST])
    middle = time.perf_counter()
    for t in range(gen):
        step(ctx, batch, [(1000 + t, prompt + t, s, True) for s in range(sequences)])
    end = time.perf_counter()
    print(json.dumps({"prompt_tok_s": len(rows) / (middle - start), "decode_tok_s": sequences * gen / max(end - middle, 1e-9),
                      "total_tok_s": sequences * (prompt + gen) / (end - start)}))


main()
