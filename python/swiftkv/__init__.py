"""Language models with SwiftKV, SnapKV and KV Prediction on the CPU.

    import swiftkv
    with swiftkv.Engine.open("models/mini/kv6") as engine:
        for piece in engine.stream("Once upon a time", max_tokens=40):
            print(piece, end="")

docs/guides/python.md is the guide.
"""

from ._skv import version as __version__
from .engine import Engine
from .errors import (
    ArgumentError,
    CancelledError,
    Error,
    FormatError,
    FullError,
    InputOutputError,
    OutOfMemoryError,
    RangeError,
    UnsupportedError,
)
from .grammar import Grammar, Matcher
from .hub import resolve
from .models import distill, info, quantize, train, transform
from .sampling import Sampler, Sampling
from .sequence import KvShape, Sequence
from .vocab import Vocab

__all__ = [
    "ArgumentError",
    "CancelledError",
    "Engine",
    "Error",
    "FormatError",
    "FullError",
    "Grammar",
    "InputOutputError",
    "KvShape",
    "Matcher",
    "OutOfMemoryError",
    "RangeError",
    "Sampler",
    "Sampling",
    "Sequence",
    "UnsupportedError",
    "Vocab",
    "__version__",
    "distill",
    "info",
    "quantize",
    "resolve",
    "train",
    "transform",
]
