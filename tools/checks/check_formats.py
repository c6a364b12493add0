#!/usr/bin/env python3
"""Random small models of every architecture in every published form of 8 and 4 bits, SwiftKV forms too, against swiftkv.

    tools/checks/check_formats.py [--build build] [--seeds 1] [--only llama,gpt-oss] [--forms awq,mxfp4] [--keep FOLDER]

Needs torch and transformers, as check_architectures.py, whose shapes it draws. Every linear layer is written in the
form, but for some that stay as they are; what the codes stand for goes to transformers, in f64. Compared are the
log-probabilities, with weights and activations in f32 (1e-3), and the greedy continuations of chunks of several sizes.
In SwiftKV form transformers gets the new projections, and norm_swiftkv(x_l) as the input of k and v, by hooks.
"""

import argparse
import copy
import json
import math
import random
import re
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/oracle"))
import check_architectures as architectures  # noqa: E402
import make_quantised as quantised  # noqa: E402

LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
NO_SWIFTKV = ("gemma4", "olmo", "phi4", "glm4", "llama-yarn")  # refused, or without k_proj in transformers


def scaled(w, options, top, kind):
    """Symmetric codes in groups: (codes, scales, what they stand for)"""
    group = options["group"] or w.shape[1]
    scale = (w.view(w.shape[0], -1, group).abs().amax(-1) / top).clamp(min=1e-4).to(kind)
    each = scale.double().repeat_interleave(group, 1)
    codes = (w / each).round().clamp(-top - 1, top)
    return codes, scale, codes * each


def int4(w, options):
    codes, scale, value = scaled(w, options, 7, options["scales"])
    packed = quantised.pack((codes + 8).long(), 1)
    return {"weight_packed": packed, "weight_scale": scale, "weight_shape": torch.tensor(w.shape)}, value


def int8(w, options):
    codes, scale, value = scaled(w, options, 127, options["scales"])
    return {"weight": codes.to(torch.int8), "weight_scale": scale}, value


def packed8(w, options):
    codes, scale, value = scaled(w, options, 127, torch.bfloat16)
    quads = (codes + 128).long().unflatten(1, (-1, 4))
    words = sum(quads[..., i] << 8 * i for i in range(4))
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return {"weight_packed": words, "weight_scale": scale, "weight_shape": torch.tensor(w.shape)}, value


