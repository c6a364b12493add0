#!/usr/bin/env python3
"""Compares the tokenizers of GGUF files with llama.cpp, over random strings.

    tools/checks/check_tokenizer_gguf.py VOCAB.gguf [--pre NAME] [--strings N] [--name MODEL_NAME]

Needs `gguf` and `xllamacpp` (llama.cpp's server as a package). The vocabulary gets a model of one
tiny layer, so that the server loads it; --pre puts another tokenizer.ggml.pre in, --name a
general.name. Exits with 1 if any id differs.
"""
import argparse
import http.client
import json
import os
import random
import sys
import tempfile
import urllib.parse
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_tokenizer import ROOT, random_string, run_tool  # noqa: E402

SIZE = 32  # of every dimension
SPECIALS = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|end|>", "<|user|>", "<fim_prefix>", "ø",
            "<｜end▁of▁sentence｜>", "[PAD100020]"]


def write_model(source, target, pre, name):
    fields = gguf.GGUFReader(source).fields
    n_tokens = len(fields["tokenizer.ggml.tokens"].contents())
    w = gguf.GGUFWriter(target, "llama")
    if name:
        w.add_name(name)
    w.add_context_length(512)
    w.add_embedding_length(SIZE)
    w.add_block_count(1)
    w.add_feed_forward_length(SIZE)
    w.add_head_count(1)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(SIZE)
    w.add_vocab_size(n_tokens)
    for key, field in fields.items():
        if not key.startswith("tokenizer.") or key == "tokenizer.chat_template":
            continue
        value = pre if key == "tokenizer.ggml.pre" and pre else field.contents()
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            w.add_array(key, value)
        else:
            w.add_key_value(key, value, field.types[0])
    w.add_tensor("token_embd.weight", np.zeros((n_tokens, SIZE), dtype=np.float16))
    for norm in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(f"{norm}.weight", np.ones(SIZE, dtype=np.float32))
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        w.add_tensor(f"blk.0.{part}.weight", np.zeros((SIZE, SIZE), dtype=np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def connect(path):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 64
    params.warmup = False
    server = xllamacpp.Server(params)
    url = urllib.parse.urlparse(server.listening_address)
    return server, http.client.HTTPConnection(url.hostname, url.port)


def llama_ids(connection, text, add_special, parse_special):
    body = json.dumps({"content": text, "add_special": add_special,
                       "parse_special": parse_special})
    connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())["tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("vocab")
    parser.add_argument("--tool", default=str(ROOT / "build/tests/tool_tokenize"))
    parser.add_argument("--pre")
    parser.add_argument("--name")
    parser.add_argument("--strings", type=int, default=5000)
    args = parser.parse_args()
    rng, bad = random.Random(11), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.gguf")
        write_model(args.vocab, path, args.pre, args.name)
        server, connection = connect(path)
        for setting in ((False, False), (False, True), (True, True)):
            texts = [t for t in (random_string(rng, SPECIALS) for _ in range(args.strings)) if t]
            ours = run_tool(args.tool, path, [t.encode() for t in texts], *setting)
            for text, ids in zip(texts, ours):
                theirs = llama_ids(connection, text, *setting)
                if ids != theirs:
                    bad += 1
                    if bad <= 5:
                        print(f"  {setting} {text[:120]!r}\n    ours   {ids}\n    theirs {theirs}")
        print(f"{Path(args.vocab).name} {args.pre or ''}: {3 * args.strings} strings, "
              f"{bad} mismatches", flush=True)
        os._exit(1 if bad else 0)  # the server has threads of its own


main()
