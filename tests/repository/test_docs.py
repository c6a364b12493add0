#!/usr/bin/env python3
"""The documentation: links lead somewhere, lines fit, generated pages are what the program prints, and every command
line that a page shows runs. docs/README.md describes the comments that tell this check how to run a block."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from docs_blocks import CAPITALS, NOT_PLACES, PLACES, ROOT, Page, markdown_files  # noqa: E402
from waiting import PATIENCE, wait_until  # noqa: E402

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/results")]

import make_memory_guide  # noqa: E402
import make_readme_picture  # noqa: E402
import make_reference  # noqa: E402
import make_results  # noqa: E402
import results_lab  # noqa: E402

PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
COLUMNS = 120
PAGES = [Page(path) for path in markdown_files()]
LONG_LINES = {"CHANGELOG.md"}  # lines of a log
PICTURE_BYTES_MAX = 200_000
# What stands in a sandbox for the program: adds the options that the page declares for a command, and lets `serve`
# go on in the background until the block ends.
WRAPPER = """#!/usr/bin/env bash
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
more=()
[ -f "$here/more-$1" ] && mapfile -t more <"$here/more-$1"
if [ -f "$here/interrupt" ]; then
    touch "$here/interrupt"
    "$SKV_PROGRAM" "$@" "${more[@]}" >"$here/run.log" 2>&1 &
    until find "$here" -name log.jsonl -size +0 -newer "$here/interrupt" | grep -q .; do kill -0 $! || break; sleep 0.02; done
    kill -INT $!
    wait $!
    cat "$here/run.log"
    grep -q 'resume' "$here/run.log"
    exit
fi
[ "$1" = serve ] || exec "$SKV_PROGRAM" "$@" "${more[@]}"
stop() {
    [ -f "$here/server" ] || return 0
    kill "$(cat "$here/server")" && until [ -f "$here/status" ]; do sleep 0.02; done
}
stop
rm -f "$here/status" "$here/server" "$here/server.log"
{
    "$SKV_PROGRAM" "$@" "${more[@]}" --port "$SKV_PORT" >"$here/server.log" 2>&1 &
    echo $! >"$here/server"
    wait $!
    echo $? >"$here/status"
} >/dev/null 2>&1 </dev/null &
until grep -qs '^swiftkv: ready' "$here/server.log"; do
    [ -f "$here/status" ] && cat "$here/server.log" >&2 && exit 1
    sleep 0.02
