#!/usr/bin/env python3
"""What bounds the server from outside: memory, descriptors, file sizes, signals, broken HTTP."""

import concurrent.futures
import contextlib
import fcntl
import http.client
import itertools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import sanitizer  # noqa: E402
import server_process as base  # noqa: E402
from waiting import PATIENCE, cpu_seconds, wait_exit, wait_until  # noqa: E402


@contextlib.contextmanager
def limited(what, n):
    """What is started inside may have at most n of it."""
    command = subprocess.Popen

    def start(*args, **options):
        return command(*args, preexec_fn=lambda: resource.setrlimit(what, (n, n)), **options)

    with mock.patch.object(subprocess, "Popen", start):
        yield


@contextlib.contextmanager
def serving(*words, model=base.PLAIN):
    server = base.Server(model, *words)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
        status = server.stop()
    if status != 0:
        raise AssertionError((status, server.lines))


class SignalTest(unittest.TestCase):
    def test_a_file_may_not_grow(self):
        """SIGXFSZ (ulimit -f): the cache on disk fails as on a full one, and the server goes on."""
        with tempfile.TemporaryDirectory() as folder:
            words = ("--ctx", 512, "--kv-tokens", 512, "--cache-dir", folder)
            with limited(resource.RLIMIT_FSIZE, 1024), serving(*words) as server:
                for seed in range(4):
                    server.complete(prompt=base.prompt_of(400, seed), max_tokens=1)
                server.wait_for(lambda m: m["cache_disk_failed_total"] > 0)
                server.wait_line("File too large")
                self.assertEqual(server.ask("GET", "/health")[0], 200)
                self.assertEqual(server.metrics()["cache_disk_written_total"], 0)

    @unittest.skipIf(sanitizer.is_used(), "it maps terabytes")
    def test_address_space(self):
        """ulimit -v: a server that fits serves, though it could map more elsewhere, and one that does not says why."""
        with limited(resource.RLIMIT_AS, 160 << 20), serving("--ctx", 512) as server:
            self.assertIn("ulimit -v leaves", "".join(server.lines))
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda i: server.complete(prompt=base.prompt_of(400, i), max_tokens=2), range(16)))
        for mib in (100, 160, 400):
            with limited(resource.RLIMIT_AS, mib << 20), self.assertRaisesRegex(RuntimeError, r"available \(ulimit -v\)"):
                base.Server(base.PLAIN, "--ctx", 512, "--kv-tokens", 1 << 20).process.kill()

    def test_time_that_stood_still_does_not_count(self):
        with serving(*base.LONG, "--watchdog", 1) as server:
            connection = server.connect()
            body = '{"prompt": [1, 2], "max_tokens": 60000, "ignore_eos": true}'
            connection.request("POST", "/v1/completions", body)
            server.wait_for(lambda m: m["requests_running"] == 1)
            for _ in range(2):
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(1.5)
                server.process.send_signal(signal.SIGCONT)
                for _ in range(40):
                    self.assertEqual(server.ask("GET", "/health")[::2], (200, {"status": "ok"}))
            connection.close()
            self.assertFalse([line for line in server.lines if "stalled" in line])


