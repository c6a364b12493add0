"""Which predicted rows SnapKV and H2O keep, and what the base says afterwards, by plain_kvpred.py.

    python tools/oracle/make_kvpred_evict_goldens.py [--folder tests/data/kvpred]

Tokens that vote have the base's queries and predicted keys and values, also of their own; the last
token of the prompt has its own. Written into FOLDER/evict.json: the rows that each KV head keeps, the
log-probabilities of the first token after the prompt, and those of a text that follows, each of whose
tokens sees the rows that were kept and the ones after the prompt.
"""

import argparse
import json
import math
import pathlib

import torch
from safetensors.torch import load_file

import golden_cases
import plain_kvpred
from make_evict_goldens import FOLLOWING, CloseCall, choose, parse
from plain_models import heads
from random_weights import generator

F64 = torch.float64
N_PROMPT = 61
HOWS = ("snapkv:24,8,5", "snapkv:16,6,3,avg", "adakv:24,8,5,0.2", "pyramidkv:20,4,3,3", "h2o:24,12", "snapkv:24,8,5,last")
NAMES = ("qwen3-c", "openelm-lp", "llama-lp")


def read_model(folder):
    """A folder's model, whose weights may be those of the folder beside it that it names."""
    config = json.loads((folder / "config.json").read_text())
    file = folder / "model.safetensors"
    if not file.exists():
        file = folder.parent / config["swiftkv_base"] / "model.safetensors"
    return plain_kvpred.Block(config, {n: t.to(F64) for n, t in load_file(file).items()})


def read_pair(folder):
    base = read_model(folder)
    maps = {n: t.to(F64) for n, t in load_file(folder / "predictor.safetensors").items()}
    return plain_kvpred.KvPrediction(base, read_model(folder / "auxiliary"), maps, base.c["kv_prediction"]["layers"])


def weights_of(block, i, q, rows, k, gone):
    """Softmax weights [heads, rows, tokens]; head h of the keys does not see columns before the prompt's
    end that gone[h] names."""
    q = block.rotated(block.normed(i, "q", q), rows)
    k = block.rotated(block.normed(i, "k", k), list(range(k.shape[0])))
    group = q.shape[0] // k.shape[0]
    score = q @ k.repeat_interleave(group, 0).transpose(1, 2) / math.sqrt(block.head_dim)
    hidden = (torch.arange(k.shape[1])[None, :] > torch.tensor(rows)[:, None])[None]
    if gone is not None:
        hidden = hidden | gone.repeat_interleave(group, 0)[:, None, :]
    return score.masked_fill(hidden, -math.inf).softmax(-1), group


def run_rows(pair, ids, rows, predicted, own, gone=None):
    """(logits, weights of every layer) of the tokens at `rows`; `own`: they have keys and values of the
    base's own, which come into `predicted`."""
    block = pair.base
    x, seen = block.embed([ids[t] for t in rows]), []
    for i in range(block.n_layers):
        q, k_own, v_own = block.project(i, x)
        if own:
            at = torch.tensor(rows)
            predicted[i] = (predicted[i][0].index_copy(0, at, k_own), predicted[i][1].index_copy(0, at, v_own))
        k, v = predicted[i]
        p, group = weights_of(block, i, q, rows, k, None if gone is None else gone[i])
        seen.append(p.unflatten(0, (-1, group)).sum(1))
        o = p @ heads(v, block.head_dim).repeat_interleave(group, 0)
        x = block.finish(i, x, o.transpose(0, 1).flatten(1))
    return block.logits(x), seen


def one_case(pair, how, ids):
    said, n, n_all = parse(how), N_PROMPT, len(ids)
    n_voters = {"h2o": n, "streaming": 1}.get(said["method"], said["w"])
    if "last" in how:
        n_voters = 1
    rows = pair.predicted(ids[:n] + [0] * (n_all - n))
    voting = list(range(n - n_voters, n - 1))
    votes = run_rows(pair, ids, voting, list(rows), False)[1] if voting else None
    logits, own = run_rows(pair, ids, [n - 1], rows, True)
    said_first = logits[0].log_softmax(-1)
    kept, gone = [], []
    for i in range(pair.base.n_layers):
        both = own[i][:, :, :n].sum(1) + (votes[i][:, :, :n].sum(1) if votes else 0)
        chosen = choose(list(both), said, i, pair.base.n_layers)
        kept.append(chosen)
        hidden = torch.zeros(len(chosen), n_all, dtype=torch.bool)
        for h, stay in enumerate(chosen):
            hidden[h, :n] = True
            hidden[h, stay] = False
        gone.append(hidden)
    follow = [round(said_first[ids[n]].item(), 9)]
    for t in range(n, n_all - 1):
        logits, _ = run_rows(pair, ids, [t], rows, True, gone)
        follow.append(round(logits[0].log_softmax(-1)[ids[t + 1]].item(), 9))
    return {"how": how, "n": n, "ids": ids, "kept": kept, "logprobs": follow}


def make_case(name, pair, how):
    for attempt in range(300):
        r = generator(name, how, attempt)
        ids = [int(i) for i in r.integers(3, pair.base.vocab, N_PROMPT + FOLLOWING)]
        try:
            return {"model": name, **one_case(pair, how, ids)}
        except CloseCall:
            continue
    raise RuntimeError(f"{name} {how}: every choice is close")


def main():
    here = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=here / "tests/data/kvpred")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for name in NAMES:
        pair = read_pair(options.folder / name)
        found += [make_case(name, pair, how) for how in HOWS]
    golden_cases.write_json(options.folder / "evict.json", {"cases": found}, ("cases",))
    print(f"{len(found)} cases")


if __name__ == "__main__":
    with torch.no_grad():
        main()
