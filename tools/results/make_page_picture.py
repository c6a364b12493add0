#!/usr/bin/env python3
"""The picture of the server's page, docs/page.png: models/mini answers a question about a document, as SwiftKV and
as its teacher. Needs Chromium.

    tools/results/make_page_picture.py [OUT]          SKV_BUILD=build names the build
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

from browser import Browser  # noqa: E402
from server_process import PROGRAM, Server  # noqa: E402

MODEL = ROOT / "models/mini/kv6-g2"


def document(seed):
    """A text with a fact in it, the question, and the answer."""
    command = [PROGRAM, "documents", "--tasks", "needle", "--evaluation", "--count", "1", "--tokens-min", "1800",
               "--tokens-max", "1900", "--vocab", MODEL, "--prose", ROOT / "recipes/prose/held_out.txt", "--seed", str(seed)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    text, question = said["prompt"].rsplit("\n", 1)
    return text, question, said["answer"]


def ask(page, path, question):
    page.wait("state.model")
    page.drop("#main", path)
    page.wait("$('chip-size').textContent.includes('tokens')")
    page.click("#compare")
    page.run("$('tokens').value = 24; $('temperature').value = 0; $('input').focus()")
    page.type(question)
    page.press("Enter")
    page.wait("!state.abort && document.querySelectorAll('.race i').length === 2")
    page.run("document.activeElement.blur()")
    time.sleep(1.5)  # the figures of the server come once a second
    return page.run("[...document.querySelectorAll('.answer .text')].map((p) => p.textContent)")


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/page.png"
    text, question, answer = document(4)
    server = Server(MODEL, "--threads", 2)
    try:
        for method in ("auto", "teacher"):  # the first prompts of a server touch its memory for the first time
            server.post("/v1/completions", prompt=document(5)[0], max_tokens=4, swiftkv=method)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "tale.txt")
            path.write_text(text)
            page = Browser(f"http://127.0.0.1:{server.port}/", 1200, 760)
            try:
                page.prefer("light")
                said = ask(page, path, question)
                page.picture(out)
            finally:
                page.close()
    finally:
        server.stop()
    print(f"{out}: expected {answer}, answers {said}")


if __name__ == "__main__":
    main()
