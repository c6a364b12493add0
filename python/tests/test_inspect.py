"""Keys and values, attention weights and eviction by one's own scores, against numpy and against the built-in methods."""

import json

import numpy as np
import pytest

import swiftkv
from conftest import MINI, ROOT, TEXT
from plain_model import PlainModel
from test_engine import log_softmax

MODELS = ROOT / "tests/data/models"
IDS = np.array([(i * i * 7 + 3 * i) % 85 + 3 for i in range(70)], np.int32)
# Norms of queries and keys; biases and windows of 8 tokens in some layers; these with a cap on scores.
NAMES = ["qwen3-v5", "qwen2-window", "gemma2"]


def open_exact(name, **options):
    return swiftkv.Engine.open(MODELS / name, weights="f32", kv="f32", context=128, kv_tokens=512, step_tokens=64, **options)


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_model_is_the_published_one(name):
    """As transformers has computed it."""
    golden = json.loads((MODELS / name / "golden.json").read_text())
    assert golden["source"].startswith("transformers")
    for case in golden["cases"]:
        ids = np.array(case["ids"])
        rows, _ = PlainModel(MODELS / name).run(ids)
        np.testing.assert_allclose(rows[np.arange(len(ids) - 1), ids[1:]], case["logprobs"][1:], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_attention(name):
    _, expected = PlainModel(MODELS / name).run(IDS)
    with open_exact(name) as engine, engine.sequence() as sequence:
        sequence.step(IDS[:60], "none")
        found = engine.attention(sequence, IDS[60:])
        assert found.shape == (len(expected), 10, 4, 70)
        for layer, wanted in enumerate(expected):
            np.testing.assert_allclose(found[layer], wanted.weights[:, 60:].swapaxes(0, 1), atol=1e-5)
        assert len(sequence) == 70


@pytest.mark.parametrize("name", NAMES)
def test_keys_and_values(name):
    model = PlainModel(MODELS / name)
    _, expected = model.run(IDS)
    with open_exact(name) as engine, engine.sequence() as sequence:
        engine.prompt(sequence, IDS)
        for layer, wanted in enumerate(expected):
            shape = sequence.kv_shape(layer)
            assert shape == (2, 4, model.size, layer, model.window(layer))
            for head in range(2):
                rows = sequence.kept(layer, head)
                assert rows.tolist() == list(range(rows[0], 70)) and (shape.window or rows[0] == 0)
                keys, values = sequence.keys_values(layer, head)
                np.testing.assert_allclose(keys, wanted.keys[head, rows], atol=1e-4)
                np.testing.assert_allclose(values, wanted.values[head, rows], atol=1e-4)


def test_later_tokens_see_what_is_kept():
    """The model with the other columns masked."""
    kept, n = np.array([0, 3, 4, 17, 30, 41, 58, 59], np.uintp), 60
    mask = np.ones((70, 70), bool)
    mask[n:, [i for i in range(n) if i not in kept]] = False
    rows, layers = PlainModel(MODELS / "qwen3-v5").run(IDS, mask)
    with open_exact("qwen3-v5") as engine, engine.sequence() as sequence:
        engine.prompt(sequence, IDS[:n])
        sequence.keep({(layer, head): kept for layer in range(4) for head in range(2)})
        assert (sequence.kept(1, 1) == kept).all()
        found = log_softmax(sequence.step(IDS[n:65], "all"))
        np.testing.assert_allclose(found, rows[n:65], atol=1e-4)
        weights = engine.attention(sequence, IDS[65:])
        for layer, wanted in enumerate(layers):
            np.testing.assert_allclose(weights[layer], wanted.weights[:, 65:].swapaxes(0, 1), atol=1e-5)


@pytest.mark.parametrize("name, own", [("llama3-v5", False), ("qwen2-swiftkv-g2", True)])
def test_own_scores_as_snapkv(name, own):
    """SnapKV without pooling, written here: the sum over the window's queries and a KV head's query heads."""
    window, capacity = 8, 24
    with open_exact(name, no_skip=own) as engine, engine.sequence() as built_in, engine.sequence() as sequence:
        built_in.set_eviction(f"snapkv:{capacity},{window},1")
        engine.prompt(built_in, IDS)
        sequence.step(IDS[:-window], "none")
        weights = engine.attention(sequence, IDS[-window:])
        called = []

        def score(layer, head, keys, values, positions):
            called.append((layer, head))
            assert keys.shape == values.shape == (len(positions), sequence.kv_shape(layer).head_size)
            readers = [i for i in range(len(weights)) if sequence.kv_shape(i).slot == sequence.kv_shape(layer).slot]
            group = weights.shape[2] // sequence.kv_shape(layer).heads
            return sum(weights[i, :, head * group : (head + 1) * group, positions].sum((1, 2)) for i in readers)

        sequence.evict_by(score, capacity, window)
        layers = len(weights)
        slots = {sequence.kv_shape(layer).slot for layer in range(layers)}
        assert sorted(set(called)) == sorted(called) and len(called) == 2 * len(slots)
        for layer in range(layers):
            for head in range(2):
                np.testing.assert_array_equal(sequence.kept(layer, head), built_in.kept(layer, head))
        assert sequence.kv_bytes == built_in.kv_bytes
        np.testing.assert_array_equal(sequence.step([5], "last"), built_in.step([5], "last"))


def test_own_scores_by_position():
    """The last rows alone; windows keep what they see, and short sequences lose nothing."""
    with open_exact("gemma2") as engine, engine.sequence() as sequence:
        engine.prompt(sequence, IDS)
        layers = swiftkv.info(MODELS / "gemma2")["layers"]
        windowed = [layer for layer in range(layers) if sequence.kv_shape(layer).window]
        assert 0 < len(windowed) < layers
        called = set()

        def latest(layer, head, keys, values, positions):
            called.add(layer)
            return positions

        sequence.evict_by(latest, 80)
        assert not called
        sequence.evict_by(latest, 20, window=4)
        assert called == set(range(layers)) - set(windowed)
        for layer in range(layers):
            expected = range(50, 70) if layer in called else sequence.kept(layer, 0)
            assert sequence.kept(layer, 0).tolist() == list(expected)
        weights = engine.attention(sequence, [7])
        assert not weights[sorted(called), 0, :, :50].any() and weights[sorted(called), 0, :, 50:].all()


def test_what_is_refused():
    with open_exact("gemma2") as engine, engine.sequence() as sequence:
        engine.prompt(sequence, IDS)
        windowed = next(layer for layer in range(8) if sequence.kv_shape(layer).window)
        with pytest.raises(swiftkv.UnsupportedError, match="sliding window"):
            sequence.keep({(windowed, 0): [1]})
        full = next(layer for layer in range(8) if not sequence.kv_shape(layer).window)
        with pytest.raises(swiftkv.ArgumentError, match="ascending"):
            sequence.keep({(full, 0): [5, 1]})
        with pytest.raises(swiftkv.ArgumentError, match="has no head"):
            sequence.keys_values(full, 99)
        with pytest.raises(IndexError):
            sequence.kv_shape(99)
        with pytest.raises(IndexError):
            sequence.keys_values(-1, 0)
        with pytest.raises(ValueError, match="scores"):
            sequence.evict_by(lambda *_: np.zeros(3), 20, window=4)
        with pytest.raises(ValueError, match="window"):
            sequence.evict_by(lambda *_: None, 20, window=20)
        assert len(sequence.kept(full, 0)) == 70
        with open_exact("qwen3-v5") as other, pytest.raises(ValueError, match="another engine"):
            other.attention(sequence, [5])
    pruned = dict(pruning="random:0.5")
    with open_exact("llama3-v5", **pruned) as engine, engine.sequence() as sequence:
        with pytest.raises(swiftkv.UnsupportedError, match="prune random"):
            engine.attention(sequence, IDS[:4])
        with pytest.raises(swiftkv.UnsupportedError, match="prune random"):
            sequence.keep({(0, 0): [1]})


def test_rows_of_8_bits():
    """Keys of 8 bits come as the numbers that they stand for."""
    exact = open_exact("qwen3-v5")
    rough = swiftkv.Engine.open(MODELS / "qwen3-v5", weights="f32", kv="int8", context=128, kv_tokens=512)
    with exact, rough, exact.sequence() as a, rough.sequence() as b:
        a.step(IDS[:60], "none")
        b.step(IDS[:60], "none")
        for found, wanted in zip(b.keys_values(0, 1), a.keys_values(0, 1)):
            error = np.abs(found - wanted).max(1)
            assert (error > 0).any() and (error <= np.abs(wanted).max(1) / 100).all()


def test_methods_that_keep_tokens_from_layers():
    """Their caches can be read and cut, but not all layers run for all tokens."""
    for name, options, words in (("kvpred", {}, "never runs the prompt"), ("kv6", dict(early_exit=0.5), "every layer")):
        with swiftkv.Engine.open(MINI / name, weights="f32", context=256, kv_tokens=512, **options) as engine, engine.sequence() as sequence:
            engine.prompt(sequence, engine.ids(TEXT))
            n = len(sequence)
            with pytest.raises(swiftkv.UnsupportedError, match=words):
                engine.attention(sequence, [5])
            assert len(sequence) == n
            keys, values = sequence.keys_values(0, 0)
            assert np.isfinite(keys).all() and len(keys) == len(values) == n
            sequence.evict_by(lambda layer, head, keys, values, positions: positions, 8, window=4)
            assert sequence.kept(0, 0).tolist() == list(range(n - 8, n))
            assert np.isfinite(sequence.step([5], "last")).all()
