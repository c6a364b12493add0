#!/usr/bin/env python3
"""The program's --help, the manual page and the shell completion name the same commands and
options."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "swiftkv"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def commands_of_manual():
    text = (ROOT / "man/swiftkv.1").read_text()
    return set(re.findall(r"^\.It Cm (\w+)$", text, re.M))


def options_of_manual():
    text = (ROOT / "man/swiftkv.1").read_text()
    return {f"-{name}" for name in re.findall(r"\bFl (-[a-z][a-z0-9-]*)", text)}


def complete(*words):
    """What bash offers after `swiftkv WORD ...`, the last word being unfinished."""
    line = " ".join(("swiftkv", *words))
    script = (
        f"source {ROOT}/completion/swiftkv.bash; COMP_WORDS=({line}); "
        'if [[ "$1" = "" ]]; then COMP_WORDS+=(""); fi; '
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _swiftkv; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", script, "bash", words[-1] if words else ""]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    return set(result.stdout.split())


def help_of(*words):
    command = [PROGRAM, *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class ManualTest(unittest.TestCase):
    def test_completion_knows_the_commands(self):
        offered = {word for word in complete("") if not word.startswith("-")}
        self.assertEqual(offered, commands_of_manual())

    def test_completion_offers_values(self):
        self.assertEqual(complete("generate", "m", "--weights", ""), {"f32", "bf16", "int8"})
        self.assertEqual(complete("generate", "m", "--kv", "f"), {"f32", "fp8"})
        self.assertIn("--kv-layers", complete("transform", "--"))
        self.assertNotIn("--kv-layers", complete("generate", "--"))

    def test_completion_offers_files(self):
        self.assertIn("etc", complete("generate", "e"))

    def test_completion_and_manual_agree(self):
        offered = {"--version"}
        for command in commands_of_manual():
            offered |= {word for word in complete(command, "--") if word.startswith("--")}
        self.assertEqual(offered, options_of_manual())

    @unittest.skipUnless(PROGRAM.exists(), "the program is not built")
    def test_program_and_manual_agree(self):
        text = help_of()
        for command in commands_of_manual():
            self.assertRegex(text, rf"\b{command}\b")
            text += help_of(command)
            told = set(OPTION.findall(help_of(command))) - {"--help"}
            offered = {word for word in complete(command, "--") if word.startswith("--")}
            self.assertEqual(told, offered - {"--help"}, command)
        told = set(OPTION.findall(text)) | {"--help", "--version"}
        self.assertEqual(told, options_of_manual())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
