"""What the objects of a build define and use, as `nm` tells: the part of tidy.py that sees calls.

An include rule does not see a call through a public header, since public headers lie below
everything. The symbols of the objects do.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

NM_ARGUMENTS_MAX = 200  # objects given to one nm
STRONG = "TDBRC"  # nm's letters of global definitions; a weak one may stand in many objects
PREFIX = "skv_"


class Links:
    """The global symbols of a build: who defines one, who uses it."""

    def __init__(self, root, build):
        self.defined = {}  # symbol -> the source that defines it
        self.users = {}  # symbol -> the other sources that use it
        self.sources = set()  # those with an object
        objects = objects_of(Path(root), Path(build))
        for path, symbol, kind in read_symbols(objects):
            self.sources.add(path)
            if kind in STRONG and not path.startswith(("tests/", "fuzz/")):
                self.defined[symbol] = path
            elif kind == "U":
                self.users.setdefault(symbol, set()).add(path)

    def edges(self):
        """(user, symbol, home) of every use across files."""
        for symbol, home in sorted(self.defined.items()):
            for user in sorted(self.users.get(symbol, ())):
                if user != home:
                    yield user, symbol, home

    def knots(self):
        """folder -> its objects that call each other in a circle."""
        calls = {}
        for user, _, home in self.edges():
            if Path(user).parent == Path(home).parent:
                calls.setdefault(user, set()).add(home)
        reached = {user: reachable(calls, user) for user in calls}
        knots = {}
        for user, homes in sorted(reached.items()):
            if user in homes:
                knots.setdefault(Path(user).parent.as_posix(), []).append(user)
        return knots

    def unused(self):
        """(symbol, home) of what no other object uses."""
        for symbol, home in sorted(self.defined.items()):
            if symbol != "main" and not self.users.get(symbol, set()) - {home}:
                yield symbol, home


def reachable(calls, start):
    """What start calls, and what that calls."""
    found, todo = set(), [start]
    while todo:
        for home in calls.get(todo.pop(), ()):
            if home not in found:
                found.add(home)
                todo.append(home)
    return found


def objects_of(root, build):
    """object -> source, from compile_commands.json, of the objects that exist."""
    objects = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        output = re.search(r" -o (\S+)", entry.get("command", ""))
        source = Path(entry["file"]).resolve()
        if output and source.is_relative_to(root):
            path = Path(entry.get("directory", build)) / output.group(1)
            if path.is_file():
                objects[str(path)] = source.relative_to(root).as_posix()
    return objects


def read_symbols(objects):
    """(source, symbol, kind) of every global symbol."""
    if not shutil.which("nm"):
        return
    paths = sorted(objects)
    for i in range(0, len(paths), NM_ARGUMENTS_MAX):
        command = ["nm", "-A", "-g", *paths[i : i + NM_ARGUMENTS_MAX]]
        for line in subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.splitlines():
            path, _, rest = line.partition(":")
            *_, kind, symbol = rest.split()
            yield objects[path], symbol, kind
