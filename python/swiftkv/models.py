"""Models on disk: what they are, the SwiftKV transform, quantising, training."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from . import _skv
from .hub import resolve

Path = str | os.PathLike[str]
TASKS = ("distill", "finetune", "scratch", "kvpred", "mtp")


def info(name: Path) -> dict[str, Any]:
    """What a model is, from its configuration: skv_model_info (include/skv/tools.h)."""
    return _skv.model_info(resolve(name))


def _files(data: Path | Iterable[Path]) -> list[str]:
    return [os.fspath(data)] if isinstance(data, (str, os.PathLike)) else list(map(os.fspath, data))


def transform(
    model: Path,
    out: Path,
    kv_layers: int,
    group: int = 1,
    *,
    data: Path | Iterable[Path] = (),
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Writes a model in SwiftKV form: prompts stop after kv_layers layers.

    With `data` (text, .jsonl or token ids) the projections are fitted by ridge regression, and the
    report says how well. `options` are other members of skv_transform_options.
    """
    given = options | dict(kv_layers=kv_layers, group=group)
    return _skv.transform(resolve(model), os.fspath(out), given, _files(data), progress)


def quantize(
    model: Path,
    out: Path,
    weights: str = "int4",
    group: int | None = None,
    *,
    data: Path | Iterable[Path] = (),
    threads: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Writes a model with weights of 4 or 8 bits. With `data` rounding is chosen by the errors of
    the products on that text."""
    given = dict(weights=weights, group=group, threads=threads)
    return _skv.quantize(resolve(model), os.fspath(out), given, _files(data), progress)


def train(
    model: Path,
    out: Path,
    *,
    task: str = "finetune",
    recipe: Path | None = None,
    data: Path | Iterable[Path] = (),
    resume: bool = False,
    on_step: Callable[[dict[str, Any]], None] | None = None,
    **keys: Any,
) -> None:
    """Trains and writes a model.

    `keys` are those of recipes, with _ for - (docs/reference/recipe.md): kv_layers=4, steps=100,
    lr=1e-3. `data` are files, "generate:TASKS" or "self:TOKENS". on_step(progress) gets a
    dictionary, skv_train_progress, after each step. If it raises, or at Ctrl-C, the run writes a
    checkpoint and stops; resume=True continues it.
    """
    if task not in TASKS:
        raise ValueError(f"task: {task!r}, expected one of {', '.join(TASKS)}")
    words = [(key.replace("_", "-"), _word(value)) for key, value in keys.items()]
    words += [("data", file) for file in _files(data)]
    given = os.fspath(recipe) if recipe is not None else None
    index = TASKS.index(task)
    _skv.train(index, resolve(model), os.fspath(out), given, words, resume, on_step)


def distill(model: Path, out: Path, kv_layers: int | None = None, **options: Any) -> None:
    """Recovers a SwiftKV model by distillation from its teacher: see `train`.

    `model` is an ordinary model with `kv_layers`, or a SwiftKV model that has its teacher.
    """
    given = {} if kv_layers is None else dict(kv_layers=kv_layers)
    train(model, out, task="distill", **given, **options)


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
