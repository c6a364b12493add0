#!/usr/bin/env python3
"""Leads long conversations with tools through other people's clients of `swiftkv serve`, as a new user would.

    tools/checks/check_conversations.py [--turns N] [--seed S] [--client NAME,...] [--template NAME,...]

openai (chats and Responses), anthropic, ollama and langchain-openai each hold the conversation in their own words, whole and
streamed, while this script holds it in OpenAI's. The small model cannot call tools: a grammar makes it say what the template
writes for the answer that is due. Thoughts, where a template can be told to have them, pictures in results, results that are
errors, and requests that are refused and repeated come at random from the seed. Checked at every request: the client reads that text and these calls; what it sends is the
prompt that our words make, by the number of its tokens; and all that was read or written before comes from the prefix cache,
unless the template writes the past otherwise. `--template` names files of ../shared/assets/templates, or all of them and of
tests/data/templates ("all"). tests/clients/requirements.txt and clients-requirements.txt say what Python needs: LangChain wants another openai than the others, so it has a virtual environment of its own.
"""

import argparse
import asyncio
import json
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))

from call_cases import BITS, FOLDERS, HY3_END  # noqa: E402
from call_cases import TEMPLATES as EVERY  # noqa: E402
from call_cases import without_end  # noqa: E402
from server_process import STORIES, Server  # noqa: E402

PAGE = 64  # tokens, which the cache keeps together
SLACK = 1  # token: the one that ends an answer is never read
TEMPLATES = ["Qwen-Qwen3-0.6B", "Qwen3-Coder", "mistralai-Mistral-Nemo-Instruct-2407", "meta-llama-Llama-3.1-8B-Instruct",
             "openai-gpt-oss-120b", "GLM-4.6", "gemma4", "google-gemma-2-2b-it"]  # fmt: skip
READ = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "required": ["path"], "additionalProperties": False}  # fmt: skip
EDIT = {"type": "object", "properties": {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"},
                                         "marks": {"type": "array", "items": {"type": "string"}}},
        "required": ["path", "old", "new"], "additionalProperties": False}  # fmt: skip
NOW = {"type": "object", "properties": {}}
TOOLS = [("read", "Reads a file.", READ), ("edit", "Edits a file.", EDIT), ("now", "Tells the time.", NOW)]
CHAT_TOOLS = [{"type": "function", "function": {"name": n, "description": d, "parameters": p}} for n, d, p in TOOLS]


# ---- what the model says ----


def literal(text):
    """A grammar in GBNF of this text."""
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(old, new)
    return f'root ::= "{text}"'


class Script:
    """What the next answers are. It goes into each request on its way, so that tool runners and agents follow it too."""

    def __init__(self):
        self.texts, self.sent = [], None
        self.more, self.spoils = {}, False  # what the next request has besides; whether it is one that is refused

    def put(self, request):
        body = json.loads(request.content) if request.method == "POST" and request.content else {}
        if not self.texts or not ({"messages", "input"} & set(body)) or "count" in request.url.path or body.get("thread"):
            return request  # a thread is refused, and sent again without
        body |= self.more
        if self.spoils:
            body |= {"top_k": -7, "options": {"top_k": -7}}
        self.sent = dict(body)
        body["grammar"] = literal(self.texts[0] if self.spoils else self.texts.pop(0))
        headers = [(k, v) for k, v in request.headers.items() if k.lower() != "content-length"]
        return type(request)(request.method, request.url, headers=headers, json=body, extensions=request.extensions)

    def transport(self, httpx):
        script = self

        class Transport(httpx.HTTPTransport):
            def handle_request(self, request):
                return super().handle_request(script.put(request))

        return Transport()

    def later(self, httpx):
        script = self

        class Transport(httpx.AsyncHTTPTransport):
            async def handle_async_request(self, request):
                return await super().handle_async_request(script.put(request))

        return Transport()


def http_of(package):
    """The module of HTTP that a package of clients is made with."""
    return sys.modules[package.DefaultHttpxClient.__mro__[1].__module__.split(".")[0]]


class Answer:
    def __init__(self, text, calls, n_prompt=None, n_cached=None, n_said=None, finish=None):
        self.text, self.calls = text or "", calls
        self.n_prompt, self.n_cached, self.n_said, self.finish = n_prompt, n_cached, n_said, finish


PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LEFT_OUT = "[{}: left out, this model reads text only]"


