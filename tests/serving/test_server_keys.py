#!/usr/bin/env python3
"""Rates by API key, the request log, and trace headers, from outside."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402
from waiting import PATIENCE, wait_exit, wait_until  # noqa: E402

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class LifeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def start(self, *words):
        server = base.Server(base.PLAIN, "--ctx", 512, *words)
        self.addCleanup(server.stop)
        return server

    def start_with_keys(self, text, *words):
        self.keys = self.folder / "keys"
        self.keys.write_text(text)
        return self.start("--api-key-file", self.keys, *words)

    def read_again(self, server, text):
        said = "keys were read again"
        n_before = sum(said in line for line in server.lines)
        self.keys.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        server.wait_line(said, n_before + 1)


def refusal(*words):
    """What a server says that does not start."""
    command = [base.PROGRAM, "serve", base.PLAIN, "--port", "0", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 1, result.stderr
    return result.stderr


def ask(server, key=None, n_prompt=1, max_tokens=1, method="POST", path="/v1/completions", **headers):
    body = {"prompt": base.prompt_of(n_prompt, 5), "max_tokens": max_tokens, "ignore_eos": True}
    if key:
        headers["Authorization"] = "Bearer " + key
    return server.ask(method, path, body if method == "POST" else None, headers)


class RateTest(LifeTest):
    """Buckets fill up while the test asks: how much they may hold is told as bounds by the clock."""

    def use_up(self, server, key=None):
        """Asks until it is refused: the answers that were given, the refusal, the seconds that this took."""
        begun, given = time.monotonic(), []
        for _ in range(1000):
            answer = ask(server, key)
            if answer[0] != 200:
                return given, answer, time.monotonic() - begun
            given.append(answer)
        self.fail("no rate holds")
        return None

    def check_rate(self, server, key, rpm):
        """A bucket that was full gives rpm answers, and what it earns meanwhile."""
        given, (status, _, _), seconds = self.use_up(server, key)
        self.assertEqual(status, 429)
        self.assertIn(len(given), range(rpm, rpm + int(rpm * seconds / 60) + 1))

    def test_requests_a_minute(self):
        server = self.start_with_keys("k  rpm=3 # a remark\nother\n")
        begun = time.monotonic()
        given, (status, headers, answer), seconds = self.use_up(server, "k")
        earned = 3 * seconds / 60
        self.assertIn(len(given), range(3, 3 + int(earned) + 1))
        for i, (_, told, _) in enumerate(given):
            self.assertEqual(told["x-ratelimit-limit-requests"], "3")
            left = int(told["x-ratelimit-remaining-requests"])
            self.assertIn(left, range(max(2 - i, 0), int(2 - i + earned) + 1))
            self.assertRegex(told["x-ratelimit-reset-requests"], r"^\d+\.\d{3}s$")
            self.assertIsNone(told["x-ratelimit-limit-tokens"])
        self.assertEqual(status, 429)
        self.assertEqual(answer["error"]["type"], "rate_limit_error")
        self.assertEqual(answer["error"]["code"], "rate_limit_exceeded")
        self.assertIn("3 a minute", answer["error"]["message"])
        wait = int(headers["retry-after-ms"])  # 60 s / 3, less what has been earned of it
        self.assertLessEqual(wait, 20000)
        self.assertGreaterEqual(wait, 20000 * (1 + len(given) - 3 - earned) - 1)
        self.assertEqual(int(headers["Retry-After"]), -(-wait // 1000))
        self.assertEqual(headers["x-ratelimit-remaining-requests"], "0")
        # Others are not touched, nor is what is no POST.
        self.assertEqual(ask(server, "k", method="GET", path="/v1/models")[0], 200)
        self.assertEqual(ask(server, "other")[0], 200)
        # The file is read again: what was used stays used.
        self.read_again(server, "k  rpm=5 # a remark\nother\n")
        more, (status, _, answer), _ = self.use_up(server, "k")
        self.assertEqual(status, 429)
        self.assertIn("5 a minute", answer["error"]["message"])
        self.assertGreaterEqual(len(more), 2)
        self.assertLessEqual(len(given) + len(more), 5 + 5 * (time.monotonic() - begun) / 60)
        text = ask(server, "other", method="GET", path="/metrics")[2]
        self.assertRegex(text, r'swiftkv_rate_limited_total\{limit="requests"\} 2')

    def test_each_key_has_its_rate(self):
        server = self.start_with_keys("k\nmany rpm=1000\nfree rpm=0\n", "--rpm", 2)
        self.check_rate(server, "k", 2)  # --rpm is for lines that say nothing
        for key in ("many", "free"):
            self.assertEqual({ask(server, key)[0] for _ in range(10)}, {200})
        self.read_again(server, "k\n")
        self.assertEqual(ask(server, "many")[0], 401)

    def test_buckets_fill_up(self):
        server = self.start_with_keys("k rpm=30\n")
        self.assertEqual({ask(server, "k", path="/detokenize")[0] for _ in range(29)}, {400})
        for _ in range(300):
            status, headers, _ = ask(server, "k")
            if status != 200:
                break
        self.assertEqual(status, 429)
        self.assertIn(headers["Retry-After"], ("1", "2"))
        time.sleep(int(headers["retry-after-ms"]) / 1000 + 0.01)
        self.assertEqual(ask(server, "k")[0], 200)

    def remains(self, headers, tokens, a_second, begun):
        """So many are left, and what has come since."""
        left = int(headers["x-ratelimit-remaining-tokens"])
        self.assertGreaterEqual(left, tokens)
        self.assertLessEqual(left, tokens + a_second * (time.monotonic() - begun) + 1)

    def test_tokens_a_minute(self):
        server = self.start_with_keys("k tpm=60\nother\n", "--tpm", 100000)
        begun = time.monotonic()
        status, headers, _ = ask(server, "k", n_prompt=20, max_tokens=5)
        self.assertEqual(status, 200)
        self.assertEqual(headers["x-ratelimit-limit-tokens"], "60")
        self.remains(headers, 60 - 25, 1, begun)
        # A stream's tokens count too, when it has ended; and what goes below zero is waited for.
        connection = server.connect()
        body = {"prompt": base.prompt_of(400, 6), "max_tokens": 100, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"X-Api-Key": "k"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        response.read()
        connection.close()
        status, headers, answer = wait_until(lambda: (got := ask(server, "k"))[0] == 429 and got)
        self.assertIn("tokens: 60 a minute", answer["error"]["message"])
        self.assertEqual(headers["x-ratelimit-remaining-tokens"], "0")
        passed = time.monotonic() - begun
        self.assertGreaterEqual(int(headers["Retry-After"]), 500 + 25 - 60 - passed)  # one a second
        self.assertEqual(ask(server, "other")[1]["x-ratelimit-limit-tokens"], "100000")
        text = ask(server, "other", method="GET", path="/metrics")[2]
        self.assertRegex(text, r'swiftkv_rate_limited_total\{limit="tokens"\} [1-9]')

    def test_embeddings_count(self):
        server = self.start("--tpm", 1000)
        begun = time.monotonic()
        _, headers, _ = server.ask("POST", "/v1/embeddings", {"input": [base.prompt_of(150)] * 2})
        self.remains(headers, 700, 1000 / 60, begun)

    def test_without_keys_there_is_one_rate_for_all(self):
        self.check_rate(self.start("--rpm", 2), None, 2)

    def test_faulty_lines_are_refused(self):
        for line in ("k rpm=x", "k rpm=-1", "k limit=3", "k rpm=", "two keys", "k rpm=1e99", "k tpm=nan"):
            keys = self.folder / "bad"
            keys.write_text("good\n" + line + "\n")
            self.assertIn("rpm=N", refusal("--api-key-file", keys), line)


class LogTest(LifeTest):
    def lines(self, path, n):
        wait_until(lambda: path.read_text().count("\n") >= n)
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_a_line_a_request(self):
        log = self.folder / "log"
        server = self.start("--request-log", log)
        # A line may be written after the answer was read: one after the other.
        ask(server, n_prompt=20, max_tokens=3)
        self.lines(log, 1)
        ask(server, method="GET", path="/v1/nothing?key=secret")
        self.lines(log, 2)
        ask(server, method="GET", path='/"\\')
        self.lines(log, 3)
        server.chunks("/v1/completions", prompt=base.prompt_of(20, 5), max_tokens=4, ignore_eos=True)
        rows = self.lines(log, 4)
        first = rows[0]
        self.assertRegex(first["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((first["method"], first["path"], first["status"]), ("POST", "/v1/completions", 200))
        self.assertEqual((first["prompt_tokens"], first["completion_tokens"]), (20, 3))
        self.assertEqual(first["whole"], True)
        self.assertGreater(first["duration_ms"], 0)
        self.assertNotIn("trace_id", first)
        self.assertEqual((rows[1]["path"], rows[1]["status"]), ("/v1/nothing", 404))
        self.assertEqual((rows[3]["prompt_tokens"], rows[3]["completion_tokens"]), (20, 4))
        self.assertNotIn("secret", log.read_text())
        self.assertEqual(log.stat().st_mode & 0o777 & ~0o640, 0)

    def test_probes(self):
        log = self.folder / "log"
        server = self.start_with_keys("k\n", "--request-log", log)
        for path in ("/health", "/metrics"):
            self.assertEqual(ask(server, "k", method="GET", path=path)[0], 200)
        ask(server, method="GET", path="/metrics")  # without its key it is no probe
        self.lines(log, 1)
        ask(server, "k", method="GET", path="/v1/models")
        self.assertEqual([(r["path"], r["status"], r.get("error")) for r in self.lines(log, 2)],
                         [("/metrics", 401, "invalid_api_key"), ("/v1/models", 200, None)])

    def test_times_add_up(self):
        """Prompts that are read in turns wait for each other: what is computed is told apart from that."""
        log = self.folder / "log"
        server = self.start("--request-log", log, "--ctx", 4096, "--kv-tokens", 40960)
        n = 6
        threads = [threading.Thread(target=server.complete, kwargs={
            "prompt": base.prompt_of(2500, i), "max_tokens": 2, "ignore_eos": True}) for i in range(n)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rows = self.lines(log, n)
        for row in rows:
            parts = ("read_ms", "queue_ms", "wait_ms", "prompt_ms", "predicted_ms")
            self.assertLessEqual(sum(row[part] for part in parts), row["duration_ms"])
            self.assertEqual((row["model"], row["preemptions"]), (base.PLAIN.name, 0))
        sums = server.metrics()
        ttft, queue, wait, computed, steps = (sums[f"{name}_seconds_sum"] for name in (
            "time_to_first_token", "request_queue_time", "request_wait_time", "request_prefill_time", "step_time"))  # fmt: skip
        self.assertAlmostEqual(ttft, queue + wait + computed, delta=1e-6 * ttft)
        # A step has tokens of two of them at most: none fits into one.
        self.assertLessEqual(computed, 2 * steps)
        for metric, field in ((queue, "queue_ms"), (wait, "wait_ms"), (computed, "prompt_ms")):
            self.assertAlmostEqual(sum(row[field] for row in rows), 1000 * metric, delta=0.01 * n)

    def test_refusals_have_their_reason(self):
        """Where it is no fault of the client's; what may quote the request is told by name alone."""
        log = self.folder / "log"
        server = self.start("--request-log", log, "--rpm", 2)
        for i, model in enumerate(("private", None, None)):
            status = server.ask("POST", "/v1/completions", {"prompt": [1], "max_tokens": 1, "model": model})[0]
            rows = self.lines(log, i + 1)
        self.assertEqual(status, 429)
        self.assertEqual([(r["status"], r.get("error")) for r in rows],
                         [(404, "model_not_found"), (200, None), (429, "rate_limit_exceeded")])
        self.assertIn("requests: 2 a minute", rows[2]["reason"])
        self.assertNotIn("private", log.read_text())

    def test_waits_for_models_and_memory(self):
        log = self.folder / "log"
        other = base.MODELS / "qwen3-v5"
        server = base.Server(base.PLAIN, other, "--ctx", 128, "--request-log", log)
        self.addCleanup(server.stop)
        for i in range(2):
            server.complete(prompt=[1, 2], max_tokens=1, model=other.name)
            rows = self.lines(log, i + 1)
        first, second = rows
        self.assertGreater(first["load_ms"], 0)
        self.assertLess(first["load_ms"], first["duration_ms"])
        self.assertNotIn("load_ms", second)

    def test_words_on_a_terminal(self):
        """A line for each request, without control characters of clients."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        command = [base.PROGRAM, "serve", base.PLAIN, "--port", 0, "--threads", 1, "--ctx", 512, *base.STACK]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=slave)
        os.close(slave)
        said = []

        def read():
            try:
                while piece := os.read(master, 65536):
                    said.append(piece)
            except OSError:  # the other side is closed
                pass

        reader = threading.Thread(target=read)
        reader.start()
        try:
            found = wait_until(lambda: re.search(rb"ready on http://[^ ]*:(\d+)", b"".join(said)))
            port = int(found[1])
            paths = (b"/v1/completions", b"/v1/\x1b]0;x\x07", b"/\x9b31m", b"/\xc2\x9b31m", b"/health")
            for i, path in enumerate(paths):
                body = b'{"prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": true}'
                with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as link:
                    method = b"GET" if path == b"/health" else b"POST"
                    body = b"" if method == b"GET" else body
                    link.sendall(method + b" " + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "
                                 + str(len(body)).encode() + b"\r\n\r\n" + body)  # fmt: skip
                    while link.recv(65536):
                        pass
                wait_until(lambda n=min(i + 1, 4): len(re.findall(rb"\d\d:\d\d:\d\d \d", b"".join(said))) >= n)
        finally:
            process.send_signal(signal.SIGTERM)
            self.assertEqual(wait_exit(process), 0)
            reader.join()
        text = b"".join(said)
        lines = [line for line in text.replace(b"\r\x1b[K", b"").split(b"\r\n") if re.search(rb"\d\d:\d\d:\d\d ", line)]
        self.assertEqual(len(lines), 4, text)
        self.assertRegex(lines[0].decode(), r"^\d\d:\d\d:\d\d 200 POST /v1/completions llama3-v5, 3 prompt tokens \(0 cached\), "
                         r"2 generated, \d+ ms(: (\w+ \d+(, )?)+)?$")
        self.assertIn(b" 404 POST /%9B31m, ", lines[2])
        self.assertIn(b" 404 POST /%C2%9B31m, ", lines[3])
        self.assertNotRegex(b"".join(lines), rb"[\x00-\x1f\x7f-\xff]")

    def test_a_client_that_leaves(self):
        log = self.folder / "log"
        server = self.start("--request-log", log, *base.LONG)
        connection = server.connect()
        body = {"prompt": [1, 2], "max_tokens": 60000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        response.close()
        connection.close()
        row = self.lines(log, 1)[0]
        self.assertEqual(row["whole"], False)
        self.assertEqual(row["prompt_tokens"], 2)
        self.assertGreater(row["completion_tokens"], 0)

    def test_rotation(self):
        log = self.folder / "log"
        server = self.start("--request-log", log)
        ask(server)
        self.lines(log, 1)
        log.rename(self.folder / "old")
        server.process.send_signal(signal.SIGHUP)
        wait_until(log.exists)
        ask(server)
        self.assertEqual(len(self.lines(log, 1)), 1)

    def test_a_log_that_cannot_be_opened(self):
        self.assertIn("/nowhere/log", refusal("--request-log", "/nowhere/log"))

    def trace(self, server, log, **headers):
        """(the answer's headers, the log's line) of a request."""
        n_before = len(self.lines(log, 0))
        got = server.ask("GET", "/health", None, headers)[1]
        return got, self.lines(log, n_before + 1)[-1]

    def test_trace_headers(self):
        log = self.folder / "log"
        server = self.start("--request-log", log, "--log-probes")
        good = f"00-{TRACE}-{PARENT}-01"
        state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7, 1a-_*/@b=x"
        _, row = self.trace(server, log, traceparent=good, tracestate=state)
        self.assertEqual((row["trace_id"], row["parent_id"]), (TRACE, PARENT))
        self.assertEqual((row["sampled"], row["tracestate"]), (True, state))
        self.assertRegex(row["span_id"], r"^[0-9a-f]{16}$")
        for text, sampled in ((good[:-2] + "00", False), (good[:-2] + "03", True),
                              ("cc" + good[2:] + "-what-follows", True), ("01" + good[2:], True)):  # fmt: skip
            _, row = self.trace(server, log, traceparent=text)
            self.assertEqual((row["trace_id"], row["sampled"]), (TRACE, sampled), text)
        for text in (
            "", "00", good[:-1], good + "0", good + "-more", "ff" + good[2:], good.upper(),
            good.replace(TRACE, "0" * 32), good.replace(PARENT, "0" * 16), good.replace("-", "_"),
            "cc" + good[2:] + "x", "0g" + good[2:], good.replace("4bf9", "4bg9"), "x" * 5000,
        ):  # fmt: skip
            _, row = self.trace(server, log, traceparent=text, tracestate=state)
            self.assertNotIn("trace_id", row, text)
            self.assertNotIn("tracestate", row, text)
        for text in ("UPPER=1", "a=", "=1", "a", "a=b=c", "a=" + "x" * 300, ",".join(f"k{i}=1" for i in range(33)),
                     "a=" + "é", "a=\x7f", "x" * 600):  # fmt: skip
            _, row = self.trace(server, log, traceparent=good, tracestate=text.encode("utf-8"))
            self.assertEqual(row["trace_id"], TRACE)
            self.assertNotIn("tracestate", row, text)

    def test_traceparent_twice_is_none(self):
        log = self.folder / "log"
        server = self.start("--request-log", log, "--log-probes")
        connection = server.connect()
        connection.putrequest("GET", "/health")
        connection.putheader("traceparent", f"00-{TRACE}-{PARENT}-01")
        connection.putheader("traceparent", f"00-{TRACE}-{PARENT}-01")
        connection.endheaders()
        connection.getresponse().read()
        connection.close()
        self.assertNotIn("trace_id", self.lines(log, 1)[0])

    def test_request_ids(self):
        log = self.folder / "log"
        server = self.start("--request-log", log, "--log-probes")
        got, row = self.trace(server, log, **{"X-Request-Id": "job-17/a.b:c"})
        self.assertEqual(got["x-request-id"], "job-17/a.b:c")
        self.assertEqual(row["request_id"], "job-17/a.b:c")
        self.assertNotEqual(row["id"], row["request_id"])
        for text in ("", "a b", 'x"y', "x" * 129, "é".encode(), "<script>"):
            got, row = self.trace(server, log, **{"X-Request-Id": text})
            self.assertEqual(got["x-request-id"], row["id"], text)
            self.assertNotIn("request_id", row)


@unittest.skipUnless(base.STORIES.exists(), "../shared/assets is absent")
class GrammarTest(LifeTest):
    """Grammars are compiled by turns: a key that has many in work lets another's pass."""

    properties = {f"p{i}": {"type": "integer", "minimum": i, "maximum": 10**12 + i} for i in range(1500)}
    wide = {"prompt": "a", "guided_json": {"type": "object", "properties": properties}}  # refused in a tenth of a second

    def test_keys_take_turns(self):
        keys = self.folder / "keys"
        keys.write_text("one\ntwo\n")
        server = base.Server(base.STORIES, "--ctx", 512, "--api-key-file", keys)
        self.addCleanup(server.stop)
        n_done, stop = [0], threading.Event()

        def press():
            while not stop.is_set():
                status, _, answer = server.ask("POST", "/v1/completions", self.wide, {"Authorization": "Bearer one"})
                self.assertEqual(status, 400, answer)
                n_done[0] += 1

        threads = [threading.Thread(target=press) for _ in range(32)]
        for thread in threads:
            thread.start()
        wait_until(lambda: n_done[0] > 4)
        between = []
        for i in range(8):
            n_before, small = n_done[0], {"prompt": "a", "max_tokens": 1, "guided_regex": f"[a-z]{{1,{i + 1}}}"}
            status, _, answer = server.ask("POST", "/v1/completions", small, {"Authorization": "Bearer two"})
            between.append(n_done[0] - n_before)
            self.assertEqual(status, 200, answer)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertLess(sum(between), 8 * 8, between)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
