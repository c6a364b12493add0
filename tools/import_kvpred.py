#!/usr/bin/env python3
"""A checkpoint of KV Prediction as its authors' code saves it -> the folder of docs/reference/file-formats.md.

    tools/import_kvpred.py CHECKPOINT.pt --base FOLDER --auxiliary FOLDER OUT [--layers 0,0,1,...]

CHECKPOINT.pt is a state dict with base.*, auxiliary.* and predicter.*; --base and --auxiliary are
folders of the two OpenELM models, of which config.json (the shape) and tokenizer files are taken.
The base's weights go into OUT. --layers is the list auxkv_num_layers_to_basekv_num_layers of the
configuration; without it the paper's rules are used (its Table 1): an auxiliary with three quarters
of the base's layers is taken for a copy without every fourth layer, any other for a smaller model,
of which the copies with a half and a quarter of the layers are a case.
"""

import argparse
import json
import pathlib
import shutil
import sys

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json",
                   "special_tokens_map.json", "added_tokens.json", "generation_config.json")


def canonical(n_base, n_auxiliary):
    """Consecutive layers of the base in runs as equal as can be, longer runs first."""
    out = []
    for j in range(n_auxiliary):
        out += [j] * (n_base // n_auxiliary + (1 if j < n_base % n_auxiliary else 0))
    return out


def without_every_fourth(n_base):
    """The last kept layer that is not behind."""
    return [i - (i + 1) // 4 for i in range(n_base)]


def default_layers(n_base, n_auxiliary):
    if 4 * n_auxiliary == 3 * n_base:
        return without_every_fourth(n_base)
    return canonical(n_base, n_auxiliary)


def state_of(loaded):
    """The state dict of a file, which may be that of a training to be resumed."""
    for name in ("model_state_dict", "model"):
        if name in loaded:
            return loaded[name]
    return loaded


def part(state, prefix, vocab):
    """One of the two models under its published names, without rows that pad the vocabulary."""
    out = {}
    for name, tensor in state.items():
        if not name.startswith(prefix):
            continue
        name = "transformer." + name[len(prefix):]
        if name == "transformer.token_embeddings.weight":
            tensor = tensor[:vocab]
        out[name] = tensor.contiguous()
    return out


def predictor(state):
    prefix = "predicter.auxkv_to_basekv."
    out = {}
    for name, tensor in state.items():
        if name.startswith(prefix):
            kind, i, what = name[len(prefix):].split(".")
            out[f"predictor.{kind.removesuffix('_transforms')}.{i}.{what}"] = tensor.contiguous()
    return out


def n_layers(config):
    return config["num_transformer_layers"]


def write_model(folder, config, tensors, tokenizer):
    from safetensors.torch import save_file
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def convert(state, base, auxiliary, out, layers):
    from safetensors.torch import save_file
    configs = {name: json.loads((folder / "config.json").read_text())
               for name, folder in (("base", base), ("auxiliary", auxiliary))}
    n_base, n_own = n_layers(configs["base"]), n_layers(configs["auxiliary"])
    layers = layers or default_layers(n_base, n_own)
    if len(layers) != n_base or min(layers) < 0 or max(layers) >= n_own:
        sys.exit(f"--layers: {len(layers)} layers below {max(layers) + 1}, expected {n_base} below {n_own}")
    if out.exists():
        sys.exit(f"{out}: exists")
    models = {name: part(state, name + ".", configs[name]["vocab_size"]) for name in configs}
    maps = predictor(state)
    if not all(models.values()) or len(maps) != 4 * n_base:
        sys.exit(f"the checkpoint has {[len(m) for m in models.values()]} tensors of base and auxiliary "
                 f"and {len(maps)} of the predictor, expected some and {4 * n_base}")
    write_model(out / "auxiliary", configs["auxiliary"], models["auxiliary"], base)
    save_file(maps, out / "predictor.safetensors", metadata={"format": "pt"})
    told = configs["base"] | {"kv_prediction": {"auxiliary": "auxiliary", "layers": layers}}
    write_model(out, told, models["base"], base)
    print(f"{out}: base of {n_base} layers, auxiliary of {n_own}, which predicts by layers {','.join(map(str, layers))}")


def main():
    import torch
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--base", type=pathlib.Path, required=True)
    parser.add_argument("--auxiliary", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=lambda text: [int(i) for i in text.split(",")])
    options = parser.parse_args()
    state = state_of(torch.load(options.checkpoint, map_location="cpu", weights_only=True))
    convert(state, options.base, options.auxiliary, options.out, options.layers)


if __name__ == "__main__":
    main()