# ---- clients: each holds the conversation in its own words ----


class Client:
    modes = ("whole", "stream", "async")
    counts = "/tokenize"  # where its requests are counted; None: nowhere
    system = "You are an agent. Use the tools."
    picture = "image_url"  # the type of a picture in a result; None: it can have none
    thinks = True  # thoughts go back with the conversation

    def __init__(self, url, script):
        self.url, self.script, self.history = url, script, []
        self.loop = asyncio.new_event_loop()

    def ask(self, mode):
        return self.loop.run_until_complete(self.later()) if mode == "async" else getattr(self, mode)()

    def close(self):
        self.loop.close()


class OpenaiChat(Client):
    def __init__(self, url, script):
        import openai

        super().__init__(url, script)
        self.openai, http = openai, http_of(openai)
        self.given = {"base_url": url + "/v1", "api_key": "x", "max_retries": 0}
        self.api = openai.OpenAI(http_client=http.Client(transport=script.transport(http)), **self.given)
        self.history = [{"role": "system", "content": self.system}]
        self.body = {"model": "m", "tools": CHAT_TOOLS, "temperature": 0}

    def say(self, text):
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def results(self, results):
        for id, _, text, _, picture in results:
            image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PICTURE}}
            content = [{"type": "text", "text": text}, image] if picture else text
            self.history.append({"role": "tool", "tool_call_id": id, "content": content})

    def read(self, completion):
        choice, usage = completion.choices[0], completion.usage
        self.history.append(choice.message)
        calls = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()]
        return Answer(choice.message.content, calls, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens,
                      usage.completion_tokens, choice.finish_reason)  # fmt: skip

    def whole(self):
        return self.read(self.api.chat.completions.create(messages=self.history, **self.body))

    def stream(self):
        options = {"include_usage": True}
        with self.api.chat.completions.stream(messages=self.history, stream_options=options, **self.body) as stream:
            for _ in stream:
                pass
            return self.read(stream.get_final_completion())

    async def later(self):
        http = http_of(self.openai)
        client = http.AsyncClient(transport=self.script.later(http))
        api = self.openai.AsyncOpenAI(http_client=client, **self.given)
        stream = api.chat.completions.stream(messages=self.history, stream_options={"include_usage": True}, **self.body)
        async with stream as events:
            async for _ in events:
                pass
            return self.read(await events.get_final_completion())


