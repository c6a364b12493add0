"""What changed since a commit, and which files read it, for the tools that look at that alone."""

import functools
import os
import re
import subprocess
from pathlib import Path

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)', re.M)


def changed_since(root, commit):
    """The files of the tree that differ from those of a commit, those that are gone too."""
    found = []
    for words in (("diff", "--name-only", commit, "--"), ("ls-files", "--others", "--exclude-standard")):
        found += subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return {os.path.join(root, name) for name in found}


@functools.lru_cache(maxsize=None)
def names_in(path):
    return INCLUDE.findall(Path(path).read_text(encoding="utf-8", errors="replace"))


@functools.lru_cache(maxsize=None)
def places(name, own, folders):
    """Where a name is looked for, up to the place where it is found."""
    out = []
    for folder in (own, *folders):
        out.append(os.path.normpath(os.path.join(folder, name)))
        if os.path.isfile(out[-1]):
            return out
    return out


def read_by(path, folder, words):
    """The paths that decide what a compiler reads for a file: every include line counts, whichever system or
    processor it is for, and so does a place where a header would hide another. The compiler runs `words` in the folder."""
    folders = tuple(os.path.join(folder, word[2:]) for word in words if word.startswith("-I"))
    seen, todo = {path}, [path]
    while todo:
        at = todo.pop()
        for name in names_in(at):
            for place in places(name, os.path.dirname(at), folders):
                if place not in seen:
                    seen.add(place)
                    todo += [place] if os.path.isfile(place) else []
    return seen
