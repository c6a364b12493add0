"""Generation: the prompt, then a step for each token and what is drafted behind it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .errors import FullError
from .grammar import Matcher
from .sampling import Sampler
from .vocab import as_ids

if TYPE_CHECKING:
    from .sequence import Sequence


class Chooser:
    """Chooses tokens until an answer ends."""

    def __init__(self, sequence: "Sequence", sampler: Sampler, matcher: Matcher | None, ignore_eos):
        self.eos = sequence.engine.eos
        self.sampler = sampler
        self.matcher = matcher
        self.ignore_eos = ignore_eos

    def choose(self, logits: np.ndarray) -> int | None:
        """The next token from logits [vocab], which it changes; None where the answer ends."""
        if self.matcher and not self.matcher.mask(logits):
            return None
        token = self.sampler.choose(logits)
        if self.matcher:
            self.matcher.accept(token)
        if token in self.eos and (not self.ignore_eos or (self.matcher and self.matcher.finished)):
            return None
        self.sampler.accept((token,))
        return token


def run_draft(sequence: "Sequence", token: int, draft: list[int]) -> tuple[np.ndarray, list[int]]:
    """A step for a token and a draft behind it, or for the token alone where pages are short."""
    try:
        logits = sequence.step([token, *draft], "drafted")
    except FullError:
        if not draft:
            raise
        draft = []
        logits = sequence.step([token], "drafted")
    return logits, draft


def tokens(
    sequence: "Sequence", ids, max_tokens: int, chooser: Chooser, progress=None
) -> Iterator[int]:
    """Appends a prompt and yields the answer's tokens as they are chosen.

    The last one is not in the sequence: no step has read it.
    """
    prompt = as_ids(ids)
    chooser.sampler.accept(prompt, generated=False)
    logits = sequence.prompt(prompt, progress)
    token = chooser.choose(logits) if max_tokens > 0 else None
    n_tokens = 0
    while token is not None:
        yield token
        n_tokens += 1
        if n_tokens == max_tokens:
            return
        draft = sequence.draft(token, max_tokens - n_tokens - 1)
        rows, draft = run_draft(sequence, token, draft)
        right, token = judge(chooser, rows, draft, max_tokens - n_tokens)
        if draft:
            sequence.settle(len(draft), len(right))
        yield from right
        n_tokens += len(right)


def judge(
    chooser: Chooser, rows: np.ndarray, draft: list[int], most: int
) -> tuple[list[int], int | None]:
    """The drafted tokens that are right, and the token that follows them; None: the answer ends.
    `most`: tokens that the answer may still have."""
    right: list[int] = []
    for row, drafted in zip(rows, [*draft, None]):
        token = chooser.choose(row)
        if token is None or token != drafted or len(right) + 1 == most:
            break
        right.append(token)
    return right, token
