#!/usr/bin/env python3
"""Sessions of coding agents as their clients send them: the requests of 30 turns each, from 20 to 60 thousand tokens.

    make_sessions.py KIND [--seed N] [--turns N] [--scale X] > SESSION.jsonl

    claude-code  Anthropic's Messages: a billing line at the front that differs in each request, tools first, thinking
                 blocks, cache_control on the last block
    codex        OpenAI's Responses: reasoning items, parallel calls, prompt_cache_key
    opencode     chat completions: tools in another order at times, old results that are cleared, reasoning_content

Each line is {"path", "body"}. The texts are made up from a seed; the shapes follow what the clients' makers and users
publish about them. --scale makes the texts shorter, with the same number of turns.
"""

import argparse
import json
import random
import sys

WORDS = ("the file reads a table of names and returns each value once so that tests can check what the parser did when "
         "a line ends early or the buffer is full while another thread waits for its turn to write results into the "
         "index of pages that are kept for later requests under one key").split()
NAMES = ("Bash", "Read", "Edit", "MultiEdit", "Write", "Glob", "Grep", "Task", "TodoWrite", "WebFetch", "WebSearch",
         "NotebookEdit", "BashOutput", "KillShell", "ExitPlanMode", "Skill")
ANSWER_TOKENS = 1


class Session:
    """A conversation that grows, in the words of no client; `texts` are about four characters a token."""

    def __init__(self, seed, scale, n_tools):
        self.rng = random.Random(seed)
        self.scale = scale
        self.names = NAMES[:n_tools]
        self.n_calls = 0

    def text(self, tokens):
        words, n = [], max(8, int(tokens * self.scale * 4))
        while n > 0:
            word = self.rng.choice(WORDS) if self.rng.random() < 0.9 else f"{self.rng.randrange(1 << 16):x}"
            words.append(word + (".\n" if self.rng.random() < 0.07 else ""))
            n -= len(word) + 1
        return " ".join(words).replace("\n ", "\n").strip()

    def schema(self):
        names = self.rng.sample(("path", "command", "pattern", "old", "new", "limit", "offset", "url", "note"), 4)
        properties = {n: {"type": self.rng.choice(("string", "integer")), "description": self.text(40)} for n in names}
        return {"type": "object", "properties": properties, "required": sorted(names[:2]), "additionalProperties": False}

    def tools(self):
        return [{"name": n, "description": self.text(700), "schema": self.schema()} for n in self.names]

    def calls(self):
        """[(id, name, arguments)] of one step of the agent."""
        out = []
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self.n_calls += 1
            arguments = {"path": f"src/part{self.rng.randrange(40)}.c", "command": self.text(12)}
            out.append((f"{self.n_calls:08x}", self.rng.choice(self.names[:8]), arguments))
        return out

    def turns(self, n):
        """What is added before each request: a text of the user's, or the results of the calls of the step before."""
        step = None
        for i in range(n):
            if step is None or not step["calls"] or self.rng.random() < 0.1:
                yield {"step": step, "user": self.text(150), "results": []}
            else:
                yield {"step": step, "user": None,
                       "results": [(c[0], self.text(self.rng.choice((200, 700, 1600)))) for c in step["calls"]]}
            step = {"thought": self.text(120), "text": self.text(30) if self.rng.random() < 0.6 else "", "calls": self.calls()}
            if i + 1 < n and self.rng.random() < 0.25:
                step["calls"] = []
                step["text"] = self.text(200)


def closed(turn):
    """Results of calls that a text of the user's came in front of: none were run."""
    step = turn["step"]
    return [(c[0], "[interrupted]") for c in step["calls"]] if step and turn["user"] else []


