#!/usr/bin/env python3
"""The page at / in a real browser: it types, drops a file, stops a stream, looks at what is there.

Needs Chromium (a Debian package) and ../shared/assets; the accessibility check needs axe-core
(pip install -r tests/clients/requirements.txt). With SKV_PAGE_PICTURES=FOLDER it keeps pictures of the page.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from browser import Browser, find_browser  # noqa: E402
from server_process import CHATML, PROGRAM, STORIES, Server, busy_pages  # noqa: E402

MINI = Path(__file__).resolve().parents[2] / "models/mini/kv6"
PICTURES = os.environ.get("SKV_PAGE_PICTURES")
STORY = (
    "Once upon a time, there was a little girl named Lily. She had a red ball. One day she went to "
    "the park with Tom. They played with the ball until the sun went down.\n"
)
PAGE_BYTES_MAX = 60_000
CONTEXT = 65536
TOO_LONG = 1200  # stories


def axe_script():
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None:
        return None
    found = sorted(Path(spec.origin).parent.rglob("axe.min.js"))
    return found[0].read_text() if found else None


class PageTest(unittest.TestCase):
    """A SwiftKV form of the stories model, with its teacher."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        folder = Path(cls.folder.name)
        model, template = folder / "stories", folder / "chat.jinja"
        template.write_text(CHATML)
        command = [PROGRAM, "transform", STORIES, model, "--kv-layers", "3"]
        subprocess.run(command, check=True, capture_output=True)
        cls.story = folder / "story.txt"
        cls.story.write_text(STORY * 20)
        cls.server = Server(model, "--ctx", CONTEXT, "--kv-tokens", 2 * CONTEXT, "--template", template)
        cls.addClassCleanup(cls.stop_server)
        cls.url = f"http://127.0.0.1:{cls.server.port}/"
        cls.page = Browser(cls.url)
        cls.addClassCleanup(cls.page.close)

    @classmethod
    def stop_server(cls):
        assert cls.server.stop() == 0, cls.server.lines

    def setUp(self):
        self.expected = ()  # parts of messages that the browser may have for developers
        self.page.messages.clear()
        self.page.resize(1280, 800)
        self.page.prefer("light")
        self.page.open(self.url)
        self.page.wait("state.model")

    def tearDown(self):
        self.page.run("1")  # what came late is noted
        messages = [m for m in self.page.messages if not any(part in m for part in self.expected)]
        self.assertEqual(messages, [])

    def picture(self, name):
        if PICTURES:
            time.sleep(1.2)  # the figures of the server come once a second
            self.page.picture(Path(PICTURES, f"{name}.png"))

    def ask(self, text, n_turns, tokens=24):
        page = self.page
        page.run(f"$('tokens').value = {tokens}; $('temperature').value = 0; $('input').focus()")
        page.type(text)
        page.press("Enter")
        page.wait(f"!state.abort && document.querySelectorAll('.turn').length === {n_turns}")

    def answers(self):
        return self.page.run("[...document.querySelectorAll('.answer .text')].map((p) => p.textContent)")

    def assert_narrow(self):
        """Nothing reaches beyond the edges."""
        outside = self.page.run(
            "[...document.querySelectorAll('body *:not(.vh, .vh *)')].filter((e) => { const r ="
            " e.getBoundingClientRect(); return r.width > 0 && (r.left < 0 || r.right > innerWidth + 1);"
            " }).map((e) => e.outerHTML.slice(0, 90))"
        )
        self.assertEqual(outside, [])
        self.assertLessEqual(self.page.run("document.documentElement.scrollWidth - innerWidth"), 0)

    # ------------------------------------------------------------------------------------ what it is

    def test_one_small_file_with_a_strict_policy(self):
        status, headers, text = self.server.ask("GET", "/")
        self.assertEqual(status, 200)
        self.assertLess(len(text.encode()), PAGE_BYTES_MAX)
        policy = headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
        for part in ("http://", "https://", "innerHTML", "outerHTML", "document.write", "eval("):
            self.assertNotIn(part, text.replace("http://www.w3.org/2000/svg", ""))
        self.assertEqual(self.server.ask("HEAD", "/")[0], 200)
        self.assertEqual(self.server.ask("POST", "/", {})[0], 405)
        # The browser asked for nothing but the page and the server's own endpoints.
        names = self.page.run("performance.getEntriesByType('resource').map((e) => e.name)")
        self.assertTrue(all(n.startswith(self.url) for n in names), names)
        # A script that was not there from the beginning does not run.
        self.page.run(
            "(() => { const s = document.createElement('script'); s.textContent = 'window.bad = 1';"
            " document.body.append(s); })()"
        )
        self.assertFalse(self.page.run("window.bad === 1"))
        self.expected = ("Content Security Policy",)

    # ------------------------------------------------------------------------------------ what it does

    def test_panel_comes_with_the_first_question(self):
        """Before it there is nothing to see; a panel that somebody opened or closed stays as it is."""
        page = self.page
        self.assertEqual(page.run("[$('panel').hidden, $('panel-open').getAttribute('aria-expanded')]"), [True, "false"])
        self.ask("Once upon a time", 1, tokens=4)
        self.assertEqual(page.run("[$('panel').hidden, $('panel-open').getAttribute('aria-expanded')]"), [False, "true"])
        page.wait("$('per-cell').textContent.includes('of 64 tokens, for one head of one layer')")
        page.click("#panel-open")
        self.ask("And then", 2, tokens=4)
        self.assertTrue(page.run("$('panel').hidden"))

    def test_length_fits_the_context(self):
        """The first message of a small context asks for no more than fits, and so does one that somebody typed."""
        server = Server(MINI, "--ctx", 256)
        page = Browser(f"http://127.0.0.1:{server.port}/")
        try:
            page.wait("state.model")
            self.assertEqual(page.run("[$('tokens').value, $('example-row').hidden]"), ["64", True])
            for tokens in (64, 100000):
                page.run(f"$('tokens').value = {tokens}; $('input').focus()")
                page.type("Hello")
                page.press("Enter")
                page.wait("!state.abort && document.querySelector('.turn:last-child .stats')")
                self.assertEqual(page.run("document.querySelectorAll('.fault').length"), 0)
        finally:
            page.close()
            self.assertEqual(server.stop(), 0)

    def test_conversation(self):
        page = self.page
        self.picture("empty-light")
        self.ask("Once upon a time", 1)
        self.ask("And then", 2)
        _, second = self.answers()
        want = self.server.post(
            "/v1/chat/completions", temperature=0, max_tokens=24,
            messages=[{"role": "user", "content": "Once upon a time"},
                      {"role": "assistant", "content": page.run("state.turns[0].answers.auto")},
                      {"role": "user", "content": "And then"}],
        )  # fmt: skip
        self.assertEqual(second, want["choices"][0]["message"]["content"].lstrip())
        stats = page.run("document.querySelector('.stats').textContent")
        for part in ("to the first token", "tokens/s", "prompt tokens", "24 answer tokens"):
            self.assertIn(part, stats)
        self.assertEqual(page.run("document.activeElement.id"), "input")
        self.assertEqual(page.run("$('status').textContent"), "The answer is complete")
        page.wait("$('n-skip').textContent !== '0' && $('n-skip').textContent !== ''")
        self.picture("chat-light")
        page.click("#clear")
        page.wait("!document.querySelector('.turn') && !$('intro').hidden")

    def test_text_is_never_markup(self):
        self.ask("<img src=x onerror='window.bad = 1'><b>bold</b>", 1)
        self.assertEqual(self.page.run("document.querySelectorAll('#turns img, #turns .asked b').length"), 0)
        self.page.run(
            "addText(makeAnswer({}, 'auto', ''), '<script>window.bad = 1</' + 'script>')"
        )
        self.assertFalse(self.page.run("window.bad === 1"))

    def test_document(self):
        page = self.page
        page.drop("#main", self.story)
        page.wait("$('chip-size').textContent.includes('tokens')")
        self.picture("document-light")
        self.ask("What did Lily have?", 1)
        self.assertIn("story.txt", page.run("document.querySelector('.asked').textContent"))
        self.assertTrue(page.run("$('chip').hidden"))
        # The question that follows finds the text in the cache.
        before = self.server.metrics()["prefix_cache_hits_total"]
        self.ask("Who is Tom?", 2)
        self.assertGreater(self.server.metrics()["prefix_cache_hits_total"] - before, 500)
        self.assertIn("of them cached", page.run("[...document.querySelectorAll('.stats')].pop().textContent"))

    def test_documents_that_are_no_texts(self):
        page = self.page
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(bytes(range(256)))
            file.flush()
            page.drop("#main", file.name)
            page.wait("$('chip-size').textContent === 'not a text file'")
        self.assertTrue(page.run("state.document === null && $('go').disabled"))

    def test_side_by_side(self):
        page = self.page
        page.drop("#main", self.story)
        page.click("#compare")
        page.run("$('input').focus()")
        self.ask("What did they do in the park?", 1)
        titles = page.run("[...document.querySelectorAll('.answer h3')].map((h) => h.textContent)")
        self.assertEqual(titles, ["SwiftKV", "Teacher"])
        question = STORY * 20 + "\n\n" + "What did they do in the park?"
        for method, said in zip(("auto", "teacher"), self.answers()):
            want = self.server.post(
                "/v1/chat/completions", temperature=0, max_tokens=24, swiftkv=method,
                messages=[{"role": "user", "content": question}],
            )  # fmt: skip
            self.assertEqual(said, want["choices"][0]["message"]["content"].lstrip())
        page.wait("document.querySelectorAll('.race i').length === 2")
        self.picture("compare-light")
        # The question that follows finds nearly all of its prompt: nobody wins.
        self.ask("And who was Lily?", 2)
        page.wait("document.querySelectorAll('.race').length === 2")
        race = page.run("[...document.querySelectorAll('.race')].pop().textContent")
        self.assertRegex(race, r"both cached.*The cache already held ([0-9,]+ of [0-9,]+ prompt tokens for \w+( and |: )){2}")
        self.assertNotIn("times sooner", race)
        self.picture("compare-cached-light")
        page.prefer("dark")
        self.picture("compare-dark")
        page.resize(390, 844, phone=True)
        page.run("showPanel(false)")
        self.assert_narrow()
        self.picture("compare-phone-dark")

    def test_stop(self):
        page = self.page
        page.run("$('tokens').value = 60000; $('input').focus()")
        page.type("Once upon a time")
        page.press("Enter")
        page.wait("document.querySelector('.text') && document.querySelector('.text').textContent.length > 100")
        self.assertGreater(busy_pages(self.server.metrics()), 0)
        page.wait("$('n-busy').textContent !== '0'")
        self.picture("answering-light")
        page.click("#stop")
        page.wait("!state.abort")
        self.assertIn("stopped", page.run("document.querySelector('.stats').textContent"))
        self.server.wait_for(lambda m: busy_pages(m) == 0)
        # And by the keyboard, while the prompt is read, which the page says.
        page.run("$('tokens').value = 16000")
        page.run(f"setDocument({{ name: 'long.txt', text: {json.dumps(STORY)}.repeat(500) }})")
        page.run(
            "window.said = ''; new MutationObserver(() => {"
            " const bar = document.querySelector('.turn:last-child progress');"
            " if (bar && bar.hasAttribute('value')) window.said = bar.parentNode.textContent;"
            " }).observe($('turns'), { subtree: true, childList: true, attributes: true }); 0"
        )
        page.type("Who?")
        page.press("Enter")
        page.wait("window.said !== ''")
        self.assertIn("Reading", page.run("window.said"))
        self.picture("reading-light")
        page.press("Escape")
        page.wait("!state.abort")
        self.server.wait_for(lambda m: busy_pages(m) == 0)
        # What was stopped does not stand in the way of the next question.
        self.ask("And then", 3)
        self.assertEqual(page.run("document.querySelectorAll('.fault').length"), 0)

    # ---------------------------------------------------------------------------------- what goes wrong

    def test_too_long(self):
        page = self.page
        page.run(f"setDocument({{ name: 'long.txt', text: {json.dumps(STORY)}.repeat({TOO_LONG}) }})")
        page.wait("$('chip-size').classList.contains('over')")
        self.ask("Who?", 1)
        fault = page.run("document.querySelector('[role=alert]').textContent")
        self.assertIn("too long", fault)
        self.assertIn(f"has at least {CONTEXT + 1:,} tokens, but the context holds {CONTEXT:,} for", fault)
        self.picture("fault-light")
        page.click(".fault button")
        self.assertEqual(page.run("[$('input').value, state.document.name, state.turns.length]"),
                         ["Who?", "long.txt", 0])
        page.click("#chip-drop")
        page.run("$('input').value = ''")
        self.ask("Once", 1)
        self.assertEqual(len(self.answers()), 1)
        self.expected = ("status of 400",)

    def test_server_that_is_gone(self):
        page = self.page
        page.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
        self.ask("Once", 1)
        self.assertIn("cannot reach the server", page.run("document.querySelector('.fault').textContent"))

    # ------------------------------------------------------------------------------------ for everybody

    def test_keyboard_alone(self):
        page = self.page
        reached = []
        page.run("document.activeElement.blur()")
        for _ in range(14):
            page.press("Tab")
            reached.append(page.run("document.activeElement.id"))
        for name in ("key-open", "theme", "panel-open", "input", "attach", "set-open", "compare"):
            self.assertIn(name, reached)
        self.assertNotIn("file", reached)
        page.run("$('set-open').focus()")
        page.press("Enter")
        page.wait("!$('set-box').hidden && document.activeElement.id === 'temperature'")
        page.press("Escape")
        page.wait("$('set-box').hidden && document.activeElement.id === 'set-open'")
        page.run("$('compare').focus()")
        page.press(" ", code="Space")
        page.wait("$('compare').checked")
        page.run("$('theme').focus()")
        for theme in ("light", "dark", ""):
            page.press("Enter")
            page.wait(f"document.documentElement.dataset.theme === '{theme}'")
            self.assertEqual(page.run("$('theme').textContent"), "Theme")

    def test_phone(self):
        page = self.page
        page.resize(360, 740, phone=True)
        page.open(self.url)
        page.wait("state.model")
        self.assertTrue(page.run("$('panel').hidden"))
        self.ask("Once upon a time", 1, tokens=120)
        self.assert_narrow()
        self.picture("phone-light")
        page.click("#panel-open")
        page.wait("$('n-free').textContent !== ''")
        self.assert_narrow()
        self.picture("phone-panel-light")
        page.click("#panel-open")
        page.click("#key-open")
        self.picture("phone-key-light")
        self.assert_narrow()
        page.press("Escape")
        page.click("#set-open")
        self.assert_narrow()

    def test_accessible(self):
        script = axe_script()
        if script is None:
            self.skipTest("axe_core_python is not installed (pip install -r tests/clients/requirements.txt)")
        page = self.page
        page.drop("#main", self.story)
        page.click("#compare")
        page.run("$('input').focus()")
        self.ask("Once", 1)
        page.run(f"setDocument({{ name: 'long.txt', text: {json.dumps(STORY)}.repeat({TOO_LONG}) }})")
        page.wait("$('chip-size').classList.contains('over')")
        self.ask("Too long", 2)
        self.expected = ("status of 400",)
        page.run("setDocument({ name: 'a.txt', text: 'A text.' })")
        page.run(script + "; 0")
        for colours in ("light", "dark"):
            page.prefer(colours)
            for opened in ("key", "set"):
                page.run(f"toggle('{opened}', true)")
                found = page.run("axe.run().then((r) => r.violations.map((v) => [v.id, v.help,"
                                 " v.nodes.map((n) => n.html.slice(0, 200))]))")
                self.assertEqual(found, [], colours)
                page.run(f"toggle('{opened}', false)")


