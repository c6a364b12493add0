#!/usr/bin/env python3
"""`swiftkv serve` speaks Anthropic's Messages: by hand and through the package anthropic.

What needs the package skips without it: pip install -r tests/clients/requirements.txt.
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PLAIN, PROGRAM, STORIES, TEMPLATES, Server, ServerTest  # noqa: E402

try:
    import anthropic
except ImportError:
    anthropic = None

COLOR = {
    "name": "set_color",
    "description": "Sets the colour.",
    "input_schema": {
        "type": "object",
        "properties": {"color": {"enum": ["red", "green"]}, "level": {"enum": [1, 2, 3]}},
        "required": ["color", "level"],
    },
}
HELLO = [{"role": "user", "content": "Make it red."}]
CALL = '<tool_call>\n{"name": "set_color", "arguments": {"color": "red", "level": 3}}\n</tool_call>'


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class MessagesTest(ServerTest):
    model = STORIES
    words = ("--ctx", 4096, "--template", TEMPLATES / "Qwen-Qwen3-0.6B.jinja")

    def ask(self, **body):
        body = {"messages": HELLO, "max_tokens": 200, "model": STORIES.stem, **body}
        return self.server.post("/v1/messages", **body)

    def events(self, **body):
        """(name, data) of a stream, in order."""
        body = {"messages": HELLO, "max_tokens": 200, "model": STORIES.stem, **body}
        out = []
        for event in self.server.events("/v1/messages", **body):
            if not event:
                continue
            name, data = event.split("\n")
            self.assertTrue(name.startswith("event: "))
            data = json.loads(data.removeprefix("data: "))
            self.assertEqual(data["type"], name.removeprefix("event: "))
            out.append(data)
        return out

    def blocks(self, events):
        """Content blocks put together; checks the order of events."""
        self.assertEqual(events[0]["type"], "message_start")
        self.assertEqual([e["type"] for e in events[-2:]], ["message_delta", "message_stop"])
        blocks, is_open = [], False
        for event in events[1:-2]:
            if event["type"] == "ping":
                continue
            if event["type"] == "content_block_start":
                self.assertFalse(is_open)
                self.assertEqual(event["index"], len(blocks))
                blocks.append(dict(event["content_block"], said=""))
                is_open = True
                continue
            self.assertTrue(is_open)
            self.assertEqual(event["index"], len(blocks) - 1)
            if event["type"] == "content_block_stop":
                is_open = False
            else:
                delta = event["delta"]
                key = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
                blocks[-1]["said"] += delta[key[delta["type"]]]
        self.assertFalse(is_open)
        return blocks

    def test_text(self):
        system = "Be brief. Nobody has asked this before."
        answer = self.ask(max_tokens=12, temperature=0, system=system)
        self.assertEqual((answer["type"], answer["role"]), ("message", "assistant"))
        self.assertEqual(answer["stop_reason"], "max_tokens")
        self.assertIsNone(answer["stop_sequence"])
        self.assertEqual([b["type"] for b in answer["content"]], ["text"])
        usage = answer["usage"]
        self.assertEqual(usage["output_tokens"], 12)
        again = self.ask(max_tokens=12, temperature=0, system=[{"type": "text", "text": system}])
        self.assertEqual(again["content"], answer["content"])
        self.assertGreater(again["usage"]["cache_read_input_tokens"], 0)
        parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        self.assertGreater(usage["cache_creation_input_tokens"], 0)
        self.assertEqual(again["usage"]["cache_creation_input_tokens"], 0)
        both = [sum(u[part] for part in parts) for u in (usage, again["usage"])]
        self.assertEqual(both[0], both[1])
        counted = self.server.post("/v1/messages/count_tokens", messages=HELLO, system=system)
        self.assertEqual(counted["input_tokens"], both[0])
        events = self.events(max_tokens=12, temperature=0, system=system)
        blocks = self.blocks(events)
        self.assertEqual([b["said"] for b in blocks], [answer["content"][0]["text"]])
        self.assertEqual(events[-2]["delta"], {"stop_reason": "max_tokens", "stop_sequence": None})
        self.assertEqual(events[-2]["usage"]["output_tokens"], 12)

    def test_usage_by_lifetime(self):
        """In front of a mark of an hour, behind it, whole prompts, and what the cache had before."""

        def split(usage):
            made = usage["cache_creation"]
            self.assertEqual(sum(made.values()), usage["cache_creation_input_tokens"])
            return made["ephemeral_5m_input_tokens"], made["ephemeral_1h_input_tokens"]

        hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        system = [{"type": "text", "text": "Cats of this town are lazy. " * 40, **hour}]
        messages = [{"role": "user", "content": "And the dogs run and bark all day. " * 40}]
        shared = self.server.post("/v1/messages/count_tokens", system=system, messages=HELLO)["input_tokens"]
        fixed = {"max_tokens": 1, "system": system}
        usage = self.ask(**fixed, messages=messages)["usage"]
        minutes, hours = split(usage)
        self.assertTrue(0 <= shared - hours < 64, (shared, hours))  # what HELLO and the template add
        self.assertGreater(minutes, 200)
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Tell me of their bones. " * 30}]
        events = self.events(**fixed, messages=messages)
        minutes, hours = split(events[-2]["usage"])
        early = events[1]["type"] == "ping"  # in front of the first token the prompt is not in the cache yet
        self.assertEqual(split(events[0]["message"]["usage"]), (0, 0) if early else (minutes, hours))
        self.assertLess(hours, 64)
        self.assertGreater(minutes, 64)
        for words in ({}, hour):
            told = [{"role": "user", "content": f"Birds sing {len(words)} songs. " * 40}]
            usage = self.ask(max_tokens=1, messages=told, **words)["usage"]
            n = usage["cache_creation_input_tokens"]
            self.assertEqual(split(usage), (0, n) if words else (n, 0))

    def test_length_ends_with_the_context(self):
        answer = self.ask(max_tokens=32000, guided_choice=["Yes."])
        self.assertEqual(answer["content"][0]["text"], "Yes.")
        self.assertEqual(answer["stop_reason"], "end_turn")
        long = [{"role": "user", "content": "word " * 9000}]
        body = {"messages": long, "max_tokens": 10}
        status, _, answer = self.server.ask("POST", "/v1/messages", body)
        self.assertEqual(status, 400)
        self.assertIn("4096", answer["error"]["message"])

    def test_the_context_ends_an_answer_before_min_tokens(self):
        answer = self.ask(max_tokens=10**9, min_tokens=10**6)
        self.assertEqual(answer["stop_reason"], "model_context_window_exceeded")

    def test_stop_sequences(self):
        answer = self.ask(guided_choice=["One two three"], stop_sequences=["two"])
        self.assertEqual(answer["content"][0]["text"].strip(), "One")
        self.assertEqual((answer["stop_reason"], answer["stop_sequence"]), ("stop_sequence", "two"))

    def test_tools(self):
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "set_color"}):
            answer = self.ask(tools=[COLOR], tool_choice=choice, temperature=1)
            self.assertEqual(answer["stop_reason"], "tool_use")
            (block,) = answer["content"]
            self.assertEqual((block["type"], block["name"]), ("tool_use", "set_color"))
            self.assertIn(block["input"]["color"], ("red", "green"))
        said = f"<think>\nHm.\n</think>\n\nI do.\n{CALL}\n{CALL}"
        body = {"tools": [COLOR], "guided_choice": [said], "max_tokens": 500}
        answer = self.ask(**body)
        self.assertEqual([b["type"] for b in answer["content"]], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual(answer["content"][0]["thinking"], "Hm.")
        self.assertEqual(answer["content"][1]["text"], "I do.")
        self.assertEqual(answer["content"][2]["input"], {"color": "red", "level": 3})
        blocks = self.blocks(self.events(**body))
        self.assertEqual([b["type"] for b in blocks], [b["type"] for b in answer["content"]])
        self.assertEqual(json.loads(blocks[3]["said"]), {"color": "red", "level": 3})
        self.assertEqual(blocks[3]["input"], {})
        cut = self.ask(**{**body, "max_tokens": 60, "guided_choice": [CALL]})
        (block,) = cut["content"]
        self.assertEqual((block["type"], cut["stop_reason"]), ("text", "max_tokens"))
        self.assertTrue(CALL.startswith(block["text"]), block)

    def test_history_is_the_same_prompt(self):
        call = {"type": "tool_use", "id": "toolu_1", "name": "set_color", "input": {"color": "red", "level": 3}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Done."}]}
        messages = [
            *HELLO,
            {"role": "assistant", "content": [{"type": "text", "text": "I do."}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "Now"}, {"type": "text", "text": "green."}]},
        ]
        chat = [
            *HELLO,
            {"role": "assistant", "content": "I do.", "tool_calls": [
                {"function": {"name": "set_color", "arguments": '{"color": "red", "level": 3}'}}]},
            {"role": "tool", "content": "Done."},
            {"role": "user", "content": "Now\ngreen."},
        ]  # fmt: skip
        tool = {"type": "function", "function": {
            "name": "set_color", "description": "Sets the colour.", "parameters": COLOR["input_schema"]}}  # fmt: skip
        want = self.server.post("/tokenize", messages=chat, tools=[tool])["count"]
        got = self.server.post("/v1/messages/count_tokens", messages=messages, tools=[COLOR])
        self.assertEqual(got["input_tokens"], want)

    def test_structured(self):
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
        for place in (
            {"output_format": {"type": "json_schema", "schema": schema}},
            {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        ):
            answer = self.ask(**place)
            self.assertIn(json.loads(answer["content"][0]["text"])["n"], (1, 2))

    def test_refused(self):
        for body, *parts in (
            ({"max_tokens": None}, "max_tokens"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "tool", "content": "x"}]}, "tool"),
            ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url"}}]}]}, "url"),
            ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
            ({"messages": [{"role": "user", "content": 3}]}, "messages[0]"),
            ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "name"),
            ({"system": [{"type": "image"}]}, "system"),
            ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
            ({"tools": [{"type": "bash_20250124"}]}, "tools[0].name"),
            ({"tools": [{"type": "telepathy", "name": "x"}]}, "telepathy"),
            ({"tools": [{}]}, "tools[0].name"),
            ({"tools": [COLOR], "tool_choice": {"type": "tool", "name": "other"}}, "other"),
            ({"tools": [COLOR], "tool_choice": {"type": "some"}}, "some"),
            ({"stop_sequences": [""]}, "stop_sequences"),
            ({"thinking": {"type": "x"}}, "thinking"),
            ({"mcp_servers": [{}]}, "mcp_servers"),
            ({"temperature": -1}, "temperature"),
            ({"min_tokens": 6}, "min_tokens", "6", "5"),
        ):
            with self.subTest(body=body):
                body = {"messages": HELLO, "max_tokens": 5, **body}
                status, _, answer = self.server.ask("POST", "/v1/messages", body)
                self.assertEqual(status, 400, answer)
                self.assertEqual(answer["type"], "error")
                self.assertEqual(answer["error"]["type"], "invalid_request_error")
                for part in parts:
                    self.assertIn(part, answer["error"]["message"])
        status, _, answer = self.server.ask("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 5, "model": "x"})
        self.assertEqual((status, answer["error"]["type"]), (404, "not_found_error"))

    def test_very_many_blocks(self):
        blocks = [{"type": "text", "text": "."}] * 30000
        body = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 1}
        status, _, answer = self.server.ask("POST", "/v1/messages", body)
        self.assertEqual(status, 400, answer)

    @unittest.skipUnless(anthropic, "the package anthropic is not installed")
    def test_client(self):
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.server.port}", api_key="x")
        body = {"model": STORIES.stem, "messages": HELLO, "max_tokens": 100}
        message = client.messages.create(**body, stop_sequences=["zzz"], system="Be brief.")
        self.assertEqual(message.role, "assistant")
        self.assertGreater(message.usage.output_tokens, 0)
        choice = {"type": "tool", "name": "set_color"}
        with client.messages.stream(**body, extra_body={"temperature": 0}, tools=[COLOR], tool_choice=choice) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertIn("input_json", kinds)
        self.assertEqual(final.stop_reason, "tool_use")
        self.assertIn(final.content[0].input["level"], (1, 2, 3))
        result = {"type": "tool_result", "tool_use_id": final.content[0].id, "content": "ok"}
        messages = [*HELLO, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
        with client.messages.stream(**{**body, "messages": messages, "max_tokens": 8}, tools=[COLOR]) as stream:
            text = "".join(stream.text_stream)
        self.assertTrue(text)
        count = client.messages.count_tokens(model=STORIES.stem, messages=HELLO)
        self.assertGreater(count.input_tokens, 5)
        with self.assertRaises(anthropic.NotFoundError) as caught:
            client.messages.create(**{**body, "model": "other"})
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")


class KeyTest(unittest.TestCase):
    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("alpha-key\n")
            file.flush()
            server = Server(PLAIN, "--ctx", 512, "--api-key-file", file.name)
            self.addCleanup(server.stop)
            body = {"messages": HELLO, "max_tokens": 5}
            status, _, answer = server.ask("POST", "/v1/messages", body)
            self.assertEqual(status, 401)
            self.assertEqual(answer["error"]["type"], "authentication_error")
            self.assertEqual(answer["type"], "error")
            status, _, answer = server.ask("POST", "/v1/messages", body, {"x-api-key": "alpha-key"})
            self.assertEqual(status, 400)  # the model has no tokenizer
            self.assertIn("tokenizer", answer["error"]["message"])


class PingTest(unittest.TestCase):
    @unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
    def test_signs_of_life(self):
        template = TEMPLATES / "Qwen-Qwen3-0.6B.jinja"
        words = ("--ctx", 65536, "--kv-tokens", 65536, "--ping-interval", 0.01, "--template", template)
        server = Server(STORIES, *words)
        self.addCleanup(server.stop)
        connection = server.connect()
        content = "a story about it " * 400
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2, "stream": True}
        connection.request("POST", "/v1/messages", json.dumps(body))
        lines = [line for line in connection.getresponse().read().decode().split("\n") if line]
        connection.close()
        self.assertEqual(lines[0], "event: message_start")
        self.assertIn('data: {"type":"ping"}', lines)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
