"""LoRA adapters and what models say with them: PEFT folders, a GGUF adapter, and log-probabilities.

    python tools/oracle/make_lora_goldens.py [--models tests/data/models] [--out tests/data/lora]

peft makes, saves and loads the adapters of ordinary models and runs them in float64. Adapters of SwiftKV models are
added to the weights of plain_models.py, under the names that the SwiftKV form has.
"""

import argparse
import json
import pathlib
import shutil

import gguf
import numpy
import peft
import safetensors.torch
import torch

import golden_cases
import make_models
import plain_models
from random_weights import generator

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS = {
    "narrow": ("llama3-v5", {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "wide": ("llama3-v5", {"r": 6, "lora_alpha": 5, "target_modules": ALL, "use_rslora": True,
                           "rank_pattern": {"down_proj": 3}, "alpha_pattern": {"layers.2.self_attn.o_proj": 9}}),
    "regex": ("qwen2", {"r": 2, "lora_alpha": 4, "target_modules": r".*\.(gate|down|k)_proj"}),
    "gemma": ("gemma3-v5", {"r": 3, "lora_alpha": 6, "target_modules": ALL}),
    "fused": ("phi3", {"r": 4, "lora_alpha": 6, "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    "turned": ("glm4", {"r": 4, "lora_alpha": 6, "target_modules": ALL[:4] + ["gate_up_proj", "down_proj"]}),
    "swiftkv": ("qwen2-swiftkv-g1", {"r": 4, "lora_alpha": 8, "target_modules": ALL}),
}
LENGTHS = (1, 19, 57)


def fill(name, shape, key):
    r = generator("lora", name, key)
    return torch.tensor(r.normal(0, 0.35, shape), dtype=torch.float32)


def make_peft(name, folder, config, out):
    model = make_models.load_float64(folder)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if ".lora_" in key:
                weight.copy_(fill(name, tuple(weight.shape), key))
    model.to(torch.float32).save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    loaded = peft.PeftModel.from_pretrained(make_models.load_float64(folder), out).double().eval()

    @torch.no_grad()
    def logits_of(ids):
        with make_models.AllFloat64():
            return loaded(torch.tensor([ids]), use_cache=False).logits[0]

    return logits_of


MIX = {"narrow": 0.5, "wide": -1.25}


def load_mix(folder, out):
    """The model with both adapters at once, each times a factor."""
    loaded = make_models.load_float64(folder)
    for name in MIX:
        if isinstance(loaded, peft.PeftModel):
            loaded.load_adapter(out / name, adapter_name=name)
        else:
            loaded = peft.PeftModel.from_pretrained(loaded, out / name, adapter_name=name)
    loaded.base_model.set_adapter(list(MIX))
    for layer in loaded.modules():
        if isinstance(layer, peft.tuners.lora.LoraLayer):
            for name in layer.scaling:
                layer.scaling[name] *= MIX[name]
    loaded = loaded.double().eval()

    @torch.no_grad()
    def logits_of(ids):
        with make_models.AllFloat64():
            return loaded(torch.tensor([ids]), use_cache=False).logits[0]

    return logits_of


def swiftkv_targets(config):
    l, group, n = config["num_key_value_layers"], config["key_value_group_size"], config["num_hidden_layers"]
    for i in range(n):
        for part in ALL:
            where = "mlp" if part in ALL[4:] else "self_attn"
            deep = i >= l and part in ALL[:3]
            if deep and part != "q_proj" and (i - l) % group:
                continue
            yield f"model.layers.{i}.{where}.{part}" + "_swiftkv" * deep


def make_swiftkv(name, folder, config, out):
    model = json.loads((folder / "config.json").read_text())
    weights, adapter = make_models.read_float64(folder), {}
    for target in swiftkv_targets(model):
        n_out, n_in = weights[target + ".weight"].shape
        a, b = fill(name, (config["r"], n_in), target + "a"), fill(name, (n_out, config["r"]), target + "b")
        adapter[f"base_model.model.{target}.lora_A.weight"] = a
        adapter[f"base_model.model.{target}.lora_B.weight"] = b
        weights[target + ".weight"] += config["lora_alpha"] / config["r"] * (b.double() @ a.double())
    out.mkdir()
    safetensors.torch.save_file(adapter, out / "adapter_model.safetensors")
    modules = ALL + [part + "_swiftkv" for part in ALL[:3]]
    (out / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **config, "target_modules": modules}))
    return plain_models.LlamaFamily(model, weights).forward


def permuted(b, n_heads):
    """The rows of Llama's q and k as llama.cpp's conversion orders them."""
    return b.reshape(n_heads, 2, b.shape[0] // n_heads // 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)


def write_gguf(folder, config, alpha, out):
    writer = gguf.GGUFWriter(str(out), config["model_type"])
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
             "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
             "qkv_proj": "attn_qkv", "gate_up_proj": "ffn_up"}
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for key, value in safetensors.torch.load_file(folder / "adapter_model.safetensors").items():
        parts, value = key.split("."), value.numpy()
        module, side = parts[-3], parts[-2]
        if side == "lora_B" and module in heads:
            value = permuted(value, heads[module])
        writer.add_tensor(f"blk.{parts[4]}.{names[module]}.weight.{side.lower()}", numpy.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def told(logits_of, vocab, n):
    ids = [(i * 29 + 7 * n) % (vocab - 3) + 3 for i in range(n)]
    logp = logits_of(ids).to(torch.float64).log_softmax(-1)
    return {"ids": ids, "logprobs": [None] + [round(logp[t - 1, ids[t]].item(), 9) for t in range(1, n)],
            "last": [round(v, 9) for v in logp[-1].tolist()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default="tests/data/models")
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/lora")
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    cases = []
    for name, (model, config) in ADAPTERS.items():
        folder, out = args.models / model, args.out / name
        shutil.rmtree(out, ignore_errors=True)
        about = json.loads((folder / "config.json").read_text())
        make = make_swiftkv if "swiftkv" in model else make_peft
        logits_of = make(name, folder, config, out)
        vocab = about.get("vocab_size") or about["text_config"]["vocab_size"]
        cases += [{"model": model, "adapter": name, **told(logits_of, vocab, n)} for n in LENGTHS]
    logits_of = load_mix(args.models / "llama3-v5", args.out)
    about = json.loads((args.models / "llama3-v5/config.json").read_text())
    mixed = [{"model": "llama3-v5", "scales": MIX, **told(logits_of, about["vocab_size"], n)} for n in LENGTHS]
    for name in ("narrow", "fused"):
        model, config = ADAPTERS[name]
        about = json.loads((args.models / model / "config.json").read_text())
        write_gguf(args.out / name, about, float(config["lora_alpha"]), args.out / f"{name}.gguf")
    golden_cases.write_json(args.out / "golden.json", {"source": f"peft {peft.__version__}", "cases": cases,
                                                      "mixed": mixed})


main()
