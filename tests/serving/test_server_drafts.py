#!/usr/bin/env python3
"""Speculation in the server: every answer is the one without drafts, alone and beside others."""

import concurrent.futures
import functools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, ROOT, Server, ServerTest  # noqa: E402

MINI = ROOT / "models/mini/kv6"
LOG = "".join(f"12:0{i % 10} job {i % 7} started on node {i % 3}, took {i % 4} seconds.\n" for i in range(40))
SCHEMA = {"type": "object", "properties": {"node": {"type": "string", "maxLength": 20}, "jobs": {"type": "array", "items": {"type": "integer"}, "maxItems": 8}},
          "required": ["node", "jobs"], "additionalProperties": False}
CANCELLED = 'requests_cancelled_total{phase="decode"}'
ASKS = {
    "greedy": {"max_tokens": 50, "ignore_eos": True},
    "sampled": {"max_tokens": 40, "temperature": 0.4, "seed": 3, "n": 3},
    "shaped": {"max_tokens": 50, "temperature": 0.7, "top_p": 0.9, "seed": 4, "repetition_penalty": 1.05, "frequency_penalty": 0.1,
               "logit_bias": {"100": 2, "101": -3}},
    "long": {"max_tokens": 300, "ignore_eos": True},  # five at once have too few pages
    "logprobs": {"max_tokens": 40, "logprobs": 3},
    "stop": {"max_tokens": 60, "stop": ["node 1", " took 3"], "ignore_eos": True},
    "grammar": {"max_tokens": 60, "guided_json": SCHEMA},
    "regex": {"max_tokens": 60, "temperature": 0.5, "seed": 5, "guided_regex": "(12:0[0-9] job [0-9] started\\n){2,4}"},
    "evicted": {"max_tokens": 50, "evict": "snapkv:128,16,5", "ignore_eos": True},
    "minimum": {"max_tokens": 50, "min_tokens": 40},
}
CROWD = {"max_tokens": 300, "ignore_eos": True, "temperature": 0.4, "seed": 6, "n": 8}  # begins together, needs all pages


