#!/usr/bin/env python3
"""docs/reference/methods.md against the program: its table, and every combination that it says works or is
refused. Kept rows and what follows are held against torch in test_evict.c."""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402
from prompt_case import STALE, PromptCase, evictors, run  # noqa: E402

MODEL = base.MODELS / "qwen2-swiftkv-g2"  # 6 layers, AcrossKV groups of 2, and its teacher
PLAIN = base.MODELS / "qwen3-v5"
METHODS = ("snapkv:30,8,5", "snapkv:30,8,5,avg,last", "pyramidkv:30,8,5", "adakv:30,8,5", "h2o:30",
           "streaming:4,30")
METHODS += tuple(f"{name}:30" for name in evictors() if not any(how.startswith(f"{name}:") for how in METHODS))
PROMPT = [1] + [(i * i * 7 + 3 * i) % 90 + 3 for i in range(99)]


class MethodsTest(PromptCase):
    prompt = PROMPT

    def kept(self, *words, model=MODEL):
        """The result and the kept rows."""
        kept = self.folder / "kept.json"
        return self.generate(model, "--dump-kept", kept, *words), json.loads(kept.read_text())

    def test_the_table_is_the_programs(self):
        text = (base.ROOT / "docs/reference/methods.md").read_text()
        table = text.partition("<!-- methods -->\n")[2].partition("<!-- end -->")[0]
        self.assertEqual(table, run("help", "--methods").stdout, STALE)
        for method in METHODS:
            self.assertIn(f"`{method.partition(':')[0]}:", table)

    def check(self, *words, heads, full_bytes):
        result, kept = self.kept(*words)
        rows = [len(head) for layer in kept for head in layer]
        self.assertEqual({len(layer) for layer in kept}, {heads})
        self.assertLess(sum(rows) / len(rows), 36)  # about 30, and 4 generated ones
        self.assertLess(result["kv_bytes"], full_bytes)
        for head in (head for layer in kept for head in layer):
            self.assertEqual(head, sorted(set(head)))
            self.assertEqual(head[-5:], [99, 100, 101, 102, 103])
        return result

    def test_every_prefill_and_form_of_rows(self):
        for words in [("--prefill", p) for p in ("swiftkv", "swiftkv-full", "teacher")] + [
            ("--kv", kv) for kv in ("bf16", "fp8", "int8")
        ]:
            full = self.kept(*words)[0]
            for method in METHODS:
                with self.subTest(method=method, words=words):
                    self.check("--evict", method, *words, heads=2, full_bytes=full["kv_bytes"] + 1)

    def test_memory_goes_back(self):
        full = self.kept()[0]["kv_bytes"]
        self.assertEqual(2 * self.kept("--snapkv", "30,8,5")[0]["kv_bytes"], full)
        self.check("--evict", "snapkv:30,8,5,query", heads=4, full_bytes=full + 1)

    def test_memory_is_that_of_what_heads_keep(self):
        """Heads have budgets of their own, and memory of their own: a page is 64 rows of one head."""
        def pages(kept):
            return [-(-len(head) // 64) for layer in kept for head in layer]

        full, rows = self.kept(model=PLAIN)
        page = full["kv_bytes"] / sum(pages(rows))
        for methods, n_sizes in ((METHODS, 1), (("adakv:60,8,5,0", "pyramidkv:50,8,5"), 2)):
            for method in methods:
                got, rows = self.kept("--evict", method, model=PLAIN)
                self.assertEqual(got["kv_bytes"], page * sum(pages(rows)), method)
                self.assertEqual(len(set(pages(rows))), n_sizes, method)

    def test_short_prompts_are_as_without(self):
        full = self.kept()
        for method in ("snapkv:100,8", "h2o:100", "adakv:300", "streaming:4,100"):
            got = self.kept("--evict", method)
            self.assertEqual(got[0]["ids"], full[0]["ids"])
            self.assertEqual(got[1], full[1])

    def test_kept_rows_that_cannot_be_written(self):
        """A place that cannot be is told before there is an answer; a disk that is full loses none."""
        ask = ("generate", MODEL, "--ids-file", self.ids, "-n", 5, "--ignore-eos", "--json", "--snapkv", "30,8,5")
        for path in (self.folder, self.folder / "none/kept.json"):
            self.refuses(1, (*ask, "--dump-kept", path), str(path))
            self.assertEqual(run(*ask, "--dump-kept", path).stdout, "")
        done = run(*ask, "--dump-kept", "/dev/full")
        self.assertEqual((done.returncode, len(json.loads(done.stdout)["ids"])), (1, 5))
        self.assertIn("/dev/full: cannot write", done.stderr)

    def test_commands(self):
        done = run("bench", MODEL, "--prompt", 100, "--gen", 3, "--repeat", 1, "--threads", 1, "--json",
                   "--snapkv", "30,8,5")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout.splitlines()[0])
        self.assertEqual(result["evict"], "snapkv:30,8,5,max,kv,exact")
        full = self.kept()[0]["kv_bytes"]
        self.assertEqual(2 * result["kv_bytes"], full)
        for words, parts in (
            (("eval", MODEL, "--task", "all", "--reference", "teacher", "--snapkv", "30,8"),
             ("--reference", "evict snapkv", "whole texts")),
            (("score", MODEL, "--ids-file", self.ids, "--snapkv", "30,8"), ("score", "every token")),
            (("generate", MODEL, "--ids-file", self.ids, "--evict", "lru:3"), ("lru:3", "snapkv")),
            (("generate", MODEL, "--ids-file", self.ids, "--snapkv", "3,8"), ("--snapkv", "w 8")),
        ):
            self.refuses(2, words, *parts)


class ServerTest(base.ServerTest):
    model, words = MODEL, ("--ctx", 256)

    def ask(self, prompt=None, **body):
        answer = self.server.complete(prompt=prompt or PROMPT, max_tokens=6, temperature=0,
                                      ignore_eos=True, logprobs=0, **body)
        return (answer["choices"][0]["logprobs"]["token_logprobs"],
                answer["usage"].get("prompt_tokens_details", {}).get("cached_tokens"))

    def test_requests_and_known_prompts(self):
        how = {"capacity": 30, "window": 8, "kernel": 5}
        evicted, cached = self.ask(snapkv=how)
        self.assertEqual(cached, 0)
        full, cached = self.ask()
        self.assertEqual(cached, 64)  # the prompt's block was kept before rows went
        self.assertNotEqual(full[1:], evicted[1:])
        self.assertEqual(full[0], evicted[0])  # the first token comes of the whole prompt
        again, cached = self.ask(evict="snapkv:30,8,5,max")
        self.assertEqual((again, cached), (evicted, 64))
        self.assertEqual(self.ask(evict="h2o:30")[1], 0)
        self.assertEqual(self.ask(), (full, 64))
        self.assertEqual(self.ask(evict="none"), (full, 64))
        self.assertEqual(self.ask(evict="snapkv:200"), (full, 64))

    def test_refusals(self):
        for body, parts in (
            ({"evict": "snapkv:30,8,5,query"}, ("evict", "query head")),
            ({"evict": "lru:3"}, ("evict", "lru:3")),
            ({"evict": 7}, ("evict", "text")),
            ({"snapkv": "30"}, ("snapkv", "object")),
            ({"snapkv": {"window": 8}}, ("snapkv", "capacity")),
            ({"snapkv": {"capacity": 30, "pooling": "sum"}}, ("snapkv", "sum", "max or avg")),
            ({"snapkv": {"capacity": 30, "pooling": "last"}}, ("snapkv", "last", "max or avg")),
            ({"snapkv": {"capacity": 30, "pooling": 3}}, ("snapkv", "pooling", "max or avg")),
            ({"snapkv": {"capacity": 30.5}}, ("snapkv", "capacity", "whole number")),
            ({"snapkv": {"capacity": -30}}, ("snapkv", "-30")),
            ({"snapkv": {"capacity": 30, "window": None}}, ("snapkv", "window", "whole number")),
            ({"snapkv": {"capacity": 30, "kernel": 5}}, ("snapkv", "kernel (needs window)")),
            ({"evict": ""}, ("evict", "''")),
            ({"snapkv": {"capacity": 30, "depth": 1}}, ("snapkv", "no more")),
            ({"snapkv": {"capacity": 30, "window": 30}}, ("snapkv", "w 30")),
            ({"snapkv": {"capacity": 30}, "evict": "none"}, ("evict", "snapkv")),
        ):
            self.refuses(400, "/v1/completions", {"prompt": PROMPT, **body}, *parts)


@unittest.skipUnless(base.STORIES.exists() and base.TEMPLATES.exists(), "../shared/assets is absent")
class DialectTest(base.ServerTest):
    """A chat loses the same rows, whichever endpoint it came by."""

    model = base.STORIES
    words = ("--ctx", 1024, "--template", base.TEMPLATES / "Qwen-Qwen3-0.6B.jinja")
    SAID = "Once upon a time there was a little red car. " * 8
    CHAT = {"messages": [{"role": "user", "content": SAID}], "max_tokens": 24}

    def answers(self, **body):
        """What chats, messages and responses say."""
        how = {"temperature": 0, "ignore_eos": True, **body}
        chat = self.server.post("/v1/chat/completions", **self.CHAT, **how)
        messages = self.server.post("/v1/messages", model=self.model.stem, **self.CHAT, **how)
        responses = self.server.post("/v1/responses", input=self.SAID, max_output_tokens=24, **how)
        return (chat["choices"][0]["message"]["content"], messages["content"][0]["text"],
                responses["output"][0]["content"][0]["text"])

    def test_rows_that_stay(self):
        full = set(self.answers())
        kept = set(self.answers(evict="streaming:1,4"))
        self.assertEqual((len(full), len(kept)), (1, 1))
        self.assertNotEqual(full, kept)
        objects = set(self.answers(snapkv={"capacity": 12, "window": 4, "kernel": 3}))
        self.assertEqual(objects, set(self.answers(evict="snapkv:12,4,3")))
        self.assertEqual(len(objects), 1)

    def test_refusals(self):
        for path, body in (("/v1/messages", self.CHAT), ("/v1/responses", {"input": "x"})):
            status, _, answer = self.server.ask("POST", path, {**body, "evict": "lru:3"})
            self.assertEqual(status, 400, answer)
            self.assertIn("lru:3", answer["error"]["message"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
