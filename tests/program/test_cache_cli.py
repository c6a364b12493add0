#!/usr/bin/env python3
"""`swiftkv cache explain`: what it says of recorded sessions is what a server does with them."""

import copy
import json
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "clients/sessions")]

from make_hybrid import make_hybrid  # noqa: E402
from make_sessions import KINDS, make  # noqa: E402
from server_process import PROGRAM, ROOT, Server  # noqa: E402

MINI = ROOT / "models/mini/base"
WORDS = ("--prompt-strip", "claude-code", "--prompt-sort", "tools", "--prompt-keep", "thoughts")
# Thoughts of turns before the last of the user's are left out.
TEMPLATE = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for t in tools or [] %}{{ t | tojson }}
{% endfor %}
{%- for m in messages %}[{{ m.role }}]
{%- if m.reasoning_content and loop.index0 > ns.last %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""


def counts(answer):
    """(prompt tokens, cached tokens) in the API's own words."""
    usage = answer["usage"]
    if "cache_read_input_tokens" in usage:
        read = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + usage["cache_creation_input_tokens"] + read, read
    if "input_tokens" in usage:
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def said(answer):
    """The answer without what tells one request from another."""
    kept = copy.deepcopy([answer.get(name) for name in ("content", "output", "choices")])
    for item in kept[1] or []:
        item.pop("id", None)
    return kept


class ExplainTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.template = self.folder / "template.jinja"
        self.template.write_text(TEMPLATE)

    def run_program(self, *words):
        words = [PROGRAM, "cache", *words]
        return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)

    def explain(self, requests, *words, model=MINI):
        path = self.folder / "session.jsonl"
        path.write_text("\n".join(map(json.dumps, requests)))
        done = self.run_program("explain", model, path, "--template", self.template, "--json", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return rows[:-1], rows[-1]

    def replay(self, requests, *words, model=MINI):
        server = Server(model, "--template", self.template, "--ctx", 8192, "--kv-tokens", 65536, "--no-text-match", "--name", "mini,*", *words)
        try:
            return [server.post(r["path"], **r["body"]) for r in requests]
        finally:
            server.stop()

    def test_sessions_of_a_hybrid_model(self):
        model = make_hybrid(MINI, self.folder / "sessions")
        states = ("--max-running", 8, "--state-checkpoints", 200)  # room for all
        for kind in KINDS:
            requests = make(kind, turns=7, scale=0.01, n_tools=2)
            rows, _ = self.explain(requests, model=model)
            with self.subTest(kind=kind):
                self.assertNotIn("--cache-shift", rows[0]["cached_with"])  # which the server refuses
                got = [counts(a) for a in self.replay(requests, *states, model=model)]
                self.assertEqual(got, [(r["prompt_tokens"], r["cached_tokens"]) for r in rows])

    def test_as_a_server(self):
        for kind in KINDS:
            requests = make(kind, turns=7, scale=0.01, n_tools=2)
            rows, total = self.explain(requests)
            plain, changed = self.replay(requests), self.replay(requests, *WORDS)
            with self.subTest(kind=kind):
                self.assertEqual([counts(a) for a in plain], [(r["prompt_tokens"], r["cached_tokens"]) for r in rows])
                self.assertEqual([counts(a)[1] for a in changed], [r["cached_with"]["all three"] for r in rows])
                self.assertGreater(sum(r["cached_with"]["all three"] for r in rows), sum(r["cached_tokens"] for r in rows))
                self.assertEqual(total["lost_tokens"]["as sent"], sum(r["lost_tokens"] for r in rows))
                self.assertEqual(self.explain(requests)[1], total)

    def test_text_at_another_place(self):
        """--cache-shift takes what the columns tell, of sessions and of texts whose parts move."""
        draw, words = random.Random(5), list("abcdefghijklmnop")
        texts = ["".join(draw.choice(words) for _ in range(draw.randrange(100, 900))) for _ in range(4)]
        moved = []
        for _ in range(8):
            part = [t[draw.randrange(40) :] for t in draw.choices(texts, k=3)]
            text = str(draw.random()).join(part)
            moved.append({"path": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": text}], "max_tokens": 1}})
        for name, requests in [("moved", moved), *((kind, make(kind, turns=7, scale=0.02, n_tools=3)) for kind in KINDS)]:
            rows, total = self.explain(requests)
            n_shifted = 0
            for way, options in (("--cache-shift", ()), ("all four", WORDS)):
                got = [counts(a)[1] for a in self.replay(requests, "--cache-shift", *options)]
                with self.subTest(name=name, way=way):
                    self.assertEqual(got, [r["cached_with"][way] for r in rows])
                    self.assertEqual(total["cached_tokens"][way], sum(got))
                n_shifted += sum(got)
            without = sum(r["cached_tokens"] + r["cached_with"]["all three"] for r in rows)
            if name in ("moved", "claude-code"):
                self.assertGreater(n_shifted, without, name)

    def hybrid(self):
        """A model whose layers keep states, with a letter for each id and one control token."""
        model = self.folder / "hybrid"
        shutil.copytree(ROOT / "tests/data/models/qwen3-5", model)
        letters = {c: i for i, c in enumerate("\n" + "".join(map(chr, range(32, 120))))}
        mark = {"id": len(letters), "content": "<|m|>", "special": True, "normalized": False, "single_word": False,
                "lstrip": False, "rstrip": False}  # fmt: skip
        text = {"added_tokens": [mark], "model": {"type": "BPE", "merges": [], "vocab": letters}}
        (model / "tokenizer.json").write_text(json.dumps(text))
        self.template.write_text("{% for m in messages %}<|m|>{{ m.content }}{% endfor %}<|m|>")
        return model

    def test_a_hybrid_model(self):
        """Prompts are continued where a state was kept, and rows without one are told."""
        model, draw = self.hybrid(), random.Random(3)

        def said(n):
            return "".join(draw.choice("abcdefgh ") for _ in range(n))

        talk = [{"role": "user", "content": said(150)}, {"role": "assistant", "content": said(90)},
                {"role": "user", "content": said(110)}, {"role": "assistant", "content": said(50)},
                {"role": "user", "content": said(70)}]  # fmt: skip
        edited = [*talk[:2], {"role": "user", "content": talk[2]["content"][:75] + said(60)}]
        other = [{"role": "user", "content": talk[0]["content"][:140] + said(100)}]
        prompts = [talk[:1], talk[:3], talk, edited, other, talk]
        requests = [{"path": "/v1/chat/completions", "body": {"messages": m, "max_tokens": 1}} for m in prompts]
        path = self.folder / "session.jsonl"
        path.write_text("\n".join(map(json.dumps, requests)))
        done = self.run_program("explain", model, path, "--template", self.template, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)  # which tells that the template knows no tools
        rows = [json.loads(line) for line in done.stdout.splitlines()][:-1]
        server = Server(model, "--template", self.template, "--ctx", 1024, "--kv-tokens", 16384, "--no-text-match", "--max-running", 8,
                        "--state-checkpoints", 64)  # fmt: skip
        try:
            answers = [server.post(r["path"], **r["body"]) for r in requests]
            lost = server.metrics()['prefix_cache_lost_tokens_total{reason="state"}']
        finally:
            server.stop()
        self.assertEqual([counts(a) for a in answers], [(r["prompt_tokens"], r["cached_tokens"]) for r in rows])
        self.assertEqual(lost, sum(r["stateless_tokens"] for r in rows))
        self.assertGreater(lost, 0)
        words = self.run_program("explain", model, path, "--template", self.template).stdout
        self.assertIn("without a state", words)

    def check_answers(self, model, *words):
        """Answers of sessions, with log-probabilities where the API has them, are those without a cache."""
        for kind in KINDS:
            requests = make(kind, turns=4, scale=0.01, n_tools=2)
            for request in requests:
                name = "max_output_tokens" if "input" in request["body"] else "max_tokens"
                request["body"][name] = 6
                if kind == "opencode":
                    request["body"] |= {"logprobs": True, "top_logprobs": 3}
            cached = self.replay(requests, *words, model=model)
            alone = self.replay(requests, "--no-prefix-cache", *words, model=model)
            self.assertGreater(sum(counts(a)[1] for a in cached), 0)
            self.assertEqual(list(map(said, cached)), list(map(said, alone)), kind)

    def test_answers_do_not_depend_on_the_cache(self):
        self.check_answers(MINI, "--idle-read", 1, *WORDS)

    def test_answers_of_a_hybrid_do_not_depend_on_the_cache(self):
        model = make_hybrid(MINI, self.folder / "exact")
        for state in ("f32", "bf16"):
            self.check_answers(model, "--idle-read", 1, "--state", state)

    def test_where_a_prompt_parts(self):
        def request(clock, n=40):
            text = f"It is {clock} now. " + "All that follows is the same in both of them. " * n
            return {"messages": [{"role": "user", "content": text}], "temperature": 0}

        rows, total = self.explain([request("12:01"), request("12:02"), request("12:02", 60)])
        self.assertEqual((rows[0]["cached_tokens"], rows[0]["lost_tokens"]), (0, 0))
        self.assertNotIn("token", rows[0])
        self.assertEqual((rows[1]["parts_from"], rows[1]["block"], rows[1]["cached_tokens"]), (1, 0, 0))
        self.assertIn("12:02", rows[1]["sent"])
        self.assertIn("12:01", rows[1]["known"])
        self.assertGreater(rows[1]["lost_tokens"], 0.8 * rows[1]["prompt_tokens"])
        self.assertEqual(rows[2]["parts_from"], 2)
        self.assertGreaterEqual(rows[2]["cached_tokens"], rows[1]["prompt_tokens"] - 80)
        self.assertEqual(total["prompt_tokens"]["as sent"], sum(r["prompt_tokens"] for r in rows))

    def test_what_cannot_be_read(self):
        bad, path = self.folder / "bad.json", self.folder / "none.json"
        cases = {
            '{"messages": [': "bad.json: byte",
            "[1]": "bad.json: request 1 is not a JSON object",
            '{"messages": 3}': "bad.json: request 1: messages: expected an array of messages",
        }
        for text, message in cases.items():
            bad.write_text(text)
            done = self.run_program("explain", MINI, bad, "--template", self.template)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)
        self.assertEqual(self.run_program("explain", MINI, path).returncode, 1)
        self.assertEqual(self.run_program("tell", MINI, path).returncode, 2)
        self.assertEqual(self.run_program("explain").returncode, 2)


if __name__ == "__main__":
    unittest.main()
