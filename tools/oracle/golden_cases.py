"""Golden results of one model: what `swiftkv score` and greedy `generate` must reproduce."""

import json

import torch

from random_weights import generator

MARGIN = 1e-3  # a top-2 gap (in log-probability) below this could be decided by rounding
N_GREEDY = 12


def case_result(logits_of, ids, eos):
    """The fields of one case, or None where a choice is too close to call or greedy meets eos."""
    logp = logits_of(ids).to(torch.float64).log_softmax(-1)
    top = logp.topk(2, dim=-1)
    margin = (top.values[:, 0] - top.values[:, 1]).min().item()
    picked = [logp[t - 1, ids[t]].item() for t in range(1, len(ids))]
    greedy, line = [], list(ids)
    for _ in range(N_GREEDY):
        last = logits_of(line)[-1].to(torch.float64).log_softmax(-1).topk(2)
        margin = min(margin, (last.values[0] - last.values[1]).item())
        greedy.append(last.indices[0].item())
        line.append(greedy[-1])
    if margin < MARGIN or eos in greedy:
        return None
    return {
        "logprobs": [None] + [round(v, 9) for v in picked],
        "argmax": top.indices[:, 0].tolist(),
        "nll": round(-sum(picked) / max(1, len(picked)), 9),
        "greedy": greedy,
        "margin": round(margin, 6),
    }


def case_for(name, length, vocab, eos, modes):
    """Random ids, redrawn until no mode has a close call. modes: {None or "teacher": logits_of}."""
    for attempt in range(1000):
        r = generator(name, "ids", length, attempt)
        first = 1 if attempt == 0 or length > 1 else int(r.integers(3, vocab))
        ids = [first] + [int(i) for i in r.integers(3, vocab, length - 1)]
        results = {mode: case_result(f, ids, eos) for mode, f in modes.items()}
        if all(results.values()):
            case = {"ids": ids, **results[None]}
            if "teacher" in results:
                case["teacher"] = results["teacher"]
            return case
    raise RuntimeError(f"{name}: no ids of length {length} without a close call")


def spread(logits):
    """Standard deviation of the logits over the vocabulary: near 0 the model would test nothing."""
    return logits.to(torch.float64).std(-1).mean().item()


def write_json(path, value, per_line=("cases",)):
    """Stable JSON: one line a key, and one line a case, so that a diff says what moved."""
    parts = []
    for key, item in value.items():
        if key in per_line and isinstance(item, list):
            body = "[\n  " + ",\n  ".join(json.dumps(i) for i in item) + "\n ]"
        else:
            body = json.dumps(item)
        parts.append(f" {json.dumps(key)}: {body}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
