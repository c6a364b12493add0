#!/usr/bin/env python3
"""The prefix cache from outside: conversations whose answers come back as text."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_server import ROOT, STORIES, Server  # noqa: E402

TINY = ROOT / "../shared/assets/models/tinystories-656k"
ROWS = 64  # of a page
# Marks around the messages, as most templates have them.
TEMPLATE = (
    "{% for m in messages %}{{ bos_token }}{{ m.role }}\n{{ m.content }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"
)
TRIMMED_TEMPLATE = TEMPLATE.replace("m.content", "m.content | trim")
PLAIN_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def cached_of(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def write_template(folder, text):
    path = Path(folder) / "template.jinja"
    path.write_text(text)
    return path


class Conversation:
    """Turns that a client adds to each other, and what each had to find again."""

    def __init__(self, server, **body):
        self.server = server
        self.body = {"temperature": 1, "max_tokens": 70, **body}
        self.messages = []
        self.n_known = 0  # ids up to the end of the last answer
        self.n_computed = 0  # of them: what an answer without an end stopped at was not
        self.retokenized = 0  # answers that the tokenizer cuts otherwise

    def ask(self, text, seed):
        self.messages.append({"role": "user", "content": text})
        answer = self.server.post(
            "/v1/chat/completions", messages=self.messages, seed=seed, **self.body
        )
        usage, choice = answer["usage"], answer["choices"][0]
        self.messages.append(choice["message"])
        self.n_known = usage["prompt_tokens"] + usage["completion_tokens"]
        self.n_computed = self.n_known - (choice["finish_reason"] == "length")
        plain = self.server.post(
            "/tokenize", messages=self.messages, add_generation_prompt=False
        )["count"]
        closing = 2 if "eos_token" in self.server.template else 1
        self.retokenized += plain != self.n_known + closing
        return answer


def whole_pages(n_computed):
    return n_computed // ROWS * ROWS


class ConversationTest(unittest.TestCase):
    def serve(self, model, template, *words):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = write_template(folder.name, template)
        server = Server(model, "--template", path, "--ctx", 2048, *words)
        server.template = template
        self.addCleanup(server.stop)
        return server

    def check_turns(self, model, template, differs, slack=0, **body):
        """slack: tokens of an answer that what follows may be joined to"""
        if not model.exists():
            self.skipTest(f"{model} is absent")
        server = self.serve(model, template)
        retokenized = 0
        for seed in range(3):
            talk = Conversation(server, **body)
            for turn in range(6):
                n_known, n_computed = talk.n_known, talk.n_computed
                answer = talk.ask(f"Tell me about turn {turn} of talk {seed}.", seed)
                with self.subTest(seed=seed, turn=turn):
                    self.assertGreaterEqual(answer["usage"]["prompt_tokens"], n_known)
                    if turn > 0:
                        self.assertLessEqual(cached_of(answer), whole_pages(n_computed))
                        least = whole_pages(n_computed - slack)
                        self.assertGreaterEqual(cached_of(answer), least)
            retokenized += talk.retokenized
        hits = server.metrics()["prefix_cache_text_hits_total"]
        if differs:
            self.assertGreater(retokenized, 0)
            self.assertGreater(hits, 0)
        else:
            self.assertEqual((retokenized, hits), (0, 0))

    def test_marks_and_trimmed_answers(self):
        # This tokenizer puts a space behind every mark, which the model does not.
        self.check_turns(STORIES, TRIMMED_TEMPLATE, True)

    def test_another_tokenizer(self):
        self.check_turns(TINY, TEMPLATE, True)

    def test_text_alone_around_answers(self):
        # Sampling writes what the tokenizer would not.
        self.check_turns(STORIES, PLAIN_TEMPLATE, True, slack=3)

    def test_answers_as_the_tokenizer_cuts_them(self):
        self.check_turns(STORIES, PLAIN_TEMPLATE, False, slack=3, temperature=0)

    def test_can_be_turned_off(self):
        if not STORIES.exists():
            self.skipTest("../shared/assets is absent")
        server = self.serve(STORIES, TEMPLATE, "--no-text-match")
        talk = Conversation(server)
        for seed in range(3):
            plain = server.post(
                "/tokenize",
                messages=talk.messages + [{"role": "user", "content": "And then?"}],
            )["count"]
            answer = talk.ask("And then?", seed)
            self.assertEqual(answer["usage"]["prompt_tokens"], plain)
        self.assertEqual(server.metrics()["prefix_cache_text_hits_total"], 0)

    def test_keys_do_not_share_texts(self):
        if not STORIES.exists():
            self.skipTest("../shared/assets is absent")
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("one\ntwo\n")
            file.flush()
            server = self.serve(STORIES, TEMPLATE, "--api-key-file", file.name)
        messages = [{"role": "user", "content": "Tell me a long story about the sea."}]
        body = {"temperature": 1, "seed": 5, "max_tokens": 150}
        counts = {}
        for key, turn in (("one", 0), ("one", 1), ("two", 1), ("one", 2), ("two", 2)):
            headers = {"X-Api-Key": key}
            status, _, answer = server.ask(
                "POST", "/v1/chat/completions", {"messages": messages, **body}, headers
            )
            self.assertEqual(status, 200, answer)
            counts[key, turn] = answer["usage"]["prompt_tokens"], cached_of(answer)
            if turn == 0:
                messages.append(answer["choices"][0]["message"])
                messages.append({"role": "user", "content": "And then?"})
        self.assertGreaterEqual(counts["one", 1][1], 128)
        self.assertEqual(counts["two", 1][1], 0)


if __name__ == "__main__":
    if not STORIES.exists():
        print("skipped: ../shared/assets is absent")
        sys.exit(77)
    unittest.main()
