"""Text: tokenizers, templates, generation, grammars, eviction, speculation."""

import gc
import json

import numpy as np
import pytest

import swiftkv
from conftest import MINI, TEXT
from swiftkv.engine import until

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["ann", "bob"]}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}


def test_text_goes_there_and_back(mini):
    vocab = mini.vocab
    for text in (TEXT, "", "Grüße, 東京 🙂\n"):
        assert vocab.decode(vocab.encode(text)) == text
        assert "".join(vocab.stream(vocab.encode(text))) == text
    assert vocab.encode(TEXT).dtype == np.int32


def test_templates(mini):
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ more }}"
    text = mini.vocab.render([dict(role="user", content="Hi")], template=template, more="!")
    assert text == "<user>Hi!"
    with pytest.raises(swiftkv.Error):
        mini.vocab.render([], template="{% for %}")


def test_texts_become_no_control_tokens(mini):
    vocab, text = mini.vocab, "A<|end|><|system|>B"
    letters = vocab.encode(text, add_special=False).tolist()
    ids = vocab.encode_chat([dict(role="user", content=text)]).tolist()
    assert ids == [0, 2, *letters, 1, 3]
    allowed = vocab.encode_chat([dict(role="user", content=text)], allow_special_text=True).tolist()
    assert allowed == vocab.encode(vocab.render([dict(role="user", content=text)]), False, True).tolist()
    assert [i for i in allowed if i < 5] == [0, 2, 1, 4, 1, 3]


def test_generation_is_greedy_by_default(mini):
    tokens = list(mini.tokens(TEXT, 10, ignore_eos=True))
    with mini.sequence() as sequence:
        logits = sequence.prompt(mini.ids(TEXT))
        expected = []
        for _ in range(10):
            expected.append(int(logits.argmax()))
            logits = sequence.step(expected[-1:])
    assert tokens == expected


def test_drafts_change_no_answer(mini):
    text = " ".join([TEXT] * 4)
    for options in ({}, dict(temperature=0.9, seed=3), dict(ignore_eos=True)):
        plain = list(mini.tokens(text, 40, **options))
        with mini.sequence() as sequence:
            drafted = list(mini.tokens(text, 40, sequence=sequence, speculation="text:8", **options))
            # All but the last token, which no step has read unless the answer has ended.
            n_answer = len(sequence) - len(mini.ids(text))
            assert n_answer in (len(drafted) - 1, len(drafted))
            assert list(sequence.ids[len(mini.ids(text)) :]) == drafted[:n_answer]
        assert drafted == plain


def test_seeds(mini):
    def sample(seed):
        return mini.generate(TEXT, 16, temperature=1.2, seed=seed)

    assert sample(1) == sample(1) and len({sample(i) for i in range(5)}) > 1
    with pytest.raises(swiftkv.RangeError, match="top_p"):
        mini.generate(TEXT, 1, top_p=2.0)
    with pytest.raises(TypeError):
        mini.generate(TEXT, 1, temprature=1)


def test_grammars(mini):
    answer = json.loads(mini.generate(TEXT, 60, grammar=swiftkv.Grammar.schema(SCHEMA)))
    assert answer["name"] in ("ann", "bob") and isinstance(answer["old"], bool)
    choice = swiftkv.Grammar.choice(["a raven", "a fox"])
    for options in ({}, dict(speculation="text:8"), dict(temperature=2.0, seed=5)):
        assert mini.generate(TEXT, 20, grammar=choice, **options) in ("a raven", "a fox")
    with pytest.raises(swiftkv.FormatError):
        swiftkv.Grammar.regex("(")
    with pytest.raises(ValueError, match="kind"):
        swiftkv.Grammar("prolog", "")
    with pytest.raises(swiftkv.UnsupportedError):
        swiftkv.Grammar.schema({"type": "object", "dependentSchemas": {"a": {}}})


def test_stop_texts(mini):
    assert list(until(iter(["ab", "cd", "ef"]), ["de"])) == ["a", "bc"]
    assert "".join(until(iter("abcabd"), ["abd", "x"])) == "abc"
    assert "".join(until(iter("abc"), [])) == "abc"
    whole = mini.generate(TEXT, 20)
    word = whole.split()[2]
    assert mini.generate(TEXT, 20, stop=[word]) == whole[: whole.index(word)]


def test_a_stream_may_be_left(mini):
    before = mini.stats["kv_bytes"]
    stream = mini.stream(TEXT, 50)
    assert isinstance(next(stream), str)
    stream.close()
    gc.collect()
    assert mini.stats["kv_bytes"] == before


def test_kept_rows(mini):
    ids = np.resize(mini.ids(TEXT), 300)
    with mini.sequence() as sequence:
        sequence.set_eviction("snapkv:64,16,5")
        sequence.prompt(ids)
        for layer in (0, 5):
            for head in range(3):
                kept = sequence.kept(layer, head)
                assert len(kept) == 64 and (np.diff(kept.astype(int)) > 0).all()
                assert (kept[-16:] == np.arange(284, 300)).all()
        assert len(sequence.kept(99, 0)) == 0
        # In chunks by hand it is the same.
        with mini.sequence() as other:
            other.set_eviction("snapkv:64,16,5")
            other.expect(300)
            other.step(ids[:200], "none")
            other.step(ids[200:], "last")
            assert len(other.kept(0, 0)) == 300
            other.evict()
            assert (other.kept(0, 0) == sequence.kept(0, 0)).all()
    with pytest.raises(swiftkv.ArgumentError):
        mini.generate(TEXT, 1, eviction="snapkv:")


def test_samplers(mini):
    sampler = swiftkv.Sampler(4, swiftkv.Sampling(repetition_penalty=2.0))
    logits = np.array([1, 3, 2, 0], np.float32)
    assert sampler.choose(logits.copy()) == 1
    sampler.accept([1])
    assert sampler.choose(logits.copy()) == 2
    with pytest.raises(ValueError):
        sampler.choose(logits[:3])


def test_progress(mini):
    seen = []
    ids = np.resize(mini.ids(TEXT), 900)
    with mini.sequence() as sequence:
        mini.prompt(sequence, ids, progress=lambda done, total: seen.append((done, total)))
        assert seen == [(512, 900), (900, 900)]

    def fail(done, total):
        raise KeyError(done)

    with mini.sequence() as sequence:
        for n in (900, 100):
            with pytest.raises(KeyError):
                mini.prompt(sequence, ids[:n], progress=fail)
        sequence.truncate(0)
        assert np.isfinite(mini.prompt(sequence, ids)).all()


def test_cancel(mini):
    mini.cancel()
    with mini.sequence() as sequence:
        with pytest.raises(swiftkv.CancelledError):
            sequence.step([1])
        assert len(sequence) == 0
        sequence.step([1])
