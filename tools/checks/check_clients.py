#!/usr/bin/env python3
"""Asks `swiftkv serve` through litellm and langchain-openai, as they come from PyPI.

    tools/checks/check_clients.py [--swiftkv PROGRAM] [--model MODEL]

Chats, streams, calls of functions, answers that follow a schema and vectors, through both, and the
Ollama and Anthropic interfaces through litellm. clients-requirements.txt says what Python needs.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/mini/base"
COLOUR = {
    "type": "function",
    "function": {
        "name": "set_colour",
        "description": "Sets the colour of a lamp.",
        "parameters": {
            "type": "object",
            "properties": {"colour": {"enum": ["red", "green"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    },
}
HELLO = [{"role": "user", "content": "Hello"}]


def start(program, model):
    server = subprocess.Popen(
        [program, "serve", model, "--port", "0", "--name", "mini"], stderr=subprocess.PIPE, text=True
    )
    for line in server.stderr:
        found = re.search(r"ready on (\S+)", line)
        if found:
            return server, found.group(1)
    sys.exit("the server did not start")


def check_litellm(url):
    import litellm

    litellm.suppress_debug_info = True
    openai = {"api_base": url + "/v1", "api_key": "none", "max_tokens": 12, "temperature": 0}
    whole = litellm.completion("openai/mini", HELLO, **openai)
    text = whole.choices[0].message.content
    assert whole.usage.completion_tokens == 12, whole
    parts = list(litellm.completion("openai/mini", HELLO, stream=True, **openai))
    assert "".join(p.choices[0].delta.content or "" for p in parts) == text, parts
    called = litellm.completion("openai/mini", HELLO, tools=[COLOUR], tool_choice="required",
                                **openai | {"max_tokens": 200})  # fmt: skip
    call = called.choices[0].message.tool_calls[0].function
    assert call.name == "set_colour" and json.loads(call.arguments)["colour"] in ("red", "green"), called
    vectors = litellm.embedding("openai/mini", ["a", "b"], api_base=url + "/v1", api_key="none",
                                encoding_format="float")  # fmt: skip
    assert len(vectors.data) == 2 and len(vectors.data[0]["embedding"]) > 16
    for name, base in (("ollama_chat/mini", url), ("anthropic/mini", url), ("text-completion-openai/mini", url + "/v1")):
        other = litellm.completion(name, HELLO, api_base=base, api_key="none", max_tokens=12, temperature=0)
        assert other.choices[0].message.content, (name, other)
        print("litellm", name, "ok")


def check_langchain(url):
    import langchain_openai
    import pydantic

    class Lamp(pydantic.BaseModel):
        colour: str = pydantic.Field(pattern="^(red|green)$")

    given = {"model": "mini", "base_url": url + "/v1", "api_key": "none", "temperature": 0}
    chat = langchain_openai.ChatOpenAI(max_tokens=12, **given)
    whole = chat.invoke("Hello")
    assert whole.usage_metadata["output_tokens"] == 12, whole
    assert "".join(part.content for part in chat.stream("Hello")) == whole.content
    longer = langchain_openai.ChatOpenAI(max_tokens=200, **given)
    called = longer.bind_tools([COLOUR], tool_choice="required").invoke("Hello").tool_calls
    assert called[0]["name"] == "set_colour" and called[0]["args"]["colour"] in ("red", "green"), called
    lamp = longer.with_structured_output(Lamp, method="json_schema").invoke("Hello")
    assert lamp.colour in ("red", "green"), lamp
    responses = langchain_openai.ChatOpenAI(max_tokens=12, use_responses_api=True, **given).invoke("Hello")
    assert responses.content, responses
    vectors = langchain_openai.OpenAIEmbeddings(
        model="mini", base_url=url + "/v1", api_key="none", check_embedding_ctx_length=False
    )
    assert len(vectors.embed_documents(["a", "b"])) == 2
    print("langchain-openai ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--swiftkv", default=str(ROOT / "build/swiftkv"))
    parser.add_argument("--model", default=str(MODEL))
    args = parser.parse_args()
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"  # no other host is asked
    server, url = start(args.swiftkv, args.model)
    try:
        check_litellm(url)
        check_langchain(url)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
