#!/usr/bin/env python3
"""Faults at scale: what hostile, careless and dying clients, a killed process and a stopping one do to
`swiftkv serve`. Status 1 where a page, a descriptor or memory is lost, where somebody else's answer
differs by one byte from that of an idle server, or where a finished request is lost.

    tools/checks/check_faults.py [--build FOLDER] [--model FILE] [--mix FOLDER] [--only disconnect,slow,fuzz,hostile,kill,term,memory]
                          [--clients 1000] [--slow 200] [--fuzz-seconds 600] [--seconds 600] [--kinds gbnf,...]
                          [--kills 20] [--terms 20]

    disconnect  clients leave at random moments: in the header, the body, the queue, the answer
    slow        headers and bodies that come byte by byte, readers who never read
    fuzz        mutations of valid requests of every endpoint, and of HTTP itself
    hostile     grammars, schemas, regexes, choices and histories of tests/tool_hostile, for --seconds, beside a
                stream whose text and time between tokens are compared; SIGTERM ends it in the middle
    kill        kill -9 while blocks are written to --cache-dir, and a new start with that folder
    term        SIGTERM under load: what was sent before it is answered whole
    memory      hardly any address space is left: requests fail, the server goes on

--mix FOLDER serves a second model behind the same port (`--max-loaded 1`) and two adapters of the first. Every client
then chooses at random among the four.

Meanwhile witnesses ask the same questions again and again; their answers are compared with those that
the server gave while it was idle.
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import sanitizer  # noqa: E402
from waiting import NAP, PATIENCE, REST, NapClock, wait_exit, wait_until  # noqa: E402

SECTIONS = ("disconnect", "slow", "fuzz", "hostile", "kill", "term", "memory")
RSS_SLACK = 24 << 20  # heaps of threads that were there at the same time
WITNESSES = 3
SWEPT = "files that were damaged, unfinished or of another model"  # what a start tells of a kill
ADAPTERS = ("low", "high")
ADAPTED = {"layers": 5, "hidden": 64, "values": 32}  # stories260k
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}
STORY = "Once upon a time there was a little girl who lived by the sea and had a red boat. "

# One valid body or more for every endpoint that takes one.
VALID = [
    ("/v1/completions", {"prompt": STORY, "max_tokens": 8, "temperature": 0, "logprobs": 3}),
    ("/v1/completions", {"prompt": [1, 5, 9, 20], "max_tokens": 6, "n": 2, "seed": 3, "top_p": 0.9}),
    ("/v1/completions", {"prompt": ["One", "Two"], "max_tokens": 4, "stream": True,
                         "stream_options": {"include_usage": True}, "stop": ["\n", "."]}),
    ("/v1/completions", {"prompt": "The", "max_tokens": 8, "echo": True, "logprobs": 0,
                         "logit_bias": {"5": -3.5}, "min_p": 0.1, "top_k": 20}),
    ("/v1/completions", {"prompt": "The", "max_tokens": 12, "guided_regex": "(a|b)+[0-9]{2}"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8}),
    ("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be short."},
                                           {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                              "max_tokens": 24, "stream": True, "return_progress": True,
                              "response_format": {"type": "json_schema",
                                                  "json_schema": {"name": "s", "schema": SCHEMA}}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Add."}], "max_tokens": 24,
                              "tools": [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}],
                              "tool_choice": "required"}),
    ("/v1/embeddings", {"input": ["a text", "another"], "encoding_format": "base64"}),
    ("/v1/responses", {"input": "Hello.", "max_output_tokens": 8, "instructions": "Be short."}),
    ("/v1/responses", {"input": [{"role": "user", "content": "Hello."}], "max_output_tokens": 8, "stream": True}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 8, "system": "Be short."}),
    ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                      "max_tokens": 8, "stream": True, "stop_sequences": ["x"]}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hello."}]}),
    ("/tokenize", {"content": "Once upon a time"}),
    ("/tokenize", {"messages": [{"role": "user", "content": "Hello."}], "add_generation_prompt": True}),
    ("/detokenize", {"tokens": [1, 5, 9, 20]}),
    ("/apply-template", {"messages": [{"role": "user", "content": "Hello."}]}),
]
# Values that code does not expect where they stand.
ODD = [
    None, True, False, 0, -1, 1, 2, 63, 64, 65, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**40,
    0.0, -0.0, 1e-320, 1e308, -1e308, 0.5, "", " ", "a", "\0", "\u0000x", "\ud800", "\uffff", "é" * 100,
    "x" * 5000, "</s>", "<s>", [], {}, [[]], [None], [1], [[1, 2], [3]], ["a"], {"": ""}, {"type": "text"},
    {"a": {"b": {"c": []}}}, [0] * 600, "[" * 200, "(a*)*b", "((((((((((a{1,9}){1,9}){1,9}){1,9}){1,9}))))))",
    {"type": "object", "properties": {"a": {"$ref": "#"}}}, {"$ref": "#/$defs/x"}, {"pattern": "["},
]


UNSPELT = b"the vocabulary cannot spell what has to follow"
CHOICES = []  # names that clients choose from; none: the only model's


def chosen(body, rng):
    """The body with the name of a model or an adapter, where there are several."""
    return {**body, "model": rng.choice(CHOICES)} if CHOICES else body


class Faults(Exception):
    """What must not be."""


def check(holds, *what):
    if not holds:
        raise Faults(*what)


# ---- the server from outside ----


class Process:
    """What the system says about it."""

    def __init__(self, pid):
        self.folder = Path(f"/proc/{pid}")

    def rss(self):
        for line in (self.folder / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        return 0

    def descriptors(self):
        return len(os.listdir(self.folder / "fd"))

    def threads(self):
        return len(os.listdir(self.folder / "task"))


class Client:
    """A connection that is kept, and made again when it is gone. The server may cut it where this machine
    has let nobody do anything for `deadline` seconds: then it asks again."""

    def __init__(self, port, deadline=30):
        self.port, self.deadline, self.connection, self.used = port, deadline, None, 0.0

    def ask(self, path, data, method="POST", headers=None):
        """(status, headers, bytes)"""
        while True:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
                self.used = time.monotonic()
            try:
                return self.ask_once(method, path, data, headers or {})
            except ConnectionError:
                self.close()
                if time.monotonic() - self.used < self.deadline:
                    raise
            except BaseException:
                self.close()
                raise

    def ask_once(self, *request):
        self.connection.request(*request)
        response = self.connection.getresponse()
        answer = response.status, response.headers, response.read()
        self.used = time.monotonic()
        return answer

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def plain_part(path, data):
    """What must be the same at any time: no ids, times or cache hits."""
    answer = json.loads(data)
    for key in ("id", "created", "created_at", "timings", "usage", "completed_at"):
        answer.pop(key, None)
    for item in answer.get("output", ()):
        item.pop("id", None)
    return json.dumps(answer)


QUESTIONS = [
    ("/v1/completions", {"prompt": STORY * 3, "max_tokens": 24, "temperature": 0, "logprobs": 3}),
    ("/v1/completions", {"prompt": STORY * 6, "max_tokens": 24, "temperature": 1, "seed": 7, "logprobs": 1}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": STORY * 2}], "max_tokens": 24,
                              "temperature": 0.8, "seed": 3, "logprobs": True, "top_logprobs": 2}),
    ("/v1/messages", {"messages": [{"role": "user", "content": STORY}], "max_tokens": 24, "temperature": 0}),
    ("/v1/responses", {"input": STORY, "max_output_tokens": 24, "temperature": 0}),
    ("/v1/embeddings", {"input": [STORY, STORY * 4]}),
]


class Witnesses:
    """Clients who behave, and compare."""

    def __init__(self, port, want=None, n=WITNESSES, deadline=30):
        self.port, self.want, self.deadline = port, want or self.idle_answers(port), deadline
        self.ended, self.lock = threading.Event(), threading.Lock()
        self.n_answers = self.n_busy = 0
        self.slowest, self.wrong = 0.0, []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(n)]

    @staticmethod
    def idle_answers(port):
        want, client = [], Client(port)
        for path, body in QUESTIONS:
            status, _, data = client.ask(path, json.dumps(body))
            check(status == 200, "an idle server refuses", path, data)
            want.append(plain_part(path, data))
        client.close()
        return want

    def run(self, i):
        client, k = Client(self.port, self.deadline), i
        while not self.ended.is_set():
            k = (k + 1) % len(QUESTIONS)
            path, body = QUESTIONS[k]
            begun = time.monotonic()
            try:
                status, headers, data = client.ask(path, json.dumps(body))
            except (OSError, http.client.HTTPException) as e:
                self.wrong.append((path, repr(e)))
                continue
            if status in (429, 503) and headers["Retry-After"]:
                with self.lock:
                    self.n_busy += 1
                time.sleep(0.05)
                continue
            with self.lock:
                self.n_answers += 1
                self.slowest = max(self.slowest, time.monotonic() - begun)
                if status != 200 or plain_part(path, data) != self.want[k]:
                    self.wrong.append((path, status, data[:300]))
        client.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        check(not self.wrong, f"{len(self.wrong)} witnesses' answers", self.wrong[:3])


def total(metrics, name, label=""):
    """Of all loaded models."""
    return sum(v for k, v in metrics.items() if k.split("{")[0] == name and label in k)


def busy(metrics):
    return total(metrics, "kv_pages_used") - total(metrics, "kv_pages_cached")


def disk_hits(metrics):
    return total(metrics, "prefix_cache_hits_by_kind_total", 'kind="disk"')


def quiet(metrics):
    """Nobody is served, and the one connection is that of the question."""
    served = ("requests_running", "requests_waiting", "queued_prompt_tokens", "model_requests_waiting")
    return busy(metrics) == 0 and not any(total(metrics, name) for name in served) and metrics["http_connections"] <= 1


class Resources:
    """What is taken, at two times when nobody is served."""

    def __init__(self, server):
        self.server, self.process = server, Process(server.process.pid)
        self.begin()

    def look(self):
        return self.process.descriptors(), self.process.threads(), self.process.rss()

    def settle(self):
        """The same model is loaded each time: each holds its own files."""
        self.server.wait_for(quiet)
        if CHOICES:
            self.server.complete(model=CHOICES[0], prompt="a", max_tokens=1)
            self.server.wait_for(quiet)

    def begin(self):
        self.settle()
        time.sleep(0.3)
        self.before = self.look()

    def end(self):
        """(descriptors, threads, bytes) more than before."""
        self.settle()
        for _ in range(int(REST / NAP)):
            more = tuple(b - a for a, b in zip(self.before, self.look()))
            if more[0] <= 0 and more[1] <= 0:
                break
            time.sleep(NAP)
        check(more[0] <= 0, f"{more[0]} descriptors are lost")
        check(more[1] <= 0, f"{more[1]} threads are lost")
        check(more[2] <= sanitizer.resident(RSS_SLACK), f"{more[2] >> 10} KiB are lost")
        return more


def fill_memory(server, options):
    """Pages become resident when they are first used, so all are used once."""
    client = Client(server.port)
    for i in range(options.kv_tokens * 5 // 4 // 400):
        ids = [(j * 7 + i * 13) % 250 + 3 for j in range(400)]
        client.ask("/v1/completions", json.dumps({"prompt": ids, "max_tokens": 1}))
    client.close()


# ---- clients who leave ----


def request_bytes(path, body, method="POST"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode(), data


def drop(s, rng):
    """Closes politely, or with a reset."""
    if rng.random() < 0.5:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif rng.random() < 0.3:
        try:
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    s.close()


def leave(port, rng):
    path, body = rng.choice(VALID[:13])
    body = dict(chosen(body, rng))
    if "prompt" in body and rng.random() < 0.6:
        body["prompt"] = STORY * rng.randrange(1, 20)
    for key in ("max_tokens", "max_output_tokens"):
        if key in body and "response_format" not in body:
            body[key] = rng.choice((1, 20, 100))
    if "tools" not in body and path != "/v1/embeddings":
        body["stream"] = rng.random() < 0.6
    head, data = request_bytes(path, body)
    s = socket.create_connection(("127.0.0.1", port), PATIENCE)
    phase = rng.choice(("header", "body", "sent", "later", "answer"))
    try:
        if phase == "header":
            s.sendall(head[: rng.randrange(len(head))])
        elif phase == "body":
            s.sendall(head + data[: rng.randrange(len(data))])
        else:
            s.sendall(head + data)
        if phase == "later":
            time.sleep(rng.expovariate(1 / 0.15))
        elif phase == "answer":
            s.recv(rng.randrange(1, 4000))
    except OSError:
        pass
    drop(s, rng)
    return phase


def run_disconnects(server, options, n, seed):
    lock, left, phases = threading.Lock(), [n], collections.Counter()

    def work(i):
        rng = random.Random(seed * 1000 + i)
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
            phase = leave(server.port, rng)
            with lock:
                phases[phase] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(min(n, options.at_once))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return phases


def check_disconnect(options):
    with serve(options) as server:
        want = Witnesses.idle_answers(server.port)
        fill_memory(server, options)
        run_disconnects(server, options, max(10, options.clients // 5), 1)  # heaps of as many threads
        resources = Resources(server)
        with Witnesses(server.port, want) as witnesses:
            phases = run_disconnects(server, options, options.clients, 2)
            left_at = time.monotonic()
            server.wait_for(lambda m: m["http_connections"] <= WITNESSES + 1)
            freed = time.monotonic() - left_at
        more = resources.end()
        m = server.metrics()
        check(m['http_responses_total{class="5xx"}'] == 0, "5xx")
        return {
            "clients": options.clients, **{f"left in {k}": v for k, v in sorted(phases.items())},
            "cancelled": sum(v for k, v in m.items() if k.startswith("requests_cancelled_total")),
            "seconds until the last connection was gone": round(freed, 3),
            **told(witnesses, more),
        }


def told(witnesses, more):
    return {
        "others' answers, all equal": witnesses.n_answers,
        "others refused with Retry-After": witnesses.n_busy,
        "slowest of them, s": round(witnesses.slowest, 2),
        "descriptors, threads, KiB more": [more[0], more[1], more[2] >> 10],
    }


# ---- slow clients ----


class Slow:
    """One that sends a byte a tenth of a second, or never reads."""

    def __init__(self, port, kind, rng):
        body = {"prompt": "One", "max_tokens": 8}
        if kind == "reader":
            # More than the buffers of two sockets hold that agree on small segments.
            prompt = [(i * 7) % 250 + 3 for i in range(300)]
            body = {"prompt": prompt, "max_tokens": 50, "echo": True, "ignore_eos": True, "stream": True, "logprobs": 20}
        body = chosen(body, rng)
        # Headers and bodies that would take minutes.
        head, data = request_bytes("/v1/completions", body if kind == "reader" else json.dumps(body).encode() + b" " * 4000)
        self.kind, self.begun, self.cut_after = kind, time.monotonic(), None
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(("127.0.0.1", port))
        at_once = {"header": b"", "body": head, "reader": head + data}[kind]
        self.rest = {"header": head[:-2] + b"X-Slow: " + b"a" * 4000, "body": data, "reader": b""}[kind]
        self.socket.sendall(at_once)
        self.socket.setblocking(False)

    def drip(self):
        """False: the server has closed it."""
        try:
            if self.rest:
                self.socket.send(self.rest[:1])
                self.rest = self.rest[1:]
            if self.kind != "reader" and self.socket.recv(4096) == b"":
                return False
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


def check_slow(options):
    words = ("--header-timeout", options.header_timeout, "--body-timeout", options.body_timeout,
             "--stall-timeout", options.stall_timeout, "--max-running", 64, "--max-queue", 512,
             "--kv-tokens", 65536)
    with serve(options, *words) as server:
        want = Witnesses.idle_answers(server.port)
        if options.slow >= 100:
            drip_all(server, options, options.slow, want)  # pages and heaps become resident
        resources = Resources(server)
        cut, witnesses = drip_all(server, options, options.slow, want)
        more = resources.end()
        return {"slow clients": options.slow,
                **{f"longest {kind}, s": round(max(times), 1) for kind, times in sorted(cut.items())},
                **told(witnesses, more)}


def drip_all(server, options, n, want):
    """(seconds that each held its connection, the witnesses)"""
    kinds = ("header", "body", "reader")
    deadline = min(options.header_timeout, options.body_timeout, options.stall_timeout)
    with Witnesses(server.port, want, deadline=deadline) as witnesses:
        rng = random.Random(options.seed)
        slow = [Slow(server.port, kinds[i % 3], rng) for i in range(n)]
        readers = [s for s in slow if s.kind == "reader"]
        dripping = [s for s in slow if s.kind != "reader"]
        held = collections.defaultdict(list)
        n_naps_max = int((max(options.header_timeout, options.body_timeout) + REST) / 0.1)
        for i in range(n_naps_max):
            time.sleep(0.1)
            for s in list(dripping):
                age, is_open = time.monotonic() - s.begun, s.drip()
                if not is_open:
                    held[s.kind].append(age)
                    s.socket.close()
                    dripping.remove(s)
            if not dripping:
                break
        check(not dripping, f"{len(dripping)} slow clients hold their connections")
        # Who never reads is never told of the end: the server's count is asked.
        server.wait_for(lambda m: m["http_connections"] <= WITNESSES + 1)
        held["reader"].append(time.monotonic() - readers[0].begun)
        for s in readers:
            s.socket.close()
    return held, witnesses


# ---- fuzz ----


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], path + (key,))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], path + (i,))


def replace(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replace(value[path[0]], path[1:], new)
    return copy


def mutate_value(body, rng):
    for _ in range(rng.choice((1, 1, 2, 4))):
        path = rng.choice(list(places(body)))
        kind = rng.randrange(5)
        if kind == 0 and path:  # a member goes
            parent = body
            for key in path[:-1]:
                parent = parent[key]
            copy = dict(parent) if isinstance(parent, dict) else list(parent)
            del copy[path[-1]]
            body = replace(body, path[:-1], copy)
        elif kind == 1 and isinstance(body, dict):  # another request's member
            other = rng.choice(VALID)[1]
            key = rng.choice(list(other))
            body = {**body, key: other[key]}
        elif kind == 2 and isinstance(body, dict):
            body = {**body, rng.choice(list(rng.choice(VALID)[1])): rng.choice(ODD)}
        else:
            body = replace(body, path, rng.choice(ODD))
    return body


def mutate_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        if not data:
            break
        i, j = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        kind = rng.randrange(7)
        if kind == 0:
            data[i % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[i:i] = bytes([rng.choice(b'"\\{}[]:,0123456789.eE+-ntf\x00\xff\xc3\xed\xa0\x80 ')])
        elif kind == 2:
            del data[i:j]
        elif kind == 3:
            data[i:i] = data[i:j] * rng.choice((1, 1, 2, 50))
        elif kind == 4:
            del data[i:]
        elif kind == 5:
            data[i:i] = json.dumps(rng.choice(ODD)).encode()
        else:
            data[i:i] = rng.choice((b"[", b'{"a":', b'"\\u', b"NaN", b"1e999999", b"-", b"\xef\xbb\xbf")) * rng.choice((1, 3, 100))
    return bytes(data)


def mutated(rng):
    path, body = rng.choice(VALID)
    body = chosen(body, rng)
    if rng.random() < 0.05:
        path = rng.choice(VALID)[0]
    if rng.random() < 0.6:
        body = mutate_value(body, rng)
    try:
        data = json.dumps(body).encode()
    except (ValueError, UnicodeError):
        data = b"{}"
    return path, mutate_bytes(data, rng) if rng.random() < 0.5 else data


ALLOWED = {200, 400, 404, 413, 429}


def judge(path, data, status, headers, answer):
    busy_now = status in (429, 503) and headers["Retry-After"]
    check(status in ALLOWED or busy_now, "status", status, path, data[:2000], answer[:500])
    if status == 200 or not answer.startswith(b"{"):
        check(status == 200, "no JSON error", status, path, data[:2000], answer[:500])
        return
    check(json.loads(answer)["error"]["message"], "no message", path, data[:2000])


def fuzz_http(port, rng):
    """Bytes that are not HTTP, or not quite. The server may say no or close; it must do one of them."""
    path, body = rng.choice(VALID)
    head, data = request_bytes(path, body, rng.choice(("POST", "POST", "GET", "PUT", "HEAD", "P\0ST")))
    lines = head.split(b"\r\n")
    kind = rng.randrange(6)
    if kind == 0:
        lines[rng.randrange(len(lines))] = os.urandom(rng.randrange(60))
    elif kind == 1:
        lines.insert(1, b"Content-Length: " + rng.choice((b"-1", b"99999999999999999999", b"0x10", b"", b"5", b"1e3")))
    elif kind == 2:
        lines.insert(1, b"Transfer-Encoding: chunked")
    elif kind == 3:
        lines.insert(1, b"X-A: " + b"a" * rng.choice((10, 9000, 70000)))
    elif kind == 4:
        lines[0] = b"POST " + os.urandom(rng.randrange(40)) + b" HTTP/1." + rng.choice((b"1", b"0", b"9", b""))
    head = b"\r\n".join(lines)
    if kind == 5:
        head = mutate_bytes(head, rng)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as s:
        try:
            s.sendall(head + data)
            with contextlib.suppress(OSError):  # it may have answered and gone already
                s.shutdown(socket.SHUT_WR)
            got = b""
            while piece := s.recv(65536):
                got += piece
        except (ConnectionError, BrokenPipeError):
            return
        if got.startswith(b"HTTP/1.1 5"):
            status = int(got[9:12])
            # 501 and 505 say that HTTP itself was not understood.
            check(status in (501, 505) or (status == 503 and b"Retry-After" in got), "status", head, data, got[:500])


class Fuzzer:
    def __init__(self, port, seed, end):
        self.port, self.end = port, end
        self.rng = random.Random(seed)
        self.counts, self.faults, self.slowest = collections.Counter(), [], 0.0
        self.thread = threading.Thread(target=self.run)

    def one(self, client):
        if self.rng.random() < 0.1:
            fuzz_http(self.port, self.rng)
            self.counts["http"] += 1
            return
        path, data = mutated(self.rng)
        begun = time.monotonic()
        status, headers, answer = client.ask(path, data, headers={"Content-Type": "application/json"})
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.counts[status] += 1
        judge(path, data, status, headers, answer)

    def run(self):
        client = Client(self.port)
        while time.monotonic() < self.end and len(self.faults) < 5:
            state = self.rng.getstate()
            try:
                self.one(client)
            except Faults as e:
                self.faults.append(e.args)
            except (OSError, http.client.HTTPException, ValueError) as e:
                self.rng.setstate(state)
                again = None if self.rng.random() < 0.1 else mutated(self.rng)
                self.faults.append((repr(e), again))
        client.close()


def check_fuzz(options):
    with serve(options, "--ctx", 512) as server:
        want = Witnesses.idle_answers(server.port)
        fill_memory(server, options)
        resources, counts, slowest, rss = None, collections.Counter(), 0.0, []
        with Witnesses(server.port, want, 1) as witnesses:
            # A quarter first: caches of grammars and texts fill up to their limits.
            for part in range(4):
                end = time.monotonic() + options.fuzz_seconds / 4
                fuzzers = [Fuzzer(server.port, options.seed + 10 * part + i, end) for i in range(4)]
                for fuzzer in fuzzers:
                    fuzzer.thread.start()
                for fuzzer in fuzzers:
                    fuzzer.thread.join()
                    counts += fuzzer.counts
                    slowest = max(slowest, fuzzer.slowest)
                    check(not fuzzer.faults, *fuzzer.faults)
                rss.append(Process(server.process.pid).rss() >> 10)
        resources = Resources(server)
        check(rss[-1] - rss[0] <= sanitizer.resident(RSS_SLACK >> 10), "KiB at each quarter", rss)
        return {"seconds": options.fuzz_seconds, "requests": sum(counts.values()),
                **{f"status {k}" if k != "http" else "broken HTTP": v for k, v in sorted(counts.items(), key=str)},
                "slowest, s": round(slowest, 2), "KiB at each quarter": rss,
                "others' answers, all equal": witnesses.n_answers,
                "descriptors": resources.before[0]}


# ---- hostile inputs ----

HOSTILE_KINDS = "gbnf,schema,regex,choice,template,history"  # parts come from the library alone
HOSTILE_BATCH = 60
SHUTDOWN_SECONDS = 10
NEIGHBOUR = {"prompt": STORY * 2, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}
PLAIN_MESSAGES = [{"role": "user", "content": "Hello."}]


def with_json(body, raw):
    """The body as bytes, with a text that may be no JSON in the place of "@"."""
    return json.dumps(body).encode().replace(b'"@"', raw)


def call_items(messages):
    """A history as /v1/responses takes it."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call["function"]
            yield {"type": "function_call", "call_id": call.get("id", "c"), "name": function["name"],
                   "arguments": function["arguments"]}
        if message["role"] == "tool":
            yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        elif message["role"] == "user":
            yield message


