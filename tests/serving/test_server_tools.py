#!/usr/bin/env python3
"""`swiftkv serve` calls functions: chats with tools, by hand and through the package openai.

The model is tiny and says random things, so calls are forced by tool_choice, or an answer is made
to be a given text (guided_choice) where it is read without force. What needs the package skips
without it: pip install -r tests/clients/requirements.txt.
"""

import json
import os
import shutil
import sys
import tempfile
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, ROOT, STORIES, TEMPLATES, Server, ServerTest  # noqa: E402

try:
    import openai
except ImportError:
    openai = None

NAMES = {
    "qwen3": "Qwen-Qwen3-0.6B",
    "qwen2.5": "Qwen-Qwen2.5-7B-Instruct",
    "hermes": "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "llama3": "meta-llama-Llama-3.1-8B-Instruct",
}
COLOR = {
    "type": "function",
    "function": {
        "name": "set_color",
        "description": "Sets the colour.",
        "parameters": {
            "type": "object",
            "properties": {
                "color": {"type": "string", "enum": ["red", "green"], "description": "which"},
                "level": {"type": "integer", "minimum": 1, "maximum": 9, "description": "much"},
            },
            "required": ["color", "level"],
            "additionalProperties": False,
        },
    },
}
STOP = {"type": "function", "function": {"name": "stop", "description": "Stops."}}
HELLO = [{"role": "user", "content": "Make it red."}]


