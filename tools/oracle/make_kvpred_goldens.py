"""Tiny models of KV Prediction and their golden results, by plain_kvpred.py.

    python tools/oracle/make_kvpred_goldens.py [--out tests/data/kvpred]

Each is a folder as docs/reference/file-formats.md describes it. golden.json has likelihoods (as trained: all keys
and values predicted), greedy text after a prompt, and greedy text after a second prompt. kv.safetensors
holds the keys, normed and rotated, and the values of every layer of the base for the longest case.
train.json and train.safetensors hold losses, gradients of auxiliary and predictor, and ten steps of
torch's AdamW; train.json's `used` and train_used.safetensors losses and gradients where answers see
their own keys and values, as in use.
"""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

import golden_cases
import plain_kvpred
from random_weights import generator, tensor_for

F64 = torch.float64
STEPS = 10
DOCS = (19, 1, 12)
LENGTHS = (1, 2, 23, 61)


def tensors_of(name, config):
    if config["model_type"] == "openelm":
        from make_models import openelm_tensors
        return openelm_tensors(name, config)
    from make_models import base_tensors
    return base_tensors(name, config)


def llama(n_layers, vocab):
    return {"architectures": ["LlamaForCausalLM"], "attention_bias": True, "bos_token_id": 1,
            "eos_token_id": 2, "head_dim": 8, "hidden_act": "silu", "hidden_size": 24,
            "intermediate_size": 40, "max_position_embeddings": 128, "mlp_bias": False,
            "model_type": "llama", "num_attention_heads": 3, "num_hidden_layers": n_layers,
            "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 500.0,
            "tie_word_embeddings": True, "torch_dtype": "float32", "vocab_size": vocab}


def pruned(config, kept):
    """A copy's configuration with the kept layers only."""
    out = dict(config)
    if config["model_type"] != "openelm":
        return out | {"num_hidden_layers": len(kept)}
    for key in ("ffn_multipliers", "num_kv_heads", "num_query_heads"):
        out[key] = [config[key][i] for i in kept]
    out["qkv_multipliers"] = [1.0] * len(kept)
    return out | {"num_transformer_layers": len(kept)}


def specs(models):
    """name: (model of the base, embedded?, auxiliary's config, layers, ablation of the losses)."""
    def config(model):
        return json.loads((models / model / "config.json").read_text())
    qwen, elm, bias = config("qwen3-v5"), config("openelm"), config("llama-bias")
    return {
        "qwen3-c": ("qwen3-v5", False, llama(2, qwen["vocab_size"]), plain_kvpred.map_canonical(4, 2),
                    {"consistency": 0.25}),
        "openelm-lp": ("openelm", True, pruned(elm, [0, 2]), plain_kvpred.map_pruned(4, [0, 2]),
                       {"consistency": 0.25, "auxiliary": 0.5}),
        "llama-lp": ("llama-bias", True, pruned(bias, [0, 1, 2]), plain_kvpred.map_pruned(4, [0, 1, 2]),
                     {"consistency": 1.0, "base": 2.0, "auxiliary": 0.0}),
    }


def save_model(folder, config, tensors):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})


def make_maps(name, base, auxiliary, layers):
    maps = {}
    for i, j in enumerate(layers):
        for what in ("key", "value"):
            p, shape = f"predictor.{what}.{i}", (base.kv_width(i), auxiliary.kv_width(j))
            # As large as what the base's own projections make.
            maps[p + ".weight"] = 0.7 * tensor_for(name, p + ".v_proj.weight", shape)
            maps[p + ".bias"] = 0.5 * tensor_for(name, p + ".bias", shape[:1])
    return {n: t.float() for n, t in maps.items()}


def wide(tensors):
    return {n: t.to(F64) for n, t in tensors.items()}


def rounded(tensors):
    """As `--weights bf16` has them: matrices lose bits, norms and biases do not."""
    return {n: t.bfloat16() if t.dim() == 2 else t for n, t in tensors.items()}


def likelihoods(model, ids):
    logp = model.as_trained(ids).log_softmax(-1)
    return [None] + [round(logp[t - 1, ids[t]].item(), 9) for t in range(1, len(ids))]


