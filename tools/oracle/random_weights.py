"""Random weights that make a small model behave: every part matters, nothing saturates.

All values are exact in bf16, so that one checkpoint means the same in F32, F16 and BF16.
"""

import zlib

import numpy as np
import torch


def generator(*words):
    return np.random.Generator(np.random.PCG64(zlib.crc32("/".join(map(str, words)).encode())))


def to_bf16_exact(array):
    """Rounds to bf16; values too small for a normal f16 become 0."""
    t = torch.from_numpy(np.asarray(array, dtype=np.float32)).to(torch.bfloat16).to(torch.float32)
    return torch.where(t.abs() < 6.2e-5, torch.zeros_like(t), t)


def tensor_for(model, name, shape, gemma=False):
    """One random tensor; its name decides the distribution, model and name the seed."""
    r = generator(model, name)
    if name.endswith("A_log"):  # half-lives from a token to some dozens
        return to_bf16_exact(r.uniform(-3.0, 1.0, shape))
    if name.endswith(".D"):
        return to_bf16_exact(r.uniform(0.4, 1.6, shape))
    if name.endswith("dt_bias"):
        return to_bf16_exact(r.uniform(-2.0, 1.0, shape))
    if name.endswith(("conv1d.weight", "conv.conv.weight")):
        return to_bf16_exact(0.6 * r.standard_normal(shape))
    if name.endswith("linear_attn.norm.weight"):  # its weight has no 1 added to it, as others have
        return to_bf16_exact(r.uniform(0.5, 1.6, shape))
    if "norm" in name:
        low, high = (-0.6, 0.6) if gemma else (0.5, 1.6)
        return to_bf16_exact(r.uniform(low, high, shape))
    if name.endswith("layer_scalar"):
        return to_bf16_exact(r.uniform(0.6, 1.1, shape))
    if name.endswith(("router.scale", "per_expert_scale")):
        return to_bf16_exact(r.uniform(0.5, 1.6, shape))
    if name.endswith("router.proj.weight"):  # its input is divided by sqrt(hidden)
        return to_bf16_exact(2.0 * r.standard_normal(shape))
    if name.endswith((".bias", "_bias")):
        return to_bf16_exact(0.3 * r.standard_normal(shape))
    if "embed" in name:
        return to_bf16_exact(0.5 * r.standard_normal(shape))
    # Queries and keys are larger, so that attention is far from uniform.
    gain = 1.6 if any(part in name for part in ("q_proj", "k_proj", "qkv_proj")) else 1.1
    if "lm_head" in name:
        gain = 2.5
    if name.endswith(("mlp.gate.weight", "router.weight", "shared_expert_gate.weight", "mixer.gate.weight",
                      "feed_forward.gate.weight")):  # so that experts differ in weight
        gain = 2.0
    if name.endswith("sinks"):
        return to_bf16_exact(r.standard_normal(shape))
    # gpt-oss holds experts as [E, in, out].
    n_in = shape[-2] if len(shape) == 3 and "gpt-oss" in model else shape[-1]
    return to_bf16_exact(gain / np.sqrt(n_in) * r.standard_normal(shape))
