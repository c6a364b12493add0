"""What tests of commands share that read one prompt of token ids."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import server_process as base

STALE = "tools/make_reference.py writes this page again"


def evictors():
    """The methods of --evict with their forms, as the program has them: {"snapkv": "C[,w[,k]]..."}."""
    rows = [line.split("`")[1].replace("\\|", "|") for line in run("help", "--methods").stdout.splitlines() if line.startswith("| `") and ":" in line]
    return dict(row.split(":", 1) for row in rows if row != "--evict")


def run(*words, text=""):
    command = [base.PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, input=text, check=False)


class PromptCase(unittest.TestCase):
    """`ids` is a file with the tokens of `prompt`, in a folder of its own."""

    prompt = []

    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.keep.name)
        cls.ids = cls.folder / "ids.json"
        cls.ids.write_text(json.dumps(cls.prompt))

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    def generate(self, model, *words):
        """What five generated tokens say of themselves."""
        done = run("generate", model, "--ids-file", self.ids, "-n", 5, "--json", "--threads", 1, "--ignore-eos", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual(len(out["ids"]), 5)
        return out

    def refuses(self, code, words, *parts):
        """One line on standard error that has all parts; code None: 1 or 2."""
        done = run(*words)
        self.assertIn(done.returncode, (1, 2) if code is None else (code,), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
