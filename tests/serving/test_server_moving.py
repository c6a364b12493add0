#!/usr/bin/env python3
"""The differences that people meet who move here from llama-server, vLLM and Ollama: ROWS names, for each, the tests that
send the request. Those that stand nowhere else are here."""

import json
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, ROOT, STORIES, TEMPLATES, Server, ServerTest  # noqa: E402

MINI = ROOT / "models/mini/base"
USER = {"role": "user", "content": "Tell me"}
HERE = Path(__file__).resolve().parent

# Number: what people expect, and who shows it, as "file: test test ...". Files without a folder are here.
ROWS = {
    "1": ("an answer goes on with the last message of the assistant",
          "test_server_compat.py: test_answers_continue_the_last_message"),
    "2": ("tools with every template",
          "test_server_tools.py: test_required_and_streams test_a_system_text_asks test_calls_are_enforced",
          "../language/test_reply_templates.c: test_templates_read_back"),
    "3": ("several names of a model, or any",
          "test_server_compat.py: test_every_name_is_served test_any_name"),
    "4": ("a line break between parts of text", "test_server_compat.py: test_parts_of_text_are_lines"),
    "5": ("an answer ends with the context; -1 is no limit",
          "test_server_compat.py: test_long_answers_end_with_the_context",
          "test_server_messages.py: test_length_ends_with_the_context",
          "test_server_moving.py: test_chats_end_with_the_context"),
    "6": ("CORS, where it is asked for",
          "test_server_compat.py: test_no_cors_unless_asked_for test_origins test_preflight_has_no_body"),
    "7": ("what changes the answer is served or refused by name",
          "test_server_compat.py: test_names_of_llama_cpp test_what_changes_the_answer_is_refused_by_name",
          "test_server_agents.py: test_sampling_that_is_not_served_is_refused_everywhere"),
    "8": ("defaults of the model, then of the start, then of the request",
          "test_server_compat.py: test_order test_seed_of_all",
          "test_server_moving.py: test_variables_at_the_start"),
    "9": ('reasoning_effort "none"', "test_server_compat.py: test_variables_of_templates"),
    "10": ("the schema of a json_object", "test_server_compat.py: test_schema_of_a_json_object"),
    "11": ("a model without a template chats",
           "test_server_compat.py: test_without_a_template test_named_templates",
           "test_server_moving.py: test_gguf_without_a_template"),
    "12": ("one model, and the tokens of a response",
           "test_server_compat.py: test_models test_tokens_of_a_response"),
    "13": ("paths without /v1, and /v1/health", "test_server_compat.py: test_paths_with_and_without_the_version"),
    "14": ("variables that templates read",
           "test_server_compat.py: test_variables_of_templates test_firefunction",
           "test_server_moving.py: test_today_in_llama_3"),
    "15": ("a system message where the template knows none",
           "test_server_compat.py: test_a_system_message_goes_before_the_first_turn",
           "test_server_moving.py: test_gemma_2_with_a_system_message"),
    "16 top_p 0": ("is greedy", "test_server_compat.py: test_small_things"),
    "16 integers": ("above 2^63 are JSON", "test_server_moving.py: test_integers_of_any_size"),
    "16 grammar": ('"" is none', "test_server_compat.py: test_small_things"),
    "16 content": ("null without calls",
                   "test_server_compat.py: test_content_may_be_missing",
                   "test_server_moving.py: test_qwen3_without_content"),
    "16 keys": ("given twice, and a byte order mark", "test_server_compat.py: test_bodies"),
    "16 allowed_tools": ("limit the functions", "test_server_moving.py: test_allowed_tools"),
    "16 pattern": ("with a length, under required", "test_server_moving.py: test_schemas_under_required"),
    "16 multipleOf": ("under required", "test_server_moving.py: test_schemas_under_required"),
    "16 not": ("under required", "test_server_moving.py: test_schemas_under_required"),
    "16 if": ("under required", "test_server_moving.py: test_schemas_under_required"),
    "16 uniqueItems": ("under required", "test_server_moving.py: test_schemas_under_required"),
    "16 first chunk": ("has the role and no text", "test_server_moving.py: test_the_role_comes_first"),
    "16 system_fingerprint": ("in answers and chunks", "test_server_moving.py: test_fingerprint"),
    "16 gzip": ("is 415", "test_server_compat.py: test_bodies"),
    "16 models.list": ("of Anthropic has type and display_name", "test_server_compat.py: test_models"),
}


class RowsTest(unittest.TestCase):
    def test_each_row_has_its_tests(self):
        self.assertEqual({int(row.split()[0]) for row in ROWS}, set(range(1, 17)))
        for row, (_, *shown) in ROWS.items():
            self.assertTrue(shown, row)
            for place in shown:
                file, names = place.split(": ")
                text = (HERE / file).read_text()
                for name in names.split():
                    self.assertRegex(text, rf"\b(def|void) {name}\(", (row, file))


