#!/usr/bin/env python3
"""Conversations with tools through the packages openai, anthropic and ollama against `swiftkv serve`: what a new user does.

tools/checks/check_conversations.py leads longer ones, and LangChain's. Here: a few turns of each client, loops of tools that
the clients run themselves, streams that are left in a call, results that are no text, and prompts beyond the context.
"""

import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tools/checks")]

from server_process import PROGRAM, STORIES, TEMPLATES, Server, ServerTest  # noqa: E402

import check_conversations as talks  # noqa: E402

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
CLIENTS = {"openai": "openai", "responses": "openai", "anthropic": "anthropic", "ollama": "ollama"}
QWEN = TEMPLATES / "Qwen-Qwen2.5-7B-Instruct.jinja"


def has(package):
    return importlib.util.find_spec(package) is not None


def call(name, **arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class ClientsTest(ServerTest):
    model = STORIES
    words = ("--ctx", 32768, "--kv-tokens", 65536, "--name", "m", "--template", QWEN,
             "--chat-template-kwargs", '{"enable_thinking": false}')  # fmt: skip

    def setUp(self):
        self.script = talks.Script()
        self.url = f"http://127.0.0.1:{self.server.port}"

    def client(self, name):
        if not has(CLIENTS[name]):
            self.skipTest(f"the package {CLIENTS[name]} is not installed")
        made = talks.CLIENTS[name](self.url, self.script)
        self.addCleanup(made.close)
        return made

    def test_conversations(self):
        for name in CLIENTS:
            if not has(CLIENTS[name]):
                continue
            with self.subTest(client=name):
                talk = talks.Conversation(self.server, self.client(name), True, 2)
                for i in range(4):
                    talk.turn(i)
                self.assertEqual((talk.faults, talk.misses, talk.n_rewritten), ([], [], 0))

    def test_the_tool_runner_of_openai(self):
        client = self.client("responses")
        from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

        tool = {"type": "function", "name": "read", "description": "Reads.", "parameters": talks.READ, "strict": False}
        for stream in (False, True):
            asked = []
            runner = ResponsesToolRunner(functions=[RegisteredFunction(tool, lambda a: asked.append(a) or "x = 1")])
            self.script.texts = ["I look.\n" + call("read", path="a") + "\n" + call("read", path="b"), call("read", path="c"), "Done."]
            response = runner.run(client.api, {"model": "m", "input": "Look.", "store": False}, stream=stream)
            self.assertEqual(response.output_text, "Done.")
            self.assertEqual(sorted(a["path"] for a in asked), ["a", "b", "c"])

    def test_the_tool_runner_of_anthropic(self):
        client = self.client("anthropic")
        import anthropic

        asked = []

        @anthropic.beta_tool
        def read(path: str, limit: int = 0) -> str:
            """Reads a file.

            Args:
                path: which
                limit: how much
            """
            asked.append((path, limit))
            if path == "none":
                raise ValueError("no such file")
            return "x = 1"

        for stream in (False, True):  # it would leave the history to the server, and is told to send it
            asked.clear()
            self.script.texts = [call("read", path="a") + "\n" + call("read", path="none", limit=2), call("read", path="c"), "Done."]
            runner = client.api.beta.messages.tool_runner(
                model="m", max_tokens=1000, tools=[read], messages=[{"role": "user", "content": "Look."}],
                **({"stream": True} if stream else {}))  # fmt: skip
            if stream:
                for events in runner:
                    last = events.get_final_message()
            else:
                last = runner.until_done()
            self.assertEqual(last.content[-1].text, "Done.")
            self.assertEqual(asked, [("a", 0), ("none", 2), ("c", 0)])

    def test_results_that_are_no_text(self):
        """A tool's picture does not end the conversation: the model and the client are told that it was left out."""
        use = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
        pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQgeA=="}}
        url = f"data:image/png;base64,{PICTURE}"
        line = "[{}: left out, this model reads text only]".format
        user = {"role": "user", "content": "Look."}
        for path, body, kinds in (
            ("/v1/chat/completions", {"messages": [user, {"role": "assistant", "content": None, "tool_calls": [use]}, {
                "role": "tool", "tool_call_id": "c1", "content": [
                    {"type": "text", "text": "Seen:"}, {"type": "image_url", "image_url": {"url": url}}]}]}, ["image_url"]),
            ("/v1/messages", {"messages": [user, {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "read", "input": {}}]}, {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Seen:"}, picture, pdf]}]}]},
             ["image", "document"]),
            ("/v1/responses", {"input": [user, {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}, {
                "type": "function_call_output", "call_id": "c1", "output": [
                    {"type": "input_text", "text": "Seen:"}, {"type": "input_image", "image_url": url}]}]}, ["input_image"]),
            ("/api/chat", {"messages": [user, {"role": "assistant", "content": "", "tool_calls": [{"function": {
                "name": "read", "arguments": {}}}]}, {"role": "tool", "content": "Seen:", "images": [PICTURE]}]}, ["images"]),
        ):  # fmt: skip
            with self.subTest(path=path):
                text = "\n".join(["Seen:", *map(line, kinds)])
                chat = [user, {"role": "assistant", "content": "", "tool_calls": [use]}, {"role": "tool", "content": text}]
                more = {"model": "m", "stream": False, "tools": [], "max_tokens": 2, "max_output_tokens": 2, "options": {"num_predict": 2}}
                status, headers, answer = self.server.ask("POST", path, {**more, **body})
                self.assertEqual(status, 200, answer)
                usage = answer.get("usage", {})
                n = sum(usage.get(k, 0) for k in ("prompt_tokens", "input_tokens", "cache_creation_input_tokens",
                                                     "cache_read_input_tokens"))
                self.assertEqual(n or answer["prompt_eval_count"], self.server.post("/tokenize", messages=chat)["count"])
                if path != "/v1/chat/completions":
                    self.assertEqual(headers["x-swiftkv-left-out"], ", ".join(kinds))
        for path, content in (("/v1/chat/completions", [{"type": "image_url", "image_url": {"url": url}}]), ("/v1/messages", [picture]),
                              ("/v1/responses", [{"type": "input_image", "image_url": url}])):  # fmt: skip
            body = {"messages": [{"role": "user", "content": content}], "input": [{"role": "user", "content": content}], "max_tokens": 1}
            status, _, answer = self.server.ask("POST", path, body)
            self.assertEqual(status, 400, answer)

    def test_anthropics_usage(self):
        """Tokens that the cache has got, by lifetime, as the client's own types."""
        client = self.client("anthropic")
        mark = {"type": "ephemeral", "ttl": "1h"}
        system = [{"type": "text", "text": "As an agent, use the tools. " * 40, "cache_control": mark}]
        asked = {"model": "m", "max_tokens": 1, "system": system}
        client.script.texts = []
        message = client.api.messages.create(messages=[{"role": "user", "content": "Go on. " * 90}], **asked)
        made, usage = message.usage.cache_creation, message.usage
        self.assertGreater(made.ephemeral_1h_input_tokens, 200)
        self.assertGreater(made.ephemeral_5m_input_tokens, 64)
        both = made.ephemeral_1h_input_tokens + made.ephemeral_5m_input_tokens
        self.assertEqual(both, usage.cache_creation_input_tokens)
        with client.api.messages.stream(messages=[{"role": "user", "content": "Stop. " * 90}], **asked) as stream:
            events = list(stream)
            total = stream.get_final_message().usage
        self.assertGreater(total.cache_read_input_tokens, 64)
        made = [e.usage.cache_creation for e in events if e.type == "message_delta"]  # a field more than Anthropic's event has
        self.assertEqual(sum(made[0].values()), total.cache_creation_input_tokens)
        self.assertLess(made[0]["ephemeral_1h_input_tokens"], 64)  # the cache had all whole pages of the system text
        if not any(e.type == "ping" for e in events[:2]):  # it came with the first token
            self.assertEqual(total.cache_creation.to_dict(), made[0])

    def test_beyond_the_context(self):
        """Every client gets its own exception, with the words by which it, or an agent, knows the reason."""
        for name in ("openai", "responses", "anthropic", "ollama"):
            if not has(CLIENTS[name]):
                continue
            for mode in ("whole", "stream"):
                with self.subTest(client=name, mode=mode):
                    client = self.client(name)
                    client.say("word " * 40000)
                    with self.assertRaises(Exception) as caught:
                        client.ask(mode)
                    error = caught.exception
                    self.assertEqual(type(error).__name__, "ResponseError" if name == "ollama" else "BadRequestError")
                    self.assertEqual(error.status_code, 400)
                    for part in ("prompt is too long: more than 32768 tokens > 32768 maximum", "maximum context length is 32768 tokens",
                                 "exceeds the available context size"):  # fmt: skip
                        self.assertIn(part, str(error))
                    if CLIENTS[name] == "openai":
                        self.assertEqual(error.code, "context_length_exceeded")

    def test_streams_that_are_left(self):
        """A client leaves in the middle of a call, and its turn goes on with what it has read."""
        said = "I edit.\n" + call("edit", path="a.py", old="x = 1", new="y = 2 " * 30)
        user = {"role": "user", "content": "Edit."}
        for n in (1, 3, 12, 40, 80):
            client = self.client("openai")
            self.script.texts = [said]
            text, calls = "", {}
            with client.api.chat.completions.create(messages=[user], stream=True, **client.body) as stream:
                for _, chunk in zip(range(n), stream):
                    delta = chunk.choices[0].delta
                    text += delta.content or ""
                    for one in delta.tool_calls or ():
                        have = calls.setdefault(one.index, {"id": one.id, "type": "function", "function": {"name": one.function.name, "arguments": ""}})
                        have["function"]["arguments"] += one.function.arguments
            partial = {"role": "assistant", "content": text, **({"tool_calls": list(calls.values())} if calls else {})}
            results = [{"role": "tool", "tool_call_id": c["id"], "content": "interrupted"} for c in calls.values()]
            for history in ([user, partial, user], [user, partial, *results, user], [user, partial, *results]):
                client.history, self.script.texts = [*history], ["Yes."]
                self.assertEqual(client.ask("whole").text, "Yes.")
        if not has("anthropic"):
            return
        client = self.client("anthropic")
        for n in (2, 5, 20, 60):
            self.script.texts = [said]
            with client.api.messages.stream(messages=[user], **client.body) as stream:
                for _ in zip(range(n), stream):
                    pass
                content = [b.to_dict() for b in stream.current_message_snapshot.content]
            content = [b for b in content if b.get("text") != ""]
            results = [{"type": "tool_result", "tool_use_id": b["id"], "is_error": True, "content": "interrupted"}
                       for b in content if b["type"] == "tool_use"]  # fmt: skip
            client.history = [user, *([{"role": "assistant", "content": content}] if content else []),
                              {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]}]  # fmt: skip
            self.script.texts = ["Yes."]
            self.assertEqual(client.ask("stream").text, "Yes.")


@unittest.skipUnless(STORIES.exists() and TEMPLATES.exists(), "../shared/assets is absent")
class CacheMissTest(unittest.TestCase):
    """Why a prompt was not cached, in the usage of each dialect; the texts are the key's own."""

    STORY = "Once upon a time there was a little girl who lived by the sea. " * 12
    DIALECTS = {
        "/v1/completions": lambda text: {"prompt": text, "max_tokens": 1},
        "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
        "/v1/responses": lambda text: {"input": text, "max_output_tokens": 1},
        "/v1/messages": lambda text: {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 1},
    }  # fmt: skip

    def serve(self, *words):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        keys = Path(folder.name) / "keys"
        keys.write_text("one\ntwo\n")
        server = Server(STORIES, "--ctx", 2048, "--name", "m", "--template", QWEN, "--api-key-file", keys, *words)
        self.addCleanup(server.stop)
        return server

    def prompt(self, path, clock):
        return self.DIALECTS[path](f"{path}: the clock says {clock}. {self.STORY}")

    def miss(self, server, path, clock, key, **more):
        body = self.prompt(path, clock) | more
        status, _, answer = server.ask("POST", path, body, {"X-Api-Key": key})
        self.assertEqual(status, 200, answer)
        if isinstance(answer, dict):
            return answer["usage"].get("swiftkv_cache_miss")
        events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
        usages = [e.get("usage") or e.get("response", {}).get("usage") for e in events]
        told = [u["swiftkv_cache_miss"] for u in usages if u and "swiftkv_cache_miss" in u]
        self.assertEqual(len(told), 1, usages)
        return told[0]

    def check(self, server, path, shows):
        self.miss(server, path, "nine", "one")
        miss = self.miss(server, path, "four", "one")
        self.assertEqual(miss["reason"], "text")
        self.assertGreater(miss["token"], 5)
        self.assertEqual(miss["block"], miss["token"] // 64)
        self.assertGreater(miss["lost_tokens"], 200)
        self.assertEqual({"sent_text", "known_text"} <= miss.keys(), shows)
        if shows:
            self.assertIn("four", miss["sent_text"])
            self.assertIn("nine", miss["known_text"])
        self.assertIsNone(self.miss(server, path, "nine", "one"))  # all of it was found
        self.assertNotIn("nine", json.dumps(self.miss(server, path, "four", "two")))  # which has not sent it
        return miss

    def test_every_dialect(self):
        server = self.serve("--log-prompt-text")
        schema = server.ask("GET", "/openapi.json", None, {"X-Api-Key": "one"})[2]["components"]["schemas"]["CacheMiss"]
        other = {"reason": "new", "block": 0, "token": 0, "lost_tokens": 0}
        self.assertEqual(self.miss(server, "/v1/chat/completions", "ten", "two"), other)
        for path in self.DIALECTS:
            with self.subTest(path=path):
                miss = self.check(server, path, True)
                self.assertEqual(miss.keys(), schema["properties"].keys())
                more = {"stream": True} | ({"stream_options": {"include_usage": True}} if "completions" in path else {})
                self.assertEqual(self.miss(server, path, "six", "one", **more)["reason"], "text")

    def test_texts_are_for_who_asks_for_them(self):
        self.check(self.serve(), "/v1/chat/completions", False)

    def test_strict_clients(self):
        """The packages' own types take the field, and keep it."""
        server = self.serve("--log-prompt-text")
        url = f"http://127.0.0.1:{server.port}"
        strict = {"api_key": "one", "_strict_response_validation": True, "max_retries": 0}
        asks = {}
        if has("openai"):
            import openai

            api = openai.OpenAI(base_url=f"{url}/v1", **strict)
            asks |= {"/v1/completions": api.completions.create, "/v1/chat/completions": api.chat.completions.create,
                     "/v1/responses": api.responses.create}  # fmt: skip
        if has("anthropic"):
            import anthropic

            asks["/v1/messages"] = anthropic.Anthropic(base_url=url, **strict).messages.create
        if not asks:
            self.skipTest("the packages openai and anthropic are not installed")
        for path, ask in asks.items():
            for clock in ("nine", "four"):
                usage = ask(**{"model": "m", **self.prompt(path, clock)}).usage
            with self.subTest(path=path):
                self.assertEqual(usage.model_extra["swiftkv_cache_miss"]["reason"], "text")
                type(usage).model_validate_json(usage.model_dump_json(), strict=True)


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
