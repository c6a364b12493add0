#!/usr/bin/env python3
"""Random templates through jinja2 and through ours: the texts must be equal.

    tools/checks/check_jinja.py TEST_JINJA [COUNT] [SEED] [TEMPLATES]

With TEMPLATES, a folder of *.jinja files, those are rendered with random conversations instead.

TEST_JINJA is the built program tests/test_jinja (used as `test_jinja --serve`). A mismatch is a
different text, or a text where the other side refuses; what ours refuses as "not supported" or by
a limit is counted apart. Prints each mismatch and a summary; exits 1 if there was one.
"""
import functools
import json
import pathlib
import random
import subprocess
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fixtures"))
from make_template_goldens import environment  # noqa: E402

STATUS_UNSUPPORTED, STATUS_FULL = 3, 7
VARS = {
    "s": "Hello World", "t": "  pad\tded \n", "u": "äÖß漢🙂é", "e": "", "q": "it's \"x\" \\ <a>&",
    "lines": "one\ntwo\r\n\nthree\n", "num": "42", "fl": "3.5e2", "html": "<b>x</b>",
    "i": 3, "z": 0, "neg": -7, "f": 2.5, "g": -0.125, "big": 1e22, "small": 1.5e-7, "yes": True,
    "no": False, "nil": None,
    "l": [3, 1, 2], "m": ["b", "A", "c", "a"], "n": [1, "a", None, 2.5, True, [1, 2], {"k": "v"}],
    "d": {"a": 1, "b": [1, 2], "items": 5, "_x": 6, "c d": "e", "n": {"m": {"o": "deep"}}},
    "o": {"role": "user", "content": "hi", "0": "zero"},
    "ms": [{"role": "user", "content": "a", "n": 2}, {"role": "assistant", "content": None, "n": 1},
           {"role": "user", "content": "b", "n": 2, "tool": {"name": "f"}}],
    "empty": [], "ed": {},
}
NAMES = list(VARS) + ["undef", "loop", "x", "y", "ns", "mac"]
TEXT = ["a", " ", "\n", "  ", "\n\n", "x y", "\t", "text\n", "  \n ", "{", "}", "é", "-", "%"]
ATTRS = ["a", "b", "n", "role", "content", "items", "keys", "x", "index", "first", "last", "tool",
         "_x", "get", "upper", "length", "__class__", "append", "update", "m", "previtem",
         "nextitem", "index0", "revindex"]
METHODS = ["strip()", "upper()", "lower()", "title()", "split()", "split(' ')", "split('l', 1)",
           "rsplit(' ', 1)", "startswith('H')", "endswith(('d', 'x'))", "replace('l', 'L')",
           "replace('l', '', 1)", "find('o')", "count('l')", "join(m)", "join(['p', 'q'])",
           "items()", "keys()", "values()", "get('a')", "get('zz', 7)", "index('l')", "lstrip()",
           "rstrip('dl')", "strip(' p')", "capitalize()", "splitlines()", "isdigit()",
           "isupper()", "format(1, x=2)", "partition(' ')", "rpartition('l')", "zfill(5)",
           "center(15, '*')", "ljust(12)", "rjust(12, '.')", "swapcase()", "isalpha()", "isspace()",
           "removeprefix('He')", "removesuffix('ld')", "index(1)", "count(1)", "pop()",
           "append(1)", "copy()", "rfind('l')", "find('l', 4)", "isalnum()", "istitle()",
           "expandtabs()", "find('')", "count('')", "replace('', '-')", "split('')",
           "rsplit('l')", "splitlines(True)", "startswith('e', 1)", "get()", "zzz()"]
