#!/usr/bin/env python3
"""The program's --help, the manual page and the shell completion name the same commands and
options, and wherever a page tells a default of `serve` it is the program's."""

import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "swiftkv"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
NUMBER = re.compile(r"\d[\d,.]*(?<=\d)")


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


def defaults_of(command):
    """{option: its default}, the first number of what stands in parentheses at the end of its help."""
    found = {}
    for entry in re.split(r"^  (?=--?\w)", help_of(command), flags=re.M)[1:]:
        text = " ".join(entry.split())
        default = re.search(r"\(([^()]*)\)$", re.split(r" [A-Z][\w ]*:$", text)[0])
        if default and NUMBER.search(default[1]):
            found[text.split()[0]] = number_in(default[1])
    return found


def number_in(text):
    return NUMBER.search(text)[0].replace(",", "")


def rows_with_defaults(text):
    """(option, default) of the rows of tables in Markdown that have both columns."""
    columns = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells and {"option", "default"} <= set(cells):
            columns = cells.index("option"), cells.index("default")
        elif not cells:
            columns = None
        elif columns and max(columns) < len(cells):
            option = OPTION.search(cells[columns[0]])
            if option and option[0] not in cells[columns[1]]:
                yield option[0], cells[columns[1]]


class ManualTest(unittest.TestCase):
    def test_completion_knows_the_commands(self):
        offered = {word for word in complete("") if not word.startswith("-")}
        self.assertEqual(offered, commands_of_manual())

    def test_completion_offers_values(self):
        self.assertEqual(complete("generate", "m", "--kv", "f"), {"f32", "fp8"})
        self.assertEqual(complete("generate", "m", "-n", ""), set())
        self.assertEqual(complete("quantize", "m", "o", "--weights", ""), {"int4", "int8"})
        self.assertLess({"all", "needle", "etc"}, complete("eval", "m", "--task", ""))
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
    def test_completion_offers_what_the_help_names(self):
        n = 0
        for command in commands_of_manual():
            for option, argument in re.findall(r"^  (-[\w-]+) (\S+)", help_of(command), re.M):
                words = {word for word in argument.split("|") if re.fullmatch(r"[a-z0-9][a-z0-9.-]*", word)}
                if len(words) > 1:
                    self.assertLessEqual(words, complete(command, "x", option, ""), (command, option))
                    n += 1
        self.assertGreater(n, 40)

    def test_other_shells_offer_the_same(self):
        """What zsh and fish read, by their text: a command's options, and the values of one of them."""
        zsh, fish = ((ROOT / "completion" / name).read_text() for name in ("_swiftkv", "swiftkv.fish"))
        for command in commands_of_manual():
            offered = {word for word in complete(command, "--") if word.startswith("--")}
            case = re.search(rf"^    {command}\)$(.*?)^        ;;$", zsh, re.M | re.S)[1]
            self.assertEqual(set(re.findall(r"'\*?(--[\w-]+)\[", case)), offered, command)
            lines = re.findall(rf"'__fish_seen_subcommand_from {command}' -l ([\w-]+)", fish)
            self.assertEqual({f"--{name}" for name in lines}, offered, command)
        self.assertIn("'*--kv[type of keys and values]:value:(auto bf16 f32 int8 fp8)'", zsh)
        self.assertRegex(fish, "from serve' -l kv -x -a 'auto bf16 f32 int8 fp8'")

    def test_other_shells_can_read_theirs(self):
        shells = {"zsh": "_swiftkv", "fish": "swiftkv.fish"}
        there = {shell: name for shell, name in shells.items() if shutil.which(shell)}
        if not there:
            self.skipTest("neither zsh nor fish is installed")
        for shell, name in there.items():
            said = subprocess.run([shell, "-n", ROOT / "completion" / name], capture_output=True, text=True)
            self.assertEqual((said.returncode, said.stderr), (0, ""), shell)

    @unittest.skipUnless(PROGRAM.exists(), "the program is not built")
    def test_pages_tell_the_defaults_of_the_program(self):
        defaults, n = defaults_of("serve"), 0
        for page in sorted((ROOT / "docs").rglob("*.md")):
            for option, told in rows_with_defaults(page.read_text()):
                if option not in defaults:
                    continue
                told = told.replace("none", "0")
                self.assertEqual(number_in(told), defaults[option], f"{page}: {option}")
                n += 1
        self.assertGreaterEqual(n, 24)

    @unittest.skipUnless(PROGRAM.exists(), "the program is not built")
    def test_manual_tells_the_defaults_of_the_program(self):
        defaults, n = defaults_of("serve"), 0
        text = (ROOT / "man/swiftkv.1").read_text()
        serve = text.split(".Ss Options of serve\n")[1].split("\n.Ss ")[0]
        for item in re.split(r"^\.It ", serve, flags=re.M)[1:]:
            names = [f"-{name}" for name in re.findall(r"\bFl (-[a-z][a-z0-9-]*)", item.splitlines()[0])]
            for told in re.findall(rf"({NUMBER.pattern})(?:\s+\w+)?\s+by\s+default", item):
                self.assertIn(told, [defaults.get(name) for name in names], item)
                n += 1
        self.assertGreaterEqual(n, 12)

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
