#!/usr/bin/env python3
"""One distillation step of this trainer and of torch on the same machine, shape and threads.

    tools/results/bench_distill.py [--build build] [--threads N] [--steps N] [--seq T] [--layers L --l l]

The shape is that of SmolLM2-135M with random weights and l = half of the layers. The torch step is
written as one would for speed: bf16 weights and products, one copy of the weights, the layers below
l run once for teacher and student without a graph, fused attention, the loss at the head in pieces
that are recomputed, AdamW on f32 masters of what is trained. Each side runs in its own process, so
that the peaks of memory can be compared. The sides run in turns, twice each; the first step of a run
does not count. Prints one JSON object a run, and the ratios.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

SHAPE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576,
    "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "hidden_act": "silu", "bos_token_id": 0, "eos_token_id": 0,
}
TAU = 2.0


def random_weights(torch, config):
    generator = torch.Generator().manual_seed(1)
    D, F, V = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = D // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,),
                   p + "self_attn.q_proj.weight": (D, D), p + "self_attn.k_proj.weight": (kv, D),
                   p + "self_attn.v_proj.weight": (kv, D), p + "self_attn.o_proj.weight": (D, D),
                   p + "mlp.gate_proj.weight": (F, D), p + "mlp.up_proj.weight": (F, D),
                   p + "mlp.down_proj.weight": (D, F)}
    return {n: torch.ones(s, dtype=torch.bfloat16) if len(s) == 1 else
            (torch.randn(s, generator=generator) * 0.02).bfloat16() for n, s in shapes.items()}


def peak_mib(who):
    return resource.getrusage(who).ru_maxrss / 1024


def median(values):
    return sorted(values)[len(values) // 2]


def run_torch(args):
    import torch
    from torch.nn import functional as nn
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(args.threads)
    config = SHAPE | {"num_hidden_layers": args.layers}
    w, l, L = random_weights(torch, config), args.l, args.layers
    H, Hk, D = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
    Dh, T = D // H, args.seq
    master = {"model.norm_swiftkv.weight": w[f"model.layers.{l}.input_layernorm.weight"].float()}
    for i in range(l, L):
        for what in "qkv":
            name = f"model.layers.{i}.self_attn.{what}_proj"
            master[name + "_swiftkv.weight"] = w[name + ".weight"].float()
    trained = {n: t.bfloat16().requires_grad_(True) for n, t in master.items()}
    optimiser = torch.optim.AdamW(list(master.values()), lr=2e-4, betas=(0.9, 0.999), weight_decay=0,
                                  fused=True)
    frequency = config["rope_theta"] ** (-torch.arange(0, Dh, 2) / Dh)
    angle = torch.arange(T)[:, None] * frequency[None]
    cos = torch.cat((angle.cos(),) * 2, -1).bfloat16()
    sin = torch.cat((-angle.sin(), angle.sin()), -1).bfloat16()

    def norm(x, weight):
        return nn.rms_norm(x, (D,), weight, config["rms_norm_eps"])

    def rope(x):
        return x * cos + torch.roll(x, Dh // 2, -1) * sin

    def heads(x):
        return x.view(T, -1, Dh).transpose(0, 1)

    def block(x, i, suffix="", source=None):
        p = f"model.layers.{i}."
        get = trained if suffix else w
        a = norm(x, w[p + "input_layernorm.weight"])
        b = a if source is None else source
        q = rope(heads(nn.linear(a, get[p + f"self_attn.q_proj{suffix}.weight"])))
        k = rope(heads(nn.linear(b, get[p + f"self_attn.k_proj{suffix}.weight"])))
        v = heads(nn.linear(b, get[p + f"self_attn.v_proj{suffix}.weight"]))
        o = nn.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)
        x = x + nn.linear(o[0].transpose(0, 1).reshape(T, D), w[p + "self_attn.o_proj.weight"])
        m = norm(x, w[p + "post_attention_layernorm.weight"])
        h = nn.silu(nn.linear(m, w[p + "mlp.gate_proj.weight"])) * nn.linear(m, w[p + "mlp.up_proj.weight"])
        return x + nn.linear(h, w[p + "mlp.down_proj.weight"])

    head = w["model.embed_tokens.weight"]

    def piece(student, teacher):
        p = (nn.linear(teacher, head).float() / TAU).log_softmax(-1)
        q = (nn.linear(student, head).float() / TAU).log_softmax(-1)
        return TAU**2 * nn.kl_div(q, p, reduction="sum", log_target=True)

    def step(ids):
        with torch.no_grad():
            x = head[ids]
            for i in range(l):
                x = block(x, i)
            teacher = x
            for i in range(l, L):
                teacher = block(teacher, i)
            teacher = norm(teacher, w["model.norm.weight"])
        source = norm(x, trained["model.norm_swiftkv.weight"])
        for i in range(l, L):
            x = block(x, i, "_swiftkv", source)
        x = norm(x, w["model.norm.weight"])
        loss = sum(checkpoint(piece, x[t:t + 256], teacher[t:t + 256], use_reentrant=False)
                   for t in range(0, T, 256)) / T
        loss.backward()
        for name, t in trained.items():
            master[name].grad, t.grad = t.grad.float(), None
        torch.nn.utils.clip_grad_norm_(list(master.values()), 1.0)
        optimiser.step()
        with torch.no_grad():
            for name, t in trained.items():
                t.copy_(master[name])
        return loss.item()

    times, losses = [], []
    for _ in range(args.steps + 1):
        ids = torch.randint(0, config["vocab_size"], (T,))
        start = time.perf_counter()
        losses.append(step(ids))
        times.append(time.perf_counter() - start)
    return {"side": f"torch {torch.__version__}", "step_s": median(times[1:]), "best_s": min(times[1:]),
            "peak_mib": peak_mib(resource.RUSAGE_SELF), "loss": losses[0]}


def run_swiftkv(args):
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / "model"
        make = [sys.executable, __file__, "--side", "make", "--out", str(model), "--layers", str(args.layers)]
        subprocess.run(make, check=True)

        ids = [random.Random(1).randrange(SHAPE["vocab_size"]) for _ in range((args.steps + 2) * args.seq)]
        data, log = pathlib.Path(scratch) / "ids.json", pathlib.Path(scratch) / "log"
        data.write_text(json.dumps(ids))
        command = [str(args.build / "swiftkv"), "distill", str(model), str(pathlib.Path(scratch) / "out"),
                   "--kv-layers", str(args.l), "--data", str(data), "--steps", str(args.steps + 1), "--seq",
                   str(args.seq), "--threads", str(args.threads), "--log", str(log),
                   "--checkpoint-every", "1000000"]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        if status:
            sys.exit("swiftkv distill failed")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        at = [r["seconds"] for r in rows]
        times = [b - a for a, b in zip(at, at[1:])]
        return {"side": "swiftkv", "step_s": median(times), "best_s": min(times),
                "peak_mib": usage.ru_maxrss / 1024, "loss": rows[0]["loss"]}


def make_model(args):
    import torch
    from safetensors.torch import save_file

    config = SHAPE | {"num_hidden_layers": args.layers}
    args.out.mkdir(parents=True)
    save_file(random_weights(torch, config), args.out / "model.safetensors")
    (args.out / "config.json").write_text(json.dumps(config))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="counted steps of a run")
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--l", type=int, default=15)
    parser.add_argument("--side", choices=("both", "torch", "swiftkv", "make"), default="both")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if args.side == "make":
        make_model(args)
    elif args.side == "torch":
        print(json.dumps(run_torch(args)))
    elif args.side == "swiftkv":
        print(json.dumps(run_swiftkv(args)))
    else:
        runs = {"swiftkv": [], "torch": []}
        for side in ("swiftkv", "torch", "swiftkv", "torch"):
            one = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--side", side], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
            print(one, end="", flush=True)
            runs[side].append(json.loads(one))
        ours, theirs = ({key: min(run[key] for run in runs[side]) for key in ("step_s", "peak_mib")}
                        for side in ("swiftkv", "torch"))
        print(json.dumps({"faster": round(theirs["step_s"] / ours["step_s"], 3),
                          "peak_share": round(ours["peak_mib"] / theirs["peak_mib"], 3)}))


if __name__ == "__main__":
    main()