def golden_case(model, ids, eos):
    """None where a choice is too close to call."""
    logp = model.as_trained(ids).log_softmax(-1)
    top = logp.topk(2, dim=-1)
    margin = (top.values[:, 0] - top.values[:, 1]).min().item()
    line, own, greedy = list(ids), [len(ids) - 1], []
    more = [int(i) for i in generator("turn", *ids).integers(3, model.base.vocab, 5)]
    for turn in (0, 1):
        text = []
        for _ in range(golden_cases.N_GREEDY // 2):
            last = model.with_own(line, own)[-1].log_softmax(-1).topk(2)
            margin = min(margin, (last.values[0] - last.values[1]).item())
            text.append(last.indices[0].item())
            line.append(text[-1])
            own.append(len(line) - 1)
        greedy.append(text)
        # The last token of an answer has been run by nobody: it opens the next prompt.
        own.pop()
        line += more
        own.append(len(line) - 1)
    if margin < golden_cases.MARGIN or eos & set(greedy[0] + greedy[1]):
        return None
    return {"ids": ids, "logprobs": likelihoods(model, ids), "argmax": top.indices[:, 0].tolist(),
            "greedy": greedy[0], "more": more, "greedy_after": greedy[1], "margin": round(margin, 6)}


def cases(name, model, eos):
    out = []
    for length in LENGTHS:
        for attempt in range(3000):
            r = generator(name, "ids", length, attempt)
            case = golden_case(model, [int(i) for i in r.integers(3, model.base.vocab, length)], eos)
            if case:
                break
        assert case, f"{name}: no ids of length {length} without a close call"
        out.append(case)
    return out


def stored_kv(model, ids):
    """What the base's cache holds of a text whose keys and values are predicted."""
    out, rows = {}, list(range(len(ids)))
    for i, (k, v) in enumerate(model.predicted(ids)):
        k = model.base.rotated(model.base.normed(i, "k", k), rows)
        out[f"k.{i}"] = k.transpose(0, 1).flatten(1).float().contiguous()
        out[f"v.{i}"] = v.float().contiguous()
    return out


# ---- training ----


def batch_for(vocab, name):
    r = generator(name, "train")
    docs = [[int(i) for i in r.integers(0, vocab, n)] for n in DOCS]
    return docs, [[int(t) if r.random() > 0.33 else -1 for t in doc[1:]] + [-1] for doc in docs]


def answers(rows):
    """Rows with a loss, cut into the answers of one document: consecutive ones belong together;
    those that begin with row 0, before which no prompt stands, are an answer each."""
    out = []
    for t in rows:
        begins = not out or out[-1][-1] != t - 1
        text = t == 0 if begins else text
        if begins or text:
            out.append([])
        out[-1].append(t)
    return out


def logits_in_use(model, ids, rows, predicted):
    """Of those rows: before the first of its answer a row sees what is predicted."""
    return torch.cat([model.with_own(ids, own, predicted) for own in answers(rows)])


def losses(model, docs, targets, in_use=False):
    """(base, auxiliary, consistency): cross-entropies, and the sum over layers of the mean distance
    of keys behind the base's norm, and of values, over all tokens."""
    base = auxiliary = 0.0
    n_loss, n_all = 0, 0
    n_layers = len(model.layers)
    apart = [[0.0, 0.0] for _ in range(n_layers)]
    for ids, target in zip(docs, targets):
        rows = [t for t, to in enumerate(target) if to >= 0]
        wanted = [target[t] for t in rows]
        logits, cache = model.auxiliary.forward(ids)
        predicted = model.predict(cache)
        out = None if in_use else model.as_trained(ids, predicted)
        with torch.no_grad():
            own = model.base.forward(ids)[1]
        for i in range(n_layers):
            k, k_own = (model.base.normed(i, "k", x) for x in (predicted[i][0], own[i][0]))
            apart[i][0] = apart[i][0] + (k - k_own).abs().sum()
            apart[i][1] = apart[i][1] + (predicted[i][1] - own[i][1]).abs().sum()
        n_loss += len(rows)
        n_all += len(ids)
        if rows:
            out = logits_in_use(model, ids, rows, predicted) if in_use else out[rows]
            base = base - out.log_softmax(-1)[range(len(rows)), wanted].sum()
            auxiliary = auxiliary - logits.log_softmax(-1)[rows, wanted].sum()
    consistency = sum((a + b) / (n_all * model.base.kv_width(i)) for i, (a, b) in enumerate(apart))
    return base / n_loss, auxiliary / n_loss, consistency


def published(name, tensor, config):
    """OpenELM's fused gradients under the names that the trainer has: [(name, tensor), ...]."""
    if not name.startswith("transformer."):
        return [(name, tensor)]
    parts = name.split(".")
    if parts[1] != "layers":
        return [({"token_embeddings": "model.embed_tokens.weight", "norm": "model.norm.weight"}[parts[1]], tensor)]
    i, p = int(parts[2]), f"model.layers.{parts[2]}."
    hd, n_q, n_kv = config["head_dim"], config["num_query_heads"][i], config["num_kv_heads"][i]
    what = ".".join(parts[3:-1])
    if what == "attn.qkv_proj":
        split = tensor.split((n_q * hd, n_kv * hd, n_kv * hd))
        return [(f"{p}self_attn.{x}_proj.weight", t) for x, t in zip("qkv", split)]
    if what == "ffn.proj_1":
        return [(f"{p}mlp.{x}_proj.weight", t) for x, t in zip(("gate", "up"), tensor.chunk(2))]
    names = {"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm",
             "attn.out_proj": "self_attn.o_proj", "ffn.proj_2": "mlp.down_proj",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    return [(f"{p}{names[what]}.weight", tensor)]


def schedule(step):
    warm = 2
    return (step + 1) / warm if step < warm else max(0.0, (STEPS - step) / (STEPS - warm))


def named_losses(parts):
    return dict(zip(("loss", "auxiliary", "consistency"), (x.item() for x in parts)))


def train(name, make, auxiliary, maps, docs, targets, weights):
    """(losses, gradients) at the start as the paper trains and as in use; the losses of ten steps."""
    def start():
        return ({n: t.clone().requires_grad_(True) for n, t in auxiliary.items()},
                {n: t.clone().requires_grad_(True) for n, t in maps.items()})

    def run(a, m, in_use=False):
        parts = losses(make(a, m), docs, targets, in_use)
        return parts, sum(w * x for w, x in zip(weights, parts))

    def first(in_use):
        a, m = start()
        parts, loss = run(a, m, in_use)
        loss.backward()
        return parts, {n: t.grad for n, t in {**a, **m}.items()}

    a, m = start()
    leaves = [*a.values(), *m.values()]
    optimiser = torch.optim.AdamW(
        [{"params": [t for t in leaves if t.dim() > 1], "weight_decay": 0.1},
         {"params": [t for t in leaves if t.dim() == 1], "weight_decay": 0.0}],
        lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, [schedule, schedule])
    steps = []
    for _ in range(STEPS):
        optimiser.zero_grad()
        found, loss = run(a, m)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(leaves, 0.5)
        steps.append({"loss": found[0].item(), "auxiliary": found[1].item(),
                      "consistency": found[2].item(), "norm": norm.item()})
        optimiser.step()
        scheduler.step()
    return first(False), first(True), steps


def make_training(folder, name, config, base, auxiliary, maps, layers, ablation):
    weights = [ablation.get(k, 1.0) for k in ("base", "auxiliary", "consistency")]

    def make(a, m):
        return plain_kvpred.KvPrediction(base, plain_kvpred.Block(config, a), m, layers)

    docs, targets = batch_for(base.vocab, name)
    with torch.enable_grad():
        paper, used, steps = train(name, make, auxiliary, maps, docs, targets, weights)
    out = {"base_loss": weights[0], "auxiliary_loss": weights[1], "consistency_loss": weights[2],
           "docs": docs, "targets": targets, **named_losses(paper[0]), "used": named_losses(used[0]),
           "steps": steps}
    golden_cases.write_json(folder / "train.json", out, ("steps",))
    for file, (_, gradients) in (("train", paper), ("train_used", used)):
        named = {}
        for n, t in gradients.items():
            named |= {k: g.float().contiguous() for k, g in published(n, t, config)}
        save_file(named, folder / f"{file}.safetensors", metadata={"format": "pt"})


def read_all(folder):
    found = {}
    for file in sorted(folder.glob("model*.safetensors")):
        found |= load_file(file)
    return found


def pruned_tokens(models, name, keep):
    """Tokens of a fixed prompt that static pruning keeps: the last one's attention in the first
    quarter of the layers, summed over heads and layers."""
    config = json.loads((models / name / "config.json").read_text())
    model = plain_kvpred.Block(config, wide(read_all(models / name)))
    ids = [(i * 37 + 5) % 90 for i in range(60)]
    x, rows, score = model.embed(ids), list(range(len(ids))), torch.zeros(len(ids), dtype=F64)
    for i in range(max(1, (model.n_layers + 2) // 4)):
        q, k, v = model.project(i, x)
        a, b = (model.rotated(model.normed(i, w, y), rows) for w, y in (("q", q), ("k", k)))
        b = b.repeat_interleave(a.shape[0] // b.shape[0], 0)
        score += (a[:, -1:] @ b.transpose(1, 2) / model.head_dim**0.5).softmax(-1).sum((0, 1))
        x = model.finish(i, x, model.attend(i, q, rows, k, v))
    n = int(keep * (len(ids) - 1) + 0.5)
    return sorted(score[:-1].topk(n).indices.tolist())


def lazy(models, name, keep, end):
    """Log-probabilities [3, top] after a prompt and two more tokens by LazyLLM: layer i runs a share
    of the prompt, chosen by the last token's attention in layer i - 1, summed over heads."""
    config = json.loads((models / name / "config.json").read_text())
    model = plain_kvpred.Block(config, wide(read_all(models / name)))
    ids = [(i * 37 + 5) % 90 for i in range(60)]
    n, length, later = model.n_layers, len(ids), [7, 11]
    rows, x, cache = list(range(length)), model.embed(ids), []
    for i in range(n):
        at = (i + 0.5) / n
        share = 1 if at < 0.3 else end if at >= 0.9 else keep + (end - keep) * (at - 0.3) / 0.6
        wanted = int(share * (length - 1) + 0.5)
        if wanted < len(rows) - 1:
            best = sorted(score[:-1].topk(wanted).indices.tolist()) + [len(rows) - 1]
            rows, x = [rows[j] for j in best], x[best]
        q, k, v = model.project(i, x)
        cache.append((rows, k, v))
        out, score = attend_rows(model, i, q, rows, rows, k, v)
        x = model.finish(i, x, out)
    logits = [model.logits(x)[-1]]
    for step, token in enumerate(later):
        x = model.embed([token])
        for i in range(n):
            q, k, v = model.project(i, x)
            before, keys, values = cache[i]
            cache[i] = (before + [length + step], torch.cat((keys, k)), torch.cat((values, v)))
            out, _ = attend_rows(model, i, q, [length + step], *cache[i])
            x = model.finish(i, x, out)
        logits.append(model.logits(x)[-1])
    return [[round(v, 9) for v in row.log_softmax(-1).tolist()] for row in logits]


def attend_rows(model, i, q, q_rows, rows, k, v):
    """(attention's output, the last query's probabilities summed over heads) over some tokens."""
    q = model.rotated(model.normed(i, "q", q), q_rows)
    k = model.rotated(model.normed(i, "k", k), rows)
    v = plain_kvpred.heads(v, model.head_dim)
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    hidden = torch.tensor(rows)[None, :] > torch.tensor(q_rows)[:, None]
    p = (q @ k.transpose(1, 2) / model.head_dim**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
    return (p @ v).transpose(0, 1).flatten(1), p[:, -1].sum(0)


def make(root, models, name, spec):
    base_name, embedded, auxiliary_config, layers, ablation = spec
    folder, from_folder = root / name, models / base_name
    shutil.rmtree(folder, ignore_errors=True)
    config = json.loads((from_folder / "config.json").read_text())
    stored = load_file(from_folder / "model.safetensors")
    told = config | {"kv_prediction": {"auxiliary": "auxiliary", "layers": layers}}
    if embedded:
        save_model(folder, told, stored)
    else:
        shutil.rmtree(root / base_name, ignore_errors=True)
        save_model(root / base_name, config, stored)
        folder.mkdir(parents=True)
        told["swiftkv_base"] = base_name
        (folder / "config.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    own = {n: t.float() for n, t in tensors_of(name, auxiliary_config).items()}
    save_model(folder / "auxiliary", auxiliary_config, own)
    base = plain_kvpred.Block(config, wide(stored))
    auxiliary = plain_kvpred.Block(auxiliary_config, wide(own))
    maps = make_maps(name, base, auxiliary, layers)
    save_file(maps, folder / "predictor.safetensors", metadata={"format": "pt"})
    model = plain_kvpred.KvPrediction(base, auxiliary, wide(maps), layers)
    halves = [plain_kvpred.Block(c, wide(rounded(t))) for c, t in ((config, stored), (auxiliary_config, own))]
    half = plain_kvpred.KvPrediction(*halves, wide(rounded(maps)), layers)
    found = cases(name, model, {config["eos_token_id"]})
    for case in found:
        case["logprobs_bf16"] = likelihoods(half, case["ids"])
    golden_cases.write_json(folder / "golden.json", {"model": name, "cases": found})
    save_file(stored_kv(model, found[-1]["ids"]), folder / "kv.safetensors", metadata={"format": "pt"})
    make_training(folder, name, auxiliary_config, base, wide(own), wide(maps), layers, ablation)
    print(f"{name}: {[c['margin'] for c in found]}", flush=True)


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=here / "tests/data/kvpred")
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = here / "tests/data/models"
    for name, spec in specs(models).items():
        make(options.out, models, name, spec)
    kept = [{"model": m, "keep": k, "kept": pruned_tokens(models, m, k)}
            for m in ("qwen3-v5", "llama3-v5") for k in (0.5, 0.25)]
    lazily = [{"model": m, "keep": k, "end": e, "logprobs": lazy(models, m, k, e)}
              for m in ("qwen3-v5", "llama3-v5") for k, e in ((0.75, 0.25), (0.5, 0.1))]
    golden_cases.write_json(options.out / "pruned.json", {"cases": kept, "lazy": lazily},
                            ("cases", "lazy"))


if __name__ == "__main__":
    with torch.no_grad():
        main()
