#!/usr/bin/env python3
"""Random small models of every architecture, as transformers makes and runs them, against swiftkv.

    tools/checks/check_architectures.py [--build build] [--seeds 20] [--only llama,olmo2] [--keep FOLDER]

Needs torch and transformers (tools/oracle/requirements.txt has the versions of the goldens; a newer transformers knows
more architectures). For every seed and architecture it draws a shape, writes random weights, and compares the
log-probabilities of random tokens (in f32, 1e-3) and the greedy continuation, read in chunks of different sizes.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
N_IDS, N_GREEDY, TOLERANCE = 40, 6, 1e-3


def shape(r, **more):
    """What all configurations share."""
    kv = r.choice([1, 2, 3])
    heads = kv * r.choice([1, 2, 3])
    return {
        "vocab_size": r.choice([67, 96, 101, 128]), "hidden_size": heads * r.choice([8, 11, 12, 20]),
        "intermediate_size": r.choice([7, 40, 64, 93, 96]), "num_hidden_layers": r.randint(1, 5),
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": r.choice([6, 8, 16, 12, 64]),
        "max_position_embeddings": 128, "tie_word_embeddings": r.random() < 0.5, "rms_norm_eps": r.choice([1e-5, 1e-6]),
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, **more,
    }


def square(r, **more):
    """Without head_dim: the hidden size is heads times it."""
    s = shape(r, **more)
    s["hidden_size"] = s["num_attention_heads"] * min(s.pop("head_dim"), 16)
    return s


def rope(r, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": r.choice([1e4, 5e5]), **more}}


def yarn(r, **more):
    return rope(r, rope_type="yarn", factor=r.choice([2.0, 4.0, 8.0]), original_max_position_embeddings=16,
                beta_fast=r.choice([32.0, 8.0]), beta_slow=1.0, **more)


def any_rope(r):
    kind = r.choice(["default", "linear", "dynamic", "llama3", "yarn"])
    if kind == "yarn":
        scales = r.choice([{}, {"attention_factor": 1.3}, {"mscale": 0.7, "mscale_all_dim": 1.3}])
        return yarn(r, truncate=r.random() < 0.5, **scales)
    more = {} if kind == "default" else {"factor": r.choice([2.0, 3.5, 8.0])}
    if kind == "llama3":
        more |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": r.choice([16, 64])}
    return rope(r, rope_type=kind, **more)


def window(r):
    return r.choice([1, 5, 8, 17, 1000])


def layer_types(r, n):
    return [r.choice(["sliding_attention", "full_attention"]) for _ in range(n)]


def with_types(r, s, **more):
    return {**s, "layer_types": layer_types(r, s["num_hidden_layers"]), "sliding_window": window(r), **more}


def moe(r, name="num_experts"):
    n = r.choice([1, 3, 4, 8, 13])
    return {name: n, "num_experts_per_tok": r.choice([1, r.randint(1, n), n])}


def longrope(r, s, n_rot):
    s["rope_parameters"] = {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": r.choice([16, 64]),
        "short_factor": [round(r.uniform(1, 2), 3) for _ in range(n_rot // 2)],
        "long_factor": [round(r.uniform(1, 8), 3) for _ in range(n_rot // 2)],
    }
    return s


def phi4_mini(r):
    s = square(r, original_max_position_embeddings=64)
    s["hidden_size"] = s["num_attention_heads"] * 16
    partial = r.choice([0.5, 0.75])
    s = longrope(r, s, int(16 * partial))
    s["rope_parameters"]["partial_rotary_factor"] = partial
    return {**s, "partial_rotary_factor": partial}


def two_ropes(partial=None):
    full = {"rope_type": "default", "rope_theta": 1e6}
    if partial:
        full = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": partial}
    return {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}


def gemma4(r, shared):
    """Of E2B's and E4B's kind (layers that read others' keys and values), or of the dense ones."""
    n = r.randint(3, 8)
    types = layer_types(r, n - 1) + ["full_attention"]
    n_shared = 0
    if shared:
        owners = [i for i in range(1, n) if set(types[:i]) >= set(types[i:])]
        n_shared = n - r.choice(owners) if owners else 0
    s = shape(r, num_hidden_layers=n, layer_types=types, sliding_window=window(r), tie_word_embeddings=True,
              rope_parameters=two_ropes(r.choice([0.25, 0.5])), num_kv_shared_layers=n_shared, pad_token_id=0,
              global_head_dim=r.choice([16, 24, 32]), final_logit_softcapping=r.choice([None, 30.0, 5.0]),
              use_double_wide_mlp=n_shared > 0 and r.random() < 0.6, attention_k_eq_v=not shared,
              hidden_size_per_layer_input=r.choice([8, 12]) if shared else 0)
    if not shared:
        s["num_global_key_value_heads"] = 1
    return {**s, "vocab_size_per_layer_input": s["vocab_size"]}


def gemma4_moe(r):
    """Of 26B-A4B's kind; also with what it does not have: layers that read others' keys and values."""
    s = moe(r)
    s["top_k_experts"] = s.pop("num_experts_per_tok")
    return {**gemma4(r, r.random() < 0.3), **s, "enable_moe_block": True, "moe_intermediate_size": r.choice([24, 32])}


def smollm3(r):
    s = square(r, **any_rope(r), use_sliding_window=r.random() < 0.5, sliding_window=window(r))
    if r.random() < 0.5:
        return s | {"no_rope_layer_interval": r.choice([1, 2, 3])}
    return s | {"no_rope_layers": [r.randint(0, 1) for _ in range(s["num_hidden_layers"])]}


ARCHITECTURES = {
    "llama": ("Llama", lambda r: shape(r, **any_rope(r), attention_bias=r.random() < 0.3, mlp_bias=r.random() < 0.3)),
    "llama-yarn": ("Llama", lambda r: shape(r, **yarn(r))),
    "mistral": ("Mistral", lambda r: shape(r, **any_rope(r), sliding_window=r.choice([None, window(r)]))),
    "qwen2": ("Qwen2", lambda r: square(r, **any_rope(r), use_sliding_window=r.random() < 0.5, sliding_window=window(r),
                                        max_window_layers=r.randint(0, 3))),
    "qwen3": ("Qwen3", lambda r: with_types(r, shape(r, **rope(r)), use_sliding_window=True)),
    "gemma2": ("Gemma2", lambda r: with_types(r, shape(r, **rope(r), query_pre_attn_scalar=r.choice([8, 24])))),
    "gemma3": ("Gemma3", lambda r: with_types(r, shape(r, rope_parameters=two_ropes(),
                                                       query_pre_attn_scalar=r.choice([8, 24])))),
    "gemma4-shared": ("Gemma4", lambda r: gemma4(r, True)),
    "gemma4-dense": ("Gemma4", lambda r: gemma4(r, False)),
    "gemma4-moe": ("Gemma4", gemma4_moe),
    "phi4-mini": ("Phi3", phi4_mini),
    "smollm3": ("SmolLM3", smollm3),
    "ministral3": ("Ministral3", lambda r: shape(r, **yarn(r, llama_4_scaling_beta=r.choice([0.1, 0.3]),
                                                          mscale=1.0, mscale_all_dim=1.0))),
    "olmo2": ("Olmo2", lambda r: square(r, **any_rope(r), attention_bias=r.random() < 0.5)),
    "olmo3": ("Olmo3", lambda r: with_types(r, square(r, **rope(r)))),
    "granite": ("Granite", lambda r: square(r, **any_rope(r), mlp_bias=r.random() < 0.3, embedding_multiplier=r.choice([1.0, 12.0]),
                                            attention_multiplier=r.choice([0.1, 0.0625]),
                                            residual_multiplier=r.choice([0.22, 1.0]),
                                            logits_scaling=r.choice([8.0, 1.0]))),
    "glm4": ("Glm4", lambda r: shape(r, **rope(r, partial_rotary_factor=0.5), attention_bias=r.random() < 0.5,
                                     head_dim=r.choice([8, 16]))),
    "qwen3-moe": ("Qwen3Moe", lambda r: shape(r, **any_rope(r), **moe(r), moe_intermediate_size=r.choice([9, 24, 32]),
                                              norm_topk_prob=r.random() < 0.5, mlp_only_layers=r.choice([[], [0]]),
                                              attention_bias=r.random() < 0.5, use_sliding_window=r.random() < 0.3,
                                              sliding_window=window(r), decoder_sparse_step=r.choice([1, 1, 2, 3]))),
    "mixtral": ("Mixtral", lambda r: shape(r, **any_rope(r), **moe(r, "num_local_experts"),
                                           sliding_window=r.choice([None, window(r)]))),
    "gpt-oss": ("GptOss", lambda r: with_types(r, shape(r, **r.choice([rope(r), yarn(r, truncate=r.random() < 0.5)]),
                                                        **moe(r, "num_local_experts"), tie_word_embeddings=False,
                                                        attention_bias=r.random() < 0.7))),
}


def randomize(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g, dtype=torch.float32)
            if ("norm" in name or name.endswith("scale")) and p.dim() == 1:
                p.copy_(p + 0.2 * noise)
            elif name.endswith("router.proj.weight"):  # of an input that is divided by sqrt(hidden)
                p.copy_(1.2 * noise)
            elif p.dim() == 1:
                p.copy_(0.3 * noise)
            else:
                p.copy_(noise * (1.2 / p.shape[-1] ** 0.5))


def reference(model, ids, n):
    """Log-probabilities of ids[1:], and n ids that follow greedily."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
        logprobs = [out[t, ids[t + 1]].item() for t in range(len(ids) - 1)]
        follow, gaps = list(ids), []
        for _ in range(n):
            last = model(torch.tensor([follow]), use_cache=False).logits[0, -1]
            top = last.topk(2).values
            gaps.append((top[0] - top[1]).item())
            follow.append(int(last.argmax()))
    return logprobs, follow[len(ids):], gaps


def run(program, *words):
    result = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(result.stderr.strip())
    return result.stdout


def mix_types(folder, r):
    """Any tensor in 32 or 16 bits, whatever the others have."""
    for path in folder.glob("*.safetensors"):
        types = [torch.float32, torch.bfloat16, torch.float16]
        save_file({n: t.to(r.choice(types)) for n, t in load_file(path).items()}, path, metadata={"format": "pt"})


def compare(program, folder, expected):
    """What differs between swiftkv on folder and ids.json there, and a reference() of these ids."""
    want, follow, gaps = expected
    common = ("--ids-file", folder / "ids.json", "--weights", "f32", "--kv", "f32", "--json")
    got = json.loads(run(program, "score", folder, *common))["logprobs"][1:]
    worst = max(abs(a - b) for a, b in zip(want, got))
    if not worst <= TOLERANCE:
        return f"log-probabilities differ by {worst:.3g}"
    for chunk, prefill in ((1, "auto"), (7, "auto"), (64, "auto"), (64, "full")):
        said = json.loads(run(program, "generate", folder, *common, "-n", N_GREEDY, "--temp", 0, "--chunk", chunk,
                              "--ignore-eos", "--prefill", prefill))["ids"]
        for i, (a, b) in enumerate(zip(follow, said)):
            if a != b:
                if gaps[i] < 1e-4:
                    break  # two tokens are equally likely
                return f"chunk {chunk}: greedy {said}, expected {follow}"
    return ""


def check(program, name, seed, folder):
    kind, draw = ARCHITECTURES[name]
    r = random.Random(f"{name} {seed}")
    made = draw(r)
    of_text = f"{kind}TextConfig"  # of models with images
    config = getattr(transformers, of_text if hasattr(transformers, of_text) else f"{kind}Config")(**made)
    config._attn_implementation = config._experts_implementation = "eager"
    kind = getattr(transformers, f"{kind}ForCausalLM")
    model = kind(config).float().eval()
    randomize(model, seed)
    model.save_pretrained(folder, max_shard_size=r.choice(["5GB", "20KB"]))
    if r.random() < 0.5:
        mix_types(folder, r)
        model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        model.config._attn_implementation = model.config._experts_implementation = "eager"
    ids = [r.randrange(3, config.vocab_size) for _ in range(N_IDS)]
    (folder / "ids.json").write_text(json.dumps(ids))
    return compare(program, folder, reference(model.double(), ids, N_GREEDY))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default=",".join(ARCHITECTURES))
    parser.add_argument("--keep", type=Path, help="models that fail stay here")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    n_bad = 0
    for name in options.only.split(","):
        bad = 0
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as temporary:
                folder = options.keep / f"{name}-{seed}" if options.keep else Path(temporary)
                try:
                    said = check(options.build / "swiftkv", name, seed, folder)
                except (RuntimeError, ValueError, KeyError) as error:
                    said = f"{type(error).__name__}: {error}"
            if said:
                bad += 1
                print(f"{name}, seed {seed}: {said}", flush=True)
        print(f"{name}: {options.seeds - bad} of {options.seeds} equal", flush=True)
        n_bad += bad
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
