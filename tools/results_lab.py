"""What the tools that write docs/results.md share: the program's answers, kept by the command that
gave them; tables; sections of a page."""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The order in which somebody reads them.
ORDER = ("family", "others", "pareto", "comparators-quality", "comparators-throughput", "snapkv", "kvpred", "serving")
PAGE = ROOT / "docs" / "results.md"
SPEED = ROOT / "docs" / "speed.md"


class Lab:
    """Runs the program and remembers what it said."""

    def __init__(self, program, work):
        self.program, self.work = program, work
        (work / "said").mkdir(parents=True, exist_ok=True)

    def start(self, words, before=()):
        print("swiftkv", *words, file=sys.stderr, flush=True)
        command = [*before, self.program, *map(str, words)]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)

    def run(self, *words, before=()):
        result = self.start(words, before)
        if result.returncode != 0:
            sys.exit(f"swiftkv {words[0]}: exit status {result.returncode}")
        return result.stdout

    def key(self, line):
        return hashlib.sha256(line.encode()).hexdigest()[:20]

    def recall(self, words, read):
        line = " ".join(map(str, words)).replace(str(self.work), "WORK")
        path = self.work / "said" / f"{self.key(line)}.json"
        if not path.exists():
            said = read()
            path.write_text(json.dumps({"command": line, "said": said}))
        return json.loads(path.read_text())["said"]

    def ask(self, *words):
        """The JSON that a command prints, from the last time where it was asked before."""
        return self.recall(words, lambda: json.loads(self.run(*words)))

    def ask_lines(self, *words):
        """The same of a command that prints an object a line."""
        return self.recall(words, lambda: [json.loads(line) for line in self.run(*words).splitlines() if line.strip()])

    def try_ask(self, *words):
        """The JSON that a command prints; None where it fails."""
        def read():
            result = self.start(words)
            return json.loads(result.stdout) if result.returncode == 0 else None

        return self.recall(words, read)


def fingerprint(*models):
    """Of the files of models: what was measured on others is not theirs."""
    digest = hashlib.sha256()
    for model in models:
        for path in sorted(p for p in model.rglob("*") if p.suffix in (".json", ".safetensors", ".gguf")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def several(jobs, function, items):
    """function of each item, `jobs` at a time."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(function, items))


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(["---"] + ["---:"] * (len(head) - 1)) + " |"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def place(section):
    """Where a section stands on the page: by its family, and within one as they came."""
    family = section if section in ORDER else section.split()[0]
    return ORDER.index(family) if family in ORDER else len(ORDER)


def check_summary(head, blocks):
    """The summary is written by hand: names its figures that no section and no other page has now."""
    said = " ".join((*blocks.values(), SPEED.read_text()))
    for figure in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", head):
        if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", said):
            print(f"results.md: the summary's {figure} stands in no section: write it again", file=sys.stderr)


def put(section, text, path=PAGE):
    """Replaces a section of a page, or adds it; sections stand in ORDER behind what was written by hand."""
    page = path.read_text() if path.exists() else "# Results\n"
    pattern = re.compile(r"<!-- (.+?) -->\n(.*?)\n<!-- end of \1 -->", re.S)
    blocks, head = dict(pattern.findall(page)), page.partition("<!--")[0].rstrip()
    if pattern.sub("", page).strip() != head.strip():
        sys.exit(f"{path}: text between the sections, which nothing keeps")
    blocks[section] = text.strip()
    parts = (f"<!-- {name} -->\n{blocks[name]}\n<!-- end of {name} -->" for name in sorted(blocks, key=place))
    path.write_text("\n\n".join((head, *parts)) + "\n")
    if path == PAGE:
        check_summary(head, blocks)
