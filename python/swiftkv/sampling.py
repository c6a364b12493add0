"""How tokens are chosen."""

from dataclasses import asdict, dataclass

import numpy as np

from . import _skv
from .vocab import as_ids


@dataclass(frozen=True)
class Sampling:
    """Sampling options. The defaults are greedy."""

    temperature: float = 0.0  # 0: the most likely token
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0


class Sampler:
    """Chooses tokens from logits and remembers them for the penalties."""

    def __init__(self, vocab: int, sampling: Sampling = Sampling()):
        self.sampling = sampling
        self._handle = _skv.sampler_create(asdict(sampling), vocab)

    def accept(self, ids, generated: bool = True) -> None:
        """Records tokens. Those of a prompt count for the repetition penalty only."""
        _skv.sampler_accept(self._handle, as_ids(ids), generated)

    def choose(self, logits: np.ndarray) -> int:
        """Chooses from float32 logits [vocab], which it changes."""
        return _skv.sampler_choose(self._handle, logits)
