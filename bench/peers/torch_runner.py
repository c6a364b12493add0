#!/usr/bin/env python3
"""torch, eager, with transformers' model in bfloat16: one prompt of random ids and tokens after it.

    VENV/bin/python bench/peers/torch_runner.py MODEL PROMPT GEN THREADS

One JSON object is printed: prompt_tok_s and decode_tok_s. The head is computed for the last row only, as the other
engines do.
"""

import json
import sys
import time

import torch
import transformers


def main():
    folder, n_prompt, n_gen, n_threads = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(n_threads)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = torch.randint(3, model.config.vocab_size, (1, n_prompt))
    with torch.inference_mode():
        model(ids[:, :64], logits_to_keep=1)
        begun = time.monotonic()
        out = model(ids, use_cache=True, logits_to_keep=1)
        prompt_seconds = time.monotonic() - begun
        begun = time.monotonic()
        for _ in range(n_gen):
            out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)
        decode_seconds = time.monotonic() - begun
    print(json.dumps({"prompt_tok_s": n_prompt / prompt_seconds, "decode_tok_s": n_gen / decode_seconds}))


if __name__ == "__main__":
    main()