def call_blocks(messages):
    """A history as /v1/messages takes it."""
    for message in messages:
        if message["role"] == "assistant":
            yield {"role": "assistant", "content": [
                {"type": "tool_use", "id": call.get("id", "c"), "name": call["function"]["name"],
                 "input": json.loads(call["function"]["arguments"])} for call in message["tool_calls"]]}
        elif message["role"] == "user":
            yield message


def converted(raw, convert, body, key):
    """The same history for another API; as it is where Python cannot read it."""
    try:
        body = {**body, key: list(convert(json.loads(raw)))}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return with_json({**body, key: "@"}, raw)
    return json.dumps(body).encode()


def schema_forms(raw):
    function = {"name": "f", "parameters": "@"}
    return [
        ("/v1/completions", {"prompt": "a", "guided_json": "@"}),
        ("/v1/completions", {"prompt": "a", "structured_outputs": {"json": "@"}, "n": 4}),
        ("/v1/chat/completions", {"messages": PLAIN_MESSAGES, "response_format": {
            "type": "json_schema", "json_schema": {"name": "s", "schema": "@"}}}),
        ("/v1/chat/completions", {"messages": PLAIN_MESSAGES, "tool_choice": "required",
                                  "tools": [{"type": "function", "function": function}]}),
        ("/v1/chat/completions", {"messages": PLAIN_MESSAGES, "tool_choice": "auto",
                                  "tools": [{"type": "function", "function": {**function, "strict": True}}]}),
        ("/v1/responses", {"input": "Hello.", "text": {"format": {"type": "json_schema", "name": "s", "schema": "@"}}}),
        ("/v1/messages", {"messages": PLAIN_MESSAGES, "tool_choice": {"type": "any"},
                          "tools": [{"name": "f", "input_schema": "@"}]}),
    ]


