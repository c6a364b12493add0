"""The vectors that prompts become: final hidden states, pooled and divided by their length.

    python tools/oracle/make_embedding_goldens.py [--models tests/data/models] [--out tests/data/embeddings.json]

`last_hidden_state` of transformers in float64, from the files as written; SwiftKV models by
plain_models.py. `last` is the last token's state, `mean` the mean over the prompt.
"""

import argparse
import json
import pathlib

import torch

import make_models
import plain_models

ORDINARY = ("llama3-v5", "gemma3-v5", "qwen3-v5")
SWIFTKV = ("llama-swiftkv-g1", "qwen2-swiftkv-g2")
LENGTHS = (1, 19, 57)


def transformers_hidden(folder):
    model = make_models.load_float64(folder)

    @torch.no_grad()
    def hidden_of(ids):
        with make_models.AllFloat64():
            return model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    return hidden_of


def pooled(x):
    unit = torch.nn.functional.normalize(x, dim=0)
    return [round(v, 9) for v in unit.tolist()]


def cases_of(hidden_of, vocab):
    for n in LENGTHS:
        ids = [(i * 29 + 7 * n) % (vocab - 3) + 3 for i in range(n)]
        x = hidden_of(ids)
        yield {"ids": ids, "last": pooled(x[-1]), "mean": pooled(x.mean(0))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default="tests/data/models")
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/embeddings.json")
    args = parser.parse_args()
    result = {}
    for name in ORDINARY + SWIFTKV:
        folder = args.models / name
        config = json.loads((folder / "config.json").read_text())
        modes = {}
        if name in ORDINARY:
            modes["auto"] = transformers_hidden(folder)
        else:
            plain = plain_models.LlamaFamily(config, make_models.read_float64(folder))
            modes["auto"] = plain.hidden
            modes["teacher"] = lambda ids, m=plain: m.hidden(ids, teacher=True)
        result[name] = {m: list(cases_of(f, config["vocab_size"])) for m, f in modes.items()}
    lines = [json.dumps(name) + ": " + json.dumps(modes) for name, modes in result.items()]
    args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