class OpenaiResponses(Client):
    counts, picture = "/v1/responses/input_tokens", "input_image"
    system = "Use the tools: you are an agent."  # no two clients begin alike, so that none finds another's prompts

    def __init__(self, url, script):
        import openai

        super().__init__(url, script)
        self.openai, http = openai, http_of(openai)
        self.given = {"base_url": url + "/v1", "api_key": "x", "max_retries": 0}
        self.api = openai.OpenAI(http_client=http.Client(transport=script.transport(http)), **self.given)
        tools = [{"type": "function", "name": n, "description": d, "parameters": p, "strict": False} for n, d, p in TOOLS]
        self.body = {"model": "m", "instructions": self.system, "tools": tools, "temperature": 0, "store": False}

    def say(self, text):
        self.history.append({"role": "user", "content": text})

    def results(self, results):
        for id, _, text, _, picture in results:
            image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64," + PICTURE}
            output = [{"type": "input_text", "text": text}, image] if picture else text
            self.history.append({"type": "function_call_output", "call_id": id, "output": output})

    def read(self, response):
        self.history += response.output
        calls = [(i.call_id, i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]
        usage = response.usage
        return Answer(response.output_text, calls, usage.input_tokens, usage.input_tokens_details.cached_tokens,
                      usage.output_tokens, response.status)  # fmt: skip

    def whole(self):
        return self.read(self.api.responses.create(input=self.history, **self.body))

    def stream(self):
        with self.api.responses.stream(input=self.history, **self.body) as stream:
            for _ in stream:
                pass
            return self.read(stream.get_final_response())

    async def later(self):
        http = http_of(self.openai)
        client = http.AsyncClient(transport=self.script.later(http))
        api = self.openai.AsyncOpenAI(http_client=client, **self.given)
        async with api.responses.stream(input=self.history, **self.body) as events:
            async for _ in events:
                pass
            return self.read(await events.get_final_response())


class Anthropic(Client):
    counts, picture = "/v1/messages/count_tokens", "image"
    system = "As an agent, use the tools."

    def __init__(self, url, script):
        import anthropic

        super().__init__(url, script)
        self.anthropic, http = anthropic, http_of(anthropic)
        self.given = {"base_url": url, "api_key": "x", "max_retries": 0}
        self.api = anthropic.Anthropic(http_client=http.Client(transport=script.transport(http)), **self.given)
        tools = [{"name": n, "description": d, "input_schema": p} for n, d, p in TOOLS]
        self.body = {"model": "m", "system": self.system, "tools": tools, "max_tokens": 4000}

    def say(self, text):
        self.history.append({"role": "user", "content": text})

    def results(self, results):
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        blocks = []
        for id, _, text, bad, picture in results:
            content = [{"type": "text", "text": text}, {"type": "image", "source": source}] if picture else text
            blocks.append({"type": "tool_result", "tool_use_id": id, "is_error": bad, **({"content": content} if content else {})})
        self.history.append({"role": "user", "content": blocks})

    def read(self, message):
        self.history.append({"role": "assistant", "content": message.content})
        calls = [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]
        usage = message.usage
        return Answer("".join(b.text for b in message.content if b.type == "text"), calls,
                      usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens, usage.cache_read_input_tokens, usage.output_tokens,
                      message.stop_reason)  # fmt: skip

    def whole(self):
        return self.read(self.api.messages.create(messages=self.history, **self.body))

    def stream(self):
        with self.api.messages.stream(messages=self.history, **self.body) as stream:
            for _ in stream:
                pass
            return self.read(stream.get_final_message())

    async def later(self):
        http = http_of(self.anthropic)
        client = http.AsyncClient(transport=self.script.later(http))
        api = self.anthropic.AsyncAnthropic(http_client=client, **self.given)
        async with api.messages.stream(messages=self.history, **self.body) as events:
            async for _ in events:
                pass
            return self.read(await events.get_final_message())


class Ollama(Client):
    """It knows no ids of calls, no count of cached tokens, and parts of no kind."""

    counts = picture = None
    system = "Tools are there for you, the agent."

    def __init__(self, url, script):
        import httpx
        import ollama

        super().__init__(url, script)
        self.ollama, self.httpx = ollama, httpx
        self.api = ollama.Client(host=url, transport=script.transport(httpx))
        self.history = [{"role": "system", "content": self.system}]
        self.body = {"model": "m", "tools": CHAT_TOOLS, "options": {"temperature": 0}}

    def say(self, text):
        self.history.append({"role": "user", "content": text})

    def results(self, results):
        for _, name, text, _, _ in results:
            self.history.append({"role": "tool", "tool_name": name, "content": text})

    def read(self, answers):
        calls = [c for a in answers for c in a.message.tool_calls or ()]
        text = "".join(a.message.content or "" for a in answers)
        thought = "".join(a.message.thinking or "" for a in answers)
        self.history.append({"role": "assistant", "content": text, "thinking": thought, "tool_calls": calls})
        calls = [(None, c.function.name, dict(c.function.arguments)) for c in calls]
        return Answer(text, calls, answers[-1].prompt_eval_count, None, answers[-1].eval_count, answers[-1].done_reason)

    def whole(self):
        return self.read([self.api.chat(messages=self.history, **self.body)])

    def stream(self):
        return self.read(list(self.api.chat(messages=self.history, stream=True, **self.body)))

    async def later(self):
        api = self.ollama.AsyncClient(host=self.url, transport=self.script.later(self.httpx))
        return self.read([a async for a in await api.chat(messages=self.history, stream=True, **self.body)])


class Langchain(Client):
    system = "Agent, use the tools."
    thinks = False

    def __init__(self, url, script):
        import langchain_core.messages
        import langchain_openai
        import openai

        super().__init__(url, script)
        http = http_of(openai)
        self.kinds = langchain_core.messages
        chat = langchain_openai.ChatOpenAI(model="m", base_url=url + "/v1", api_key="x", temperature=0, stream_usage=True,
                                           http_client=http.Client(transport=script.transport(http)),
                                           http_async_client=http.AsyncClient(transport=script.later(http)),
                                           max_retries=0)  # fmt: skip
        self.model = chat.bind_tools(CHAT_TOOLS)
        self.history = [self.kinds.SystemMessage(self.system)]

    def say(self, text):
        self.history.append(self.kinds.HumanMessage(text))

    def results(self, results):
        for id, name, text, bad, picture in results:
            image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PICTURE}}
            content = [{"type": "text", "text": text}, image] if picture else text
            self.history.append(self.kinds.ToolMessage(content, tool_call_id=id, name=name, status="error" if bad else "success"))

    def read(self, message):
        self.history.append(message)
        usage = message.usage_metadata
        if message.invalid_tool_calls:
            raise AssertionError(message.invalid_tool_calls)
        calls = [(c["id"], c["name"], c["args"]) for c in message.tool_calls]
        return Answer(message.content, calls, usage["input_tokens"], usage["input_token_details"]["cache_read"],
                      usage["output_tokens"], message.response_metadata["finish_reason"])  # fmt: skip

    def whole(self):
        return self.read(self.model.invoke(self.history))

    def join(self, chunks):
        whole = None
        for chunk in chunks:
            whole = chunk if whole is None else whole + chunk
        return self.read(whole)

    def stream(self):
        return self.join(list(self.model.stream(self.history)))

    async def later(self):
        return self.join([chunk async for chunk in self.model.astream(self.history)])


