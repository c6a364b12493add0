"""Chromium without a window, driven by the DevTools protocol over a pair of pipes."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from waiting import wait_exit, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One tab. `messages` has all that its console and its network would tell a developer."""

    def __init__(self, url, width=1280, height=800):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.to_write = os.pipe()
        self.to_read, from_write = os.pipe()
        command = [
            find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
            "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank",
        ]  # fmt: skip

        def take_pipes():
            # The browser reads commands from 3 and writes answers to 4. First out of the way:
            # the ends may have these very numbers.
            read, write = os.dup(to_read), os.dup(from_write)
            while min(read, write) < 5:
                read, write = os.dup(read), os.dup(write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            command, preexec_fn=take_pipes, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        self.rest, self.n, self.session, self.messages = b"", 0, None, []
        try:
            self.begin(url, width, height)
        except BaseException:
            self.close()
            raise

    def begin(self, url, width, height):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.open(url)

    def close(self):
        try:
            self.call("Browser.close")
        except (OSError, EOFError):
            pass
        try:
            wait_exit(self.process)
        except AssertionError:
            self.process.kill()
            self.process.wait()
        os.close(self.to_write)
        os.close(self.to_read)
        self.folder.cleanup()

    # -------------------------------------------------------------------------------- protocol

    def next_message(self):
        while b"\0" not in self.rest:
            more = os.read(self.to_read, 1 << 20)
            if not more:
                raise EOFError("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        method, given = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            values = [str(a.get("value", a.get("description"))) for a in given["args"]]
            self.messages.append(f"console.{given['type']}: {' '.join(values)}")
        elif method == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.messages.append(
                "exception: " + details.get("exception", {}).get("description", details["text"])
            )
        elif method == "Log.entryAdded":
            entry = given["entry"]
            self.messages.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")

    def call(self, method, **parameters):
        self.n += 1
        message = {"id": self.n, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.n:
                break
            self.note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    # ------------------------------------------------------------------------------ what it does

    def open(self, url):
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script):
        """The value of an expression in the page; promises are waited for."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, condition):
        try:
            wait_until(lambda: self.run(f"Boolean({condition})"), 0.05)
        except AssertionError as e:
            raise AssertionError(f"in vain: {condition}\n{self.messages}") from e

    def resize(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)  # fmt: skip

    def prefer(self, colours):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": colours}])  # fmt: skip

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code=None, modifiers=0):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32}
        given = {"key": key, "code": code or key, "windowsVirtualKeyCode": codes[key],
                 "modifiers": modifiers}  # fmt: skip
        text = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def click(self, selector):
        """With the mouse, in the middle of an element."""
        x, y = self.run(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drop(self, selector, path):
        """A file from outside falls on an element."""
        x, y = self.run(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)
