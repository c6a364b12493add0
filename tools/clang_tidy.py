#!/usr/bin/env python3
"""Runs clang-tidy over src and cli on every processor, the slowest files first.

    tools/clang_tidy.py [--root DIR] [--build DIR] [--all | --since COMMIT]

A file without findings is not analysed again as long as nothing changes that decides about them: its
text and that of every header it includes, its commands in compile_commands.json, .clang-tidy, and the
version of clang-tidy. DIR/clang-tidy keeps that, and the time of each file. --all analyses every file.
With --since, a file is not analysed either if git knows no change since that commit in what it reads.
"""

import argparse
import functools
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from changes import changed_since, read_by

ROOT = Path(__file__).resolve().parents[1]
LAUNCHERS = ("ccache", "sccache")
EXTRA = "--extra-arg=-Wno-unknown-warning-option"


def sources(root):
    """What can be compiled for this processor and this system: the stage `macos` compiles the rest."""
    foreign = root / "src/engine/kernels" / ("x86" if platform.machine() == "aarch64" else "arm")
    systems = {root / "src/base" / f"system_{name}.c" for name in ("macos", "freebsd")}
    found = [path for folder in ("src", "cli") for path in (root / folder).rglob("*.c")]
    return sorted(path for path in found if foreign not in path.parents and path not in systems)


def commands(build):
    """The commands of each file: path -> [(folder, words)]"""
    out = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        while os.path.basename(words[0]) in LAUNCHERS:
            words.pop(0)
        out.setdefault(Path(entry["directory"], entry["file"]), []).append((entry["directory"], words))
    return out


@functools.lru_cache(maxsize=None)
def digest_of(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def read_files(folder, words):
    """The file and all that it includes, as clang finds them; None if it cannot tell."""
    at = words.index("-o")
    listed = subprocess.run(["clang", *words[1:at], *words[at + 2:], "-w", "-M", "-MT", "x", "-MF", "-"],
                            cwd=folder, capture_output=True, text=True, check=False)
    if listed.returncode:
        return None
    names = shlex.split(listed.stdout.split(":", 1)[1].replace("\\\n", " "))
    return sorted({os.path.join(folder, name) for name in names})


def key_of(of_file, common):
    """What decides about the findings in a file; None where that is not known."""
    key = hashlib.sha256(common)
    for folder, words in of_file:
        paths = read_files(folder, words)
        if paths is None:
            return None
        for part in (folder, *words, *paths, *map(digest_of, paths)):
            key.update(part.encode() + b"\0")
    return key.hexdigest() if of_file else None


class Checker:
    def __init__(self, root, build, every, since=None):
        self.root, self.build, self.every = root, build, every
        self.changed = changed_since(root, since) if since else None
        self.marks = build / "clang-tidy"
        self.marks.mkdir(exist_ok=True)
        self.commands = commands(build)
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        self.common = version + (root / ".clang-tidy").read_bytes()

    def mark(self, path):
        return self.marks / (str(path.relative_to(self.root)).replace("/", "+") + ".json")

    def known(self, path):
        """What is known from the last time: {"key", "seconds"}"""
        try:
            return json.loads(self.mark(path).read_text())
        except (OSError, ValueError):
            return {"key": None, "seconds": None}

    def order(self, path):
        """By time, the longest first; new files by size before those."""
        seconds = self.known(path)["seconds"]
        return (seconds is not None, -(seconds or path.stat().st_size))

    def unchanged(self, path):
        """Whether git knows no change in anything that the file reads, nor in .clang-tidy."""
        if self.changed is None or str(self.root / ".clang-tidy") in self.changed:
            return False
        read = [read_by(str(path), folder, words) for folder, words in self.commands.get(path, ())]
        return bool(read) and all(map(self.changed.isdisjoint, read))

    def check(self, path):
        """Whether the file was analysed, and its findings, None if there are none."""
        if self.unchanged(path):
            return False, None
        key = key_of(self.commands.get(path, ()), self.common)
        if key and not self.every and self.known(path)["key"] == key:
            return False, None
        start = time.monotonic()
        done = subprocess.run(["clang-tidy", "-p", self.build, "--quiet", EXTRA, path],
                              cwd=self.root, capture_output=True, text=True, check=False)
        clean = done.returncode == 0 and not done.stdout.strip()
        self.mark(path).write_text(json.dumps({"key": key if clean else None, "seconds": time.monotonic() - start}))
        return True, None if clean else f"{path.relative_to(self.root)}\n{done.stdout}{done.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--build", type=Path, help="default: build in the root")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="also what did not change")
    which.add_argument("--since", metavar="COMMIT", help="only files that read something changed since then")
    options = parser.parse_args()
    root = options.root.resolve()
    checker = Checker(root, (options.build or root / "build").resolve(), options.all, options.since)
    paths = sorted(sources(root), key=checker.order)
    n_analysed, n_found = 0, 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for analysed, findings in pool.map(checker.check, paths):
            n_analysed += analysed
            if findings is not None:
                n_found += 1
                print(findings, flush=True)
    print(f"clang-tidy: {len(paths)} files, {n_analysed} analysed, {n_found} with findings")
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main())
