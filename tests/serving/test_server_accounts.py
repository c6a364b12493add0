#!/usr/bin/env python3
"""One account for everything that a request makes the process do.

Bodies of every shape, to every endpoint that reads text: the process holds at most --memory and a tenth beside what it
holds idle, its processor time is bounded by a constant for each byte, what clients have left ends, and SIGTERM ends
with 0. While one key does its worst another key is served. SKV_ACCOUNTS=30,32 (MiB of a body, requests at once) tries
every shape at every endpoint with that; beside it SKV_TEST_SEED draws some of them, with bodies up to that size, alone and
at once, from clients that stay and from those that leave.
"""

import contextlib
import functools
import http.client
import itertools
import json
import os
import pathlib
import re
import socket
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import sanitizer  # noqa: E402
import server_process as base  # noqa: E402
from property_seed import SEED, count, generator  # noqa: E402
from waiting import PATIENCE, cpu_seconds, wait_exit, wait_until  # noqa: E402

MIB = 1 << 20
MODEL = base.ROOT / "models/mini/kv6-g2"  # byte-level BPE, and tools that its template does not know
NIGHTLY = tuple(map(int, os.environ["SKV_ACCOUNTS"].split(","))) if "SKV_ACCOUNTS" in os.environ else None
MEMORY = 1024 if NIGHTLY else 128
ALL = "SKV_TEST_ALL" in os.environ
SECONDS_A_MIB = 0.35  # of processor time, reading and answering; unoptimised or quadratic code takes many times that
SECONDS_AT_LEAST = 0.5

# ---- shapes: lists of messages and texts of about n bytes ----


def user(text):
    return {"role": "user", "content": text}


def one_word(n):
    return [user("a" * n)]


