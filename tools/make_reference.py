#!/usr/bin/env python3
"""Writes what the program prints: the page of commands and options, the tables of methods, combinations and sampling in
docs/reference, the manual's section on sampling, and the options and values that the shell completes.

    tools/make_reference.py [--build build] [--check]     --check names the pages that are out of date, and ends with 1
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs/reference"
OPTION = re.compile(r"  (-\S.*?)(?:  +(\S.*))?$")
MODEL_OPTIONS = "How the model runs"
RECIPE_KEYS = "Keys of a recipe, which are options too"
HEAD = """# Command line

This page is written by `tools/make_reference.py` from what `swiftkv help COMMAND` prints. A default stands in
parentheses. `man man/swiftkv.1` is the manual page.

Exit status: 0 the command did its work, 1 it failed, 2 the command line is wrong. An error is one line on standard
error.
"""


class Section:
    """Options under one heading of a command's help."""

    def __init__(self, title):
        self.title, self.options, self.words = title, [], []

    def read(self, line):
        found = OPTION.match(line)
        if found:
            self.options.append([found[1], found[2] or ""])
        elif self.options and line.startswith(" " * 8):
            self.options[-1][1] = f"{self.options[-1][1]} {line.strip()}".strip()
        else:
            self.words.append(line.strip())

    def table(self):
        rows = (f"| `{name.replace('|', chr(92) + '|')}` | {escape(text)} |" for name, text in self.options)
        return "\n".join(("| option | |", "|---|---|", *rows))


class Help:
    """What `swiftkv help COMMAND` says."""

    def __init__(self, text):
        self.title, self.usage, self.words, self.sections = text.partition("\n")[0].partition(": ")[2], "", [], []
        for line in text.splitlines()[1:]:
            heading = re.fullmatch(r"([A-Z][^:]*):", line)
            if line.startswith("Usage: "):
                self.usage = line.removeprefix("Usage: ")
            elif heading:
                self.sections.append(Section(heading[1]))
            elif self.sections:
                self.sections[-1].read(line)
            else:
                self.words.append(line)


