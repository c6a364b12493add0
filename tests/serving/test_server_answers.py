#!/usr/bin/env python3
"""`swiftkv serve` answers exactly: formats behind thoughts, log-probabilities, schemas, templates.

The models are small and say random things: where an answer matters, a grammar or a bias makes it.
"""

import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import ROOT, STORIES, Server, ServerTest  # noqa: E402

MINI, BASE = ROOT / "models/mini/kv6-g2", ROOT / "models/mini/base"
HELLO = [{"role": "user", "content": "json"}]
CHAT = "/v1/chat/completions"
# The prompt opens a thought, or closes it where thinking is off.
THINKER = (
    "{% if tools %}{{ tools | tojson }}<tool_call></tool_call>\"arguments\": {% endif %}"
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]\n<think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def with_template(text, folder):
    path = Path(folder, "template.jinja")
    path.write_text(text)
    return path


def thinking_model(folder, special):
    """The mini model with <think> and </think> as tokens, whose ids it returns."""
    out = Path(folder, "model")
    shutil.copytree(BASE, out, copy_function=os.symlink)
    path = out / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    texts = {i: text for text, i in vocab.items()}
    ids = sorted(texts)[-2:]
    old = {texts[i] for i in ids}
    for i, text in zip(ids, ("<think>", "</think>")):
        del vocab[texts[i]]
        vocab[text] = i
        tokenizer["added_tokens"].append(
            {"id": i, "content": text, "special": special, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False})  # fmt: skip
    merges = [m.split(" ") if isinstance(m, str) else m for m in tokenizer["model"]["merges"]]
    tokenizer["model"]["merges"] = [m for m in merges if not {*m, m[0] + m[1]} & old]
    path.unlink()
    path.write_text(json.dumps(tokenizer))
    return out, ids


class ThoughtTest(unittest.TestCase):
    """A grammar waits for the end of a thought that the prompt has opened."""

    def serve(self, special):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        model, (_, self.end) = thinking_model(folder.name, special)
        server = Server(model, "--template", with_template(THINKER, folder.name))
        self.addCleanup(server.stop)
        return server

    def message(self, server, path=CHAT, **body):
        answer = server.post(path, **{"messages": HELLO, "temperature": 1, "seed": 5, **body})
        return answer["choices"][0]["message"] if path == CHAT else answer

    def test_a_grammar_waits(self):
        wishes = ({"response_format": FORMAT}, {"response_format": {"type": "json_object"}},
                  {"guided_regex": "[0-9]{3}"}, {"guided_choice": ["yes"]}, {"guided_grammar": 'root ::= "yes"'},
                  {"guided_json": SCHEMA})  # fmt: skip
        for special in (False, True):
            server = self.serve(special)
            ends, stays = {"logit_bias": {str(self.end): 100}}, {"logit_bias": {str(self.end): -100}}
            for wish in wishes:
                with self.subTest(special=special, wish=wish):
                    said = self.message(server, max_tokens=12, **wish, **stays)
                    self.assertEqual(said["content"], "")
                    self.assertGreater(len(said["reasoning_content"]), 3)
                    if "response_format" in wish and wish["response_format"]["type"] == "json_object":
                        continue  # a random object may have any length
                    said = self.message(server, max_tokens=300, **wish, **ends)
                    self.assertFalse(said.get("reasoning_content"))
                    closed = self.message(server, max_tokens=300, **wish, **OFF)
                    for content in (said["content"], closed["content"]):
                        if "guided_regex" in wish:
                            self.assertRegex(content, "^[0-9]{3}$")
                        elif "guided_choice" in wish or "guided_grammar" in wish:
                            self.assertEqual(content, "yes")
                        else:
                            self.assertEqual(list(json.loads(content)), ["a"])

    def test_other_apis_wait(self):
        server = self.serve(False)
        ends, stays = {"logit_bias": {str(self.end): 100}}, {"logit_bias": {str(self.end): -100}}
        for more in (ends, stays):
            said = self.message(server, "/api/chat", format=SCHEMA, stream=False,
                                options={"num_predict": 300, "logit_bias": more["logit_bias"]})  # fmt: skip
            content, thought = said["message"]["content"], said["message"].get("thinking")
            if more is ends and "a" in content:
                self.assertEqual(list(json.loads(content)), ["a"])
            else:
                self.assertEqual((content, bool(thought)), ("", True))
        text = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
        answer = server.post("/v1/responses", input="json", text=text, max_output_tokens=12, temperature=0)
        self.assertEqual({item["type"] for item in answer["output"]}, {"reasoning"})

    def test_demanded_calls_wait(self):
        server = self.serve(False)
        tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
        body = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
        said = self.message(server, max_tokens=12, logit_bias={str(self.end): -100}, **body)
        self.assertNotIn("tool_calls", said)
        self.assertGreater(len(said["reasoning_content"]), 3)
        said = self.message(server, max_tokens=300, logit_bias={str(self.end): 100}, **body)
        self.assertEqual([c["function"]["name"] for c in said["tool_calls"]], ["f"])
        self.assertEqual(list(json.loads(said["tool_calls"][0]["function"]["arguments"])), ["a"])

    def test_the_opening_mark_stays_in_the_text(self):
        server = self.serve(False)
        body = {"max_tokens": 6, "reasoning_format": "none", "logit_bias": {str(self.end): -100}}
        content = self.message(server, **body)["content"]
        self.assertTrue(content.startswith("<think>\n"), content)
        self.assertGreater(len(content), len("<think>\n"))
        chunks = server.chunks(CHAT, messages=HELLO, temperature=1, seed=5, **body)
        deltas = [c["choices"][0]["delta"].get("content") or "" for c in chunks]
        self.assertEqual("".join(deltas), content)
        self.assertNotIn("<think>", self.message(server, **body, **OFF)["content"])
        body |= {"logit_bias": {str(self.end): 100}, "max_tokens": 300}
        content = self.message(server, **body, response_format=FORMAT)["content"]
        thought, _, text = content.partition("</think>")
        self.assertTrue(thought.startswith("<think>\n"), content)
        self.assertEqual(list(json.loads(text)), ["a"])