CLIENTS = {"openai": OpenaiChat, "responses": OpenaiResponses, "anthropic": Anthropic, "ollama": Ollama, "langchain": Langchain}


# ---- the conversation ----


def thinking(on):
    """What templates call it."""
    return {"enable_thinking": on, "thinking": on}


def a_text(draw):
    return "".join(draw.choice(BITS) for _ in range(draw.randint(1, 6)))


def a_call(draw):
    name = draw.choice(["read", "read", "edit", "now"])
    if name == "now":
        return name, {}
    if name == "read":
        limit = draw.choice([{}, {"limit": draw.randint(0, 99)}, {"limit": None}])
        return name, {"path": draw.choice(["a.py", "src/b c.txt", "/x/ü.md"]), **limit}
    marks = draw.choice([{}, {"marks": [a_text(draw) for _ in range(draw.randint(0, 2))]}])
    return name, {"path": "a.py", "old": "x = 1\n", "new": "y = \"2\"\n  z, w\n" + draw.choice(["", "é😀\\n", "<b>&amp;"]), **marks}


def a_result(draw):
    """(text, whether it is an error, whether a picture is with it)"""
    kind = draw.choice(["short", "short", "empty", "error", "large", "odd"])
    text = {"short": "ok", "empty": "", "error": "Error: no such file", "large": "line of a file\n" * draw.randint(5, 30),
            "odd": 'a "b"\t\\ {"c": [1]} ünï 😀\n\n'}[kind]  # fmt: skip
    return text, kind == "error", bool(text) and draw.random() < 0.2


