#!/usr/bin/env python3
"""--idle-read: what the next request of a conversation begins with is read while nothing waits, as its template has it."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, ROOT, Server  # noqa: E402
from test_server_prompt import TEMPLATE, tool  # noqa: E402

MINI = ROOT / "models/mini/base"
TOOLS = [tool("read", path={"type": "string"})]
RESULT = "the file reads a table of names and returns each value once so that tests can check it. " * 30
THOUGHT = "I have to read the file first, and then I say what it does."
SAID = f"<think>\n{THOUGHT}\n</think>\n\nIt reads a table."


class Chat:
    """A turn with a call that the model has made, then its last answer; the thoughts go when the user asks again."""

    path, options = "/v1/chat/completions", {"max_tokens": 200, "tools": TOOLS}
    begin = [{"role": "user", "content": "What does a.c do?"},
             {"role": "assistant", "content": "", "reasoning_content": THOUGHT, "tool_calls": [
                 {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.c"}'}}]},
             {"role": "tool", "tool_call_id": "c1", "content": RESULT}]  # fmt: skip
    more = {"role": "user", "content": "And b.c?"}
    field = "messages"

    @staticmethod
    def said(answer):
        message = answer["choices"][0]["message"]
        return [{k: message[k] for k in ("role", "content", "reasoning_content") if k in message}]

    @staticmethod
    def cached(answer):
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Messages(Chat):
    path = "/v1/messages"
    options = {"max_tokens": 200, "tools": [
        {"name": "read", "description": "does read", "input_schema": TOOLS[0]["function"]["parameters"]}]}  # fmt: skip
    begin = [{"role": "user", "content": "What does a.c do?"},
             {"role": "assistant", "content": [{"type": "thinking", "thinking": THOUGHT, "signature": ""},
                                               {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.c"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": RESULT}]}]  # fmt: skip

    @staticmethod
    def said(answer):
        return [{"role": "assistant", "content": answer["content"]}]

    @staticmethod
    def cached(answer):
        return answer["usage"]["cache_read_input_tokens"]


class Responses(Chat):
    path, field = "/v1/responses", "input"
    options = {"max_output_tokens": 200, "tools": [{"type": "function", **TOOLS[0]["function"]}]}
    begin = [{"role": "user", "content": "What does a.c do?"},
             {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": THOUGHT}]},
             {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path": "a.c"}'},
             {"type": "function_call_output", "call_id": "c1", "output": RESULT}]  # fmt: skip

    @staticmethod
    def said(answer):
        return answer["output"]

    @staticmethod
    def cached(answer):
        return answer["usage"]["input_tokens_details"]["cached_tokens"]


class IdleTest(unittest.TestCase):
    def serve(self, *words):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "template.jinja"
        path.write_text(TEMPLATE)
        server = Server(MINI, "--template", path, "--ctx", 4096, *words)
        self.addCleanup(server.stop)
        return server

    def first(self, server, api):
        """The history behind the first answer."""
        body = {**api.options, api.field: api.begin, "temperature": 0, "guided_choice": [SAID]}
        return api.begin + api.said(server.post(api.path, **body)) + [api.more]

    def second(self, server, api, history):
        """(tokens found in the cache, the answer)"""
        body = {**api.options, api.field: history, "temperature": 0, "guided_regex": "[a-z ]{1,8}"}
        answer = server.post(api.path, **body)
        said = api.said(answer)
        return api.cached(answer), json.dumps([m.get("content") for m in said if m.get("role") == "assistant"])

    def test_the_next_prompt_is_there(self):
        for api in (Chat, Messages, Responses):
            with self.subTest(api=api.path):
                server, plain = self.serve("--idle-read", 1), self.serve()
                history = self.first(server, api)
                server.wait_for(lambda m: m['idle_reads_total{end="done"}'] == 1)
                found, answer = self.second(server, api, history)
                self.first(plain, api)
                without, answer_without = self.second(plain, api, history)
                self.assertEqual(answer, answer_without)
                self.assertGreaterEqual(found, without + 256)
                metrics = server.metrics()
                self.assertEqual(metrics["idle_read_saved_tokens_total"], found - without)
                self.assertGreaterEqual(metrics["idle_read_tokens_total"], found - without)
                self.assertEqual(plain.metrics()["idle_read_steps_total"], 0)

    def test_a_stream_too(self):
        server = self.serve("--idle-read", 1)
        body = {**Chat.options, "messages": Chat.begin, "temperature": 0, "guided_choice": [SAID]}
        server.events(Chat.path, **body)
        server.wait_for(lambda m: m['idle_reads_total{end="done"}'] == 1)

    def test_calls_are_followed_by_results(self):
        """Inside a turn the thoughts stay, and little is missing: nothing is read."""
        server = self.serve("--idle-read", 1)
        said = f'<think>\n{THOUGHT}\n</think>\n\n<tool_call>\n{{"name": "read", "arguments": {{"path": "b.c"}}}}\n</tool_call>'
        answer = server.post(Chat.path, **Chat.options, messages=Chat.begin, temperature=0, guided_choice=[said])
        self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")
        server.wait_for(lambda m: m['idle_reads_total{end="left out"}'] == 1)
        self.assertEqual(server.metrics()["idle_read_steps_total"], 0)

    def test_the_request_is_logged_as_it_was(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        log = Path(folder) / "log"
        server = self.serve("--idle-read", 1, "--request-log", log, "--prompt-strip", "^clock")
        messages = [{"role": "system", "content": "clock 1\nBe short."}, *Chat.begin]
        server.post(Chat.path, **Chat.options, messages=messages, temperature=0, guided_choice=[SAID])
        server.wait_for(lambda m: m['idle_reads_total{end="done"}'] == 1 and log.read_text().count("\n") > 0)
        line = json.loads(log.read_text().splitlines()[0])
        self.assertEqual((line["status"], line["prompt_changes"]), (200, "strip=1"))


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
