#!/usr/bin/env python3
"""Requests of coding agents, as their public documentation describes them, are served.

Claude Code speaks Messages; Codex speaks Responses; Cline, OpenCode, Qwen Code, Aider and Continue speak chats. Each
has tools, a long history, a second model name, and things that only its own provider can do. The words here are ours.
Where they are installed, the packages openai and anthropic read the same streams (tests/clients/requirements.txt).
"""

import base64
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, STORIES, TEMPLATES, Server, ServerTest  # noqa: E402

try:
    import openai
except ImportError:
    openai = None
try:
    import anthropic
except ImportError:
    anthropic = None

PATCH = '*** Begin Patch\n*** Update File: a.py\n-x = "1"\n+x = "é\t😀"\n*** End Patch'
READ = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


def call(name, **arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


class AgentTest(ServerTest):
    model = STORIES
    words = ("--ctx", 8192, "--kv-tokens", 16384, "--name", "coder,coder-small",
             "--template", TEMPLATES / "Qwen-Qwen3-0.6B.jinja")  # fmt: skip

    def prompt(self, messages, tools=None):
        """The text that a chat becomes."""
        return self.server.post("/apply-template", messages=messages, **({"tools": tools} if tools else {}))["prompt"]

    def count(self, messages, tools=None):
        return self.server.post("/tokenize", messages=messages, **({"tools": tools} if tools else {}))["count"]

    def named_events(self, path, body, headers=None):
        """[(name, data)] of a stream with event lines, and its headers."""
        connection = self.server.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}), headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        self.assertEqual(response.status, 200, text)
        out = []
        for event in filter(None, text.split("\n\n")):
            name, data = event.split("\n")
            out.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
            self.assertEqual(out[-1][0], out[-1][1]["type"])
        return out, response.headers


