#!/usr/bin/env python3
"""A hybrid model with another model's tokenizer: for sessions, whose answers do not matter.

    make_hybrid.py TOKENIZER_FOLDER OUT
    VENV/bin/python make_hybrid.py TOKENIZER_FOLDER OUT.gguf

The tiny Qwen 3.5 of tests/data, whose rows of the embedding are repeated until there is one for each token; as a GGUF
file for llama-server (VENV has gguf).
"""

import json
import shutil
import struct
import sys
from pathlib import Path

TINY = Path(__file__).resolve().parents[2] / "data/models/qwen3-5"
NAME, CONTEXT = "model.embed_tokens.weight", 1 << 18


def vocabulary_of(folder):
    text = json.loads((folder / "tokenizer.json").read_text())
    ids = [*text["model"]["vocab"].values(), *(t["id"] for t in text["added_tokens"])]
    return max(ids) + 1


def make_hybrid(tokenizer, out):
    tokenizer, out = Path(tokenizer), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, out)
    config = json.loads((TINY / "config.json").read_text())
    n = -(-vocabulary_of(tokenizer) // 8) * 8
    data = (TINY / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    first, end = header[NAME]["data_offsets"]
    row = 4 * config["hidden_size"]
    rows = (body[first:end] * (n * row // (end - first) + 1))[: n * row]
    header[NAME] |= {"shape": [n, config["hidden_size"]], "data_offsets": [len(body), len(body) + len(rows)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body + rows)
    config |= {"vocab_size": n, "max_position_embeddings": CONTEXT}
    (out / "config.json").write_text(json.dumps(config))
    return out


def make_gguf(tokenizer, out):
    import gguf
    import numpy as np

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/results"))
    from serving_models import add_tokenizer

    reader = gguf.GGUFReader(TINY.with_name("qwen3-5-gguf") / "model.gguf")
    n = vocabulary_of(Path(tokenizer))
    arch = reader.fields["general.architecture"].contents()
    n_layers = reader.fields[f"{arch}.block_count"].contents() - reader.fields[f"{arch}.nextn_predict_layers"].contents()
    own = {"context_length": CONTEXT, "vocab_size": n, "block_count": n_layers, "nextn_predict_layers": 0}
    writer = gguf.GGUFWriter(out, arch)
    for key, field in reader.fields.items():
        if key.startswith(arch):
            value = own.get(key.split(".", 1)[1], field.contents())
            writer.add_array(key, value) if len(field.types) > 1 else writer.add_key_value(key, value, field.types[0])
    add_tokenizer(writer, json.loads((Path(tokenizer) / "tokenizer.json").read_text()), n)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.name == "token_embd.weight":
            data = np.resize(data, (n, data.shape[1]))
        if not tensor.name.startswith(f"blk.{n_layers}."):
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    (make_gguf if sys.argv[2].endswith(".gguf") else make_hybrid)(*sys.argv[1:])