def hostile_request(case, rng):
    """(path, bytes) of one case in one of the forms that APIs have for it."""
    raw, more = bytes.fromhex(case["text"]), bytes.fromhex(case["more"])
    as_text = json.dumps(raw.decode(errors="replace")).encode()
    kind = case["kind"]
    if kind == "history":
        path = rng.choice(("/v1/chat/completions", "/v1/responses", "/v1/messages", "/apply-template", "/tokenize"))
        if path == "/v1/responses":
            return path, converted(raw, call_items, {"max_output_tokens": 4}, "input")
        if path == "/v1/messages":
            return path, converted(raw, call_blocks, {"max_tokens": 4}, "messages")
        return path, with_json({"messages": "@", **({"max_tokens": 4} if path.startswith("/v1") else {})}, raw)
    if kind == "template":  # templates come from operators; what they read comes from anybody
        body = {"messages": PLAIN_MESSAGES, "max_tokens": 4, "chat_template_kwargs": "@"}
        return "/v1/chat/completions", with_json(body, more)
    if kind == "schema":
        path, body = rng.choice(schema_forms(raw))
        key = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        raw_or_text = as_text if path == "/v1/completions" and rng.random() < 0.3 else raw
    else:
        name = {"gbnf": "grammar", "regex": "regex", "choice": "choice"}[kind]
        body = rng.choice(({f"guided_{name}": "@"}, {"structured_outputs": {name: "@"}}))
        path, first = rng.choice((("/v1/completions", {"prompt": "a", "n": rng.choice((1, 1, 4, 16))}),
                                  ("/v1/chat/completions", {"messages": PLAIN_MESSAGES})))
        body, key, raw_or_text = {**first, **body}, "max_tokens", raw if kind == "choice" else as_text
    return path, with_json({**body, key: rng.choice((4, 16, 64)), "stream": rng.random() < 0.2}, raw_or_text)