FILTERS = ["upper", "lower", "trim", "length", "count", "first", "last", "list", "join", "join(',')",
           "join('-', 'role')", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=True)",
           "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "string", "default('D')",
           "default('D', true)", "d", "int", "int(5)", "float", "abs", "round", "round(1)",
           "round(1, 'ceil')", "round(method='floor')", "reverse", "reverse|list", "sort",
           "sort(reverse=true)", "sort(attribute='n')", "sort(case_sensitive=true)", "unique|list",
           "dictsort", "dictsort(by='value')", "items|list", "map('upper')|list",
           "map(attribute='role')|list", "map(attribute='tool.name', default='-')|list",
           "map('int')|list", "select|list", "select('string')|list", "reject('none')|list",
           "selectattr('role')|list", "selectattr('role', 'equalto', 'user')|list",
           "rejectattr('content', 'none')|list", "selectattr('tool', 'defined')|list",
           "batch(2)|list", "batch(2, 'z')|list", "slice(2)|list", "sum", "sum(attribute='n')",
           "min", "max", "groupby('role')", "groupby('n')|list", "replace('l', 'r')",
           "replace('a', 'b', 1)", "indent", "indent(2, true)", "indent(width=1, blank=true)",
           "title", "capitalize", "safe", "escape", "e", "forceescape", "truncate(5)",
           "truncate(6, true, '..', 0)", "wordcount", "center(9)", "format(1, 2)", "attr('a')",
           "trim('H')", "map('default', 'x')|list", "join(attribute='n')", "map(attribute='n')|sum",
           "items", "int(base=16)", "float(1.5)", "map('length')|list", "list|length", "zzz"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number",
         "integer", "float", "boolean", "true", "false", "even", "odd", "divisibleby(2)",
         "divisibleby 3", "eq 3", "ne 'a'", "lt 5", "gt(1)", "in [1, 2, 3]", "in 'abc'", "upper",
         "lower", "callable", "sameas none", "equalto('a')", "filter", "test", "escaped", "ge 2",
         "not none", "not defined", "zzz"]
LITERALS = ["1", "0", "-3", "2.5", "1e3", "7", "100000", "'a'", "\"b\"", "'it\\'s'", "'\\n\\t\\\\'",
            "'\\u00e9x'", "''", "[]", "{}", "()", "(1,)", "true", "False", "none", "[1, 'a', 2.0]",
            "{'k': 1, 2: 'v'}", "(1, 'b')", "'%s-%d'", "'ab' 'cd'", "0x1f", "1_000", "'{}{}'", "1.0",
            "'é\\x41'", "[[1, 2], [3]]", "{'a': {'b': [true]}}", "'%5.2f|%-4s|%04d|%r'", "10", "'l'"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">", "<=", ">=", "in", "not in",
          "and", "or", "~", "+", "==", "in"]


