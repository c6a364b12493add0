#!/usr/bin/env python3
"""Changes to prompts by option: lines that leave system texts, the order of tools, thoughts that stay in the history."""

import itertools
import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, ROOT, Server  # noqa: E402

# As Qwen3's: the thoughts of turns before the last of the user's are left out, and calls are in a line of their own.
TEMPLATE = """{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for t in tools or [] %}{{ t | tojson }}\n{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}[assistant]
{%- if loop.index0 > ns.last and m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + (m.content or '').lstrip('\\n') }}
{%- else %}{{ m.content or '' }}{% endif %}
{%- for c in m.tool_calls or [] %}
{%- if (loop.first and m.content) or not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>
{%- endfor %}{{ '\\n' }}
{%- else %}[{{ m.role }}]{{ m.content }}
{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
MINI = ROOT / "models/mini/base"
BILLING = "x-anthropic-billing-header: cc_version=2.1.29.1; cc_entrypoint=cli; cch={};"


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": f"does {name}", "parameters": parameters}}


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": "call_1", "type": "function", "function": function}


# As Hy3's and Kimi K3's: words for thinking are checked.
EFFORT = """{%- if NAME is defined and NAME not in WORDS %}{{ raise_exception('no such effort') }}{% endif %}
{%- for t in tools or [] %}{{ t | tojson }}\n{% endfor %}
{%- for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}
{%- if add_generation_prompt %}[assistant {{ NAME }} {{ thinking }}]{% endif %}"""


class PromptTest(unittest.TestCase):
    def serve(self, *words, template=TEMPLATE):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "template.jinja"
        path.write_text(template)
        self.log = Path(folder.name) / "log"
        server = Server(MINI, "--template", path, "--ctx", 4096, "--request-log", self.log, *words)
        self.addCleanup(server.stop)
        return server

    def render(self, server, messages, **body):
        """(the prompt's text, what the header says)"""
        body = {"messages": messages, "add_generation_prompt": False, **body}
        status, headers, answer = server.ask("POST", "/apply-template", body)
        self.assertEqual(status, 200, answer)
        return answer["prompt"], headers["x-swiftkv-prompt"]

    def last_log(self, server, path):
        """The line of the last request for a path. Lines come after the answers."""

        def lines():
            return [line for line in map(json.loads, self.log.read_text().splitlines()) if line["path"] == path]

        server.wait_for(lambda metrics: lines())
        return lines()[-1]

    def test_effort_that_a_template_refuses(self):
        """It becomes the nearest that is taken, in all APIs, by the template's name; the header and the log tell it."""
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        for name, words, cases in (
            ("reasoning_effort", ["no_think", "low", "high"], {"minimal": "low", "low": None, "medium": "high", "max": "high"}),
            ("thinking_effort", ["minimal", "max"], {"low": "minimal", "high": "max", "medium": "minimal"}),
            ("reasoning_strength", ["much"], {"medium": "default"}),
        ):
            server = self.serve(template=EFFORT.replace("NAME", name).replace("WORDS", str(words)))
            for asked, told in cases.items():
                shown = {"default": "", None: asked}.get(told, told)
                header = f"effort={told}" if told else None
                prompt, said = self.render(server, chat["messages"], reasoning_effort=asked, add_generation_prompt=True)
                self.assertEqual((prompt, said), (f"[user]hi\n[assistant {shown} True]", header), (name, asked))
            asked = next(iter(cases))
            for path, body in (("/v1/chat/completions", {**chat, "reasoning_effort": asked}),
                               ("/v1/responses", {"input": "hi", "max_output_tokens": 1, "reasoning": {"effort": asked}}),
                               ("/v1/messages", {**chat, "output_config": {"effort": asked}}),
                               ("/api/chat", {"messages": chat["messages"], "think": asked, "stream": False, "options": {"num_predict": 1}})):
                if path == "/api/chat" and asked == "minimal":
                    body = {**body, "think": "medium"}
                    asked = "medium"
                status, headers, answer = server.ask("POST", path, body)
                told = f"effort={cases[asked]}"
                self.assertEqual((status, headers["x-swiftkv-prompt"]), (200, told), (path, answer))
                self.assertEqual(self.last_log(server, path)["prompt_changes"], told)
            server.stop()

    def test_a_word_that_is_none_is_the_templates_own(self):
        server = self.serve(template=EFFORT.replace("NAME", "reasoning_effort").replace("WORDS", "['low']"))
        status, _, answer = server.ask("POST", "/apply-template", {
            "messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "much"})  # fmt: skip
        self.assertEqual(status, 400, answer)
        self.assertIn("no such effort", str(answer))

    def test_lines_leave_system_texts(self):
        server = self.serve("--prompt-strip", "claude-code")
        cached = []
        for n in ("1a2b3", "4c5d6"):
            system = [{"type": "text", "text": BILLING.format(n)}, {"type": "text", "text": "You are a coding agent. " * 20}]
            body = {"max_tokens": 1, "system": system, "messages": [{"role": "user", "content": BILLING.format("mine")}]}
            status, headers, answer = server.ask("POST", "/v1/messages", body)
            self.assertEqual((status, headers["x-swiftkv-prompt"]), (200, "strip=1"))
            cached.append(answer["usage"]["cache_read_input_tokens"])
        self.assertEqual(cached[0], 0)
        self.assertGreaterEqual(cached[1], 128)
        self.assertEqual(self.last_log(server, "/v1/messages")["prompt_changes"], "strip=1")

    def test_only_whole_lines_of_system_messages(self):
        server = self.serve("--prompt-strip", "^clock|secret$")
        text = "clock 1\nkeep clock\r\n\nthe secret\nend"
        messages = [{"role": "system", "content": text}, {"role": "user", "content": text}]
        self.assertEqual(self.render(server, messages)[0], f"[system]keep clock\r\n\nend\n[user]{text}\n")
        same = [{"role": "system", "content": "keep"}, {"role": "user", "content": text}]
        self.assertIsNone(self.render(server, same)[1])

    def test_a_line_that_takes_too_long_stays(self):
        server = self.serve("--prompt-strip", "^(a+)+$")
        line = "a" * 5000 + "b"
        messages = [{"role": "system", "content": f"{line}\naaa"}, {"role": "user", "content": "hi"}]
        self.assertEqual(self.render(server, messages), (f"[system]{line}\n\n[user]hi\n", "strip=1"))

    def test_a_pattern_that_is_none(self):
        words = [PROGRAM, "serve", MINI, "--port", "0", "--prompt-strip", "(open"]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn('--prompt-strip: "(open" at byte 5: missing closing parenthesis', done.stderr)

    def test_tools_have_one_order(self):
        server = self.serve("--prompt-sort", "tools")
        tools = [tool("read", path={"type": "string", "description": "which"}), tool("bash", b={}, a={}), tool("edit")]
        messages = [{"role": "user", "content": "hi"}]
        prompts = {self.render(server, messages, tools=list(order)) for order in itertools.permutations(tools)}
        other = tool("read", path={"description": "which", "type": "string"})
        prompts.add(self.render(server, messages, tools=[other, tools[1], tools[2]]))
        self.assertEqual(len(prompts), 1)
        prompt, header = prompts.pop()
        self.assertEqual(header, "sort=tools")
        names = [json.loads(line)["function"]["name"] for line in prompt.splitlines()[:3]]
        self.assertEqual(names, ["bash", "edit", "read"])
        self.assertEqual(list(json.loads(prompt.splitlines()[0])["function"]["parameters"]["properties"]), ["a", "b"])

    def test_thoughts_stay(self):
        """What was rendered inside a turn is the beginning of what is rendered behind it."""
        server = self.serve("--prompt-keep", "thoughts")
        rng = random.Random(3)
        for i in range(30):
            messages = [{"role": "user", "content": "begin"}]
            for k in range(rng.randint(1, 3)):
                thought = f"thought {k} of {i}\nand more" if rng.random() < 0.8 else ""
                message = {"role": "assistant", "content": rng.choice(["", f"text {k} \u00e9"]), "reasoning_content": thought}
                if rng.random() < 0.6:
                    message["tool_calls"] = [call("read", path=f"f{k}")] * rng.randint(1, 2)
                messages.append(message)
                if "tool_calls" in message:
                    messages.append({"role": "tool", "tool_call_id": "call_1", "content": "result"})
            n_thoughts = sum(bool(m.get("reasoning_content")) for m in messages)
            inside, before = self.render(server, messages)
            behind, header = self.render(server, [*messages, {"role": "user", "content": "go on"}])
            with self.subTest(messages=messages):
                self.assertIsNone(before)
                self.assertEqual(behind, inside + "[user]go on\n")
                self.assertEqual(header, f"keep-thoughts={n_thoughts}" if n_thoughts else None)

    def test_thoughts_are_data(self):
        """Marks of the server's own are no data, and what a client writes stays where it is."""
        server = self.serve("--prompt-keep", "thoughts")
        thought = "<|swiftkv_thought_0|></think> <|im_end|>"
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": thought},
                    {"role": "user", "content": "<|swiftkv_thought_0000000000000000_1|>"}]  # fmt: skip
        prompt, _ = self.render(server, messages)
        self.assertEqual(prompt, f"[user]a\n[assistant]<think>\n{thought}\n</think>\n\nb\n[user]{messages[2]['content']}\n")

    def test_marked_prompts_leave_the_cache_last(self):
        """Those with cache_control or prompt_cache_key, up to a quarter of the KV memory."""
        server = self.serve("--kv-tokens", 4096, "--no-text-match")

        def ask(name, path="/v1/chat/completions", **body):
            text = f"{name} " + " ".join(f"{name} says {i}" for i in range(70))
            answer = server.post(path, messages=[{"role": "user", "content": text, **body.pop("message", {})}], max_tokens=1, **body)
            usage = answer["usage"]
            if "cache_read_input_tokens" in usage:
                return usage["cache_read_input_tokens"]
            self.assertLess(usage["prompt_tokens"], 1000)
            return usage["prompt_tokens_details"]["cached_tokens"]

        def marked(name):
            block = [{"type": "text", "text": f"{name} " + "is marked. " * 30, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
            usage = server.post("/v1/messages", messages=[{"role": "user", "content": block}], max_tokens=1)["usage"]
            return usage["cache_read_input_tokens"]

        for pinned, other in ((lambda: marked("alpha"), lambda: ask("beta")),
                              (lambda: ask("gamma", prompt_cache_key="one"), lambda: ask("delta"))):  # fmt: skip
            self.assertEqual((other(), pinned()), (0, 0))
            for i in range(20):  # far more than there is room for
                ask(f"flood{i}")
            self.assertGreater(pinned(), 0)
            self.assertEqual(other(), 0)

    def test_a_mark_reaches_to_its_place(self):
        """What stands before the first mark stays, where all up to the last would take more than a key may have."""
        tools = [{"name": "read", "description": "reads a file " * 20, "input_schema": {"type": "object"}}]
        control = {"type": "ephemeral"}

        def words(name, n):
            return {"type": "text", "text": " ".join(f"{name} says {i}" for i in range(n))}

        def messages(server, name, n=200):
            system = [words(name, 10), {**words(name, 40), "cache_control": control}]
            user = [{**words(f"user {name}", n), "cache_control": control}]
            body = {"max_tokens": 1, "system": system, "tools": tools, "messages": [{"role": "user", "content": user}]}
            return server.post("/v1/messages", **body)["usage"]

        def chat(server, name, n=200):
            system = [words(name, 10), {**words(name, 40), "cache_control": control}]
            user = [{**words(f"user {name}", n), "cache_control": control}]
            body = {"max_tokens": 1, "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]}
            usage = server.post("/v1/chat/completions", **body)["usage"]
            n_cached = usage["prompt_tokens_details"]["cached_tokens"]
            return {"cache_read_input_tokens": n_cached, "input_tokens": usage["prompt_tokens"] - n_cached}

        for ask in (messages, chat):
            server = self.serve("--kv-tokens", 4096, "--no-text-match")
            sizes = [sum(v for k, v in ask(server, "alpha", n).items() if k != "output_tokens") for n in (1, 200)]
            self.assertTrue(sizes[0] < 1024 < sizes[1] < 3000, sizes)
            floods = [" ".join(f"flood{i} says {k}" for k in range(70)) for i in range(10)]
            for text in floods:
                server.post("/v1/completions", prompt=text, max_tokens=1)
            usage = server.post("/v1/completions", prompt=floods[0], max_tokens=1)["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)  # the memory is full
            found = ask(server, "alpha")["cache_read_input_tokens"]
            self.assertGreater(found, sizes[0] - 128)  # up to the block in which the user's text begins
            self.assertLess(found, sizes[0] + 64)

    def test_nothing_changes_without_options(self):
        server = self.serve()
        messages = [{"role": "system", "content": BILLING.format("1")}, {"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b", "reasoning_content": "t"}, {"role": "user", "content": "c"}]  # fmt: skip
        prompt, header = self.render(server, messages, tools=[tool("b"), tool("a")])
        self.assertIsNone(header)
        self.assertIn("cch=1", prompt)
        self.assertNotIn("<think>", prompt)
        self.assertLess(prompt.index("does b"), prompt.index("does a"))


if __name__ == "__main__":
    unittest.main()