def words(n):
    return [user("word " * (n // 5))]


def characters(n):
    return [user("é漢" * (n // 5))]


def messages(n):
    return [user("u"), {"role": "assistant", "content": "a"}] * (n // 73)


def systems(n):
    return [user("u" * (n // 2))] + [{"role": "system", "content": "bc"}] * (n // 80)


def other_systems(n):
    """Each is in the text of the user, the last first."""
    texts = [f"{i:x}." for i in range(n // 50)]
    return [user("".join(reversed(texts)))] + [{"role": "system", "content": text} for text in texts]


def folded(n):
    return [user("u" * (n // 2))] + [{"role": "system", "content": "s"}, user("u")] * (n // 150)


def parts(n):
    return [{"role": "user", "content": [{"type": "text", "text": "x"}] * (n // 26)}]


def results(n):
    return [user("u")] + [{"role": "tool"}] * (n // 16)


def calls(n):
    call = {"function": {"name": "f", "arguments": "{}"}}
    return [user("u"), {"role": "assistant", "tool_calls": [call] * (n // 48)}]


SHAPES = (one_word, words, characters, messages, systems, other_systems, folded, parts, results, calls)


def tools(n):
    one = '{"type":"function","function":{"name":"f%d","description":"%s","parameters":{}}}'
    return "[" + ",".join(one % (i, "d" * (n // 128)) for i in range(128)) + "]"


# ---- endpoints: the body for a list of messages ----


def text_of(conversation):
    return "".join(m.get("content") or "" if isinstance(m.get("content"), str) else "x" for m in conversation)


def pieces(conversation):
    """A prompt of texts and ids, from as many messages."""
    return list(itertools.chain.from_iterable((m["content"], 5) for m in conversation if isinstance(m.get("content"), str)))


def items(conversation):
    """The input of Responses."""
    for m in conversation:
        if m["role"] == "tool":
            yield {"type": "function_call_output", "call_id": "c", "output": "r"}
        elif "tool_calls" in m:
            yield from [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}] * len(m["tool_calls"])
        elif isinstance(m["content"], list):
            yield {**m, "content": [{"type": "input_text", "text": "x"}] * len(m["content"])}
        else:
            yield m


def blocks(conversation):
    """The messages of Messages."""
    for m in conversation:
        if m["role"] == "tool":
            yield user([{"type": "tool_result", "tool_use_id": "c", "content": "r"}])
        elif "tool_calls" in m:
            yield {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f"}] * len(m["tool_calls"])}
        else:
            yield m


def flat(conversation):
    """The messages of Ollama."""
    return [{**m, "content": m.get("content") if isinstance(m.get("content"), str) else "x"} for m in conversation]


def files(conversation):
    """Texts beside the one around a gap: as many as there are messages."""
    return [{"filename": "f", "text": m["content"]} for m in flat(conversation)]


ENDPOINTS = {
    "/v1/completions": lambda c: {"prompt": text_of(c), "max_tokens": 1},
    "/completion": lambda c: {"prompt": pieces(c), "n_predict": 1},
    "/v1/embeddings": lambda c: {"input": text_of(c)},
    "/api/embed": lambda c: {"input": text_of(c), "truncate": True},
    "/tokenize": lambda c: {"content": text_of(c)},
    "/apply-template": lambda c: {"messages": c},
    "/v1/chat/completions": lambda c: {"messages": c, "max_tokens": 1},
    "/v1/messages": lambda c: {"messages": list(blocks(c)), "max_tokens": 1},
    "/v1/messages/count_tokens": lambda c: {"messages": list(blocks(c))},
    "/v1/responses": lambda c: {"input": list(items(c)), "max_output_tokens": 1},
    "/api/chat": lambda c: {"messages": flat(c), "stream": False, "options": {"num_predict": 1}},
    "/api/generate": lambda c: {"prompt": text_of(c), "stream": False, "options": {"num_predict": 1}},
    "/completions": lambda c: {"prompt": [text_of(c)], "n_predict": 1},
    "/infill": lambda c: {"input_prefix": text_of(c), "input_extra": files(c), "n_predict": 1},
    "/embedding": lambda c: {"content": text_of(c)},
    "/api/embeddings": lambda c: {"prompt": text_of(c)},
    "/detokenize": lambda c: {"tokens": [5] * (len(text_of(c)) // 2)},
    "/v1/rerank": lambda c: {"query": "q", "documents": [f["text"] for f in files(c)]},
    "/v1/chat/completions/input_tokens": lambda c: {"messages": c},
    "/v1/responses/input_tokens": lambda c: {"input": list(items(c))},
    "/api/show": lambda c: {"model": text_of(c), "options": flat(c)},
    "/slots/0?action=save": lambda c: {"filename": "a", "prompt": text_of(c), "messages": c},
}
OTHER_NAMES = {"/v1/reranking"}  # of one in the table


@functools.lru_cache(maxsize=4)  # of up to 30 MiB
def body_of(path, shape, n):
    """About n bytes, and no more."""
    if shape is tools:
        return b'{"messages":[{"role":"user","content":"u"}],"max_tokens":1,"tools":' + tools(n).encode() + b"}"
    return json.dumps(ENDPOINTS[path](shape(n)), separators=(",", ":"), ensure_ascii=False).encode()


def resident(process, what):
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", text).group(1)) << 10


def warm(server, context):
    """Resident bytes of a server that has used all of its KV memory once, and now has nothing to do."""
    for seed in range(5):
        server.complete(prompt=base.prompt_of(context - 8, seed), max_tokens=2)
    return resident(server.process, "VmRSS")


def post(server, path, body, key=None):
    """A connection that has sent all of a request."""
    s = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {key}\r\n" if key else ""
    try:
        s.sendall(head.encode() + b"\r\n" + body)
    except OSError:  # refused before it was read
        pass
    return s


def status_of(s):
    """Of the response, which is read to its end."""
    response = http.client.HTTPResponse(s)
    try:
        response.begin()
        while response.read(1 << 16):
            pass
        return response.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        s.close()


class Bounded(base.ServerTest):
    """Requests within the bounds of --memory and of processor time."""

    model = MODEL
    words = ("--ctx", 512, "--memory", MEMORY, "--connections-per-ip", 200, "--shutdown-timeout", 0.3)

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.words = (*cls.words, "--slot-save-path", folder.name)
        super().setUpClass()
        cls.idle = warm(cls.server, 512)

    def quiet(self):
        """Until nothing is held, as all requests are over."""
        wait_until(lambda: self.server.metrics()["memory_used_bytes"] < MIB // 2)

    def run_at_once(self, *requests):
        """Statuses of requests (path, body), within the bounds of memory and time."""
        process, statuses = self.server.process, []
        pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is that of now
        before = cpu_seconds(process)
        threads = [
            threading.Thread(target=lambda r=r: statuses.append(status_of(post(self.server, *r)))) for r in requests
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        took, n_bytes = cpu_seconds(process) - before, sum(len(body) for _, body in requests)
        self.assertEqual(len(statuses), len(requests))
        self.assertLessEqual(set(statuses), {200, 400, 404, 409, 413, 429, 503}, requests[0][0])
        self.assertLessEqual(resident(process, "VmHWM"), sanitizer.resident(self.idle + int(1.1 * MEMORY * MIB)))
        most = SECONDS_AT_LEAST + SECONDS_A_MIB * n_bytes / MIB
        self.assertLessEqual(took, sanitizer.seconds(most), [(path, len(body)) for path, body in requests])
        return statuses


class AccountsTest(Bounded):
    def pairs(self):
        """(endpoint, shape, bytes, requests at once)"""
        n, at_once = (NIGHTLY[0] * MIB, NIGHTLY[1]) if NIGHTLY else (MIB // 4, 1)
        pairs = list(itertools.product(ENDPOINTS, SHAPES))
        if not SEED:
            # One of four in turn: each endpoint gets two or three shapes, and each shape comes to a quarter of them.
            short = [pair for i, pair in enumerate(pairs) if (i + i // len(SHAPES)) % 4 == 0]
            return [(*pair, n, at_once) for pair in (pairs if NIGHTLY or ALL else short)]
        draw = generator(1)
        sizes = [MIB, min(8 * MIB, n), n]
        return [(*pair, draw.choice(sizes), draw.choice([1, at_once])) for pair in draw.sample(pairs, 6)]

    def test_every_shape_everywhere(self):
        for path, shape, n, at_once in self.pairs():
            with self.subTest(path=path, shape=shape.__name__, n=n, at_once=at_once):
                self.run_at_once(*[(path, body_of(path, shape, n))] * at_once)
                count(at_once)
        self.quiet()

    def test_the_table_has_every_endpoint(self):
        paths = self.server.ask("GET", "/openapi.json")[2]["paths"]
        posts = {path for path, methods in paths.items() if "post" in methods}
        known = {"/slots/{slot}" if path.startswith("/slots/") else path for path in ENDPOINTS}
        self.assertEqual(posts, known | OTHER_NAMES | {"/read"})  # ReaderTest

    def test_large_bodies(self):
        """8 MiB in four of the shapes and in tools, or in all; text that exceeds the context is refused as such and not read to its end."""
        paths = itertools.cycle(ENDPOINTS)
        for shape in (*SHAPES[:: 1 if ALL else 3], tools):
            path = next(paths) if shape is not tools else "/v1/chat/completions"
            with self.subTest(path=path, shape=shape.__name__):
                self.run_at_once((path, body_of(path, shape, 8 * MIB)))
        for text in ("a" * (8 * MIB), "word " * MIB):
            error = self.refuses(400, "/v1/completions", {"prompt": text}, "more than 512 tokens", "maximum context")
            self.assertEqual(error["code"], "context_length_exceeded")
        self.quiet()

    def test_eight_at_once(self):
        for path, shape, n in (
            ("/v1/completions", one_word, 8 * MIB),
            ("/v1/chat/completions", systems, MIB),
            ("/v1/messages", parts, MIB),
            ("/tokenize", one_word, MIB),
            ("/v1/chat/completions", results, MIB),
            ("/v1/responses", folded, MIB),
        )[: None if ALL else 3]:
            with self.subTest(path=path, shape=shape.__name__):
                self.run_at_once(*[(path, body_of(path, shape, n))] * 8)
        self.quiet()

    def test_many_kinds_at_once(self):
        requests = [(path, body_of(path, shape, MIB)) for path, shape in zip(ENDPOINTS, SHAPES)]
        self.run_at_once(*requests)
        self.quiet()

    def test_what_is_asked_comes_back(self):
        """Responses repeat fields of the request, within the account."""
        body = {"input": "u", "max_output_tokens": 1, "metadata": {str(i): "x" * MIB for i in range(8)}}
        for stream in (False, True):
            self.run_at_once(*[("/v1/responses", json.dumps({**body, "stream": stream}).encode())] * (2 if stream else 4))
        self.quiet()

    def test_signs_of_life_are_short(self):
        """What was asked stands in the first event and the last, and in others where it is short."""
        for n, most in ((8, MIB), (MIB, 1 << 16)):
            asked = {"metadata": {"k": "x" * n}, "instructions": "i"}
            lines = self.server.events("/v1/responses", input="u " * 200, max_output_tokens=2, return_progress=True, **asked)
            events = [json.loads(line.split("data: ")[1]) for line in lines if "data: {" in line]
            told = [(e["type"], e["response"]) for e in events if "response" in e]
            self.assertGreater(len(told), 3)
            self.assertEqual((told[0][0], told[0][1]["metadata"]), ("response.created", asked["metadata"]))
            self.assertEqual(told[-1][1]["metadata"], asked["metadata"])
            for kind, response in told[1:-1]:
                self.assertEqual(kind, "response.in_progress")
                self.assertLess(len(json.dumps(response)), most)
                self.assertEqual(response["instructions"], "i" if n < 100 else None)

    def test_clients_leave(self):
        """What they wanted ends within a second of processor time."""
        pairs = [
            ("/v1/completions", one_word), ("/tokenize", one_word), ("/tokenize", words),
            ("/v1/chat/completions", systems), ("/v1/chat/completions", results), ("/v1/messages", parts),
            ("/v1/chat/completions", other_systems), ("/v1/responses", folded), ("/api/chat", messages),
        ]  # fmt: skip
        if SEED:
            pairs = generator(2).sample(list(itertools.product(ENDPOINTS, SHAPES)), len(pairs))
        for i, (path, shape) in enumerate(pairs):
            body = body_of(path, shape, 4 * MIB)
            count(2 if i % 3 else 8)
            with self.subTest(path=path, shape=shape.__name__):
                held = [post(self.server, path, body) for _ in range(2 if i % 3 else 8)]
                time.sleep(0.02 * (i % 4))
                for s in held:
                    s.close()
                before = cpu_seconds(self.server.process)
                self.quiet()
                self.assertLess(cpu_seconds(self.server.process) - before, sanitizer.seconds(1))

    def test_the_end(self):
        """SIGTERM while everything runs."""
        server = base.Server(self.model, *self.words)
        mine, type(self).server = self.server, server
        try:
            held = [post(server, path, body_of(path, shape, MIB)) for path, shape in zip(ENDPOINTS, SHAPES)]
            server.process.terminate()
            self.assertEqual(wait_exit(server.process), 0, server.lines)
            for s in held:
                s.close()
        finally:
            type(self).server = mine
            server.stop()


class ReaderTest(Bounded):
    """A server that reads prompts for others."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        key = pathlib.Path(folder.name) / "key"
        key.write_text("0123456789abcdef" * 4)
        key.chmod(0o600)
        cls.words = (*Bounded.words, "--role", "read", "--cache-store", "redis://localhost:1", "--cache-key-file", key)
        base.ServerTest.setUpClass.__func__(cls)
        cls.idle = resident(cls.server.process, "VmRSS") + 4 * 512 * 2048  # all keys and values

    def test_every_shape(self):
        n, at_once = (NIGHTLY[0] * MIB, NIGHTLY[1]) if NIGHTLY else (MIB, 2)
        for body in ({"prompt": [5] * (n // 2)}, {"prompt": [5] * 64, "block": "a" * n}, {"prompt": [[5]] * (n // 4)},
                     {"prompt": "a" * n}, {"prompt": [5] * 512, "x": [{}] * (n // 3)}):  # fmt: skip
            data = json.dumps(body, separators=(",", ":")).encode()
            self.run_at_once(*[("/read", data)] * at_once)
            self.run_at_once(*[("/v1/completions", data)] * at_once)  # has no such endpoint
        self.quiet()


class UnreadBodiesTest(unittest.TestCase):
    """What no endpoint reads is not kept: the page and the state of a server need no key."""

    def test_bodies_of_others(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("alpha")
            keys.flush()
            server = base.Server(MODEL, "--ctx", 512, "--memory", 64, "--max-body", 24, "--api-key-file", keys.name)
        self.addCleanup(server.stop)
        key = {"Authorization": "Bearer alpha"}
        paths = server.ask("GET", "/openapi.json", headers=key)[2]["paths"]
        reads = [path.replace("{model}", MODEL.name) for path, methods in paths.items() if "get" in methods]
        before, n = resident(server.process, "VmRSS"), 20 * MIB
        for path in reads:
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {n}\r\n"
            head += "" if path in ("/", "/health") else "Authorization: Bearer alpha\r\n"
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as s:
                s.sendall(head.encode() + b"\r\n" + b"x" * (n - 1))
                text = server.ask("GET", "/metrics", headers=key)[2]
                self.assertLess(float(re.search(r"^swiftkv_memory_used_bytes (\S+)$", text, re.M).group(1)), MIB, path)
                s.sendall(b"x")
                response = http.client.HTTPResponse(s)
                response.begin()
                self.assertEqual(response.status, 200, path)
                response.read()
        self.assertLess(resident(server.process, "VmHWM") - before, sanitizer.resident(8 * MIB))
        for body in (b"Content-Length: %d\r\n\r\n" % (25 * MIB),
                     b"Transfer-Encoding: chunked\r\n\r\n1900000\r\n" + b"x" * (25 * MIB)):  # fmt: skip
            with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as s:
                with contextlib.suppress(OSError):
                    s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + body)
                self.assertIn(b" 413 ", s.recv(100))


class Clients:
    """They ask again and again, until they all leave."""

    def __init__(self):
        self.lock, self.waiting, self.leave, self.statuses = threading.Lock(), set(), False, []

    def ask(self, server, path, body, key):
        while not self.leave:
            s = post(server, path, body, key)
            with self.lock:
                if self.leave:
                    s.close()
                    return
                self.waiting.add(s)
            status = status_of(s)
            with self.lock:
                self.waiting.remove(s)
                if not self.leave:
                    self.statuses.append(status)

    def end(self):
        with self.lock:
            self.leave = True
            for s in self.waiting:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)


class SharesTest(unittest.TestCase):
    """While one key does its worst, what another one asks is served: no request of it is refused."""

    n, at_once = (NIGHTLY[0] * MIB, NIGHTLY[1] + 8) if NIGHTLY else (3 * MIB, 12)
    memory = MEMORY if NIGHTLY else 64
    n_asked = 10 if NIGHTLY else 2  # rounds
    small = {
        "/v1/completions": {"prompt": "hello", "max_tokens": 1},
        "/v1/chat/completions": {"messages": [user("hello")], "max_tokens": 1},
        "/v1/messages": {"messages": [user("hello")], "max_tokens": 1},
        "/v1/embeddings": {"input": "hello"},
        "/tokenize": {"content": "hello"},
    }

    def start(self, *keys):
        file = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.addCleanup(file.close)
        file.write("\n".join(keys))
        file.flush()
        server = base.Server(MODEL, "--ctx", 512, "--memory", self.memory, "--connections-per-ip", 200,
                             "--api-key-file", file.name)  # fmt: skip
        self.addCleanup(server.stop)
        return server

    def metric(self, server, name):
        text = server.ask("GET", "/metrics", headers={"Authorization": "Bearer beta"})[2]
        return float(re.search(rf"^swiftkv_{name} (\S+)$", text, re.M).group(1))

    def ask(self, server, path):
        return server.ask("POST", path, self.small[path], {"Authorization": "Bearer beta"})

    def check(self, path, shape):
        server, body, clients = self.start("alpha", "beta"), body_of(path, shape, self.n), Clients()
        for small in self.small:
            self.assertEqual(self.ask(server, small)[0], 200)
        idle = resident(server.process, "VmRSS")
        threads = [
            threading.Thread(target=clients.ask, args=(server, path, body, "alpha")) for _ in range(self.at_once)
        ]
        for t in threads:
            t.start()
        try:
            # Until the first key has all that it ever gets, or nearly.
            wait_until(lambda: self.metric(server, "memory_peak_bytes") > 0.45 * self.memory * MIB)
            for small in [*self.small] * self.n_asked:
                status, _, answer = self.ask(server, small)
                self.assertEqual(status, 200, (small, answer))
        finally:
            clients.end()
            for t in threads:
                t.join()
        count(len(clients.statuses) + len(self.small) * self.n_asked)
        self.assertLessEqual(set(clients.statuses), {200, 400, 413, 503})
        self.assertLessEqual(self.metric(server, "memory_peak_bytes"), 0.8 * self.memory * MIB)
        kv = 4 * 512 * 2048  # that was not used before
        most = idle + kv + int(1.1 * self.memory * MIB)
        self.assertLessEqual(resident(server.process, "VmHWM"), sanitizer.resident(most))

    def test_one_word(self):
        self.check("/v1/completions", one_word)

    def test_messages(self):
        self.check("/v1/chat/completions", messages)

    def test_tools(self):
        self.check("/v1/chat/completions", tools)

    def test_parts(self):
        self.check("/v1/messages", parts)


class AnswersTest(base.ServerTest):
    """Answers are written from what --memory leaves, whatever reading may take."""

    model = MODEL
    words = ("--ctx", 2048, "--memory", 32, "--request-seconds", 0.5)

    def answer(self, **body):
        return self.server.post("/completion", **{"prompt": [5] * 100, "ignore_eos": True, "seed": 1, **body})

    def test_beyond_the_time_of_reading(self):
        """An answer that takes longer than reading may is told whole."""
        whole = {"timings": {"predicted_ms": 0}}
        n = 200
        while whole["timings"]["predicted_ms"] < 600 and n < 1900:
            whole = self.answer(n_predict=n)
            n = min(2 * n, 1900)
        self.assertGreater(whole["timings"]["predicted_ms"], 500)
        self.assertGreaterEqual(len(whole["prompt"]), 100)
        fields = ["content", "prompt", "generation_settings/seed", "stop_type", "no/such", "content"]
        picked = self.answer(n_predict=whole["tokens_predicted"], response_fields=fields)
        self.assertEqual(set(picked), {"content", "prompt", "generation_settings/seed", "stop_type"})
        for field in ("content", "prompt", "stop_type"):
            self.assertEqual(picked[field], whole[field])

    def test_fields_are_picked_as_a_parser_would(self):
        """Texts that look like members, and members of every kind."""
        for text in ('"stop":1,"content":"x"}', "\\\\\"", "{[", "é\u0000\n", ""):
            whole = self.answer(prompt=text + " ", n_predict=3, n_probs=2, stop=[text or "zz"])
            for path in ("", "/", "prompt", "tokens", "timings", "generation_settings", "generation_settings/stop",
                         "completion_probabilities", "stop", "timings/prompt_n/x", "index", "x"):  # fmt: skip
                value, found = whole, True
                for name in path.split("/"):
                    found = found and isinstance(value, dict) and name in value
                    value = value[name] if found else None
                picked = self.answer(prompt=text + " ", n_predict=3, n_probs=2, stop=[text or "zz"],
                                     response_fields=[path])  # fmt: skip
                if not path.startswith("timings"):
                    self.assertEqual(picked, {path: value} if found else {})

    def test_memory(self):
        idle = warm(self.server, 2048)
        body = {"prompt": "a", "n_predict": 600, "ignore_eos": True, "n_probs": 20, "response_fields": ["content"]}
        got = []
        threads = [
            threading.Thread(target=lambda: got.append(self.server.ask("POST", "/completion", body)[0]))
            for _ in range(12)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertLessEqual(set(got), {200, 413, 503})
        self.assertIn(200, got)
        self.assertLessEqual(resident(self.server.process, "VmHWM"), sanitizer.resident(idle + int(1.1 * 32 * MIB)))

    def test_many_answers(self):
        """More than --memory holds together: each is sent when it is written."""
        asked = {"prompt": [[5 + i % 50] for i in range(64)], "n": 16, "n_predict": 1, "ignore_eos": True,
                 "logit_bias": [[i, 0.123456789] for i in range(1024)],
                 "stop": ["\x01" * 255 + chr(65 + i) for i in range(16)]}  # fmt: skip
        status, _, answers = self.server.ask("POST", "/completion", asked)
        self.assertEqual(status, 200, str(answers)[:300])
        self.assertEqual([one["index"] for one in answers], list(range(64 * 16)))
        for one in answers:
            self.assertGreaterEqual(len(one["generation_settings"]["logit_bias"]), 1024)  # and the ends
            self.assertEqual(one["tokens_predicted"], 16)
        picked = self.server.post("/completion", **asked, response_fields=["index", "generation_settings/seed"])
        self.assertEqual([one["index"] for one in picked], list(range(64 * 16)))
        self.assertEqual(set(picked[-1]), {"index", "generation_settings/seed"})


class LostCalls(Bounded):
    """A server whose template leaves calls out."""

    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        cls.file.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools }}")
        cls.file.flush()
        cls.words = (*Bounded.words, "--template", cls.file.name, "--tool-format", "mistral")
        super().setUpClass()


class LostCallsTest(LostCalls):
    """Calls that the template leaves out are read and written once more, as texts."""

    def test_arguments_of_many_values(self):
        for one, n in (([], 560000), (1, 1800000), ({}, 400000)):
            call = {"function": {"name": "f", "arguments": {"a": [one] * n}}}
            messages = [user("u"), {"role": "assistant", "tool_calls": [call]}]
            body = json.dumps({"messages": messages, "max_tokens": 1}, separators=(",", ":")).encode()
            self.run_at_once(("/v1/chat/completions", body))
        self.quiet()


class SchemasTest(Bounded):
    """Parameters of functions whose calls are written one by one, and must be."""

    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        cls.addClassCleanup(cls.file.close)
        cls.file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
        cls.file.flush()
        cls.words = (*Bounded.words, "--template", cls.file.name, "--tool-format", cls.form)
        super().setUpClass()

    form = "qwen3-coder"

    def schemas(self, n):
        """Of about n bytes, each."""
        names, many = [f"p{i}" for i in range(n // 38)], [f"p{i}" for i in range(n // 60)]
        leads = {key: {"$ref": "#/$defs/b"} for key in many}
        union = {"anyOf": [{"anyOf": [{"type": "string"}] * 30}] * 30}
        yield {"properties": {key: {"type": "integer"} for key in names}, "required": [f"q{i}" for i in range(n // 38)]}
        yield {"properties": {key: {} for key in names}, "required": names}
        yield {"properties": {key: leads[key] for key in many[:3000]}, "$defs": {"b": {"$ref": "#/" + "x" * n}}}
        yield {"properties": leads, "$defs": {"b": union}}
        yield {"properties": {key: leads[key] for key in many[:3000]}, "$defs": {"b": {"enum": ["a"] * (n // 4)}}}
        yield {"properties": {"a": {"type": "string", "enum": [str(i) for i in range(n // 10)]}}}
        yield {"properties": leads, "$defs": {"b": {"allOf": [{"$ref": "#/$defs/b"}] * 900}}}

    def test_work(self):
        n = NIGHTLY[0] * MIB if NIGHTLY else MIB
        for schema in self.schemas(n):
            function = {"name": "f", "parameters": {"type": "object", **schema}}
            body = {"messages": [user("u")], "max_tokens": 1, "tool_choice": "required"}
            body["tools"] = [{"type": "function", "function": function}]
            data = json.dumps(body, separators=(",", ":")).encode()
            with self.subTest(keys=list(schema), n=len(data)):
                self.run_at_once(("/v1/chat/completions", data))
        self.quiet()


class PythonSchemasTest(SchemasTest):
    form = "lfm2"


class AnswerCallsTest(LostCalls):
    """What an answer is told apart into counts."""

    def test_calls_of_an_answer(self):
        """The same text with tools takes more: of a server that has answered nothing else."""
        n_calls, n, peaks = 30, 16, []
        calls = ",".join(['{"name":"f"}'] * n_calls).replace('"', '\\"')
        asked = {"messages": [user("u")], "n": n, "grammar": f'root ::= "[TOOL_CALLS][{calls}]"', "max_tokens": 2000}
        tools = [{"type": "function", "function": {"name": "f"}}]
        for more in ({"tools": tools, "tool_choice": "none"}, {"tools": tools}):
            answer = self.server.post("/v1/chat/completions", **asked, **more)
            peaks.append(self.server.metrics()["memory_peak_bytes"])
        for choice in answer["choices"]:
            self.assertEqual(len(choice["message"]["tool_calls"]), n_calls)
        self.assertGreater(peaks[1] - peaks[0], n * n_calls * 300)
        self.quiet()


class FoldTest(unittest.TestCase):
    """System messages that a template refuses, or leaves out, become a part of the user's around them: all of them."""

    strict = ("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
              "<{{ m.role }}>{{ m.content }}{% endfor %}")  # fmt: skip
    silent = "{% for m in messages %}{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"

    def wanted(self, conversation):
        """Each system message joins its neighbours of system and user."""
        out, last = [], None
        for m in conversation:
            near = last and {m["role"], last["role"]} <= {"system", "user"} and "system" in (m["role"], last["role"])
            role = "user" if m["role"] == "system" else m["role"]
            if near:
                out[-1][1] += "\n\n" + m["content"]
            else:
                out.append([role, m["content"]])
            last = m
        return "".join(f"<{role}>{text}" for role, text in out)

    def check(self, template):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(template)
            file.flush()
            server = base.Server(MODEL, "--ctx", 512, "--template", file.name)
            try:
                for roles in itertools.product(("system", "user", "assistant"), repeat=5):
                    if "user" not in roles:
                        continue
                    conversation = [{"role": role, "content": f"{i}{role}"} for i, role in enumerate(roles)]
                    got = server.post("/apply-template", messages=conversation)["prompt"]
                    if "system" in (roles[1:] if template is self.silent else roles):
                        self.assertEqual(got, self.wanted(conversation), roles)
            finally:
                status = server.stop()
            self.assertEqual(status, 0)

    def test_a_template_that_refuses_them(self):
        self.check(self.strict)

    def test_a_template_that_leaves_them_out(self):
        self.check(self.silent)


class DescriptionTest(base.ServerTest):
    def test_what_is_made_of_it_counts(self):
        n = len(json.dumps(self.server.ask("GET", "/openapi.json")[2]))
        self.assertGreater(self.server.metrics()["memory_peak_bytes"], 4 * n)


class NamesTest(base.ServerTest):
    def test_a_name_of_any_length(self):
        self.refuses(404, "/v1/completions", {"model": "x" + ":latest" * 200000, "prompt": [1]}, "not available")


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        sys.exit(77)
    unittest.main()
