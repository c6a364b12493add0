"""Writes the tiny random models of tests/data/models and their golden results.

    python tools/oracle/make_models.py [--out tests/data/models] [NAME ...]

Architectures that `transformers` has are run by it, from the files as written; the Llama block of
plain_models.py is held against it on the same weights. SwiftKV, OpenELM and shared keys and values are run by plain_models.py.
See docs/explanation/testing.md for what a golden file holds.
"""

import argparse
import copy
import json
import logging
import pathlib
import shutil

import safetensors.torch
import torch
import transformers

import golden_cases
import model_specs
import plain_hybrids
import plain_models
from make_mtp_goldens import head_tensors
from random_weights import tensor_for

AGREE = 1e-8  # the plain block against transformers, in log-probability, both in float64
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class AllFloat64(torch.overrides.TorchFunctionMode):
    """Turns what transformers pins to float32 (norms, softmax, RoPE) into float64, so that a golden
    holds no rounding but its own printing."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wide(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


def save(folder, config, tensors, dtype="f32", shards=1):
    """config.json and the weights, as one file or as shards with an index."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    stored = {n: (t if t.dtype == torch.uint8 else t.to(DTYPES[dtype])).contiguous()
              for n, t in tensors.items()}
    meta = {"format": "pt"}
    if shards == 1:
        safetensors.torch.save_file(stored, folder / "model.safetensors", metadata=meta)
        return
    names = sorted(stored)
    size = sum(t.numel() * t.element_size() for t in stored.values())
    where = {n: f"model-{i * shards // len(names) + 1:05d}-of-{shards:05d}.safetensors"
             for i, n in enumerate(names)}
    for file in sorted(set(where.values())):
        part = {n: t for n, t in stored.items() if where[n] == file}
        safetensors.torch.save_file(part, folder / file, metadata=meta)
    index = {"metadata": {"total_size": size}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def read_float64(folder):
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= {n: t.to(torch.float64) for n, t in safetensors.torch.load_file(file).items()}
    return weights


def base_config(config):
    """The transformers configuration of the architecture, or of a SwiftKV model's teacher."""
    kind = config["model_type"].removesuffix("_swiftkv")
    fields = copy.deepcopy(config)  # transformers adds to the nested dictionaries that it is given
    del fields["model_type"], fields["architectures"]
    return transformers.AutoConfig.for_model(kind, **fields)


def base_tensors(name, config):
    """Random weights under the names that transformers writes for the architecture."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(base_config(config))
    shapes = {n: tuple(t.shape) for n, t in model.state_dict().items()}
    if config.get("tie_word_embeddings"):
        shapes.pop("lm_head.weight")
    gemma = config["model_type"] in ("gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text",
                                     "qwen3_5_moe_text")  # norms there are 1 + weight
    return {n: tensor_for(name, n, s, gemma) for n, s in shapes.items()}


EXPERT_NAMES = {
    "qwen3_moe": ("mlp", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
    "qwen3_next": ("mlp", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
    "qwen3_5_moe_text": ("mlp", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}),
    "mixtral": ("block_sparse_moe", {"gate": "w1", "up": "w3", "down": "w2"}),
    "lfm2_moe": ("feed_forward", {"gate": "w1", "up": "w3", "down": "w2"}),
    "nemotron_h": ("mixer", {"up": "up_proj", "down": "down_proj"}),
}
IN_MEMORY = {"lfm2_moe": "feed_forward", "nemotron_h": "mixer"}  # others: mlp


def split_experts(tensors, model_type):
    """A tensor for each expert, as files were written before transformers 5."""
    block, parts = EXPERT_NAMES[model_type]
    out = {}
    for name, t in tensors.items():
        layer, _, rest = name.partition(f".{IN_MEMORY.get(model_type, 'mlp')}.")
        if rest == "experts.gate_up_proj":
            pieces = {(e, part): t[e].chunk(2)[j] for e in range(t.shape[0])
                      for j, part in enumerate(("gate", "up"))}
        elif rest == "experts.down_proj":
            pieces = {(e, "down"): t[e] for e in range(t.shape[0])}
        elif rest == "experts.up_proj":
            pieces = {(e, "up"): t[e] for e in range(t.shape[0])}
        elif rest == "gate.weight":
            out[f"{layer}.{block}.gate.weight"] = t
            continue
        else:
            out[name] = t
            continue
        for (e, part), piece in pieces.items():
            out[f"{layer}.{block}.experts.{e}.{parts[part]}.weight"] = piece
    return out


PUBLISHED = {"granite": {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight",
                         "moe.router.weight": "moe.router.layer.weight"}}


def publish(tensors, family):
    """Names as published, which transformers changes when it loads them."""
    out = {}
    for name, t in tensors.items():
        for new, old in PUBLISHED[family].items():
            name = name.replace(new, old)
        out[name] = t
    return out


def publish_olmo(config, tensors):
    """Norms of layers without attention as published, and a convolution for each of q, k and v."""
    out = {}
    n_k, n_v = (config[f"linear_num_{k}_heads"] * config[f"linear_{k}_head_dim"] for k in ("key", "value"))
    for name, t in tensors.items():
        part = name.split(".")
        linear = part[1] == "layers" and config["layer_types"][int(part[2])] == model_specs.LINEAR
        if name.endswith("linear_attn.conv1d.weight"):
            for kind, piece in zip("qkv", t.split([n_k, n_k, n_v])):
                out[name.replace("conv1d", f"{kind}_conv1d")] = piece
            continue
        if linear:
            name = name.replace("input_layernorm", "attention_layer_norm")
            name = name.replace("post_attention_layernorm", "feedforward_layer_norm")
        out[name] = t
    return out


def mxfp4_experts(tensors):
    """Experts in MXFP4, and what transformers reads from them: (stored, dequantised)."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    stored, plain = {}, {}
    for name, t in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = plain[name] = t
            continue
        groups = t.transpose(1, 2).unflatten(-1, (-1, 32)).float()  # [E, rows, groups, 32]
        exponent = torch.floor(torch.log2(groups.abs().amax(-1) / 6)) + 1
        codes = (groups / 2**exponent[..., None]).unsqueeze(-1).sub(levels).abs().argmin(-1)
        codes = codes.to(torch.uint8)
        stored[name + "_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
        stored[name + "_scales"] = (exponent + 127).to(torch.uint8)
        plain[name] = convert_moe_packed_tensors(
            stored[name + "_blocks"], stored[name + "_scales"], dtype=torch.float32)
    return stored, plain


def load_float64(folder):
    """The published implementation, loaded from the files, all of it in float64."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True)
    assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    model.eval()
    with AllFloat64():
        if getattr(model.model, "rotary_emb", None) is None:  # no positions
            return model
        model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config)
    embedding = model.get_input_embeddings()
    if hasattr(embedding, "embed_scale"):  # Gemma rounds sqrt(hidden) to the type of the file
        stored = json.loads((folder / "config.json").read_text())
        kind = stored.get("dtype", stored.get("torch_dtype"))
        scale = torch.tensor(stored["hidden_size"] ** 0.5).to(getattr(torch, kind))
        embedding.embed_scale.copy_(scale)
        if stored.get("hidden_size_per_layer_input"):
            scale = torch.tensor(stored["hidden_size_per_layer_input"] ** 0.5).to(getattr(torch, kind))
            model.model.embed_tokens_per_layer.embed_scale.copy_(scale)
    return model


def transformers_logits(folder):
    model = load_float64(folder)

    @torch.no_grad()
    def logits_of(ids):
        with AllFloat64():
            before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float64)  # of quotients of integers
            try:
                return model(torch.tensor([ids]), use_cache=False).logits[0]
            finally:
                torch.set_default_dtype(before)

    return logits_of


def check_plain(name, config, weights, logits_of):
    """The plain block must give what transformers gives. Returns the largest difference."""
    plain = plain_models.LlamaFamily(config, weights)
    ids = [1] + [(7 * i) % 90 + 3 for i in range(60)]
    a = logits_of(ids).log_softmax(-1)
    b = plain.forward(ids, teacher=True).log_softmax(-1)
    worst = (a - b).abs().max().item()
    assert worst < AGREE, f"{name}: plain torch and transformers differ by {worst}"
    return worst


def eos_of(config):
    eos = config["eos_token_id"]
    return set(eos) if isinstance(eos, list) else {eos}


def golden(name, config, modes, lengths, source):
    cases = [golden_cases.case_for(name, n, config["vocab_size"], eos_of(config), modes) for n in lengths]
    deviation = golden_cases.spread(modes[None](cases[-1]["ids"]))
    print(f"{name}: logits spread {deviation:.2f}, nll {cases[-1]['nll']:.3f}", flush=True)
    assert deviation > 0.8, f"{name}: the logits are too flat to test anything"
    return {"model": name, "source": source, "cases": cases}


def add_simscore(result, plain):
    """SimScore over the longest case, by the mode that the case itself ran in."""
    case = result["cases"][-1]
    for target, teacher in ((case, False), (case.get("teacher"), True)):
        if target is not None:
            inputs = []
            plain.forward(case["ids"], teacher=teacher, inputs=inputs)
            scores = plain_models.similarity_scores(inputs)
            target["simscore"] = [None if s is None else round(s, 9) for s in scores]


def save_with_parts(folder, config, tensors, dtype):
    """The same model as the published files have it: the text part inside one with images, and dead
    keys and values in the layers that read those of others."""
    first = config["num_hidden_layers"] - config["num_kv_shared_layers"]
    out = {"model.vision_tower.patch_embedder.input_proj.weight": torch.ones(4, 3),
           "model.embed_vision.embedding_projection.weight": torch.ones(4, 3),
           "model.audio_tower.layers.0.norm_out.weight": torch.ones(4)}
    for name, tensor in tensors.items():
        out[name.replace("model.", "model.language_model.", 1)] = tensor
        part = name.split(".")
        if part[1] == "layers" and part[-2] in ("k_proj", "v_proj", "k_norm") and int(part[2]) < 2:
            dead = name.replace(f".{part[2]}.", f".{first + int(part[2])}.", 1)
            out[dead.replace("model.", "model.language_model.", 1)] = torch.full_like(tensor, 7.0)
    outer = {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
             "dtype": config["dtype"], "text_config": config, "vision_config": {"hidden_size": 3},
             "tie_word_embeddings": True}
    save(folder, outer, out, dtype)


def save_wrapped(folder, config, tensors, dtype, kind):
    """The same model as Qwen 3.5 is published: inside one with images, beside a head for further tokens."""
    out = {"model.visual.patch_embed.proj.weight": torch.ones(4, 3)}
    if kind == "qwen3_5":
        out |= head_tensors(folder.name, config)
    else:  # which nobody reads
        out |= {"mtp.fc.weight": torch.ones(4, 8), "mtp.layers.0.self_attn.q_proj.weight": torch.ones(4, 4)}
    for name, tensor in tensors.items():
        out[name.replace("model.", "model.language_model.", 1)] = tensor
    inner = {k: v for k, v in config.items() if k != "tie_word_embeddings"}
    outer = {"architectures": [config["architectures"][0].replace("CausalLM", "ConditionalGeneration")],
             "model_type": kind, "text_config": inner, "vision_config": {"hidden_size": 3},
             "tie_word_embeddings": config["tie_word_embeddings"]}
    save(folder, outer, out, dtype)


def make_ordinary(root, name, spec):
    config, folder = spec["config"], root / name
    tensors = base_tensors(name, config)
    if spec.get("experts") in ("split", "lfm2", "nemotron"):
        tensors = split_experts(tensors, config["model_type"])
    if spec.get("backbone"):
        tensors = {n.replace("model.", "backbone.", 1): t for n, t in tensors.items()}
    if spec.get("olmo"):
        tensors = publish_olmo(config, tensors)
    if spec.get("experts") in PUBLISHED:
        tensors = publish(tensors, spec["experts"])
    if spec.get("experts") == "mxfp4":
        tensors, plain = mxfp4_experts(tensors)
        save(folder, {k: v for k, v in config.items() if k != "quantization_config"}, plain)
        logits_of = transformers_logits(folder)
    save(folder, config, tensors, spec.get("dtype", "f32"), spec.get("shards", 1))
    if spec.get("experts") != "mxfp4":
        logits_of = transformers_logits(folder)
    source = f"transformers {transformers.__version__}"
    result = golden(name, config, {None: logits_of}, spec.get("lengths", model_specs.LENGTHS), source)
    like_llama = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "smollm3", "ministral3",
                  "granite")
    if config["model_type"] in like_llama and name not in ("qwen2-window", "qwen3-yarn"):
        weights = read_float64(folder)
        print(f"  plain torch agrees to {check_plain(name, config, weights, logits_of):.1e}")
        if spec.get("simscore"):
            add_simscore(result, plain_models.LlamaFamily(config, weights))
    if spec.get("parts"):
        save_with_parts(folder, config, base_tensors(name, config), spec.get("dtype", "f32"))
    if spec.get("wrapped"):
        save_wrapped(folder, config, tensors, spec.get("dtype", "f32"), spec["wrapped"])
    golden_cases.write_json(folder / "golden.json", result)
    if "hybrid_transform" in spec:
        make_hybrid_transform(folder, config, read_float64(folder), spec["hybrid_transform"])
    if "transform" in spec:
        make_transform(folder, config, read_float64(folder), *spec["transform"])


def swiftkv_tensors(name, config, base):
    """The tensors that the layers >= l add, with weights of their own, unlike the teacher's."""
    l, g = config["num_key_value_layers"], config["key_value_group_size"]
    added = {"model.norm_swiftkv.weight": base["model.norm.weight"].shape}
    for i in range(l, config["num_hidden_layers"]):
        producer = (i - l) % g == 0
        for kind in ("q", "k", "v") if producer else ("q",):
            for part in (f"{kind}_proj.weight", f"{kind}_proj.bias", f"{kind}_norm.weight"):
                old = base.get(f"model.layers.{i}.self_attn.{part}")
                if old is not None:
                    new = part.replace("_proj.", "_proj_swiftkv.").replace("_norm.", "_norm_swiftkv.")
                    added[f"model.layers.{i}.self_attn.{new}"] = old.shape
    return {n: tensor_for(name, n, tuple(s)) for n, s in added.items()}


def without_teacher(tensors, l):
    """Drops q, k, v (weights, biases, head norms) of the layers >= l: SwiftKV never reads them."""
    def dead(n):
        part = n.split(".")
        return (n.startswith("model.layers.") and int(part[2]) >= l and part[3] == "self_attn"
                and part[4] in ("q_proj", "k_proj", "v_proj", "q_norm", "k_norm"))
    return {n: t for n, t in tensors.items() if not dead(n)}


def make_swiftkv(root, name, spec):
    config, folder, keep = spec["config"], root / name, spec.get("keep", True)
    base = base_tensors(name, config)
    tensors = base | swiftkv_tensors(name, config, base)
    # The teacher, by itself, run by transformers: the ground that the plain block stands on.
    teacher_folder = root / f"{name}.teacher"
    teacher = base_config(config).to_dict() | {"architectures": None}
    save(teacher_folder, teacher, base, spec.get("dtype", "f32"))
    worst = check_plain(name, config, {n: t.to(torch.float64) for n, t in tensors.items()},
                        transformers_logits(teacher_folder))
    shutil.rmtree(teacher_folder)
    if not keep:
        tensors = without_teacher(tensors, config["num_key_value_layers"])
    save(folder, config, tensors, spec.get("dtype", "f32"), spec.get("shards", 1))
    plain = plain_models.LlamaFamily(config, read_float64(folder))
    modes = {None: plain.forward}
    if keep:
        modes["teacher"] = lambda ids: plain.forward(ids, teacher=True)
    result = golden(name, config, modes, model_specs.LENGTHS, "plain torch, float64")
    print(f"  teacher agrees with transformers to {worst:.1e}")
    if spec.get("simscore"):
        add_simscore(result, plain)
    golden_cases.write_json(folder / "golden.json", result)


def check_hybrid(name, config, weights, logits_of):
    """The plain hybrid as a teacher must give what transformers gives. Returns the largest difference."""
    model = plain_hybrids.plain(config, weights)
    ids = [1] + [(7 * i) % 90 + 3 for i in range(70)]
    worst = (logits_of(ids).log_softmax(-1) - model.forward(ids, teacher=True).log_softmax(-1)).abs().max().item()
    assert worst < AGREE, f"{name}: plain torch and transformers differ by {worst}"
    return worst


def make_swiftkv_hybrid(root, name, spec):
    config, folder, dtype = spec["config"], root / name, spec.get("dtype", "f32")
    base = base_tensors(name, config)
    wide = {n: t.to(torch.float64) for n, t in base.items()}
    added = {n: tensor_for(f"{name}/student", n.replace("_swiftkv", ""), tuple(t.shape), gemma=spec["gemma"])
             for n, t in plain_hybrids.student_sources(config, wide).items()}
    teacher_folder = root / f"{name}.teacher"
    save(teacher_folder, base_config(config).to_dict() | {"architectures": None}, base, dtype)
    worst = check_hybrid(name, config, wide, transformers_logits(teacher_folder))
    shutil.rmtree(teacher_folder)
    save(folder, config, base | added, dtype)
    plain = plain_hybrids.plain(config, read_float64(folder))
    modes = {None: plain.forward, "teacher": lambda ids: plain.forward(ids, teacher=True)}
    # 80 ids: more than a chunk of 64.
    result = golden(name, config, modes, (1, 3, 23, 80), "plain torch, float64")
    print(f"  teacher agrees with transformers to {worst:.1e}")
    golden_cases.write_json(folder / "golden.json", result)


def without_shared(tensors, config):
    """Drops k and v (weights, biases, head norms) of the layers that read those of others."""
    first = config["num_hidden_layers"] - config["num_kv_shared_layers"]

    def dead(n):
        part = n.split(".")
        return (n.startswith("model.layers.") and int(part[2]) >= first
                and part[4] in ("k_proj", "v_proj", "k_norm"))
    return {n: t for n, t in tensors.items() if not dead(n)}


def make_shared(root, name, spec):
    """The plain block with donors, which transformers does not have; without them they must agree."""
    config, folder = spec["config"], root / name
    tensors = base_tensors(name, config)
    save(folder, config, tensors, spec.get("dtype", "f32"))
    worst = check_plain(name, config, read_float64(folder), transformers_logits(folder))
    print(f"  without donors plain torch agrees to {worst:.1e}")
    if not spec.get("keep", True):
        save(folder, config, without_shared(tensors, config), spec.get("dtype", "f32"))
    plain = plain_models.LlamaFamily(config, read_float64(folder))
    # 80 ids: more than one chunk of 64.
    result = golden(name, config, {None: plain.forward}, (1, 23, 80), "plain torch, float64")
    golden_cases.write_json(folder / "golden.json", result)


def transformed(config, weights, l, g):
    """The authors' initialisation: (config, added tensors)."""
    n_layers = config["num_hidden_layers"]
    added = {"model.norm_swiftkv.weight": weights[f"model.layers.{l}.input_layernorm.weight"]}
    for i in range(l, n_layers):
        p = f"model.layers.{i}.self_attn."
        for part in ("q_proj{}.weight", "q_proj{}.bias", "q_norm{}.weight"):
            if p + part.format("") in weights:
                added[p + part.format("_swiftkv")] = weights[p + part.format("")]
        for kind in ("k", "v") if (i - l) % g == 0 else ():
            for part in (f"{kind}_proj{{}}.weight", f"{kind}_proj{{}}.bias", f"{kind}_norm{{}}.weight"):
                names = [f"model.layers.{j}.self_attn.{part.format('')}" for j in range(i, i + g)]
                if names[0] in weights:
                    mean = torch.stack([weights[n] for n in names]).mean(0)
                    added[p + part.format("_swiftkv")] = mean
    return model_specs.swiftkv(config, n_layers, l, g), added


def make_hybrid_transform(folder, config, weights, l):
    """What `transform` must write of a hybrid."""
    new_config = model_specs.swiftkv(config, config["num_hidden_layers"], l, 1)
    out = folder / f"transform-l{l}-g1"
    out.mkdir()
    added = plain_hybrids.student_sources(new_config, weights)
    stored = {n: t.to(torch.float32).contiguous() for n, t in added.items()}
    safetensors.torch.save_file(stored, out / "added.safetensors", metadata={"format": "pt"})
    plain = plain_hybrids.plain(new_config, weights | added)
    modes = {None: plain.forward, "teacher": lambda ids: plain.forward(ids, teacher=True)}
    result = golden(f"{folder.name}/{out.name}", new_config, modes, (23, 80), "plain torch, float64")
    changed = {k: v for k, v in new_config.items() if config.get(k) != v}
    golden_cases.write_json(out / "golden.json", result | {"config": changed})


def make_transform(folder, config, weights, l, g):
    """What `transform` must write: the added tensors, all names and shapes, and the results."""
    new_config, added = transformed(config, weights, l, g)
    out = folder / f"transform-l{l}-g{g}"
    out.mkdir()
    stored = {n: t.to(torch.float32).contiguous() for n, t in added.items()}
    safetensors.torch.save_file(stored, out / "added.safetensors", metadata={"format": "pt"})
    weights = weights | added
    plain = plain_models.LlamaFamily(new_config, weights)
    modes = {None: plain.forward, "teacher": lambda ids: plain.forward(ids, teacher=True)}
    result = golden(f"{folder.name}/{out.name}", new_config, modes, model_specs.LENGTHS[1:],
                    "plain torch, float64")
    changed = {k: v for k, v in new_config.items() if config.get(k) != v}
    shapes = {n: list(t.shape) for n, t in sorted(weights.items())}
    golden_cases.write_json(out / "golden.json", result | {"config": changed, "shapes": shapes})


def openelm_tensors(name, config):
    d, hd = config["model_dim"], config["head_dim"]
    shapes = {"transformer.token_embeddings.weight": (config["vocab_size"], d),
              "transformer.norm.weight": (d,)}
    for i in range(config["num_transformer_layers"]):
        p = f"transformer.layers.{i}."
        n_q, n_kv = config["num_query_heads"][i], config["num_kv_heads"][i]
        divisor, wanted = config["ffn_dim_divisor"], config["ffn_multipliers"][i] * d
        ffn = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        ffn += divisor if ffn < 0.9 * wanted else 0
        shapes |= {
            p + "attn.qkv_proj.weight": ((n_q + 2 * n_kv) * hd, d),
            p + "attn.q_norm.weight": (hd,),
            p + "attn.k_norm.weight": (hd,),
            p + "attn.out_proj.weight": (d, n_q * hd),
            p + "ffn.proj_1.weight": (2 * ffn, d),
            p + "ffn.proj_2.weight": (d, ffn),
            p + "attn_norm.weight": (d,),
            p + "ffn_norm.weight": (d,),
        }
    return {n: tensor_for(name, n, s) for n, s in shapes.items()}


def make_openelm(root, name):
    config, folder = model_specs.openelm_spec(), root / name
    save(folder, config, openelm_tensors(name, config), "bf16")
    plain = plain_models.OpenElm(config, read_float64(folder))
    result = golden(name, config, {None: plain.forward}, model_specs.LENGTHS, "plain torch, float64")
    golden_cases.write_json(folder / "golden.json", result)


def jobs(root):
    ordinary = (model_specs.ordinary_specs() | model_specs.recent_specs()
                | model_specs.hybrid_specs() | model_specs.lfm2_specs() | model_specs.mamba_specs()
                | model_specs.nemotron_and_falcon_specs() | model_specs.wide_hybrid_specs())
    swift = model_specs.swiftkv_specs()
    table = {n: (lambda n=n, s=s: make_ordinary(root, n, s)) for n, s in ordinary.items()}
    table["openelm"] = lambda: make_openelm(root, "openelm")
    table |= {n: (lambda n=n, s=s: make_swiftkv(root, n, s)) for n, s in swift.items()}
    table |= {n: (lambda n=n, s=s: make_swiftkv_hybrid(root, n, s))
              for n, s in model_specs.swiftkv_hybrid_specs().items()}
    table |= {n: (lambda n=n, s=s: make_shared(root, n, s))
              for n, s in model_specs.shared_specs().items()}
    return table


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/models")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    table = jobs(options.out)
    for name in options.names or table:
        table[name]()


if __name__ == "__main__":
    with torch.no_grad():
        main()
