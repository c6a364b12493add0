#!/usr/bin/env python3
"""`swiftkv serve` speaks Ollama's interface: by hand and through the package ollama.

What needs the package skips without it: pip install -r tests/clients/requirements.txt.
"""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PLAIN, ROOT, STORIES, TEMPLATES, ServerTest, prompt_of  # noqa: E402

try:
    import ollama
except ImportError:
    ollama = None

MINI = ROOT / "models/mini/base"
GREEDY = {"temperature": 0, "num_predict": 8}
HELLO = [{"role": "user", "content": "Tell me"}]
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>'


class OllamaTest(ServerTest):
    def lines(self, path, **body):
        """The objects of a stream, which is what a request gets that does not say."""
        status, headers, text = self.server.ask("POST", path, body)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/x-ndjson"), text)
        out = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([line["done"] for line in out], [False] * (len(out) - 1) + [True])
        return out

    def once(self, path, **body):
        return self.server.post(path, stream=False, **body)

    def fails(self, status, path, body, *parts):
        got, _, answer = self.server.ask("POST", path, body)
        self.assertEqual((got, set(answer)), (status, {"error"}), answer)
        for part in parts:
            self.assertIn(part, answer["error"])


class ModelTest(OllamaTest):
    model = MINI
    words = ("--name", "mini,org/other")

    def test_models(self):
        for path, names in (("/api/tags", ["mini", "org/other"]), ("/api/ps", ["mini"])):
            status, _, answer = self.server.ask("GET", path)
            self.assertEqual((status, [m["name"] for m in answer["models"]]), (200, names))
            self.assertEqual(answer["models"][0]["details"]["parameter_size"], "6.35M")
        shown = self.server.post("/api/show", model="mini")
        self.assertEqual(shown["model_info"]["general.architecture"], "llama")
        self.assertEqual(shown["model_info"]["general.parameter_count"], 6352320)
        self.assertIn("completion", shown["capabilities"])
        self.assertIn("<|end|>", shown["template"])
        self.fails(404, "/api/show", {"model": "nobody"}, "nobody")
        self.assertRegex(self.server.ask("GET", "/api/version")[2]["version"], r"^\d+\.\d+\.\d+$")

    def test_a_chat_is_openais_chat(self):
        ours = self.server.post("/v1/chat/completions", messages=HELLO, temperature=0, max_tokens=8)
        whole = self.once("/api/chat", model="mini:latest", messages=HELLO, options=GREEDY)
        self.assertEqual(whole["message"]["content"], ours["choices"][0]["message"]["content"])
        self.assertEqual((whole["done_reason"], whole["eval_count"]), ("length", 8))
        self.assertEqual(whole["prompt_eval_count"], ours["usage"]["prompt_tokens"])
        self.assertGreater(whole["total_duration"], whole["eval_duration"])
        lines = self.lines("/api/chat", model="mini", messages=HELLO, options=GREEDY)
        self.assertGreater(len(lines), 3)
        self.assertEqual("".join(line["message"]["content"] for line in lines),
                         whole["message"]["content"])
        self.assertEqual(lines[-1]["eval_count"], 8)

    def test_prompts(self):
        chat = self.once("/api/chat", messages=[{"role": "system", "content": "Be short."}, *HELLO],
                         options=GREEDY)
        prompt = self.once("/api/generate", system="Be short.", prompt="Tell me", options=GREEDY)
        self.assertEqual(prompt["response"], chat["message"]["content"])
        text = self.server.complete(prompt="Once upon", max_tokens=8)["choices"][0]["text"]
        raw = self.once("/api/generate", prompt="Once upon", raw=True, options=GREEDY)
        self.assertEqual(raw["response"], text)
        lines = self.lines("/api/generate", prompt="Once upon", raw=True, options=GREEDY)
        self.assertEqual("".join(line["response"] for line in lines), text)

    def test_what_only_loads(self):
        for path, body in (("/api/chat", {}), ("/api/chat", {"messages": []}), ("/api/generate", {}),
                           ("/api/generate", {"prompt": "", "keep_alive": 0})):
            answer = self.server.post(path, model="mini", **body)
            self.assertEqual((answer["done"], answer["done_reason"]), (True, "load"))
        self.fails(404, "/api/chat", {"model": "nobody"}, "nobody")

    def test_options(self):
        def text(**options):
            return self.once("/api/chat", messages=HELLO, options=GREEDY | options)["message"]["content"]

        self.assertNotEqual(text(repeat_penalty=5.0), text())
        self.assertEqual(text(repeat_penalty=5.0, repeat_last_n=0), text())
        self.assertEqual(text(typical_p=1.0, mirostat=0, num_ctx=512, num_gpu=0), text())
        stopped = self.once("/api/chat", messages=HELLO, options=GREEDY | {"stop": ["9"]})
        self.assertEqual((stopped["done_reason"], "9" in stopped["message"]["content"]), ("stop", False))
        endless = self.once("/api/generate", prompt="a", raw=True, options={"num_predict": -1, "stop": [" "], "seed": 1})
        self.assertEqual(endless["done_reason"], "stop")

    def test_formats(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
                  "additionalProperties": False}
        answer = self.once("/api/chat", messages=HELLO, format=schema, options={"num_predict": 200})
        self.assertIn(json.loads(answer["message"]["content"])["a"], (1, 2))
        for format in ("", None):
            self.once("/api/chat", messages=HELLO, format=format, options=GREEDY)

    def test_vectors(self):
        ours = self.server.post("/v1/embeddings", input=["a b", "c"])["data"]
        theirs = self.server.post("/api/embed", model="mini", input=["a b", "c"])
        self.assertEqual(theirs["embeddings"], [one["embedding"] for one in ours])
        self.assertEqual(theirs["prompt_eval_count"], 5)
        self.assertEqual(self.server.post("/api/embeddings", prompt="a b")["embedding"],
                         ours[0]["embedding"])

    def test_refusals(self):
        chat = {"messages": HELLO}
        for path, body, part in (
            ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "images"),
            ("/api/chat", {"messages": [{"role": "robot", "content": "x"}]}, "robot"),
            ("/api/chat", {"messages": "x"}, "messages"),
            ("/api/chat", chat | {"options": [1]}, "options"),
            ("/api/chat", chat | {"options": {"num_predict": "x"}}, "num_predict"),
            ("/api/chat", chat | {"options": {"temperature": -1}}, "temperature"),
            ("/api/chat", chat | {"options": {"mirostat": 2}}, "mirostat"),
            ("/api/chat", chat | {"format": "xml"}, "format"),
            ("/api/chat", chat | {"think": 3}, "think"),
            ("/api/generate", {"prompt": "x", "context": [1, 2]}, "context"),
            ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "template"),
            ("/api/generate", {"prompt": 7}, "prompt"),
            ("/api/generate", "nonsense", "JSON"),
        ):
            self.fails(400, path, body, part)

    @unittest.skipUnless(ollama, "the package ollama is not installed")
    def test_their_client(self):
        client = ollama.Client(host=f"http://127.0.0.1:{self.server.port}")
        self.assertEqual([m.model for m in client.list().models], ["mini", "org/other"])
        self.assertEqual(client.show("mini").modelinfo["llama.block_count"], 12)
        self.assertEqual(client.ps().models[0].context_length, 8192)
        whole = client.chat("mini", HELLO, options=GREEDY)
        pieces = [p.message.content for p in client.chat("mini", HELLO, options=GREEDY, stream=True)]
        self.assertEqual("".join(pieces), whole.message.content)
        self.assertTrue(client.generate("mini", "Once upon", raw=True, options=GREEDY).response)
        self.assertEqual(len(client.embed("mini", ["a", "b"]).embeddings), 2)
        with self.assertRaises(ollama.ResponseError) as refused:
            client.chat("nobody", HELLO)
        self.assertEqual(refused.exception.status_code, 404)