class Neighbour:
    """A plain stream, again and again: its text, and the seconds between its tokens."""

    def __init__(self, port, now):
        self.port, self.now, self.ended = port, now, threading.Event()
        self.gaps, self.faults, self.n_answers = [], [], 0
        self.text = self.ask([])
        self.thread = threading.Thread(target=self.run)

    def ask(self, gaps):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", "/v1/completions", json.dumps(NEIGHBOUR))
        response, pieces, last = connection.getresponse(), [], None
        check(response.status == 200, "the neighbour got", response.status)
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            now = self.now()
            if last is not None:
                gaps.append(now - last)
            last = now
            pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]
        connection.close()
        return "".join(pieces)

    def run(self):
        while not self.ended.is_set():
            try:
                text = self.ask(self.gaps)
                if text != self.text:
                    self.faults.append(("the neighbour's text", text))
            except (OSError, http.client.HTTPException, ValueError, Faults) as e:
                self.faults.append(("the neighbour", repr(e)))
                return
            self.n_answers += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        self.thread.join()

    def percentile(self, share):
        return sorted(self.gaps)[min(len(self.gaps) - 1, int(share * len(self.gaps)))]


class Attacker:
    """Sends cases until `end`, or, where the server is told to stop, until it has gone."""

    def __init__(self, options, port, i, end):
        self.options, self.port, self.i, self.end = options, port, i, end
        self.counts, self.faults, self.slowest, self.told = collections.Counter(), [], (0.0, ""), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def cases(self):
        tool = self.options.build / "tests/tool_hostile"
        for turn in range(1 << 30):
            seed = self.options.seed * 1000003 + turn * 101 + self.i
            command = [tool, "--kind", self.options.kinds, "--print", HOSTILE_BATCH, "--seed", seed]
            lines = subprocess.run(list(map(str, command)), capture_output=True, check=True).stdout.splitlines()
            for line in lines:
                yield json.loads(line)

    def one(self, client, case, rng):
        path, data = hostile_request(case, rng)
        name = rng.choice(CHOICES) if CHOICES else None
        if name:
            data = data.replace(b"{", b'{"model": "%s", ' % name.encode(), 1)
        what = f"{path} {case['kind']} {case['shape']} seed {case['seed']}"
        begun = time.monotonic()
        try:
            status, headers, answer = client.ask(path, data, headers={"Content-Type": "application/json"})
        except (OSError, http.client.HTTPException) as e:
            if not self.told.is_set():
                self.faults.append((what, repr(e), data[:200]))
            return not self.told.is_set()
        self.slowest = max(self.slowest, (time.monotonic() - begun, what))
        self.counts[status] += 1
        later = status in (429, 503) and headers["Retry-After"]
        if status not in (200, 400, 413) and not later:
            self.faults.append((what, status, answer[:300], data[:200]))
        # The second model may have a vocabulary of stories only, without a brace.
        unspelt = self.options.mix and name == self.options.mix.name and UNSPELT in answer
        too_long = b"exceeds the available context size" in answer  # its tokens are letters, nearly
        if case["ordinary"] and case["kind"] != "template" and status == 400 and not unspelt and not too_long:
            self.faults.append((what, "an ordinary input is refused", answer[:300], data[:300]))
        return True

    def run(self):
        rng, client = random.Random(self.options.seed * 7 + self.i), Client(self.port, PATIENCE)
        for case in self.cases():
            if time.monotonic() > self.end or len(self.faults) > 5 or not self.one(client, case, rng):
                break
        client.close()


