#!/usr/bin/env python3
"""`swiftkv serve --device cuda` on the emulated GPU.

Tests of the server that name nothing of the processor run there once more. Beside the server, `generate` and `score`
compute on the processor, and answers are compared. In f32 they are the same; in bf16 log-probabilities are near.
"""

import os
import sys
import threading
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/serving")]
BUILD = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve()
PROGRAM = BUILD / "tests/swiftkv_emulated"
os.environ["LD_LIBRARY_PATH"] = str(BUILD / "tests/fake_cuda")

import test_server  # noqa: E402
import test_server_lora  # noqa: E402
from server_process import Server, busy_pages, prompt_of  # noqa: E402

MINI = ROOT / "models/mini/base"
NEAR = 0.05  # log-probabilities in bf16
PROCESSOR = Server.program
# Of all servers here: heads have any size, and all between products is f32.
Server.program, Server.device = PROGRAM, ("--device", "cuda", "--kv", "f32")


class CpuServer(Server):
    program, device = PROCESSOR, ()


class HalfServer(Server):
    device = ("--device", "cuda", "--kv", "bf16")


def setUpModule():
    if not PROGRAM.exists():
        raise unittest.SkipTest(f"{PROGRAM} is absent")


class CompletionTest(test_server.CompletionTest):
    test_what_runs_is_told = None  # kernels of the processor


class SwiftkvTest(test_server.SwiftkvTest):
    pass


class HybridTest(test_server.HybridTest):
    pass


class LoraTest(test_server_lora.LoraTest):
    pass


class ChatTest(unittest.TestCase):
    """Of a model that has text, in bf16, beside the processor."""

    @classmethod
    def setUpClass(cls):
        words = ("--weights", "bf16", "--ctx", 512, "--max-running", 4)
        cls.server = HalfServer(MINI, *words)
        cls.cpu = CpuServer(MINI, "--kv", "bf16", *words)

    @classmethod
    def tearDownClass(cls):
        for server in (cls.server, cls.cpu):
            assert server.stop() == 0, server.lines

    def ask(self, server, **more):
        messages = [{"role": "user", "content": "The key of Anna is 4711. Which key has Anna? " * 6}]
        return server.post("/v1/chat/completions", **{"messages": messages, "max_tokens": 6, "temperature": 0,
                                                      "logprobs": True, **more})

    def test_what_runs_is_told(self):
        self.assertRegex("".join(self.server.lines), r"device|GPU|cuda")

    def test_near_the_processor(self):
        got, want = (self.ask(server)["choices"][0] for server in (self.server, self.cpu))
        got, want = (choice["logprobs"]["content"] for choice in (got, want))
        self.assertEqual([t["token"] for t in got], [t["token"] for t in want])
        for ours, theirs in zip(got, want):
            self.assertAlmostEqual(ours["logprob"], theirs["logprob"], delta=NEAR)
        self.assertNotEqual([t["logprob"] for t in got], [t["logprob"] for t in want])  # it is another device

    def test_streams(self):
        whole = self.ask(self.server)["choices"][0]["message"]["content"]
        messages = [{"role": "user", "content": "The key of Anna is 4711. Which key has Anna? " * 6}]
        chunks = self.server.chunks("/v1/chat/completions", messages=messages, max_tokens=6, temperature=0)
        self.assertEqual("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks), whole)

    def test_a_known_prompt_is_not_read_again(self):
        answers = [self.ask(self.server, max_tokens=3) for _ in range(2)]
        self.assertGreaterEqual(answers[1]["usage"]["prompt_tokens_details"]["cached_tokens"], 64)
        tokens = [[t["token"] for t in a["choices"][0]["logprobs"]["content"]] for a in answers]
        self.assertEqual(tokens[0], tokens[1])

    def test_several_answers(self):
        answer = self.ask(self.server, n=2)
        self.assertEqual([c["index"] for c in answer["choices"]], [0, 1])
        texts = {c["message"]["content"] for c in answer["choices"]}
        self.assertEqual(texts, {self.ask(self.server)["choices"][0]["message"]["content"]})

    def test_drawn_answers_are_the_same_again(self):
        """Bits depend on how a prompt is cut into steps, which the clock decides: here steps are the same.

        64 tokens of the prompt are known, and the other 8 come in one step, however long it takes. From there on the
        three answers share each step. Those of the second request are recordings of the first one's.
        """
        words = {"prompt": prompt_of(72), "max_tokens": 8, "temperature": 1.5, "seed": 5, "logprobs": 2,
                 "ignore_eos": True}
        self.server.complete(**{**words, "max_tokens": 1})
        drawn = [self.server.complete(**words, n=3)["choices"] for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertGreater(len({c["text"] for c in drawn[0]}), 1)

    def test_who_leaves_is_forgotten(self):
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", '{"prompt": [5, 6, 7], "max_tokens": 400, "stream": true, '
                           '"ignore_eos": true}')
        response = connection.getresponse()
        self.assertTrue(response.readline())
        response.close()
        connection.close()
        # What is told may be of before the request, so a wait for none that runs might end at once.
        self.server.wait_for(lambda m: m['requests_cancelled_total{phase="decode"}'] == 1 and busy_pages(m) == 0)
        self.assertEqual(self.server.metrics()["requests_running"], 0)

    def test_answers_beside_one_another(self):
        """Beside others roundings differ, so texts are those of the processor for a while."""
        got = {}

        def ask(i):
            got[i] = [server.complete(prompt=prompt_of(70, i), max_tokens=4, logprobs=0, ignore_eos=True)["choices"][0]
                      for server in (self.server, self.cpu)]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i in range(4):
            ours, theirs = (choice["logprobs"] for choice in got[i])
            self.assertEqual(ours["tokens"][0], theirs["tokens"][0])
            self.assertAlmostEqual(ours["token_logprobs"][0], theirs["token_logprobs"][0], delta=NEAR)


if __name__ == "__main__":
    unittest.main()
