"""The Markdown pages of the repository: their lines, headings, links and code blocks."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"( *)```(\S*)$")
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
CHECK = re.compile(r"<!-- check: (.+?) -->$")
# Words in capitals stand for these, unless a block says otherwise. OUT is new for each block.
PLACES = {
    "MODEL": "models/mini/base", "STUDENT": "models/mini/kv6", "TEXT": "recipes/prose/held_out.txt",
    "DOCUMENT": "models/mini/README.md", "FOLDER": "models/mini/kvpred",
}
CAPITALS = re.compile(r"(?<![\w$/.\"-])[A-Z]{2,}(?![\w.])")
NOT_PLACES = {"END", "EOF", "POST", "GET", "NAME", "PATH", "OK"}


def markdown_files():
    """Those that are committed or would be; a folder without git: all but what a build makes."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    if (ROOT / ".git").exists() and shutil.which("git"):
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return sorted({ROOT / name for name in found.stdout.split("\n") if name and (ROOT / name).exists()})
    return sorted(path for path in ROOT.rglob("*.md") if not path.relative_to(ROOT).parts[0].startswith("build"))


class Block:
    """A fenced code block, its section, its language and the comment above it that says how to check it."""

    def __init__(self, page, line, heading, language, check):
        self.page, self.line, self.heading, self.language, self.check, self.lines = page, line, heading, language, check, []

    def __str__(self):
        return f"{self.page.path.relative_to(ROOT)}:{self.line}"

    def directives(self):
        """[(word, rest)] of its comment, parted by semicolons."""
        return [part.strip().partition(" ")[::2] for part in (self.check or "").split(";") if part.strip()]

    def argument(self, word):
        return next((rest for name, rest in self.directives() if name == word), None)

    def text(self, out):
        """Its text with paths in place of the words in capitals, and whatever `with` replaces."""
        places, text = {**PLACES, "OUT": out}, "\n".join(self.lines) + "\n"
        for pair in (self.argument("with") or "").split():
            name, _, value = pair.partition("=")
            if CAPITALS.fullmatch(name):
                places[name] = value
            else:
                text = text.replace(name, value)
        return CAPITALS.sub(lambda found: places.get(found[0], found[0]), text)


class Page:
    def __init__(self, path):
        self.path, self.blocks, self.prose, self.anchors = path, [], [], set()
        block, check, heading = None, None, None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence = FENCE.match(line)
            if block is not None:
                if fence and not fence[2]:
                    self.blocks.append(block)
                    block = None
                else:
                    block.lines.append(line)
            elif fence:
                block, check = Block(self, number, heading, fence[2], check), None
            else:
                found = CHECK.match(line)
                if found:
                    check = f"{check}; {found[1]}" if check else found[1]
                elif line.strip():
                    check = None
                heading = line.lstrip("# ") if line.startswith("## ") else heading
                self.prose.append((number, line))
        if block is not None:
            raise ValueError(f"{block}: a block without an end")
        for _, line in self.prose:
            if re.match(r"#{1,6} ", line):
                self.anchors.add(self.unique(slug(line.lstrip("#").strip())))

    def unique(self, name):
        n = 0
        while (name if n == 0 else f"{name}-{n}") in self.anchors:
            n += 1
        return name if n == 0 else f"{name}-{n}"

    def links(self):
        """[(line, target)], without what stands in code."""
        return [(number, target) for number, line in self.prose for target in LINK.findall(re.sub(r"`[^`]*`", "``", line))]


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