class ReaderTest(unittest.TestCase):
    """How slowly an answer may be read: on average, while writing waits for its reader."""

    @unittest.skipUnless(base.STORIES.exists(), "../shared/assets is absent")
    def test_answers_are_read_in_time(self):
        """Who takes something now and then, but 16 KB/s of 14 MB, is cut."""
        body = json.dumps({"content": "a b " * (1 << 18), "with_pieces": True})
        with tempfile.NamedTemporaryFile() as log:
            words = ("--ctx", 512, "--stall-timeout", 3, "--request-log", log.name)
            with serving(*words, model=base.STORIES) as server:
                n_fast = sum(self.reads(server, body, 1 << 20, 0.01))
                slow = self.reads(server, body, 8 << 10, 0.5)
                n_reads = len(list(itertools.islice(slow, 60)))
                self.assertGreater(n_fast, 12 << 20)
                self.assertLess(n_reads, 60, "it was not closed")
                server.wait_for(lambda m: m["http_connections_cut_total"] == 1)
                self.assertLess(server.metrics()["memory_used_bytes"], 1 << 20)
            lines = [json.loads(line) for line in Path(log.name).read_text().splitlines()]
        self.assertEqual([line["whole"] for line in lines], [True, False])
        self.assertEqual(lines[1]["error"], "slow_reader")
        self.assertRegex(lines[1]["reason"], r"too slowly: less than \d+ bytes/s in [\d.]+ s of waiting")

    @staticmethod
    def reads(server, body, n, pause):
        """The bytes of each look, of at most n bytes, until the server closes or all is there."""
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            s.settimeout(PATIENCE)
            s.connect(("127.0.0.1", server.port))
            head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            s.sendall(head.encode() + body.encode())
            with contextlib.suppress(ConnectionResetError):
                while data := s.recv(n):
                    yield len(data)
                    time.sleep(pause)


