#!/usr/bin/env python3
"""`swiftkv serve` speaks OpenAI's Responses: by hand and through the package openai.

What needs the package skips without it: pip install -r tests/clients/requirements.txt.
"""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, STORIES, TEMPLATES, ServerTest  # noqa: E402

try:
    import openai
    import pydantic
except ImportError:
    openai = None

COLOR = {
    "type": "function",
    "name": "set_color",
    "description": "Sets the colour.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"color": {"enum": ["red", "green"]}, "level": {"enum": [1, 2, 3]}},
        "required": ["color", "level"],
        "additionalProperties": False,
    },
}
CALL = '<tool_call>\n{"name": "set_color", "arguments": {"color": "red", "level": 3}}\n</tool_call>'


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class ResponsesTest(ServerTest):
    model = STORIES
    # Answers that come back would keep the tokens they were written with, and tokens are counted here.
    words = ("--ctx", 4096, "--no-text-match", "--template", TEMPLATES / "Qwen-Qwen3-0.6B.jinja")

    def ask(self, **body):
        return self.server.post("/v1/responses", **{"input": "Make it red.", **body})

    def events(self, **body):
        out = []
        for event in self.server.events("/v1/responses", **{"input": "Make it red.", **body}):
            if not event:
                continue
            name, data = event.split("\n")
            data = json.loads(data.removeprefix("data: "))
            self.assertEqual(data["type"], name.removeprefix("event: "))
            self.assertEqual(data["sequence_number"], len(out))
            out.append(data)
        return out

    def items(self, events):
        """Output items put together from deltas; checks the order of events."""
        self.assertEqual([e["type"] for e in events[:2]], ["response.created", "response.in_progress"])
        items, said, parts = [], "", []
        for event in events[2:-1]:
            kind = event["type"].removeprefix("response.")
            self.assertEqual(event["output_index"], len(items))
            if kind == "output_item.added":
                self.assertEqual(event["item"]["status"], "in_progress")
                said, item_id = "", event["item"]["id"]
            elif kind == "output_item.done":
                self.assertEqual(event["item"]["id"], item_id)
                item = event["item"]
                text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
                self.assertEqual(text, said)
                items.append(item)
            else:
                self.assertEqual(event["item_id"], item_id)
                if kind.endswith(".delta"):
                    said += event["delta"]
                elif kind.endswith("_part.done"):
                    parts.append(event["part"])
                elif kind.endswith(".done"):
                    self.assertEqual(event["arguments" if "arguments" in kind else "text"], said)
        return items

    def test_text(self):
        body = {"max_output_tokens": 12, "temperature": 0, "instructions": "Be brief."}
        answer = self.ask(**body)
        self.assertEqual((answer["object"], answer["status"]), ("response", "incomplete"))
        self.assertEqual(answer["incomplete_details"], {"reason": "max_output_tokens"})
        self.assertEqual(answer["instructions"], "Be brief.")
        self.assertEqual(answer["usage"]["output_tokens"], 12)
        (item,) = answer["output"]
        self.assertEqual((item["type"], item["role"], item["status"]), ("message", "assistant", "incomplete"))
        events = self.events(**body)
        self.assertEqual(events[-1]["type"], "response.incomplete")
        (streamed,) = self.items(events)
        self.assertEqual(streamed["content"], item["content"])
        final = events[-1]["response"]
        self.assertEqual(final["output"], [streamed])
        self.assertGreater(final["usage"]["input_tokens_details"]["cached_tokens"], 0)
        items = [
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Make it red."}]},
        ]
        again = self.ask(**{**body, "instructions": None, "input": items})
        self.assertEqual(again["output"][0]["content"], item["content"])

    def test_calls(self):
        for choice in ("required", {"type": "function", "name": "set_color"}):
            answer = self.ask(tools=[COLOR], tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual(answer["status"], "completed")
            (item,) = answer["output"]
            self.assertEqual((item["type"], item["name"]), ("function_call", "set_color"))
            self.assertIn(json.loads(item["arguments"])["level"], (1, 2, 3))
            self.assertEqual(answer["tools"], [COLOR])
            self.assertEqual(answer["tool_choice"], choice)
        said = f"<think>\nHm.\n</think>\n\nI do.\n{CALL}\n{CALL}"
        body = {"tools": [COLOR], "guided_choice": [said]}
        answer = self.ask(**body)
        kinds = ["reasoning", "message", "function_call", "function_call"]
        self.assertEqual([i["type"] for i in answer["output"]], kinds)
        events = self.events(**body)
        items = self.items(events)
        self.assertEqual([i["type"] for i in items], kinds)
        self.assertEqual(items[0]["content"][0]["text"], "Hm.")
        self.assertEqual(items[1]["content"][0]["text"], "I do.")
        self.assertEqual(json.loads(items[3]["arguments"]), {"color": "red", "level": 3})
        self.assertEqual(events[-1]["response"]["output"], items)

    def test_history_is_the_same_prompt(self):
        items = [
            {"role": "user", "content": "Make it red."},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I do."}]},
            {"type": "function_call", "call_id": "c", "name": "set_color", "arguments": '{"color": "red", "level": 3}'},
            {"type": "function_call_output", "call_id": "c", "output": "Done."},
        ]
        chat = [
            {"role": "user", "content": "Make it red."},
            {"role": "assistant", "content": "I do.", "reasoning_content": "Hm.", "tool_calls": [
                {"function": {"name": "set_color", "arguments": '{"color": "red", "level": 3}'}}]},
            {"role": "tool", "content": "Done."},
        ]  # fmt: skip
        tool = {"type": "function", "function": {
            "name": "set_color", "description": "Sets the colour.", "parameters": COLOR["parameters"]}}  # fmt: skip
        want = self.server.post("/tokenize", messages=chat, tools=[tool])["count"]
        answer = self.ask(input=items, tools=[COLOR], max_output_tokens=1)
        self.assertEqual(answer["usage"]["input_tokens"], want)

    def test_refused(self):
        for field, body, *parts in (
            ("input", {"input": None}),
            ("input", {"input": []}),
            ("input", {"input": [{"type": "web_search_call"}]}, "text"),
            ("input", {"input": [{"type": "mcp_call"}]}, "mcp_call"),
            ("input", {"input": [{"type": "item_reference", "id": "msg_7"}]}, "msg_7", "not kept"),
            ("input", {"input": [{"type": "custom_tool_call", "name": "x"}]}, "input"),
            ("input", {"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
            ("input", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input_image"),
            ("input", {"input": [{"type": "function_call"}]}, "name"),
            ("previous_response_id", {"previous_response_id": "resp_1"}, "not kept"),
            ("conversation", {"conversation": "conv_1"}),
            ("prompt", {"prompt": {"id": "x"}}),
            ("background", {"background": True}),
            ("truncation", {"truncation": "auto"}, "auto"),
            ("top_logprobs", {"top_logprobs": 2}),
            ("tools", {"tools": [{"type": "web_search"}]}, "web_search"),
            ("tools", {"tools": [{"type": "telepathy", "name": "x"}]}, "telepathy"),
            ("tools", {"tools": [{"type": "namespace", "name": "x"}]}, "tools"),
            ("tools", {"tools": [{"type": "custom", "name": "x", "format": {"type": "xml"}}]}, "format"),
            ("tool_choice", {"tools": [COLOR], "tool_choice": {"type": "allowed_tools", "tools": [
                {"type": "function", "name": "x"}], "mode": "auto"}}),
            ("tool_choice", {"tools": [COLOR], "tool_choice": {"type": "mcp"}}, "mcp"),
            ("tool_choice", {"tools": [COLOR], "tool_choice": {"type": "function", "name": "x"}}),
            ("max_output_tokens", {"max_output_tokens": 0}),
            ("text", {"text": {"format": {"type": "xml"}}}, "xml"),
            ("text", {"text": {"format": {"type": "json_schema"}}}, "schema"),
            ("temperature", {"temperature": 1000}),
            ("instructions", {"instructions": 3}),
            ("min_tokens", {"min_tokens": 6, "max_output_tokens": 5}, "6", "5"),
        ):
            with self.subTest(body=body):
                error = self.refuses(400, "/v1/responses", {"input": "Hi", **body}, *parts)
                self.assertEqual(error["param"], field)

    @unittest.skipUnless(openai, "the package openai is not installed")
    def test_client(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="x")
        model = STORIES.stem
        answer = client.responses.create(model=model, input="Hello", max_output_tokens=8)
        self.assertTrue(answer.output_text)
        with client.responses.stream(
            model=model, input="Make it red.", tools=[COLOR], tool_choice="required", parallel_tool_calls=False
        ) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(kinds[-1], "response.completed")
        self.assertIn("response.function_call_arguments.delta", kinds)
        call = final.output[0]
        self.assertIn(json.loads(call.arguments)["color"], ("red", "green"))
        items = [{"role": "user", "content": "Make it red."}, call]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Done."})
        again = client.responses.create(model=model, input=items, tools=[COLOR], max_output_tokens=8)
        self.assertEqual(again.usage.output_tokens, 8)

        class Level(pydantic.BaseModel):
            level: int = pydantic.Field(ge=1, le=9)
            on: bool

        parsed = client.responses.parse(model=model, input="Level?", text_format=Level)
        self.assertIn(parsed.output_parsed.level, range(1, 10))
        with self.assertRaises(openai.BadRequestError) as caught:
            client.responses.create(model=model, input="x", previous_response_id="resp_1")
        self.assertEqual(caught.exception.param, "previous_response_id")


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
