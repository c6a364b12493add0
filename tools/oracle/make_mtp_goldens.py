#!/usr/bin/env python3
"""What the head for further tokens (MTP) of a Qwen 3.5 says, in float64: tests/data/models/*/mtp.json.

    make_mtp_goldens.py [FOLDER ...]      writes the goldens of folders that make_models.py has made
    make_mtp_goldens.py --gguf            writes the first of them as tests/data/mtp.gguf
    make_mtp_goldens.py --train           writes losses and gradients of its training: tests/data/train/mtp*

The formula stands in plain torch, apart from the engine:
    x_i = Wfc [NORM_e(embed(t_{i+1})), NORM_h(h_i)], h_i behind the model's last norm; a layer of attention; norm; head
and a draft repeats it with its own output as h. The head learns t_{i+2} from row i: of the text (lm), or as the model's
own distribution in row i + 1 (kl, at TAU of make_train_goldens.py).
"""

import json
import pathlib
import sys

import torch

from safetensors.torch import save_file

import plain_hybrids
from make_train_goldens import batch_for, cross_entropy, distance, load, split_hybrid
from random_weights import generator, tensor_for

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/models"
FOLDERS = ("qwen3-5-wrapped",)
N_IDS, N_DRAFTED, STEP = 80, 3, 13  # log-probabilities of each STEP-th id are kept


def head_tensors(name, config):
    """Random weights of a head, under the names of published files."""
    D, d, F = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    n_q, n_kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    p = "mtp.layers.0."
    shapes = {"mtp.fc": (D, 2 * D), "mtp.norm": (D,), "mtp.pre_fc_norm_embedding": (D,), "mtp.pre_fc_norm_hidden": (D,),
              p + "input_layernorm": (D,), p + "post_attention_layernorm": (D,), p + "self_attn.q_proj": (2 * n_q, D),
              p + "self_attn.k_proj": (n_kv, D), p + "self_attn.v_proj": (n_kv, D), p + "self_attn.o_proj": (D, n_q),
              p + "self_attn.q_norm": (d,), p + "self_attn.k_norm": (d,), p + "mlp.gate_proj": (F, D),
              p + "mlp.up_proj": (F, D), p + "mlp.down_proj": (D, F)}
    return {n + ".weight": tensor_for(name, n + ".weight", shape, True) for n, shape in shapes.items()}


