"""Models on disk: transform, distil, quantise, evaluate; names in the cache."""

import json
import subprocess
import sys

import pytest

import swiftkv
from conftest import MINI, TEXT

TRAINING = dict(data="generate:lines", seq=64, rows=2, threads=2)


def test_transform_and_distill(tmp_path):
    student, out = tmp_path / "student", tmp_path / "recovered"
    swiftkv.transform(MINI / "base", student, kv_layers=2)
    assert swiftkv.info(student)["swiftkv_layers"] == 2
    steps = []
    swiftkv.distill(student, out, steps=3, lr=1e-3, on_step=steps.append, **TRAINING)
    assert [s["step"] for s in steps] == [1, 2, 3] and all(s["loss"] > 0 for s in steps)
    with swiftkv.Engine.open(out, context=512, kv_tokens=2048) as engine:
        assert engine.generate(TEXT, 4)


def test_a_run_stops_and_goes_on(tmp_path):
    steps = []

    def stop(progress):
        steps.append(progress["step"])
        if progress["step"] == 2:
            raise RuntimeError("enough")

    run = dict(kv_layers=2, steps=4, on_step=stop, **TRAINING)
    with pytest.raises(RuntimeError, match="enough"):
        swiftkv.distill(MINI / "base", tmp_path / "out", **run)
    swiftkv.distill(MINI / "base", tmp_path / "out", resume=True, **run)
    assert steps == [1, 2, 3, 4]


def test_training_options_are_checked(tmp_path):
    with pytest.raises(swiftkv.Error, match="stepz"):
        swiftkv.distill(MINI / "base", tmp_path / "out", stepz=1)
    with pytest.raises(ValueError, match="task"):
        swiftkv.train(MINI / "base", tmp_path / "out", task="dream")


def test_ridge(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join([TEXT] * 200))
    shares = []
    report = swiftkv.transform(
        MINI / "base", tmp_path / "out", 4, data=text, seq=64, progress=shares.append
    )
    assert report["ridge_error"] < report["copied_error"] and 0 < shares[-1] <= 1


def test_quantize(tmp_path):
    report = swiftkv.quantize(MINI / "base", tmp_path / "out", "int8", 32)
    assert report["n_quantized"] > 0 and report["error"] < 1e-3
    with swiftkv.Engine.open(tmp_path / "out", context=128) as engine:
        assert engine.stats["weights"] == "file"


def test_evaluate_is_the_programs(mini, program):
    """The same metrics as `swiftkv eval`."""
    seen = []
    mine = mini.evaluate("lines,kv", lengths=[128], count=6, progress=lambda *a: seen.append(a))
    words = ["eval", MINI / "kv6", "--task", "lines,kv", "--lengths", 128, "--count", 6, "--json"]
    theirs = json.loads(program(*words, "--ctx", 1024))
    assert seen[-1] == ("kv", 6, 6)
    for task, other in zip(mine, theirs["tasks"], strict=True):
        main = task["estimates"][0]
        assert main["value"] == pytest.approx(other["metrics"][main["name"]]["value"], abs=1e-6)


def test_names_of_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--tales--mini"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc123")
    (folder / "snapshots").mkdir()
    (folder / "snapshots/abc123").symlink_to(MINI / "base")
    assert swiftkv.resolve("tales/mini") == str(folder / "snapshots/abc123")
    assert swiftkv.resolve("tales/mini@abc123") == swiftkv.resolve("tales/mini")
    assert swiftkv.info("tales/mini")["layers"] == 12
    for name in ("tales/other", "tales/mini@v2", "a/b/c", "../mini", "mini"):
        with pytest.raises(swiftkv.InputOutputError):
            swiftkv.resolve(name)


def test_broken_models(tmp_path):
    with pytest.raises(swiftkv.Error):
        swiftkv.Engine.open(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(swiftkv.FormatError, match="config.json") as caught:
        swiftkv.Engine.open(tmp_path)
    assert isinstance(caught.value, ValueError) and caught.value.status == 2


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import swiftkv

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored below a shell's background job
engine = swiftkv.Engine.open(sys.argv[1], context=8192, threads=1)
ids = np.resize(engine.ids("Once upon a time there was a king."), 8000)


def interrupt_in(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()


def score():
    engine.score(ids)


def prompt():
    engine.prompt(engine.sequence(), ids)


def generate():
    for _ in engine.tokens("Once upon a time", 8000, ignore_eos=True):
        pass


def train():
    swiftkv.distill(sys.argv[1] + "/../base", sys.argv[2], kv_layers=4, steps=10**6,
                    data="generate:lines", seq=64, rows=1)


for call in (score, prompt, generate, train):
    try:
        interrupt_in(0.3)
        call()
        print("finished", call.__name__)
    except KeyboardInterrupt:
        print("interrupted", call.__name__)
    assert engine.generate("Once", 3)
"""


def test_ctrl_c(tmp_path):
    words = [sys.executable, "-c", INTERRUPTED, MINI / "kv6", tmp_path / "out"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    calls = ("score", "prompt", "generate", "train")
    assert result.stdout.split("\n")[:4] == [f"interrupted {call}" for call in calls]