def watch_rss(process, ended, most):
    while not ended.wait(0.05):
        with contextlib.suppress(OSError):
            most[0] = max(most[0], process.rss())


def check_hostile(options):
    words = ("--memory", options.memory, "--step-ms", options.step_ms, "--shutdown-timeout", SHUTDOWN_SECONDS)
    with serve(options, *words, ends=None) as server:
        want = Witnesses.idle_answers(server.port)
        fill_memory(server, options)
        process, most, ended = Process(server.process.pid), [0], threading.Event()
        before = process.rss()
        attackers = [Attacker(options, server.port, i, time.monotonic() + options.seconds) for i in range(4)]
        watcher = threading.Thread(target=watch_rss, args=(process, ended, most))
        neighbour = Neighbour(server.port, options.now)
        with neighbour:
            for thread in [watcher] + [a.thread for a in attackers]:
                thread.start()
            for attacker in attackers:
                attacker.thread.join()
        alive = server.process.poll() is None
        check(alive, "it died", server.lines[-5:], [a.faults[:1] for a in attackers])
        check(Witnesses.idle_answers(server.port) == want, "answers afterwards")
        counts, faults = sum((a.counts for a in attackers), collections.Counter()), sum((a.faults for a in attackers), [])
        stopped = stop_under_attack(options, server)
        ended.set()
        watcher.join()
        grown = most[0] - before
        slowest = max(a.slowest for a in attackers)
        told = {"seconds": options.seconds, "requests": sum(counts.values()),
                **{f"status {k}": v for k, v in sorted(counts.items())},
                "slowest, s": [round(slowest[0], 2), slowest[1]],
                "neighbour's answers, all equal": neighbour.n_answers, "its tokens": len(neighbour.gaps),
                "its gaps in ms, p50, p99, most": [round(1000 * neighbour.percentile(p), 1) for p in (0.5, 0.99, 1)],
                "MiB more, most": grown >> 20, "SIGTERM, s": round(stopped, 2)}
        check(not faults, told, *faults[:5])
        check(not neighbour.faults, told, *neighbour.faults[:3])
        check(neighbour.percentile(0.99) <= sanitizer.seconds(2 * options.gap_ms / 1000), "the neighbour waits", told)
        check(grown <= sanitizer.resident(options.memory * 1.1 * (1 << 20)), "memory", told)
        return told


