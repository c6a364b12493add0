#!/usr/bin/env python3
"""Serves a model with every chat template of some folders, one after the other, and calls a function through each.

    tools/checks/check_templates.py FOLDER ... [--build FOLDER] [--model MODEL]

For each *.jinja: a conversation with tools is rendered; a demanded call comes with the function's name and arguments of
its schema; the same request as a stream gives the same message, and so does one in which the model decides. Status 1
where a template fails.
"""
import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

USER = {"role": "user", "content": "Set the lamp to red."}
COLOUR = {"enum": ["red", "green"], "description": "which"}  # Command R+ fails without a description, in jinja2 too
PARAMETERS = {"type": "object", "properties": {"colour": COLOUR}, "required": ["colour"], "additionalProperties": False}
LAMP = {"type": "function", "function": {"name": "set_lamp", "description": "Sets a lamp.", "parameters": PARAMETERS}}
ANY = {"tools": [LAMP], "messages": [USER], "temperature": 0, "seed": 1}
FORCED = {**ANY, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 256}


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


def check(template, model):
    import server_process

    server = server_process.Server(model, "--ctx", 8192, "--template", template)
    try:
        prompt = server.post("/apply-template", tools=[LAMP], messages=[USER])["prompt"]
        assert USER["content"] in prompt, "the prompt lacks the message"
        assert "set_lamp" in prompt, "the prompt lacks the function"
        calls = ask(server, **FORCED)["calls"]
        assert [name for name, _ in calls] == ["set_lamp"], calls
        assert json.loads(calls[0][1])["colour"] in COLOUR["enum"], calls
        ask(server, **ANY, max_tokens=24)
        history = [USER, {"role": "assistant", "content": "", "tool_calls": [
            {"id": "abcdefgh1", "type": "function", "function": {"name": "set_lamp", "arguments": '{"colour":"red"}'}}]},
            {"role": "tool", "tool_call_id": "abcdefgh1", "name": "set_lamp", "content": "It shines."}]  # fmt: skip
        prompt = server.post("/apply-template", tools=[LAMP], messages=history)["prompt"]
        assert "It shines." in prompt, "the prompt lacks the result of the call"
        return "instructed by a system text" if any("no known format" in line for line in server.lines) else "its own form"
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--model", type=Path, default=ROOT / "models/mini/base")
    args = parser.parse_args()
    os.environ["SKV_BUILD"] = str(args.build)
    files = sorted({file.name: file for folder in args.folders for file in folder.glob("*.jinja")}.values())
    n_bad = 0
    for file in files:
        try:
            print(f"ok      {file.stem}: {check(file, args.model)}", flush=True)
        except (AssertionError, RuntimeError, KeyError, ValueError) as e:
            n_bad += 1
            print(f"FAILED  {file.stem}: {str(e)[:400]}", flush=True)
    print(f"{len(files) - n_bad} of {len(files)} templates")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
