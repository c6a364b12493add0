"""Token log-probabilities and perplexities of the real models, to hold `swiftkv score` against.

    python tools/oracle/score_reference.py ASSETS [--out tests/data/reference] [MODEL ...]

ASSETS is the folder that holds models/ and text/. The rule of windows, for every model and text:
the text is the file's bytes as UTF-8 (a byte order mark and carriage returns stay) and is tokenised
whole, without special tokens. A window is BOS and the next context - 1 ids; windows follow each
other without overlap; the last may be short. Every id but the BOS is scored, given its window so
far. nll is the mean over all scored ids of the file, perplexity = exp(nll).
transformers computes the sample windows in float64 (see AllFloat64 in make_models.py) and the
perplexities of whole files in float32, which moves nll by less than 1e-6.
"""

import argparse
import hashlib
import json
import logging
import math
import pathlib
import tempfile

import gguf
import numpy as np
import sentencepiece
import tokenizers
import torch
import transformers

import golden_cases
import make_gguf
import make_models
import plain_models

TEXTS = ("tinystories-b.txt", "pride-and-prejudice.txt", "wiki.test.raw")
SAMPLE_TEXT = "pride-and-prejudice.txt"  # in the public domain: its ids may be committed
SAMPLE_IDS = 512
BATCH = 8
N_GOLDEN = 200
# A second normalizer_spec, merged by protobuf: remove_extra_whitespaces = false, as GGUF readers do.
KEEP_SPACES = b"\x1a\x02\x20\x00"


class FolderModel:
    """A Hugging Face folder with tokenizer.json."""

    BOS = 1

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        weights = make_models.read_float64(folder)
        embedding = weights.get("model.embed_tokens.weight", weights.get("lm_head.weight"))
        # One file says "tied" and stores the pair as lm_head, the other says "untied" and stores no
        # head. Both hold one matrix for both ends, and no other reading of them makes sense.
        self.config["tie_word_embeddings"] = True
        weights = {n: t for n, t in weights.items() if n != "lm_head.weight"}
        self.weights = weights | {"model.embed_tokens.weight": embedding}
        self.context = self.config["max_position_embeddings"]
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.encoders = {"tokenizer.json": lambda s: tokenizer.encode(s, add_special_tokens=False).ids}


class Stories260k:
    """The GGUF file: weights from its own tensors, shape from its own metadata."""

    BOS = 1

    def __init__(self, folder):
        reader = gguf.GGUFReader(folder / "stories260k-f32.gguf")

        def field(name):
            return reader.get_field("llama." + name).contents()

        self.config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": field("embedding_length"), "intermediate_size": field("feed_forward_length"),
            "num_hidden_layers": field("block_count"), "num_attention_heads": field("attention.head_count"),
            "num_key_value_heads": field("attention.head_count_kv"), "vocab_size": 512,
            "rms_norm_eps": field("attention.layer_norm_rms_epsilon"), "rope_theta": 10000.0,
            "max_position_embeddings": field("context_length"), "tie_word_embeddings": False,
            "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
        }
        self.context = self.config["max_position_embeddings"]
        by_name = {t.name: torch.from_numpy(np.array(t.data)).double() for t in reader.tensors}
        shapes = make_models.base_tensors("stories260k", self.config)
        self.as_stored = {n: by_name[make_gguf.gguf_name(n, "llama")] for n in shapes}
        self.weights = {n: self.unpermuted(n, t) for n, t in self.as_stored.items()}
        model_bytes = (folder / "tok512.model").read_bytes()
        self.pieces = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
        gguf_like = sentencepiece.SentencePieceProcessor(model_proto=model_bytes + KEEP_SPACES)
        # tokenizer.model folds runs of spaces into one; readers of the GGUF vocabulary do not.
        self.encoders = {"gguf": gguf_like.encode, "tokenizer.model": self.pieces.encode}

    def unpermuted(self, name, t):
        """q and k rows from neighbouring pairs back to (j, j + d/2)."""
        if "q_proj" not in name and "k_proj" not in name:
            return t
        key = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
        return t.reshape(self.config[key], -1, 2, t.shape[-1]).swapaxes(1, 2).reshape(t.shape)


MODELS = {"stories260k": Stories260k, "tinystories-656k": FolderModel,
          "tinystories-656k-f16": FolderModel}


