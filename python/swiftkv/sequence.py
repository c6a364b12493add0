"""Sequences: lists of tokens with their keys and values."""

from typing import TYPE_CHECKING

import numpy as np

from . import _skv
from .vocab import as_ids

if TYPE_CHECKING:
    from .engine import Engine

# What a span of a step wants, in the order of skv_want.
WANTS = ("none", "last", "all", "last_hidden", "all_hidden", "drafted")


class Sequence:
    """A list of tokens and its KV cache, of one engine: see `Engine.sequence`.

    A sequence keeps its engine alive. Closing the engine closes it too.
    """

    def __init__(self, engine: "Engine", max_tokens: int = 0, prefill: str | None = None):
        self.engine = engine
        with engine._lock:
            self._handle = _skv.sequence_create(engine._handle, max_tokens, prefill)
            engine._sequences.add(self)

    def close(self) -> None:
        """Frees the sequence's KV memory."""
        with self.engine._lock:
            _skv.release(self._handle)

    def __enter__(self) -> "Sequence":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __len__(self) -> int:
        """The number of tokens, which is the position of the next one."""
        return _skv.sequence_length(self._handle)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        try:
            return f"<Sequence of {len(self)} tokens>"
        except ValueError:
            return "<Sequence, closed>"

    @property
    def ids(self) -> np.ndarray:
        """The tokens, int32 [n]."""
        with self.engine._lock:
            return np.frombuffer(_skv.sequence_ids(self._handle), np.int32)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV pages that the sequence refers to."""
        return _skv.sequence_kv_bytes(self._handle)

    def truncate(self, n: int) -> int:
        """Removes token n and all later ones. Returns the new length: n, or 0 where a sliding
        window has freed rows that token n needs."""
        with self.engine._lock:
            return _skv.sequence_truncate(self._handle, n)

    def share(self, other: "Sequence", n: int | None = None) -> None:
        """Makes this empty sequence a copy of the first n tokens of another. Full pages of the
        cache are shared."""
        with self.engine._lock:
            n = len(other) if n is None else n
            _skv.sequence_share(self._handle, other._handle, n)

    # ---- eviction ----

    def set_eviction(self, method: str) -> None:
        """Sets how rows are evicted after the next prompt: "snapkv:1024,32,7", "none"
        (docs/reference/methods.md)."""
        with self.engine._lock:
            _skv.sequence_set_eviction(self._handle, method)

    def expect(self, n: int) -> None:
        """Announces that the next n tokens are a prompt that `step` reads in chunks."""
        with self.engine._lock:
            _skv.sequence_expect(self._handle, n)

    def evict(self) -> None:
        """Evicts rows after a prompt that was announced. `prompt` does it by itself."""
        with self.engine._lock:
            _skv.sequence_evict(self._handle)

    def kept(self, layer: int, head: int) -> np.ndarray:
        """The positions of the rows that a KV head of a layer holds, ascending, [n]. Empty for a
        layer or head that does not exist."""
        if layer < 0 or head < 0:
            raise IndexError(f"kept: layer {layer}, head {head}")
        with self.engine._lock:
            return np.frombuffer(_skv.sequence_kept(self._handle, layer, head), np.uintp)

    # ---- speculation ----

    def set_speculation(self, source: str) -> None:
        """Sets who drafts tokens: "text:8", "none"."""
        with self.engine._lock:
            _skv.sequence_set_speculation(self._handle, source)

    def draft(self, token: int, most: int = _skv.DRAFT_MAX) -> list[int]:
        """Tokens that may follow `token`, which follows the sequence's tokens."""
        with self.engine._lock:
            return _skv.sequence_draft(self._handle, token, most)

    def settle(self, n_drafted: int, n_right: int) -> None:
        """After a step with a draft: its first n_right tokens stay, the others are removed."""
        if not 0 <= n_right <= n_drafted < len(self):
            raise ValueError(f"settle: {n_right} of {n_drafted}")
        with self.engine._lock:
            _skv.sequence_settle(self._handle, n_drafted, n_right)

    @property
    def drafts(self) -> dict[str, tuple[int, int]]:
        """Tokens that each source has drafted, and those of them that were right."""
        return _skv.sequence_drafts(self._handle)

    # ---- steps ----

    def step(self, ids, want: str = "last", out: np.ndarray | None = None) -> np.ndarray | None:
        """Appends tokens and returns what is wanted of them: see `Engine.step`."""
        return self.engine.step([(self, as_ids(ids), want)], out=None if out is None else [out])[0]

    def prompt(self, ids, progress=None) -> np.ndarray:
        """Appends a prompt of any length: see `Engine.prompt`."""
        return self.engine.prompt(self, ids, progress)
