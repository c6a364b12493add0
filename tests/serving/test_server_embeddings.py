#!/usr/bin/env python3
"""POST /v1/embeddings from outside: against hidden states of transformers (tests/data/embeddings.json),
in both encodings, alone and in batches, and what is refused."""

import base64
import json
import math
import struct
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402

GOLDENS = json.loads((base.ROOT / "tests/data/embeddings.json").read_text())
PATH = "/v1/embeddings"


def decode(text):
    data = base64.b64decode(text, validate=True)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


class EmbeddingTest(base.ServerTest):
    words = ("--ctx", 256, "--kv-tokens", 512)

    def embed(self, *inputs, **body):
        """The vectors of inputs, in order."""
        answer = self.server.post(PATH, input=list(inputs), **body)
        self.assertEqual([row["index"] for row in answer["data"]], list(range(len(inputs))))
        return [row["embedding"] for row in answer["data"]]

    def close(self, got, want):
        self.assertEqual(len(got), len(want))
        self.assertLess(max(abs(a - b) for a, b in zip(got, want)), 2e-5)

    def test_vectors_are_those_of_transformers(self):
        for case in GOLDENS[base.PLAIN.name]["auto"]:
            for pooling in ("last", "mean"):
                self.close(self.embed(case["ids"], pooling=pooling)[0], case[pooling])
            self.close(self.embed(case["ids"])[0], case["last"])

    def test_encodings(self):
        ids = base.prompt_of(20)
        numbers = self.embed(ids, encoding_format="float")[0]
        coded = self.embed(ids, encoding_format="base64")[0]
        same = list(struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers)))
        self.assertEqual(decode(coded), same)  # the digits give back the same f32
        self.assertAlmostEqual(math.fsum(x * x for x in numbers), 1, places=5)

    def test_shapes_of_input(self):
        ids = base.prompt_of(20)
        answer = self.server.post(PATH, input=ids, model=base.PLAIN.name, user="me")
        self.assertEqual(answer["object"], "list")
        self.assertEqual(answer["model"], base.PLAIN.name)
        self.assertEqual(answer["data"][0]["object"], "embedding")
        self.assertEqual(answer["usage"]["prompt_tokens"], 20)
        self.assertEqual(answer["usage"]["total_tokens"], 20)
        many = [base.prompt_of(5 + i, i) for i in range(70)]  # more than may wait
        vectors = self.embed(*many)
        for i in (0, 33, 69):
            self.assertEqual(self.embed(many[i])[0], vectors[i])

    def test_dimensions(self):
        D = len(self.embed([5])[0])
        self.assertEqual(len(self.embed([5], dimensions=D)[0]), D)
        error = self.refuses(400, PATH, {"input": [5], "dimensions": D - 1}, str(D - 1), str(D))
        self.assertEqual(error["param"], "dimensions")

    def test_known_prompts_help_the_last_token_only(self):
        ids = base.prompt_of(200, 9)
        want = {p: self.embed(ids, pooling=p)[0] for p in ("last", "mean")}
        for pooling, cached in (("last", 192), ("mean", 0)):
            answer = self.server.post(PATH, input=ids, pooling=pooling)
            self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], cached)
            self.assertEqual(answer["data"][0]["embedding"], want[pooling])

    def test_same_beside_answers(self):
        inputs = [base.prompt_of(50 + i, 40 + i) for i in range(12)]
        want = self.embed(*inputs, pooling="mean")
        body = {"prompt": base.prompt_of(60, 3), "max_tokens": 60, "ignore_eos": True, "logprobs": 0}
        told = self.server.complete(**body)["choices"][0]["logprobs"]
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.server.complete(**body)))
            for _ in range(3)
        ]
        for t in threads:
            t.start()
        self.assertEqual(self.embed(*inputs, pooling="mean"), want)
        for t in threads:
            t.join()
        for answer in answers:
            self.assertEqual(answer["choices"][0]["logprobs"], told)

    def test_whole_context(self):
        self.assertEqual(len(self.embed([7] * 256)), 1)
        error = self.refuses(400, PATH, {"input": [7] * 257}, "256", "257")
        self.assertEqual(error["code"], "context_length_exceeded")

    def test_bad_requests_are_refused_by_name(self):
        for field, value in (
            ("encoding_format", "hex"),
            ("encoding_format", 3),
            ("dimensions", 0),
            ("dimensions", 1.5),
            ("pooling", "max"),
            ("swiftkv", "fast"),
            ("swiftkv", "teacher"),
        ):
            with self.subTest(field=field, value=value):
                error = self.refuses(400, PATH, {"input": [5], field: value}, field)
                self.assertEqual(error["param"], field)
        for value in (None, [], [[]], 3, [3, "x"], [-1], [10**6], {"a": 1}, [[1]] * 1025, "text"):
            with self.subTest(input=str(value)[:20]):
                self.refuses(400, PATH, {"input": value})
        error = self.refuses(404, PATH, {"input": [5], "model": "gpt-9"}, "gpt-9")
        self.assertEqual(error["code"], "model_not_found")

    def test_limits_count(self):
        before = self.server.metrics()["prompt_tokens_total"]
        self.embed(base.prompt_of(30, 5), base.prompt_of(31, 6))
        self.assertEqual(self.server.metrics()["prompt_tokens_total"] - before, 61)


class SwiftkvEmbeddingTest(base.ServerTest):
    model, words = base.SWIFTKV, ("--ctx", 256)

    def test_methods(self):
        for mode, cases in GOLDENS[base.SWIFTKV.name].items():
            for case in cases:
                for pooling in ("last", "mean"):
                    answer = self.server.post(PATH, input=case["ids"], pooling=pooling, swiftkv=mode)
                    got = answer["data"][0]["embedding"]
                    self.assertLess(max(abs(a - b) for a, b in zip(got, case[pooling])), 2e-5)

    def test_last_skips(self):
        before = self.server.metrics()
        self.server.post(PATH, input=base.prompt_of(100, 8))
        now = self.server.metrics()
        name = 'prefill_tokens_total{route="swiftkv"}'
        self.assertEqual(now[name] - before[name], 100)


@unittest.skipUnless(base.STORIES.exists(), "../shared/assets is absent")
class TextEmbeddingTest(base.ServerTest):
    model, words = base.STORIES, ("--ctx", 512)

    def test_texts(self):
        ids = self.server.post("/tokenize", prompt="Once upon a time")["tokens"]
        answer = self.server.post(PATH, input=["Once upon a time", "", ids])
        one = self.server.post(PATH, input="Once upon a time")
        vectors = [row["embedding"] for row in answer["data"]]
        self.assertEqual(vectors[0], one["data"][0]["embedding"])
        self.assertEqual(vectors[0], vectors[2])
        self.assertEqual(answer["usage"]["prompt_tokens"], 2 * len(ids) + 1)  # "" is its beginning


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