class Model(plain_hybrids.Qwen35):
    """The model as far as its last norm, and its head's rows."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        ours = {n.replace("mtp.layers.", "model.layers."): t for n, t in weights.items() if n.startswith("mtp.")}
        self.head = plain_hybrids.Qwen35(config, ours)

    def hidden(self, ids):
        x = self.w["model.embed_tokens.weight"][torch.tensor(ids)]
        for i in range(self.n_layers):
            p = f"model.layers.{i}."
            mix = self.attention if self.c["layer_types"][i] == "full_attention" else self.state_layer
            x = x + mix(i, self.norm(p + "input_layernorm", x), None)
            x = x + self.feed_forward(i, self.norm(p + "post_attention_layernorm", x))
        return self.norm("model.norm", x)

    def predict(self, h, following):
        """Outputs [T, D] of the head for h [T, D] and the tokens that follow them."""
        e = self.w["model.embed_tokens.weight"][torch.tensor(following)]
        both = [self.norm("mtp.pre_fc_norm_embedding", e), self.norm("mtp.pre_fc_norm_hidden", h)]
        x = torch.cat(both, -1) @ self.w["mtp.fc.weight"].T
        x = x + self.head.attention(0, self.head.norm("model.layers.0.input_layernorm", x), None)
        x = x + self.head.feed_forward(0, self.head.norm("model.layers.0.post_attention_layernorm", x))
        return self.norm("mtp.norm", x)

    def logits(self, y):
        return y @ self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"]).T

    def log_probs(self, y):
        return self.logits(y).log_softmax(-1)


def load_text(folder):
    config, weights = load(folder)
    return config.get("text_config", config), {n.replace("model.language_model.", "model."): t for n, t in weights.items()}


BLOCK_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
               "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
               "mlp.down_proj": "ffn_down"}
WHOLE_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
NEXTN_NAMES = {"mtp.fc": "eh_proj", "mtp.pre_fc_norm_embedding": "enorm", "mtp.pre_fc_norm_hidden": "hnorm",
               "mtp.norm": "shared_head_norm"}


def write_gguf(folder, path):
    """As llama.cpp's converter has it: the head is a block after the layers, and norms have their 1."""
    import gguf  # pylint: disable=import-outside-toplevel
    import hybrid_gguf  # pylint: disable=import-outside-toplevel

    config, weights = load_text(folder)
    n_layers = config["num_hidden_layers"]
    writer = gguf.GGUFWriter(path, "qwen35")
    writer.add_block_count(n_layers + 1)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    hybrid_gguf.metadata(writer, config)
    writer.add_tokenizer_model("no_vocab")
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    for name, t in sorted(weights.items()):
        array = t.numpy()
        name = name.replace("mtp.layers.0.", f"model.layers.{n_layers}.")
        if "visual" in name:
            continue
        if "norm" in name and "linear_attn" not in name:
            array = array + 1
        stem = name.removesuffix(".weight")
        if stem in NEXTN_NAMES:
            named = [(f"blk.{n_layers}.nextn.{NEXTN_NAMES[stem]}.weight", array)]
        elif stem in WHOLE_NAMES:
            named = [(WHOLE_NAMES[stem] + ".weight", array)]
        else:
            i, part = stem.removeprefix("model.layers.").split(".", 1)
            own = (hybrid_gguf.convert(config, name, array) if "linear_attn" in part else
                   [((BLOCK_NAMES | hybrid_gguf.NAMES)[part] + ".weight", array)])
            named = [(f"blk.{i}.{to}", a) for to, a in own]
        for to, a in named:
            a = a.astype("float32")
            plain = a.ndim == 1 or to.split(".", 2)[-1] in hybrid_gguf.F32
            kind = gguf.GGMLQuantizationType.F32 if plain else gguf.GGMLQuantizationType.BF16
            writer.add_tensor(to, gguf.quants.quantize(a, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def goldens(folder):
    config, weights = load_text(folder)
    model = Model(config, weights)
    ids = generator("mtp", folder.name).integers(3, config["vocab_size"], N_IDS).tolist()
    h = model.hidden(ids)
    rows = []
    for n in range(1, N_IDS):  # the model has seen n tokens, and the next one is known
        seen, following, row = h[:n], ids[1:n + 1], {"drafted": [], "margins": [], "log_probs": []}
        for _ in range(N_DRAFTED):
            own = model.predict(seen, following)[-1:]
            said = model.log_probs(own)[0]
            first, second = said.topk(2).values.tolist()
            row["drafted"].append(said.argmax().item())
            row["margins"].append(round(first - second, 6))
            row["log_probs"].append([round(x, 6) for x in said[::STEP].tolist()])
            seen, following = torch.cat((seen, own)), following + row["drafted"][-1:]
        rows.append(row)
    return {"ids": ids, "step": STEP, "rows": rows}


def head_loss(model, docs, targets, kind):
    """The mean over rows whose token two ahead is not masked."""
    total, n = 0.0, 0
    for ids, target in zip(docs, targets):
        rows = [i for i in range(len(ids) - 1) if target[i + 1] >= 0]
        if not rows:
            continue
        with torch.no_grad():
            h = model.hidden(ids)
        said = model.logits(model.predict(h[:-1], ids[1:]))[rows]
        own = model.logits(h[1:])[rows]
        total = total + (distance(said, own) if kind == "kl" else cross_entropy(said, [target[i + 1] for i in rows]))
        n += len(rows)
    return total / n


def trainer_names(config, grads):
    names = {n: n.replace("mtp.layers.", "model.layers.").replace("mtp.norm.", "model.norm.") for n in grads}
    return split_hybrid(config, {names[n]: g for n, g in grads.items()})


def train_goldens(folder, out):
    config, weights = load_text(folder)
    docs, targets = batch_for(config["vocab_size"], 5)
    said = {"docs": docs, "targets": targets}
    for kind in ("lm", "kl"):
        leaves = {n: t.clone().requires_grad_(True) for n, t in weights.items() if n.startswith("mtp.")}
        loss = head_loss(Model(config, weights | leaves), docs, targets, kind)
        loss.backward()
        said[kind] = loss.item()
        grads = trainer_names(config, {n: t.grad.float() for n, t in leaves.items()})
        save_file(grads, out / f"mtp-{kind}.safetensors")
    (out / "mtp.json").write_text(json.dumps(said) + "\n")


def main():
    if sys.argv[1:] == ["--train"]:
        train_goldens(ROOT / FOLDERS[0], ROOT.parent / "train")
        return
    if sys.argv[1:] == ["--gguf"]:
        write_gguf(ROOT / FOLDERS[0], ROOT.parent / "mtp.gguf")
        return
    for folder in map(pathlib.Path, sys.argv[1:] or [ROOT / name for name in FOLDERS]):
        (folder / "mtp.json").write_text(json.dumps(goldens(folder)) + "\n")


if __name__ == "__main__":
    main()
