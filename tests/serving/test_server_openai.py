#!/usr/bin/env python3
"""The package openai, as it is, against `swiftkv serve`: chats and texts, whole and as streams, usage,
parsed answers, embeddings, errors, and the retries that it makes by itself. (Tools and Responses:
test_server_tools.py, test_server_responses.py.)"""

import os
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import CHATML, PROGRAM, STORIES, Server  # noqa: E402

try:
    import openai
    import pydantic
except ImportError:
    openai = None

HELLO = [{"role": "user", "content": "Once upon a time"}]
MODEL = STORIES.stem


@unittest.skipUnless(openai, "the package openai is not installed")
@unittest.skipUnless(STORIES.exists(), f"{STORIES} is absent")
class OpenaiTest(unittest.TestCase):
    def serve(self, *words):
        template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        self.addCleanup(template.close)
        template.write(CHATML)
        template.flush()
        server = Server(STORIES, "--ctx", 512, "--template", template.name, *words)
        self.addCleanup(server.stop)
        return server, openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="key")

    def test_chat(self):
        _, client = self.serve()
        self.assertEqual([model.id for model in client.models.list()], [MODEL])
        body = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0}
        answer = client.chat.completions.create(**body, logprobs=True, top_logprobs=2)
        choice = answer.choices[0]
        self.assertEqual((choice.finish_reason, answer.usage.completion_tokens), ("length", 12))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 12)
        self.assertEqual([len(token.top_logprobs) for token in choice.logprobs.content], [2] * 12)
        chunks = list(client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(said, choice.message.content)
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 12))
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))
        two = client.chat.completions.create(**{**body, "temperature": 1}, n=2, seed=5)
        self.assertEqual([one.index for one in two.choices], [0, 1])

    def test_texts(self):
        _, client = self.serve()
        body = {"model": MODEL, "max_tokens": 6, "temperature": 0}
        both = client.completions.create(prompt=["Once upon", "The cat"], logprobs=1, **body)
        self.assertEqual([choice.index for choice in both.choices], [0, 1])
        self.assertEqual(len(both.choices[0].logprobs.tokens), 6)
        one = client.completions.create(prompt="The cat", **body)
        self.assertEqual(one.choices[0].text, both.choices[1].text)
        stream = client.completions.create(prompt="The cat", stream=True, **body)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), one.choices[0].text)
        vector = client.embeddings.create(model=MODEL, input=["a cat", "a dog"])
        self.assertEqual(len(vector.data), 2)
        self.assertAlmostEqual(sum(x * x for x in vector.data[0].embedding), 1, places=4)

    def test_parsed(self):
        _, client = self.serve()

        class Animal(pydantic.BaseModel):
            kind: str = pydantic.Field(max_length=8)
            legs: int = pydantic.Field(ge=0, le=8)

        parsed = client.chat.completions.parse(model=MODEL, messages=HELLO, response_format=Animal, temperature=1, seed=3)
        animal = parsed.choices[0].message.parsed
        self.assertIsInstance(animal, Animal)
        self.assertIn(animal.legs, range(9))

    def test_errors(self):
        _, client = self.serve()
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=HELLO, top_p=2)
        self.assertEqual(caught.exception.param, "top_p")
        with self.assertRaises(openai.BadRequestError) as caught:
            client.completions.create(model=MODEL, prompt="cat " * 2000, max_tokens=1)
        self.assertIn("512", str(caught.exception))
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="another", messages=HELLO)
        keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.addCleanup(keys.close)
        keys.write("right\n")
        keys.flush()
        locked, wrong = self.serve("--api-key-file", keys.name)
        with self.assertRaises(openai.AuthenticationError):
            wrong.models.list()
        right = openai.OpenAI(base_url=f"http://127.0.0.1:{locked.port}/v1", api_key="right")
        self.assertEqual(len(right.models.list().data), 1)

    def test_retries(self):
        """The client comes again when the server says so, and every request is answered in the end."""
        server, client = self.serve("--max-running", 1, "--max-queue", 1)
        client = client.with_options(max_retries=20)
        said = []

        def ask():
            answer = client.completions.create(model=MODEL, prompt="The", max_tokens=400, temperature=0,
                                               extra_body={"ignore_eos": True})  # fmt: skip
            said.append(answer.choices[0].text)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(said), len(set(said))), (6, 1))
        self.assertGreater(server.metrics()['requests_rejected_total{reason="queue_full"}'], 0)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    if not openai and "SKV_TEST_STRICT" in os.environ:
        print("the package openai is not installed")
        sys.exit(1)
    unittest.main()