def transformers_models(model):
    """The network in float64, and in float32 for long texts."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "model"
        make_models.save(folder, model.config, model.weights)
        fast = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa")
        return make_models.load_float64(folder), fast.eval()


def windows_of(model, ids):
    step = model.context - 1
    return [[model.BOS] + ids[i:i + step] for i in range(0, len(ids), step)]


def exact(network):
    def forward(rows):
        with make_models.AllFloat64():
            return network(rows, use_cache=False).logits
    return forward


def score_windows(forward, windows):
    """Log-probabilities of ids 1.. of every window, each a list."""
    out = []
    for start in range(0, len(windows), BATCH):
        part = windows[start:start + BATCH]
        width = max(map(len, part))
        rows = torch.tensor([w + [0] * (width - len(w)) for w in part])  # causal: padding is unseen
        logits = forward(rows)
        logp = logits[:, :-1].log_softmax(-1).gather(2, rows[:, 1:, None])[..., 0]
        out += [logp[i, :len(w) - 1].tolist() for i, w in enumerate(part)]
    return out


def ids_hash(ids):
    return hashlib.sha256(np.asarray(ids, dtype="<i4").tobytes()).hexdigest()


def perplexity(fast, model, ids):
    windows = windows_of(model, ids)
    each = score_windows(lambda rows: fast(rows, use_cache=False).logits, windows)
    scores = [v for window in each for v in window]
    nll = -math.fsum(scores) / len(scores)
    return {"n_ids": len(ids), "ids_sha256": ids_hash(ids), "nll": round(nll, 9),
            "perplexity": round(math.exp(nll), 7)}


def sample(forward, model, text):
    """The first windows of a text, in full."""
    name, encode = next(iter(model.encoders.items()))
    windows = windows_of(model, encode(text)[:SAMPLE_IDS - SAMPLE_IDS // model.context])
    result = []
    for ids, scores in zip(windows, score_windows(forward, windows)):
        argmax = forward(torch.tensor([ids]))[0].argmax(-1).tolist()
        result.append({"ids": ids, "logprobs": [None] + [round(v, 9) for v in scores],
                       "argmax": argmax, "nll": round(-math.fsum(scores) / len(scores), 9)})
    return name, result


def rounded_weights(model):
    """What an engine with bfloat16 weights multiplies. An untied embedding is not multiplied."""
    kept = set() if model.config["tie_word_embeddings"] else {"model.embed_tokens.weight"}
    return {n: t.float().bfloat16().double() if t.ndim == 2 and n not in kept else t
            for n, t in model.weights.items()}


def add_rounded(model, windows):
    """logprobs_bf16: the same windows by weights rounded to bfloat16, everything else exact."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "model"
        make_models.save(folder, model.config, rounded_weights(model))
        network = make_models.load_float64(folder)
    scores = score_windows(exact(network), [w["ids"] for w in windows])
    for window, values in zip(windows, scores):
        window["logprobs_bf16"] = [None] + [round(v, 9) for v in values]


def check_plain(config, weights, interleaved, windows):
    """The plain block, on the tensors as stored, must agree with transformers on the samples."""
    plain = plain_models.LlamaFamily(config, weights, interleaved)
    worst = 0.0
    for window in windows:
        rows = plain.forward(window["ids"]).log_softmax(-1)
        for t, (token, expected) in enumerate(zip(window["ids"], window["logprobs"])):
            if t:
                worst = max(worst, abs(rows[t - 1, token].item() - expected))
    assert worst < make_models.AGREE, f"plain torch and transformers differ by {worst}"
    return plain


def published_text(plain, model, out):
    """Greedy from BOS only must give the 200 tokens that llama2.c tests itself with."""
    line, margin = [model.BOS], math.inf
    for _ in range(N_GOLDEN):
        top = plain.forward(line)[-1].log_softmax(-1).topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        line.append(top.indices[0].item())
    text = model.pieces.decode(line[1:])
    golden = (out / "stories260k-golden.txt").read_text()
    assert text == golden, f"greedy text differs from the published one:\n{text}"
    return {"ids": line[1:], "margin": round(margin, 6), "text": "stories260k-golden.txt"}


def make(assets, out, name):
    model = MODELS[name](assets / "models" / name)
    network, fast = transformers_models(model)

    def text_of(file):
        return (assets / "text" / file).read_bytes().decode("utf-8")

    encoder, windows = sample(exact(network), model, text_of(SAMPLE_TEXT))
    add_rounded(model, windows)
    stored = getattr(model, "as_stored", None)
    plain = check_plain(model.config, stored or model.weights, stored is not None, windows)
    result = {"model": name, "context": model.context, "bos": model.BOS,
              "sample": {"file": SAMPLE_TEXT, "tokenizer": encoder}, "windows": windows,
              "perplexity": []}
    if name == "stories260k":
        result["greedy"] = published_text(plain, model, out)
    for file in TEXTS:
        for how, encode in model.encoders.items():
            row = {"file": file, "tokenizer": how, **perplexity(fast, model, encode(text_of(file)))}
            print(name, row, flush=True)
            result["perplexity"].append(row)
    golden_cases.write_json(out / f"{name}.json", result, ("windows", "perplexity"))


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("assets", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/reference")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in options.models or MODELS:
        make(options.assets, options.out, name)


if __name__ == "__main__":
    with torch.no_grad():
        main()