class Maker:
    """Random expressions and statements of a bounded size."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.loops = 0

    def pick(self, items):
        return self.r.choice(items)

    def expr(self, depth):
        r = self.r.random()
        if depth <= 0 or r < 0.12:
            return self.pick(LITERALS)
        if r < 0.28:
            return self.pick(NAMES)
        if r < 0.42:
            return f"{self.expr(depth - 1)} {self.pick(BINARY)} {self.expr(depth - 1)}"
        if r < 0.54:
            return f"{self.primary(depth - 1)}|{self.pick(FILTERS)}"
        if r < 0.62:
            return f"{self.primary(depth - 1)} is {self.pick(TESTS)}"
        if r < 0.70:
            return f"{self.primary(depth - 1)}.{self.pick(METHODS)}"
        if r < 0.77:
            return f"{self.primary(depth - 1)}.{self.pick(ATTRS)}"
        if r < 0.83:
            key = self.subscript(depth - 1)
            # jinja2 evaluates literals while compiling, where a slice of an int is undefined
            # and no error; nobody writes that, so slices are taken of names here.
            whole = self.pick(NAMES) if ":" in key else self.primary(depth - 1)
            return f"{whole}[{key}]"
        return self.compound(depth)

    def compound(self, depth):
        kind = self.r.randrange(9)
        a, b = self.expr(depth - 1), self.expr(depth - 1)
        return [f"({a})", f"[{a}, {b}]", f"{{'k': {a}, 'j': {b}}}", f"not {a}",
                f"{a} if {b} else {self.expr(depth - 1)}", f"{a} if {b}", f"-{self.primary(depth - 1)}",
                f"{self.pick(['range', 'dict', 'mac', 'namespace'])}({a})",
                f"({a}) % ({b}, {self.expr(depth - 1)})"][kind]

    def primary(self, depth):
        if self.r.random() < 0.75:
            return self.pick(NAMES + ["'Hello'", "'%s'"])
        return f"({self.expr(depth)})"

    def subscript(self, depth):
        if self.r.random() < 0.5:
            return self.pick(["0", "-1", "1", "'a'", "'role'", "5", "true", "'items'", "none",
                              "'__class__'", "1.0"])
        part = ["", "1", "-1", "2", "-2", "0", "10", "none", "i"]
        if self.r.random() < 0.6:
            return f"{self.pick(part)}:{self.pick(part)}"
        if self.r.random() < 0.7:
            return f"{self.pick(part)}:{self.pick(part)}:{self.pick(['', '1', '2', '-1', '-2', '0'])}"
        return self.expr(depth)

    def tag(self, inside):
        left, right = self.pick(["{%", "{%-", "{%", "{%-", "{%+"]), self.pick(["%}", "-%}", "%}", "+%}"])
        return f"{left} {inside} {right}"

    def body(self, depth):
        return "".join(self.node(depth - 1) for _ in range(self.r.randrange(1, 4)))

    def node(self, depth):
        r = self.r.random()
        if r < 0.25:
            return self.pick(TEXT)
        if depth <= 0 or r < 0.5:
            left, right = self.pick(["{{", "{{-", "{{"]), self.pick(["}}", "-}}", "}}"])
            return f"{left} {self.expr(2)} {right}"
        if r < 0.53:
            return self.pick(["{# c #}", "{#- c -#}\n", "{# {{ #}\n", "  {#- x +#}\n"])
        if r < 0.55:
            return self.tag("raw") + "{{ a }}\n " + self.tag("endraw")
        return self.statement(depth)

    def statement(self, depth):
        kind = self.r.randrange(13)
        if kind <= 2:
            text = self.tag("if " + self.expr(2)) + self.body(depth)
            if self.r.random() < 0.3:
                text += self.tag("elif " + self.expr(1)) + self.body(depth)
            if self.r.random() < 0.5:
                text += self.tag("else") + self.body(depth)
            return text + self.tag("endif")
        if kind <= 6:
            return self.loop(depth)
        if kind == 7:
            return self.tag(f"set {self.pick(['x', 'y', 's', 'x, y', 'ns.v', 'i'])} = {self.expr(2)}")
        if kind == 8:
            return (self.tag("set x" + self.pick(["", " | upper", "|trim"])) + self.body(depth)
                    + self.tag("endset"))
        if kind == 9:
            parameters = self.pick(["", "x", "x, y=1", "x, y=x", "s, i=s", "x=undef"])
            arguments = self.pick(["", "1", "1, 2", "s, y='k'", "x=1", "l, 3, 4", "y=2, x=3", "**ed", "*l"])
            return (self.tag(f"macro mac({parameters})") + self.body(depth) + self.tag("endmacro")
                    + "{{ mac(" + arguments + ") }}")
        if kind == 10:
            return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'b')|length", "indent(2)"])) \
                + self.body(depth) + self.tag("endfilter")
        if kind == 11:
            return self.tag("generation") + self.body(depth) + self.tag("endgeneration")
        return self.tag(f"with x = {self.expr(1)}") + self.body(depth) + self.tag("endwith")

    def loop(self, depth):
        target, source = self.pick([("x", self.expr(1)), ("x", "l"), ("y", "ms"), ("x", "m"), ("k, v", "d.items()"),
                                    ("x", "range(3)"), ("k, v", "o|items"), ("x", "s"), ("i", "n"),
                                    ("x", "d"), ("x", "l|map('string')"), ("m", "ms")])
        test = f" if {self.expr(1)}" if self.r.random() < 0.3 else ""
        self.loops += 1
        inner = self.body(depth)
        if self.r.random() < 0.5:
            inner += self.pick(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.first }}{{ loop.revindex0 }}",
                                "{{ loop.previtem }}", "{{ loop.nextitem }}", "{{ loop.length }}",
                                "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(x) }}", "{{ k }}{{ v }}", "{{ x }}",
                                "{{ x }},"])
        if self.r.random() < 0.2:
            inner += self.tag("if " + self.expr(1)) + self.tag(self.pick(["break", "continue"])) + self.tag("endif")
        if self.r.random() < 0.2:
            inner += self.body(depth)
        self.loops -= 1
        otherwise = self.tag("else") + self.body(depth) if self.r.random() < 0.2 else ""
        return self.tag(f"for {target} in {source}{test}") + inner + otherwise + self.tag("endfor")

    def template(self):
        start = "{% set ns = namespace(v=1) %}" if self.r.random() < 0.5 else ""
        if self.r.random() < 0.5:
            return start + "{{ " + self.expr(3) + " }}"
        return start + "".join(self.node(3) for _ in range(self.r.randrange(1, 5)))


class Talker:
    """Random conversations, most of them well-formed."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def maybe(self, message, key, share, value):
        if self.r.random() < share:
            message[key] = value

    def text(self):
        return self.r.choice([
            "", "Hi", "  padded \n", "a\nb\n", "<think>\nhm\n</think>\n\nso", "<think>x", "</think>y",
            "é🙂 \"q\" 'p' <&> \\n", "[TOOL_CALLS]", "{\"a\": 1}", "\u2028\u00a0x", "1", "None",
            "long " * 20, "<tool_response>z</tool_response>", None])

    def content(self):
        if self.r.random() < 0.8:
            return self.text()
        return [{"type": self.r.choice(["text", "text", "text", "image"]), "text": self.text() or "t"}
                for _ in range(self.r.randrange(4))]

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 2 else 6)
        if kind < 6:
            return [1, -2.5, True, None, self.text(), 1e20][kind]
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.r.randrange(3))]
        return {key: self.value(depth + 1) for key in ("k", "é", "items")[:self.r.randrange(4)]}

    def call(self):
        arguments = {key: self.value() for key in ("city", "n", "opts")[:self.r.randrange(4)]}
        if self.r.random() < 0.2:
            arguments = json.dumps(arguments)
        function = {"name": self.r.choice(["f", "get_weather"]), "arguments": arguments}
        return function if self.r.random() < 0.1 else {
            "id": self.r.choice(["call00001", "abcdefghi", "x", "functions.f:0"]), "type": "function",
            "function": function}

    def schema(self, depth=0):
        schema = {"type": self.r.choice(["string", "integer", "number", "boolean", "array", "object",
                                         ["string", "null"]])}
        self.maybe(schema, "description", 0.6, self.r.choice(["A thing.", "two\nlines", ""]))
        self.maybe(schema, "enum", 0.2, ["a", "b"])
        self.maybe(schema, "default", 0.2, self.value(1))
        self.maybe(schema, "nullable", 0.1, True)
        if depth < 2 and schema["type"] == "array":
            self.maybe(schema, "items", 0.8, self.schema(depth + 1))
        if depth < 2 and schema["type"] == "object":
            self.maybe(schema, "properties", 0.8, {"p": self.schema(depth + 1), "q": self.schema(depth + 1)})
            self.maybe(schema, "required", 0.5, ["p"])
        return schema

    def tool(self):
        function = {"name": self.r.choice(["f", "get_weather"]), "description": "Does it."}
        self.maybe(function, "parameters", 0.9, {
            "type": "object", "required": self.r.choice([[], ["city"]]),
            "properties": {key: self.schema() for key in ("city", "n", "opts")[:self.r.randrange(4)]}})
        self.maybe(function, "return", 0.2, {"type": "string", "description": "d"})
        return {"type": "function", "function": function}

    def message(self, role):
        message = {"role": role, "content": self.content()}
        if role == "assistant":
            self.maybe(message, "tool_calls", 0.4, [self.call() for _ in range(self.r.randrange(3))])
            self.maybe(message, "reasoning_content", 0.3, self.text())
            self.maybe(message, "thinking", 0.2, self.text())
        if role == "tool":
            self.maybe(message, "tool_call_id", 0.8, "call00001")
            self.maybe(message, "name", 0.7, "f")
        if self.r.random() < 0.03:
            del message["content"]
        return message

    def variables(self):
        roles = self.r.choice([["system"], [], [], ["developer"]])
        for _ in range(self.r.randrange(1, 4)):
            roles = roles + self.r.choice([["user", "assistant"], ["user", "assistant", "tool", "assistant"],
                                           ["user", "assistant", "tool", "tool"], ["user"]])
        if self.r.random() < 0.6:
            roles.append("user")
        if self.r.random() < 0.1:
            self.r.shuffle(roles)
        variables = {"messages": [self.message(role) for role in roles], "bos_token": "<s>",
                     "eos_token": "</s>", "add_generation_prompt": self.r.random() < 0.5,
                     "tools": [self.tool() for _ in range(self.r.randrange(3))] if self.r.random() < 0.5 else None}
        for key, value in (("enable_thinking", False), ("thinking", True), ("documents", [{"title": "t", "text": "x"}]),
                           ("reasoning_effort", "low"), ("builtin_tools", ["python"]), ("date_string", "1 Jan 2025"),
                           ("documents", None), ("tools_in_user_message", False), ("keep_past_thinking", True)):
            self.maybe(variables, key, 0.1, value)
        return variables


