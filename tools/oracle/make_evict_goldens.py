"""Which rows the evictors keep, and what the model says afterwards: tests/data/evict.json.

    python tools/oracle/make_evict_goldens.py [--models tests/data/models] [--trained models/mini/base] [--out tests/data/evict.json]

Written from the papers and the published programs in torch, float64, without a cache: a token that
comes after an eviction has the evicted columns masked, head by head. Three kinds of cases:
`choices` are random votes (small whole numbers, so that there are many ties) and the rows that are
kept of them; `runs` are prompts of tiny models, the rows that each head keeps after the last prompt,
and the log-probabilities of a text that follows; `trained` the same of a trained model, whose attention
is that of a real one: lines of a register, a question, and its answer. Ids are drawn again where a
choice is close.
"""

import argparse
import json
import math
import pathlib

import numpy
import tokenizers
import torch

import make_models
import plain_models
from plain_models import linear, rms_norm

CLOSE = 5e-5  # relative distance of two different scores below which rounding might swap them
FOLLOWING = 5  # tokens of the text that follows


class CloseCall(Exception):
    pass


# ---- choosing ----


def parse(how):
    """The settings behind "METHOD:C,w,k[,...]", every number said."""
    method, _, rest = how.partition(":")
    numbers = [float(x) for x in rest.split(",") if x[0].isdigit()]
    words = [x for x in rest.split(",") if not x[0].isdigit()]
    names = {"streaming": ("sinks", "C"), "h2o": ("C", "w"), "pyramidkv": ("C", "w", "k", "beta"),
             "adakv": ("C", "w", "k", "floor")}.get(method, ("C", "w", "k"))
    out = {"method": method, "w": 1, "k": 1, "beta": 20.0, "floor": 0.2, "avg": "avg" in words,
           "query": "query" in words}
    out.update(zip(names, numbers))
    for name in ("C", "w", "k", "sinks"):
        if name in out:
            out[name] = int(out[name])
    return out