def stop_under_attack(options, server):
    """Seconds from SIGTERM to the end, while hostile requests run and come."""
    attackers = [Attacker(options, server.port, 50 + i, time.monotonic() + PATIENCE) for i in range(4)]
    for attacker in attackers:
        attacker.thread.start()
    wait_until(lambda: all(sum(a.counts.values()) > 3 for a in attackers))
    for attacker in attackers:
        attacker.told.set()
    begun = options.now()
    status = server.stop()
    taken = options.now() - begun
    for attacker in attackers:
        attacker.thread.join()
    check(status == 0, "exit status", status, server.lines[-5:])
    check(taken <= SHUTDOWN_SECONDS + sanitizer.seconds(1 + 2 * options.gap_ms / 1000), "SIGTERM took", taken)
    return taken


# ---- kill -9 ----


def check_kill(options):
    rng = random.Random(options.seed)
    want, n_found, n_unfinished, n_hits, n_answers = None, 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        for turn in range(options.kills + 1):
            words = ("--cache-dir", cache, "--kv-tokens", 2048)
            n_unfinished += len(list(cache.glob("*.tmp")))
            with serve(options, *words, ends=None) as server:
                check(not list(cache.glob("*.tmp")), "unfinished files are left")
                bad = [line for line in server.lines if "removed" in line and "unfinished" not in line]
                check(not bad, bad)
                n_found += total(server.metrics(), "cache_disk_files") > 0
                want = want or Witnesses.idle_answers(server.port)
                last = turn == options.kills
                n, n_hits = load_until_killed(server, want, rng, last)
                n_answers += n
                if last:
                    check(server.stop() == 0, "the last one ended badly")
                for line in server.lines:
                    check("damaged" not in line.replace(SWEPT, ""), line)
        check(n_hits > 0 or options.kills == 0, "nothing was found on disk")
    return {"kills": options.kills, "starts that found files": n_found, "unfinished files found": n_unfinished,
            "tokens from disk after the last": int(n_hits), "others' answers, all equal": n_answers}