def claude_code(s, turns):
    tools = [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]} for t in s.tools()]
    prompt = [s.text(60), s.text(5000)]
    messages = []
    for turn in s.turns(turns):
        if step := turn["step"]:
            content = [{"type": "thinking", "thinking": step["thought"], "signature": "c2lnbmVk"}]
            content += [{"type": "text", "text": step["text"]}] if step["text"] else []
            content += [{"type": "tool_use", "id": f"toolu_{i}", "name": n, "input": a} for i, n, a in step["calls"]]
            messages.append({"role": "assistant", "content": content})
        content = [{"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": [{"type": "text", "text": t}]}
                   for i, t in turn["results"] or closed(turn)]
        if turn["user"]:
            content.append({"type": "text", "text": turn["user"]})
        messages.append({"role": "user", "content": content})
        bill = f"x-anthropic-billing-header: cc_version=2.1.29.e{s.rng.randrange(4096):03x}; cc_entrypoint=cli; cch={s.rng.randrange(1 << 20):05x};"
        system = [{"type": "text", "text": bill}] + [
            {"type": "text", "text": t, "cache_control": {"type": "ephemeral"}} for t in prompt]
        body = {"model": "claude", "max_tokens": ANSWER_TOKENS, "temperature": 0, "metadata": {"user_id": "user_1"},
                "system": system, "tools": tools, "messages": json.loads(json.dumps(messages))}
        body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        yield {"path": "/v1/messages", "body": body}


def codex(s, turns):
    tools = [{"type": "function", "name": t["name"], "description": t["description"], "strict": False,
              "parameters": t["schema"]} for t in s.tools()]
    instructions = s.text(5000)
    items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": s.text(300)}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": s.text(80)}]}]
    for turn in s.turns(turns):
        if step := turn["step"]:
            items.append({"type": "reasoning", "summary": [], "encrypted_content": None,
                          "content": [{"type": "reasoning_text", "text": step["thought"]}]})
            if step["text"]:
                items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": step["text"]}]})
            items += [{"type": "function_call", "call_id": f"call_{i}", "name": n, "arguments": json.dumps(a)}
                      for i, n, a in step["calls"]]
        items += [{"type": "function_call_output", "call_id": f"call_{i}", "output": t} for i, t in turn["results"] or closed(turn)]
        if turn["user"]:
            items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": turn["user"]}]})
        yield {"path": "/v1/responses",
               "body": {"model": "codex", "max_output_tokens": ANSWER_TOKENS, "temperature": 0, "instructions": instructions,
                        "input": list(items), "tools": tools, "tool_choice": "auto", "parallel_tool_calls": True,
                        "reasoning": {"effort": "medium"}, "store": False, "prompt_cache_key": "0198c7f2"}}


def opencode(s, turns):
    tools = [{"type": "function", "function": {"name": t["name"].lower(), "description": t["description"],
                                               "parameters": t["schema"]}} for t in s.tools()]
    messages = [{"role": "system", "content": s.text(5000)}, {"role": "system", "content": s.text(100)}]
    for i, turn in enumerate(s.turns(turns)):
        if step := turn["step"]:
            message = {"role": "assistant", "content": step["text"], "reasoning_content": step["thought"]}
            if step["calls"]:
                message["tool_calls"] = [{"id": f"call_{i}", "type": "function", "function": {
                    "name": n.lower(), "arguments": json.dumps(a)}} for i, n, a in step["calls"]]
            messages.append(message)
        messages += [{"role": "tool", "tool_call_id": f"call_{i}", "content": t} for i, t in turn["results"] or closed(turn)]
        if turn["user"]:
            messages.append({"role": "user", "content": turn["user"]})
        if i == turns * 2 // 3:  # old results are cleared, once
            results = [m for m in messages if m["role"] == "tool"]
            for message in results[: len(results) // 3]:
                message["content"] = "[Old tool result content cleared]"
        order = list(tools)
        if i % 6 == 5:  # a server of tools has come back
            s.rng.shuffle(order)
        yield {"path": "/v1/chat/completions",
               "body": {"model": "opencode", "max_tokens": ANSWER_TOKENS, "temperature": 0, "tools": order,
                        "tool_choice": "auto", "messages": json.loads(json.dumps(messages))}}


KINDS = {"claude-code": claude_code, "codex": codex, "opencode": opencode}


def make(kind, seed=1, turns=30, scale=1.0, n_tools=len(NAMES)):
    """The requests of a session."""
    return list(KINDS[kind](Session(f"{kind} {seed}", scale, n_tools), turns))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    for request in make(args.kind, args.seed, args.turns, args.scale):
        json.dump(request, sys.stdout)
        print()


if __name__ == "__main__":
    main()
