#!/usr/bin/env python3
"""Runs llama-server's own tests, unmodified, against `swiftkv serve`.

    tools/checks/check_llama_server.py FOLDER [--swiftkv PROGRAM] [pytest's options ...]

FOLDER is llama.cpp's tools/server/tests, in its checkout. Its requirements.txt says what Python needs. The tests start
this script in llama-server's place; it translates the options and becomes `swiftkv serve`. A test
whose server cannot be started here, for a feature that swiftkv refuses or a model that is not in
../shared, is counted by its cause. The others pass or fail as they are, and REASONS says why one
fails. The last line leaves out those that compare the text of another random generator, and those
about a feature that swiftkv refuses by its name. Everything else that fails is a difference.
"""
import argparse
import http.server
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORIES = ROOT / "../shared/assets/models/stories260k/stories260k-f32.gguf"
MODELS = {"ggml-org/test-model-stories260K": STORIES, "tinyllamas/stories260K.gguf": STORIES}

# Options of llama-server: how many words follow, and ours; None: it changes nothing here.
VALUES = {
    "--port": "--port",
    "--host": "--host",
    "--temp": "--temp",
    "--seed": "--seed",
    "--threads": "--threads",
    "--alias": None,
    "--cors-origins": "--cors-origin",
    "--chat-template": "--template",
    "--chat-template-file": "--template",
    "--batch-size": "--chunk",
    "--ubatch-size": None,
    "--n-gpu-layers": None,
    "-fa": None,
    "-ctk": None,
    "-ctv": None,
    "--n-predict": None,
    "--cache-ram": None,
}
TEMPLATES = {"chatml", "llama3", "mistral", "gemma", "phi3", "zephyr", "vicuna"}
FLAGS = {"--offline", "--cont-batching", "--embedding", "--metrics", "--kv-unified", "--swa-full", "--slots",
         "--no-slots", "--jinja", "--no-jinja", "--no-mmproj", "--no-cache-idle-slots"}


# Why a test fails: the beginning of its name behind the file's, and a word.
#   text     compares with what llama.cpp's random generator writes, or with its build number
#   refused  a feature that is refused by its name, where llama-server has it or another status
#   ours     the answer here is the one that the documentation of the interface asks for
#   absent   only llama-server has it, and a request for it is not refused by name
#   differs  a difference that people may notice
# What is not in the list differs too.
REASONS = (
    ("test_chat_completion[", "text", "the text of its generator; in streams and by clients its build number too"),
    ("test_chat_completion_stream[", "text", "system_fingerprint is its build number"),
    ("test_chat_completion_with_openai_library", "text", "system_fingerprint is its build number"),
    ("test_completion[", "text", "the text of its generator"),
    ("test_completion_stream[", "text", "the text of its generator; adaptive_target in its settings"),
    ("test_completion_with_openai_library", "text", "system_fingerprint is its build number"),
    ("test_completion_stream_with_openai_library", "text", "the text of its generator"),
    ("test_responses_with_openai_library", "text", "the text of its generator"),
    ("test_n_probs_post_sampling", "refused", "post_sampling_probs: 400"),
    ("test_anthropic_tool_result_with_image", "refused", "images: 400, and 500 there"),
    ("test_anthropic_vision_format_accepted", "refused", "images: 400, and 500 there"),
    ("test_anthropic_empty_messages", "ours", "no messages: 400, as Anthropic has it"),
    ("test_cors_options[origin-Access-Control-Allow-Credentials", "ours", "no credentials across origins"),
    ("test_cors_options[web.mydomain.fr-Access-Control-Allow-Methods", "ours", "methods that there are"),
    ("test_cors_options[web.mydomain.fr-Access-Control-Allow-Headers", "ours", "* alone leaves Authorization out"),
    ("test_context_size_exceeded", "ours", "OpenAI's type and code"),
    ("test_invalid_chat_completion_req[messages7]", "ours", "two answers in a row are a history"),
    ("test_responses_stream_with_llama_telemetry", "ours", "an answer that max_output_tokens ends is incomplete"),
    ("test_mcp_no_proxy", "absent", "/cors-proxy: 404"),
    ("test_access_static_assets_without_api_key", "absent", "files of its page: 401 or 404"),
    ("test_verbose_debug", "absent", "__verbose"),
    ("test_server_slots", "absent", "--no-slots: /slots can always be read"),
    ("test_metrics_disabled", "absent", "/metrics can always be read"),
    ("test_chat_completion_cached_tokens", "differs", "prompts are reused by pages of 64 tokens"),
    ("test_metrics_prompt_processed_and_cached", "differs", "prompts are reused by pages of 64 tokens"),
    ("test_return_progress[64-4-False]", "differs", "progress is told by the clock, not by the batch"),
)
LEFT_OUT = ("text", "refused")


class CannotStart(Exception):
    """Why there is no server."""