class Conversation:
    def __init__(self, server, client, many, seed, thinks=False):
        self.thinks, self.server, self.client, self.many, self.draw = thinks, server, client, many, random.Random(seed)
        self.messages = [{"role": "system", "content": client.system}]
        self.known = self.n_last = 0  # tokens of the last request with its answer; of its prompt
        self.told = self.prompt = ""  # their texts
        self.n_rewritten = 0  # requests whose template writes the past otherwise than it was read
        self.more = {}  # what the next request has besides
        self.n_thoughts = self.n_pictures = self.n_refused = self.n_plain = 0
        self.misses, self.faults, self.n_requests, self.n_cached, self.n_prompt = [], [], 0, 0, 0

    def render(self, messages, begins):
        status, _, answer = self.server.ask("POST", "/apply-template", {
            "messages": messages, "tools": CHAT_TOOLS, "add_generation_prompt": begins, **self.more})  # fmt: skip
        return answer["prompt"] if status == 200 else None

    def wanted(self, message):
        """What the template writes for this answer, from the end of the prompt on; None: it cannot be told."""
        prompt, whole = self.render(self.messages, True), self.render([*self.messages, message], False)
        plain = self.render([*self.messages, {"role": "assistant", "content": "SKVPLAIN"}], False)
        if not prompt or not whole or not plain or not whole.startswith(prompt):
            return None
        end = plain.split("SKVPLAIN")[-1] or HY3_END
        text = without_end(whole[len(prompt):], end)
        marks = re.findall(r"<[^<>]+>", end)
        if marks and marks[-1] in text:
            return None  # the past has several turns for it, and a model ends its answer with the first
        text = re.sub(r"<\|(eom_id|calls)\|>\s*$", "", text)  # these end an answer with calls
        return text.rstrip() if message.get("tool_calls") and text == whole[len(prompt):] else text

    def plan(self, last):
        n = 0 if last else self.draw.randint(1, 3 if self.many else 1)
        text = self.draw.choice(["I look.", "", "First this,\nthen that."]) if n else "Done: " + self.draw.choice(["yes", "1,5 and more"]) + "."
        calls = [{"type": "function", "id": f"call0000{i}", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}
                 for i, (name, arguments) in enumerate(a_call(self.draw) for _ in range(n))]  # fmt: skip
        return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}

    def fault(self, *what):
        self.faults.append((self.n_requests, *what))

    def check_prompt(self):
        if not self.client.counts:
            return
        want = self.server.post("/tokenize", messages=self.messages, tools=CHAT_TOOLS, **self.more)["count"]
        sent = {k: v for k, v in self.client.script.sent.items() if k != "stream"}
        got = self.server.post(self.client.counts, **sent)
        if got.get("count", got.get("input_tokens")) != want:
            self.fault("tokens of the prompt", got, want)

    def shared(self, n_prompt):
        """About how many tokens of this prompt the last request and its answer have, and whether that is not all of them."""
        prompt, told, last = self.render(self.messages, True) or "", self.told, self.prompt
        n = self.n_last if prompt.startswith(last) else 0
        whole = prompt.startswith(told)
        self.prompt, self.n_last = prompt, n_prompt
        return min(self.known if whole else n, n_prompt), not whole

    def check(self, message, answer, hits):
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls", ())]
        said = answer.text.strip()
        if self.thinks:  # the end of a thought stands in front of the answer
            said = said[-len(message["content"].strip()):] if message["content"].strip() else ""
        if said != message["content"].strip():
            self.fault("text", answer.text, message["content"])
        if [(name, args) for _, name, args in answer.calls] != calls:
            self.fault("calls", answer.calls, calls)
        self.check_prompt()
        n_prompt = answer.n_prompt
        if answer.n_cached is not None and answer.n_cached != hits:
            self.fault("cached tokens", answer.n_cached, hits)
        shared, rewritten = self.shared(n_prompt)
        if hits < (shared - SLACK) // PAGE * PAGE:
            self.misses.append((self.n_requests, hits, shared, n_prompt))
        self.n_rewritten += rewritten and self.n_requests > 0
        self.known = n_prompt + answer.n_said
        self.n_requests += 1
        self.n_prompt += n_prompt
        self.n_cached += hits

    def think(self, message):
        """The answer begins with a thought, where the template writes one that it is told to have."""
        if self.thinks or not self.client.thinks or self.draw.random() > 0.3:
            return message
        self.more = {"chat_template_kwargs": thinking(True)}
        thinker = {**message, "reasoning_content": self.draw.choice(["Let me see.", "One, two:\n1,5 \"x\" {}"])}
        text = self.wanted(thinker)
        thought = thinker["reasoning_content"]
        opened = text and text.lstrip().startswith(thought)  # by the prompt: answers are free until its end, so none can be forced
        if text and thought in text and not opened and text != self.wanted(message):
            self.n_thoughts += 1
            return thinker
        self.more = {}
        return message

    def refuse(self, mode):
        """A request that no server takes leaves the conversation as it was."""
        if self.draw.random() > 0.15:
            return
        self.client.script.spoils, n = True, len(self.client.history)
        try:
            self.client.ask(mode)
            self.fault("a request that should have been refused", mode)
        except Exception as e:  # whatever a client makes of it
            if "top_k" not in str(e) or len(self.client.history) != n:
                self.fault("refusal", mode, repr(e))
        self.client.script.spoils = False
        self.n_refused += 1

    def answer(self, last, mode):
        self.more = {}
        message = self.think(self.plan(last))
        text = self.wanted(message)
        beside = message["content"] if message.get("tool_calls") else ""
        if text is not None and beside and (beside not in text or "<|channel|>analysis" in text):
            message["content"] = ""  # many templates write no text beside calls, or make it a thought
            text = self.wanted(message)
        if text is None:
            self.more = {}
            message = self.plan(True)
            text = self.wanted(message) or message["content"]
            self.n_plain += 1
        self.client.script.texts.append(text)
        self.client.script.more = self.more
        self.refuse(mode)
        before = self.server.metrics()["prefix_cache_hits_total"]
        answer = self.client.ask(mode)
        self.check(message, answer, self.server.metrics()["prefix_cache_hits_total"] - before)
        self.told = self.prompt + text
        for call, (id, _, _) in zip(message.get("tool_calls", ()), answer.calls):
            call["id"] = id or call["id"]
            if id is None:
                del call["id"]
        self.messages.append({**message, "content": answer.text} if self.thinks else message)
        return answer

    def turn(self, i):
        text = f"Step {i}: go on with {a_text(self.draw)}."
        self.messages.append({"role": "user", "content": text})
        self.client.say(text)
        n = self.draw.randint(0, 3)
        for k in range(n + 1):
            answer = self.answer(k == n, self.draw.choice(self.client.modes))
            results = [(id, name, *a_result(self.draw)) for id, name, _ in answer.calls]
            if not results:
                return
            if not self.client.picture:
                results = [(*result[:4], False) for result in results]
            for id, name, text, _, picture in results:
                self.n_pictures += picture
                left = {"type": "text", "text": LEFT_OUT.format(self.client.picture)}
                content = [{"type": "text", "text": text}, left] if picture else text
                self.messages.append({"role": "tool", "content": content, **({"tool_call_id": id} if id else {"name": name})})
            self.client.results(results)
        self.answer(True, "whole")