def smooth(votes, how):
    k, x = how["k"], votes[None, None]
    if how["method"] in ("h2o", "streaming") or k == 1 or len(votes) == 0:
        return votes
    pooling = torch.nn.functional.avg_pool1d if how["avg"] else torch.nn.functional.max_pool1d
    return pooling(x, kernel_size=k, stride=1, padding=k // 2)[0, 0, : len(votes)]


def order(scores, n, exact):
    """Indices of the n highest, the earlier of equals first."""
    index = torch.sort(scores, descending=True, stable=True).indices
    if not exact and 0 < n < len(scores):
        limit = scores[index[n - 1]].item()
        near = [v for v in scores.tolist() if v != limit and abs(v - limit) < CLOSE * abs(limit)]
        if near:
            raise CloseCall
    return index[:n]


def budgets(scores, how, place, n_slots, exact):
    """How many prefix rows each head of a slot keeps."""
    base, n = how["C"] - how["w"], [len(s) for s in scores]
    if how["method"] == "adakv":
        best = order(torch.cat(scores), min(len(scores) * base, sum(n)), exact)
        head_of = torch.cat([torch.full((m,), h) for h, m in enumerate(n)])[best]
        counts = [(head_of == h).sum().item() for h in range(len(n))]
        sure = int(how["floor"] * base)
        return [min(round(c * (1 - how["floor"]) + sure), m) for c, m in zip(counts, n)]
    if how["method"] == "pyramidkv":
        out = []
        for m in n:
            total, budget = m + how["w"], base
            if total >= 2 * base and n_slots > 1:
                least = int(base / how["beta"])
                most = 2 * base - least
                if most >= m:
                    most, least = m, 2 * base - m
                budget = most - place * ((most - least) // (n_slots - 1))
            out.append(min(budget, m))
        return out
    return [min(base, m) for m in n]


def choose(votes, how, place, n_slots, exact=False):
    """votes: a tensor a head, window included. Rows that each head keeps."""
    prefix = [v[: max(0, len(v) - how["w"])] for v in votes]
    if how["method"] == "streaming":
        prefix = [torch.arange(1, len(p) + 1, dtype=torch.float64) for p in prefix]
        for p in prefix:
            p[: how["sinks"]] = 1e9
    scores = [smooth(p, how) for p in prefix]
    kept = []
    for v, s, n in zip(votes, scores, budgets(scores, how, place, n_slots, exact)):
        rows = sorted(order(s, n, exact).tolist()) + list(range(len(s), len(v)))
        kept.append(rows)
    return kept


def choices():
    random = numpy.random.default_rng(404)
    hows = ["snapkv:16,4,5", "snapkv:16,4,5,avg", "snapkv:16,4,4", "snapkv:16,4,4,avg", "snapkv:9,8,1",
            "snapkv:20,1,7", "snapkv:40,8,63", "snapkv:40,8,62,avg", "h2o:12,5", "streaming:3,11",
            "streaming:0,7", "adakv:14,4,3,0.2", "adakv:14,4,3,0.5,avg", "adakv:14,4,1,0",
            "pyramidkv:12,4,3,20", "pyramidkv:30,4,3,2", "pyramidkv:24,4,5,5,avg"]
    out = []
    for how in hows:
        for n in (5, 17, 41, 97):
            place, n_slots = int(random.integers(0, 4)), 4
            votes = random.integers(0, 9, (3, n)) * random.integers(0, 2, (3, n))
            kept = choose([torch.tensor(v, dtype=torch.float64) for v in votes], parse(how), place,
                          n_slots, exact=True)
            out.append({"how": how, "place": place, "slots": n_slots, "votes": votes.tolist(),
                        "kept": kept})
    return out


# ---- models ----


class Evicting(plain_models.LlamaFamily):
    """A Llama whose tokens do not see evicted columns."""

    def start(self, how, n, teacher):
        self.how = parse(how)
        self.deep_from = self.kv_layers if self.swiftkv and not teacher else self.n_layers
        self.slots = [i if i < self.deep_from else self.deep_from + (i - self.deep_from) // self.group
                      for i in range(self.n_layers)]
        self.n_slots = self.slots[-1] + 1
        heads_q, heads_kv = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        self.times = heads_q // heads_kv  # query heads to a KV head
        self.n_kept_heads = heads_q if self.how["query"] else heads_kv
        # The token from which on a head does not see a column.
        self.gone = torch.full((self.n_slots, self.n_kept_heads, n), n)

    def layer(self, i, x, q_suffix, shared):
        p = f"model.layers.{i}."
        a = rms_norm(x, self.w[p + "input_layernorm.weight"], self.eps)
        q = self.rope(self.project(i, "q", a, q_suffix))
        k, v = shared or (self.project(i, "k", a), self.project(i, "v", a))
        k, v = (y.repeat_interleave(self.times, 0) for y in (self.rope(k), v))
        t = torch.arange(x.shape[0])
        gone = self.gone[self.slots[i]][:, : len(t)]
        if not self.how["query"]:
            gone = gone.repeat_interleave(self.times, 0)
        hidden = (t[None, :] > t[:, None])[None] | (gone[:, None, :] <= t[None, :, None])
        if self.window:
            hidden = hidden | (t[:, None] - t[None, :] >= self.window)[None]
        weights = (q @ k.transpose(1, 2) / math.sqrt(self.head_dim)).masked_fill(hidden, -math.inf)
        weights = weights.softmax(-1)
        self.weights.append(weights)
        x = x + linear(self.w, p + "self_attn.o_proj", (weights @ v).transpose(0, 1).flatten(1))
        b = rms_norm(x, self.w[p + "post_attention_layernorm.weight"], self.eps)
        gate = torch.nn.functional.silu(linear(self.w, p + "mlp.gate_proj", b))
        return x + linear(self.w, p + "mlp.down_proj", gate * linear(self.w, p + "mlp.up_proj", b))

    def forward(self, ids, teacher=False, inputs=None):
        self.weights = []
        return super().forward(ids, teacher, inputs)

    def left(self, slot, head, n):
        """Columns before n that a head still sees."""
        return (self.gone[slot, head, :n] >= self.gone.shape[2]).nonzero().flatten()

    def evict(self, first, end):
        """Behind a prompt of tokens [first, end), whose weights were just computed."""
        n_left = max(len(self.left(s, h, end)) for s in range(self.n_slots)
                     for h in range(self.n_kept_heads))
        if n_left <= self.how["C"]:
            return
        voters = self.how["w"] if self.how["method"] != "h2o" else end - first
        for slot in range(self.n_slots):
            rows = slice(max(first, end - voters), end)
            votes = sum(self.weights[i][:, rows].sum(1) for i in range(self.n_layers)
                        if self.slots[i] == slot)
            if not self.how["query"]:
                votes = votes.view(self.n_kept_heads, self.times, -1).mean(1)
            left = [self.left(slot, h, end) for h in range(self.n_kept_heads)]
            if self.window:
                kept = [list(range(max(0, len(c) - self.window), len(c))) for c in left]
            else:
                kept = choose([votes[h][c] for h, c in enumerate(left)], self.how, slot, self.n_slots)
            for h, rows_kept in enumerate(kept):
                self.gone[slot, h, left[h]] = end
                self.gone[slot, h, left[h][rows_kept]] = self.gone.shape[2]


def random_ids(how, lengths, vocab, attempt):
    random = numpy.random.default_rng([*lengths, *how.encode(), attempt])
    return [int(i) for i in random.integers(3, vocab, sum(lengths) + FOLLOWING)]


def run(model, how, lengths, ids, teacher):
    """A case, or CloseCall."""
    model.start(how, len(ids), teacher)
    at = 0
    for n in lengths:
        model.forward(ids[: at + n], teacher)
        model.evict(at, at + n)
        at += n
    logits = model.forward(ids, teacher).log_softmax(-1)
    kept = [[model.left(model.slots[i], h, at).tolist() for h in range(model.n_kept_heads)]
            for i in range(model.n_layers)]
    follows = [round(logits[t - 1, ids[t]].item(), 8) for t in range(at, len(ids))]
    return {"how": how, "lengths": list(lengths), "teacher": teacher, "ids": ids, "kept": kept,
            "logprobs": follows}


RUNS = {
    "llama3-v5": [("snapkv:24,8,5", (90,)), ("snapkv:24,8,5,avg", (90,)), ("snapkv:70,8,1", (90,)),
                  ("snapkv:24,16,4", (60, 20, 9)), ("snapkv:90,8,5", (90,)), ("snapkv:40,32,7", (41,)),
                  ("snapkv:24,8,5,query", (90,)), ("h2o:24,12", (90,)), ("h2o:24,12", (50, 30)),
                  ("streaming:4,24", (90,)), ("pyramidkv:24,8,5,20", (90,)),
                  ("pyramidkv:24,8,5,3", (60, 30)), ("adakv:24,8,5,0.2", (90,)),
                  ("adakv:24,8,5,0.5", (60, 30))],
    "qwen3-v5": [("snapkv:24,8,5", (90,)), ("adakv:24,8,5,0.2", (90,))],
    "llama-swiftkv-g2": [("snapkv:24,8,5", (90,)), ("snapkv:24,8,5", (60, 30)), ("h2o:24,12", (90,)),
                         ("pyramidkv:24,8,5,20", (90,)), ("adakv:24,8,5,0.2", (90,)),
                         ("snapkv:24,8,5,query", (60, 30))],
    "llama-swiftkv-g1": [("snapkv:24,8,5", (90,))],
    "mistral": [("snapkv:12,4,3", (60, 20))],
}


def runs(root):
    for name, cases in RUNS.items():
        folder = root / name
        config = json.loads((folder / "config.json").read_text())
        model = Evicting(config, make_models.read_float64(folder))
        modes = (False, True) if name == "llama-swiftkv-g1" else (False,)
        for how, lengths in cases:
            for teacher in modes:
                for attempt in range(200):
                    try:
                        ids = random_ids(how, lengths, config["vocab_size"], attempt)
                        case = run(model, how, lengths, ids, teacher)
                        break
                    except CloseCall:
                        continue
                else:
                    raise RuntimeError(f"{name} {how}: every choice is close")
                yield {"model": name, **case}


TRAINED = ["snapkv:64,32,7", "snapkv:64,32,7,avg", "snapkv:96,32,1", "snapkv:64,32,7,query", "pyramidkv:64,16,5,20",
           "adakv:64,32,7,0.2", "h2o:64,32", "streaming:4,64"]


def register(tokenizer, how, attempt):
    """(ids of a prompt of a chat, ids of its answer)."""
    random = numpy.random.default_rng([*how.encode(), attempt])
    names = [f"{chr(65 + n % 26)}{n}" for n in random.choice(range(1000, 10000), 11, replace=False)]
    contents = [int(n) for n in random.integers(10000, 50000, len(names))]
    lines = [f"line {name}: REGISTER_CONTENT is <{content}>\n" for name, content in zip(names, contents)]
    asked = int(random.integers(len(names)))
    question = f"\nWhat is the <REGISTER_CONTENT> in line {names[asked]}?"
    prompt = f"<|begin|><|user|>{''.join(lines)}{question}<|end|><|assistant|>"
    return tokenizer.encode(prompt, add_special_tokens=False).ids, tokenizer.encode(f" {contents[asked]}", add_special_tokens=False).ids


def trained(folder):
    config = json.loads((folder / "config.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = Evicting(config, make_models.read_float64(folder))
    for how in TRAINED:
        for attempt in range(200):
            prompt, answer = register(tokenizer, how, attempt)
            try:
                yield run(model, how, (len(prompt),), prompt + answer, False)
                break
            except CloseCall:
                continue
        else:
            raise RuntimeError(f"{how}: every choice is close")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, default="tests/data/models")
    parser.add_argument("--trained", type=pathlib.Path, default="models/mini/base")
    parser.add_argument("--out", type=pathlib.Path, default="tests/data/evict.json")
    args = parser.parse_args()
    with torch.no_grad():
        parts = {"choices": choices(), "runs": list(runs(args.models)), "trained": list(trained(args.trained))}
    lines = [f' "{name}": [\n' + ",\n".join("  " + json.dumps(c, separators=(",", ":")) for c in cases)
             + "\n ]" for name, cases in parts.items()]
    args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{args.out}: {len(parts['choices'])} choices, {len(parts['runs'])} runs, {len(parts['trained'])} of a trained model")


if __name__ == "__main__":
    main()
