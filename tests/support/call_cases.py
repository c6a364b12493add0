"""Calls of functions for properties: parameters of every kind of type, values that hold the marks of all published
forms, and what a chat template writes for a call.

The values are those that a form can tell apart: call_is_clear says which are not.
SKV_CALL_TEMPLATES is a folder of further templates.
"""

import json
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [ROOT / "../shared/assets/templates", ROOT / "tests/data/templates", *filter(None, [os.environ.get("SKV_CALL_TEMPLATES")])]
TEMPLATES = [path for folder in FOLDERS for path in sorted(Path(folder).glob("*.jinja"))]
USER = {"role": "user", "content": "Q?"}
PLAIN = "SKVPLAIN"
HY3_END = "<｜hy_eos:opensource｜>"  # which its template writes behind the last message only if this has calls

MARKS = ["<tool_call>", "</tool_call>", "<function=f>", "</function>", "<parameter=s>", "</parameter>", "<arg_key>", "</arg_key>",
         "<arg_value>", "</arg_value>", '<|"|>', "<|tool_call>", "<tool_call|>", "[TOOL_CALLS]", "[ARGS]", "<｜DSML｜invoke name=\"f\">",
         "</｜DSML｜parameter>", "</｜DSML｜invoke>", "<|tool_call_end|>", "<|tool_call_start|>", "<|python_tag|>", "```", "<|call|>",
         "</invoke>", "<|close|>argument<|sep|>", "<|open|>", "</atem:parameter>", "<|eom|>", "</arg_value:opensource>", "</param>", "]]>",
         "</tool_calls>", "<think>", "</think>", "<|im_end|>"]  # fmt: skip
BITS = [*MARKS, "\n", "\n\n", " ", "  ", "\t", ",", "1,5", "1.10", "007", "null", "None", "true", '"', "'", "\\", "\\n", "{", "}", "[", "]",
        "(", ")", ":", "=", ";", "a", "b c", "ä", "日本", "😀", "é", "/", "0", "<", ">", "%", "</", "#"]  # fmt: skip

# What ends a value of XML: two texts in a row leave no doubt, and no form can do better.
XML_ENDS = {
    "qwen3-coder": r"</parameter>\s*(<parameter=|</function>)",
    "seed": r"</parameter>\s*(<parameter=|</function>)",
    "minimax-m2": r"</parameter>\s*(<parameter name=\"|</invoke>)",
    "glm": r"</arg_value>\s*(<arg_key>|</tool_call>)",
    "deepseek-v3.2": r"</｜DSML｜parameter>\s*(<｜DSML｜parameter name=\"|</｜DSML｜invoke>)",
    "deepseek-v4": r"</｜DSML｜parameter>\s*(<｜DSML｜parameter name=\"|</｜DSML｜invoke>)",
    "kimi-k3": r"<\|close\|>argument<\|sep\|>\s*(<\|open\|>argument key=\"|<\|close\|>call<\|sep\|>)",
    "muse": r"</atem:parameter>\s*(<atem:parameter name=\"|</atem:invoke>)",
    "hy3": r"</arg_value:opensource>\s*(<arg_key:opensource>|</tool_call:opensource>)",
    "minicpm": r"</param>\s*(<param name=\"|</function>)",
    "gemma4": r"<\|\"\|>[,}\]:]",
}
# Forms whose templates write a text as it is, so that only the schema tells it from other values.
BARE = ("qwen3-coder", "seed", "minimax-m2", "glm", "muse", "hy3", "minicpm")


def texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts_in(one)


def call_is_clear(form, schema, arguments):
    """Whether what the template writes can mean these arguments only."""
    ends = XML_ENDS.get(form)
    for name, value in arguments.items():
        if ends and any(re.search(ends, text + "<") or re.search(ends, text) for text in texts_in(value)):
            return False
        if form == "gemma4" and any(text.endswith('<|"|>') or '<|"|>' in text and text[-5:] in '<|"|>' for text in texts_in(value)):
            return False
        if form == "lfm2" and any("\\" in text or re.search(r"'\s*[,)\]}:]", text) for text in texts_in(value)):
            return False  # a template of LFM2.5 writes texts without escapes
        optional = "anyOf" in schema["properties"][name] or isinstance(schema["properties"][name].get("type"), list)
        if form in BARE and optional and isinstance(value, str) and value.strip() in ("null", "None"):
            return False
    return True