done
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Sandbox:
    """A folder that looks like the repository after a build, and keeps what commands write from it."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("recipes", "deploy", "tools", "examples", "man"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "models/mini").mkdir(parents=True)
        for path in (ROOT / "models/mini").iterdir():
            (folder / "models/mini" / path.name).symlink_to(path)
        self.build = folder / "build"
        self.build.mkdir()
        for name in ("bench", "tests"):
            if (PROGRAM.parent / name).exists():
                (self.build / name).symlink_to(PROGRAM.parent / name)
        self.write(self.build / "swiftkv", WRAPPER)
        # The last step of script/run: the program is built.
        self.write(folder / "script/run", '#!/bin/sh\nexec build/swiftkv generate "$@"\n')
        self.port = free_port()

    @staticmethod
    def write(path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def environment(self):
        return {
            **os.environ, "PATH": f"{self.build}:{os.environ['PATH']}", "SKV_PROGRAM": str(PROGRAM),
            "SKV_PORT": str(self.port), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }

    def bash(self, text, *words):
        return subprocess.run(["bash", *words, "-euc", text], cwd=self.folder, env=self.environment(), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=PATIENCE, check=False)

    def run(self, block, n):
        """The status and the output of a block."""
        for path in (*self.build.glob("more-*"), self.build / "server.log", self.build / "interrupt"):
            path.unlink(missing_ok=True)
        for command, options in block.directives():
            if command == "interrupt":
                (self.build / command).touch()
            elif command not in ("with", "file", "needs"):
                words = self.bash(f"printf '%s\\n' {options}").stdout
                (self.build / f"more-{command}").write_text(words)
        text = block.text(f"build/out-{n}").replace("8080", str(self.port))
        try:
            done = self.bash(text)
        finally:
            status = self.stop_server()
        return done.returncode or status, done.stdout + self.server_log()

    def server_log(self):
        log = self.build / "server.log"
        return log.read_text() if log.exists() else ""

    def stop_server(self):
        """The exit status of the server that a block began, 0 where there is none."""
        path, status = self.build / "server", self.build / "status"
        if not path.exists():
            return 0
        if not status.exists():
            os.kill(int(path.read_text()), signal.SIGTERM)
        wait_until(lambda: status.exists() and status.read_text().strip())
        path.unlink()
        return int(status.read_text())


def programs_of(text):
    """The first words of the commands of a block, as far as lines tell."""
    text = re.sub(r"<<(\w+)\n.*?\n\1\n", "\n", text, flags=re.S)
    text = re.sub(r"(?m)(^|\s)#.*", "", text)
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "''", re.sub(r"\\\n", " ", text))
    found = set()
    for line in text.splitlines():
        for command in re.split(r"[;|]|&&", line):
            words = [word for word in command.split() if not re.match(r"\w+=", word)]
            if words:
                found.add(words[0])
    return found


class FormTest(unittest.TestCase):
    def test_links_lead_somewhere(self):
        known = {page.path: page for page in PAGES}
        for page in PAGES:
            for number, target in page.links():
                path, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", path):
                    continue
                where = f"{page.path.relative_to(ROOT)}:{number}: {target}"
                file = (page.path.parent / path).resolve() if path else page.path
                self.assertTrue(file.exists(), where)
                if anchor:
                    self.assertIn(file, known, where)
                    self.assertIn(anchor, known[file].anchors, where)

    def test_every_page_is_in_the_index(self):
        """From docs/README.md, by way of other pages."""
        known = {page.path: page for page in PAGES}
        reached, left = set(), [ROOT / "docs/README.md"]
        while left:
            path = left.pop()
            if path in reached or path not in known:
                continue
            reached.add(path)
            left += [(path.parent / target.partition("#")[0]).resolve() for _, target in known[path].links()]
        missing = [str(path.relative_to(ROOT)) for path in known if path.is_relative_to(ROOT / "docs") and path not in reached]
        self.assertEqual(missing, [])

    def test_the_picture_of_the_rooms_is_what_the_code_says(self):
        subprocess.run([sys.executable, "-B", ROOT / "tools/draw_rooms.py", "--check"], check=True)

    def test_the_c_api_page_names_every_header(self):
        text = (ROOT / "docs/reference/c-api.md").read_text()
        headers = {path.name for path in (ROOT / "include/skv").glob("*.h")}
        self.assertEqual(set(re.findall(r"include/skv/(\w+\.h)", text)), headers)
        examples = {path.name for path in (ROOT / "examples").glob("*.c")}
        self.assertEqual(set(re.findall(r"examples/(\w+\.c)", text)), examples)

    def test_lines_fit(self):
        for page in PAGES:
            if page.path.name in LONG_LINES:
                continue
            inside = None  # of what the program prints, whose lines are its own
            for number, line in page.prose:
                mark = re.match(r"<!-- (combinations|end of combinations) -->", line)
                inside = mark[1] == "combinations" if mark else inside
                if len(line) > COLUMNS and not line.lstrip().startswith("|") and not inside:
                    self.fail(f"{page.path.relative_to(ROOT)}:{number}: {len(line)} columns")
            for block in page.blocks:
                for line in block.lines:
                    self.assertLessEqual(len(line), COLUMNS, f"{block}: {line}")

    def test_readme_is_short_and_has_pictures(self):
        text = (ROOT / "README.md").read_text()
        self.assertLessEqual(len(text.splitlines()), 120)
        pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
        self.assertEqual(len(pictures), 2)
        for name in pictures:
            self.assertLess((ROOT / name).stat().st_size, PICTURE_BYTES_MAX)
        for words in ("script/run", "script/test"):
            self.assertIn(words, text)

    def test_picture_is_that_of_the_table(self):
        found = make_readme_picture.read_settings(results_lab.page_of("pareto").read_text())
        picture = make_readme_picture.draw(found)
        self.assertEqual((results_lab.RESULTS / "headline.svg").read_text(), picture,
                         "tools/results/make_readme_picture.py draws it again")
        xml.etree.ElementTree.fromstring(picture)

    def test_figures_of_findings_stand_in_tables(self):
        pages = [path.read_text() for path in (*results_lab.RESULTS.glob("*.md"), results_lab.SPEED)
                 if path != results_lab.FINDINGS]
        self.assertEqual(results_lab.unfounded(results_lab.FINDINGS.read_text(), pages), [])
        self.assertEqual(results_lab.unfounded("12.34567 and 1.84", pages), ["12.34567"])

    def test_sections_are_as_their_tools_write_them(self):
        """Each between its marks, laid out as tools/results/results_lab.py does, on the page of its family."""
        for path in results_lab.RESULTS.glob("*.md"):
            page = path.read_text()
            for name, text in re.findall(r"<!-- (.+?) -->\n(.*?)\n<!-- end of \1 -->", page, re.S):
                self.assertEqual(results_lab.page_of(name), path)
                self.assertEqual(results_lab.wrap(text), text, f"{path.name}: {name}")

    def test_tables_of_results_name_their_commands(self):
        """A section with a table says which command makes it."""
        command = re.compile(r"`[^`]*(tools/\S+\.(py|sh)|bench/\S+|swiftkv [a-z]+|(generate|bench|eval|score) -)[^`]*`")
        for path in results_lab.RESULTS.glob("*.md"):
            if path.name in ("README.md", "first-hour.md"):  # an index, a report
                continue
            for section in re.split(r"^(?=#{1,2} )", path.read_text(), flags=re.M):
                if re.search(r"^\|", section, re.M):
                    self.assertRegex(section, command, f"{path.name}: {section.splitlines()[0]}")

    def test_one_row_of_the_results(self):
        """--row measures and prints the rows that it names, and writes no page."""
        asked, shown = [], []

        class Lab(make_results.Lab):
            def __init__(self):
                self.row, self.jobs, self.threads, self.ranks, self.work = "50 % (l = 6), closed form", 1, 1, 1, Path(sandbox)

            def ask(self, *words):
                asked.append(words)
                metrics = {"exact_match": {"value": 0.5}, "perplexity": {"value": 9.0}}
                names = [*make_results.TASKS.split(","), "prose"]
                return {"tasks": [{"task": name, "metrics": metrics} for name in names]}

            def run(self, *words, before=()):
                asked.append(words)
                return ""

            def show(self, section, head, rows, page):
                shown.extend(rows)

        with tempfile.TemporaryDirectory() as sandbox:
            make_results.family(Lab())
        self.assertEqual([row[0] for row in shown], ["50 % (l = 6), closed form"])
        self.assertEqual([words[0] for words in asked], ["documents", "transform", "eval"])

    def test_blocks_name_their_language(self):
        for page in PAGES:
            for block in page.blocks:
                self.assertIn(block.language, ("sh", "c", "json", "python", "yaml", "text"), str(block))
                if block.language in ("text", "c"):
                    self.assertNotRegex("\n".join(block.lines), r"(?m)^(build/)?swiftkv \w+ \S*[/.]", f"{block}: a command is sh")

    def test_json_is_json(self):
        for page in PAGES:
            for block in page.blocks:
                if block.language == "json":
                    json.loads("\n".join(block.lines))


@unittest.skipUnless(PROGRAM.exists(), "the program is not built")
class ProgramTest(unittest.TestCase):
    def test_generated_pages(self):
        stale = [str(path) for path, text in make_reference.pages(PROGRAM).items()
                 if not path.exists() or path.read_text() != text]
        self.assertEqual(stale, [], "tools/make_reference.py writes them again")

    def test_memory_guide(self):
        """Its rows are what their commands say, but for what processors lay out differently."""
        page = results_lab.page_of("memory").read_text()
        shown = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `swiftkv info")]
        said = make_memory_guide.sizes(PROGRAM) + make_memory_guide.machines(PROGRAM)
        self.assertEqual([row[0] for row in shown], [row[0] for row in said])
        for ours, theirs in zip(shown, said):
            for a, b in zip(ours, theirs):
                if re.fullmatch(r"[\d.]+", a):
                    self.assertAlmostEqual(float(a), float(b), delta=0.11 + 0.03 * float(b), msg=ours)
                else:
                    self.assertEqual(a.strip(), b, ours)

    def test_recipe_page_has_every_key(self):
        keys = {option[0].split()[0].removeprefix("--") for name in ("distill", "train")
                for section in make_reference.Help(make_reference.say(PROGRAM, name)).sections
                if section.title == make_reference.RECIPE_KEYS for option in section.options}
        text = (ROOT / "docs/reference/recipe.md").read_text()
        parts = text.split("## Keys of a ")[1:3]
        rows = "".join(re.findall(r"^\| (`.*?) \|", "".join(parts), re.M))
        self.assertEqual(set(re.findall(r"`([\w-]+)`", rows)) - {"data"}, keys)

    def test_options_in_the_text(self):
        """`swiftkv COMMAND --option` within a sentence: there is such a command, with such an option."""
        options = {name: {o[0].split()[0] for s in about.sections for o in s.options}
                   for name, about in make_reference.commands(PROGRAM).items()}
        options["help"] = {"--methods", "--combinations"}
        for page in PAGES:
            if page.path.name in LONG_LINES:
                continue
            for number, line in page.prose:
                for code in re.findall(r"`(?:build/)?swiftkv ([^`]*)`", line):
                    where = f"{page.path.relative_to(ROOT)}:{number}: swiftkv {code}"
                    command = code.split()[0]
                    if command != "COMMAND":
                        self.assertIn(command, options, where)
                        used = set(re.findall(r"(?<!\S)--[a-z][\w-]*", code))
                        self.assertLessEqual(used, options[command], where)


@unittest.skipUnless(PROGRAM.exists(), "the program is not built")
class CommandTest(unittest.TestCase):
    """Every block of commands, page by page in a sandbox of its own."""

    def check_page(self, page):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            sandbox = Sandbox(Path(folder))
            for n, block in enumerate(page.blocks):
                with self.subTest(block=str(block)):
                    self.check_block(sandbox, block, n)

    def check_block(self, sandbox, block, n):
        name = block.argument("file")
        if name:
            (sandbox.folder / name).write_text(block.text(f"build/out-{n}"))
        elif block.language == "sh":
            needs = block.argument("needs")
            if not needs:
                self.check_words(block, n)
            missing = sorted(word for word in programs_of(block.text("OUT")) if not self.there(sandbox, word))
            if needs or missing:
                self.check_unrun(sandbox, block)
                self.skipTest(f"not run, needs {needs or ', '.join(missing)}")
            start = time.monotonic()
            status, said = sandbox.run(block, n)
            if os.environ.get("SKV_DOCS_TIMES"):
                print(f"{time.monotonic() - start:6.1f} s  {block}", flush=True)
            self.assertEqual(status, 0, f"{block}\n{said}")

    def there(self, sandbox, word):
        return "/" in word or shutil.which(word, path=sandbox.environment()["PATH"]) or self.builtin(word)

    @staticmethod
    def builtin(word):
        return subprocess.run(["bash", "-c", 'type -t -- "$1"', "bash", word], stdout=subprocess.DEVNULL, check=False).returncode == 0

    def check_words(self, block, n):
        text = re.sub(r"(?m)(^|\s)#.*", "", block.text(f"build/out-{n}"))
        left = set(CAPITALS.findall(text)) - NOT_PLACES
        self.assertEqual(left, set(), f"{block}: what do these stand for?")

    def check_unrun(self, sandbox, block):
        """What is not run is at least a shell's text whose files and options exist."""
        text = block.text("build/out")
        done = sandbox.bash(text, "-n")
        self.assertEqual(done.returncode, 0, f"{block}: {done.stdout}")
        for word in re.findall(r"(?<![\w/.])(?:tools|deploy|tests|script|recipes|models|examples)/[\w./-]*\w", text):
            self.assertTrue((ROOT / word).exists(), f"{block}: {word}")


