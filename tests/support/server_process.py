"""A server in a process of its own, the models that tests serve, and a test case with one server for all its tests."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
import unittest
from pathlib import Path

import sanitizer
from waiting import PATIENCE, wait_exit, wait_until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"
PLAIN = MODELS / "llama3-v5"
SWIFTKV = MODELS / "qwen2-swiftkv-g2"  # holds its teacher too
TEMPLATES = ROOT / "../shared/assets/templates"
STORIES = ROOT / "../shared/assets/models/stories260k/stories260k-f32.gguf"
CHATML = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
# The stack of connections, in KiB: tests/CMakeLists.txt sets a quarter under AddressSanitizer.
STACK = ("--connection-stack", os.environ["SKV_TEST_STACK"]) if "SKV_TEST_STACK" in os.environ else ()
# A prompt whose answer would take minutes: something to leave in the middle of.
LONG = ("--ctx", 65536, "--kv-tokens", 65536)


class Server:
    program, device = PROGRAM, ()  # tests/cuda/test_cuda_server.py has others

    def __init__(self, model, *words, launch=()):
        """`launch`: words before the program's, those of mpirun."""
        command = [*launch, self.program, "serve", model, "--port", 0, "--threads", 1, *STACK, *self.device, *words]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.launched = bool(launch)
        self.lines = []
        self.port = None
        while self.port is None or not self.lines[-1].startswith("swiftkv: ready"):
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError("".join(self.lines))
            self.lines.append(line)
            found = re.search(r"http://[^ ]*:(\d+)", line)
            self.port = int(found.group(1)) if found else self.port
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def ranks(self):
        """Ids of the processes that mpirun has started, in the order of ranks."""
        pid = self.process.pid
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def stop(self):
        if self.process.poll() is None and self.launched:
            os.kill(self.ranks()[0], signal.SIGTERM)  # mpirun itself would not wait for requests
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = wait_exit(self.process)
        except AssertionError:
            self.process.kill()
            raise
        finally:
            self.reader.join()
            self.process.stderr.close()
        sanitizer.check(self.lines)
        return status

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, JSON or text)"""
        connection = self.connect()
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.getheader("Content-Type", "").startswith("application/json")
        return response.status, response.headers, json.loads(text) if is_json else text

    def post(self, path, **body):
        status, _, answer = self.ask("POST", path, body)
        if status != 200:
            raise AssertionError((status, answer))
        return answer

    def complete(self, **body):
        body = {"temperature": 0, **body}
        return self.post("/v1/completions", **body)

    def events(self, path, **body):
        """The raw lines of a stream."""
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        if response.status != 200:
            raise AssertionError(response.read())
        text = response.read().decode()
        connection.close()
        return text.split("\n\n")

    def chunks(self, path, **body):
        events = [e for e in self.events(path, **body) if e and not e.startswith(":")]
        if events[-1] != "data: [DONE]":
            raise AssertionError(events[-1])
        return [json.loads(e.removeprefix("data: ")) for e in events[:-1]]

    def metrics(self):
        _, _, text = self.ask("GET", "/metrics")
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name.removeprefix("swiftkv_"): float(value) for name, value in rows}

    def wait_for(self, condition):
        """Seconds until condition(metrics) holds."""
        start = time.monotonic()
        try:
            wait_until(lambda: condition(self.metrics()), 0.005)
        except AssertionError as e:
            raise AssertionError(self.metrics()) from e
        return time.monotonic() - start

    def wait_line(self, part, n=1):
        """Until the server has said so, n times."""
        wait_until(lambda: sum(part in line for line in self.lines) >= n)


def busy_pages(metrics):
    return metrics["kv_pages_used"] - metrics["kv_pages_cached"]


def prompt_of(n, seed=0):
    return [(i * 37 + seed * 11 + 5) % 90 for i in range(n)]


class ServerTest(unittest.TestCase):
    """One server for all tests that do not end it."""

    model, words = PLAIN, ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.model, *cls.words)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.lines

    def refuses(self, status, path, body, *parts, method="POST"):
        got, headers, answer = self.server.ask(method, path, body)
        self.assertEqual(got, status, answer)
        error = answer["error"]
        numbers = {"n_prompt_tokens", "n_ctx", "prompt_is_cut"} if error["code"] == "context_length_exceeded" else set()
        self.assertEqual(set(error), {"message", "type", "param", "code"} | numbers)
        for part in parts:
            self.assertIn(part, error["message"])
        self.assertTrue(headers["x-request-id"])
        return error