class DraftsTest(ServerTest):
    alone = ("text", "text:2", "text:31", "self", "self:2,0", "self:12,0.1", "text+self:8,0.2", "auto", "auto:9,0")
    beside = ("text", "none", "self:4,0", "text+self:4", "self", "auto")
    cancelled = ("text", "self:4,0", "text+self:6", "auto")
    model, words = MINI, ("--ctx", 2048, "--kv-tokens", 2304)  # little enough for preemption
    every = 1

    @staticmethod
    def pairs(asks, hows, every):
        """Each ask with each way to draft, or with one of `every` in turn, so that all of both come."""
        every = 1 if os.environ.get("SKV_TEST_ALL") else every
        return [(name, how) for i, name in enumerate(asks) for j, how in enumerate(hows) if (i + j) % every == 0]

    def answer(self, name, how):
        got = self.server.complete(prompt=f"{name}.\n{LOG}", speculate=how, **ASKS[name])
        return [(c["text"], c["finish_reason"], c.get("logprobs")) for c in got["choices"]], got["usage"]

    @classmethod
    @functools.cache
    def plain(cls, name):
        """Without drafts, asked once."""
        found, usage = cls.answer(cls, name, "none")
        assert "completion_tokens_details" not in usage
        return found

    def test_alone(self):
        """What is long is so for the pages of others."""
        n, before = 0, self.drafts()
        for name, how in self.pairs([name for name in ASKS if name != "long"], self.alone, 2):
            with self.subTest(ask=name, how=how):
                drafted, usage = self.answer(name, how)
                self.assertEqual(drafted, self.plain(name))
                n += usage.get("completion_tokens_details", {}).get("accepted_prediction_tokens", 0)
        self.assertGreater(n, 100)
        accepted, drafted = (b - a for a, b in zip(before, self.drafts()))
        self.assertEqual(accepted, n)
        self.assertGreater(drafted, n)

    def drafts(self):
        """Those that were right, and all."""
        metrics = self.server.metrics()
        return [sum(metrics[f'{kind}{{source="{name}"}}'] for name in ("text", "self", "aux", "model"))
                for kind in ("accepted_drafts_total", "drafted_tokens_total")]

    def test_beside_others(self):
        plain = {name: self.plain(name) for name in ASKS}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            jobs = [(name, how, pool.submit(self.answer, name, how)) for name, how in self.pairs(ASKS, self.beside, self.every)]
            for name, how, job in jobs:
                with self.subTest(ask=name, how=how):
                    self.assertEqual(job.result()[0], plain[name])

    def test_preempted(self):
        before = self.server.metrics()["preemptions_total"]
        texts = []
        for how in ("none", "text+self:4"):
            got = self.server.complete(prompt=f"crowd.\n{LOG}", speculate=how, **CROWD)
            texts.append([c["text"] for c in got["choices"]])
            self.assertGreater(self.server.metrics()["preemptions_total"], before)
            before = self.server.metrics()["preemptions_total"]
        self.assertEqual(*texts)

    def test_behind_a_cancelled_draft(self):
        body = {"prompt": f"greedy.\n{LOG}", "stream": True, **ASKS["greedy"], "max_tokens": 800}
        for how in self.cancelled:
            for _ in range(20):  # an answer may end before its reader is missed
                before = self.server.metrics()[CANCELLED]
                connection = self.server.connect()
                connection.request("POST", "/v1/completions", json.dumps({**body, "speculate": how}))
                response = connection.getresponse()
                response.readline()
                response.close()
                connection.close()
                self.server.wait_for(lambda m: m["requests_running"] == 0)
                if self.server.metrics()[CANCELLED] > before:
                    break
            self.assertGreater(self.server.metrics()[CANCELLED], before)
            self.assertEqual(self.answer("greedy", how)[0], self.plain("greedy"))

    def test_what_is_refused(self):
        for how, words in (("text:0", "K '0' is not from 1 to 31"), ("selfish", "is neither none, auto"), (3, "not a text")):
            status, _, answer = self.server.ask("POST", "/v1/completions", {"prompt": "a", "speculate": how})
            self.assertEqual((status, answer["error"]["param"]), (400, "speculate"))
            self.assertIn(words, answer["error"]["message"])
        status, _, answer = self.server.ask("POST", "/v1/completions", {"prompt": "a", "speculate": "self", "swiftkv": "teacher"})
        self.assertEqual(status, 400)
        self.assertIn("the teacher has no exit head", answer["error"]["message"])
        status, _, answer = self.server.ask("POST", "/v1/completions", {"prompt": "a", "speculate": "model"})
        self.assertEqual(status, 400)
        self.assertIn("no draft model was given (--draft MODEL)", answer["error"]["message"])


