#!/usr/bin/env python3
"""A property of replies: what a chat template writes for a call is read as that call, for every template at hand and
arguments that hold marks, numbers with commas, line ends, nullable and nested values.

SKV_CALL_CASES is the number of cases of a template (default: 12), SKV_TEST_SEED the first seed. A failure prints both.
"""

import json
import os
import random
import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from call_cases import PLAIN, ROOT, TEMPLATES, USER, call_is_clear, called, function, parameters, text_of_call  # noqa: E402
from property_seed import SEED, count  # noqa: E402

try:
    import hypothesis
    from hypothesis import strategies as st
except ImportError:
    hypothesis = None

TOOL = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "tests" / "tool_reply"
CASES = int(os.environ.get("SKV_CALL_CASES", 12))


# What stands in front of calls and is no part of them: a thought that is none, the frame of a text, an address.
THOUGHT = r"^\s*(<think>)?\s*</(\w+:)?think(:\w+)?>\s*|^.*(?=<\|open\|>tools)|^ to=f<\|message\|>"


class Tool:
    """tool_reply.c"""

    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, template, **asked):
        line = json.dumps({"template": str(template), **asked}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class RoundTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tool = Tool()
        cls.addClassCleanup(cls.tool.close)

    def renderer(self, template, tools):
        more = {"tools": tools, "bos_token": "<s>", "eos_token": "</s>", "date_string": "", "datetime": "", "functions": "[]"}

        def render(messages, begins):
            vars = {"messages": messages, "add_generation_prompt": begins, **more}
            return self.tool.ask(template, vars=vars).get("text")

        return render

    def written(self, template, schema, arguments):
        """The prompt and the call behind it; None: the template writes no calls, and nor do we."""
        render = self.renderer(template, [function(schema)])
        prompt, text = text_of_call(render, arguments)
        shown = text_of_call(render, {"skv": "SKVSHOWN"})[1]
        if text is not None and shown and "SKVSHOWN" in shown:
            return prompt, text
        return prompt, self.tool.ask(template, calls=[{"name": "f", "arguments": arguments}]).get("text")

    def read(self, template, prompt, text, schema, step):
        return self.tool.ask(template, prompt=prompt, text=text, schema=schema, step=step)

    def check(self, template, schema, arguments, step):
        form = self.tool.ask(template, calls=[])["format"]
        hypothesis.assume(form == "none" or call_is_clear(form, schema, arguments))
        prompt, text = self.written(template, schema, arguments)
        if text is None or form == "none":
            return False
        count()
        story = f"{template.stem} ({form}): {text!r} pushed by {step}"
        answer = self.read(template, prompt, text, schema, step)
        pieces = answer["pieces"]
        kinds = [kind for kind, _ in pieces if kind not in ("id", "thought", "text")]
        self.assertEqual(kinds, ["call", "arguments", "end"], f"{story}: {answer}")
        self.assertEqual(dict(pieces)["call"], "f", story)
        got = json.loads(dict(pieces)["arguments"], object_pairs_hook=lambda pairs: self.object(pairs, story))
        self.assertEqual(got, arguments, story)
        self.assertEqual(json.dumps(got, sort_keys=True), json.dumps(arguments, sort_keys=True), story)
        return True

    def object(self, pairs, story):
        self.assertEqual(len(dict(pairs)), len(pairs), f"{story}: a name is there twice")
        return dict(pairs)

    def test_calls_are_read_as_they_were_written(self):
        n_written = 0
        for template in TEMPLATES:
            if not template.exists():
                continue
            seen = []

            @hypothesis.seed(SEED)
            @hypothesis.settings(max_examples=CASES, deadline=None, database=None, print_blob=False,
                                 suppress_health_check=list(hypothesis.HealthCheck))  # fmt: skip
            @hypothesis.given(parameters(st), st.sampled_from([1, 2, 3, 7, 1 << 20]))
            def case(pair, step):
                seen.append(self.check(template, *pair, step))

            with self.subTest(template=template.stem, seed=SEED, cases=CASES):
                case()
                n_written += any(seen)
        self.assertGreaterEqual(n_written, 20 if len(TEMPLATES) > 20 else 1)

    def test_what_is_cut_off_is_told(self):
        """The beginning of a call gives a call with whole arguments, or all of its text, or a call that was told before."""
        rng = random.Random(SEED)
        schema = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}
        for template in TEMPLATES:
            if not template.exists():
                continue
            prompt, text = self.written(template, schema, {"s": "a \n}</parameter>\nb", "n": 12})
            form = self.tool.ask(template, calls=[])["format"]
            if text is None or form == "none":
                continue
            for n in sorted(rng.sample(range(1, len(text)), min(12, len(text) - 1))):
                pieces = self.read(template, prompt, text[:n], schema, 5)["pieces"]
                kinds = [kind for kind, _ in pieces]
                with self.subTest(template=template.stem, text=text[:n], pieces=pieces):
                    if "end" in kinds:
                        json.loads(dict(pieces)["arguments"])
                    elif "call" in kinds:
                        self.assertEqual(kinds[-1], "bad")
                        self.assertTrue(text[:n].rstrip().endswith(dict(pieces)["bad"].rstrip()))


    def test_what_is_slightly_wrong(self):
        """Without its first mark, with another one than the last, or with null for arguments, a call is that call or a text
        that lacks nothing."""
        schema = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}
        n_calls = {}
        for template in TEMPLATES:
            form = self.tool.ask(template, calls=[])["format"] if template.exists() else "none"
            if form == "none":
                continue
            for arguments in ({"s": "a, b", "n": 12}, {}):
                prompt, text = self.written(template, schema, arguments)
                if text is None:
                    continue
                text = re.sub(THOUGHT, "", text)
                first = re.match(r"\s*(<[^<>]+>|\[[A-Z_]+\])", text)
                last = re.search(r"(<[^<>]+>|\])\s*$", text)
                wrong = {"first": text[first.end():] if first else None, "last": text[:last.start()] if last else None,
                         "null": re.sub(r"\{\}", "null", text) if not arguments and "{}" in text else None,
                         "other": text[:last.start()] + "<|other|>" if last else None}  # fmt: skip
                for kind, said in wrong.items():
                    for step in (1, 1 << 20) if said else ():
                        with self.subTest(template=template.stem, kind=kind, text=said, step=step):
                            n_calls[kind] = n_calls.get(kind, 0) + self.check_wrong(template, prompt, said, schema, arguments, step)
        if len(TEMPLATES) > 20:
            self.assertTrue(all(n_calls.get(kind, 0) > 20 for kind in ("first", "last", "null")), n_calls)

    def check_wrong(self, template, prompt, text, schema, arguments, step):
        """Whether it was read as a call."""
        pieces = self.read(template, prompt, text, schema, step)["pieces"]
        kinds = [kind for kind, _ in pieces]
        if "end" in kinds:
            self.assertEqual(json.loads(dict(pieces)["arguments"]), arguments, pieces)
            return True
        if "call" in kinds:  # told, and then taken back with all of its text
            self.assertEqual(kinds[-1], "bad", pieces)
            return False
        told = "".join(said for kind, said in pieces)
        self.assertEqual(re.sub(r"\s", "", told), re.sub(r"\s", "", text), pieces)
        return False


if __name__ == "__main__":
    if not TOOL.exists():
        print("tool_reply is not built")
        sys.exit(77)
    if not hypothesis:
        print("the package hypothesis is not installed (tests/clients/requirements.txt)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
