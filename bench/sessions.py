#!/usr/bin/env python3
"""What servers compute again of recorded agents' sessions (tests/clients/sessions).

    bench/sessions.py MODEL [--template FILE] [--kind KIND ...] [--turns 30] [--scale 1.0] [--seed 1]
                      [--offline | --idle] [--hybrid] [--shift] [--llama-server COMMAND --gguf FILE]

Sends each session to `swiftkv serve`, as it is and with --prompt-strip, --prompt-sort and --prompt-keep, and prints the
share of its prompts' tokens that were computed although an ideal cache would have had them: tokens in a run of 16 or
more that an earlier prompt of the session has, wherever it stands (`swiftkv cache explain`). --offline asks no server:
cache explain alone tells what a cache without limits has, in seconds. --idle counts, without a server too, what `serve
--idle-read` saves of what is read again: history is read as the template has it behind each answer, up to the message
that the client adds. --hybrid takes a tiny hybrid model with MODEL's tokenizer, whose prompts are continued behind kept
states only. --shift adds rows with --cache-shift. llama-server takes part where it is installed, or its command is given
by --llama-server (tools/results/llama_wheel_server.py is one), with MODEL as a GGUF file; with --shift also with
--cache-reuse 256. The share depends on the tokenizer and the template, not on the model's weights, so that a tiny model
(tools/results/serving_models.py hf OUT models/mini/base session) reads long sessions in minutes.
"""

import argparse
import copy
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from own_servers import ROOT, free_port, wait_for

sys.path.insert(0, str(ROOT / "tests/clients/sessions"))

from make_hybrid import make_hybrid  # noqa: E402
from make_sessions import KINDS, make  # noqa: E402

OPTIONS = ("--prompt-strip", "claude-code", "--prompt-sort", "tools", "--prompt-keep", "thoughts")
LEAST_READ = 256  # tokens: src/serving/scheduler/idle_reads.c leaves out what saves fewer


def cached_of(answer):
    """Tokens that came from the cache, in the words of each API."""
    usage, timings = answer.get("usage", {}), answer.get("timings", {})
    for details in ("prompt_tokens_details", "input_tokens_details"):
        if "cached_tokens" in (usage.get(details) or {}):
            return usage[details]["cached_tokens"]
    return usage.get("cache_read_input_tokens", timings.get("cache_n", 0))


def prompt_of(answer):
    usage = answer["usage"]
    parts = ("prompt_tokens", "input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(p, 0) for p in parts) + usage.get("cache_read_input_tokens", 0)


def ask(port, request):
    data = json.dumps(request["body"]).encode()
    message = urllib.request.Request(f"http://127.0.0.1:{port}{request['path']}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(message, timeout=3600) as answer:
        return json.load(answer)


def replay(command, port, requests, news):
    """(prompt tokens, lost tokens, seconds) of a session on a server of its own."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        start, n_prompt, n_lost = time.monotonic(), 0, 0
        for request, new in zip(requests, news):
            answer = ask(port, request)
            n_prompt += prompt_of(answer)
            n_lost += max(0, prompt_of(answer) - cached_of(answer) - new)
        return n_prompt, n_lost, time.monotonic() - start
    finally:
        process.terminate()
        process.wait()


def explain(args, requests):
    """The rows that cache explain prints, and its totals."""
    template = ["--template", args.template] if args.template else []
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(map(json.dumps, requests)))
        file.flush()
        done = subprocess.run([args.swiftkv, "cache", "explain", args.model, file.name, "--json", *template],
                              stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return rows[:-1], rows[-1]


def is_answer(message):
    kinds = ("reasoning", "function_call")
    return message.get("role") == "assistant" or message.get("type") in kinds


def next_message(path, answer):
    """What a client sends behind an answer: results of its calls, or the user's text."""
    if path == "/v1/messages":
        uses = [c["id"] for m in answer for c in m["content"] if c["type"] == "tool_use"]
        text = {"type": "text", "text": "-"}
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "-"} for i in uses] or [text]}]
    if path == "/v1/responses":
        calls = [m["call_id"] for m in answer if m["type"] == "function_call"]
        return [{"type": "function_call_output", "call_id": i, "output": "-"} for i in calls] or [{"role": "user", "content": "-"}]
    calls = [c["id"] for m in answer for c in m.get("tool_calls", ())]
    return [{"role": "tool", "tool_call_id": i, "content": "-"} for i in calls] or [{"role": "user", "content": "-"}]


def with_histories(requests):
    """Requests, and behind each but the last what the cache has of its answer, and what an idle read adds."""
    out = []
    for request, after in zip(requests, requests[1:] + [None]):
        out.append(request)
        if after is None:
            continue
        field = "input" if "input" in request["body"] else "messages"
        said = [m for m in after["body"][field][len(request["body"][field]):] if is_answer(m)]
        for more in (said, said + next_message(request["path"], said)):
            history = copy.deepcopy(request)
            history["body"][field] += more
            out.append(history)
    return out


