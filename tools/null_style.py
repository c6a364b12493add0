#!/usr/bin/env python3
"""One way to test for NULL: a pointer is its own condition, `if (!p)`, never `p == NULL`.

    tools/null_style.py [--fix] FILE...

Prints the lines of C files that compare with NULL, and ends with 1 if there are any; --fix rewrites them.
tools/tidy.py asks the same of every file. What is added or compared becomes !!p; where a pointer then stands for a
number of another kind, the compiler refuses it.
"""

import re
import sys
from pathlib import Path

COMPARISON = re.compile(r"\s*([!=])=\s*NULL\b")
SILENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
KEYWORDS = {"if", "while", "return", "for", "switch", "sizeof"}
BEFORE_UNARY = set("(,=&|!?:{};<>+-")


def blank(text):
    """The text with comments and literals as blanks, at the same places."""
    return SILENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def comparisons(code):
    return COMPARISON.finditer(code)


def opening(code, at):
    """Where the bracket opens that closes at `at`."""
    depth = 0
    for i in range(at, -1, -1):
        depth += (code[i] in ")]") - (code[i] in "([")
        if depth == 0:
            return i
    raise ValueError("brackets do not match")


def skip_blanks(code, end):
    while end > 0 and code[end - 1].isspace():
        end -= 1
    return end


def operand(code, end):
    """Where the operand begins that ends at `end`: names, members, calls, subscripts, brackets, and stars before."""
    start = end
    while True:
        at = skip_blanks(code, start)
        if code[at - 1] in ")]":
            start = opening(code, at - 1)
            name = re.search(r"\w+$", code[:start])
            if code[start] == "(" and (not name or name.group() in KEYWORDS):
                if not re.search(r"[)\]]\s*$", code[:start]):
                    break
            continue
        name = re.search(r"\w+$", code[:at])
        if not name:
            break
        start = name.start()
        member = re.search(r"(->|\.)\s*$", code[:start])
        if not member:
            break
        start = member.start()
    while True:
        at = skip_blanks(code, start)
        before = skip_blanks(code, at - 1)
        if at == 0 or code[at - 1] != "*":
            return start
        if code[before - 1] not in BEFORE_UNARY and not re.search(r"\breturn$", code[:before]):
            return start
        start = at - 1


def is_number(code, start, end):
    """Whether a comparison's result is added or compared itself: a pointer in its place would mean something else."""
    after = re.match(r"\s*\)\s*([=!]=|[-+^])", code[end:])
    return after or re.search(r"([=!]=|[-+^])\s*\($|[-+|]=$", code[:start].rstrip())


def fix(text):
    """The text without comparisons with NULL."""
    while True:
        code = blank(text)
        found = next(comparisons(code), None)
        if not found:
            return text
        start = operand(code, found.start())
        sign = "!" if found.group(1) == "=" else "!!" if is_number(code, start, found.end()) else ""
        text = text[:start] + sign + text[start : found.start()] + text[found.end() :]


def lines(text):
    code = blank(text)
    return [code.count("\n", 0, found.start(1)) + 1 for found in comparisons(code)]


def main():
    words = sys.argv[1:]
    fixes = "--fix" in words
    n = 0
    for path in (Path(word) for word in words if word != "--fix"):
        text = path.read_text()
        if fixes:
            path.write_text(fix(text))
            continue
        for line in lines(text):
            print(f"{path}:{line}: compares with NULL")
            n += 1
    return int(n > 0)


if __name__ == "__main__":
    sys.exit(main())
