#!/usr/bin/env python3
"""Goldens for the chat template interpreter, made by jinja2 set up as transformers does.

    tools/make_template_goldens.py [TEMPLATES]

Writes tests/data/templates/snippets.json (own small templates, with the text jinja2 gives) and,
where TEMPLATES (default ../shared/assets/templates) exists, tests/data/template_hashes.json: for
each published template and each conversation of tests/data/templates/conversations.json the
length and the FNV-1a hash of the text, or null where jinja2 refuses. The published templates
follow their models' licences, so neither they nor their texts are kept in this repository.
"""
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "tests", "data")
NOW = 1753272000  # what the tests pass as `now`


class Generation(jinja2.ext.Extension):
    """The tag that marks the assistant's words; it prints its body as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


class Dict:
    """`dict` as templates see it."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    """A namespace that refuses names with a leading underscore."""

    def __init__(*args, **kwargs):  # pylint: disable=no-method-argument
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    env.globals["dict"] = Dict()
    env.globals["namespace"] = Namespace
    return env


def render(env, source, variables):
    """The text, or None where jinja2 refuses."""
    try:
        return env.from_string(source).render(**variables)
    except Exception:  # pylint: disable=broad-except
        return None


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def make_snippets(env):
    with open(os.path.join(DATA, "templates", "snippets.in.json"), encoding="utf-8") as file:
        groups = json.load(file)
    cases = []
    for group in groups:
        for source in group["templates"]:
            variables = group.get("vars", {})
            cases.append({"template": source, "vars": variables,
                          "text": render(env, source, variables)})
    path = os.path.join(DATA, "templates", "snippets.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file, ensure_ascii=False, indent=0)
        file.write("\n")
    refused = sum(case["text"] is None for case in cases)
    print(f"{len(cases)} snippets, {refused} refused by jinja2")


def make_hashes(env, folder):
    with open(os.path.join(DATA, "templates", "conversations.json"), encoding="utf-8") as file:
        conversations = json.load(file)
    table = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            source = file.read()
        row = {}
        for key, variables in conversations.items():
            text = render(env, source, variables)
            data = None if text is None else text.encode()
            row[key] = None if data is None else [len(data), fnv1a(data)]
        table[name] = row
    path = os.path.join(DATA, "template_hashes.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n")
        file.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table.items()))
        file.write("\n}\n")
    rendered = sum(v is not None for row in table.values() for v in row.values())
    total = sum(len(row) for row in table.values())
    print(f"{len(table)} templates, {rendered} of {total} cases render")


def main():
    os.environ["TZ"] = "UTC"
    env = environment()
    make_snippets(env)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        HERE, "..", "..", "shared", "assets", "templates")
    if os.path.isdir(folder):
        make_hashes(env, folder)
    else:
        print(f"{folder}: absent, the hashes stay as they are")


if __name__ == "__main__":
    main()
