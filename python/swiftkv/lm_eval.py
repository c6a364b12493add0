"""The model type "swiftkv" of lm-evaluation-harness.

Importing this module registers it; `python3 -m swiftkv.lm_eval ARGUMENTS` is `lm_eval ARGUMENTS`
with it. Model arguments: pretrained (a path or name), max_gen_toks, and the options of
`Engine.open`: weights, prefill, context, eviction and others.
"""

from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model

from .engine import Engine


@register_model("swiftkv")
class SwiftKV(TemplateLM):
    """Likelihoods and greedy or sampled answers of an engine, one request at a time."""

    tokenizer_name = "swiftkv"

    def __init__(self, pretrained: str, max_gen_toks: int = 256, **options: Any):
        super().__init__()
        ignored = ("batch_size", "max_batch_size", "device")
        options = {key: value for key, value in options.items() if key not in ignored}
        self.engine = Engine.open(pretrained, **options)
        self.max_length: int = self.engine.stats["context"]
        self.max_gen_toks = int(max_gen_toks)

    @property
    def eot_token_id(self) -> int:
        return self.engine.eos[0] if self.engine.eos else self.prefix_token_id

    @property
    def prefix_token_id(self) -> int:
        """What stands in front of a text that has no context."""
        return self.engine.bos if self.engine.bos is not None else self.engine.eos[0]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any):
        special = True if add_special_tokens is None else add_special_tokens
        return self.engine.vocab.encode(string, special, parse_special=True).tolist()

    def _encode_pair(self, context: str, continuation: str):
        """As `swiftkv eval`: the whole is one text, and the tokens of the context alone are its
        beginning."""
        n_spaces = len(context) - len(context.rstrip())
        if n_spaces:
            continuation = context[-n_spaces:] + continuation
            context = context[:-n_spaces]
        whole, first = self.tok_encode(context + continuation), self.tok_encode(context)
        return whole[: len(first)], whole[len(first) :]

    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_: Any):
        results = []
        for _key, context, continuation in requests:
            ids = [*context, *continuation][-self.max_length :]
            n = len(continuation)
            if n >= len(ids):
                raise ValueError(f"a continuation of {n} tokens, the context is {self.max_length}")
            logprobs, argmax = self.engine.score(ids)
            greedy = bool((argmax[-n - 1 : -1] == np.asarray(ids[-n:])).all())
            results.append((float(logprobs[-n:].sum()), greedy))
        return results

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False):
        results = []
        for request in requests:
            (text,) = request.args
            ids = self.tok_encode(text, add_special_tokens=False)
            results.append(sum(self._windows(ids)))
        return results

    def _windows(self, ids: list[int]):
        """The log-probabilities of windows that do not overlap, each behind one known token."""
        prefix, size = self.prefix_token_id, self.max_length - 1
        for start in range(0, len(ids), size):
            before = ids[start - 1] if start else prefix
            logprobs, _ = self.engine.score([before, *ids[start : start + size]])
            yield float(logprobs[1:].sum())

    def generate_until(self, requests, disable_tqdm: bool = False):
        results = []
        for request in requests:
            context, how = request.args
            stop = how.get("until") or []
            stop = [stop] if isinstance(stop, str) else list(stop)
            most = int(how.get("max_gen_toks", self.max_gen_toks))
            sampling = {key: how[key] for key in ("top_p", "top_k", "min_p") if key in how}
            temperature = how.get("temperature") or 0.0
            if how.get("do_sample") is False:
                temperature = 0.0
            prompt = self.tok_encode(context)[-(self.max_length - most) :]
            results.append(
                self.engine.generate(
                    prompt, most, stop=stop, temperature=float(temperature), **sampling
                )
            )
        return results


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