def parameters(st):
    """A strategy: the schema of a function and arguments that it allows."""
    text = st.lists(st.sampled_from(BITS), max_size=8).map("".join)
    number = st.one_of(st.integers(-10**15, 10**15), st.sampled_from([0.5, -1.25, 1e-7, 3.0, 1e22, 0.1]))
    leaf = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), text, st.sampled_from([0.5, -2.75]))
    names = st.sampled_from(["a", "b", "key", "x_y", "ID"])
    nested = st.recursive(leaf, lambda one: st.one_of(st.lists(one, max_size=3), st.dictionaries(names, one, max_size=3)),
                          max_leaves=6)  # fmt: skip

    def optional(type, value):
        return st.tuples(st.sampled_from([{"anyOf": [{"type": type}, {"type": "null"}]}, {"type": [type, "null"]}]),
                         st.one_of(st.none(), value))  # fmt: skip

    kinds = st.one_of(
        st.tuples(st.just({"type": "string"}), text),
        st.tuples(st.just({"type": "string", "description": "t"}), text),
        optional("string", text),
        st.tuples(st.just({"enum": ["red", "1.10", "true"]}), st.sampled_from(["red", "1.10", "true"])),
        st.tuples(st.just({"type": "integer"}), st.integers(-10**15, 10**15)),
        st.tuples(st.just({"type": "number"}), number),
        optional("integer", st.integers(-9, 9)),
        st.tuples(st.just({"type": "boolean"}), st.booleans()),
        st.tuples(st.just({"type": "array", "items": {}}), st.lists(nested, max_size=4)),
        st.tuples(st.just({"type": "object"}), st.dictionaries(names, nested, max_size=4)),
    )

    def build(pairs):
        properties = {name: {"description": "d", **kind} for name, (kind, _) in pairs.items()}
        return {"type": "object", "properties": properties}, {name: value for name, (_, value) in pairs.items()}

    return st.dictionaries(st.sampled_from(["s", "path", "n", "opt", "old_text"]), kinds, max_size=4).map(build)


def function(schema, name="f"):
    return {"type": "function", "function": {"name": name, "description": "D", "parameters": schema}}


def called(arguments, name="f", id="abcdefgh1"):
    return {"role": "assistant", "content": "",
            "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]}  # fmt: skip


def without_end(text, turn_end):
    """Without what ends a turn, or the last marks of it: calls may have others in front of them."""
    if not turn_end or text.endswith(turn_end):
        return text.removesuffix(turn_end)
    n = next((i for i, (x, y) in enumerate(zip(reversed(text), reversed(turn_end))) if x != y), 0)
    marks = turn_end[len(turn_end) - n:]
    return text.removesuffix(marks[marks.find("<"):]) if "<" in marks else text


def text_of_call(render, arguments):
    """What a template writes for a call, from the end of the prompt on; None: it writes none. render(messages, begins)
    gives the text of a conversation, or None where the template refuses it."""
    prompt = render([USER], True)
    plain = render([USER, {"role": "assistant", "content": PLAIN}], False)
    whole = None
    for form in (arguments, json.dumps(arguments, ensure_ascii=False)):
        whole = whole or render([USER, called(form)], False)
    if not prompt or not whole or not plain or PLAIN not in plain:
        return prompt, None
    n = next((i for i, (x, y) in enumerate(zip(prompt, whole)) if x != y), min(len(prompt), len(whole)))
    mark = whole.rfind("<", 0, n)
    if mark > whole.rfind(">", 0, n) and n - mark < 20:
        n = mark  # the prompt goes on with another mark that begins alike
    text, turn_end = whole[n:], plain.split(PLAIN)[-1] or HY3_END
    return prompt[:n], re.sub(r"<\|(eom_id|calls)\|>\s*$", "", without_end(text, turn_end))  # these end answers with calls
