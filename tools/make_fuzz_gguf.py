#!/usr/bin/env python3
"""Writes the seeds of the fuzz target tokenizer_gguf: one vocabulary of each kind that GGUF files
have. Needs the package gguf (tools/oracle/requirements.txt)."""

from pathlib import Path

import gguf

CORPUS = Path(__file__).resolve().parent.parent / "fuzz/corpus/tokenizer_gguf"


def make_gguf():
    for kind, pre in (("llama", "default"), ("gpt2", "llama-bpe"), ("gpt2", "qwen2")):
        path = CORPUS / f"{kind}-{pre}"
        w = gguf.GGUFWriter(path, "llama")
        w.add_tokenizer_model(kind)
        w.add_tokenizer_pre(pre)
        words = ["<unk>", "<s>", "</s>"]
        types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
        if kind == "llama":
            words += [f"<0x{b:02X}>" for b in range(256)]
            types += [gguf.TokenType.BYTE] * 256
        normal = ["▁", "H", "e", "l", "o", "w", "r", "d", "He", "ll", "▁w", "1", "2", "ä", "Ġ", "lo"]
        words += normal
        types += [gguf.TokenType.NORMAL] * len(normal)
        w.add_token_list(words)
        w.add_token_types(types)
        if kind == "llama":
            w.add_token_scores([-float(i) for i in range(len(words))])
        else:
            w.add_token_merges(["H e", "l l", "l o", "▁ w"])
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


CORPUS.mkdir(parents=True, exist_ok=True)
make_gguf()
