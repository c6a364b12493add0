#!/usr/bin/env python3
"""Checkpoints that the package compressed-tensors writes, against swiftkv.

    tools/checks/check_compressed.py [--build build] [--only W4A16,FP8] [--keep FOLDER]

Needs torch, transformers, compressed-tensors and safetensors. For every scheme and type of scale a small random Llama is
compressed by the package; its weights are computed again from the file by the package's own unpacking, in f32; and the
log-probabilities of transformers in f64 over these are compared with swiftkv's in f32 (1e-3). Activations are not
quantised on either side.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized import unpack_from_int32
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
SCHEMES = ("W8A16", "W4A16", "W4A16_ASYM", "W8A8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK", "MXFP4A16")
IDS = [(i * 37 + 11) % 250 + 3 for i in range(50)]
TOLERANCE = 1e-3


def make_config():
    return transformers.LlamaConfig(
        vocab_size=256, hidden_size=256, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=256, initializer_range=0.06)


def extremes(w, args):
    """The least and the largest weight of everything that shares a scale."""
    strategy = str(args.strategy).rsplit(".", 1)[-1].lower()
    if strategy == "group":
        groups = w.view(w.shape[0], -1, args.group_size)
        return groups.amin(-1), groups.amax(-1)
    if strategy == "channel":
        return w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    if strategy == "block":
        n, k = args.block_structure
        blocks = w.view(w.shape[0] // n, n, w.shape[1] // k, k)
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    return w.min().view(1), w.max().view(1)


def compress(model, scheme, folder):
    config = QuantizationConfig(config_groups={"group_0": preset_name_to_scheme(scheme, ["Linear"])},
                                ignore=["lm_head"])
    apply_quantization_config(model, config)
    for module in model.modules():
        scheme_of = getattr(module, "quantization_scheme", None)
        if scheme_of is None or not isinstance(module, torch.nn.Linear):
            continue
        found = extremes(module.weight.data.float(), scheme_of.weights)
        for name, values in zip(("weight_scale", "weight_zero_point"),
                                calculate_qparams(*found, scheme_of.weights)):
            parameter = getattr(module, name, None)
            if parameter is not None:
                parameter.data.copy_(values.to(parameter.dtype).view(parameter.shape))
        if hasattr(module, "input_scale"):
            module.input_scale.data.fill_(0.05)
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)


def mxfp4_weight(packed, scale, shape):
    codes = unpack_fp4_from_uint8(packed, *shape, dtype=torch.float32)
    return codes * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)


def weight(tensors, name, shape, bits):
    """[N, K] in f32, or None where the file has it uncompressed."""
    scale = tensors.get(name + ".weight_scale")
    if scale is None:
        return None
    n, k = shape
    if scale.dtype == torch.uint8:
        return mxfp4_weight(tensors[name + ".weight_packed"], scale, shape)
    scale = scale.float()
    if scale.dim() < 2:
        scale = scale.view(1, 1)
    packed, zeros = tensors.get(name + ".weight_packed"), tensors.get(name + ".weight_zero_point")
    codes = tensors.get(name + ".weight") if packed is None else unpack_from_int32(packed, bits, shape)
    codes = codes.float()
    spread = (lambda x: x.repeat_interleave(n // x.shape[0], 0).repeat_interleave(k // x.shape[1], 1))
    if zeros is not None and packed is not None:
        zeros = unpack_from_int32(zeros, bits, torch.Size([n, scale.shape[1]]), packed_dim=0)
        codes -= spread(zeros.float())
    return codes * spread(scale)


def reference(folder, before, bits):
    """Log-probabilities of IDS[1:] from what the file holds."""
    model = transformers.LlamaForCausalLM(make_config()).float()
    tensors, state = load_file(folder / "model.safetensors"), before
    for key in list(state):
        found = weight(tensors, key.removesuffix(".weight"), state[key].shape, bits)
        if found is not None:
            state[key] = found
    model.load_state_dict(state)
    with torch.no_grad():
        out = model.double()(torch.tensor([IDS])).logits[0].log_softmax(-1)
    return [out[t, IDS[t + 1]].item() for t in range(len(IDS) - 1)]


def check(program, scheme, dtype, folder):
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(make_config()).to(dtype)
    before = {name: value.float() for name, value in model.state_dict().items()}
    compress(model, scheme, folder)
    want = reference(folder, before, 4 if scheme.startswith("W4") else 8)
    (folder / "ids.json").write_text(json.dumps(IDS))
    result = subprocess.run([program, "score", folder, "--ids-file", folder / "ids.json", "--weights", "f32", "--kv",
                             "f32", "--json"], capture_output=True, text=True)
    if result.returncode:
        return result.stderr.strip()
    got = json.loads(result.stdout)["logprobs"][1:]
    worst = max(abs(a - b) for a, b in zip(want, got))
    return f"differ by {worst:.3g}" if worst > TOLERANCE else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--only", default=",".join(SCHEMES))
    parser.add_argument("--keep", type=Path, help="the checkpoints stay here")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    n_bad = 0
    for scheme in options.only.split(","):
        for dtype in (torch.bfloat16, torch.float16):
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(options.keep or temporary) / f"{scheme}-{str(dtype).removeprefix('torch.')}"
                said = check(options.build / "swiftkv", scheme, dtype, folder)
            print(f"{folder.name}: {said or 'equal'}", flush=True)
            n_bad += bool(said)
    return n_bad > 0


if __name__ == "__main__":
    sys.exit(main())
