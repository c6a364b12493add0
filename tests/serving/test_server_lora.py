#!/usr/bin/env python3
"""serve --lora: requests choose an adapter by `model` or `lora`, share steps, and never share cached prompts across
adapters, in memory or on disk."""

import concurrent.futures
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402

LORA = base.ROOT / "tests/data/lora"
ADAPTERS = ("--lora", f"narrow={LORA / 'narrow'},wide={LORA / 'wide'}", "--weights", "f32")
ASK = {"prompt": [(7 * i) % 90 + 3 for i in range(70)], "max_tokens": 8, "temperature": 0, "ignore_eos": True,
       "logprobs": 0}


def said(server, **fields):
    answer = server.complete(**ASK, **fields)
    logprobs = answer["choices"][0]["logprobs"]
    return logprobs["tokens"], logprobs["token_logprobs"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class LoraTest(unittest.TestCase):
    def test_requests_choose(self):
        plain, server = base.Server(base.PLAIN, "--weights", "f32"), base.Server(base.PLAIN, *ADAPTERS)
        try:
            own = said(plain)
            first = {name: said(server, **({"lora": name} if name else {})) for name in (None, "narrow", "wide")}
            self.assertEqual(first[None], own)
            self.assertEqual(len({str(one[1]) for one in first.values()}), 3)
            self.assertEqual([one[2] for one in first.values()], [0, 0, 0])
            for name in ("narrow", "wide"):  # by the model's name, from its own cache
                tokens, _, cached = said(server, model=name)
                self.assertEqual(tokens, first[name][0])
                self.assertGreaterEqual(cached, 64)
            with concurrent.futures.ThreadPoolExecutor(6) as pool:  # in one step
                names = [None, "narrow", "wide"] * 2
                for name, one in zip(names, pool.map(lambda n: said(server, lora=n), names)):
                    self.assertEqual(one[0], first[name][0])
            self.assertEqual(said(server, lora=[{"id": 1, "scale": 1}])[0], first["wide"][0])
            self.assertEqual(said(server, lora=[{"id": 0, "scale": 0}, {"id": 1, "scale": 0.0}])[0], own[0])
            both = said(server, lora=[{"id": 0, "scale": 0.5}, {"id": 1, "scale": -1.25}])
            self.assertEqual(both[2], 0)  # a cache of its own
            self.assertNotIn(both[1], [one[1] for one in first.values()])
            self.assertGreaterEqual(said(server, lora=[{"id": 0, "scale": 0.5}, {"id": 1, "scale": -1.25}])[2], 64)
            self.assertEqual(said(server, lora=[{"id": 0, "scale": 0.25}])[2], 0)
            status, _, listed = server.ask("GET", "/lora-adapters")
            self.assertEqual((status, listed), (200, [{"id": 0, "name": "narrow", "scale": 0},
                                                      {"id": 1, "name": "wide", "scale": 0}]))
            self.assertEqual(server.ask("POST", "/lora-adapters", [{"id": 0, "scale": 1}])[0], 405)
            status, _, listed = server.ask("GET", "/v1/models")
            self.assertEqual((status, [model["id"] for model in listed["data"]][1:]), (200, ["narrow", "wide"]))
            for field, value in (("lora", "other"), ("lora", 3), ("lora", [{"id": 2, "scale": 1}]),
                                 ("lora", [{"id": 0, "scale": "x"}]), ("lora", [{"id": 0}, {"id": 0}]),
                                 ("lora", [{"id": 0}] * 9), ("lora", [3])):
                status, _, body = server.ask("POST", "/v1/completions", {**ASK, field: value})
                self.assertEqual((status, body["error"]["param"]), (400, "lora"))
            status, _, body = server.ask("POST", "/v1/completions", {**ASK, "model": "other"})
            self.assertEqual(status, 404)
        finally:
            self.assertEqual(plain.stop(), 0)
            self.assertEqual(server.stop(), 0)

    def test_the_disk_keeps_them_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            words = (*ADAPTERS, "--cache-dir", folder)
            server = base.Server(base.PLAIN, *words)
            first = said(server, lora="wide")
            self.assertEqual(server.stop(), 0)
            server = base.Server(base.PLAIN, *words)
            try:
                self.assertEqual([said(server, lora=name)[2] for name in (None, "narrow")], [0, 0])
                again = said(server, lora="wide")
                self.assertEqual(again[0], first[0])
                self.assertGreaterEqual(again[2], 64)
            finally:
                self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
