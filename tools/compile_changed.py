#!/usr/bin/env python3
"""Compiles the files of a configured build that read something which changed since a commit, and links nothing.

    tools/compile_changed.py --build DIR --since COMMIT [OPTION ...]

The commands are those of DIR/compile_commands.json, with more options where some are given. Sources that the build
has made from other files are left out.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from changes import changed_since, read_by

ROOT = Path(__file__).resolve().parents[1]


def commands(build):
    """(path, folder, words) of the files of the tree."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if not Path(path).is_relative_to(build):
            yield path, entry["directory"], shlex.split(entry["command"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--since", metavar="COMMIT", required=True)
    options, more = parser.parse_known_args()
    changed = changed_since(options.root.resolve(), options.since)
    every = list(commands(options.build.resolve()))
    chosen = [one for one in every if not changed.isdisjoint(read_by(*one))]

    with tempfile.TemporaryDirectory() as scratch:
        def run(numbered):
            i, (path, folder, words) = numbered
            at = words.index("-o")
            words = [*words[:at], *more, "-o", f"{scratch}/{i}.o", *words[at + 2:]]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{path}\n{done.stdout}{done.stderr}", flush=True)
            return done.returncode == 0

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            good = all(list(pool.map(run, enumerate(chosen))))
    print(f"compile_changed: {len(every)} files, {len(chosen)} compiled")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
