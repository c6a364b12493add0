"""The notebooks run: their code cells, in order, in a process of their own."""

import json
import subprocess
import sys

import pytest

from conftest import ROOT

FOLDER = ROOT / "python/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads(path.read_text())["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    assert not any(c.get("outputs") for c in cells), "a notebook is stored without outputs"
    words = [sys.executable, "-W", "error::DeprecationWarning", "-c", code]
    result = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    print(result.stdout)