def steady(request):
    """The request as --prompt-strip claude-code and --prompt-sort tools leave its beginning."""
    out = copy.deepcopy(request)
    body = out["body"]
    body["tools"] = sorted(body["tools"], key=lambda t: t.get("name") or t["function"]["name"])
    if "system" in body:
        body["system"] = [s for s in body["system"] if "billing-header" not in s["text"]]
    return out


def measure_idle(args, kind):
    """A row each for the prompts as sent, and with a beginning that stays."""
    for way, change in (("as sent", lambda r: r), ("strip, sort", steady)):
        requests = list(map(change, make(kind, args.seed, args.turns, args.scale)))
        all_of = with_histories(requests)
        idle, _ = explain(args, all_of)
        # Behind each request stand its answer and the history; without idle reads there is only the answer.
        plain, _ = explain(args, [r for i, r in enumerate(all_of) if i % 3 != 2])
        asked, asked_plain, read = idle[::3], plain[::2], idle[2::3]
        n_prompt = sum(r["prompt_tokens"] for r in asked)
        n_again = sum(max(0, r["prompt_tokens"] - r["cached_tokens"] - r["new_tokens"]) for r in asked_plain)
        n_saved = sum(a["cached_tokens"] - b["cached_tokens"] for a, b in zip(asked, asked_plain))
        missing = [r["prompt_tokens"] - r["cached_tokens"] for r in read]
        n_spent = sum(n for n in missing if n >= LEAST_READ)
        print(f"| {kind} | {way} | {n_prompt} | {n_again} | {n_saved} | {100 * n_saved / max(1, n_again):.0f} % | {n_spent} |",
              flush=True)


def row(kind, server, n_prompt, n_lost, seconds=None):
    took = "" if seconds is None else f"{seconds:.0f}"
    print(f"| {kind} | {server} | {n_prompt} | {n_lost} | {100 * n_lost / n_prompt:.1f} % | {took} |", flush=True)


def measure(args, kind):
    requests = make(kind, args.seed, args.turns, args.scale)
    rows, total = explain(args, requests)
    news = [r["new_tokens"] for r in rows]
    longest = max(r["prompt_tokens"] for r in rows)
    if args.offline:
        for way, lost in total["lost_tokens"].items():
            row(kind, f"cache explain, {way}", total["prompt_tokens"][way], lost)
        return
    context = 2 * longest
    template = ["--template", args.template] if args.template else []
    port = free_port()
    own = [args.swiftkv, "serve", args.model, "--port", port, "--name", "model,*", "--ctx", context, "--kv-tokens", 2 * context, *template]
    ways = [("with options", OPTIONS, "all three")]
    if args.shift:
        ways += [("--cache-shift", ["--cache-shift"], "--cache-shift"), ("options, --cache-shift", [*OPTIONS, "--cache-shift"], "all four")]
    row(kind, "swiftkv", *replay(own, port, requests, news))
    for name, options, way in ways:
        row(kind, f"swiftkv, {name}", *replay([*own, *options], port, requests, [r["new_with"][way] for r in rows]))
    if args.llama_server and args.gguf:
        measure_llama(args, kind, port, context, requests, news)


def measure_llama(args, kind, port, context, requests, news):
    words = [*shlex.split(args.llama_server), "-m", args.gguf, "--port", port, "-c", context, "--jinja"]
    words += ["--chat-template-file", args.template] if args.template else []
    for name, more in [("llama-server", []), ("llama-server, --cache-reuse 256", ["--cache-reuse", 256])][: 2 if args.shift else 1]:
        try:
            row(kind, name, *replay([*words, *more], port, requests, news))
        except (urllib.error.HTTPError, KeyError) as e:
            print(f"{kind}: {name} did not answer {requests[0]['path']}: {e}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--swiftkv", default=str(ROOT / "build/swiftkv"))
    parser.add_argument("--template", type=pathlib.Path)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--hybrid", action="store_true")
    parser.add_argument("--shift", action="store_true")
    parser.add_argument("--llama-server", default=shutil.which("llama-server"))
    parser.add_argument("--gguf")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.hybrid:
            args.model = make_hybrid(args.model, folder)
        measure_all(args)


def measure_all(args):
    if args.idle:
        print("| session | prompts | prompt tokens | read again | saved | share | spent |\n|---|---|--:|--:|--:|--:|--:|")
        for kind in args.kind or KINDS:
            measure_idle(args, kind)
        return
    if not args.offline and not (args.llama_server and args.gguf):
        print("llama-server, or a GGUF file for it, is not here: it is left out", file=sys.stderr)
    print("| session | server | prompt tokens | lost | share | seconds |\n|---|---|--:|--:|--:|--:|")
    for kind in args.kind or KINDS:
        measure(args, kind)


if __name__ == "__main__":
    main()