class KeyTest(unittest.TestCase):
    def test_example(self):
        """One click: a document, three questions, the teacher beside SwiftKV; the document is read once a method."""
        server = Server(MINI, "--ctx", 4096)
        page = Browser(f"http://127.0.0.1:{server.port}/")
        try:
            page.resize(1280, 800)
            page.wait("!$('example-row').hidden")
            intro = page.run("$('intro').textContent")
            self.assertIn("three questions, answered by SwiftKV and by its teacher", intro)
            self.assertIn("million parameters): it finds things in a document. It knows no facts", intro)
            self.assertEqual(page.run("$('input').placeholder"), "Ask about a document")
            page.click("#example")
            page.wait("!state.abort && document.querySelectorAll('.turn > .soft').length === 3")
            said = page.run("[...document.querySelectorAll('.answer .text')].map((p) => p.textContent)")
            right = page.run("[...document.querySelectorAll('.turn > .soft')].map((p) => p.textContent.match(/[0-9]+/)[0])")
            self.assertEqual(len(said), 6)
            found = sum(want in said[2 * i] for i, want in enumerate(right))
            self.assertEqual(found, 3, (said, right))
            self.assertGreater(page.run("state.turns.length"), 2)
            if PICTURES:
                page.run("$('scroll').scrollTop = 0")
                time.sleep(1.2)
                page.picture(Path(PICTURES) / "example.png")
            # A greeting is answered too, and the page says what would go better.
            page.click("#clear")
            page.run("$('compare').checked = false; $('input').focus()")
            page.type("Hello")
            page.press("Enter")
            page.wait("!state.abort && document.querySelectorAll('.turn > .soft').length === 1")
            self.assertIn("finding things in a document", page.run("document.querySelector('.turn > .soft').textContent"))
        finally:
            page.close()
            self.assertEqual(server.stop(), 0)

    def test_key_is_asked_for(self):
        with tempfile.NamedTemporaryFile("w") as keys:
            keys.write("secret-key-of-the-test\n")
            keys.flush()
            server = Server(STORIES, "--ctx", 256, "--api-key-file", keys.name)
            self.addCleanup(server.stop)
            page = Browser(f"http://127.0.0.1:{server.port}/")
            try:
                page.wait("!$('key-box').hidden && document.activeElement.id === 'key'")
                self.assertIn("needs an API key", page.run("$('intro-text').textContent"))
                page.type("secret-key-of-the-test")
                page.press("Enter")
                page.wait("state.model")
                # This model has no template, and is no SwiftKV model: it continues.
                self.assertTrue(page.run("$('compare').disabled && $('compare-label').hidden"))
                self.assertTrue(page.run("$('example-row').hidden"))
                page.run("$('tokens').value = 12; $('temperature').value = 0")
                page.type("Once upon a time")
                page.press("Enter")
                page.wait("!state.abort && document.querySelector('.stats')")
                self.assertIn("there was", page.run("document.querySelector('.text').textContent"))
                # It is nowhere but in memory.
                kept = page.run("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
                self.assertNotIn("secret", kept)
            finally:
                page.close()
            strange = [m for m in page.messages if "status of 401" not in m]
            self.assertEqual(strange, [])


if __name__ == "__main__":
    if find_browser() is None:
        print("test_page: no Chromium here: skipped")
        sys.exit(77)
    if not STORIES.is_file():
        print("test_page: no model in ../shared/assets: skipped")
        sys.exit(77)
    unittest.main()