class HttpTest(base.ServerTest):
    """What is no request that we take is answered by us, once, and the connection ends."""

    words = ("--ctx", 512, "--max-body", 1, "--connection-stack", 128)
    post = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    chunks = post + b"Transfer-Encoding: chunked\r\n\r\n"

    def raw(self, data):
        """All that comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
            s.sendall(data)
            return b"".join(iter(lambda: s.recv(1 << 16), b""))

    def answers(self, data):
        """[(status, headers, body)] of whole responses, each as long as it says."""
        text, out = self.raw(data), []
        while text:
            head, _, text = text.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:])
            self.assertEqual(len(headers), len(lines) - 1, lines)
            n = int(headers["Content-Length"])
            self.assertGreaterEqual(len(text), n)
            out.append((int(lines[0].split(" ")[1]), headers, json.loads(text[:n])))
            text = text[n:]
        return out

    def test_what_is_refused(self):
        many = b"".join(b"x%d: y\r\n" % i for i in range(101))
        for status, data in (
            (400, self.post + b"Content-Length: abc\r\n\r\n"),
            (400, self.post + b"Content-Length: -1\r\n\r\n"),
            (400, self.post + b"Content-Length: \r\n\r\n"),
            (400, self.post + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
            (400, self.post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"),
            (413, self.post + b"Content-Length: 99999999999999999999999\r\n\r\n"),
            (413, self.post + b"Content-Length: 1048577\r\n\r\n"),
            (413, self.chunks + b"100001\r\n" + b" " * 0x100001 + b"\r\n0\r\n\r\n"),
            (501, self.post + b"Transfer-Encoding: xchunked\r\n\r\nhello"),
            (501, self.post + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
            (400, self.chunks + b"zz\r\nhello\r\n0\r\n\r\n"),
            (400, self.chunks + b"\r\nhello\r\n0\r\n\r\n"),
            (400, self.chunks + b"2 hello\n{}\r\n0\r\n\r\n"),
            (400, self.chunks + b"2\r\nhello\r\n0\r\n\r\n"),
            (400, self.chunks + b"ffffffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
            (400, self.chunks + b"2;" + b"a" * 60000 + b"\r\n{}\r\n0\r\n\r\n"),
            (400, self.chunks + b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 5000 + b"\r\n"),
            (400, b"\0\1\2\r\n\r\n"), (400, b"GET /health\r\n\r\n"), (400, b"GET  /health HTTP/1.1\r\n\r\n"),
            (400, b"GET /health HTTP/1.1\n\r\n\r\n"), (400, b"GET /health HTTP/1.x\r\n\r\n"),
            (505, b"GET /health HTTP/2.0\r\n\r\n"),
            (400, b"GET /health\0/x HTTP/1.1\r\nHost: x\r\n\r\n"),
            (400, self.get + b"Authorization: Bearer key\0zzz\r\n\r\n"),
            (400, self.get + b"no colon\r\n\r\n"), (400, self.get + b"x : y\r\n\r\n"),
            (400, self.get + b"x: y\r\n z\r\n\r\n"), (400, self.get + b": y\r\n\r\n"),
            (400, self.get + b"x: y\nz: a\r\n\r\n"), (400, self.get + b"Host: y\r\n\r\n"),
            (417, self.post + b"Expect: nothing\r\nContent-Length: 2\r\n\r\n"),
            (414, b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\n\r\n"),
            (431, self.get + b"x: " + b"y" * 60000 + b"\r\n\r\n"), (431, self.get + many + b"\r\n"),
        ):  # fmt: skip
            with self.subTest(data=data[:90]):
                answers = self.answers(data)
                self.assertEqual([a[0] for a in answers], [status], answers)
                self.assertEqual(answers[0][1]["Connection"], "close")
                self.assertEqual(set(answers[0][2]["error"]), {"message", "type", "param", "code"})

    def test_what_is_taken(self):
        body = b'{"prompt": [1, 2], "max_tokens": 1}'
        whole = self.post + b"Content-Length: %d\r\n" % len(body)
        pieces = b"".join(b"%x;a=b\r\n%c\r\n" % (1, c) for c in body) + b"0\r\nx: y\r\n\r\n"
        close = b"Connection: close\r\n\r\n"
        absolute = b"GET http://x:1/health?a=b HTTP/1.1\r\nHost: x\r\n"
        for n, data in (
            (1, self.get + close), (1, b"\r\n" + absolute + close), (1, b"GET /health HTTP/1.0\r\n\r\n"),
            (1, whole + close + body), (1, self.post + b"transfer-encoding: Chunked\r\n" + close + pieces),
            (4, self.get + b"\r\n" + whole + b"\r\n" + body + self.chunks + pieces + self.get + close),
            (2, b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /health HTTP/1.0\r\n\r\n"),
        ):  # fmt: skip
            with self.subTest(data=data[:90]):
                self.assertEqual([a[0] for a in self.answers(data)], [200] * n)

    def test_expect_and_old_streams(self):
        body = b'{"prompt": [1, 2], "max_tokens": 3, "ignore_eos": true, "stream": true, "logprobs": 0}'
        head = b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
            s.sendall(self.post + head)
            self.assertEqual(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            s.sendall(body)
            new = b"".join(iter(lambda: s.recv(1 << 16), b""))
        old = self.raw(self.post.replace(b"1.1", b"1.0") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertTrue(new.endswith(b"\r\n0\r\n\r\n"))
        self.assertNotIn(b"chunked", old)
        for text in (new, old):
            self.assertEqual(text.count(b"data: {"), 4)
            self.assertIn(b"data: [DONE]\n\n", text)


class FilesTest(unittest.TestCase):
    def test_connections_fit_the_descriptors(self):
        """ulimit -n: what says nothing gives way, nobody spins, and who has something to say is served."""
        with limited(resource.RLIMIT_NOFILE, 40), serving("--ctx", 512) as server:
            self.assertTrue([line for line in server.lines if "only 40 files" in line], server.lines)
            idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
            self.assertTrue(any(share_of_processor(server.process) < 0.02 for _ in range(120)))
            wait_until(lambda: server.ask("GET", "/health")[0] == 200)  # idle ones have been so for long enough
            for _ in range(20):
                self.assertEqual(server.ask("GET", "/health")[0], 200)
            server.complete(prompt=[1, 2], max_tokens=1)
            self.assertEqual(len(idle), 60)
            for s in idle:
                s.close()


def share_of_processor(process):
    """What it takes of one in half a second or more."""
    before, start = cpu_seconds(process), time.monotonic()
    time.sleep(0.5)
    return (cpu_seconds(process) - before) / (time.monotonic() - start)


def resident(process, what):
    """VmRSS or VmHWM of a process in bytes."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", text).group(1)) << 10


