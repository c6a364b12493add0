"""Drives tool_grammar (tests/language/tool_grammar.c) for the oracles of the grammars."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from property_seed import SEED, count, generator  # noqa: E402, F401

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "tests" / "tool_grammar"


class Grammar:
    """One running tool. Answers are those of tool_grammar.c, bytes decoded."""

    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def ask(self, *words):
        self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().rstrip("\n")

    def compile(self, kind, text=""):
        """None, or the text of the error."""
        count()
        answer = self.ask("grammar", kind, text.encode().hex())
        return None if answer.startswith("ok") else answer.removeprefix("error ")

    def match(self, text):
        """"complete", "alive" (something must follow) or "no"."""
        data = text if isinstance(text, bytes) else text.encode()
        return self.ask("match", data.hex())

    def match_all(self, texts):
        """The answers of match for several texts, at the cost of one change of processes."""
        lines = ["match " + text.encode().hex() for text in texts]
        if not lines:
            return []
        self.process.stdin.write(("\n".join(lines) + "\n").encode())
        self.process.stdin.flush()
        return [self.process.stdout.readline().decode().rstrip("\n") for _ in lines]

    def walk(self, seed, n_tokens):
        """What random allowed tokens spell, and whether the grammar ended."""
        word, _, rest = self.ask("walk", seed + (SEED << 20), n_tokens).partition(" ")
        if word not in ("complete", "cut"):
            raise AssertionError(f"{word} {rest}")
        return bytes.fromhex(rest), word == "complete"

    def check(self, seed, n_tokens):
        """Every mask of a walk compared with every token alone; "ok N" when all agree."""
        return self.ask("check", seed + (SEED << 20), n_tokens)

    def forced(self, text):
        return bytes.fromhex(self.ask("forced", text.encode().hex()).strip())
