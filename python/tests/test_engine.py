"""Engines, steps and arrays."""

import gc
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import swiftkv
from conftest import MINI, TEXT


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_open_says_what_it_opened(mini):
    assert mini.stats["prefill"] == "swiftkv" and mini.stats["swiftkv"]
    assert (mini.vocab_size, mini.hidden_size) == (3072, 192)
    assert "kv6" in repr(mini) and "swiftkv" in repr(mini)
    assert swiftkv.info(MINI / "kv6")["swiftkv_layers"] == 6
    assert mini.eos and mini.vocab.size <= mini.vocab_size


def test_options_are_checked():
    with pytest.raises(TypeError, match="unknown option \"weight\""):
        swiftkv.Engine.open(MINI / "base", weight="int4")
    with pytest.raises(swiftkv.ArgumentError, match="weights: \"int3\""):
        swiftkv.Engine.open(MINI / "base", weights="int3")
    with pytest.raises(swiftkv.ArgumentError, match="eviction"):
        swiftkv.Engine.open(MINI / "base", eviction="snapkv:none")
    with pytest.raises(OverflowError):
        swiftkv.Engine.open(MINI / "base", threads=-1)
    seen = []
    swiftkv.Engine.open(MINI / "base", weights="int4", threads=1, progress=seen.append).close()
    assert seen and seen[-1] <= 1


def test_progress_may_raise():
    def fail(share):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        swiftkv.Engine.open(MINI / "base", progress=fail)