class EndTest(unittest.TestCase):
    """SIGTERM: status 0 says that the server has stopped in an orderly way within its time, as it gives that up
    after five seconds."""

    grammar = "root ::= (a{90}){0,90} | (b{80}){0,80}\na ::= [a-z]{1,9} | b\nb ::= [0-9]{1,9} | [a-f]{2,8}"

    def ends(self, server, *bodies, status=0):
        held = [self.send(server, *body) for body in bodies]
        server.wait_for(lambda m: m["http_connections"] > len(held))
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        got = wait_exit(server.process)
        for s in held:
            s.close()
        server.stop()
        self.assertEqual(got, status, server.lines)

    def send(self, server, body, n_less=0, path="completions"):
        s = socket.create_connection(("127.0.0.1", server.port))
        data = json.dumps(body).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data) + n_less}\r\n\r\n"
        s.sendall(head.encode() + data)
        return s

    def test_whatever_runs(self):
        template = (
            "{% for a in range(100000) %}{% for b in range(100000) %}{{ a * b }}{% endfor %}{% endfor %}"
        )
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            words = ("--ctx", 8192, "--kv-tokens", 32768, "--shutdown-timeout", 0.3, "--template", file.name)
            words += ("--connection-stack", 128)
            pattern = "|".join(f"(.*[a-m].{{{i},{i + 40}}})" for i in range(12))
            long = {"max_tokens": 6000, "ignore_eos": True}
            self.ends(
                base.Server(base.ROOT / "models/mini/kv6-g2", *words),
                ({"prompt": "x", "guided_grammar": self.grammar, **long},),
                ({"prompt": "x", "guided_regex": pattern, "n": 16, **long},),
                ({"messages": [{"role": "user", "content": "x"}]}, 0, "chat/completions"),
                ({"prompt": "word " * 7000, "echo": True, "logprobs": 20},),
                ({"prompt": "x", "stream": True, "logprobs": 20, "n": 16, **long},),
                ({"prompt": "x"}, 100),
            )

    def test_what_cannot_be_stopped(self):
        """A log that nobody reads: its writer waits for ever, and the server does not."""
        with tempfile.TemporaryDirectory() as folder:
            fifo = f"{folder}/log"
            os.mkfifo(fifo)
            reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
            server = base.Server(base.PLAIN, "--ctx", 512, "--request-log", fifo, "--shutdown-timeout", 0.3)
            held = [self.send(server, {"prompt": [1], "max_tokens": 1}) for _ in range(60)]
            wait_until(lambda: int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, b"1234"), "little") > 3500)
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(wait_exit(server.process), 1)
            server.stop()
            self.assertTrue([line for line in server.lines if "ending now" in line])
            for s in held:
                s.close()
            os.close(reader)


class ReadingTest(unittest.TestCase):
    """--request-work, --request-memory and --request-seconds: each is named where it is exceeded."""

    plain = {"prompt": [1, 2], "max_tokens": 1}
    wide = {"prompt": [1, 2], "metadata": [{}] * 20000}

    def refused(self, words, body, *parts):
        with serving("--ctx", 512, *words) as server:
            status, _, answer = server.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 400, answer)
            self.assertEqual(answer["error"]["type"], "invalid_request_error")
            for part in parts:
                self.assertIn(part, answer["error"]["message"])
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            return server.ask("POST", "/v1/completions", self.plain)[0]

    def test_work(self):
        words = ("--request-work", 0.01)
        self.assertEqual(self.refused(words, self.wide, "needs more than 10000 units of work"), 200)

    def test_memory(self):
        words = ("--request-memory", 1)
        self.assertEqual(self.refused(words, self.wide, "needs more than 1048576 bytes of memory"), 200)

    def test_seconds(self):
        words = ("--request-seconds", 1e-9)
        self.assertEqual(self.refused(words, self.wide, "takes longer than "), 400)

    def test_the_defaults_suffice(self):
        with serving("--ctx", 512) as server:
            self.assertEqual(server.ask("POST", "/v1/completions", {**self.wide, **self.plain})[0], 200)


