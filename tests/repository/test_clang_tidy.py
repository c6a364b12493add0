#!/usr/bin/env python3
"""tools/clang_tidy.py analyses a file again when anything changed that its findings depend on, and only then."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/clang_tidy.py"
CLEAN = "static inline int twice(int x)\n{\n    return 2 * x;\n}\n"
WRONG = "static inline int twice(int x)\n{\n    if (x);\n    return 2 * x;\n}\n"


class ClangTidyTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        for folder in ("src", "cli", "build"):
            (self.root / folder).mkdir()
        self.config("bugprone-*")
        self.header(CLEAN)
        for name in ("src/a", "cli/b"):
            (self.root / f"{name}.c").write_text('#include "twice.h"\n\nint main(void)\n{\n    return twice(0);\n}\n')
        (self.root / "src/alone.c").write_text("int alone;\n")
        self.flags("-O1")

    def config(self, checks):
        text = f"Checks: '-*,{checks}'\nWarningsAsErrors: '*'\nHeaderFilterRegex: '/src/'\n"
        (self.root / ".clang-tidy").write_text(text)

    def header(self, text):
        (self.root / "src/twice.h").write_text(text)

    def flags(self, *more):
        entries = []
        for name in ("src/a.c", "cli/b.c", "src/alone.c"):
            words = ("ccache", "cc", *more, f"-I{self.root}/src", "-o", "x.o", "-c", f"{self.root}/{name}")
            entries.append({"directory": str(self.root), "file": name, "command": " ".join(words)})
        (self.root / "build/compile_commands.json").write_text(json.dumps(entries))

    def expect(self, n_analysed, n_found, *more):
        done = subprocess.run([sys.executable, "-B", TOOL, "--root", self.root, *more],
                              capture_output=True, text=True, check=False)
        counts = re.search(r"^clang-tidy: 3 files, (\d+) analysed, (\d+) with findings$", done.stdout, re.M)
        self.assertIsNotNone(counts, done.stdout + done.stderr)
        self.assertEqual(tuple(map(int, counts.groups())), (n_analysed, n_found), done.stdout)
        self.assertEqual(done.returncode, 1 if n_found else 0)
        return done.stdout

    def test_only_what_changed(self):
        self.expect(3, 0)
        self.expect(0, 0)
        self.expect(3, 0, "--all")
        self.header(WRONG)  # below two of the files
        for _ in range(2):  # what is not clean is analysed every time
            out = self.expect(2, 2)
            self.assertIn("src/twice.h:3:11: error: potentially unintended semicolon", out)
        self.header(CLEAN)
        self.expect(2, 0)
        self.flags("-O2")
        self.expect(3, 0)
        self.config("bugprone-*,performance-*")
        self.expect(3, 0)
        self.expect(0, 0)

    def test_what_changed_since_a_commit(self):
        def git(*words):
            subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=self.root, check=True,
                           capture_output=True)
        (self.root / ".gitignore").write_text("build\n")
        git("init")
        git("add", ".")
        git("commit", "-m", "clean")
        self.expect(0, 0, "--since", "HEAD")  # although nothing is known of these files
        self.header(WRONG)
        self.expect(2, 2, "--since", "HEAD")
        git("commit", "-a", "-m", "wrong")
        self.expect(0, 0, "--since", "HEAD")
        self.expect(2, 2, "--since", "HEAD~1")
        self.config("bugprone-*,performance-*")  # changes the findings of every file
        self.expect(3, 2, "--since", "HEAD")

    def test_what_does_not_compile(self):
        (self.root / "src/a.c").write_text('#include "nowhere.h"\n')
        for n_analysed in (3, 1):
            self.assertIn("'nowhere.h' file not found", self.expect(n_analysed, 1))


if __name__ == "__main__":
    missing = [name for name in ("clang", "clang-tidy") if not shutil.which(name)]
    if missing:
        print(f"skipped: no {missing[0]} here")
        sys.exit(77)
    unittest.main(verbosity=2)
