#!/usr/bin/env python3
"""Calls survive a round trip through `swiftkv serve`: what a chat template writes for a call comes back as that call from all
four APIs, streamed and whole, and is taken as history with its result, as is everything else that clients hold of calls.

Answers are forced by a grammar. By default every template has one case; SKV_CALL_CASES is the number of cases of the property
(0: the fixed one alone), SKV_TEST_SEED its first seed. A failure prints the seed and the case.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from call_cases import TEMPLATES, USER, XML_ENDS, call_is_clear, called, function, parameters, text_of_call  # noqa: E402
from server_process import PROGRAM, STORIES, Server  # noqa: E402
from server_process import TEMPLATES as FOLDER  # noqa: E402
from property_seed import SEED, count  # noqa: E402

try:
    import hypothesis
    from hypothesis import strategies as st
except ImportError:
    hypothesis = None

CASES = int(os.environ.get("SKV_CALL_CASES", 0))
MODEL = None
QUIET = {"temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
RESULT = "SKVRESULT"


def literal(text):
    """A grammar in GBNF of this text."""
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(old, new)
    return f'root ::= "{text}"'


def events_of(text):
    """The data of server-sent events."""
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ") and line != "data: [DONE]"]


class Api:
    """One dialect: a request, the calls of its answer as (name, arguments as a text, id), and the answer as history."""

    def ask(self, server, stream, **body):
        status, _, answer = server.ask("POST", self.path, {**self.fields, **QUIET, **body, "stream": stream})
        if status != 200:
            raise AssertionError((self.path, status, answer))
        return answer


class Chat(Api):
    path, fields = "/v1/chat/completions", {}

    def force(self, server, stream, schema, text):
        answer = self.ask(server, stream, messages=[USER], tools=[function(schema)], grammar=literal(text), max_tokens=4000)
        if not stream:
            message = answer["choices"][0]["message"]
            return [(c["function"]["name"], c["function"]["arguments"], c["id"]) for c in message.get("tool_calls", ())], message
        calls = {}
        for event in events_of(answer):
            for choice in event["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    name, said, id = calls.get(call["index"], ("", "", ""))
                    calls[call["index"]] = (name + call["function"].get("name", ""), said + call["function"].get("arguments", ""),
                                            id + call.get("id", ""))  # fmt: skip
        return [calls[i] for i in sorted(calls)], None

    def go_on(self, server, schema, message, calls):
        results = [{"role": "tool", "tool_call_id": id, "content": RESULT} for _, _, id in calls]
        self.ask(server, False, messages=[USER, message, *results], tools=[function(schema)], max_tokens=1)


class Messages(Api):
    path, fields = "/v1/messages", {"model": STORIES.stem}

    def tools(self, schema):
        return [{"name": "f", "description": "D", "input_schema": schema}]

    def force(self, server, stream, schema, text):
        answer = self.ask(server, stream, messages=[USER], tools=self.tools(schema), grammar=literal(text), max_tokens=4000)
        if not stream:
            calls = [(b["name"], json.dumps(b["input"]), b["id"]) for b in answer["content"] if b["type"] == "tool_use"]
            return calls, answer["content"]
        calls = {}
        for event in events_of(answer):
            block = event.get("content_block", {})
            if block.get("type") == "tool_use":
                calls[event["index"]] = (block["name"], "", block["id"])
            elif event.get("delta", {}).get("type") == "input_json_delta":
                name, said, id = calls[event["index"]]
                calls[event["index"]] = (name, said + event["delta"]["partial_json"], id)
        return list(calls.values()), None

    def go_on(self, server, schema, content, calls):
        results = [{"type": "tool_result", "tool_use_id": id, "content": RESULT} for _, _, id in calls]
        messages = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": results}]
        self.ask(server, False, messages=messages, tools=self.tools(schema), max_tokens=1)


class Responses(Api):
    path, fields = "/v1/responses", {}

    def tools(self, schema):
        return [{"type": "function", "name": "f", "description": "D", "parameters": schema}]

    def force(self, server, stream, schema, text):
        answer = self.ask(server, stream, input=[USER], tools=self.tools(schema), grammar=literal(text), max_output_tokens=4000)
        said = None
        if stream:
            events = events_of(answer)
            said = "".join(e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta")
            answer = events[-1]["response"]
        items = [item for item in answer["output"] if item["type"] == "function_call"]
        if stream and said != "".join(item["arguments"] for item in items):
            raise AssertionError((said, items))
        return [(item["name"], item["arguments"], item["call_id"]) for item in items], answer["output"]

    def go_on(self, server, schema, output, calls):
        results = [{"type": "function_call_output", "call_id": id, "output": RESULT} for _, _, id in calls]
        self.ask(server, False, input=[USER, *output, *results], tools=self.tools(schema), max_output_tokens=1)


class Ollama(Api):
    path, fields = "/api/chat", {}

    def force(self, server, stream, schema, text):
        answer = self.ask(server, stream, messages=[USER], tools=[function(schema)], grammar=literal(text),
                          options={"num_predict": 4000})  # fmt: skip
        lines = [json.loads(line) for line in answer.split("\n") if line] if stream else [answer]
        calls = [call for line in lines for call in line["message"].get("tool_calls", ())]
        for call in calls:
            call.pop("id") if stream else None  # as older clients hold them
        return [(c["function"]["name"], json.dumps(c["function"]["arguments"]), c.get("id")) for c in calls], lines[0]["message"]

    def go_on(self, server, schema, message, calls):
        message = {**message, "tool_calls": [{"function": {k: v for k, v in c["function"].items() if k != "index"}}
                                             for c in message.get("tool_calls", ())]}  # fmt: skip
        results = [{"role": "tool", "tool_name": "f", "content": RESULT} for _ in calls]
        self.ask(server, False, messages=[USER, message, *results], tools=[function(schema)], options={"num_predict": 1})


APIS = [Chat(), Messages(), Responses(), Ollama()]
SCHEMA = {"type": "object", "properties": {
    "s": {"type": "string", "description": "d"},
    "os": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"},
    "n": {"type": "number", "description": "d"},
    "on": {"type": ["integer", "null"], "description": "d"},
    "a": {"type": "array", "items": {}, "description": "d"},
    "o": {"type": "object", "description": "d"}}}  # fmt: skip
# Some templates (Hermes 2 Pro, Command R+) recurse without end over lists of types, in jinja2 too.
SIMPLE = {**SCHEMA, "properties": {name: SCHEMA["properties"][name] for name in ("s", "os", "n", "a")}}
ARGUMENTS = {"s": "a\n</parameter>\n <tool_call>\"1,5\n", "os": "1.10", "n": 0.5, "on": None, "a": ["x, y", None, {"k": [True]}],
             "o": {"k": "</tool_call>\n"}}  # fmt: skip


COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}, "required": ["colour"], "additionalProperties": False}

# Templates that write answers as those of the models do: (the template, its calls, what ends a turn).
HEAD = "{%- for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
TURNS = """{%- for m in messages %}{% if m.role == 'assistant' %}[assistant]{{ m.content or '' }}CALLS{% else %}[{{ m.role }}]{{ m.content }}{% endif %}<|end|>
{%- endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
EACH = """{%- for c in m.tool_calls or [] %}BEGIN
{%- for k, v in c.function.arguments.items() %}PARAMETER{% endfor %}END{% endfor %}"""


def each(begin, parameter, end, open="", close=""):
    """What is written for a message's calls."""
    text = EACH.replace("BEGIN", begin).replace("PARAMETER", parameter).replace("END", end)
    return f"{{%- if m.tool_calls %}}{open}{text}{close}{{% endif %}}"


VALUE = "{{ v if v is string else v | tojson }}"
ELEMENTS = {
    "muse": (
        """{%- for m in messages %}{% if m.role == 'assistant' %}
{%- if m.tool_calls %}CALLS{% else %}{{ '<|start|>assistant to=user<|message|>' + m.content }}{% endif %}<|eot|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}""",
        each("{{ ('<|eom|>' if not loop.first else '') + '<|start|>assistant to=' + c.function.name + '<|message|><atem:function_calls>\n"
             "<atem:invoke name=\"' + c.function.name + '\">\n' }}",
             "{{ '<atem:parameter name=\"' + k + '\">' }}" + VALUE + "{{ '</atem:parameter>\n' }}",
             "{{ '</atem:invoke>\n</atem:function_calls>' }}"), "<|eot|>"),
    "kimi-k3": (
        """{%- for m in messages %}{% if m.role == 'assistant' %}
{{- '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>' + (m.content or '') + '<|close|>response<|sep|>' }}CALLS
{{- '<|close|>message<|sep|><|end_of_msg|>' }}{% else %}<|open|>message role="{{ m.role }}"<|sep|>{{ m.content }}<|close|>message<|sep|><|end_of_msg|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>' }}{% endif %}""",
        each("{{ '<|open|>call tool=\"' + c.function.name + '\" index=\"' + loop.index | string + '\"<|sep|>' }}",
             "{{ '<|open|>argument key=\"' + k + '\" type=\"' + ('string' if v is string else 'other') + '\"<|sep|>' }}" + VALUE +
             "<|close|>argument<|sep|>", "<|close|>call<|sep|>", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"), "<|end_of_msg|>"),
    "hy3": (TURNS, each(
        "{{ '<tool_call:opensource>' + c.function.name + '<tool_sep:opensource>\n' }}",
        "{{ '<arg_key:opensource>' + k + '</arg_key:opensource>\n<arg_value:opensource>' }}" + VALUE + "{{ '</arg_value:opensource>\n' }}",
        "{{ '</tool_call:opensource>\n' }}", "{{ '<tool_calls:opensource>\n' }}", "</tool_calls:opensource>"), "<|end|>"),
    "minicpm": (TURNS, each(
        "{{ '<function name=\"' + c.function.name + '\">' }}",
        "{{ '<param name=\"' + k + '\">' }}{{ '<![CDATA[' + v + ']]>' if v is string and '<' in v else v }}</param>", "</function>"), "<|end|>"),
    "minimax-m1": (TURNS, each(
        "{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + c.function.arguments | tojson + '}\n' }}", "", "",
        "{{ '<tool_calls>\n' }}", "</tool_calls>"), "<|end|>"),
}  # fmt: skip


def setUpModule():
    """A model for all servers. The grammar forces the answers, so a form serves that makes long prompts and answers cheap."""
    global MODEL
    if STORIES.exists():
        folder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(folder.cleanup)
        MODEL = Path(folder.name) / STORIES.stem
        subprocess.run([PROGRAM, "transform", STORIES, MODEL, "--kv-layers", "1", "--group", "4"], check=True, capture_output=True)


@contextlib.contextmanager
def serving(template, *words):
    server = Server(MODEL, "--ctx", 8192, "--evict", "snapkv:64,16,5", "--template", template, *words)
    try:
        yield server
    finally:
        server.stop()


def renderer(server, schema):
    def render(messages, begins):
        status, _, answer = server.ask("POST", "/apply-template", {
            "messages": messages, "tools": [function(schema)], "add_generation_prompt": begins, **QUIET})  # fmt: skip
        return answer["prompt"] if status == 200 else None

    return render


def takes(server, schema):
    return renderer(server, schema)([USER], True) is not None


def round_trip(server, template, schema, arguments, thinks=False):
    """What the template writes for the call comes back from every API, and goes in again with a result. thinks: the prompt
    has opened a thought, so its end stands in front of the call."""
    render = renderer(server, schema)
    prompt, text = text_of_call(render, arguments)
    if text is None:
        raise AssertionError(f"{template.stem} writes no call, or refuses one")
    alone = prompt == render([USER], True)  # some templates write other turns in front of calls
    text = re.sub(r"^\s*</think>\s*", "", text)
    alone = alone and not thinks
    count()
    for api in APIS:
        for stream in (False, True):
            story = f"{template.stem}, {api.path}, stream {stream}, seed {SEED}: {text!r}"
            calls, answer = api.force(server, stream, schema, text)
            if [name for name, _, _ in calls] != ["f"]:
                raise AssertionError(f"{story}: {calls}, {answer}")
            got = json.loads(calls[0][1])
            if json.dumps(got, sort_keys=True) != json.dumps(arguments, sort_keys=True):
                raise AssertionError(f"{story}: {got}, expected {arguments}")
            if alone and api is APIS[0] and not stream and (answer["content"] or "").strip():
                raise AssertionError(f"{story}: text beside the call: {answer}")
            if answer is not None:
                api.go_on(server, schema, answer, calls)


def histories(template, server, schema):
    """Ids and arguments of any shape are taken by the chat API, and what they say reaches the model."""
    tools = [function(schema)]
    shapes = [(id, '{"s": "SKVTEXT"}') for id in ("call_0123456789abcdef", "toolu_01A", "abcdefgh1", "x", "", None, 7)]
    shapes += [("call_1", said) for said in ("{", "", " ", "null", None, '{"s": "SKVTEXT', '{"s": "SKVTEXT", "n": 1', "SKVTEXT",
                                            '["SKVTEXT"]', {"s": "SKVTEXT"}, ["SKVTEXT"], '{"s": ' + 47 * "[" + '"SKVTEXT"',
                                            '{"s": ' + 70 * "[" + '"SKVTEXT"', 70 * '{"s":' + '"SKVTEXT"' + 70 * "}")]  # fmt: skip
    for id, said in shapes:
        call = {"type": "function", "function": {"name": "f", "arguments": said}, **({} if id is None else {"id": id})}
        result = {"role": "tool", "content": RESULT, **({} if id is None else {"tool_call_id": id})}
        messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
        status, _, answer = server.ask("POST", "/apply-template", {"messages": messages, "tools": tools, **QUIET})
        if status != 200 or RESULT not in answer["prompt"] or "SKVTEXT" in str(said) and "SKVTEXT" not in answer["prompt"]:
            raise AssertionError(f"{template.stem}: id {id!r}, arguments {said!r}: {answer}")


def shapes(template, server):
    """Histories that other models and interrupted clients leave: all of their calls, results and turns reach the model."""
    bare = {"type": "object", "properties": {"s": {"type": "string"}}}  # without descriptions

    def called(*numbers):
        return {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "id": f"abcdefgh{i}", "function": {"name": "f", "arguments": json.dumps({"s": f"SKVCALL{i}"})}}
            for i in numbers]}  # fmt: skip

    def result(i):
        return {"role": "tool", "tool_call_id": f"abcdefgh{i}", "content": f"SKVRESULT{i}"}

    users = [{"role": "user", "content": f"SKVUSER{i}"} for i in range(3)]
    said = [{"role": "assistant", "content": f"SKVSAID{i}"} for i in range(2)]
    for messages in (
        [users[0], called(1, 2, 3), result(1), result(2), result(3)],
        [users[0], called(1, 2, 3), result(3), result(1), result(2), said[0], users[1]],
        [users[0], called(1, 2), result(2), users[1]],
        [users[0], users[1], said[0], said[1], users[2]],
        [said[0], users[0]],
        [result(1), said[0], users[0]],
        [called(1), result(1), users[0]],
        [{"role": "system", "content": "SKVSYSTEM"}, said[0], users[0], users[1]],
    ):
        status, _, answer = server.ask("POST", "/apply-template", {"messages": messages, "tools": [function(bare)], **QUIET})
        lost = [word for word in re.findall(r"SKV[A-Z]+\d*", json.dumps(messages)) if status != 200 or word not in answer["prompt"]]
        if lost:
            raise AssertionError(f"{template.stem}: {lost} of {messages}: {answer}")
        for i in (1, 2, 3):
            call, told = answer["prompt"].find(f"SKVCALL{i}"), answer["prompt"].find(f"SKVRESULT{i}")
            if call >= 0 and told >= 0 and call > told:
                raise AssertionError(f"{template.stem}: result {i} in front of its call: {answer}")


def deep(server, template, schema):
    """A call that opens brackets on and on is answered as a call or as text, and either goes back."""
    for depth, api in ((46, APIS[1]), (46, APIS[3]), (60, APIS[0]), (70, APIS[2])):
        _, text = text_of_call(renderer(server, schema), {"a": [42424]})
        text = re.sub(r"\[\s*42424\s*\]", depth * "[" + depth * "]", text)
        calls, answer = api.force(server, False, schema, text)
        if not calls and "[[[" not in json.dumps(answer):
            raise AssertionError(f"{template.stem}, {api.path}, {depth} levels: {text!r}: {answer}")
        try:
            api.go_on(server, schema, answer, calls)
        except AssertionError as e:
            if "maximum context length" not in str(e):  # some templates indent each level
                raise


def thinks_anyway(server):
    """Whether its prompts open a thought although none is wanted: answers are free until its end, so none can be forced."""
    status, _, answer = server.ask("POST", "/v1/chat/completions", {"messages": [USER], "grammar": 'root ::= "x"', "max_tokens": 1, **QUIET})
    return status == 200 and answer["choices"][0]["message"]["content"] != "x"


def check_template(template):
    with serving(template) as server:
        schema = SCHEMA if takes(server, SCHEMA) else SIMPLE
        histories(template, server, schema)
        shapes(template, server)
        thinks = thinks_anyway(server)
        form = "generic" if any("no known format" in line for line in server.lines) else "its own"
        if not thinks:
            check_calls(template, server, schema, False)
    if thinks:  # to this server thoughts are text, in which calls are forced
        with serving(template, "--reasoning-format", "none") as server:
            check_calls(template, server, schema, True)
    return "thinks" if thinks else form


def check_calls(template, server, schema, thinks):
    round_trip(server, template, schema, {name: ARGUMENTS[name] for name in schema["properties"]}, thinks)
    deep(server, template, schema)
    if CASES == 0 or not hypothesis:
        return

    @hypothesis.seed(SEED)
    @hypothesis.settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(parameters(st))
    def case(pair):
        hypothesis.assume(takes(server, pair[0]) and all(call_is_clear(form, *pair) for form in XML_ENDS))
        round_trip(server, template, *pair, thinks)

    case()


@unittest.skipUnless(STORIES.exists() and FOLDER.exists(), "../shared/assets is absent")
class EveryTemplateTest(unittest.TestCase):
    def test_round_trip(self):
        with ThreadPoolExecutor(2) as pool:
            tasks = {template: pool.submit(check_template, template) for template in TEMPLATES if template.exists()}
        forms = []
        for template, task in tasks.items():
            with self.subTest(template=template.stem, seed=SEED, cases=CASES):
                forms.append(task.result())
        self.assertGreater(len(forms), 20)
        self.assertIn("thinks", forms)


@unittest.skipUnless(STORIES.exists() and FOLDER.exists(), "../shared/assets is absent")
class OneTemplateTest(unittest.TestCase):
    def test_short_ids(self):
        """A call and its result have one id, which is the same in every request; an id that fits stays."""
        with serving(FOLDER / "mistralai-Mistral-Nemo-Instruct-2407.jinja") as server:
            def prompt(*ids):
                calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
                messages = [USER, {"role": "assistant", "content": "", "tool_calls": calls},
                            *({"role": "tool", "tool_call_id": id, "content": RESULT} for id in reversed(ids))]  # fmt: skip
                return server.post("/apply-template", messages=messages, tools=[function(SCHEMA)])["prompt"]

            said = prompt("call_1", "call_2", "abcdefgh1")
            ids = re.findall(r'"id": "([^"]*)"', said)
            self.assertEqual(re.findall(r'"call_id": "([^"]*)"', said), ids[::-1])
            self.assertEqual((len(set(ids)), ids[2]), (3, "abcdefgh1"))
            self.assertTrue(all(re.fullmatch("[0-9A-Za-z]{9}", id) for id in ids), ids)
            self.assertEqual(said, prompt("call_1", "call_2", "abcdefgh1"))
            call = '[TOOL_CALLS][{"name": "f", "arguments": {"s": "x"}, "id": "q1w2e3r4t"}]'
            for api in APIS[:3]:
                for stream in (False, True):
                    ((_, _, id),), _ = api.force(server, stream, SCHEMA, call)
                    self.assertEqual(id, "q1w2e3r4t", api.path)

    def test_ids_of_the_model(self):
        with serving(FOLDER / "moonshotai-Kimi-K2.jinja") as server:
            text = ("<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
                    "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>")
            for api in APIS[:3]:
                calls, _ = api.force(server, False, SCHEMA, text)
                self.assertEqual(calls[0][2], "functions.f:0")
                self.assertNotEqual(calls[1][2], calls[0][2])

    def test_lost_calls_are_written(self):
        for name, part in (("LFM2-8B-A1B", '<|tool_call_start|>[f(s="secret7")]<|tool_call_end|>'),
                           ("LFM2.5-Instruct", '<|tool_call_start|>[f(s="secret7")]<|tool_call_end|>'),
                           ("ibm-granite-granite-3.3-2B-Instruct", '<|tool_call|>[{"name": "f", "arguments": {"s": "secret7"}}]')):
            with serving(FOLDER / f"{name}.jinja") as server:
                messages = [USER, {**called('{"s": "secret7"}'), "content": "Well."},
                            {"role": "tool", "tool_call_id": "abcdefgh1", "content": RESULT}]  # fmt: skip
                prompt = server.post("/apply-template", messages=messages, tools=[function(SCHEMA)])["prompt"]
                self.assertIn("Well." + part, prompt)
                self.assertIn(RESULT, prompt)

    def test_form_is_what_the_template_writes(self):
        """No sign of the template's text tells its form."""
        text = ("{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}[{{ m.role }}] {{ m.content }}"
                "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": {{ c.function.name | tojson }}, {{ '\"' }}arguments{{ '\"' }}: "
                "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}\n{% endfor %}"
                "{% if add_generation_prompt %}[assistant] {% endif %}")  # fmt: skip
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(text)
            file.flush()
            with serving(file.name) as server:
                self.assertFalse(any("no known format" in line for line in server.lines), server.lines)
                round_trip(server, Path(file.name), SCHEMA, ARGUMENTS)

    def test_messages_and_elements(self):
        """The forms of Muse, whose calls are messages to functions, of Kimi K3, and of Hy3, MiniCPM 5 and MiniMax M1: read,
        demanded, and with nothing of their frames left as text."""
        for name, (text, call, end) in ELEMENTS.items():
            with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
                file.write(HEAD + text.replace("CALLS", call))
                file.flush()
                with self.subTest(name), serving(file.name) as server:
                    self.assertFalse(any("no known format" in line for line in server.lines), server.lines)
                    round_trip(server, Path(file.name), SCHEMA, ARGUMENTS)
                    prompt = renderer(server, SCHEMA)([USER], True)
                    history = renderer(server, SCHEMA)([USER, {"role": "assistant", "content": "SKVSAID"}], False)
                    said = history.removeprefix(prompt).removesuffix(end)
                    body = {"messages": [USER], "tools": [function(COLOUR)], **QUIET}
                    answer = server.post(Chat.path, **body, grammar=literal(said))["choices"][0]["message"]
                    self.assertEqual((answer["content"], answer.get("tool_calls")), ("SKVSAID", None), said)
                    forced = {**body, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400, "seed": 1}
                    message = server.post(Chat.path, **forced)["choices"][0]["message"]
                    self.assertIn(json.loads(message["tool_calls"][0]["function"]["arguments"])["colour"], ("red", "green"))
                    self.assertFalse((message["content"] or "").strip(), message)

    def test_kinds(self):
        """Answers as models really write them."""
        def coder(value, schema):
            return f"<tool_call>\n<function=f>\n<parameter=s>\n{value}\n</parameter>\n</function>\n</tool_call>", {
                "type": "object", "properties": {"s": schema}}  # fmt: skip

        optional = {"anyOf": [{"type": "string"}, {"type": "null"}]}
        cases = [
            (*coder("1,5", {}), {"s": "1,5"}),
            (*coder("1, 2", {"type": "array"}), {"s": "1, 2"}),
            (*coder("1.10", optional), {"s": "1.10"}),
            (*coder("1.10", {"$ref": "#/$defs/o"}), {"s": "1.10"}),
            (*coder("None", optional), {"s": None}),
            (*coder("a\n</parameter>\nb", {"type": "string"}), {"s": "a\n</parameter>\nb"}),
            (*coder("a\n</parameter>\n<parameter=s>\nb", {"type": "string"}), {"s": "b"}),
            ("I look.\n\n<function=f>\n<parameter=s>\n*.md\n</parameter>\n</function>\n</tool_call>", SCHEMA, {"s": "*.md"}),
        ]
        for _, schema, _ in cases:
            schema.setdefault("$defs", {"o": optional}) if schema is not SCHEMA else None
        with serving(FOLDER / "Qwen3-Coder.jinja") as server:
            for text, schema, want in cases:
                for api in APIS:
                    for stream in (False, True) if api is APIS[0] else (False,):
                        with self.subTest(text=text, api=api.path, stream=stream):
                            ((_, said, _),), _ = api.force(server, stream, schema, text)
                            self.assertEqual(json.loads(said, object_pairs_hook=self.pairs), want)
            text = "a\n\n<tool_call> is a mark"
            _, message = APIS[0].force(server, False, SCHEMA, text)
            self.assertEqual(message["content"], text)
            enforced = {"type": "object", "properties": {"s": {"anyOf": [{"enum": ["1.10", "x"]}, {"type": "null"}]}},
                        "required": ["s"], "additionalProperties": False}  # fmt: skip
            answer = server.post(APIS[0].path, messages=[USER], tools=[function(enforced)], tool_choice="required", max_tokens=300,
                                 parallel_tool_calls=False, **QUIET)  # fmt: skip
            (call,) = answer["choices"][0]["message"]["tool_calls"]
            self.assertIn(json.loads(call["function"]["arguments"])["s"], ("1.10", "x", None))

    def pairs(self, pairs):
        self.assertEqual(len(dict(pairs)), len(pairs))
        return dict(pairs)

    def test_cut_calls_are_text(self):
        text = '<tool_call>\n{"name": "f", "arguments": {"s": "' + 40 * "word " + '"}}\n</tool_call>'
        with serving(FOLDER / "Qwen-Qwen3-0.6B.jinja") as server:
            for api in APIS:
                body = {"grammar": literal(text), "max_tokens": 60, "max_output_tokens": 60, "options": {"num_predict": 60}}
                body["tools"] = api.tools(SCHEMA) if hasattr(api, "tools") else [function(SCHEMA)]
                answer = api.ask(server, False, messages=[USER], input=[USER], **body)
                shown = json.dumps(answer)
                self.assertIn("<tool_call>", shown)
                for part in ("tool_use", '"tool_calls"', '"function_call"'):
                    self.assertNotIn(part, shown.replace('"stop_reason": "tool_use"', ""), api.path)
            for said in ("null", '""', '"{}"'):
                calls, _ = APIS[0].force(server, False, SCHEMA,
                                         f'<tool_call>\n{{"name": "f", "arguments": {said}}}\n</tool_call>')  # fmt: skip
                self.assertEqual([(name, json.loads(said)) for name, said, _ in calls], [("f", {})])
            # A line of Ollama's stream stays one line.
            text = '<tool_call>\n{"name": "f",\n "arguments": {\n  "s": "a\\n"\n }}\n</tool_call>'
            ((_, said, _),), _ = APIS[3].force(server, True, SCHEMA, text)
            self.assertEqual(json.loads(said), {"s": "a\n"})


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    if CASES > 0 and not hypothesis:
        print("the package hypothesis is not installed (tests/clients/requirements.txt): only the fixed cases run")
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
