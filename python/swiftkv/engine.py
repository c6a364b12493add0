"""Engines: loaded models."""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence as Items
from typing import Any

import numpy as np

from . import _skv, generation
from .grammar import Grammar, Matcher
from .hub import resolve
from .sampling import Sampler, Sampling
from .sequence import WANTS, Sequence
from .vocab import Message, Vocab, as_ids

Progress = Callable[[int, int], None]


class Engine:
    """A loaded model: weights, kernels, threads and KV memory.

    An engine runs one call at a time; calls from other threads wait. The GIL is released while it
    runs. A process may have several engines.

    In the main thread Ctrl-C cancels a call: a prompt after its chunk, a likelihood at once.
    """

    def __init__(self, handle: object, path: str):
        self._handle = handle
        self._lock = threading.RLock()
        self._sequences: weakref.WeakSet[Sequence] = weakref.WeakSet()
        self._vocab: Vocab | None = None
        self._table: object | None = None
        self.path = path
        vocab, hidden, bos, eos = _skv.engine_shape(handle)
        self.vocab_size: int = vocab  # V
        self.hidden_size: int = hidden  # D
        self.bos: int | None = bos if bos >= 0 else None
        self.eos: tuple[int, ...] = eos

    @classmethod
    def open(
        cls,
        name: str | os.PathLike[str],
        *,
        threads: int | None = None,
        weights: str | None = None,
        prefill: str | None = None,
        kv: str | None = None,
        context: int | None = None,
        progress: Callable[[float], None] | None = None,
        **options: Any,
    ) -> "Engine":
        """Opens a folder, a GGUF file, "preset:NAME", or "org/name" of the Hugging Face cache.

        weights: "f32", "bf16", "int8", "int4", "file", on a GPU "fp8". prefill: "full", "swiftkv", "teacher",
        "kvpred" and others. kv: "f32", "bf16", "fp8", "int8". `options` are the other members of
        skv_engine_options (include/skv/skv.h): kv_tokens, kv_sequences, kv_checkpoints, step_tokens,
        cpu, device, by_layer, device_layers, no_skip,
        batch_invariant, eviction, speculation, draft_model, mtp, with_teacher, pruning, ffn_skip, early_exit
        and others. progress(share) is called while loading.
        """
        given = dict(threads=threads, weights=weights, prefill=prefill, kv=kv, context=context)
        path = resolve(name)
        return cls(_skv.engine_open(path, given | options, progress), path)

    def close(self) -> None:
        """Frees the engine and its sequences. Later calls raise ValueError."""
        with self._lock:
            for sequence in list(self._sequences):
                sequence.close()
            _skv.release(self._handle)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            stats = self.stats
        except ValueError:
            return f"<Engine {self.path!r}, closed>"
        return (
            f"<Engine {self.path!r}: prefill {stats['prefill']}, weights {stats['weights']}, "
            f"KV {stats['kv']}, context {stats['context']}, {stats['threads']} threads>"
        )

    # ---- what it is ----

    @property
    def stats(self) -> dict[str, Any]:
        """Memory, limits and methods: skv_engine_stats."""
        return _skv.engine_stats(self._handle)

    @property
    def work(self) -> dict[str, float]:
        """The arithmetic of all steps so far: skv_work. `model` is what the unmodified model would
        have needed."""
        with self._lock:
            return _skv.engine_work(self._handle)

    @property
    def vocab(self) -> Vocab:
        """The model's tokenizer."""
        if self._vocab is None:
            self._vocab = Vocab(self.path)
        return self._vocab

    def ids(self, text) -> np.ndarray:
        """Token ids, int32 [n], of a text (with what the tokenizer adds) or of ids."""
        return self.vocab.encode(text) if isinstance(text, str) else as_ids(text)

    # ---- sequences and steps ----

    def sequence(self, max_tokens: int = 0, prefill: str | None = None) -> Sequence:
        """An empty sequence of at most max_tokens tokens (0: the context). `prefill`: another
        method than the engine's, such as "teacher"."""
        return Sequence(self, max_tokens, prefill)

    def step(
        self,
        spans: Items[tuple[Sequence, Any, str]],
        out: Items[np.ndarray | None] | None = None,
    ) -> list[np.ndarray | None]:
        """Runs new tokens of any number of sequences, at most `step_tokens` together.

        A span is (sequence, ids [n], want), and `want` one of
          "none"         nothing: with SwiftKV these tokens never enter the deep layers
          "last"         logits after the last token, [vocab]
          "all"          logits after every token, [n, vocab]
          "drafted"      as "all", for a token and drafts behind it
          "last_hidden"  the hidden state after the final norm, [D]
          "all_hidden"   those of every token, [n, D]

        The engine writes the rows to a new float32 array for each span, which is the caller's: it
        never changes, and it outlives the engine. With `out` it writes to arrays of the caller,
        of the same shapes, without allocating: the next step with the same `out` overwrites them.
        Returns the arrays, None for "none". If a step fails, no sequence has changed.
        """
        if out is not None and len(out) != len(spans):
            raise ValueError(f"out: {len(out)} arrays for {len(spans)} spans")
        given, rows = [], []
        for i, (sequence, ids, want) in enumerate(spans):
            ids = as_ids(ids)
            array = out[i] if out is not None else None
            if want not in WANTS:
                raise ValueError(f"want: {want!r}, expected one of {', '.join(WANTS)}")
            if want != "none":
                array = self._rows(len(ids), want, array)
            given.append((sequence._handle, ids, WANTS.index(want), array))
            rows.append(array)
        with self._lock:
            _skv.engine_step(self._handle, given)
        return rows

    def _rows(self, n: int, want: str, array: np.ndarray | None) -> np.ndarray:
        """The array for a span's rows: a new one, or the caller's if it fits."""
        width = self.hidden_size if want.endswith("hidden") else self.vocab_size
        shape = (width,) if want.startswith("last") else (n, width)
        if array is None:
            return np.empty(shape, np.float32)
        if array.shape != shape or array.dtype != np.float32:
            raise ValueError(f"out: {array.dtype} {array.shape}, expected float32 {shape}")
        return array

    def hidden_states(self, sequence: Sequence, ids) -> np.ndarray:
        """Appends ids [n], at most `step_tokens`, and returns the input of every layer and the
        output of the last, float32 [L + 1, n, D]. The engine must be open with no_skip=True."""
        ids = as_ids(ids)
        layers = _skv.model_info(self.path)["layers"]
        out = np.zeros((layers + 1, len(ids), self.hidden_size), np.float32)
        with self._lock:
            _skv.engine_layers(
                self._handle, [(sequence._handle, ids, WANTS.index("all"), None)], out
            )
        return out

    def attention(self, sequence: Sequence, ids) -> np.ndarray:
        """Appends ids [n], at most `step_tokens`, and returns what they attend to: float32
        [L, n, H, T], T the sequence's new length. attention[l, i, h, p] is the share that query head
        h of layer l gives the token at position p for the i-th of `ids`: the softmax of its scaled
        scores. It is 0 for later tokens, for rows that were evicted and outside of the layer's
        window. Layers with fewer than H query heads have zeros behind them.

        For the last tokens of a prompt, `step` the others before. All layers run for these tokens.
        """
        if sequence.engine is not self:
            raise ValueError("attention: a sequence of another engine")
        ids = as_ids(ids)
        with self._lock:
            layers = _skv.model_info(self.path)["layers"]
            heads = max(sequence.kv_shape(layer).query_heads for layer in range(layers))
            out = np.zeros((layers, len(ids), heads, len(sequence) + len(ids)), np.float32)
            _skv.sequence_attention(sequence._handle, ids, out, layers, heads)
        return out

    def prompt(self, sequence: Sequence, ids, progress: Progress | None = None) -> np.ndarray:
        """Appends a prompt in chunks, then evicts rows where the sequence does that. Returns the
        logits after its last token, [vocab]. progress(done, total) is called after each chunk; it
        must not call the engine. On failure the prompt's tokens are removed."""
        logits = np.empty(self.vocab_size, np.float32)
        with self._lock:
            _skv.engine_prompt(self._handle, sequence._handle, as_ids(ids), logits, progress)
        return logits

    def cancel(self) -> None:
        """Cancels the running call, or the next one: it raises CancelledError. Any thread may call
        this."""
        _skv.engine_cancel(self._handle)

    def _interruptible(self, call: Callable[[], Any]) -> Any:
        """Runs a long call so that Ctrl-C in the main thread cancels it."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        outcome: list[Any] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append((call(), None))
            except BaseException as error:
                outcome.append((None, error))
            done.set()

        threading.Thread(target=run).start()
        try:
            done.wait()
        except BaseException:
            # The engine is free when the call has returned: a second Ctrl-C waits for that too.
            self.cancel()
            while not done.is_set():
                with contextlib.suppress(BaseException):
                    done.wait()
            _skv.engine_uncancel(self._handle)
            raise
        value, error = outcome[0]
        if error:
            raise error
        return value

    # ---- likelihood ----

    def score(self, text) -> tuple[np.ndarray, np.ndarray]:
        """The likelihood of a text or of ids [n]: (logprobs, argmax).

        logprobs[t] = log p(ids[t] | ids[:t]), float64 [n], NaN for the first. argmax[t] is the most
        likely id after ids[:t + 1], int32 [n].
        """
        ids = self.ids(text)
        logprobs, argmax = np.empty(len(ids)), np.empty(len(ids), np.int32)
        with self._lock:
            self._interruptible(lambda: _skv.engine_score(self._handle, ids, logprobs, argmax))
        return logprobs, argmax

    def similarity(self, text) -> np.ndarray:
        """SimScore of each layer but the last, float64 [L - 1] (arXiv:2410.03960, equation 1). The
        engine must be open with no_skip=True."""
        ids = self.ids(text)
        scores = np.empty(_skv.model_info(self.path)["layers"] - 1)
        with self._lock:
            self._interruptible(lambda: _skv.engine_similarity(self._handle, ids, scores))
        return scores

    # ---- generation ----

    def matcher(self, grammar: Grammar) -> Matcher:
        """A matcher of the model's tokens for one answer."""
        if self._table is None:
            self._table = Matcher.table(self.vocab, self.eos)
        return Matcher(grammar, self._table)

    def tokens(
        self,
        prompt,
        max_tokens: int = 256,
        *,
        sampling: Sampling | None = None,
        grammar: Grammar | None = None,
        ignore_eos: bool = False,
        sequence: Sequence | None = None,
        eviction: str | None = None,
        speculation: str | None = None,
        progress: Progress | None = None,
        **sampling_options: Any,
    ) -> Iterator[int]:
        """Yields the tokens of an answer as they come.

        The prompt is a text or ids. Sampling options may be given by name: temperature=0.8, seed=1.
        An answer ends with an end-of-sequence id, which is not yielded, where the grammar allows
        nothing more, or after max_tokens. `sequence` continues one that has tokens already, and
        then holds the answer but for its last token.
        """
        if sampling is None:
            sampling = Sampling(**sampling_options)
        elif sampling_options:
            raise TypeError("either `sampling` or its options by name")
        ids = self.ids(prompt)
        used = sequence or self.sequence(min(len(ids) + max_tokens, self.stats["context"]))
        if eviction is not None:
            used.set_eviction(eviction)
        if speculation is not None:
            used.set_speculation(speculation)
        chooser = generation.Chooser(
            used,
            Sampler(self.vocab_size, sampling),
            self.matcher(grammar) if grammar else None,
            ignore_eos,
        )
        try:
            yield from generation.tokens(used, ids, max_tokens, chooser, progress)
        finally:
            if not sequence:
                used.close()

    def stream(
        self, prompt, max_tokens: int = 256, *, stop: Items[str] = (), **options: Any
    ) -> Iterator[str]:
        """Yields the text of an answer in pieces, up to the first of the texts in `stop`. The other
        options are those of `tokens`."""
        pieces = self.vocab.stream(self.tokens(prompt, max_tokens, **options))
        return until(pieces, [stop] if isinstance(stop, str) else list(stop))

    def generate(self, prompt, max_tokens: int = 256, **options: Any) -> str:
        """The text of an answer: see `stream`."""
        return "".join(self.stream(prompt, max_tokens, **options))

    def chat(self, messages: Items[Message], max_tokens: int = 256, **options: Any) -> str:
        """The text of an answer to a conversation, which the model's chat template writes."""
        return self.generate(self.vocab.encode_chat(messages), max_tokens, **options)

    # ---- evaluation ----

    def evaluate(
        self,
        tasks: str,
        *,
        lengths: Items[int] = (),
        reference: "Engine | None" = None,
        progress: Callable[[str, int, int], None] | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Runs tasks, names or files separated by commas (docs/reference/tasks.md).

        `options` are members of skv_eval_options: count, depth_bins, max_new, scored, seed, prose,
        primer, no_template, log, resume. `reference` is a model to measure agreement with. Returns
        a dictionary for each task; the first of its "estimates" is the main metric. Give the engine
        KV memory for two contexts or more (kv_tokens).
        """
        given = options | dict(tasks=tasks)
        other = reference._handle if reference else None
        with self._lock:
            return _skv.evaluate(
                self._handle,
                self.vocab._handle,
                self.path,
                given,
                np.asarray(lengths, np.uintp),
                other,
                reference.path if reference else None,
                progress,
            )


def until(pieces: Iterator[str], stop: list[str]) -> Iterator[str]:
    """Pieces of text up to the first stop text, which is left out. What may begin one is held back
    until it is certain."""
    held = ""
    longest = max(map(len, stop), default=1)
    for piece in pieces:
        held += piece
        places = [held.find(text) for text in stop if text in held]
        if places:
            if min(places) > 0:
                yield held[: min(places)]
            return
        n_sure = len(held) - longest + 1
        if n_sure > 0:
            yield held[:n_sure]
            held = held[n_sure:]
    if held:
        yield held