class ModelTest(DraftsTest):
    """The same with a model that drafts: alone, with a text, or where --speculate auto lets it."""

    every = 2
    alone = ("model", "model:2,0", "text+model:8,0.2", "auto")
    beside = ("model:3,0", "text+model", "none", "model", "auto")
    cancelled = ("model:4,0", "text+model:6")
    words = ("--ctx", 2048, "--kv-tokens", 2304, "--draft", MINI.parent / "base")

    def test_it_drafts(self):
        text, usage = self.answer("greedy", None)  # --draft alone lets it draft
        self.assertEqual(text, self.plain("greedy"))
        self.assertEqual(set(usage["completion_tokens_details"]["by"]), {"model"})
        self.assertGreater(self.server.metrics()['accepted_drafts_total{source="model"}'], 20)

    def test_what_is_refused(self):
        done = subprocess.run(list(map(str, (PROGRAM, "serve", MINI, MINI.parent / "base", "--draft", MINI))), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("with several models each is MODEL=PATH", done.stderr)


class KeysTest(unittest.TestCase):
    """Drafts follow from earlier requests of the same key, and never from those of another."""

    def setUp(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("alpha\nbeta\ngamma\ndelta\n")
            keys.flush()
            self.server = Server(MINI, "--ctx", 2048, "--api-key-file", keys.name)
        self.addCleanup(lambda: self.assertEqual(self.server.stop(), 0))

    def ask(self, key, **body):
        """Text, tokens that were drafted, those of them that were right."""
        status, _, answer = self.server.ask("POST", "/v1/completions", {"ignore_eos": True, "speculate": "text", **body}, {"X-Api-Key": key})
        self.assertEqual(status, 200)
        details = answer["usage"].get("completion_tokens_details", {})
        right = details.get("accepted_prediction_tokens", 0)
        return answer["choices"][0]["text"], right + details.get("rejected_prediction_tokens", 0), right

    def test_earlier_answers(self):
        prompt = [(7 * i * i + 3 * i) % 3000 for i in range(200)]
        found = [self.ask(key, prompt=prompt, max_tokens=60, temperature=2, seed=1) for key in ("alpha", "beta", "alpha", "beta")]
        self.assertEqual(len({text for text, _, _ in found}), 1)
        self.assertLess(max(found[0][2], found[1][2]), 15)
        self.assertGreater(min(found[2][2], found[3][2]), 35)

    def test_how_many_tokens_are_drafted(self):
        """How often drafts were right is learnt apart: what others asked changes no count."""
        asked = {"prompt": LOG, "max_tokens": 40, "temperature": 0}
        good = {"prompt": "one two three four five six seven. " * 30, "max_tokens": 40, "temperature": 0}
        bad = {"prompt": LOG, "max_tokens": 60, "temperature": 1, "seed": 2, "logit_bias": {"100": 100, "101": 100, "102": 100}}
        alone = self.ask("beta", **asked)
        self.assertGreater(alone[1], 10)
        _, drafted, right = self.ask("alpha", **good)
        self.assertGreater(right, drafted / 2)
        self.assertEqual(self.ask("gamma", **asked), alone)
        self.assertNotEqual(self.ask("alpha", **asked)[1], alone[1])  # its own requests do change it
        _, drafted, right = self.ask("alpha", **bad)
        self.assertLess(right, drafted / 2)
        self.assertEqual(self.ask("delta", **asked), alone)


class GenerateTest(unittest.TestCase):
    """KV Prediction is not served: its auxiliary drafts for `generate`, under grammars and behind keys and values of 8 bits."""

    def answer(self, model, how, *words):
        command = [PROGRAM, "generate", model, "-p", f"node\n{LOG}", "-n", "60", "--threads", "1", "--kv", "int8", "--json", "--speculate", how, *words]
        said = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
        return said["ids"], said.get("speculation", {}).get("drafted", 0)

    def test_draft_alone_drafts(self):
        for how, drafts in ((("--speculate", "none"), False), ((), True)):
            command = [PROGRAM, "generate", MINI, "-p", LOG, "-n", "20", "--threads", "1", "--json", "--ignore-eos", "--draft", MINI, *how]
            said = json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
            self.assertEqual(said.get("speculation", {}).get("by", {}).get("model", {}).get("drafted", 0) > 0, drafts)

    def test_grammars(self):
        for words in (("--regex", ASKS["regex"]["guided_regex"]), ("--json-object", "--temp", "0.6", "--seed", "3")):
            for model, hows in ((MINI, ("text", "self:4,0")), (MINI.parent / "kvpred", ("aux:4,0", "text+aux:4,0"))):
                plain, _ = self.answer(model, "none", *words)
                for how in hows:
                    with self.subTest(words=words, how=how):
                        ids, n_drafted = self.answer(model, how, *words)
                        self.assertEqual(ids, plain)
                        self.assertGreater(n_drafted, 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
