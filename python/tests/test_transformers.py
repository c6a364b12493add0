"""What transformers says of the same files: as tests/data has it, in float64, and by itself where it is installed."""

import json

import numpy as np
import pytest

import swiftkv
from conftest import ROOT
from test_engine import log_softmax

MODELS = ROOT / "tests/data/models"
RECORDED = sorted(
    path.parent.name
    for path in MODELS.glob("*/golden.json")
    if json.loads(path.read_text())["source"].startswith("transformers")
)


def open_exact(folder):
    file = folder / "model.gguf"
    options = dict(weights="f32", kv="f32", no_skip=True, context=128, kv_tokens=512)
    return swiftkv.Engine.open(file if file.exists() else folder, **options)


@pytest.mark.parametrize("name", RECORDED)
def test_as_recorded(name):
    golden = json.loads((MODELS / name / "golden.json").read_text())
    with open_exact(MODELS / name) as engine:
        for case in golden["cases"]:
            ids = np.array(case["ids"], np.int32)
            with engine.sequence(len(ids) + len(case["greedy"])) as sequence:
                rows = log_softmax(sequence.step(ids, "all"))
                found = rows[np.arange(len(ids) - 1), ids[1:]]
                np.testing.assert_allclose(found, case["logprobs"][1:], atol=1e-3)
                greedy = [int(rows[-1].argmax())]
                while len(greedy) < len(case["greedy"]):
                    greedy.append(int(sequence.step(greedy[-1:], "last").argmax()))
            assert greedy == case["greedy"] or case["margin"] < 1e-2


@pytest.mark.parametrize("name", ["llama3-v5", "qwen2", "smollm3", "qwen3-moe-v5"])
def test_as_computed(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = MODELS / name
    ids = json.loads((folder / "golden.json").read_text())["cases"][-1]["ids"]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    with open_exact(folder) as engine, engine.sequence(len(ids)) as sequence:
        found = sequence.step(ids, "all")
    np.testing.assert_allclose(log_softmax(found), log_softmax(expected), atol=1e-3)
