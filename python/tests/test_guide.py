"""The examples of docs/guides/python.md, one after the other, as a reader runs them."""

import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/repository"))

import docs_blocks  # noqa: E402

GUIDE = docs_blocks.Page(ROOT / "docs/guides/python.md")


def test_examples(tmp_path, monkeypatch, capsys):
    """In a folder that has what the repository has, with steps and counts that take seconds."""
    for name in ("models", "recipes"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    examples = [block for block in GUIDE.blocks if block.language == "python"]
    assert len(examples) >= 6
    for block in examples:
        try:
            exec(compile(block.text(str(tmp_path / "out")), str(block), "exec"), names)  # noqa: S102
        except Exception as error:
            pytest.fail(f"{block}: {type(error).__name__}: {error}")
    assert (names["weights"].shape[1], names["weights"].shape[3]) == (8, 400)
    assert len(names["sequence"].kept(3, 0)) == 65
    names["engine"].close()
    capsys.readouterr()
