"""Names of models: paths, presets, and `org/name[@revision]` in the Hugging Face cache."""

import os
from pathlib import Path

from .errors import InputOutputError


def cache_folder() -> Path:
    """The cache: HF_HUB_CACHE, or hub/ in HF_HOME, or ~/.cache/huggingface/hub."""
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def resolve(name: str | os.PathLike[str]) -> str:
    """The path of a model.

    `name` is a folder, a GGUF file, "preset:NAME" or "org/name[@revision]". A name is looked up in
    the cache only: nothing is downloaded (`swiftkv info org/name --download` does that).
    """
    text = os.fspath(name)
    if text.startswith("preset:") or os.path.exists(text):
        return text
    repository, _, revision = text.partition("@")
    parts = repository.split("/")
    if len(parts) != 2 or not all(parts) or parts[0].startswith((".", "~")):
        raise InputOutputError(f"{text}: there is no such file or folder")
    folder = cache_folder() / ("models--" + "--".join(parts))
    revision = revision or "main"
    reference = folder / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    if not snapshot.is_dir():
        raise InputOutputError(
            f"{text}: neither a path nor a model of the cache {cache_folder()}"
        )
    if (snapshot / "config.json").exists():
        return str(snapshot)
    files = sorted(snapshot.glob("*.gguf"))
    if len(files) != 1:
        raise InputOutputError(f"{snapshot}: {len(files)} GGUF files and no config.json")
    return str(files[0])