@functools.lru_cache(maxsize=64)
def compiled(env, source):
    return env.from_string(source)


def expected(env, source, variables):
    """(text, None) or (None, error)."""
    try:
        return compiled(env, source).render(**json.loads(json.dumps(variables))), None
    except RecursionError:
        return None, "recursion"
    except Exception as error:  # pylint: disable=broad-except
        return None, f"{type(error).__name__}: {error}"


def unstable(text):
    return text is not None and any(mark in text for mark in (
        " at 0x", "<generator", "<bound", "<built-in", "<class", "<function", "&lt;generator",
        "LoopContext", "&lt;bound", "&lt;built-in", "&lt;class", "&lt;function", "&LT;", "<GENERATOR",
        "<Generator", "<BUILT", "<Built", "<Bound", "<Class", "<CLASS", "<FUNCTION", "<Loop", "TemplateDict"))


def check(process, env, source, variables):
    """'same', 'skipped', 'unsupported', or a description of the mismatch."""
    text, error = expected(env, source, variables)
    process.stdin.write(json.dumps({"template": source, "vars": variables}) + "\n")
    process.stdin.flush()
    reply = json.loads(process.stdout.readline())
    if error == "recursion" or (variables is VARS and unstable(text)):
        return "skipped"
    if reply.get("status") in (STATUS_UNSUPPORTED, STATUS_FULL):
        return "same" if text is None else "unsupported"
    if text == reply.get("text"):
        return "same" if text is not None or "error" in reply else "mismatch"
    if variables is not VARS:
        source = source[:60] + json.dumps(variables, ensure_ascii=False)
    return f"{source!r}\n  jinja2: {text!r} {error or ''}\n  ours:   {reply!r}"


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    warnings.simplefilter("ignore")
    env = environment()
    maker = Maker(seed)
    talker, published = Talker(seed), []
    if len(sys.argv) > 4:
        for path in sorted(pathlib.Path(sys.argv[4]).glob("*.jinja")):
            published.append(path.read_text(encoding="utf-8"))
    tally = {"same": 0, "skipped": 0, "unsupported": 0, "mismatch": 0}
    with subprocess.Popen([program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, encoding="utf-8") as process:
        for _ in range(count):
            if published:
                verdict = check(process, env, maker.pick(published), talker.variables())
            else:
                verdict = check(process, env, maker.template(), VARS)
            if verdict not in tally:
                print(verdict, flush=True)
                verdict = "mismatch"
            tally[verdict] += 1
        process.stdin.close()
    print(tally)
    return 1 if tally["mismatch"] else 0


if __name__ == "__main__":
    sys.exit(main())
