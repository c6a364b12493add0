#!/usr/bin/env python3
"""Writes the tables of docs/methods.md that the program prints. [--build build]"""

import argparse
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/methods.md"
TABLES = {"methods": "<!-- end -->", "combinations": "<!-- end of combinations -->"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    program = parser.parse_args().build / "swiftkv"
    page = PAGE.read_text()
    for name, end in TABLES.items():
        said = subprocess.run([program, "help", f"--{name}"], stdout=subprocess.PIPE, text=True, check=True).stdout
        before, mark, rest = page.partition(f"<!-- {name} -->\n")
        page = before + mark + said + end + rest.partition(end)[2]
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