class MemoryTest(unittest.TestCase):
    """--memory: everything that requests can hold, at once."""

    mib = 48
    words = ("--memory", mib, "--ctx", 2048, "--kv-tokens", 4096, "--connections", 200, "--connections-per-ip", 200,
             "--connection-stack", 128, "--shutdown-timeout", 0)  # fmt: skip

    def post(self, server, body, n_sent=None):
        """A connection that has sent a request, or its first bytes, and reads nothing."""
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(PATIENCE)
        s.connect(("127.0.0.1", server.port))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data))
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = data[:n_sent]
            while data:
                data = data[s.send(data):]
        return s

    def everything_at_once(self):
        with serving(*self.words, model=base.ROOT / "models/mini/kv6-g2") as server:
            for i in range(4):  # until all of the KV memory was used once
                server.complete(prompt=f"{i} " + "word " * 1500, max_tokens=1, echo=True, logprobs=20)
            limit = self.mib << 20
            before = resident(server.process, "VmRSS") - server.metrics()["memory_used_bytes"]
            rows = {"echo": True, "logprobs": 20, "n": 16, "max_tokens": 1}
            held = []
            for i in range(60):
                held.append(self.post(server, b'{"prompt":"' + b"x" * (8 << 20) + b'"}', (i % 8 + 1) << 20))
                grammar = "root ::= " + " | ".join(f'"{i} {k}" [a-z]{{1,{k + 1}}}' for k in range(300))
                held.append(self.post(server, {"prompt": "a", "max_tokens": 500, "guided_grammar": grammar}))
                if i % 4 == 0:
                    prompts = ["word " * 900 + str(i + k) for k in range(4)]
                    held.append(self.post(server, {"prompt": prompts, "stream": i % 8 == 0, **rows}))
            wait_until(lambda: server.metrics()["memory_peak_bytes"] > 0.8 * limit)
            for _ in range(10):
                self.assertEqual(server.ask("GET", "/health")[0], 200)
                self.assertLessEqual(resident(server.process, "VmRSS"), sanitizer.resident(before + 1.1 * limit))
                time.sleep(0.1)
            self.assertLessEqual(server.metrics()["memory_peak_bytes"], limit + (4 << 20))
            self.assertLessEqual(resident(server.process, "VmHWM"), sanitizer.resident(before + 1.1 * limit))
            for s in held:
                s.close()
            wait_until(lambda: server.metrics()["memory_used_bytes"] < 1 << 20)
            server.complete(prompt="again", max_tokens=1)

    def hold(self, server, n_bytes, body=None):
        """A connection that has sent a body of so many bytes but for the last, and waits."""
        before = server.metrics()["memory_used_bytes"]
        s = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n_bytes)
        s.sendall((body or b" " * n_bytes)[:-1])
        server.wait_for(lambda m: m["memory_used_bytes"] - before >= n_bytes - (1 << 16))
        return s

    def ask_for_much(self, server):
        body = json.dumps({"prompt": [1, 2], "max_tokens": 1}) + " " * (4 << 20)
        return server.ask("POST", "/v1/completions", body)

    def test_a_full_account(self):
        """What does not fit waits for those who hold the memory."""
        with serving("--memory", 8, "--ctx", 512) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            holder = self.hold(server, 6 << 20)
            asked = pool.submit(self.ask_for_much, server)
            server.wait_for(lambda m: m["http_connections"] >= 3)  # the holder's, this one, and that of the question
            server.complete(prompt=[1, 2], max_tokens=1)  # small ones go on
            holder.close()
            self.assertEqual(asked.result()[0], 200)
            server.wait_for(lambda m: m["memory_used_bytes"] < 1 << 20)

    def status(self, server, body):
        """Of a stream's head; what comes behind it is not waited for."""
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1, 2], "stream": True, **body}))
        status = connection.getresponse().status
        connection.close()
        return status

    def check_waits(self, body, room, *words, model=base.PLAIN):
        """With so much room beside a holder of memory the request waits; it is served when the holder leaves."""
        mib = 8
        with (
            serving("--memory", mib, *words, model=model) as server,
            concurrent.futures.ThreadPoolExecutor(1) as pool,
        ):
            used = int(server.metrics()["memory_used_bytes"])
            with self.hold(server, (mib << 20) - used - room) as holder:
                asked = pool.submit(self.status, server, body)
                server.wait_for(lambda m: m["memory_waiting_requests"] == 1 or asked.done())
                self.assertFalse(asked.done())
                holder.close()
            self.assertEqual(asked.result(), 200)

    def test_parsing_waits(self):
        self.check_waits({"metadata": [{}] * 4000}, 1 << 20, "--ctx", 512)

    def test_jobs_wait(self):
        self.check_waits({"max_tokens": 60000}, 192 << 10, *base.LONG)

    def test_grammars_wait(self):
        regex = "|".join(f"[a-z]{{{i}}}" for i in range(1, 120))
        self.check_waits(
            {"guided_regex": regex}, 128 << 10, "--ctx", 512, model=base.ROOT / "models/mini/kv6-g2"
        )

    def test_two_that_wait_for_each_other(self):
        """The younger one gives up, without waiting for long, and the older one is served."""
        body = json.dumps({"prompt": [1, 2], "max_tokens": 1, "metadata": "x" * 1300000}).encode()
        with serving("--memory", 8, "--ctx", 512) as server:
            older, younger = held = [self.hold(server, len(body), body) for _ in range(2)]
            for s in held:
                s.sendall(body[-1:])
            self.assertEqual([self.status_of(s) for s in (younger, older)], [503, 200])
            self.assertEqual(server.metrics()["memory_given_up_total"], 1)
            server.wait_for(lambda m: m["memory_used_bytes"] < 1 << 20)

    @staticmethod
    def status_of(s):
        response = http.client.HTTPResponse(s)
        response.begin()
        s.close()
        return response.status

    def test_who_waits_may_leave(self):
        with serving("--memory", 8, "--ctx", 512) as server:
            holder = self.hold(server, 7 << 20)
            waiting = self.post(server, json.dumps({"metadata": [{}] * 9000, "prompt": [1, 2]}).encode())
            server.wait_for(lambda m: m["memory_waiting_requests"] == 1)
            waiting.close()
            server.wait_for(lambda m: m["memory_waiting_requests"] == 0)
            holder.close()

    def test_the_end_of_who_waits(self):
        with serving("--memory", 8, "--ctx", 512, "--shutdown-timeout", 0.2) as server:
            holder = self.hold(server, 7 << 20)
            waiting = self.post(server, json.dumps({"metadata": [{}] * 9000, "prompt": [1, 2]}).encode())
            server.wait_for(lambda m: m["memory_waiting_requests"] == 1)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(wait_exit(server.process), 0)
            holder.close()
            waiting.close()

    def test_what_reading_took_is_given_back(self):
        """While an answer is on its way its request holds the body and its values, not the reader's buffers."""
        n = 4 << 20
        with serving(*base.LONG) as server:
            connection = server.connect()
            body = {"prompt": [1, 2], "max_tokens": 60000, "ignore_eos": True, "metadata": "x" * n}
            connection.request("POST", "/v1/completions", json.dumps(body))
            server.wait_for(lambda m: m["requests_running"] == 1)
            self.assertLess(server.metrics()["memory_used_bytes"], 3 * n)
            self.assertGreater(server.metrics()["memory_used_bytes"], 2 * n)
            connection.close()

    def test_everything_beside_a_full_account(self):
        """What waits for memory that others keep is refused: after ten seconds, in which another server is tried."""
        with serving("--memory", 8, "--ctx", 512) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            holder = self.hold(server, 6 << 20)
            asked = pool.submit(self.ask_for_much, server)
            self.everything_at_once()
            status, headers, answer = asked.result()
            self.assertEqual((status, headers["Retry-After"]), (503, "2"), answer)
            self.assertIn("in use by other requests", answer["error"]["message"])
            holder.close()

    def test_what_never_fits(self):
        with serving("--memory", 1, "--ctx", 512) as server:
            status, _, answer = server.ask("POST", "/v1/completions", " " * (2 << 20))
            self.assertEqual(status, 413, answer)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        sys.exit(77)
    unittest.main()