def load_until_killed(server, want, rng, last):
    """Prompts that push each other out of memory, and the questions of the witnesses among them: how many were answered,
    and for the last server the tokens that came from disk, seen while it runs: a model that leaves takes its counts along."""
    hits = 0
    lock, n, wrong, stop = threading.Lock(), [0], [], threading.Event()

    def work(seed):
        rng, client = random.Random(seed), Client(server.port)
        while not stop.is_set():
            try:
                long = {"prompt": STORY * rng.randrange(5, 20) + str(rng.random()), "max_tokens": 2}
                client.ask("/v1/completions", json.dumps(chosen(long, rng)))
                k = rng.randrange(len(QUESTIONS))
                status, _, data = client.ask(QUESTIONS[k][0], json.dumps(QUESTIONS[k][1]))
            except (OSError, http.client.HTTPException):
                break
            with lock:
                n[0] += 1
                if status != 200 or plain_part(QUESTIONS[k][0], data) != want[k]:
                    wrong.append(data[:300])
        client.close()

    threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    if last:
        hits = wait_until(lambda: disk_hits(server.metrics()))
    for _ in range(0 if last else 1000):
        if total(server.metrics(), "cache_disk_queue_bytes") > 0:
            break
        time.sleep(NAP)
    time.sleep(rng.uniform(0, 0.3))
    if not last:
        server.process.kill()
    stop.set()
    for thread in threads:
        thread.join()
    if not last:
        server.process.wait()
        server.reader.join()
        server.process.stderr.close()
    check(not wrong, wrong[:2])
    return n[0], hits


# ---- SIGTERM ----


class Asker:
    """Asks without pause until nobody answers; every answer counts."""

    def __init__(self, server, want, i, told_at):
        self.server, self.want, self.i, self.told_at = server, want, i, told_at
        self.counts, self.faults = collections.Counter(), []
        self.thread = threading.Thread(target=self.run)

    def run(self):
        k = self.i
        while True:
            k = (k + 1) % len(QUESTIONS)
            path, body = QUESTIONS[k]
            client = Client(self.server.port, PATIENCE)
            try:
                status, headers, data = client.ask(path, json.dumps(body))
            except (OSError, http.client.HTTPException) as e:
                # A server that was told to stop may be gone; what it had begun is in its log.
                if not self.told_at:
                    self.faults.append(("lost", path, repr(e)))
                self.counts["after the end"] += 1
                return
            finally:
                client.close()
            if status in (429, 503):
                if not headers["Retry-After"]:
                    self.faults.append(("no Retry-After", data))
                self.counts[status] += 1
                time.sleep(0.01)
                continue
            self.counts["whole"] += 1
            if status != 200 or plain_part(path, data) != self.want[k]:
                self.faults.append((status, path, data[:300]))


def check_term(options):
    rng = random.Random(options.seed + 1)
    counts, want, longest = collections.Counter(), None, 0.0
    for turn in range(options.terms):
        with tempfile.NamedTemporaryFile("r", suffix=".log") as log:
            words = ("--request-log", log.name, "--shutdown-timeout", PATIENCE)
            with serve(options, *words, ends=None) as server:
                want = want or Witnesses.idle_answers(server.port)
                n_before = 0 if turn else len(QUESTIONS)
                told_at = []
                askers = [Asker(server, want, i, told_at) for i in range(16)]
                for asker in askers:
                    asker.thread.start()
                time.sleep(rng.uniform(0.2, 1.0))
                told_at.append(time.monotonic())
                server.process.send_signal(signal.SIGTERM)
                status = wait_exit(server.process)
                longest = max(longest, time.monotonic() - told_at[0])
                for asker in askers:
                    asker.thread.join()
                server.reader.join()
                server.process.stderr.close()
                check(status == 0, "exit status", status, server.lines[-3:])
                n_whole = sum(asker.counts["whole"] for asker in askers)
                lines = [json.loads(line) for line in log.read().splitlines()]
                n_logged = sum(l["status"] == 200 and l["whole"] and l["path"] != "/metrics" for l in lines)
                for asker in askers:
                    check(not asker.faults, *asker.faults[:3])
                    counts += asker.counts
                check(n_logged == n_whole + n_before, "log and clients", n_logged, n_whole + n_before)
                cut = [l for l in lines if not l["whole"] and l["status"] not in (429, 503)]
                check(not cut, f"{len(cut)} requests were begun and not answered whole", *cut[:3])
    return {"terms": options.terms, "answered whole and equal": counts["whole"],
            "refused with 503": counts[503], "slowest end, s": round(longest, 2)}


