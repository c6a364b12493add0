"""What the tests share: small models of the repository."""

import os
import subprocess
from pathlib import Path

import pytest

import swiftkv

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "models/mini"
TEXT = "Once upon a time there was a king who had three sons and a golden bird."


@pytest.fixture(scope="session")
def mini():
    """models/mini/kv6: a SwiftKV model."""
    with swiftkv.Engine.open(MINI / "kv6", context=1024, kv_tokens=4096) as engine:
        yield engine


@pytest.fixture(scope="session")
def exact():
    """The same in f32 with every layer, with its teacher."""
    options = dict(weights="f32", no_skip=True, with_teacher=True, context=512, kv_tokens=2048)
    with swiftkv.Engine.open(MINI / "kv6", **options) as engine:
        yield engine


@pytest.fixture(scope="session")
def program():
    """Runs the program of the build, and returns what it prints."""
    path = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
    if not path.exists():
        pytest.skip(f"{path} is not built")

    def run(*words):
        command = [path, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return run