# ---- Responses, as Codex speaks it ----

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Runs a command.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"command": {"type": "array", "items": {"type": "string"}}, "workdir": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
}
APPLY = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files. The input is no JSON.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" LF /(.|\\n)+/'},
}
SPACE = {
    "type": "namespace",
    "name": "mcp__tickets",
    "description": "Tickets.",
    "tools": [
        {"type": "function", "name": "find", "description": "Finds one.", "defer_loading": True, "parameters": READ},
        {"type": "custom", "name": "note", "description": "Adds a note."},
    ],
}
CODEX = {
    "model": "coder",
    "instructions": "You are a coding agent in a terminal.",
    "tools": [SHELL, APPLY, SPACE, {"type": "web_search", "external_web_access": False},
              {"type": "image_generation", "output_format": "png"}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "5f0c",
    "text": {"verbosity": "low"},
    "client_metadata": {"session": "1"},
}  # fmt: skip
TURN = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: read only."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "cwd: /src"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Make x a string."}]},
]


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class ResponsesAgentTest(AgentTest):
    def ask(self, said, **body):
        """The answer, which says this; checks that a stream says the same by the right events."""
        body = {**CODEX, "input": TURN, "guided_choice": [said], **body}
        status, headers, answer = self.server.ask("POST", "/v1/responses", body)
        self.assertEqual(status, 200, answer)
        events, _ = self.named_events("/v1/responses", body)
        self.check_events(events)
        streamed = [data["item"] for name, data in events if name == "response.output_item.done"]
        strip = ("id", "call_id")
        self.assertEqual(
            [{k: v for k, v in item.items() if k not in strip} for item in streamed],
            [{k: v for k, v in item.items() if k not in strip} for item in answer["output"]],
        )
        return answer["output"], headers

    def check_events(self, events):
        names = [name.removeprefix("response.") for name, _ in events]
        self.assertEqual(names[:2], ["created", "in_progress"])
        self.assertEqual(names[-1], "completed")
        self.assertEqual([data["sequence_number"] for _, data in events], list(range(len(events))))
        inside = {
            "function_call": ["function_call_arguments.delta", "function_call_arguments.done"],
            "custom_tool_call": ["custom_tool_call_input.delta", "custom_tool_call_input.done"],
            "message": ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"],
            "reasoning": ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"],
        }
        at = 2
        while names[at] != "completed":
            self.assertEqual(names[at], "output_item.added")
            item, told, start = events[at][1]["item"], "", at + 1
            at = names.index("output_item.done", start)
            seen = []
            for name, data in zip(names[start:at], (data for _, data in events[start:at])):
                self.assertEqual((data["item_id"], data["output_index"]), (item["id"], events[at][1]["output_index"]))
                told += data["delta"] if name.endswith(".delta") else ""
                if not seen or seen[-1] != name:
                    seen.append(name)
            self.assertEqual(seen, inside[item["type"]])
            done = events[at][1]["item"]
            field = {"function_call": "arguments", "custom_tool_call": "input"}.get(item["type"])
            self.assertEqual(told, done[field] if field else done["content"][0]["text"])
            self.assertEqual((done["id"], done["type"]), (item["id"], item["type"]))
            at += 1

    def test_a_custom_tool_gets_its_text(self):
        output, headers = self.ask(f"<think>\nHm.\n</think>\n\nI edit.\n{call('apply_patch', input=PATCH)}")
        self.assertEqual([item["type"] for item in output], ["reasoning", "message", "custom_tool_call"])
        self.assertEqual((output[2]["name"], output[2]["input"]), ("apply_patch", PATCH))
        self.assertTrue(output[2]["call_id"].startswith("call_"))
        self.assertEqual(headers["x-swiftkv-left-out"], "web_search, image_generation")

    def test_every_escape_of_json(self):
        texts = {
            r'"a\"\\\/\b\f\n\r\tz"': 'a"\\/\b\f\n\r\tz',
            r'"\u00e9\ud83d\ude00\u0041"': "é😀A",
            r'"\ud83d!"': "\ufffd!",
            r'"\ude00\ud83d\u0041"': "\ufffd\ufffdA",
            '""': "",
        }
        for text, want in texts.items():
            said = f'<tool_call>\n{{"name": "apply_patch", "arguments": {{"note": ["input"], "input": {text}}}}}\n</tool_call>'
            body = {**CODEX, "input": TURN, "guided_choice": [said]}
            (item,) = self.server.post("/v1/responses", **body)["output"]
            self.assertEqual(item["input"], want)

    def test_arguments_without_the_text_are_the_text(self):
        (item,), _ = self.ask(call("apply_patch", patch="x"))
        self.assertEqual(item["input"], '{"patch": "x"}')

    def test_a_demanded_custom_call_has_a_text(self):
        for choice in ({"type": "custom", "name": "apply_patch"},
                       {"type": "allowed_tools", "mode": "required", "tools": [
                           {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}]}):  # fmt: skip
            body = {**CODEX, "input": TURN, "tool_choice": choice, "max_output_tokens": 400, "temperature": 1,
                    "min_p": 0.1, "seed": 1, "stop": None}  # fmt: skip
            answer = self.server.post("/v1/responses", **body)
            (item,) = answer["output"]
            self.assertEqual((item["type"], item["name"]), ("custom_tool_call", "apply_patch"))

    def test_a_regular_expression_holds(self):
        tool = {"type": "custom", "name": "clock", "format": {
            "type": "grammar", "syntax": "regex", "definition": "(at|by) [0-2][0-9]:[0-5][0-9]"}}  # fmt: skip
        for choice in ("required", {"type": "custom", "name": "clock"}):
            body = {**CODEX, "input": TURN, "tools": [tool], "tool_choice": choice, "temperature": 1}
            for item in self.server.post("/v1/responses", **body)["output"]:
                self.assertRegex(item["input"], r"^(at|by) [0-2][0-9]:[0-5][0-9]$")

    def test_namespaces(self):
        output, _ = self.ask(call("mcp__tickets__find", path="7"))
        self.assertEqual((output[0]["namespace"], output[0]["name"]), ("mcp__tickets", "find"))
        self.assertEqual(json.loads(output[0]["arguments"]), {"path": "7"})
        output, _ = self.ask(call("mcp__tickets__note", input="Seen."))
        self.assertEqual((output[0]["namespace"], output[0]["name"]), ("mcp__tickets", "note"))
        self.assertEqual(output[0]["input"], "Seen.")
        choice = {"type": "function", "namespace": "mcp__tickets", "name": "find"}
        answer = self.server.post("/v1/responses", **{**CODEX, "input": TURN, "tool_choice": choice})
        self.assertEqual(answer["output"][0]["name"], "find")

    def test_a_long_history_is_the_same_prompt(self):
        items, chat = list(TURN), [
            {"role": "system", "content": CODEX["instructions"]},
            {"role": "system", "content": "Sandbox: read only."},
            {"role": "user", "content": "cwd: /src"},
            {"role": "user", "content": "Make x a string."},
        ]
        for i in range(20):
            patch = f"{PATCH}\n# {i}"
            items += [
                {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAA"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"Step {i}."}]},
                {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
                {"type": "custom_tool_call", "call_id": f"c{i}", "name": "apply_patch", "input": patch},
                {"type": "function_call", "call_id": f"d{i}", "namespace": "mcp__tickets", "name": "find",
                 "arguments": '{"path": "7"}'},
                {"type": "custom_tool_call_output", "call_id": f"c{i}", "output": "Done."},
                {"type": "function_call_output", "call_id": f"d{i}",
                 "output": [{"type": "input_text", "text": "Ticket"}, {"type": "input_text", "text": str(i)}]},
            ]  # fmt: skip
            chat += [
                {"role": "assistant", "content": f"Step {i}.", "tool_calls": [
                    {"type": "custom", "id": f"c{i}", "custom": {"name": "apply_patch", "input": patch}},
                    {"type": "function", "id": f"d{i}",
                     "function": {"name": "mcp__tickets__find", "arguments": '{"path": "7"}'}}]},
                {"role": "tool", "tool_call_id": f"c{i}", "content": "Done."},
                {"role": "tool", "tool_call_id": f"d{i}", "content": f"Ticket\n{i}"},
            ]  # fmt: skip
        function = {"name": "shell", "description": SHELL["description"], "parameters": SHELL["parameters"]}
        tools = [
            {"type": "function", "function": function},
            {"type": "custom", "custom": {k: APPLY[k] for k in ("name", "description", "format")}},
            {"type": "function", "function": {
                "name": "mcp__tickets__find", "description": "Finds one.", "parameters": READ}},
            {"type": "custom", "custom": {"name": "mcp__tickets__note", "description": "Adds a note."}},
        ]  # fmt: skip
        want = self.count(chat, tools)
        body = {**CODEX, "input": items}
        self.assertEqual(self.server.post("/v1/responses/input_tokens", **body)["input_tokens"], want)
        prompt = self.prompt(chat, tools)
        self.assertEqual(prompt.count("Step "), 20)
        self.assertIn("The input follows this grammar (lark):", prompt)
        self.assertNotIn('"namespace"', prompt)

    def test_files_of_text(self):
        data = base64.b64encode("def f():\n    pass\n".encode()).decode()
        for form in (data, "data:text/x-python;base64," + data):
            part = {"type": "input_file", "filename": "f.py", "file_data": form}
            asked = [{"role": "user", "content": [part, {"type": "input_text", "text": "Explain."}]}]
            got = self.server.post("/v1/responses/input_tokens", input=asked)["input_tokens"]
            text = "f.py\ndef f():\n    pass\n\nExplain."
            self.assertEqual(got, self.count([{"role": "user", "content": text}]))
        for bad in ("%PDF-1.4 x".encode(), b"\xff\xfe", b"", b"a\0b"):
            part = {"type": "input_file", "file_data": base64.b64encode(bad).decode()}
            asked = {"input": [{"role": "user", "content": [part]}]}
            self.refuses(400, "/v1/responses", asked, "input_file")
        self.refuses(400, "/v1/responses", {"input": [{"role": "user", "content": [
            {"type": "input_file", "file_data": "data:text/plain,no"}]}]}, "input_file")  # fmt: skip

    def test_what_only_a_provider_runs(self):
        only = {"input": "x", "tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]}
        self.refuses(400, "/v1/responses", only, "web_search, mcp")
        demanded = {"input": "x", "tools": CODEX["tools"], "tool_choice": {"type": "web_search"}}
        self.refuses(400, "/v1/responses", demanded, "web_search")

    @unittest.skipUnless(openai, "the package openai is not installed")
    def test_the_package_openai_reads_it(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="x")
        said = f"I edit.\n{call('apply_patch', input=PATCH)}"
        body = {k: v for k, v in CODEX.items() if k != "client_metadata"}
        kinds = []
        with client.responses.create(**body, input=TURN, stream=True, extra_body={"guided_choice": [said]}) as stream:
            for event in stream:
                kinds.append(event.type)
                last = event
        self.assertIn("response.custom_tool_call_input.delta", kinds)
        item = last.response.output[1]
        self.assertIsInstance(item, openai.types.responses.ResponseCustomToolCall)
        self.assertEqual((item.name, item.input), ("apply_patch", PATCH))
        history = [*TURN, *last.response.output,
                   {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Done."}]  # fmt: skip
        again = client.responses.create(**{**body, "model": "coder-small"}, input=history, max_output_tokens=4)
        self.assertGreater(again.usage.input_tokens_details.cached_tokens, 0)


# ---- Messages, as Claude Code speaks it ----

READ_TOOL = {"name": "Read", "description": "Reads a file.", "input_schema": READ,
             "cache_control": {"type": "ephemeral"}}  # fmt: skip
CLAUDE = {
    "model": "coder",
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "version=2; entry=cli"},
        {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "tools": [READ_TOOL, {"name": "Bash", "description": "Runs a command.", "input_schema": {
        "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}],
    "metadata": {"user_id": "u"},
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
    "temperature": 1,
}  # fmt: skip
HEADERS = {"anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking-2025-05-14", "x-app": "cli"}
ASKED = [{"role": "user", "content": [
    {"type": "text", "text": "<system-reminder>Files: a.py</system-reminder>"},
    {"type": "text", "text": "Read a.py.", "cache_control": {"type": "ephemeral"}}]}]  # fmt: skip


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class MessagesAgentTest(AgentTest):
    def tokens(self, **body):
        return self.server.post("/v1/messages/count_tokens", **{"messages": ASKED, **body})["input_tokens"]

    def test_a_turn(self):
        said = f"<think>\nHm.\n</think>\n\nI read.\n{call('Read', path='a.py')}\n{call('Bash', command='ls')}"
        body = {**CLAUDE, "messages": ASKED, "guided_choice": [said]}
        status, _, answer = self.server.ask("POST", "/v1/messages?beta=true", body, HEADERS)
        self.assertEqual((status, answer["stop_reason"]), (200, "tool_use"))
        self.assertEqual([b["type"] for b in answer["content"]], ["thinking", "text", "tool_use", "tool_use"])
        events, _ = self.named_events("/v1/messages?beta=true", body, HEADERS)
        names = [name for name, _ in events if name != "ping"]
        self.assertEqual((names[0], names[-2:]), ("message_start", ["message_delta", "message_stop"]))
        kinds = {"thinking": "thinking_delta", "text": "text_delta", "tool_use": "input_json_delta"}
        fields = {"thinking": "thinking", "text": "text", "tool_use": "partial_json"}
        blocks, is_open = [], False
        for name, data in events[1:-2]:
            if name == "content_block_start":
                self.assertFalse(is_open)
                is_open = True
                blocks.append((data["content_block"], []))
            elif name == "content_block_delta":
                kind = blocks[-1][0]["type"]
                self.assertEqual(data["delta"]["type"], kinds[kind])
                blocks[-1][1].append(data["delta"][fields[kind]])
            elif name == "content_block_stop":
                is_open = False
            self.assertEqual(data["index"], len(blocks) - 1)
        self.assertFalse(is_open)
        for (block, said), whole in zip(blocks, answer["content"], strict=True):
            text = "".join(said)
            want = whole["input"] if whole["type"] == "tool_use" else whole[fields[whole["type"]]]
            self.assertEqual(json.loads(text) if whole["type"] == "tool_use" else text, want)
            self.assertEqual(block["type"], whole["type"])
        self.assertEqual(events[-2][1]["delta"]["stop_reason"], "tool_use")

    def test_the_second_model_and_the_list(self):
        title = {"model": "coder-small", "max_tokens": 5, "messages": [{"role": "user", "content": "quota"}]}
        self.assertEqual(self.server.post("/v1/messages", **title)["type"], "message")
        names = [m["id"] for m in self.server.ask("GET", "/v1/models?limit=1000", None, HEADERS)[2]["data"]]
        self.assertEqual(names, ["coder", "coder-small"])

    def test_a_long_history_is_the_same_prompt(self):
        messages = list(ASKED)
        chat = [
            {"role": "system", "content": "version=2; entry=cli\nYou are a coding agent."},
            {"role": "user", "content": "<system-reminder>Files: a.py</system-reminder>\nRead a.py."},
        ]
        for i in range(20):
            messages += [
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": f"Thought {i}.", "signature": ""},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": f"Step {i}."},
                    {"type": "tool_use", "id": f"a{i}", "name": "Read", "input": {"path": "a.py"}},
                    {"type": "tool_use", "id": f"b{i}", "name": "Bash", "input": {"command": "ls"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": f"a{i}", "content": "x = 1"},
                    {"type": "tool_result", "tool_use_id": f"b{i}", "is_error": True,
                     "content": [{"type": "text", "text": "No."}], "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": f"Go on {i}."}]},
            ]  # fmt: skip
            chat += [
                {"role": "assistant", "content": f"Step {i}.", "reasoning_content": f"Thought {i}.", "tool_calls": [
                    {"function": {"name": "Read", "arguments": '{"path": "a.py"}'}},
                    {"function": {"name": "Bash", "arguments": '{"command": "ls"}'}}]},
                {"role": "tool", "content": "x = 1"},
                {"role": "tool", "content": "No."},
                {"role": "user", "content": f"Go on {i}."},
            ]  # fmt: skip
        tools = [{"type": "function", "function": {
            "name": t["name"], "description": t["description"], "parameters": t["input_schema"]}}
            for t in CLAUDE["tools"]]  # fmt: skip
        self.assertEqual(self.tokens(**{**CLAUDE, "messages": messages}), self.count(chat, tools))

    def test_a_system_message_in_the_middle(self):
        messages = [
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": "Two."},
            {"role": "system", "content": [{"type": "text", "text": "Only German from here on."}]},
            {"role": "user", "content": "Three."},
        ]
        chat = [*messages[:2], {"role": "system", "content": "Only German from here on."}, messages[3]]
        self.assertEqual(self.tokens(messages=messages), self.count(chat))
        self.assertIn("<|im_start|>system\nOnly German from here on.<|im_end|>", self.prompt(chat))

    def test_documents_and_results_of_searches_are_text(self):
        data = base64.b64encode(b"Inside.").decode()
        document = {"type": "document", "title": "Plan", "context": "Draft."}
        cases = (
            ({**document, "source": {"type": "text", "media_type": "text/plain", "data": "Inside."}},
             "Plan\nDraft.\nInside."),
            ({**document, "source": {"type": "content", "content": [{"type": "text", "text": "Inside."}]}},
             "Plan\nDraft.\nInside."),
            ({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": data}}, "Inside."),
            ({"type": "search_result", "source": "https://x.example", "title": "X", "content": [
                {"type": "text", "text": "Found."}]}, "X\nhttps://x.example\nFound."),
        )  # fmt: skip
        for block, text in cases:
            with self.subTest(block=block):
                messages = [{"role": "user", "content": [block, {"type": "text", "text": "Sum up."}]}]
                want = self.count([{"role": "user", "content": text + "\nSum up."}])
                self.assertEqual(self.tokens(messages=messages), want)
                use = {"type": "tool_use", "id": "a", "name": "Read", "input": {"path": "p"}}
                result = {"type": "tool_result", "tool_use_id": "a", "content": [block]}
                messages = [*ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
                self.assertGreater(self.tokens(messages=messages, tools=[READ_TOOL]), 0)

    def test_a_tool_that_a_search_found_is_named(self):
        use = {"type": "tool_use", "id": "a", "name": "ToolSearch", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "Read"}]}
        messages = [*ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        text = [*messages[:2], {"role": "user", "content": [{**result, "content": "Read"}]}]
        tools = [{"name": "ToolSearch", "input_schema": {}}, {**READ_TOOL, "defer_loading": True}]
        self.assertEqual(self.tokens(messages=messages, tools=tools), self.tokens(messages=text, tools=tools))

    def test_tools_that_the_models_of_anthropic_know(self):
        tools = [{"type": "bash_20250124", "name": "bash"},
                 {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9000},
                 {"type": "memory_20250818", "name": "memory"}]  # fmt: skip
        for tool in tools:
            choice = {"type": "tool", "name": tool["name"]}
            body = {**CLAUDE, "messages": ASKED, "tools": tools, "max_tokens": 1, "tool_choice": choice}
            self.server.post("/v1/messages", **body)
        self.assertGreater(self.tokens(tools=tools), self.tokens() + 200)  # they are told
        said = call("bash", command="ls", restart=False)
        answer = self.server.post("/v1/messages", **{**CLAUDE, "messages": ASKED, "tools": tools, "guided_choice": [said]})
        self.assertEqual(answer["content"][0]["input"], {"command": "ls", "restart": False})

    def test_what_only_a_provider_runs(self):
        search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
        body = {**CLAUDE, "messages": ASKED, "max_tokens": 3}
        with_others = {**body, "tools": [*CLAUDE["tools"], search]}
        status, headers, _ = self.server.ask("POST", "/v1/messages", with_others, HEADERS)
        self.assertEqual((status, headers["x-swiftkv-left-out"]), (200, "web_search_20250305"))
        _, headers = self.named_events("/v1/messages", with_others, HEADERS)
        self.assertEqual(headers["x-swiftkv-left-out"], "web_search_20250305")
        self.assertEqual(self.tokens(**with_others), self.tokens(**body))
        _, headers, _ = self.server.ask("POST", "/v1/messages", body, HEADERS)
        self.assertIsNone(headers["x-swiftkv-left-out"])
        # A request of its own for a search: an answer without one would mislead.
        for refused in ({**body, "tools": [search]},
                        {**with_others, "tool_choice": {"type": "tool", "name": "web_search"}}):  # fmt: skip
            status, _, answer = self.server.ask("POST", "/v1/messages", refused, HEADERS)
            self.assertEqual((status, answer["error"]["type"]), (400, "invalid_request_error"))
            self.assertIn("web_search", answer["error"]["message"])

    @unittest.skipUnless(anthropic, "the package anthropic is not installed")
    def test_the_package_anthropic_reads_it(self):
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.server.port}", api_key="x")
        said = f"<think>\nHm.\n</think>\n\nI read.\n{call('Read', path='a.py')}"
        body = {k: v for k, v in CLAUDE.items() if k not in ("context_management", "temperature", "max_tokens")}
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        with client.messages.stream(
            **body, max_tokens=4000, messages=ASKED, extra_body={"guided_choice": [said]}
        ) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertEqual([b.type for b in final.content], ["thinking", "text", "tool_use"])
        self.assertLess(kinds.index("thinking"), kinds.index("text"))
        self.assertLess(kinds.index("text"), kinds.index("input_json"))
        result = {"type": "tool_result", "tool_use_id": final.content[2].id, "content": "x = 1"}
        history = [*ASKED, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
        again = client.messages.create(**{**body, "model": "coder-small"}, max_tokens=1025, messages=history,
                                       extra_body={"guided_choice": ["Done."]})  # fmt: skip
        self.assertEqual(again.content[-1].text, "Done.")
        self.assertGreater(again.usage.cache_read_input_tokens, 0)


class FoldedSystemTest(AgentTest):
    """A template that refuses system messages, or leaves out those that are not the first."""

    def check(self, name, *words):
        if not (TEMPLATES / name).exists():
            self.skipTest(name + " is absent")
        chat = [{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."},
                {"role": "system", "content": "Only German now."}, {"role": "user", "content": "Three."}]  # fmt: skip
        return self.server.post("/apply-template", messages=chat)["prompt"]


def folded(name):
    @unittest.skipUnless(STORIES.exists() and (TEMPLATES / name).exists(), "../shared/assets is absent")
    class Test(FoldedSystemTest):
        words = ("--ctx", 1024, "--template", TEMPLATES / name)

        def test_the_text_is_in_the_prompt(self):
            prompt = self.check(name)
            for text in ("One.", "Two.", "Only German now.", "Three."):
                self.assertEqual(prompt.count(text), 1, prompt)
            self.assertLess(prompt.index("Two."), prompt.index("Only German now."))
            self.assertLess(prompt.index("Only German now."), prompt.index("Three."))

    Test.__name__ = Test.__qualname__ = "Folded_" + "".join(c if c.isalnum() else "_" for c in name.split(".jinja")[0])
    return Test


for template in ("google-gemma-2-2b-it.jinja", "mistralai-Mistral-Nemo-Instruct-2407.jinja",
                 "meta-llama-Llama-3.2-3B-Instruct.jinja", "ibm-granite-granite-3.3-2B-Instruct.jinja"):  # fmt: skip
    case = folded(template)
    globals()[case.__name__] = case
del case


# ---- chats, as the others speak them ----


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class DeveloperTest(unittest.TestCase):
    """Codex has instructions and a message of the developer: a template that writes one of them alone, or knows no such role,
    gets one system message."""

    def test_both_are_in_the_prompt(self):
        names = ("openai-gpt-oss-120b", "Apertus-8B-Instruct", "Qwen-Qwen3-0.6B", "google-gemma-2-2b-it",
                 "deepseek-ai-DeepSeek-R1-Distill-Llama-8B")  # fmt: skip
        for path in [TEMPLATES / f"{name}.jinja" for name in names]:
            if not path.exists():
                continue
            server = Server(STORIES, "--ctx", 2048, "--template", path)
            self.addCleanup(server.stop)
            for role in ("developer", "system"):
                messages = [{"role": "system", "content": "SKVFIRST"}, {"role": role, "content": "SKVSECOND"},
                            {"role": "user", "content": "SKVUSER"}]  # fmt: skip
                prompt = server.post("/apply-template", messages=messages)["prompt"]
                with self.subTest(template=path.stem, role=role, prompt=prompt):
                    at = [prompt.index(word) for word in ("SKVFIRST", "SKVSECOND", "SKVUSER")]
                    self.assertEqual(at, sorted(at))
                    if path.stem in ("openai-gpt-oss-120b", "Apertus-8B-Instruct"):
                        self.assertIn("<", prompt[at[1] : at[2]], "the second one became the user's")


class ChatAgentTest(AgentTest):
    read_tool = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": READ}}

    def test_a_turn_of_tools(self):
        """OpenCode, Cline and Qwen Code: parts, a large fixed length, usage in the stream, null content."""
        messages = [
            {"role": "system", "content": [{"type": "text", "text": "You are a coding agent.",
                                            "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": [{"type": "text", "text": "Read a.py."}, {"type": "text", "text": "cwd: /"}]},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [
                {"id": "c1", "type": "function", "index": 0,
                 "function": {"name": "read", "arguments": '{"path": "a.py"}'}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x = 1"}]},
        ]  # fmt: skip
        said = f"<think>\nHm.\n</think>\n\nAgain.\n{call('read', path='b.py')}"
        body = {"model": "coder", "messages": messages, "tools": [self.read_tool], "tool_choice": "auto",
                "max_tokens": 32000, "stream_options": {"include_usage": True}, "metadata": {"sessionId": "1"},
                "guided_choice": [said]}  # fmt: skip
        chunks = self.server.chunks("/v1/chat/completions", **body)
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"] > 0), ([], True))
        deltas = [c["choices"][0]["delta"] for c in chunks[1:-1]]
        order = [next(iter(d)) for d in deltas if d]
        self.assertEqual(sorted(set(order), key=order.index), ["reasoning_content", "content", "tool_calls"])
        calls = [c for d in deltas for c in d.get("tool_calls", ())]
        self.assertEqual((calls[0]["type"], calls[0]["function"]["name"]), ("function", "read"))
        self.assertTrue(calls[0]["id"])
        self.assertEqual(json.loads("".join(c["function"]["arguments"] for c in calls)), {"path": "b.py"})
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "tool_calls")

    def test_a_custom_tool(self):
        tools = [self.read_tool, {"type": "custom", "custom": {"name": "apply_patch", "description": "Edits."}}]
        body = {"messages": [{"role": "user", "content": "Edit."}], "tools": tools,
                "guided_choice": [call("apply_patch", input=PATCH)]}  # fmt: skip
        answer = self.server.post("/v1/chat/completions", **body)
        (made,) = answer["choices"][0]["message"]["tool_calls"]
        self.assertEqual(made, {"id": made["id"], "type": "custom", "custom": {"name": "apply_patch", "input": PATCH}})
        calls = [c for chunk in self.server.chunks("/v1/chat/completions", **body)
                 for c in chunk["choices"][0]["delta"].get("tool_calls", ())]  # fmt: skip
        self.assertEqual((calls[0]["type"], calls[0]["custom"]["name"]), ("custom", "apply_patch"))
        self.assertEqual("".join(c["custom"]["input"] for c in calls), PATCH)
        self.refuses(400, "/v1/chat/completions", {**body, "tools": [{"type": "custom", "custom": {}}]}, "name")
        status, _, answer = self.server.ask("POST", "/api/chat", {**body, "model": "coder"})
        self.assertEqual(status, 400)
        self.assertIn("custom", answer["error"])
        if openai:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="x")
            choice = {"type": "custom", "custom": {"name": "apply_patch"}}
            read = client.chat.completions.create(
                model="coder", messages=body["messages"], tools=tools, tool_choice=choice, max_tokens=300,
                temperature=0)  # fmt: skip
            for one in read.choices[0].message.tool_calls or ():
                self.assertEqual((one.type, one.custom.name), ("custom", "apply_patch"))

    def test_sampling_that_is_not_served_is_refused_everywhere(self):
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        fields = {"dry_multiplier": (0.8, 0), "xtc_probability": (0.5, 0), "typical_p": (0.5, 1), "mirostat": (2, 0),
                  "top_n_sigma": (2, -1), "dynatemp_range": (1, 0), "samplers": (["top_k"], None)}  # fmt: skip
        for field, (value, neutral) in fields.items():
            for path, body in (
                ("/v1/chat/completions", chat), ("/v1/completions", {"prompt": "x", "max_tokens": 1}),
                ("/completion", {"prompt": "x", "n_predict": 1}), ("/v1/messages", chat),
                ("/v1/responses", {"input": "x", "max_output_tokens": 1}), ("/api/chat", {**chat, "model": "coder"}),
                ("/api/generate", {"prompt": "x", "model": "coder"}),
            ):  # fmt: skip
                with self.subTest(path=path, field=field):
                    ollama = path.startswith("/api/")
                    for v, want in ((value, 400), (neutral, 200)):
                        more = {"options": {field: v, "num_predict": 1}, "stream": False} if ollama else {field: v}
                        status, _, answer = self.server.ask("POST", path, {**body, **more})
                        self.assertEqual(status, want, answer)
                        if want == 400:
                            self.assertIn(field, str(answer["error"]))
        for option in ("--dry-multiplier", "--xtc-probability", "--typical", "--mirostat"):
            with self.assertRaises(RuntimeError) as caught:
                Server(STORIES, option, "1")
            self.assertIn(option, str(caught.exception))

    def test_without_tools(self):
        """Aider and Continue: edits as text, a beginning that the answer goes on with."""
        messages = [{"role": "system", "content": "Answer with whole files."}, {"role": "user", "content": "Make a.py."},
                    {"role": "assistant", "content": "a.py\n", "prefix": True}]  # fmt: skip
        body = {"model": "coder-small", "messages": messages, "temperature": 0, "max_tokens": 8, "stream": False}
        self.assertEqual(self.server.post("/v1/chat/completions", **body)["usage"]["completion_tokens"], 8)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