# ---- no memory ----


def check_memory(options):
    counts = collections.Counter()
    with serve(options) as server:
        pid = server.process.pid
        want = Witnesses.idle_answers(server.port)
        for mib in (24, 12, 6, 3, 1, 0):
            size = int((Path(f"/proc/{pid}/statm").read_text()).split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.prlimit(pid, resource.RLIMIT_AS, (size + (mib << 20), resource.RLIM_INFINITY))

            def work(i):
                rng = random.Random(options.seed + 100 * mib + i)
                for _ in range(8):
                    path, body = rng.choice(VALID)
                    body = chosen(body, rng)
                    body = {k: STORY * rng.randrange(1, 2000) if k in ("prompt", "content") and isinstance(v, str) else v
                            for k, v in body.items()}
                    client = Client(server.port)
                    try:
                        counts[client.ask(path, json.dumps(body))[0]] += 1
                    except (OSError, http.client.HTTPException):
                        counts["cut"] += 1  # there was no memory for the connection
                    client.close()

            threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            check(Witnesses.idle_answers(server.port) == want, "answers afterwards")
        server.wait_for(quiet)
    return {f"status {k}" if k != "cut" else k: v for k, v in sorted(counts.items(), key=str)}


# ---- all of it ----


def write_adapter(folder, model, seed):
    """Adds random numbers to the values of a model's layers. Returns the words that serve it."""
    rng, header, data, at = random.Random(seed), {}, b"", "base_model.model.model.layers.%d.self_attn.v_proj.lora_%s.weight"
    for i in range(ADAPTED["layers"]):
        for name, shape in (("A", (4, ADAPTED["hidden"])), ("B", (ADAPTED["values"], 4))):
            n = shape[0] * shape[1]
            piece = struct.pack(f"<{n}f", *(rng.gauss(0, 0.2) for _ in range(n)))
            header[at % (i, name)] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
            data += piece
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["v_proj"]}))
    return f"{folder.name}@{model}={folder}"


def use_mix(options):
    """Names for the clients to choose from, and every question to each of them."""
    CHOICES[:] = [options.model.stem, *ADAPTERS, options.mix.name]
    QUESTIONS[:] = [(path, {**body, "model": name}) for path, body in QUESTIONS for name in CHOICES]


class Serve:
    """A server of the tests, which is stopped at the end and must end well."""

    def __init__(self, options, words, ends):
        import server_process as base

        self.ends = ends
        self.folder = tempfile.TemporaryDirectory()
        template = Path(self.folder.name) / "template.jinja"
        template.write_text(TEMPLATE)
        common = {"--template": template, "--ctx": 2048, "--kv-tokens": options.kv_tokens, "--connections": 512,
                  "--connections-per-ip": 512, "--max-queue": 512, "--tool-format": "hermes",
                  **{f"--{what}-timeout": PATIENCE for what in ("header", "body", "stall")}}
        models = [options.model]
        if options.mix:
            models.append(options.mix)
            folder = Path(self.folder.name)
            adapters = (write_adapter(folder / name, options.model.stem, name) for name in ADAPTERS)
            common |= {"--max-loaded": 1, "--lora": ",".join(adapters)}
        common.update(zip(words[::2], words[1::2]))
        self.server = base.Server(*models, *(w for pair in common.items() for w in pair))

    def __enter__(self):
        return self.server

    def __exit__(self, kind, value, traceback):
        try:
            if kind is not None:
                if self.server.process.poll() is None:
                    self.server.process.kill()
                    self.server.process.wait()
                print("".join(self.server.lines[-5:]), file=sys.stderr)
            elif self.ends is not None:
                check(self.server.process.poll() is None, "it died", self.server.lines[-5:])
                check(self.server.stop() == self.ends, "exit status", self.server.lines[-5:])
        finally:
            self.folder.cleanup()


def serve(options, *words, ends=0):
    return Serve(options, words, ends)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=ROOT / "build", type=Path)
    parser.add_argument("--model", type=Path,
                        default=ROOT / "../shared/assets/models/stories260k/stories260k-f32.gguf")
    parser.add_argument("--mix", type=Path, help="a second model; --model must be stories260k then, for its adapters")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=100, help="of them")
    parser.add_argument("--slow", type=int, default=200)
    parser.add_argument("--header-timeout", type=float, default=10)
    parser.add_argument("--body-timeout", type=float, default=20)
    parser.add_argument("--stall-timeout", type=float, default=10)
    parser.add_argument("--fuzz-seconds", type=float, default=600)
    parser.add_argument("--seconds", type=float, default=600, help="of hostile inputs")
    parser.add_argument("--kinds", default=HOSTILE_KINDS, help="of hostile inputs")
    parser.add_argument("--step-ms", type=int, default=100)
    parser.add_argument("--gap-ms", type=float, help="half of what a stream beside them may wait, counted in naps (--step-ms, by the clock)")
    parser.add_argument("--memory", type=int, default=256, help="MiB of the server they are sent to")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--terms", type=int, default=20)
    parser.add_argument("--kv-tokens", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    options.now = NapClock().now if options.gap_ms else time.monotonic
    options.gap_ms = options.gap_ms or options.step_ms
    return options


def main():
    options = parse()
    os.environ["SKV_BUILD"] = str(options.build)
    if options.mix:
        use_mix(options)
    checks = {"disconnect": check_disconnect, "slow": check_slow, "fuzz": check_fuzz,
              "hostile": check_hostile, "kill": check_kill, "term": check_term, "memory": check_memory}
    figures, failed = {}, False
    for name in options.only.split(","):
        begun = time.monotonic()
        try:
            figures[name] = checks[name](options)
        except (Faults, AssertionError) as e:
            failed = True
            print(f"{name}: FAILED: {e.args}", flush=True)
            continue
        figures[name]["took, s"] = round(time.monotonic() - begun, 1)
        print(f"{name}: {json.dumps(figures[name])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