class SmallTest(ServerTest):
    model = MINI
    words = ("--ctx", 512, "--chat-template-kwargs", '{"who":"it"}', "--tool-format", "hermes")
    ask = {"messages": [USER], "temperature": 0, "max_tokens": 6}

    def chat(self, **body):
        return self.server.post("/v1/chat/completions", **{**self.ask, **body})

    def test_chats_end_with_the_context(self):
        for n in (-1, 10**6):
            answer = self.chat(max_tokens=n, ignore_eos=True)
            self.assertEqual(answer["usage"]["total_tokens"], 512)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")

    def test_integers_of_any_size(self):
        for n in (2**63, 2**64 - 1, 2**64, 10**30, -(10**30)):
            answer = self.chat(metadata={"n": n}, unknown=n)
            self.assertEqual(answer["usage"]["completion_tokens"], 6)
            error = self.refuses(400, "/v1/chat/completions", {**self.ask, "max_tokens": n}, "max_tokens")
            self.assertEqual(error["param"], "max_tokens")
        most = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
        answer = self.chat(tools=[self.function("odd", x=most)], tool_choice="required", max_tokens=200)
        call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        self.assertGreaterEqual(json.loads(call["arguments"])["x"], 0)
        called = {"id": "a", "type": "function", "function": {"name": "odd", "arguments": json.dumps({"x": 2**64})}}
        self.chat(messages=[USER, {"role": "assistant", "content": None, "tool_calls": [called]},
                            {"role": "tool", "tool_call_id": "a", "content": "1"}])
        self.assertEqual(self.chat(ids=[2**63 - 1, -(2**63)])["usage"]["completion_tokens"], 6)

    def test_the_role_comes_first(self):
        chunks = self.server.chunks("/v1/chat/completions", **self.ask)
        first, second = (chunk["choices"][0]["delta"] for chunk in chunks[:2])
        self.assertEqual(first, {"role": "assistant", "content": None})
        self.assertNotIn("role", second)
        self.assertTrue(second["content"])

    def test_fingerprint(self):
        told = {self.chat()["system_fingerprint"]}
        told |= {self.server.complete(prompt="a", max_tokens=1)["system_fingerprint"]}
        for path, body in (("/v1/chat/completions", self.ask), ("/v1/completions", {"prompt": "a", "max_tokens": 3})):
            told |= {chunk["system_fingerprint"] for chunk in self.server.chunks(path, **body)}
        self.assertEqual(len(told), 1)
        self.assertRegex(told.pop(), r"^swiftkv-\d+\.\d+\.\d+$")

    def function(self, name, **properties):
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    def test_allowed_tools(self):
        tools = [self.function(name, n={"enum": [1, 2]}) for name in ("one", "two", "three")]
        named = [{"type": "function", "function": {"name": "two"}}]
        for seed in range(3):
            choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": named}}
            answer = self.chat(tools=tools, tool_choice=choice, max_tokens=200, temperature=1, seed=seed)
            for call in answer["choices"][0]["message"]["tool_calls"]:
                self.assertEqual(call["function"]["name"], "two")
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": named}}
        self.chat(tools=tools, tool_choice=choice)
        body = {**self.ask, "tools": tools, "tool_choice": choice}
        choice["allowed_tools"]["tools"] = [{"type": "function", "function": {"name": "four"}}]
        self.refuses(400, "/v1/chat/completions", body, "allowed_tools")

    def test_schemas_under_required(self):
        """What a grammar can follow holds; the rest does not keep anybody from calling."""
        for schema, pattern in (
            ({"type": "string", "pattern": "^[a-c]{2}$", "maxLength": 9}, '"[a-c]{2}"'),
            ({"type": "integer", "multipleOf": 3, "minimum": 5, "maximum": 7}, "[567]"),
            ({"type": "boolean", "not": {"const": True}}, "true|false"),
            ({"type": "boolean", "if": {"const": True}, "then": {"title": "yes"}}, "true|false"),
            ({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2, "uniqueItems": True}, r"\[.*\]"),
        ):
            with self.subTest(schema=schema):
                answer = self.chat(tools=[self.function("odd", x=schema)], tool_choice="required", max_tokens=200)
                call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
                self.assertRegex(json.dumps(json.loads(call["arguments"])["x"]), f"^({pattern})$")

    def test_variables_at_the_start(self):
        """Those of --chat-template-kwargs, unless the request has its own."""
        server = Server(MINI, "--ctx", 128, "--chat-template-kwargs", '{"enable_thinking": false}', "--temp", 0, "--top-p", 0.5)
        try:
            fields = server.ask("GET", "/openapi.json")[2]["components"]["schemas"]["CompletionRequest"]["properties"]
            self.assertEqual((fields["temperature"]["default"], fields["top_p"]["default"]), (0, 0.5))
            _, _, props = server.ask("GET", "/props")
            self.assertEqual(props["default_generation_settings"]["params"]["top_p"], 0.5)
        finally:
            server.stop()


    def test_timings_of_each_event(self):
        chunks = self.server.chunks("/v1/chat/completions", timings_per_token=True, **self.ask)
        self.assertEqual(["timings" in chunk for chunk in chunks], [False] + [True] * (len(chunks) - 1))
        counts = [chunk["timings"]["predicted_n"] for chunk in chunks[1:]]
        self.assertEqual((counts, counts[-1]), (sorted(counts), 6))
        told = self.server.events("/v1/responses", input="Tell me", max_output_tokens=6, timings_per_token=True,
                                  temperature=0)
        told = [json.loads(event.split("data: ", 1)[1]) for event in told if "data: " in event]
        for event in told:
            last = event["type"] in ("response.completed", "response.incomplete")
            self.assertEqual("timings" in event, last or event["type"] == "response.output_text.delta", event["type"])
        self.assertEqual(told[-1]["timings"]["predicted_n"], 6)
        plain = self.server.chunks("/v1/chat/completions", **self.ask)
        self.assertEqual(["timings" in chunk for chunk in plain], [False] * (len(plain) - 1) + [True])


