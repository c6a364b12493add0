"""What the tools that write docs/results share: the program's answers, kept by the command that
gave them; tables; sections of a page."""

import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
FINDINGS = RESULTS / "README.md"
SPEED = ROOT / "docs" / "speed.md"
# The page of each family of sections.
PAGES = {"family": "own-model.md", "others": "other-models.md", "pareto": "quality-and-cost.md", "comparators": "comparators.md",
         "snapkv": "eviction.md", "kvpred": "kv-prediction.md", "serving": "serving.md", "peers": "peers.md", "mixture": "mixture.md",
         "hybrid": "hybrid.md", "memory": "../guides/memory.md"}
COLUMNS = 118


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


def page_of(section):
    """A section `kvpred share` belongs to the page of `kvpred`."""
    return RESULTS / PAGES[re.split("[ -]", section)[0]]


def wrap(text):
    """Text with its paragraphs in lines of COLUMNS; tables, headings, pictures and lists stay as they are."""
    def lines(paragraph):
        if re.match(r"[|#!<\-]|\d+\.|```", paragraph):
            return paragraph
        return textwrap.fill(" ".join(paragraph.split()), COLUMNS, break_on_hyphens=False, break_long_words=False)

    return "\n\n".join(map(lines, text.strip().split("\n\n")))


def unfounded(findings, pages):
    """Figures with a decimal point in `findings` that none of `pages` has."""
    said = " ".join(pages)
    figures = re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", findings)
    return [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", said)]


def check_findings():
    """The findings are written by hand: names their figures that no table has now."""
    pages = [path.read_text() for path in (*RESULTS.glob("*.md"), SPEED) if path != FINDINGS]
    for figure in unfounded(FINDINGS.read_text(), pages):
        print(f"{FINDINGS}: the figure {figure} stands in no table: write it again", file=sys.stderr)


def by(command, text):
    """A section that says under its heading which command made it."""
    heading, _, rest = text.strip().partition("\n\n")
    return f"{heading}\n\nBy `{command}`.\n\n{rest}"


def put(section, text, path=None):
    """Replaces a section of a page, or adds it at the end; what was written by hand comes before the sections."""
    path = path or page_of(section)
    page = path.read_text() if path.exists() else ""
    pattern = re.compile(r"<!-- (.+?) -->\n(.*?)\n<!-- end of \1 -->", re.S)
    blocks, head = dict(pattern.findall(page)), page.partition("<!--")[0].strip()
    if pattern.sub("", page).strip() != head:
        sys.exit(f"{path}: text between the sections, which nothing keeps")
    blocks[section] = wrap(text)
    parts = [f"<!-- {name} -->\n{block}\n<!-- end of {name} -->" for name, block in blocks.items()]
    path.write_text("\n\n".join(filter(None, (head, *parts))) + "\n")
    if path == page_of(section):
        check_findings()