def escape(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def say(program, *words):
    return subprocess.run([program, "help", *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def commands(program):
    """{command: its help}, in the order in which the program lists them."""
    names = re.findall(r"^  (\w+) {2,}", say(program), re.M)
    return {name: Help(say(program, name)) for name in names if name not in ("help", "version")}


def command_page(program):
    found = commands(program)
    shared, parts = {}, [HEAD, "| command | |\n|---|---|"]
    parts[-1] += "".join(f"\n| [{name}](#{name}) | {escape(about.title)} |" for name, about in found.items())
    for name, about in found.items():
        parts.append(f"## {name}\n\n```text\n{about.usage}\n```\n\n{escape(chr(10).join(about.words).strip())}")
        for section in about.sections:
            if section.title == MODEL_OPTIONS:
                shared |= {option: text for option, text in section.options}
                names = ", ".join(f"`{option.split()[0]}`" for option, _ in section.options)
                parts.append(f"[Model options](#model-options): {names}")
            elif section.title == RECIPE_KEYS:
                parts.append("[Keys of a recipe](recipe.md) are options too.")
            elif section.options:
                parts.append(section.table())
            else:
                parts.append(f"{section.title}: {' '.join(filter(None, section.words))}")
    model = Section(MODEL_OPTIONS)
    model.options = list(shared.items())
    parts.append(f"## Model options\n\nHow a model is run. Each command lists those it takes.\n\n{model.table()}")
    return wrap("\n\n".join(part.strip() for part in parts) + "\n")


def wrap(text):
    """Lists of names become lines that fit a page."""
    out = []
    for line in text.splitlines():
        while len(line) > 118 and not line.startswith("|"):
            cut = line.rindex(" ", 0, 118)
            out.append(line[:cut])
            line = line[cut + 1:]
        out.append(line)
    return "\n".join(out) + "\n"


def sampling_manual(program):
    """The fields of sampling in mdoc."""
    out = ""
    for line in say(program, "--sampling").splitlines()[2:]:
        _, option, values, initial, text = (cell.strip(" `") for cell in line.strip("|").split("|"))
        name, argument = option.removeprefix("-").split()
        out += f".It Fl {name} Ar {argument.lower()}\n{text[0].upper()}{text[1:]}.\n"
        out += f"A value is {values}; by default {initial}.\n"
    return out


def completion(program):
    """The options of each command as a case of bash."""
    options = {}
    for line in say(program, "--list").splitlines():
        command, *option = line.split()[:2]
        options.setdefault(command, []).extend(option)
    out = ""
    for command, names in options.items():
        if command in ("help", "version"):
            continue
        text = f"{command}) echo '{' '.join(dict.fromkeys(names))}' ;;"
        out += "\n".join(textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False)) + "\n"
    return out


FILES = {"F", "FILE", "FILE|NAME", "OUT", "DIR", "FOLDER", "MODEL", "MODEL|teacher"}


def value_words(argument):
    """What the completion offers after an option: names, or FILES, or nothing (a number, a text)."""
    words = [word for word in argument.split("|") if re.fullmatch(r"[a-z0-9][a-z0-9.-]*", word)]
    return " ".join(words + ["FILES"] * (argument in FILES))


def completion_values(program):
    """The values of each option as a case of bash; options that differ among commands by command. The cases before
    the mark are written by hand."""
    text = (ROOT / "completion/swiftkv.bash").read_text().partition("_swiftkv_values() {")[2]
    by_hand = set(re.findall(r"([\w*]+:-[\w-]+)", text.partition("# values: written")[0]))
    found = {}
    for line in say(program, "--list").splitlines():
        command, option, argument, *_ = line.split() + [""] * 2
        if argument and not {f"*:{option}", f"{command}:{option}"} & by_hand:
            found.setdefault(option, {})[command] = value_words(argument)
    cases = {}
    for option, of in found.items():
        common = collections.Counter(of.values()).most_common(1)[0][0]
        for command, words in of.items():
            shared = words == common
            cases.setdefault((shared, words), {})[f"*:{option}" if shared else f"{command}:{option}"] = None
    out = ""
    for (_, words), names in sorted(cases.items()):
        # A bar stays with the name after it.
        bars = textwrap.wrap(" | ".join(names).replace("| ", "|"), 105, break_on_hyphens=False)
        names = "    " + " \\\n        ".join(bars).replace("|", "| ")
        out += f"{names})" + (f" echo '{words}' ;;\n" if words else " ;;\n")
    return out


def values_by_hand():
    """{"COMMAND:OPTION" or "*:OPTION": words}: the cases of the bash completion that are written by hand."""
    text = (ROOT / "completion/swiftkv.bash").read_text().partition("_swiftkv_values() {")[2].partition("# values: ")[0]
    found = {}
    for names, words in re.findall(r"^    ([\w*:| -]+)\)\s+echo '([^']*)'", text, re.M):
        found |= {name.strip(): " ".join(words.split()) for name in names.split("|")}
    return found


def offers(program):
    """Of each command: its title and its options, each with argument, words and FILES to offer, and what it does."""
    by_hand, listed = values_by_hand(), {}
    for line in say(program, "--list").splitlines():
        command, option, argument, *_ = line.split() + [""] * 2
        if option:
            listed.setdefault(command, {})[option] = argument
    for name, about in commands(program).items():
        texts = [" ".join(one) for section in about.sections for one in section.options]
        options = []
        for option, argument in listed[name].items():
            heading = f"{option} {argument}".strip() + " "
            text = next((text[len(heading):] for text in texts if text.startswith(heading)), "")
            words = by_hand.get(f"{name}:{option}", by_hand.get(f"*:{option}", value_words(argument)))
            options.append((option, argument, words.split(), short(text)))
        yield name, about.title, options


def short(text):
    """What stands in a list beside the option."""
    first = re.split(r"[;.] | \(", text.strip())[0].strip()
    return textwrap.shorten(first, 70, placeholder=" ...") if first else ""


ZSH = """#compdef swiftkv
# Completion of swiftkv(1) for zsh. This file is written by tools/make_reference.py.

_swiftkv() {{
    local state line
    local -a commands
    commands=(
{commands}    )
    _arguments -C '1: :->command' '*:: :->rest'
    if [[ $state == command ]]; then
        _describe command commands
        return
    fi
    case $line[1] in
{cases}    esac
}}

_swiftkv "$@"
"""


def zsh_text(text):
    for mark in "[]:":
        text = text.replace(mark, "\\" + mark)
    return text.replace("'", "'\\''")


def zsh_option(option, argument, words, text):
    if not argument:
        return f"'{option}[{zsh_text(text)}]'"
    names = " ".join(word for word in words if word != "FILES")
    action = "_files" if "FILES" in words else f"({zsh_text(names)})" if names else " "
    return f"'*{option}[{zsh_text(text)}]:{'value' if '|' in argument else zsh_text(argument.lower())}:{action}'"


def zsh_completion(program):
    heads = cases = ""
    for name, title, options in offers(program):
        heads += f"        '{name}:{title.replace(chr(39), '')}'\n"
        lines = " \\\n            ".join([zsh_option(*one) for one in options] + ["'*:file:_files'"])
        cases += f"    {name})\n        _arguments \\\n            {lines}\n        ;;\n"
    return ZSH.format(commands=heads, cases=cases)


def fish_option(command, option, argument, words, text):
    kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
    names = " ".join(word for word in words if word != "FILES")
    takes = "" if not argument else " -rF" if "FILES" in words else " -x"
    told = f" -d '{text.replace(chr(39), chr(92) + chr(39))}'" if text else ""
    return f"complete -c swiftkv -n '__fish_seen_subcommand_from {command}' {kind}{takes}" + (
        f" -a '{names}'" if names and argument else "") + told + "\n"


def fish_completion(program):
    out = "# Completion of swiftkv(1) for fish. This file is written by tools/make_reference.py.\n"
    for name, title, options in offers(program):
        told = title.replace("'", "\\'")
        out += f"complete -c swiftkv -n __fish_use_subcommand -f -a {name} -d '{told}'\n"
        out += "".join(fish_option(name, *one) for one in options)
    return out


# Where what the program prints stands: file, mark before, mark after, what writes it.
REGIONS = (
    ("docs/reference/methods.md", "<!-- methods -->\n", "<!-- end -->", lambda program: say(program, "--methods")),
    ("docs/reference/methods.md", "<!-- combinations -->\n", "<!-- end of combinations -->",
     lambda program: say(program, "--combinations")),
    ("docs/reference/http.md", "<!-- sampling -->\n", "<!-- end of sampling -->", lambda program: say(program, "--sampling")),
    ("man/swiftkv.1", '.\\" sampling: written by tools/make_reference.py\n', '.\\" end of sampling', sampling_manual),
    ("completion/swiftkv.bash", "    # options: written by tools/make_reference.py\n", "    # end of options", completion),
    ("completion/swiftkv.bash", "    # values: written by tools/make_reference.py\n", "    # end of values",
     completion_values),
)


def pages(program):
    """{path: text} of all files that the program has a part in."""
    out = {REFERENCE / "command-line.md": command_page(program), ROOT / "completion/_swiftkv": zsh_completion(program),
           ROOT / "completion/swiftkv.fish": fish_completion(program)}
    for name, mark, end, write in REGIONS:
        path = ROOT / name
        page = out.get(path) or path.read_text()
        before, found, rest = page.partition(mark)
        if not found or end not in rest:
            sys.exit(f"{path}: the marks {mark.strip()} and {end} are gone")
        out[path] = before + mark + write(program) + end + rest.partition(end)[2]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stale = {path: text for path, text in pages(args.build.resolve() / "swiftkv").items()
             if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(path)
        if not args.check:
            path.write_text(text)
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
