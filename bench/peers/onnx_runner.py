#!/usr/bin/env python3
"""onnxruntime-genai on the processor: one prompt of random ids and tokens after it.

    VENV/bin/python bench/peers/onnx_runner.py MODEL PROMPT GEN THREADS

One JSON object is printed: prompt_tok_s and decode_tok_s.
"""

import json
import random
import sys
import time

import onnxruntime_genai


def main():
    folder, n_prompt, n_gen, n_threads = sys.argv[1], *map(int, sys.argv[2:5])
    config = onnxruntime_genai.Config(folder)
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": n_threads}}}}))
    model = onnxruntime_genai.Model(config)
    draws = random.Random(0)
    ids = [draws.randrange(3, 49152) for _ in range(n_prompt)]

    def generator():
        params = onnxruntime_genai.GeneratorParams(model)
        params.set_search_options(max_length=n_prompt + n_gen + 8, min_length=n_prompt + n_gen + 8, do_sample=False)
        return onnxruntime_genai.Generator(model, params)

    warm = generator()
    warm.append_tokens(ids[:64])
    warm.generate_next_token()
    measured = generator()
    begun = time.monotonic()
    measured.append_tokens(ids)
    measured.generate_next_token()
    prompt_seconds = time.monotonic() - begun
    begun = time.monotonic()
    for _ in range(n_gen):
        measured.generate_next_token()
    decode_seconds = time.monotonic() - begun
    print(json.dumps({"prompt_tok_s": n_prompt / prompt_seconds, "decode_tok_s": n_gen / decode_seconds}))


if __name__ == "__main__":
    main()
