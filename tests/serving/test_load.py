#!/usr/bin/env python3
"""`swiftkv load` against `swiftkv serve`, and against a server that fails in every way it counts."""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PROGRAM, SWIFTKV, Server  # noqa: E402
from waiting import PATIENCE, wait_until  # noqa: E402

KEYS = ("mean", "median", "std", "p90", "p99")


def has_libcurl():
    result = subprocess.run([PROGRAM, "load", "127.0.0.1:9"], capture_output=True, text=True)
    return "libcurl" not in result.stderr


def load(url, *words, status=0):
    command = [PROGRAM, "load", url, "--json", *words]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
    if result.returncode != status:
        raise AssertionError((result.returncode, result.stderr, result.stdout))
    return json.loads(result.stdout) if result.stdout else result.stderr


class FakeHandler(BaseHTTPRequestHandler):
    """Answers as the body's field `mode` says, with 5 tokens 20 ms apart after 100 ms."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json"):
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.server.paths.append(self.path)
        self.server.keys.add(self.headers.get("Authorization"))
        if self.path == "/v1/models":
            self.reply(200, {"data": [{"id": "fake"}]})
        else:
            self.reply(404, {})

    def chunk(self, text):
        self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
        self.wfile.flush()

    def event(self, **body):
        self.chunk(f"data: {json.dumps(body)}\n\n")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.paths.append(self.path)
        mode = body.get("mode", "good")
        if isinstance(mode, int):
            self.reply(mode, {"error": {"message": f"status {mode}"}})
            return
        if mode == "json":
            self.reply(200, {"choices": []})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.stream(mode)
        except (BrokenPipeError, ConnectionResetError):
            self.server.n_gone += 1
            self.close_connection = True

    def stream(self, mode):
        time.sleep(0.1)
        if mode == "malformed":
            self.chunk("data: {no json\n\n")
        for i in range(5):
            if mode == "cut" and i == 2:
                self.close_connection = True
                return
            if mode == "error" and i == 2:
                self.event(error={"message": "out of luck"})
            if mode == "slow":
                time.sleep(2)
            self.event(choices=[{"index": 0, "text": "x", "finish_reason": None}])
            time.sleep(0.02)
        self.event(choices=[{"index": 0, "text": "", "finish_reason": "length"}])
        self.event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 5})
        self.chunk("data: [DONE]\n\n")
        self.chunk("")


class FakeTest(unittest.TestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHandler)
        self.server.daemon_threads = True
        self.server.bodies, self.server.paths, self.server.keys = [], [], set()
        self.server.n_gone = 0
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def failures(self, mode, *words):
        got = load(self.url, "--requests", 3, "--clients", 3, "--extra-body",
                   json.dumps({"mode": mode}), *words, status=1)
        self.assertEqual((got["completed"], got["failed"]), (0, 3))
        return got["errors_by_kind"]

    def test_times_are_those_of_the_stream(self):
        begun = time.monotonic()
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as log:
            got = load(self.url + "/v1/", "--requests", 4, "--clients", 2, "--gen", 5, "--goodput",
                       f"ttft:{1000 * PATIENCE}", "--log", log.name)
            rows = [json.loads(line) for line in log.read().splitlines()]
        passed = 1000 * (time.monotonic() - begun)
        self.assertEqual((got["completed"], got["failed"], got["num_prompts"]), (4, 0, 4))
        self.assertEqual((got["total_input_tokens"], got["total_output_tokens"]), (36, 20))
        self.assertNotIn("total_cached_tokens", got)  # this server does not tell
        # What the server waits is the least; what the whole run took is the most.
        for row in rows:
            ttft, gaps = 1000 * row["ttft"], [1000 * gap for gap in row["itl"]]
            self.assertEqual(len(gaps), 4)
            self.assertGreaterEqual(ttft, 100)
            self.assertGreaterEqual(ttft + sum(gaps), 180)
            self.assertGreaterEqual(1000 * row["latency"], ttft + sum(gaps) - 0.1)
            self.assertLessEqual(1000 * row["latency"], passed)
        gaps = [1000 * gap for row in rows for gap in row["itl"]]
        for name, values in (("ttft", [1000 * row["ttft"] for row in rows]), ("itl", gaps),
                             ("e2el", [1000 * row["latency"] for row in rows])):
            self.assertAlmostEqual(got[f"mean_{name}_ms"], statistics.mean(values), places=2)
            self.assertAlmostEqual(got[f"median_{name}_ms"], statistics.median(values), places=2)
        rest = [1000 * (row["latency"] - row["ttft"]) / 4 for row in rows]
        self.assertAlmostEqual(got["mean_tpot_ms"], statistics.mean(rest), places=2)
        self.assertAlmostEqual(got["output_throughput"], 20 / got["duration"])
        self.assertAlmostEqual(got["request_goodput"], got["request_throughput"])
        self.assertEqual(got["max_concurrent_requests"], 2)
        self.assertEqual(got["model_id"], "fake")
        for key in KEYS:
            for name in ("ttft", "tpot", "itl", "e2el"):
                self.assertIn(f"{key}_{name}_ms", got)
        body = self.server.bodies[0]
        self.assertEqual((body["model"], body["max_tokens"], len(body["prompt"])), ("fake", 5, 512))
        self.assertEqual(body["stream_options"], {"include_usage": True})
        self.assertNotIn("swiftkv", body)

    def test_failures_are_counted_by_kind(self):
        self.assertEqual(self.failures(429), {"http_429": 3})
        self.assertEqual(self.failures("cut"), {"cut": 3})
        self.assertEqual(self.failures("error"), {"error_event": 3})
        self.assertEqual(self.failures("malformed"), {"malformed": 3})
        self.assertEqual(self.failures("json"), {"cut": 3})
        self.assertEqual(self.failures("slow", "--timeout", 0.5), {"timeout": 3})

    def test_cancelled(self):
        got = load(self.url, "--requests", 6, "--clients", 6, "--cancel", 1, "--cancel-within", 0.1,
                   "--extra-body", '{"mode": "slow"}', status=1)
        self.assertEqual((got["cancelled"], got["failed"]), (6, 0))
        self.assertEqual(got["errors_by_kind"], {"cancelled": 6})

    def test_rate(self):
        start = time.monotonic()
        got = load(self.url, "--rate", 20, "--arrivals", "fixed", "--requests", 20)
        self.assertGreater(time.monotonic() - start, 0.95)
        self.assertEqual(got["completed"], 20)
        self.assertEqual((got["request_rate"], got["arrivals"]), (20, "fixed"))

    def test_late_requests_are_told(self):
        got = load(self.url, "--rate", 50, "--requests", 10, "--clients", 1)
        self.assertGreater(got["late_requests"], 3)
        self.assertGreater(got["max_lateness_ms"], 100)

    def test_chat_key_and_log(self):
        with tempfile.TemporaryDirectory() as folder:
            key, log = Path(folder, "key"), Path(folder, "log.jsonl")
            key.write_text("secret\n")
            load(self.url, "--chat", "--requests", 2, "--api-key-file", key, "--log", log,
                 "--prompt", 40)
            rows = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([row["outcome"] for row in rows], ["done", "done"])
        self.assertEqual([len(row["itl"]) for row in rows], [4, 4])
        self.assertIn("/v1/chat/completions", self.server.paths)
        self.assertEqual(self.server.keys, {"Bearer secret"})
        text = self.server.bodies[-1]["messages"][0]["content"]
        self.assertTrue(150 < len(text) < 180, text)  # 40 tokens of 4 bytes

    def test_interrupt_reports(self):
        command = [PROGRAM, "load", self.url, "--json", "--clients", "2", "--requests", "1000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(self.server.bodies) >= 6)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        got = json.loads(out)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(3 <= got["completed"] < 1000, got)
        self.assertLessEqual(got["errors_by_kind"].get("stopped", 0), 2)

    def test_nobody_there(self):
        url = self.url
        self.tearDown()
        self.assertIn(url, load(url, status=1))
        self.setUp()

    def test_bad_options(self):
        for words, part in (
            (("--arrivals", "trace"), "--trace"),
            (("--arrivals", "fixed"), "--rate"),
            (("--rate", "1,x"), "'x'"),
            (("--goodput", "ttft"), "--goodput"),
            (("--goodput", "ttft:5,"), "--goodput"),
            (("--extra-body", "[]"), "--extra-body"),
            (("--svg", "/tmp/x.svg", "--rate", "1"), "--svg"),
            (("--methods", "a,,b"), "--methods"),
        ):
            self.assertIn(part, load(self.url, *words, status=2))
        self.assertIn("/no/trace", load(self.url, "--trace", "/no/trace", status=1))


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SWIFTKV, "--ctx", 512)
        cls.url = f"127.0.0.1:{cls.server.port}"

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_closed_loop(self):
        before = self.server.metrics()
        got = load(self.url, "--requests", 20, "--clients", 4, "--prompt", "20,60", "--gen", 8,
                   "--ignore-eos", "--seed", 3)
        after = self.server.metrics()
        self.assertEqual((got["completed"], got["total_output_tokens"]), (20, 160))
        name = "prompt_tokens_total"
        self.assertEqual(got["total_input_tokens"], after[name] - before[name])
        self.assertLessEqual(got["max_concurrent_requests"], 4)

    def test_what_was_not_measured_is_no_zero(self):
        words = ("--requests", 3, "--prompt", 20, "--gen", 1, "--ignore-eos")
        got = load(self.url, *words)
        for key in KEYS:
            self.assertIsNone(got[f"{key}_tpot_ms"])
            self.assertIsNone(got[f"{key}_itl_ms"])
            self.assertIsNotNone(got[f"{key}_ttft_ms"])
        command = [PROGRAM, "load", self.url, *words]
        table = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE).stdout
        self.assertRegex(table, r"time per output token( +-){5}\n")
        self.assertRegex(table, r"time to first token( +[0-9.]+){5}\n")

    def test_sweep_with_chart(self):
        with tempfile.TemporaryDirectory() as folder:
            out, svg = Path(folder, "out.json"), Path(folder, "load.svg")
            runs = load(self.url, "--rate", "50,100", "--methods", "auto,teacher", "--requests", 10,
                        "--prompt", 30, "--gen", 4, "--ignore-eos", "--warmup", 2, "--out", out,
                        "--svg", svg)
            self.assertEqual(json.loads(out.read_text()), runs)
            chart = svg.read_text()
        self.assertEqual([(r["swiftkv"], r["request_rate"]) for r in runs],
                         [("auto", 50), ("auto", 100), ("teacher", 50), ("teacher", 100)])
        self.assertTrue(all(r["completed"] == 10 for r in runs))
        # Two lines a method and panel, and their legend once.
        self.assertEqual(len(re.findall("<polyline", chart)), 8)
        self.assertIn("teacher, p99", chart)
        self.assertIn("TTFT, ms", chart)

    def test_trace_shares_blocks(self):
        rows = [{"timestamp": 10 * i, "input_length": 1024, "output_length": 20,
                 "hash_ids": [0, i + 1]} for i in range(5)]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
            file.flush()
            got = load(self.url, "--trace", file.name, "--length-scale", 0.25, "--time-scale", 20,
                       "--clients", 1, "--ignore-eos")
        self.assertEqual((got["completed"], got["total_input_tokens"]), (5, 5 * 256))
        self.assertEqual(got["total_output_tokens"], 25)
        # The first block of 128 tokens is known from the second prompt on.
        self.assertEqual(got["total_cached_tokens"], 4 * 128)


if __name__ == "__main__":
    if not has_libcurl():
        print("test_load: swiftkv was built without libcurl: skipped")
        sys.exit(77)
    unittest.main()