class LogprobTest(ServerTest):
    model, words = MINI, ("--template", "chatml")
    TEXTS = ("\U0001f469\u200d\U0001f469\u200d\U0001f467 \u6f22\u5b57 \u00e9\U0001f642", "plain text, twice plain",
             "\u00e4\u00f6\u00fc \u03b1\u03b2\u03b3", " begins with a blank")  # fmt: skip

    def test_bytes(self):
        for text in self.TEXTS:
            body = {"messages": HELLO, "max_tokens": 300, "guided_choice": [text]}
            body |= {"logprobs": True, "top_logprobs": 2, "temperature": 0}
            choice = self.server.post(CHAT, **body)["choices"][0]
            self.assertEqual(choice["message"]["content"], text)
            content = choice["logprobs"]["content"]
            self.assertEqual(b"".join(bytes(t["bytes"]) for t in content).decode(), text)
            for token in content:
                for other in token["top_logprobs"]:
                    if other["id"] == token["id"]:
                        self.assertEqual(other["bytes"], token["bytes"])
                    elif "\ufffd" not in other["token"]:
                        self.assertEqual(bytes(other["bytes"]).decode(), other["token"])
                    else:  # a part of a character
                        self.assertNotEqual(bytes(other["bytes"]), other["token"].encode())
            events = self.server.chunks(CHAT, **body)
            streamed = [t for e in events for c in e["choices"] for t in (c["logprobs"] or {"content": []})["content"]]
            self.assertEqual([t["bytes"] for t in streamed], [t["bytes"] for t in content])

    def offsets(self, text, got, first=0):
        """Each token stands at its offset: what it spells begins there, in characters."""
        self.assertEqual(len(got["text_offset"]), len(got["tokens"]))
        self.assertEqual(got["text_offset"], sorted(got["text_offset"]))
        for token, at in list(zip(got["tokens"], got["text_offset"]))[first:]:
            if token == "<|begin|>":
                self.assertEqual(at, 0)
            elif "\ufffd" not in token:
                self.assertEqual(text[at:at + len(token)], token, (text, got["tokens"], got["text_offset"]))
            else:
                self.assertLess(at, len(text))

    def test_offsets(self):
        for text in self.TEXTS:
            for echo in (False, True):
                body = {"prompt": "Say \u00e9\U0001f642 now:", "guided_choice": [text], "max_tokens": 300, "echo": echo}
                choice = self.server.complete(**body, logprobs=1)["choices"][0]
                self.assertEqual(choice["text"], body["prompt"] * echo + text)
                self.offsets(choice["text"], choice["logprobs"])
                self.assertIn(len(choice["text"]), [at + len(t) for t, at in zip(
                    choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"])])  # fmt: skip
                ids = self.server.post("/tokenize", content=body["prompt"])["tokens"]
                again = self.server.complete(**body | {"prompt": ids}, logprobs=1)["choices"][0]
                n = len(ids) * echo  # without the token that begins every text
                self.assertEqual(again["logprobs"]["text_offset"][:n], choice["logprobs"]["text_offset"][1:1 + n])


@unittest.skipUnless(STORIES.exists(), "../shared/assets is absent")
class StoriesTest(ServerTest):
    """A tokenizer that puts a token and a blank before every text."""

    model, words = STORIES, ("--template", "chatml")

    def test_offsets_of_an_echo(self):
        body = {"prompt": "Once upon a time", "max_tokens": 3, "echo": True}
        choice = self.server.complete(**body, logprobs=1)["choices"][0]
        got = choice["logprobs"]
        self.assertEqual(got["tokens"][0], "<s>")
        self.assertEqual(got["text_offset"][:2], [0, 0])
        for token, at in list(zip(got["tokens"], got["text_offset"]))[2:]:
            self.assertEqual(choice["text"][at:at + len(token)], token)

    def test_usage_of_each_event(self):
        for n in (1, 2):
            body = {"prompt": "Once", "max_tokens": 40, "temperature": 1, "seed": 3, "n": n, "ignore_eos": True}
            options = {"include_usage": True, "continuous_usage_stats": True}
            events = self.server.chunks("/v1/completions", **body, logprobs=0, stream_options=options)
            told = 0
            for event in events[:-1]:
                told += sum(len(c["logprobs"]["tokens"]) for c in event["choices"])
                self.assertEqual(event["usage"]["completion_tokens"], told)
            self.assertEqual((told, events[-1]["usage"]["completion_tokens"]), (40 * n, 40 * n))
        events = self.server.chunks(CHAT, messages=HELLO, max_tokens=5, ignore_eos=True, stream_options=options)
        counts = [event["usage"]["completion_tokens"] for event in events]
        self.assertEqual((counts[0], counts[-1]), (0, 5))
        self.assertEqual(counts, sorted(counts))

    def test_schemas_as_llama_server_takes_them(self):
        for wish in ({"type": "json_schema", "schema": SCHEMA}, FORMAT):
            body = {"messages": HELLO, "max_tokens": 50, "response_format": wish}
            content = self.server.post(CHAT, **body)["choices"][0]["message"]["content"]
            self.assertEqual(list(json.loads(content)), ["a"])
        self.refuses(400, CHAT, {"messages": HELLO, "response_format": {"type": "json_schema"}}, "schema: missing")

    def test_a_complete_constraint_ends_an_answer(self):
        """ignore_eos forbids the ends as long as something else is left; behind a complete text nothing is."""
        for wish, wanted in (({"guided_regex": "[0-9]{3}"}, "[0-9]{3}"), ({"guided_choice": ["yes", "no"]}, "yes|no"),
                             ({"guided_grammar": 'root ::= "ab" "c"?'}, "abc"), ({"response_format": FORMAT}, r'\{\s*"a"[^}]*\}')):  # fmt: skip
            for stream in (False, True):
                body = {"messages": HELLO, "max_tokens": 60, "temperature": 0, "ignore_eos": True, **wish}
                if stream:
                    choices = [choice for chunk in self.server.chunks(CHAT, **body) for choice in chunk["choices"]]
                    text = "".join(choice["delta"].get("content") or "" for choice in choices)
                else:
                    choices = self.server.post(CHAT, **body)["choices"]
                    text = choices[0]["message"]["content"]
                self.assertEqual(choices[-1]["finish_reason"], "stop", (wish, text))
                self.assertRegex(text, f"^(?:{wanted})$")

    def test_what_cannot_be_followed(self):
        """It is refused with its place, or left out where a schema is said not to be strict."""
        odd = {"type": "object", "required": ["a"], "additionalProperties": False,
               "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 4, "not": {"const": 9}}}}  # fmt: skip
        wish = {"type": "json_schema", "json_schema": {"name": "x", "schema": odd}}
        body = {"messages": HELLO, "max_tokens": 50, "response_format": wish}
        self.refuses(400, CHAT, body, "/properties/a", '"not"')
        wish["json_schema"]["strict"] = False
        content = self.server.post(CHAT, **body)["choices"][0]["message"]["content"]
        self.assertIn(json.loads(content)["a"], (3, 4))
        long = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 90000}}, "required": ["a"]}
        wish["json_schema"] = {"name": "x", "schema": long}
        self.refuses(400, CHAT, body, "/properties/a", "maxLength", "90000")

    def test_numbers_of_tools(self):
        """Where the server writes tools into a text, numbers are as short as they can be."""
        parameters = {"type": "object", "properties": {"x": {
            "type": "number", "minimum": 0.1, "maximum": 1e20, "multipleOf": -2.5e-7, "default": 3.0,
            "description": "0.10000000000000001 \\\" 0.30000000000000004"}}}  # fmt: skip
        tool = {"type": "function", "function": {"name": "f", "description": "", "parameters": parameters}}
        prompt = self.server.post("/apply-template", messages=HELLO, tools=[tool])["prompt"]
        for text in ('"minimum":0.1,', '"maximum":1e20,', '"multipleOf":-2.5e-07,', '"default":3.0,'):
            self.assertIn(text, prompt)
        line = next(line for line in prompt.splitlines() if line.startswith('{"name":"f"'))
        self.assertEqual(json.JSONDecoder().raw_decode(line)[0]["parameters"], parameters)


class TemplateTest(unittest.TestCase):
    def test_none_where_there_is_none(self):
        text = ("{{ tools | tojson }} {{ documents is none }} {{ messages[0].content }}"
                "{% if tools is not none %} TOOLS{% endif %}<tool_call></tool_call>\"arguments\": ")  # fmt: skip
        tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}
        with tempfile.TemporaryDirectory() as folder:
            server = Server(MINI, "--template", with_template(text, folder))
            self.addCleanup(server.stop)
            prompt = server.post("/apply-template", messages=HELLO)["prompt"]
            self.assertTrue(prompt.startswith("null True json<"), prompt)
            prompt = server.post("/apply-template", messages=HELLO, tools=[tool])["prompt"]
            self.assertTrue(prompt.startswith('[{"type": "function"'), prompt)
            self.assertIn("json TOOLS", prompt)
            more = {"chat_template_kwargs": {"documents": [{"title": "t"}]}}
            self.assertIn("null False json", server.post("/apply-template", messages=HELLO, **more)["prompt"])

    def test_templates_for_tools_alone(self):
        """They loop over tools without asking whether there are any."""
        with tempfile.TemporaryDirectory() as folder:
            text = "{% for t in tools %}{{ t | tojson }}{% endfor %}[{{ messages[0].content }}]"
            server = Server(MINI, "--template", with_template(text, folder))
            self.addCleanup(server.stop)
            self.assertEqual(server.post("/apply-template", messages=HELLO)["prompt"], "[json]")

    def test_a_template_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(MINI, "--template", with_template("{% for", folder))
            self.addCleanup(server.stop)
            told = [line for line in server.lines if "chat template" in line and "chats are refused" in line]
            self.assertEqual(len(told), 1, server.lines)
            status, _, answer = server.ask("POST", CHAT, {"messages": HELLO})
            self.assertEqual(status, 400)
            self.assertIn("template cannot be used: chat template", answer["error"]["message"])
            self.assertEqual(server.complete(prompt="a", max_tokens=1)["usage"]["completion_tokens"], 1)