def add_page_tests():
    for page in PAGES:
        if not any(block.language == "sh" for block in page.blocks):
            continue
        name = re.sub(r"\W+", "_", str(page.path.relative_to(ROOT)).removesuffix(".md").lower())
        setattr(CommandTest, f"test_{name}", lambda self, page=page: self.check_page(page))


class CheckTest(unittest.TestCase):
    """The check itself finds what it is there to find."""

    def page(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".md", dir=ROOT / "docs") as file:
            file.write(text)
            file.flush()
            return Page(Path(file.name))

    def test_anchors(self):
        page = self.page("# What `x`, y: goes?\n\n## A b\n\n## A b\n\n```sh\n# no heading\n```\n[l](a.md#b) `[n](c)`\n")
        self.assertEqual(page.anchors, {"what-x-y-goes", "a-b", "a-b-1"})
        self.assertEqual(page.links(), [(10, "a.md#b")])

    def test_directives(self):
        page = self.page("<!-- check: distill --steps 1; with MODEL=x TEXT=y -->\n```sh\nswiftkv a MODEL OUT TEXT # FOO\n```\n")
        block = page.blocks[0]
        self.assertEqual(block.directives(), [("distill", "--steps 1"), ("with", "MODEL=x TEXT=y")])
        self.assertEqual(block.text("o"), "swiftkv a x o y # FOO\n")
        self.assertEqual(programs_of("a b; c | 'd e' && X=1 f\ncat <<END\ng\nEND\nh \\\n i"), {"a", "c", "''", "f", "cat", "h"})
        for word in PLACES:
            self.assertTrue(CAPITALS.fullmatch(word))

    @unittest.skipUnless(PROGRAM.exists(), "the program is not built")
    def test_failing_commands_are_seen(self):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            sandbox = Sandbox(Path(folder))
            for text in ("swiftkv info nowhere", "false\ntrue", "swiftkv serve nowhere", "swiftkv info MODEL --no-such-option"):
                page = self.page(f"```sh\n{text}\n```\n")
                self.assertNotEqual(sandbox.run(page.blocks[0], 0)[0], 0, text)
            page = self.page("<!-- check: info --json -->\n```sh\nbuild/swiftkv info MODEL\n```\n")
            status, said = sandbox.run(page.blocks[0], 0)
            self.assertEqual((status, json.loads(said)["layers"]), (0, 12))


add_page_tests()

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
