"""Tokenizers and chat templates."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence as Items
from typing import Any

import numpy as np

from . import _skv
from .hub import resolve

Message = Mapping[str, Any]


def as_ids(ids) -> np.ndarray:
    """Token ids as a contiguous array of int32, [n]. Arrays that are already so are not copied."""
    array = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"token ids: an array [{array.shape}] of {array.dtype}, not [n] integers")
    if array.dtype != np.int32 and array.size:
        limits = np.iinfo(np.int32)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise ValueError("token ids: beyond 32 bits")
    return np.ascontiguousarray(array, dtype=np.int32)


class Vocab:
    """A model's tokenizer and chat template. Immutable; threads may share it."""

    def __init__(self, name: str | os.PathLike[str]):
        self.path = resolve(name)
        self._handle = _skv.vocab_open(self.path)
        size, bos, eos, template = _skv.vocab_shape(self._handle)
        self.size: int = size
        self.bos: int | None = bos if bos >= 0 else None
        self.eos: int | None = eos if eos >= 0 else None
        self.chat_template: str | None = template

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"Vocab({self.path!r}, size={self.size})"

    def encode(
        self, text: str, add_special: bool = True, parse_special: bool = False
    ) -> np.ndarray:
        """The ids of a text, int32 [n].

        `add_special` adds what the tokenizer adds by itself, such as BOS. `parse_special` turns
        special tokens that are written in the text into their ids.
        """
        raw = _skv.vocab_encode(self._handle, text, add_special, parse_special)
        return np.frombuffer(raw, np.int32)

    def decode(self, ids, special: bool = False) -> str:
        """The text of ids. `special`: special tokens have text too."""
        return _skv.vocab_decode(self._handle, as_ids(ids), special)

    def stream(self, ids: Iterable[int], special: bool = False) -> Iterator[str]:
        """Text as tokens arrive: whole characters, some of them empty."""
        stream = _skv.stream_create(self._handle, special)
        for i in ids:
            yield _skv.stream_push(stream, int(i))
        yield _skv.stream_push(stream, -1)

    def render(
        self,
        messages: Items[Message],
        add_generation_prompt: bool = True,
        template: str | None = None,
        **variables: Any,
    ) -> str:
        """The text of a conversation by the model's chat template, or another one.

        `variables` are what else the template reads, such as tools.
        """
        given = dict(messages=list(messages), add_generation_prompt=add_generation_prompt)
        return _skv.render(self._template(template), json.dumps(given | variables), self._handle)

    def _template(self, template: str | None) -> str:
        text = template if template is not None else self.chat_template
        if text is None:
            raise ValueError(f"{self.path}: the model has no chat template")
        return text

    def encode_chat(
        self,
        messages: Items[Message],
        add_generation_prompt: bool = True,
        template: str | None = None,
        allow_special_text: bool = False,
        **variables: Any,
    ) -> np.ndarray:
        """The ids of a conversation, int32 [n]: those of the text that `render` makes.

        Special tokens are those that the template writes. Texts of messages and variables that
        spell one are its letters, unless `allow_special_text`.
        """
        given = dict(messages=list(messages), add_generation_prompt=add_generation_prompt)
        text = json.dumps(given | variables)
        raw = _skv.encode_chat(self._template(template), text, self._handle, allow_special_text)
        return np.frombuffer(raw, np.int32)
