"""Grammars that constrain answers."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _skv
from .vocab import Vocab, as_ids


class Grammar:
    """A compiled grammar. Immutable; threads may share it (docs/reference/grammar.md)."""

    def __init__(self, kind: str, text: str):
        """`kind` is "json", "schema", "regex", "gbnf" or "choice"."""
        self.kind = kind
        self._handle = _skv.grammar_compile(kind, text)

    @classmethod
    def json(cls) -> "Grammar":
        """Any JSON object."""
        return cls("json", "")

    @classmethod
    def schema(cls, schema: "Mapping[str, Any] | str") -> "Grammar":
        """What follows a JSON schema."""
        return cls("schema", schema if isinstance(schema, str) else json.dumps(schema))

    @classmethod
    def regex(cls, pattern: str) -> "Grammar":
        """What matches a regular expression as a whole."""
        return cls("regex", pattern)

    @classmethod
    def gbnf(cls, rules: str) -> "Grammar":
        """Rules in the GBNF notation; "root" is the first."""
        return cls("gbnf", rules)

    @classmethod
    def choice(cls, texts: Iterable[str]) -> "Grammar":
        """One of some texts."""
        return cls("choice", json.dumps(list(texts)))

    def __repr__(self) -> str:
        return f"Grammar({self.kind!r})"


class Matcher:
    """One answer on its way through a grammar. It belongs to one thread at a time."""

    def __init__(self, grammar: Grammar, table: object):
        self._handle = _skv.matcher_create(grammar._handle, table)

    @staticmethod
    def table(vocab: Vocab, eos: Iterable[int]) -> object:
        """The tokens of a vocabulary; `eos` are those that end an answer."""
        return _skv.table_create(vocab._handle, as_ids(eos))

    def mask(self, logits: np.ndarray) -> bool:
        """Sets the logits [vocab] of tokens that may not come next to minus infinity.

        Returns False when the answer has ended and no token may follow.
        """
        return _skv.matcher_mask(self._handle, logits)

    def accept(self, token: int) -> None:
        """Goes on by a token."""
        _skv.matcher_accept(self._handle, token)

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return _skv.matcher_state(self._handle)[0]

    @property
    def finished(self) -> bool:
        """Whether the answer has ended."""
        return _skv.matcher_state(self._handle)[1]