# As functionary's: the arguments of a call are added to a text.
ADDS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}{{ '>>>' + c.function.name + ' ' + c.function.arguments }}{% endfor %}{% endfor %}"
)
# Wants objects, and no system message.
READS = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + ADDS.replace(
    "c.function.arguments", "c.function.arguments.x")


class ArgumentsTest(unittest.TestCase):
    def prompt(self, template, messages):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            server = Server(MINI, "--ctx", 128, "--template", file.name, "--tool-format", "hermes")
        try:
            return server.post("/apply-template", messages=messages)["prompt"]
        finally:
            server.stop()

    def test_arguments_are_what_the_template_takes(self):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{ "x": "y" }'}}
        system, called = {"role": "system", "content": "S"}, {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "a", "content": "R"}
        history = [USER, called, result]
        self.assertIn('>>>f {"x":"y"}<tool>R', self.prompt(ADDS, history))
        self.assertEqual(self.prompt(READS, [system, *history]), "<user>S\n\nTell me<assistant>>>>f y<tool>R")


def rendered(template, model=MINI, words=(), **body):
    """The prompt of a published template."""
    server = Server(model, "--ctx", 4096, "--template", TEMPLATES / f"{template}.jinja", *words)
    try:
        return server.post("/apply-template", **body)["prompt"]
    finally:
        server.stop()


@unittest.skipUnless(TEMPLATES.exists(), f"{TEMPLATES} is absent")
class PublishedTest(unittest.TestCase):
    def test_today_in_llama_3(self):
        today = time.strftime("%d %b %Y", time.gmtime())
        for name in ("meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"):
            prompt = rendered(name, messages=[USER])
            self.assertTrue(re.search(f"Today Date: {today}", prompt) or today != time.strftime("%d %b %Y", time.gmtime()),
                            prompt)

    def test_gemma_2_with_a_system_message(self):
        prompt = rendered("google-gemma-2-2b-it", messages=[{"role": "system", "content": "Be brief."}, USER])
        self.assertTrue(prompt.endswith(
            "<start_of_turn>user\nBe brief.\n\nTell me<end_of_turn>\n<start_of_turn>model\n"), prompt)

    def test_qwen3_without_content(self):
        prompt = rendered("Qwen-Qwen3-0.6B", messages=[USER, {"role": "assistant", "content": None}, USER])
        self.assertIn("<|im_start|>assistant\n", prompt)

    def test_variables_at_the_start(self):
        words = ("--chat-template-kwargs", '{"enable_thinking": false}')
        off = rendered("Qwen-Qwen3-0.6B", words=words, messages=[USER])
        self.assertEqual(off, rendered("Qwen-Qwen3-0.6B", messages=[USER], reasoning_effort="none"))
        own = rendered("Qwen-Qwen3-0.6B", words=words, messages=[USER], chat_template_kwargs={"enable_thinking": True})
        self.assertEqual(own, rendered("Qwen-Qwen3-0.6B", messages=[USER]))
        self.assertNotEqual(own, off)


@unittest.skipUnless(STORIES.exists(), f"{STORIES} is absent")
class GgufTest(unittest.TestCase):
    def test_gguf_without_a_template(self):
        server = Server(STORIES, "--ctx", 256)
        try:
            self.assertTrue([line for line in server.lines if "no chat template" in line])
            answer = server.post("/v1/chat/completions", messages=[USER], max_tokens=3)
            self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
        finally:
            server.stop()


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
