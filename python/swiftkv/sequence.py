"""Sequences: lists of tokens with their keys and values."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import _skv
from .vocab import as_ids

if TYPE_CHECKING:
    from .engine import Engine

# What a span of a step wants, in the order of skv_want.
WANTS = ("none", "last", "all", "last_hidden", "all_hidden", "drafted")


class KvShape(NamedTuple):
    """The rows that a layer reads: see `Sequence.kv_shape`."""

    heads: int  # that hold rows: KV heads, or query heads once each has its own rows
    query_heads: int  # query heads [h q / heads, (h + 1) q / heads) read those of head h
    head_size: int
    slot: int  # layers with the same slot read the same rows
    window: int  # rows that a token attends to, its own included; 0: all


# (layer, head, keys [n, head_size], values [n, head_size], positions [n]) -> scores [n]
Score = Callable[[int, int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


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

    # ---- keys, values, and rows of the caller's choice ----

    def kv_shape(self, layer: int) -> KvShape:
        """What a layer reads: how many heads hold rows, their size, and which layers share them."""
        with self.engine._lock:
            shape = _skv.sequence_kv_shape(self._handle, layer)
        if shape is None:
            raise IndexError(f"layer {layer}")
        return KvShape(*shape)

    def keys_values(self, layer: int, head: int) -> tuple[np.ndarray, np.ndarray]:
        """The keys and values that a head holds, float32 [n, head_size] each, as the cache has
        them. Row i is that of the token at position `kept(layer, head)[i]`; keys are rotated by
        their positions. With a KV type of 8 or 16 bits the numbers are rounded to it."""
        with self.engine._lock:
            size = self.kv_shape(layer).head_size
            n = len(self.kept(layer, head))
            keys, values = np.empty((n, size), np.float32), np.empty((n, size), np.float32)
            _skv.sequence_read_kv(self._handle, layer, head, keys, values)
        return keys, values

    def keep(self, rows: Mapping[tuple[int, int], np.ndarray]) -> None:
        """Evicts, of each (layer, head) in `rows`, all rows but those at its positions, which are
        ascending and among `kept(layer, head)`. Other heads keep their rows. Of layers that share
        a slot one is named. Layers with sliding windows cannot be. If it fails, nothing has
        changed."""
        given = [
            (layer, head, np.ascontiguousarray(at, np.uintp)) for (layer, head), at in rows.items()
        ]
        with self.engine._lock:
            _skv.sequence_keep(self._handle, given)

    def evict_by(self, score: Score, capacity: int, window: int = 32) -> None:
        """Evicts by a scoring function of one's own, after a prompt: each head keeps its last
        `window` rows, and of the others those with the highest scores, `capacity` rows in all. Of
        equal scores the earlier row stays. Heads that hold no more than `capacity` rows keep them.

        score(layer, head, keys, values, positions) returns a number for each row, [n]. It is called
        once for each head of each slot, with the first layer that reads it, and not for layers with
        sliding windows. The `window` rows need no scores, but get them."""
        if not 0 <= window < capacity:
            raise ValueError(f"window: {window}, expected 0 to {capacity - 1}")
        rows = {}
        with self.engine._lock:
            for layer, shape in self._slots():
                for head in range(shape.heads):
                    positions = self.kept(layer, head)
                    if len(positions) <= capacity:
                        continue
                    scores = score(layer, head, *self.keys_values(layer, head), positions)
                    scores = np.asarray(scores, np.float64)
                    if scores.shape != positions.shape:
                        raise ValueError(f"scores: {scores.shape}, expected {positions.shape}")
                    n = len(positions) - window
                    best = np.argsort(-scores[:n], kind="stable")[: capacity - window]
                    rows[layer, head] = np.concatenate([positions[np.sort(best)], positions[n:]])
            self.keep(rows)

    def _slots(self) -> list[tuple[int, KvShape]]:
        """The first layer of each slot that no layer reads with a window, and its shape."""
        shapes = []
        while (shape := _skv.sequence_kv_shape(self._handle, len(shapes))) is not None:
            shapes.append(KvShape(*shape))
        windowed = {shape.slot for shape in shapes if shape.window}
        first = {shape.slot: layer for layer, shape in reversed(list(enumerate(shapes)))}
        return [(layer, shapes[layer]) for slot, layer in sorted(first.items()) if slot not in windowed]

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