class FrameTest(unittest.TestCase):
    """What a template writes between its prompt and an answer is no part of the answer: sent back it would be written twice."""

    BLANK = "{% for m in messages %}{{ m.role }}: {{ m.content }}<sep>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    NAMED = ("{% for m in messages %}{% if m.reasoning_content %}<|start|>assistant to=self<|message|>{{ m.reasoning_content }}"
             "<|eom|>{% endif %}<|start|>{{ m.role }}{% if m.role == 'assistant' %} to=user{% endif %}<|message|>{{ m.content }}"
             "<|eot|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}")  # fmt: skip
    OPEN = ("{% for m in messages %}<|open|>{{ m.role }}<|sep|>{% if m.role == 'assistant' %}<|open|>think<|sep|>"
            "{{ m.reasoning_content }}<|close|>think<|sep|>{% endif %}{{ m.content }}<|close|>message<|sep|><|end_of_msg|>"
            "{% endfor %}{% if add_generation_prompt %}<|open|>assistant<|sep|>{% endif %}")  # fmt: skip

    def check_answer(self, template, said, content, thought):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(STORIES, "--ctx", 2048, "--template", with_template(template, folder))
            self.addCleanup(server.stop)
            body = {"messages": HELLO, "grammar": f'root ::= {json.dumps(said)}', "temperature": 0}
            message = server.post(CHAT, **body)["choices"][0]["message"]
            self.assertEqual((message["content"], message.get("reasoning_content") or ""), (content, thought))
            deltas = [c["choices"][0]["delta"] for c in server.chunks(CHAT, **body) if c["choices"]]
            self.assertEqual("".join(d.get("content") or "" for d in deltas), content)
            history = [*HELLO, message, *HELLO]
            prompts = [server.post("/apply-template", messages=m)["prompt"] for m in (HELLO, history)]
            self.assertTrue(prompts[1].startswith(prompts[0] + said), prompts)
            # An answer that goes on with a message is its own beginning.
            prefix = {"role": "assistant", "content": "A"}
            body |= {"messages": [*HELLO, prefix], "continue_final_message": True, "add_generation_prompt": False}
            self.assertEqual(server.post(CHAT, **{**body, "grammar": 'root ::= " b"'})["choices"][0]["message"]["content"], " b")

    def test_a_blank(self):
        self.check_answer(self.BLANK, " Done", "Done", "")

    def test_the_name_of_the_reader(self):
        self.check_answer(self.NAMED, " to=user<|message|>Done", "Done", "")
        self.check_answer(self.NAMED, " to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Done", "Done", "hm")

    def test_marks_at_both_ends(self):
        said = "<|open|>think<|sep|>hm<|close|>think<|sep|>Done"
        self.check_answer(self.OPEN, said + "<|close|>message<|sep|>", "Done", "hm")


class QueueTest(ServerTest):
    words = ("--ctx", 512, "--kv-tokens", 1024, "--max-running", 1, "--max-queue", 1)

    def test_a_request_that_waits_is_not_refused(self):
        """Its prompts find the queue full again and again; all of them are answered."""
        prompts = [[1 + i, 2] for i in range(12)]
        answer = self.server.complete(prompt=prompts, max_tokens=100, ignore_eos=True)
        self.assertEqual(len(answer["choices"]), len(prompts))
        self.assertEqual(self.server.metrics()['requests_rejected_total{reason="queue_full"}'], 0)


if __name__ == "__main__":
    unittest.main()
