#!/usr/bin/env python3
"""Serves a model with every chat template of some folders, one after the other, and calls a function through each.

    tools/checks/check_templates.py FOLDER ... [--build FOLDER] [--model MODEL] [--agents TURNS]

For each *.jinja: a conversation with tools is rendered; a demanded call comes with the function's name and arguments of
its schema; the same request as a stream gives the same message, and so does one in which the model decides. With --agents
the sessions of coding agents (tests/clients/sessions) go through each template too: every request is answered, and no
text of the client's is missing from a prompt, by the number of its tokens and, for chats, by its letters. Status 1
where a template fails.
"""
import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/clients/sessions")]

USER = {"role": "user", "content": "Set the lamp to red."}
COLOUR = {"enum": ["red", "green"], "description": "which"}  # Command R+ fails without a description, in jinja2 too
PARAMETERS = {"type": "object", "properties": {"colour": COLOUR}, "required": ["colour"], "additionalProperties": False}
LAMP = {"type": "function", "function": {"name": "set_lamp", "description": "Sets a lamp.", "parameters": PARAMETERS}}
ANY = {"tools": [LAMP], "messages": [USER], "temperature": 0, "seed": 1}
FORCED = {**ANY, "chat_template_kwargs": {"enable_thinking": False, "thinking": False}, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 256}


def gather(chunks):
    """The message that a stream adds up to."""
    message, calls, reason = {"content": "", "reasoning_content": ""}, {}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            for key in message:
                message[key] += choice["delta"].get(key) or ""
            for call in choice["delta"].get("tool_calls", ()):
                name, text = calls.get(call["index"], ("", ""))
                function = call["function"]
                calls[call["index"]] = (name + (function.get("name") or ""), text + (function.get("arguments") or ""))
    return {**message, "calls": [calls[i] for i in sorted(calls)], "reason": reason}


def plain(choice):
    message = choice["message"]
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    return {"content": message["content"] or "", "reasoning_content": message.get("reasoning_content") or "",
            "calls": calls, "reason": choice["finish_reason"]}


def ask(server, **body):
    """The message of a whole answer, which the stream's must equal."""
    path = "/v1/chat/completions"
    whole = plain(server.post(path, **body)["choices"][0])
    streamed = gather(server.chunks(path, **body))
    assert streamed == whole, f"streamed {streamed}, whole {whole}"
    return whole


# Fields of bodies whose texts stand in a prompt; of other members, what is inside.
SHOWN = {"text", "content", "description", "output", "instructions", "path", "command", "name"}
HIDDEN = {"thinking", "reasoning", "reasoning_content", "metadata", "role", "type", "model", "cache_control", "signature"}


def texts_of(value, key=None):
    """The client's texts that a prompt has to hold; templates may leave out thoughts, and texts beside calls."""
    if isinstance(value, dict):
        if value.get("type") in ("reasoning", "thinking", "output_text"):
            return
        for name, one in value.items():
            if name not in HIDDEN and not (name == "content" and value.get("tool_calls")):
                yield from texts_of(json.loads(one) if name == "arguments" else one, name)
    elif isinstance(value, list):
        calls = any(isinstance(one, dict) and one.get("type") == "tool_use" for one in value)
        for one in value:
            if calls and one.get("type") == "text":
                continue
            yield from texts_of(one, key)
    elif isinstance(value, str) and key in SHOWN:
        yield value


def check_agents(server, turns):
    """Sessions as their clients send them. In a prompt a text has about as many tokens as alone."""
    from make_sessions import KINDS, make

    for kind in KINDS:
        for i, request in enumerate(make(kind, turns=turns, scale=0.02, n_tools=8)):
            body, where = request["body"], f"{kind}, request {i}"
            try:
                usage = server.post(request["path"], **body)["usage"]
            except AssertionError as e:
                raise AssertionError(f"{where}: {e}") from None
            texts = [text.strip() for text in texts_of({k: body[k] for k in body if k != "system"}) if len(text) > 8]
            n = usage.get("prompt_tokens") or usage["input_tokens"] + usage.get("cache_read_input_tokens", 0) + usage.get(
                "cache_creation_input_tokens", 0)  # fmt: skip
            least = server.post("/tokenize", content="\n".join(texts))["count"] - 3 * len(texts)
            assert n >= least, f"{where}: a prompt of {n} tokens, its texts have {least}"
            if request["path"].endswith("/chat/completions"):
                shown = {k: body[k] for k in ("messages", "tools")}
                prompt = server.post("/apply-template", **shown)["prompt"]
                said = [text.strip() for text in texts_of(body["messages"]) if len(text) > 8]
                names = [tool["function"]["name"] for tool in body["tools"]]  # not every template writes descriptions
                lost = [line for text in said + names for line in text.split("\n") if line.strip() not in prompt]
                assert not lost, f"{where}: the prompt lacks {lost[:2]}"


def check(template, model, turns):
    import server_process

    server = server_process.Server(model, "--ctx", 8192, "--name", "base,*", "--template", template)
    try:
        prompt = server.post("/apply-template", tools=[LAMP], messages=[USER])["prompt"]
        assert USER["content"] in prompt, "the prompt lacks the message"
        assert "set_lamp" in prompt, "the prompt lacks the function"
        answer = ask(server, **FORCED)
        calls = answer["calls"]
        if answer["reason"] != "length" or not answer["reasoning_content"]:  # a call waits for the end of a thought
            assert [name for name, _ in calls] == ["set_lamp"], calls
            assert json.loads(calls[0][1])["colour"] in COLOUR["enum"], calls
        ask(server, **ANY, max_tokens=24)
        history = [USER, {"role": "assistant", "content": "", "tool_calls": [
            {"id": "abcdefgh1", "type": "function", "function": {"name": "set_lamp", "arguments": '{"colour":"red"}'}}]},
            {"role": "tool", "tool_call_id": "abcdefgh1", "name": "set_lamp", "content": "It shines."}]  # fmt: skip
        prompt = server.post("/apply-template", tools=[LAMP], messages=history)["prompt"]
        assert "It shines." in prompt, "the prompt lacks the result of the call"
        if turns:
            check_agents(server, turns)
        return "instructed by a system text" if any("no known format" in line for line in server.lines) else "its own form"
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--model", type=Path, default=ROOT / "models/mini/base")
    parser.add_argument("--agents", type=int, default=0, metavar="TURNS")
    args = parser.parse_args()
    os.environ["SKV_BUILD"] = str(args.build)
    files = sorted({file.name: file for folder in args.folders for file in folder.glob("*.jinja")}.values())
    n_bad = 0
    for file in files:
        try:
            print(f"ok      {file.stem}: {check(file, args.model, args.agents)}", flush=True)
        except (AssertionError, RuntimeError, KeyError, ValueError) as e:
            n_bad += 1
            print(f"FAILED  {file.stem}: {str(e)[:400]}", flush=True)
    print(f"{len(files) - n_bad} of {len(files)} templates")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
