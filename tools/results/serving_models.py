#!/usr/bin/env python3
"""Published shapes with random weights, as a Hugging Face folder, and from there as GGUF and OpenVINO
files for other engines: what tools/results/bench_serving.py serves and bench/peers/peers.py measures.

    tools/results/serving_models.py hf OUT TOKENIZER [SHAPE]         needs nothing but Python
    VENV/bin/python tools/results/serving_models.py gguf HF OUT TYPE       f16, bf16, q8_0 or q4_0
    VENV/bin/python tools/results/serving_models.py openvino GGUF OUT [int8|int4]

SHAPE is smollm2-135m (the default), llama-3.2-1b or session. VENV has tools/results/serving-peers-requirements.txt.
The weights are the same in all of them, up to how each form rounds. OpenVINO's int8 has a scale a row, its
int4 one for 128 inputs.
"""

import json
import pathlib
import random
import shutil
import sys

COMMON = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
          "torch_dtype": "bfloat16", "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 0}
SHAPES = {
    "smollm2-135m": COMMON | {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0},
    "llama-3.2-1b": COMMON | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 16384, "rope_theta": 500000.0},
    "session": COMMON | {  # reads long sessions soon, with the tokenizer of models/mini
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 3072, "max_position_embeddings": 131072, "rope_theta": 500000.0},
}


class Shape:
    """The sizes in a config.json."""

    def __init__(self, config):
        self.config = config
        self.width, self.inner, self.vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head = self.width // self.heads
        self.n_layers = config["num_hidden_layers"]

    def block(self):
        """A block's matrices: the name in a Hugging Face folder, in GGUF, rows and columns."""
        kv = self.head * self.kv_heads
        return (("input_layernorm", "attn_norm", self.width, 0), ("self_attn.q_proj", "attn_q", self.width, self.width),
                ("self_attn.k_proj", "attn_k", kv, self.width), ("self_attn.v_proj", "attn_v", kv, self.width),
                ("self_attn.o_proj", "attn_output", self.width, self.width),
                ("post_attention_layernorm", "ffn_norm", self.width, 0), ("mlp.gate_proj", "ffn_gate", self.inner, self.width),
                ("mlp.up_proj", "ffn_up", self.inner, self.width), ("mlp.down_proj", "ffn_down", self.width, self.inner))

    def matrices(self):
        """(Hugging Face name, GGUF name, shape)"""
        yield "model.embed_tokens.weight", "token_embd.weight", (self.vocab, self.width)
        for i in range(self.n_layers):
            for name, short, rows, columns in self.block():
                yield (f"model.layers.{i}.{name}.weight", f"blk.{i}.{short}.weight",
                       (rows, columns) if columns else (rows,))
        yield "model.norm.weight", "output_norm.weight", (self.width,)


def random_bf16(draws, n):
    """n numbers of both signs, evenly between 2^-7 and 2^-5 on a logarithmic scale of two steps."""
    out = bytearray(2 * n)
    out[0::2] = draws.randbytes(n)
    out[1::2] = draws.randbytes(n).translate(bytes(0x3C if i < 128 else 0xBC for i in range(256)))
    return bytes(out)


def write_hf(out, tokenizer, name_of_shape="smollm2-135m"):
    config = SHAPES[name_of_shape]
    draws, header, parts, end = random.Random(1), {}, [], 0
    for name, _, shape in Shape(config).matrices():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data = random_bf16(draws, n) if len(shape) > 1 else b"\x80\x3f" * n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data)]}
        parts.append(data)
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)
    (out / "config.json").write_text(json.dumps(config, indent=1))


def read_hf(folder, shape_of):
    import numpy as np
    data = np.memmap(folder / "model.safetensors", np.uint8, "r")
    n = int.from_bytes(bytes(data[:8]), "little")
    header = json.loads(bytes(data[8:8 + n]))
    for name, short, shape in shape_of.matrices():
        begin, end = header[name]["data_offsets"]
        bits = data[8 + n + begin:8 + n + end].view(np.uint16).reshape(shape)
        yield short, (bits.astype(np.uint32) << 16).view(np.float32)


def interleaved(rows, n_heads, head):
    """Rotary pairs side by side, as GGUF has them for this architecture."""
    shape = rows.shape
    return rows.reshape(n_heads, 2, head // 2, -1).swapaxes(1, 2).reshape(shape)


def write_gguf(folder, out, kind):
    import gguf
    shape = Shape(json.loads((folder / "config.json").read_text()))
    types = {"f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
             "q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_0": gguf.GGMLQuantizationType.Q4_0}
    files = {"f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
             "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("random weights")
    writer.add_file_type(files[kind])
    writer.add_context_length(shape.config["max_position_embeddings"])
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.config["rope_theta"])
    writer.add_layer_norm_rms_eps(shape.config["rms_norm_eps"])
    writer.add_vocab_size(shape.vocab)
    add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), shape.vocab)
    for name, values in read_hf(folder, shape):
        if name.endswith("attn_q.weight"):
            values = interleaved(values, shape.heads, shape.head)
        if name.endswith("attn_k.weight"):
            values = interleaved(values, shape.kv_heads, shape.head)
        if values.ndim == 1:
            writer.add_tensor(name, values)
            continue
        writer.add_tensor(name, gguf.quants.quantize(values, types[kind]), raw_dtype=types[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, tokenizer, n_vocab):
    """The tokenizer's tokens, and unused ones up to the vocabulary of the shape."""
    import gguf
    special = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    unused = range(len(tokens), n_vocab)
    tokens += [f"<unused_{i}>" for i in unused]
    special.update(unused)
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
                            for i in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(COMMON["bos_token_id"])
    writer.add_eos_token_id(COMMON["eos_token_id"])


def write_openvino(source, out, bits="int8"):
    """The engine's own reader of GGUF files writes the graph; nncf compresses its weights."""
    import nncf
    import openvino
    import openvino_genai
    work = out.with_name(out.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    copy = work / "model.gguf"
    shutil.copyfile(source, copy)
    openvino_genai.LLMPipeline(str(copy), "CPU", enable_save_ov_model=True)
    graph = openvino.Core().read_model(work / "openvino_model.xml")
    if bits == "int8":
        graph = nncf.compress_weights(graph, mode=nncf.CompressWeightsMode.INT8_SYM)
    else:
        graph = nncf.compress_weights(graph, mode=nncf.CompressWeightsMode.INT4_SYM, group_size=128, ratio=1.0, all_layers=True)
    openvino.save_model(graph, work / "compressed.xml")
    for end in ("xml", "bin"):
        (work / f"openvino_model.{end}").unlink()
        (work / f"compressed.{end}").rename(work / f"openvino_model.{end}")
    copy.unlink()
    (work / "config.json").write_text(json.dumps(COMMON))
    work.rename(out)


def main():
    words = sys.argv[1:]
    paths = [pathlib.Path(word) for word in words[1:]]
    if words[:1] == ["hf"] and len(words) in (3, 4) and all(word in SHAPES for word in words[3:]):
        write_hf(*paths[:2], *words[3:])
    elif words[:1] == ["gguf"] and len(words) == 4:
        write_gguf(paths[0], paths[1], words[3])
    elif words[:1] == ["openvino"] and len(words) in (3, 4):
        write_openvino(paths[0], paths[1], *words[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