def one_call_alone(server):
    """Templates of Llama 3 refuse several calls in one message."""
    calls = [{"type": "function", "id": f"abcdefgh{i}", "function": {"name": "now", "arguments": "{}"}} for i in range(2)]
    shown = server.ask("POST", "/apply-template", {"messages": [{"role": "user", "content": "x"}, {
        "role": "assistant", "content": "", "tool_calls": calls}], "tools": CHAT_TOOLS})  # fmt: skip
    return shown[0] != 200 or "<|python_tag|>" in str(shown[2]) or "eot_id" in str(shown[2])


def thinks_anyway(server):
    """Whether its prompts open a thought although none is wanted: answers are free until its end, so none can be forced."""
    body = {"messages": [{"role": "user", "content": "Q?"}], "tools": CHAT_TOOLS, "grammar": literal("x"), "max_tokens": 1}
    return server.post("/v1/chat/completions", **body)["choices"][0]["message"]["content"] != "x"


def find_template(name):
    return next(path for folder in FOLDERS for path in [Path(folder) / f"{name}.jinja"] if path.exists())


def drive(template, thinks, args):
    """Holds a template's conversations, and returns the faults; None: its prompts open a thought. thinks: thoughts are text
    to the server, so that answers can be forced behind such prompts too."""
    server = Server(STORIES, "--ctx", 65536, "--kv-tokens", 131072, "--name", "m", "--template", find_template(template),
                    "--chat-template-kwargs", json.dumps(thinking(False)), *(["--reasoning-format", "none"] if thinks else []))  # fmt: skip
    bad = 0
    try:
        if not thinks and thinks_anyway(server):
            return None
        many = not one_call_alone(server)
        for name in args.client.split(","):
            client = CLIENTS[name](f"http://127.0.0.1:{server.port}", Script())
            talk = Conversation(server, client, many, args.seed, thinks)
            try:
                for i in range(args.turns):
                    talk.turn(i)
            except Exception as e:  # whatever a client makes of it: the conversation has ended there
                talk.fault("the conversation ended", type(e).__name__, e)
            client.close()
            print(f"{template}, {name}: {args.turns} turns, {talk.n_requests} requests, {talk.n_refused} refused, {talk.n_plain} calls that cannot be forced, {talk.n_thoughts} thoughts, {talk.n_pictures} pictures, {talk.n_prompt} tokens of prompts, "
                  f"{talk.n_cached:.0f} cached, {talk.n_rewritten} times the past was written otherwise, {len(talk.misses)} misses, {len(talk.faults)} faults{', in an opened thought' if thinks else ''}", flush=True)
            for one in talk.misses[:5]:
                print("    miss: request {}: {:.0f} of {} cached, prompt {}".format(*one))
            for one in talk.faults[:5]:
                print("    fault:", *(str(part)[:300] for part in one))
            bad += len(talk.faults)
    finally:
        server.stop()
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", default=",".join(CLIENTS))
    parser.add_argument("--template", default=",".join(TEMPLATES))
    args = parser.parse_args()
    bad = 0
    for template in [path.stem for path in EVERY] if args.template == "all" else args.template.split(","):
        n = drive(template, False, args)
        bad += drive(template, True, args) if n is None else n
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