def call_text(style, name, arguments):
    key = "parameters" if style == "llama3" else "arguments"
    body = json.dumps({"name": name, key: arguments})
    return body if style == "llama3" else f"<tool_call>\n{body}\n</tool_call>"


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class ToolsTest(ServerTest):
    model, style = STORIES, "qwen3"

    @classmethod
    def setUpClass(cls):
        template = TEMPLATES / f"{NAMES[cls.style]}.jinja"
        cls.words = ("--ctx", 4096, "--template", template)
        super().setUpClass()

    def chat(self, **body):
        body = {"messages": HELLO, "tools": [COLOR, STOP], "temperature": 1, **body}
        return self.server.post("/v1/chat/completions", **body)

    def chat_chunks(self, **body):
        body = {"messages": HELLO, "tools": [COLOR, STOP], "temperature": 1, **body}
        return self.server.chunks("/v1/chat/completions", **body)

    def joined(self, chunks):
        """The message that the deltas of a stream make."""
        message = {"content": "", "reasoning_content": "", "tool_calls": []}
        for chunk in chunks:
            for choice in chunk["choices"]:
                delta = choice["delta"]
                for key in ("content", "reasoning_content"):
                    message[key] += delta.get(key) or ""
                for call in delta.get("tool_calls", []):
                    if call["index"] == len(message["tool_calls"]):
                        self.assertEqual(call["type"], "function")
                        message["tool_calls"].append({"id": call["id"], "arguments": ""})
                        message["tool_calls"][-1]["name"] = call["function"]["name"]
                    else:
                        self.assertNotIn("id", call)
                    one = message["tool_calls"][call["index"]]
                    one["arguments"] += call["function"]["arguments"]
        return message, chunks[-1]["choices"][0]["finish_reason"]

    def check_color(self, arguments):
        arguments = json.loads(arguments)
        self.assertEqual(set(arguments), {"color", "level"})
        self.assertIn(arguments["color"], ("red", "green"))
        self.assertIn(arguments["level"], range(1, 10))

    def test_named(self):
        choice = {"type": "function", "function": {"name": "set_color"}}
        for seed in range(3):
            answer = self.chat(tool_choice=choice, seed=seed)["choices"][0]
            self.assertEqual(answer["finish_reason"], "tool_calls")
            message = answer["message"]
            self.assertIsNone(message["content"])
            self.assertNotIn("reasoning_content", message)
            self.assertEqual(len(message["tool_calls"]), 1)
            call = message["tool_calls"][0]
            self.assertEqual(call["type"], "function")
            self.assertTrue(call["id"].startswith("call_"))
            self.assertEqual(call["function"]["name"], "set_color")
            self.check_color(call["function"]["arguments"])

    def test_required_and_streams(self):
        for seed in range(4):
            body = {"tool_choice": "required", "parallel_tool_calls": False, "seed": seed}
            whole = self.chat(**body)["choices"][0]["message"]["tool_calls"]
            self.assertEqual(len(whole), 1)
            chunks = self.chat_chunks(**body)
            self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
            message, finish = self.joined(chunks)
            self.assertEqual(finish, "tool_calls")
            self.assertEqual(message["content"], "")
            got = [(c["name"], c["arguments"]) for c in message["tool_calls"]]
            want = [(c["function"]["name"], c["function"]["arguments"]) for c in whole]
            self.assertEqual(got, want)
            self.assertIn(got[0][0], ("set_color", "stop"))
            if got[0][0] == "set_color":
                self.check_color(got[0][1])
            else:
                self.assertEqual(json.loads(got[0][1]), {})

    def test_several(self):
        answer = self.chat(tool_choice="required", seed=1, n=4)
        for choice in answer["choices"]:
            calls = choice["message"]["tool_calls"]
            self.assertLessEqual(len(calls), 1 if self.style == "llama3" else 16)
            self.assertEqual(len({c["id"] for c in calls}), len(calls))

    def test_answers_that_call_by_themselves(self):
        call = call_text(self.style, "set_color", {"color": "red", "level": 3})
        before = "" if self.style == "llama3" else "I see.\n"
        for text, content, calls in (
            (before + call, before.strip() or None, 1),
            ("Just text {", "Just text {", 0),
            (call.replace("set_color", "other"), call.replace("set_color", "other"), 0),
        ):
            with self.subTest(text=text):
                body = {"guided_choice": [text], "temperature": 0}
                choice = self.chat(**body)["choices"][0]
                message = choice["message"]
                self.assertEqual(message["content"], content)
                self.assertEqual(len(message.get("tool_calls", [])), calls)
                self.assertEqual(choice["finish_reason"], "tool_calls" if calls else "stop")
                streamed, finish = self.joined(self.chat_chunks(**body))
                self.assertEqual(streamed["content"], content or "")
                self.assertEqual(len(streamed["tool_calls"]), calls)
                self.assertEqual(finish, choice["finish_reason"])
                none = self.chat(tool_choice="none", **body)["choices"][0]
                self.assertEqual(none["message"]["content"], text)
                self.assertEqual(none["finish_reason"], "stop")

    def test_strict_without_force(self):
        strict = {"type": "function", "function": {**COLOR["function"], "strict": True}}
        answer = self.chat(tools=[strict, STOP], max_tokens=20, seed=4)["choices"][0]
        self.assertEqual(answer["finish_reason"], "length")
        self.assertTrue(answer["message"]["content"])
        odd = {"name": "x", "strict": True, "parameters": {"type": "object", "minProperties": 9}}
        for strict, status in ((True, 400), (False, 200)):
            tool = {"type": "function", "function": {**odd, "description": "x", "strict": strict}}
            body = {"messages": HELLO, "tools": [tool], "max_tokens": 1}
            got, _, answer = self.server.ask("POST", "/v1/chat/completions", body)
            self.assertEqual(got, status, answer)

    def test_cut_off_call(self):
        named = {"type": "function", "function": {"name": "set_color"}}
        answer = self.chat(tool_choice=named, max_tokens=3)["choices"][0]
        self.assertEqual(answer["finish_reason"], "length")

    def test_history(self):
        calls = [
            {"id": "call_1", "type": "function", "function": {
                "name": "set_color", "arguments": '{"color": "red", "level": 3}'}},
        ]  # fmt: skip
        messages = [
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Done."}]},
            {"role": "user", "content": "Thanks."},
            {"role": "assistant", "content": "Sure.", "tool_calls": []},
            {"role": "user", "content": "Bye."},
        ]
        text = self.server.post("/apply-template", messages=messages, tools=[COLOR])["prompt"]
        call = call_text(self.style, "set_color", {"color": "red", "level": 3})
        for part in (call, "Done.", "Sure.", "Sets the colour."):
            self.assertIn(part, text)
        without = self.server.post("/apply-template", messages=messages, tools=[COLOR], tool_choice="none")
        self.assertNotIn("Sets the colour.", without["prompt"])

    def test_refused_by_name(self):
        tools = [COLOR, STOP]
        for field, body, *parts in (
            ("tools", {"tools": 3}),
            ("tools", {"tools": [{"type": "function"}]}, "name"),
            ("tools", {"tools": [{"type": "web_search"}]}, "web_search"),
            ("tools", {"tools": [COLOR, COLOR]}, "set_color"),
            ("tools", {"tools": [COLOR] * 129}, "129"),
            ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            ("tools", {"tools": [{"type": "function", "function": {"name": "x", "parameters": 1}}]}),
            ("tool_choice", {"tools": tools, "tool_choice": "sometimes"}),
            ("tool_choice", {"tool_choice": "required"}, "no tools"),
            ("tool_choice", {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "x"),
            ("tool_choice", {"tools": tools, "tool_choice": {"type": "allowed_tools"}}),
            ("tool_choice", {"tools": tools, "tool_choice": "required", "response_format": {"type": "json_object"}}),
            ("parallel_tool_calls", {"tools": tools, "parallel_tool_calls": 1}),
            ("functions", {"functions": [{"name": "x"}]}, "tools"),
            ("messages", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "name"),
            ("messages", {"messages": [{"role": "assistant", "tool_calls": 3}]}),
        ):
            with self.subTest(body=body):
                body = {"messages": HELLO, **body}
                error = self.refuses(400, "/v1/chat/completions", body, *parts)
                self.assertEqual(error["param"], field)
        odd = {"type": "function", "function": {"name": "x", "parameters": {"type": "object", "minProperties": 9}}}
        odd["function"]["strict"] = True
        body = {"messages": HELLO, "tools": [odd], "tool_choice": "required"}
        self.refuses(400, "/v1/chat/completions", body, "minProperties")

    def test_what_a_grammar_cannot_follow(self):
        """It is left out of the grammar of a function that is not strict; what can be followed is."""
        parameters = {"type": "object", "required": ["n", "kind", "code", "far", "when"], "additionalProperties": False, "properties": {
            "n": {"type": "integer", "not": {"const": 6}, "minimum": 5, "maximum": 7}, "kind": {"enum": ["a", "b"], "minLength": 1},
            "code": {"type": "string", "pattern": "^[a-c]{2}$", "maxLength": 9}, "far": {"$ref": "https://example.com/schema.json"},
            "when": {"type": "string", "format": "iri"}}, "if": {"required": ["n"]}, "uniqueItems": True, "not": {"type": "array"}}
        tool = {"type": "function", "function": {"name": "odd", "parameters": parameters}}
        body = {"messages": HELLO, "tools": [tool], "tool_choice": "required", "max_tokens": 300, "seed": 3}
        call = self.server.post("/v1/chat/completions", **body)["choices"][0]["message"]["tool_calls"][0]["function"]
        given = json.loads(call["arguments"])
        self.assertEqual(list(given), ["n", "kind", "code", "far", "when"])
        self.assertIn(given["n"], (5, 6, 7))
        self.assertIn(given["kind"], ("a", "b"))
        self.assertRegex(given["code"], "^[a-c]{2}$")
        self.assertIsInstance(given["when"], str)
        tool["function"]["strict"] = True
        self.refuses(400, "/v1/chat/completions", body, "is not supported")

    @unittest.skipUnless(openai, "the package openai is not installed")
    def test_client(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="x")
        choice = {"type": "function", "function": {"name": "set_color"}}
        body = {"model": STORIES.stem, "messages": HELLO, "tools": [COLOR], "tool_choice": choice}
        answer = client.chat.completions.create(**body, seed=2)
        call = answer.choices[0].message.tool_calls[0]
        self.check_color(call.function.arguments)
        with client.chat.completions.stream(**body, seed=2) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion().choices[0]
        self.assertEqual(final.finish_reason, "tool_calls")
        self.assertEqual(final.message.tool_calls[0].function.arguments, call.function.arguments)
        # The answer goes back as the client holds it.
        messages = [*HELLO, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "ok"}]
        again = client.chat.completions.create(model=STORIES.stem, messages=messages, tools=[COLOR], max_tokens=5)
        self.assertEqual(again.usage.completion_tokens, 5)


