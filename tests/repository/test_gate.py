#!/usr/bin/env python3
"""script/test runs what a change can affect, tools/compile_changed.py compiles that, and tools/test_report.py counts and
names what was flaky."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "script/test"
REPORT = ROOT / "tools/test_report.py"
STAGES = re.search(r"^stages='(.*)'$", SCRIPT.read_text(), re.M)[1].split()
ALWAYS = {"release", "format", "tidy", "docs"}
ELSEWHERE = {"avx2", "neon", "cuda", "portable", "macos", "package", "fuzz"}
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in (ROOT / "fuzz").glob("fuzz_*.c"))


def rows():
    """The table of script/test: stage -> the beginnings of paths."""
    out = {}
    for line in re.search(r"^paths='\n(.*?)\n'$", SCRIPT.read_text(), re.M | re.S)[1].splitlines():
        stage, *beginnings = line.split()
        out.setdefault(stage, []).extend(beginnings)
    return out


def run(folder, *words):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


class BuildTest(unittest.TestCase):
    def test_the_end_says_how_far(self):
        """What was told last is older than the end: the last line has the whole count."""
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for folder in ("script", "bin"):
                (root / folder).mkdir()
            shutil.copy(ROOT / "script/build", root / "script/build")
            for tool, text in (("cmake", "[ $1 = --build ] || exit 0\necho '[345/470] Building C object a.o'\n"
                                         "echo '[470/470] Linking C executable swiftkv'\necho 'ld: warning: b'\n"),
                               ("date", f"echo 85 >>{root}/clock\nawk '{{ s += $1 }} END {{ print s }}' {root}/clock\n")):
                path = root / "bin" / tool
                path.write_text("#!/bin/sh\n" + text)
                path.chmod(0o755)
            done = subprocess.run([root / "script/build", "release"], capture_output=True, text=True, check=True,
                                  env={**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"})
            self.assertEqual(done.stderr, "build: 470/470, done in 85 s\n")


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class PlanTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name)
        (self.root / "script").mkdir()
        shutil.copy(SCRIPT, self.root / "script/test")
        for name in ("src/engine/kernels/x.c", "src/serving/http/x.c", "src/language/grammar/x.c", "docs/x.md",
                     *(f"fuzz/fuzz_{name}.c" for name in TARGETS)):
            self.write(name)
        self.write(".gitignore", "build/\n")
        for name, status in (("script/setup", 0), ("docs/python3", 1)):
            self.write(name, f"#!/bin/sh\nexit {status}\n")
            (self.root / name).chmod(0o755)
        self.git("init")
        self.commit()
        self.write(".ci/passed", run(self.root, "git", "rev-parse", "HEAD"))
        self.commit()

    def write(self, name, text="new\n"):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words):
        run(self.root, "git", "-c", "user.name=t", "-c", "user.email=t@t", *words)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")

    def plan(self):
        """The stages that run, and the fuzz targets."""
        lines = [line for line in run(self.root, "script/test", "--plan").splitlines() if not line.startswith("script")]
        self.assertEqual([line.split()[0] for line in lines], STAGES)
        targets = re.sub("^fuzz (runs|left out)", "", lines[-1]).split()
        return {line.split()[0] for line in lines if line.split()[1] == "runs"}, targets

    def test_nothing_changed(self):
        self.assertEqual(self.plan(), (ALWAYS, []))

    def test_a_page_runs_nothing_more(self):
        self.write("docs/x.md", "changed\n")
        self.assertEqual(self.plan(), (ALWAYS, []))

    def test_a_file_of_the_server(self):
        compiled = ALWAYS | {"asan", "tsan", "clang", "clang-tidy", "macos"}
        self.write("src/serving/http/x.c", "changed\n")
        self.assertEqual(self.plan(), (compiled | {"fuzz"}, ["http"]))
        self.commit()  # committed or not
        self.assertEqual(self.plan(), (compiled | {"fuzz"}, ["http"]))

    def test_a_kernel(self):
        self.write("src/engine/kernels/new.c")  # git does not know it yet
        stages, targets = self.plan()
        self.assertEqual(stages, ALWAYS | {"asan", "tsan", "clang", "clang-tidy", "avx2", "neon", "macos"})
        self.assertEqual(targets, [])

    def test_the_door(self):
        """What only other systems run is tested where the door to the system is, or the tests of these ways."""
        for path in ("src/base/system_x.c", "tests/serving/test_server_store.py"):
            with self.subTest(path):
                self.write(path)
                self.assertIn("portable", self.plan()[0])
                (self.root / path).unlink()
        self.write("tests/serving/test_server_x.py")
        self.assertNotIn("portable", self.plan()[0])

    def test_stages_in_part(self):
        """Without what they run of it, clang and macos compile what reads something changed, and no more."""
        for path, parts in (("src/serving/http/x.c", ["clang", "macos"]), ("src/engine/kernels/x.c", ["macos"]),
                            ("src/base/new.c", []), ("CMakeLists.txt", [])):
            with self.subTest(path):
                self.write(path, "changed\n")
                lines = run(self.root, "script/test", "--plan").splitlines()
                self.git("add", "-A")
                self.git("reset", "-q", "--hard")
                self.assertEqual([line.split()[0] for line in lines if line.endswith(" in part")], parts)
                for stage in {"clang", "macos"} - set(parts):
                    self.assertIn(f"{stage} runs", lines)

    def test_a_parser_a_corpus_and_a_target(self):
        self.write("src/language/grammar/x.c", "changed\n")
        self.write("fuzz/corpus/utf8/new")
        self.write("fuzz/fuzz_gguf.c", "changed\n")
        self.assertEqual(self.plan()[1], ["gguf", "grammar", "parts", "regex", "schema", "utf8"])

    def test_everything(self):
        everything = (set(STAGES), TARGETS)
        with self.subTest("the build's own files"):
            self.write("CMakeLists.txt")
            self.assertEqual(self.plan(), everything)
            (self.root / "CMakeLists.txt").unlink()
        with self.subTest("a path that no row names"):
            self.write("elsewhere/x")
            self.assertEqual(self.plan(), everything)
            (self.root / "elsewhere/x").unlink()
            self.assertEqual(self.plan(), (ALWAYS, []))
        with self.subTest("a commit that is not below this one"):
            self.write(".ci/passed", "0" * 40 + "\n")
            self.assertEqual(self.plan(), everything)
        with self.subTest("no commit"):
            (self.root / ".ci/passed").unlink()
            self.assertEqual(self.plan(), everything)

    def test_sanitizers_leave_rooms_out(self):
        for path, rooms in (("src/serving/http/x.c", "engine learning language"), ("src/engine/kernels/x.c", "language"),
                            ("src/language/grammar/x.c", "engine learning"), ("docs/x.md", None)):
            with self.subTest(path):
                self.write(path, "changed\n")
                lines = run(self.root, "script/test", "--plan").splitlines()
                run(self.root, "git", "checkout", "-q", path)
                for stage in ("asan", "tsan"):
                    self.assertEqual([line for line in lines if line.startswith(stage)],
                                     [f"{stage} runs without {rooms}" if rooms else f"{stage} left out"])

    def left_out(self, *words):
        """The stages that script/test leaves out, where each of the others fails at once."""
        done = subprocess.run(["script/test", *words], cwd=self.root, capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.root}/docs:{os.environ['PATH']}"})
        lines = done.stdout.splitlines()
        ran = {line.split()[0] for line in lines if re.match(r"[a-z0-9-]+ +(ok|FAILED|skipped) ", line)}
        out = {line.split()[0] for line in lines if " left out: " in line}
        self.assertEqual((ran | out, ran & out), (set(STAGES), set()))
        return out

    def test_without_an_option(self):
        """The stages of other processors and systems run for what changed alone, all others always."""
        self.assertEqual(self.left_out(), ELSEWHERE)
        self.write("src/engine/kernels/x.c", "changed\n")
        self.assertEqual(self.left_out(), ELSEWHERE - {"avx2", "neon", "macos"})
        self.assertEqual(self.left_out("--all"), set())

    def test_a_file_that_was_removed(self):
        (self.root / "src/engine/kernels/x.c").unlink()
        self.assertIn("avx2", self.plan()[0])


class TableTest(unittest.TestCase):
    def test_rows_are_those_of_stages_and_targets(self):
        names = set(rows()) - {"everything", "nothing", "sanitizers.engine", "sanitizers.language", "clang.whole",
                               "macos.whole", "fuzz"}
        self.assertEqual({name for name in names if "." not in name}, set(STAGES) - ALWAYS - {"fuzz"})
        self.assertEqual(sorted(name.removeprefix("fuzz.") for name in names if "." in name), TARGETS)

    @unittest.skipUnless((ROOT / ".git").exists(), "not a repository")
    def test_every_beginning_is_one_of_a_file(self):
        files = run(ROOT, "git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        for stage, beginnings in rows().items():
            for beginning in beginnings:
                if beginning != ".ci/passed":
                    self.assertTrue(any(name.startswith(beginning) for name in files), f"{stage}: {beginning}")
        every = tuple(beginning for beginnings in rows().values() for beginning in beginnings)
        self.assertEqual([name for name in files if not name.startswith(every)], [])


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class CompileTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        for folder in ("src", "include/skv", "build"):
            (self.root / folder).mkdir(parents=True)
        self.write("include/skv/deep.h", "int deep(void);\n")
        self.write("src/middle.h", "#ifdef __ELSEWHERE__\n# include <skv/deep.h>\n#endif\n")
        for name, text in (("a", '#include "middle.h"\n'), ("b", ""), ("c", '#include "b.h"\n')):
            self.write(f"src/{name}.c", text + f"int {name};\n")
        self.write("include/b.h", "")
        self.write("build/made.c", "no C\n")
        entries = [{"directory": str(self.root), "file": file, "command": f"cc -Isrc -Iinclude -Wall -Werror -o x.o -c {file}"}
                   for file in ("src/a.c", "src/b.c", "src/c.c", "build/made.c")]
        self.write("build/compile_commands.json", json.dumps(entries))
        self.write(".gitignore", "build\n")
        for words in (("init",), ("add", "."), ("commit", "-m", "x")):
            run(self.root, "git", "-c", "user.name=t", "-c", "user.email=t@t", *words)

    def write(self, name, text):
        (self.root / name).write_text(text)

    def expect(self, n_compiled, *errors):
        tool = (sys.executable, "-B", ROOT / "tools/compile_changed.py")
        done = subprocess.run([*tool, "--root", self.root, "--build", self.root / "build", "--since", "HEAD"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.splitlines()[-1:], [f"compile_changed: 3 files, {n_compiled} compiled"], done.stderr)
        self.assertEqual(done.returncode, 1 if errors else 0)
        for error in errors:
            self.assertIn(error, done.stdout)
        self.assertEqual(list(self.root.glob("*.o")), [])

    def test_what_reads_a_change(self):
        self.expect(0)
        self.write("src/b.c", "int b = 2;\n")
        self.expect(1)
        self.write("include/skv/deep.h", "int deeper(void);\n")  # that another system's lines include
        self.expect(2)

    def test_a_header_that_hides_another(self):
        self.write("src/b.h", "int none(void) {}\n")
        self.expect(1, "[-Werror=return-type]")

    def test_a_header_that_is_gone(self):
        (self.root / "include/b.h").unlink()
        self.expect(1, "b.h: No such file or directory")

    def test_every_error_is_told(self):
        self.write("src/a.c", "int a(void) {}\n")
        self.write("src/b.c", "int b(void) { return c; }\n")
        self.expect(2, "src/a.c", "src/b.c")


def case(name, text="", failed=False, tag="failure"):
    inside = f'<{tag} message="Failed"/>' if failed else ""
    status = "fail" if failed else "run"
    return f'<testcase name="{name}" status="{status}" time="1.5">{inside}<system-out>{escape(text)}</system-out></testcase>'


GOOD = case("a", "[  PASSED  ] 3 test(s).\n")
CMOCKA = "[ RUN      ] x\n[  ERROR   ] --- 1 != 2\n[   LINE   ] --- x.c:3\n[  PASSED  ] 2 test(s).\n[  FAILED  ] 1 test(s)\n"
UNITTEST = "Traceback\nAssertionError: 3 != 4\n\nRan 5 tests in 1.0s\n\nFAILED (failures=1, skipped=1)\n"


class ReportTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.logs = Path(temporary.name)

    def count(self, first, again=None):
        """The status, the three counts and the lines about flaky tests."""
        for part, cases in (("", first), (".again", again)):
            if cases is not None:
                (self.logs / f"s{part}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        done = subprocess.run([sys.executable, "-B", REPORT, "count", self.logs, "s"], capture_output=True, text=True,
                              check=False)
        flaky = self.logs / "flaky.txt"
        lines = flaky.read_text().splitlines() if flaky.exists() else []
        flaky.unlink(missing_ok=True)
        return done.returncode, tuple(map(int, done.stdout.split())), lines

    def test_counts(self):
        bad = [case("b", CMOCKA, True), case("c", UNITTEST, True), case("d", "Segmentation fault", True)]
        self.assertEqual(self.count([GOOD]), (0, (3, 0, 0), []))
        self.assertEqual(self.count([GOOD, *bad]), (0, (3 + 2 + 3, 3, 1), []))
        self.assertEqual(self.count([GOOD, *bad], bad), (0, (3 + 2 + 3, 3, 1), []))
        self.assertEqual(self.count([case("e", "[  PASSED  ] 2 test(s).\n", True)]), (0, (2, 1, 0), []))

    def test_without_results(self):
        self.assertEqual(self.count([]), (1, (0, 1, 0), []))

    def test_what_passes_alone_is_named(self):
        first = [GOOD, case("b", CMOCKA, True), case("c", UNITTEST, True)]
        again = [case("b", "[  PASSED  ] 3 test(s).\n"), case("c", UNITTEST.replace("FAILED (failures=1, ", "OK ("))]
        lines = ["flaky: b (s: 1 != 2)", "flaky: c (s: AssertionError: 3 != 4)"]
        self.assertEqual(self.count(first, again), (0, (3 + 3 + 4, 0, 1), lines))
        self.assertEqual(self.count(first, [again[0], first[2]]), (0, (3 + 3 + 3, 1, 1), lines[:1]))

    def test_more_than_two_fail(self):
        names = ("b", "c", "d")
        first = [GOOD, *(case(name, CMOCKA, True) for name in names)]
        again = [case(name, "[  PASSED  ] 3 test(s).\n") for name in names]
        status, counts, lines = self.count(first, again)
        self.assertEqual((status, counts, len(lines)), (1, (3 + 6, 3, 0), 3))

    def test_pytest(self):
        text = ('<testsuite name="pytest"><testcase classname="m" name="x" time="2"/>'
                '<testcase classname="m" name="y" time="1"><failure message="f">E   assert 1\n</failure></testcase>'
                '<testcase classname="m" name="z" time="1"><skipped message="s"/></testcase></testsuite>')
        self.assertEqual(self.count([text]), (0, (1, 1, 1), []))
        again = '<testsuite name="pytest"><testcase classname="m" name="y" time="1"/></testsuite>'
        self.assertEqual(self.count([text], [again]), (0, (2, 0, 1), ["flaky: m.y (s: assert 1)"]))

    def test_times(self):
        self.count([GOOD, case("b").replace("1.5", "0.25")])
        with open(self.logs / "times.tsv", "a") as out:
            out.write("70\ts\t\n")
        done = run(self.logs, sys.executable, "-B", REPORT, "times", self.logs)
        self.assertRegex(done, r"^ +70\.0 s  s\n +1\.5 s  s +a\n +0\.2 s  1 tests of less than 1 s each")


if __name__ == "__main__":
    unittest.main(verbosity=2)