class TruncatedTest(OllamaTest):
    model = PLAIN
    words = ("--ctx", 64)

    def test_vectors_of_long_texts(self):
        answer = self.server.post("/api/embed", input=prompt_of(100))
        self.assertEqual(answer["prompt_eval_count"], 64)
        self.fails(400, "/api/embed", {"input": prompt_of(100), "truncate": False}, "64")


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class ToolsTest(OllamaTest):
    model = STORIES
    words = ("--ctx", 4096, "--template", TEMPLATES / "Qwen-Qwen3-0.6B.jinja")

    def both(self, text):
        """The message of a whole answer, and that of a stream put together."""
        body = {"messages": HELLO, "tools": [ADD], "guided_choice": [text], "options": {"num_predict": 200}}
        whole = self.once("/api/chat", **body)["message"]
        lines = self.lines("/api/chat", **body)
        calls = [call for line in lines for call in line["message"].get("tool_calls", [])]
        said = "".join(line["message"]["content"] for line in lines)
        return whole, calls, said

    def test_calls_come_whole(self):
        whole, calls, said = self.both(f"So be it. {CALL}")
        functions = [{"index": 0, "name": "add", "arguments": {"a": 3}}]
        self.assertEqual([call["function"] for call in whole["tool_calls"]], functions)
        self.assertEqual([call["function"] for call in calls], functions)
        self.assertEqual(whole["content"].strip(), "So be it.")
        self.assertEqual(said.strip(), "So be it.")

    def test_what_is_no_call_is_text(self):
        for text in ('<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
                     '<tool_call>\n{"name": "add", "arguments": {"a": }}\n</tool_call> and so on'):
            whole, calls, said = self.both(text)
            self.assertEqual((calls, whole.get("tool_calls")), ([], None))
            self.assertEqual((said, whole["content"]), (text, text))

    def test_a_conversation_with_calls(self):
        turns = [*HELLO,
                 {"role": "assistant", "content": "", "thinking": "Let me add.",
                  "tool_calls": [{"function": {"name": "add", "arguments": {"a": 3}}}]},
                 {"role": "tool", "tool_name": "add", "content": "4"}]
        self.assertTrue(self.once("/api/chat", messages=turns, tools=[ADD], options=GREEDY)["done"])
        self.assertIn("tools", self.server.post("/api/show")["capabilities"])


if __name__ == "__main__":
    unittest.main()