def translate(words):
    """The options of `swiftkv serve`, the model first."""
    model, given, out = None, {}, []
    words = iter(words)
    for word in words:
        if word in FLAGS:
            given[word] = True
            continue
        if word in ("--verbose", "--no-ui"):
            raise CannotStart(f"feature {word}")
        value = next(words, "")
        if word == "--model":
            model = Path(value)
        elif word in ("--hf-repo", "--hf-file"):
            model = MODELS.get(value, model if word == "--hf-repo" and value == "ggml-org/models" else value)
        elif word == "--reasoning":  # llama-server passes the variable always
            given[word] = value
        elif word in ("--ctx-size", "--parallel", "--api-key", "--reasoning-format"):
            given[word] = value
        elif word not in VALUES:
            raise CannotStart(f"feature {word}")
        elif word == "--chat-template" and value not in TEMPLATES:
            raise CannotStart("feature --chat-template " + value.split()[0])
        elif word == "--host" and "," in value:
            raise CannotStart("feature --host with several addresses")
        elif word == "--alias":
            out += ["--name", f"{value},*"]  # llama-server takes any name
        elif VALUES[word]:
            out += [VALUES[word], value]
    if not isinstance(model, Path) or not model.exists():
        raise CannotStart(f"model {model}")
    if "AIP_MODE" in os.environ:
        raise CannotStart("feature AIP_MODE")
    thinks = "false" if given.get("--reasoning") == "off" else "true"
    out += ["--chat-template-kwargs", f'{{"enable_thinking":{thinks}}}']
    if "--cors-origin" not in out:
        out += ["--cors-origin", "*"]  # llama-server's default
    slots = int(given.get("--parallel", 1))
    if "--ctx-size" in given:
        total = int(given["--ctx-size"])
        out += ["--ctx", str(total if "--kv-unified" in given else total // slots)]
        out += ["--kv-tokens", str(total)]
    out += ["--max-running", str(slots), "--metrics-compat"]
    if "--api-key" in given:
        with tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False) as keys:
            keys.write(given["--api-key"] + "\n")
        out += ["--api-key-file", keys.name]
    if given.get("--reasoning-format") == "none":
        out += ["--reasoning-format", "none"]
    return [str(model), *out]


class Ready(http.server.BaseHTTPRequestHandler):
    """A server that is only ready."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(words):
    """In llama-server's place. Before the first test each kind of server starts once."""
    try:
        options = translate(words)
    except CannotStart as cause:
        if os.environ.get("PYTEST_CURRENT_TEST", "").endswith("(setup)"):
            port = int(words[words.index("--port") + 1])
            http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
        with open(os.environ["SKV_CAUSES"], "a") as causes:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
            causes.write(json.dumps([test, str(cause)]) + "\n")
        sys.exit(f"cannot start: {cause}")
    program = os.environ["SKV_PROGRAM"]
    os.execv(program, [program, "serve", *options])


def name_of(case):
    """unit/test_x.py::test_y[1]"""
    return case.get("classname").replace(".", "/") + ".py::" + case.get("name")


def reason_of(name):
    test = name.split("::")[1]
    return next(((kind, why) for start, kind, why in REASONS if test.startswith(start)), ("differs", "not known"))


def report(junit, causes):
    cannot = dict(causes)
    counts, failed = Counter(), []
    for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
        name = name_of(case)
        bad = case.find("failure") is not None or case.find("error") is not None
        if case.find("skipped") is not None:
            counts["skipped"] += 1
        elif bad and "in download_file" in "".join(case.itertext()):
            counts["model that is downloaded"] += 1
        elif name in cannot and bad:
            counts[cannot[name]] += 1
        elif bad:
            failed.append(name)
        else:
            counts["passed"] += 1
    kinds = Counter()
    for name in failed:
        kind, why = reason_of(name)
        kinds[kind] += 1
        print(f"failed {name.split('::')[1][:100]}: {kind}: {why}")
    for cause, n in sorted(counts.items()):
        if cause.startswith(("feature", "model")):
            print(f"{n:4} {cause}")
    total = counts["passed"] + len(failed)
    print("; ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())))
    print(f"{counts['passed']} of {total} passed, {counts['skipped']} skipped")
    asked = total - sum(kinds[kind] for kind in LEFT_OUT)
    print(f"{counts['passed']} of {asked} without those of {' and '.join(LEFT_OUT)}: "
          f"{100 * counts['passed'] / max(asked, 1):.1f} %")


def main():
    if os.environ.get("SKV_CAUSES"):
        serve(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--swiftkv", type=Path, default=ROOT / "build/swiftkv")
    args, rest = parser.parse_known_args()
    (args.folder / "tmp").mkdir(exist_ok=True)  # where some tests write
    with tempfile.TemporaryDirectory() as scratch:
        causes, junit = Path(scratch, "causes"), Path(scratch, "junit.xml")
        causes.touch()
        environment = dict(os.environ, LLAMA_SERVER_BIN_PATH=str(Path(__file__).resolve()),
                           SKV_CAUSES=str(causes), SKV_PROGRAM=str(args.swiftkv.resolve()))
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", f"--junitxml={junit}", *rest]
        subprocess.run(command, cwd=args.folder, env=environment, check=False)
        report(junit, [json.loads(line) for line in causes.read_text().splitlines()])


if __name__ == "__main__":
    main()