def test_steps_agree_with_score(exact):
    ids = exact.ids(TEXT)
    logprobs, argmax = exact.score(ids)
    with exact.sequence() as sequence:
        rows = sequence.step(ids, "all")
    assert rows.shape == (len(ids), exact.vocab_size) and rows.dtype == np.float32
    assert np.isnan(logprobs[0])
    mine = log_softmax(rows)[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(mine, logprobs[1:], atol=1e-5)
    assert (rows.argmax(1) == argmax).all()


def test_chunks_and_batches_agree(exact):
    ids = exact.ids(TEXT)
    with exact.sequence() as whole, exact.sequence() as parts, exact.sequence() as other:
        expected = whole.prompt(ids)
        assert parts.step(ids[:5], "none") is None
        first, last = exact.step([(other, ids[:7], "last"), (parts, ids[5:], "last")])
        assert len(parts) == len(ids) and (parts.ids == ids).all()
        np.testing.assert_allclose(last, expected, atol=1e-3)
        assert first.shape == (exact.vocab_size,)


def test_hidden_states(exact):
    ids = exact.ids(TEXT)
    with exact.sequence() as a, exact.sequence() as b, exact.sequence() as c:
        final = a.step(ids, "all_hidden")
        assert final.shape == (len(ids), exact.hidden_size)
        np.testing.assert_allclose(b.step(ids, "last_hidden"), final[-1], atol=1e-4)
        states = exact.hidden_states(c, ids)
    assert states.shape == (13, len(ids), exact.hidden_size)
    assert np.isfinite(states).all() and states.std((1, 2)).min() > 0
    assert exact.similarity(ids).shape == (11,)


def test_arrays_are_the_callers(mini):
    """An array never changes, also when its sequence and its engine are gone."""
    engine = swiftkv.Engine.open(MINI / "kv6", context=256)
    sequence = engine.sequence()
    first = sequence.step(engine.ids(TEXT), "last")
    before = first.copy()
    for token in (5, 6, 7):
        assert not np.shares_memory(sequence.step([token]), first)
    engine.close()
    del sequence, engine
    gc.collect()
    assert (first == before).all()


def test_out_is_written_in_place(mini):
    out = np.empty(mini.vocab_size, np.float32)
    with mini.sequence() as sequence:
        assert sequence.step(mini.ids(TEXT), out=out) is out
        before = out.copy()
        sequence.step([5], out=out)
        assert (out != before).any()
        for wrong in (out[:-1], out.astype(np.float64), np.empty((2, mini.vocab_size), "f4")):
            with pytest.raises(ValueError, match="out"):
                sequence.step([5], out=wrong)
        out.flags.writeable = False
        with pytest.raises((ValueError, BufferError)):
            sequence.step([5], out=out)
        assert len(sequence) == len(mini.ids(TEXT)) + 1


def test_a_failed_step_changes_nothing(mini):
    with mini.sequence(max_tokens=8) as sequence:
        sequence.step([1, 2, 3], "none")
        with pytest.raises(swiftkv.FullError) as caught:
            sequence.step(range(6))
        assert caught.value.status == 7 and len(sequence) == 3
        with pytest.raises(swiftkv.RangeError, match="vocabulary has 3072"):
            sequence.step([3072])
        with pytest.raises(swiftkv.ArgumentError):
            mini.step([(sequence, [1], "none"), (sequence, [2], "none")])
        with pytest.raises(ValueError, match="want"):
            sequence.step([1], "everything")
        with pytest.raises(TypeError):
            sequence.step([0.5])
        with pytest.raises(swiftkv.ArgumentError):
            sequence.step([])
        assert len(sequence) == 3


def test_sequences_can_be_cut_and_shared(mini):
    ids = mini.ids(TEXT)
    with mini.sequence() as a, mini.sequence() as b:
        a.step(ids, "none")
        assert a.truncate(4) == 4 and len(a) == 4
        b.share(a)
        assert (b.ids == ids[:4]).all() and b.kv_bytes > 0
        with pytest.raises(ValueError):
            a.truncate(5)
    assert "closed" in repr(a)


def test_closed_objects_raise(tmp_path):
    engine = swiftkv.Engine.open(MINI / "kv6", context=256)
    sequence = engine.sequence()
    engine.close()
    engine.close()
    assert "closed" in repr(engine)
    for use in (lambda: engine.stats, lambda: len(sequence), lambda: engine.score("a b"),
                lambda: engine.sequence(), lambda: sequence.step([1])):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_sequence_keeps_its_engine_alive():
    sequence = swiftkv.Engine.open(MINI / "kv6", context=256).sequence()
    gc.collect()
    assert sequence.step([1, 2]).shape == (3072,)


def test_the_teacher_runs_beside_its_student(exact):
    ids = exact.ids(TEXT)
    with exact.sequence() as student, exact.sequence(prefill="teacher") as teacher:
        a, b = exact.step([(student, ids, "last"), (teacher, ids, "last")])
    assert 0 < np.abs(a - b).max()
    with pytest.raises(ValueError, match="unknown method"):
        exact.sequence(prefill="other")


def test_the_gil_is_released():
    """The main thread goes on while an engine works in another: it comes in time to cancel."""
    with swiftkv.Engine.open(MINI / "kv6", threads=1) as engine:
        ids = np.resize(engine.ids(TEXT), 8000)
        started, caught = threading.Event(), []

        def work():
            started.set()
            try:
                engine.score(ids)
            except swiftkv.CancelledError as error:
                caught.append(error)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        started.wait()
        time.sleep(0.05)
        engine.cancel()
        worker.join()
    assert caught and caught[0].status == 8


def test_engines_run_in_several_threads(mini):
    """Two engines at once, and one engine from several threads: the same as alone."""
    expected = mini.generate(TEXT, 12)
    engines = [mini, swiftkv.Engine.open(MINI / "kv6", context=512, threads=1)] * 2
    results = [None] * 4

    def run(i):
        results[i] = engines[i].generate(TEXT, 12)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engines[1].close()
    assert results == [expected] * 4


def resident_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_opens_leak_nothing():
    def use():
        with swiftkv.Engine.open(MINI / "kv6", context=128, threads=1) as engine:
            engine.sequence().step([1, 2, 3], "all")
            try:
                engine.sequence(max_tokens=1).step([1, 2])
            except swiftkv.FullError:
                pass

    for _ in range(20):
        use()
    before = resident_kib()
    for _ in range(200):
        use()
    assert resident_kib() - before < 8 << 10