def fp8_group(w, options):
    _, scale, _ = scaled(w, options, 448, torch.bfloat16)
    codes, value = quantised.fp8(w, scale.repeat_interleave(w.shape[1] // scale.shape[1], 1))
    return {"weight": codes, "weight_scale": scale}, value


def e2m1(w):
    """(packed codes [..., K / 32, 16], scales [..., K / 32], what they stand for) of w [..., K]"""
    groups = w.unflatten(-1, (-1, 32))
    power = torch.floor(torch.log2(groups.abs().amax(-1).clamp(min=1e-6))) - 1
    scale = torch.exp2(power)[..., None]
    codes = ((groups / scale)[..., None] - LEVELS).abs().argmin(-1)
    value = (LEVELS[codes] * scale).flatten(-2)
    pairs = codes.unflatten(-1, (16, 2))
    return (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8), (power + 127).to(torch.uint8), value


def mxfp4(w, _):
    codes, scale, value = e2m1(w)
    return {"weight_packed": codes.flatten(-2), "weight_scale": scale}, value


def whole_group(form):
    return lambda w, o: form(w, o | {"group": o["group"] or w.shape[1]})


def draw(r, group):
    return {"group": group, "scales": r.choice([torch.bfloat16, torch.float16, torch.float32])}


def columnwise(method, o, **more):
    return {"quant_method": method, "bits": 4, "group_size": o["group"] or -1, **more}


def ct(form, bits, kind):
    return lambda o: quantised.compressed(form, bits, kind, "group", group_size=o["group"] or None,
                                          actorder="group" if o.get("order") else None)


def ordered(r, group):
    return {"group": group or 8, "order": True}


# name -> (how a matrix is written, what is drawn for all, quantization_config, what K is a multiple of)
FORMS = {
    "fp8-tensor": (quantised.fp8_tensor, draw, lambda o: quantised.compressed("float-quantized", 8, "float", "tensor"), 1),
    "fp8-row": (quantised.fp8_row, draw, lambda o: quantised.compressed("float-quantized", 8, "float", "channel"), 1),
    "fp8-group": (fp8_group, draw, ct("float-quantized", 8, "float"), 8),
    "fp8-block": (quantised.fp8_block, lambda r, g: {"block": (r.choice([16, 24, 50]), r.choice([16, 20, 128]))},
                  lambda o: {"quant_method": "fp8", "weight_block_size": list(o["block"])}, 1),
    "fp8-scalar": (lambda w, o: quantised.scalar(*quantised.fp8_tensor(w, o)), draw,
                   lambda o: {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}, 1),
    "int8-row": (quantised.int8_row, draw, lambda o: quantised.compressed("int-quantized", 8, "int", "channel"), 1),
    "int8-group": (int8, draw, ct("int-quantized", 8, "int"), 8),
    "packed8": (packed8, draw, ct("pack-quantized", 8, "int"), 8),
    "int4": (int4, draw, ct("pack-quantized", 4, "int"), 8),
    "int4-zeros": (whole_group(quantised.packed), draw, ct("pack-quantized", 4, "int"), 8),
    "int4-order": (quantised.packed, ordered, ct("pack-quantized", 4, "int"), 8),
    "awq": (whole_group(quantised.awq), draw, lambda o: columnwise("awq", o, version="gemm"), 8),
    "gptq": (whole_group(quantised.gptq), draw, lambda o: columnwise("gptq", o, checkpoint_format="gptq"), 8),
    "gptq-order": (quantised.gptq, ordered, lambda o: columnwise("gptq", o, desc_act=True), 8),
    "gptq-v2": (whole_group(quantised.gptq), lambda r, g: draw(r, g) | {"v2": True},
                lambda o: columnwise("gptq", o, checkpoint_format="gptq_v2"), 8),
    "mxfp4": (mxfp4, draw, lambda o: quantised.compressed("mxfp4-pack-quantized", 4, "float", "group", group_size=32), 32),
}


# ---- models ----


def make(name, seed, r):
    """(class of the model, folder-ready configuration, tensors under published names)"""
    kind, shape_of = architectures.ARCHITECTURES[name]
    made, m = shape_of(r), r.choice([8, 32])
    for key in ("hidden_size", "intermediate_size", "moe_intermediate_size"):
        if key in made:
            made[key] = -(-made[key] // m) * m
    if "head_dim" not in made or name in ("llama", "llama-yarn", "gemma2", "gemma3"):
        made["hidden_size"] = made["num_attention_heads"] * (16 if name == "phi4-mini" else r.choice([8, 16, 32]))
    of_text = f"{kind}TextConfig"
    config = getattr(transformers, of_text if hasattr(transformers, of_text) else f"{kind}Config")(**made)
    kind = getattr(transformers, f"{kind}ForCausalLM")
    model = kind(config).float().eval()
    architectures.randomize(model, seed)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return kind, json.loads(Path(folder, "config.json").read_text()) | {"dtype": "float32"}, load_all(folder)


def load_all(folder):
    tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        tensors |= {n: t.float() for n, t in load_file(path).items()}
    return tensors


def write(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)$")


def split(tensors):
    """Gemma 4's fused experts as a tensor each, as quantised checkpoints have them."""
    out = {}
    for name, t in tensors.items():
        base, part = name.rsplit(".", 1)
        for e in range(t.shape[0] if base.endswith(".experts") else 0):
            halves = t[e].chunk(2) if part == "gate_up_proj" else (t[e],)
            names = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
            out |= {f"{base}.{e}.{n}.weight": h.contiguous() for n, h in zip(names, halves)}
        if not base.endswith(".experts"):
            out[name] = t
    return out


def fuse(tensors, gpt_oss):
    """The other way, as transformers has the experts of Gemma 4 and of gpt-oss."""
    out, experts = {}, {}
    for name, t in tensors.items():
        found = EXPERT.match(name)
        if found:
            base, e, part, kind = found.groups()
            experts.setdefault((base, kind), {}).setdefault(part, {})[int(e)] = t
        else:
            out[name] = t
    for (base, kind), parts in experts.items():
        suffix = "_bias" if kind == "bias" else ""
        gate, up, down = ([parts[p][e] for e in sorted(parts[p])] for p in ("gate", "up", "down"))
        join = (lambda a, b: torch.stack([a, b], 1).flatten(0, 1)) if gpt_oss else (lambda a, b: torch.cat([a, b]))
        turn = (lambda t: t.T) if gpt_oss and kind == "weight" else (lambda t: t)
        out[f"{base}.gate_up_proj{suffix}"] = torch.stack([turn(join(a, b)) for a, b in zip(gate, up)])
        out[f"{base}.down_proj{suffix}"] = torch.stack([turn(t) for t in down])
    return out


# ---- forms ----


def is_linear(name, t):
    others = ("embed_tokens", "lm_head", "norm", "router", "mlp.gate.weight", "block_sparse_moe.gate.weight")
    return t.dim() == 2 and name.endswith(".weight") and not any(x in name for x in others)


def encode(tensors, form, r, gpt_oss):
    """(what is stored, what that stands for, quantization_config, how many were written in the form)"""
    write_as, draws, config_of, step = FORMS[form]
    common = math.gcd(*(t.shape[1] for n, t in tensors.items() if is_linear(n, t)))
    options = draws(r, r.choice([g for g in (8, 16, 32, 64) if common % g == 0] or [0]))
    stored, values, left, n_done = {}, {}, ["lm_head", "re:.*router.*"], 0
    for name, t in tensors.items():
        stored[name] = values[name] = t
        if gpt_oss and form == "mxfp4":  # as published: the experts alone
            if t.dim() == 3 and t.shape[1] % 32 == 0:
                codes, scale, value = e2m1(t.transpose(1, 2).double())
                stored |= {name + "_blocks": codes, name + "_scales": scale}
                values[name], n_done = value.transpose(1, 2).float(), n_done + 1
                del stored[name]
            continue
        by_rows = form.startswith(("awq", "gptq")) and t.shape[0] % 8 != 0
        if not is_linear(name, t) or t.shape[1] % step or by_rows or r.random() < 0.1:
            left.append(name.removesuffix(".weight"))
            continue
        parts, value = write_as(t.double(), options)
        values[name], n_done = value.float(), n_done + 1
        del stored[name]
        stored |= {name.removesuffix("weight") + part: p for part, p in parts.items()}
    said = {"quant_method": "mxfp4"} if gpt_oss and form == "mxfp4" else config_of(options)
    said["ignore" if said["quant_method"] == "compressed-tensors" else "modules_to_not_convert"] = left
    return stored, values, said, n_done


def reference_model(kind, config, values, folder):
    """The model in f64; a SwiftKV one by hooks. See the equations in the architecture page."""
    first, group, n = config.get("num_key_value_layers"), config.get("key_value_group_size", 1), config["num_hidden_layers"]
    plain = {n: t for n, t in values.items() if "swiftkv" not in n}
    for i in range(first or n, n):
        for part in ("q_proj.weight", "q_proj.bias", "q_norm.weight", "k_proj.weight", "k_proj.bias", "k_norm.weight",
                     "v_proj.weight", "v_proj.bias"):
            at = i if part[0] == "q" else first + (i - first) // group * group
            what, kind_of = part.split(".")
            found = values.get(f"model.layers.{at}.self_attn.{what}_swiftkv.{kind_of}")
            if found is not None:
                plain[f"model.layers.{i}.self_attn.{part}"] = found.clone()
    family = config["model_type"].removesuffix("_swiftkv")
    if family.startswith("gemma4") or family == "gpt_oss":
        plain = fuse(plain, family == "gpt_oss")
    write(folder, config | {"model_type": family}, plain)
    model = kind.from_pretrained(folder, dtype=torch.float32).eval().double()
    model.config._attn_implementation = model.config._experts_implementation = "eager"
    if first is not None and first < n:
        norm, kept = copy.deepcopy(model.model.layers[first].input_layernorm), {}
        norm.weight.data = values["model.norm_swiftkv.weight"].double()
        model.model.layers[first].register_forward_pre_hook(
            lambda _, args, more: kept.update(x=norm(args[0] if args else more["hidden_states"])), with_kwargs=True)
        for layer in model.model.layers[first:]:
            for part in (layer.self_attn.k_proj, layer.self_attn.v_proj):
                part.register_forward_pre_hook(lambda *_: (kept["x"],))
    return model


def to_swiftkv(program, config, tensors, r, folder):
    n = config["num_hidden_layers"]
    first = r.randint(1, max(1, n - 1))
    group = r.choice([g for g in range(1, n - first + 2) if (n - first) % g == 0])
    base = write(folder / "base", config, tensors)
    architectures.run(program, "transform", base, folder / "swiftkv", "--kv-layers", first, "--group", group)
    noise = torch.Generator().manual_seed(first)
    tensors = load_all(folder / "swiftkv")
    for name, t in tensors.items():
        if "swiftkv" in name:
            tensors[name] = t + 0.1 * torch.randn(t.shape, generator=noise)
    return json.loads((folder / "swiftkv/config.json").read_text()), tensors


def check(program, name, form, swiftkv, seed, folder):
    r = random.Random(f"{name} {form} {seed}")
    kind, config, tensors = make(name, seed, r)
    tensors = split(tensors) if name == "gemma4-moe" else tensors
    if swiftkv:
        config, tensors = to_swiftkv(program, config, tensors, r, folder)
        if name == "gpt-oss":
            tensors = fuse(tensors, True)
    stored, values, said, n_done = encode(tensors, form, r, name == "gpt-oss")
    if n_done == 0:
        return ""
    model = write(folder / "model", config | {"quantization_config": said}, stored)
    ids = [r.randrange(3, config["vocab_size"]) for _ in range(architectures.N_IDS)]
    (model / "ids.json").write_text(json.dumps(ids))
    oracle = reference_model(kind, config, values, folder / "reference")
    return architectures.compare(program, model, architectures.reference(oracle, ids, architectures.N_GREEDY))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default=",".join(architectures.ARCHITECTURES))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--keep", type=Path, help="models that fail stay here")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    n_bad = 0
    for name in options.only.split(","):
        bad = n = 0
        for form in options.forms.split(","):
            for swiftkv in (False, True)[: 1 if name.startswith(NO_SWIFTKV) else 2]:
                for seed in range(options.seeds):
                    with tempfile.TemporaryDirectory() as temporary:
                        folder = Path(temporary)
                        if options.keep:
                            folder = options.keep / f"{name}-{form}-{seed}{'-swiftkv' if swiftkv else ''}"
                        try:
                            said = check(options.build / "swiftkv", name, form, swiftkv, seed, folder)
                        except (RuntimeError, ValueError, KeyError) as error:
                            said = f"{type(error).__name__}: {error}"
                    if "cannot share the keys and values" in said:
                        continue  # layers of different kinds in a group
                    n += 1
                    if said:
                        bad += 1
                        print(f"{name}, {form}, seed {seed}{', SwiftKV' if swiftkv else ''}: {said}", flush=True)
        print(f"{name}: {n - bad} of {n} equal", flush=True)
        n_bad += bad
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