class Qwen25Test(ToolsTest):
    style = "qwen2.5"


class HermesTest(ToolsTest):
    style = "hermes"


class Llama3Test(ToolsTest):
    style = "llama3"


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class ReasoningTest(ServerTest):
    """Thoughts come apart where the template has them."""

    model = STORIES
    words = ("--ctx", 4096, "--template", TEMPLATES / "Qwen-Qwen3-0.6B.jinja")

    def test_thoughts(self):
        text = "<think>\nRed it is.\n</think>\n\nDone."
        body = {"messages": HELLO, "temperature": 0, "guided_choice": [text]}
        message = self.server.post("/v1/chat/completions", **body)["choices"][0]["message"]
        self.assertEqual(message["content"], "Done.")
        self.assertEqual(message["reasoning_content"], "Red it is.")
        deltas = [c["choices"][0]["delta"] for c in self.server.chunks("/v1/chat/completions", **body)]
        for key, want in message.items():
            if key != "refusal":
                self.assertEqual("".join(d.get(key) or "" for d in deltas), want)


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class OpenedThoughtTest(ServerTest):
    """The prompt ends with <think>."""

    model = STORIES
    template = TEMPLATES / "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja"
    words = ("--ctx", 4096, "--template", template, "--tool-format", "hermes")

    def test_all_is_thought(self):
        thinks = {"chat_template_kwargs": {"enable_thinking": True}}
        body = {"messages": HELLO, "max_tokens": 8, "temperature": 0, **thinks}
        message = self.server.post("/v1/chat/completions", **body)["choices"][0]["message"]
        self.assertEqual(message["content"], "")
        self.assertTrue(message["reasoning_content"])
        # What the answer has to follow waits for the thought's end.
        named = {"type": "function", "function": {"name": "stop"}}
        for more in ({"guided_choice": ["a"]}, {"tools": [STOP], "tool_choice": named}):
            message = self.server.post("/v1/chat/completions", **body, **more)["choices"][0]["message"]
            self.assertEqual(message["content"] or "", "")
            self.assertTrue(message["reasoning_content"])
            self.assertNotIn("tool_calls", message)


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class SpecialMarkTest(unittest.TestCase):
    """Some tokenizers of Hermes models have <tool_call> as a special token."""

    def test_the_mark_is_seen_and_demanded(self):
        source = STORIES.parent.parent / "tinystories-656k"
        with tempfile.TemporaryDirectory() as folder:
            for path in source.iterdir():
                shutil.copyfile(path, Path(folder) / path.name)
            tokenizer = json.loads((source / "tokenizer.json").read_text())
            model = tokenizer["model"]
            # The last tokens become the mark and what JSON needs and this vocabulary cannot spell.
            new = ["<tool_call>", *(c for c in '{}[]_/:,"' if c not in model["vocab"])]
            texts = {i: text for text, i in model["vocab"].items()}
            old = {texts[2047 - i] for i in range(len(new))}
            for i, text in enumerate(new):
                del model["vocab"][texts[2047 - i]]
                model["vocab"][text] = 2047 - i
            merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
            model["merges"] = [m for m, (x, y) in zip(model["merges"], merges) if not {x, y, x + y} & old]
            mark = dict(tokenizer["added_tokens"][0], id=2047, content="<tool_call>", normalized=False)
            tokenizer["added_tokens"].append(mark)
            (Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
            server = Server(folder, "--ctx", 2048, "--template", TEMPLATES / f"{NAMES['hermes']}.jinja")
            self.addCleanup(server.stop)
            body = {"messages": HELLO, "tools": [COLOR], "logit_bias": {"2047": 100}, "max_tokens": 2}
            answer = server.post("/v1/chat/completions", **body)
            self.assertIn("<tool_call>", answer["choices"][0]["message"]["content"])
            # A demanded call begins with that token, not with its letters.
            body = {"messages": HELLO, "tools": [COLOR], "temperature": 0, "logprobs": True, "max_tokens": 200}
            for more in ({"tool_choice": "required", "parallel_tool_calls": False},
                         {"tools": [{**COLOR, "function": {**COLOR["function"], "strict": True}}],
                          "logit_bias": {"2047": 50}, "parallel_tool_calls": False}):  # fmt: skip
                choice = server.post("/v1/chat/completions", **{**body, **more})["choices"][0]
                tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
                self.assertEqual(tokens.count("<tool_call>"), 1, tokens)
                self.assertEqual([c["function"]["name"] for c in choice["message"]["tool_calls"]], ["set_color"])


@unittest.skipUnless(STORIES.exists(), "../shared/assets is absent")
class Gemma4Test(ServerTest):
    """Turns, thoughts and calls as Gemma 4 writes them, with thinking on and off."""

    model = STORIES
    words = ("--ctx", 4096, "--template", ROOT / "tests/data/templates/gemma4.jinja")
    THINKS = {"chat_template_kwargs": {"enable_thinking": True}}

    def message(self, **body):
        body = {"messages": HELLO, "temperature": 0, **body}
        return self.server.post("/v1/chat/completions", **body)["choices"][0]["message"]

    def test_prompts(self):
        prompts = [self.server.post("/apply-template", messages=HELLO, tools=[COLOR], **more)["prompt"]
                   for more in ({}, self.THINKS)]
        self.assertTrue(prompts[0].endswith("<|turn>model\n<|channel>thought\n<channel|>"), prompts[0])
        self.assertTrue(prompts[1].endswith("<|turn>model\n"), prompts[1])
        self.assertEqual(["<|think|>" in prompt for prompt in prompts], [False, True])
        self.assertIn("<|tool>declaration:set_color{", prompts[0])

    def test_answers(self):
        thought, call = "<|channel>thought\nRed it is.\n<channel|>", '<|tool_call>call:set_color{color:<|"|>red<|"|>}<tool_call|>'
        said = self.message(guided_choice=[thought + "Done."], **self.THINKS)
        self.assertEqual((said["reasoning_content"], said["content"]), ("Red it is.", "Done."))
        said = self.message(guided_choice=["Done."])
        self.assertEqual((said.get("reasoning_content"), said["content"]), (None, "Done."))
        for more, text in ((self.THINKS, thought + call), ({}, call)):
            said = self.message(guided_choice=[text], tools=[COLOR], **more)
            self.assertEqual(said.get("reasoning_content"), "Red it is." if more else None)
            self.assertEqual(json.loads(said["tool_calls"][0]["function"]["arguments"]), {"color": "red"})

    def test_calls_are_enforced(self):
        for more in ({}, self.THINKS):
            (call,) = self.message(tools=[COLOR], tool_choice="required", max_tokens=200, parallel_tool_calls=False,
                                   **more)["tool_calls"]
            self.assertIn(json.loads(call["function"]["arguments"])["color"], ("red", "green"))


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class XmlTest(ServerTest):
    """Parameters come as XML and leave as JSON of the schema's types."""

    model = STORIES
    words = ("--ctx", 4096, "--template", TEMPLATES / "Qwen3-Coder.jinja")

    def test_types(self):
        properties = {
            "color": {"type": "string", "enum": ["red", "3"]},
            "size": {"type": "string", "const": "7"},
            "n": {"type": "integer", "minimum": 1, "maximum": 9},
        }
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        paint = {"type": "function", "function": {"name": "paint", "parameters": schema}}
        body = {"messages": HELLO, "tools": [paint], "max_tokens": 200, "parallel_tool_calls": False}
        answer = self.server.post("/v1/chat/completions", **body, tool_choice="required")
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        self.assertIn(arguments["color"], ("red", "3"))
        self.assertEqual(arguments["size"], "7")
        self.assertIsInstance(arguments["n"], int)


@unittest.skipUnless(STORIES.exists(), "../shared/assets is absent")
class LongListsTest(ServerTest):
    """Lists of values that are read once for a request, to their ends."""

    model = STORIES

    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        cls.file.write("{% for m in messages %}{{ m.content }}{% endfor %}{{ 'T' if tools }}")
        cls.file.flush()
        cls.words = ("--ctx", 512, "--template", cls.file.name, "--tool-format", "qwen3-coder")
        super().setUpClass()

    def ask(self, schema, value):
        call = f"<tool_call>\\n<function=f>\\n<parameter=a>\\n{value}\\n</parameter>\\n</function>\\n</tool_call>"
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        body = {"messages": HELLO, "tools": [tool], "grammar": f'root ::= "{call}"', "max_tokens": 400}
        return self.server.ask("POST", "/v1/chat/completions", body)

    def test_types(self):
        for last, want in (("a", "17"), (0, 17)):
            values = [*map(str, range(20000)), last] if last == "a" else [*range(20000), last]
            schema = {"type": "object", "properties": {"a": {"enum": values}}}
            status, _, answer = self.ask(schema, "17")
            self.assertEqual(status, 200, answer)
            (call,) = answer["choices"][0]["message"]["tool_calls"]
            self.assertEqual(json.loads(call["function"]["arguments"]), {"a": want})

    def test_work(self):
        properties = {f"a{i}": {"$ref": "#/$defs/all"} for i in range(200)}
        schema = {"type": "object", "properties": properties, "$defs": {"all": {"enum": ["1"] * 300000}}}
        status, _, answer = self.ask(schema, "1")
        self.assertEqual((status, answer["error"]["param"]), (400, "tools"), answer)
        self.assertIn("units of work", answer["error"]["message"])


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class UnknownFormatTest(ServerTest):
    """A template that knows neither tools nor system messages."""

    model = STORIES
    words = ("--ctx", 4096, "--template", TEMPLATES / "google-gemma-2-2b-it.jinja")

    def prompt(self, **body):
        return self.server.post("/apply-template", **body)["prompt"]

    def test_a_system_text_asks(self):
        self.assertTrue(any("tools: the chat template" in line for line in self.server.lines))
        prompt = self.prompt(messages=HELLO, tools=[COLOR])
        self.assertIn("<tool_call>", prompt)
        self.assertIn(COLOR["function"]["name"], prompt)
        none = self.prompt(messages=HELLO, tools=[COLOR], tool_choice="none")
        self.assertEqual(none, self.prompt(messages=HELLO))

    def test_calls_are_enforced(self):
        body = {"messages": HELLO, "tools": [STOP], "max_tokens": 200, "temperature": 0}
        answer = self.server.post("/v1/chat/completions", **body, tool_choice="required")
        (call,) = answer["choices"][0]["message"]["tool_calls"][:1]
        self.assertEqual(call["function"]["name"], "stop")
        json.loads(call["function"]["arguments"])
        self.server.post("/v1/chat/completions", **body | {"max_tokens": 4})

    def test_history(self):
        call = {"id": "a", "type": "function", "function": {"name": "stop", "arguments": '{"n": 1}'}}
        history = HELLO + [
            {"role": "assistant", "content": None, "tool_calls": [call, call]},
            {"role": "tool", "tool_call_id": "a", "content": "first"},
            {"role": "tool", "tool_call_id": "a", "content": "second"},
        ]
        prompt = self.prompt(messages=history, tools=[STOP])
        self.assertEqual(prompt.count("<tool_response>\n"), 2)
        self.assertEqual(prompt.count("<tool_call>\n{"), 3)
        self.assertLess(prompt.index("first"), prompt.index("second"))


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    if not openai and "SKV_TEST_STRICT" in os.environ:
        print("the package openai is not installed")
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
