#!/usr/bin/env python3
"""Prompts that one server reads for another (--role read, --prefill-from): answers are the same to the bit, and
nothing that happens to the reader fails a request."""

import concurrent.futures
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import sanitizer  # noqa: E402
from server_process import PLAIN, PROGRAM, SWIFTKV, Server, prompt_of  # noqa: E402
from test_server_store import StoreCase, free_port  # noqa: E402
from waiting import PATIENCE, wait_until  # noqa: E402

# A prompt that takes long enough to do something to its reader in the middle of it.
N_LONG = 20000 if not sanitizer.is_used() else 4000
REASONS = ("away", "full", "refused", "mismatch", "lost", "slow", "garbage", "missed")


class ReaderCase(StoreCase):
    # Times that nobody comes near, unless the machine stands still.
    model, words, above, patience = SWIFTKV, ("--ctx", 4096, "--chunk", 64), 128, 60

    def reader(self, store, words=(), **options):
        return self.serve(store, words=("--role", "read", *words), **options)

    def answerer(self, store, port, words=(), seconds=120, **options):
        """port: of whoever reads"""
        port = getattr(port, "port", port)
        return self.serve(store, words=("--prefill-from", f"http://127.0.0.1:{port}", "--prefill-above", self.above,
                                        "--prefill-timeout", seconds, *words), **options)

    def alone(self, words=(), model=None):
        server = Server(model or self.model, *self.words, *words)
        self.addCleanup(self.end, server)
        return server

    def fallbacks(self, server):
        metrics = server.metrics()
        found = {reason: metrics[f'reader_fallbacks_total{{reason="{reason}"}}'] for reason in REASONS}
        return {reason: n for reason, n in found.items() if n}

    def check_read(self, server, n_prompts, n_tokens):
        metrics = server.metrics()
        self.assertEqual(self.fallbacks(server), {})
        self.assertEqual(metrics["reader_read_total"], n_prompts)
        self.assertEqual(metrics['prefix_cache_hits_by_kind_total{kind="reader"}'], n_tokens)
        self.assertEqual(metrics['requests_finished_total{reason="failed"}'], 0)


class SameAnswersTest(ReaderCase):
    def check_same(self, model=None, words=(), n=1000, found=960, plain=(), **body):
        """With a reader and without: the same tokens and log-probabilities."""
        store = self.store()
        want, _ = self.ask(self.alone((*words, *plain), model), prompt_of(n), **body)
        reader = self.reader(store, words, model=model)
        server = self.answerer(store, reader, (*words, *plain), model=model)
        self.assertEqual(self.ask(server, prompt_of(n), **body), (want, found))
        self.check_read(server, 1, found)
        self.assertEqual(reader.metrics()["cache_store_written_total"], found // 64)
        return store, reader, server

    def test_swiftkv(self):
        _, reader, server = self.check_same()
        # What is short is read where it is answered, as is what is known but for a few tokens.
        self.ask(server, prompt_of(120, 1))
        self.ask(server, prompt_of(1000) + prompt_of(80, 2))
        self.check_read(server, 1, 960)
        # What goes on far behind what is known is sent, and what is known is not read again.
        before = reader.metrics()['prefill_tokens_total{route="swiftkv"}']
        found = self.ask(server, prompt_of(1000) + prompt_of(500, 3))[1]
        self.assertEqual(found, 1472)
        self.check_read(server, 2, 960 + 1472 - 960)
        self.assertLess(reader.metrics()['prefill_tokens_total{route="swiftkv"}'] - before, 600)

    def test_ordinary_model(self):
        self.check_same(PLAIN)

    def test_types_of_the_cache(self):
        for words in (("--kv", "int8"), ("--kv", "fp8", "--weights", "int8"), ("--cache-disk-form", "rows")):
            with self.subTest(words=words):
                _, reader, server = self.check_same(words=words)
                reader.stop()
                server.stop()

    def test_eviction(self):
        """The reader reads all that does not vote; what votes runs every layer here."""
        self.check_same(snapkv={"capacity": 100, "window": 16}, n=1000, found=960)
        self.check_same(plain=("--evict", "adakv:100,64"), n=1000, found=896)

    def test_other_methods_stay_here(self):
        store = self.store()
        reader = self.reader(store)
        server = self.answerer(store, reader)
        for method in ("teacher", "full"):
            want = self.ask(self.alone(), prompt_of(600), swiftkv=method)[0]
            self.assertEqual(self.ask(server, prompt_of(600), swiftkv=method)[0], want)
        # A teacher's rows are others, those of "full" are the same.
        self.assertEqual(server.metrics()["reader_prompts_total"], 1)
        self.assertEqual(self.ask(server, prompt_of(600, 5), prompt_logprobs=0)[1], 576)

    def test_many_at_once(self):
        store = self.store()
        reader = self.reader(store)
        server = self.answerer(store, reader)
        prompts = [prompt_of(500 + 40 * i, i) for i in range(8)]
        alone = self.alone()
        want = [self.ask(alone, ids)[0] for ids in prompts]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda ids: self.ask(server, ids)[0], prompts))
        self.assertEqual(found, want)
        self.assertEqual(self.fallbacks(server), {})

    def test_keys(self):
        """Each client's own key goes to the reader: prompts are told apart there as here, and its rates count."""
        store = self.store()
        keys = ("--api-key-file", self.write("keys", "one\ntwo\n"))
        others = ("--api-key-file", self.write("others", "one\n"))
        reader = self.reader(store, keys)
        server = self.answerer(store, reader, keys)

        def ask(key, ids):
            body = {"prompt": ids, "max_tokens": 2, "temperature": 0}
            status, _, answer = server.ask("POST", "/v1/completions", body, {"X-Api-Key": key})
            self.assertEqual(status, 200, answer)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual([ask("one", prompt_of(500)), ask("two", prompt_of(500))], [448, 448])
        self.assertEqual(len(store.blocks()), 14)
        key = {"X-Api-Key": "one"}
        metrics = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                   for line in server.ask("GET", "/metrics", headers=key)[2].splitlines() if line[0] != "#"}
        self.assertEqual(metrics["swiftkv_reader_read_total"], 2)
        # A server whose keys the reader does not know reads by itself.
        stranger = self.reader(store, others)
        server = self.answerer(store, stranger, keys)
        self.assertEqual([ask("two", prompt_of(500, 1)), ask("one", prompt_of(500, 1))], [0, 448])
        text = server.ask("GET", "/metrics", headers=key)[2]
        self.assertIn('reader_fallbacks_total{reason="refused"} 1', text)

    def test_cancelled(self):
        """A client that leaves ends the reading, too."""
        store = self.store()
        reader = self.reader(store, ("--ctx", 60000, "--step-ms", 1))
        server = self.answerer(store, reader, ("--ctx", 60000))
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt_of(59000), "max_tokens": 1}))
        reader.wait_for(lambda m: m["requests_running"] == 1)
        connection.close()
        reader.wait_for(lambda m: m["requests_running"] == 0)
        wait_until(lambda: reader.metrics()['requests_finished_total{reason="cancelled"}'] == 1)
        self.assertEqual(server.metrics()['requests_finished_total{reason="cancelled"}'], 1)
        self.assertEqual(self.ask(server, prompt_of(500, 7))[1], 448)


class ReaderItselfTest(ReaderCase):
    def lines(self, reader, **body):
        connection = reader.connect()
        connection.request("POST", "/read", json.dumps(body))
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, [json.loads(line) for line in text.splitlines()]

    def test_the_endpoint(self):
        store = self.store()
        reader = self.reader(store)
        status, lines = self.lines(reader, prompt=prompt_of(300))
        self.assertEqual(status, 200)
        self.assertEqual((lines[0], lines[-1]), ({"tokens": 300}, {"done": True}))
        names = [line["block"] for line in lines if "block" in line]
        self.assertEqual(len(names), 4)
        self.assertEqual(sorted(f"skv:{name}".encode() for name in names), store.blocks())
        # Again: nothing is computed, and all is told.
        before = reader.metrics()['prefill_tokens_total{route="swiftkv"}']
        self.assertEqual(self.lines(reader, prompt=prompt_of(256), block=names[0])[0], 200)
        self.assertEqual(reader.metrics()['prefill_tokens_total{route="swiftkv"}'], before)
        for status, body in ((409, {"block": names[1]}), (400, {"prompt": prompt_of(63)}), (400, {"prompt": []}),
                             (400, {"swiftkv": "full"}), (400, {"prompt": prompt_of(4097)}), (409, {"block": "x"}),
                             (400, {"prompt": [10**9] * 64}), (400, {"prompt": [[1] * 64, [2] * 64]})):
            with self.subTest(body=str(body)[:40]):
                self.assertEqual(self.lines(reader, **{"prompt": prompt_of(300), **body})[0], status)

    def test_nothing_else(self):
        store = self.store()
        reader = self.reader(store)
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/embeddings"):
            status, _, answer = reader.ask("POST", path, {"prompt": [1], "input": [1]})
            self.assertEqual(status, 404)
            self.assertIn("reads prompts for others", answer["error"]["message"])
        self.assertEqual(reader.ask("GET", "/health")[0], 200)
        server = self.serve(store)
        status, _, answer = server.ask("POST", "/read", {"prompt": prompt_of(300)})
        self.assertEqual((status, "--role read" in answer["error"]["message"]), (404, True))

    def test_without_the_store(self):
        store = self.store()
        reader = self.reader(store)
        store.stop()
        reader.wait_for(lambda m: m["cache_store_up"] == 0)
        status, lines = self.lines(reader, prompt=prompt_of(300))
        self.assertEqual((status, "error" in lines[-1]), (200, True))

    def test_refused_options(self):
        cache = ("--cache-store", "redis://localhost:1", "--cache-key-file", self.key)
        for words, line in (
            (("--role", "read"), "--cache-store"),
            (("--role", "write", *cache), "answer, read"),
            (("--role", "read", "--prefill-from", "http://h:1", *cache), "--prefill-from"),
            (("--prefill-from", "http://h:1"), "--cache-store"),
            (("--prefill-from", "https://h:1", *cache), "http://HOST:PORT"),
            (("--prefill-from", "http://u:p@h:1", *cache), "key"),
            (("--prefill-from", "http://h:99999", *cache), "1..65535"),
            (("--prefill-from", "http://h:1/x", *cache), "http://HOST:PORT"),
            (("--role", "read", "--no-prefix-cache", *cache), "--no-prefix-cache"),
            (("--role", "read", "--evict", "snapkv:64", *cache), "rows are evicted where"),
            (("--role", "read", "--prefill", "swiftkv-full", *cache), "every layer"),
        ):
            command = [PROGRAM, "serve", self.model, "--port", 0, *words]
            result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
            self.assertIn(result.returncode, (1, 2), words)
            self.assertIn(line, result.stderr.splitlines()[-1])


class Impostor:
    """Something at the reader's address that is healthy, and then says what it likes."""

    HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    LINES = {
        "no HTTP": b"+PONG\r\n", "no text": HEAD + b"3\r\n\0\1\n\r\n", "no lines": HEAD + b"1000\r\n" + b"x" * 0x1000,
        "no chunk": HEAD + b"zz\r\n", "a large chunk": HEAD + b"fffffffff\r\n", "no end": HEAD + b"2\r\n\n\nxx",
        "no JSON": HEAD + b"6\r\nhello\n\r\n", "a long field": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000,
        "done too early": HEAD + b'e\r\n{"done":true}\n\r\n', "a bad number": HEAD + b'c\r\n{"read":-12}\n\r\n'}
    OTHERS = {
        "another name": (HEAD + b'2d\r\n{"block":"' + b"0" * 32 + b'"}\n\r\n', "mismatch"),
        "an end": (HEAD + b"0\r\n\r\n", "lost"), "a cut": (HEAD, "lost"), "nothing": (b"", "away"),
        "an error": (HEAD + b'e\r\n{"error":"x"}\n\r\n', "full"), "a redirection": (b"HTTP/1.1 302 Found\r\n\r\n", "refused"),
        "no body": (b"HTTP/1.1 500 Oh\r\n\r\n", "away"), "too much": (b"HTTP/1.1 429 No\r\n\r\n", "full")}

    def __init__(self, answer):
        self.answer, self.n = answer, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            try:
                with connection:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(65536) or b"\r\n\r\n"
                    if head.startswith(b"GET /health"):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                        continue
                    body = head.partition(b"\r\n\r\n")[2]
                    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    while len(body) < size:
                        body += connection.recv(65536)
                    self.n += 1
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1)
            except OSError:
                pass

    def stop(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


class FaultTest(ReaderCase):
    said_alone = []  # of all its tests

    def setUp(self):
        super().setUp()
        self.store_ = self.store()

    def slow_reader(self, **options):
        """One that takes long enough to do something to it in the middle of a prompt."""
        return self.reader(self.store_, ("--ctx", 60000, "--step-ms", 1, "--chunk", 16), **options)

    def ask_during(self, server, reader, action):
        """The answer to a long prompt, while which `action` happens to the reader."""
        body = {"prompt": prompt_of(N_LONG), "max_tokens": 4, "temperature": 0, "logprobs": 2}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.post, "/v1/completions", **body)
            server.wait_for(lambda m: m["cache_store_read_total"] >= 2)
            action()
            got = answer.result()
        self.assertEqual(got["choices"], self.alone_says(body)["choices"])
        self.assertEqual(server.metrics()['requests_finished_total{reason="failed"}'], 0)
        return got["usage"]["prompt_tokens_details"]["cached_tokens"]

    def alone_says(self, body):
        """Asked once: the prompt is long."""
        if not self.said_alone:
            server = self.alone(("--ctx", 60000))
            self.said_alone.append(server.post("/v1/completions", **body))
            server.stop()
        return self.said_alone[0]

    def test_killed_in_the_middle(self):
        reader = self.slow_reader()
        server = self.answerer(self.store_, reader, ("--ctx", 60000))
        found = self.ask_during(server, reader, reader.process.kill)
        self.assertGreater(found, 0)  # what came is used
        self.assertLess(found, N_LONG - 100)
        self.assertEqual(self.fallbacks(server), {"lost": 1})
        # From then on nobody waits for it.
        server.wait_for(lambda m: m["reader_up"] == 0)
        self.ask(server, prompt_of(500, 3))
        self.assertEqual(self.fallbacks(server), {"lost": 1, "away": 1})

    def test_frozen_in_the_middle(self):
        reader = self.slow_reader()
        server = self.answerer(self.store_, reader, ("--ctx", 60000), seconds=sanitizer.seconds(1))
        try:
            found = self.ask_during(server, reader, lambda: reader.process.send_signal(signal.SIGSTOP))
            self.assertLess(found, N_LONG - 100)
            self.assertEqual(self.fallbacks(server), {"slow": 1})
            self.ask(server, prompt_of(500, 3))
            self.assertEqual(self.fallbacks(server), {"slow": 1, "away": 1})
        finally:
            reader.process.send_signal(signal.SIGCONT)
        # When it goes on it is used again, as soon as this machine lets it read a prompt within the time.
        server.wait_for(lambda m: m["reader_up"] == 1)
        seeds = iter(range(4, 1000))
        wait_until(lambda: self.ask(server, prompt_of(500, next(seeds)))[1] == 448)
        self.assertEqual(server.metrics()["reader_read_total"], 1)

    def test_one_that_comes_later(self):
        port = free_port()
        server = self.answerer(self.store_, port)
        want, found = self.ask(server, prompt_of(500))
        self.assertEqual((found, self.fallbacks(server)), (0, {"away": 1}))
        self.reader(self.store_, ("--port", port))
        server.wait_for(lambda m: m["reader_up"] == 1)
        found = self.ask(server, prompt_of(500, 1))[1]
        self.assertEqual((found, self.fallbacks(server)), (448, {"away": 1}), server.lines)
        self.check_lines(server)

    def check_lines(self, server):
        self.assertEqual(server.stop(), 0)
        self.assertTrue(any("prefill-from" in line for line in server.lines))

    def test_another_model(self):
        for words in ({"model": PLAIN}, {"words": ("--kv", "fp8")}, {"key": self.write("other", "f" * 32)}):
            with self.subTest(words=str(words)[:30]):
                reader = self.reader(self.store_, **words)
                server = self.answerer(self.store_, reader)
                self.assertEqual(self.ask(server, prompt_of(500)), self.ask(self.alone(), prompt_of(500)))
                self.ask(server, prompt_of(500, 1))
                self.assertEqual(self.fallbacks(server), {"mismatch": 2})
                # Nothing was computed there, and it was asked once.
                self.assertEqual(reader.metrics()["prompt_tokens_total"], 0)
                self.assertTrue(any("another model, key or version" in line for line in server.lines))
                for server in (reader, server):
                    server.stop()
                self.store_.ask("FLUSHALL")

    def test_full(self):
        """A reader whose queue takes no more, and one whose key may ask once a minute."""
        keys = ("--api-key-file", self.write("keys", "k rpm=1\n"))
        reader = self.reader(self.store_, keys)
        free = ("--api-key-file", self.write("free", "k\n"))
        server = self.answerer(self.store_, reader, free)
        found = []
        for i in range(2):
            _, _, answer = server.ask("POST", "/v1/completions", {"prompt": prompt_of(500, i), "max_tokens": 1},
                                      {"X-Api-Key": "k"})
            found.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(found, [448, 0])
        text = server.ask("GET", "/metrics", headers={"X-Api-Key": "k"})[2]
        self.assertIn('reader_fallbacks_total{reason="full"} 1', text)

    def test_garbage(self):
        want, _ = self.ask(self.alone(), prompt_of(300))
        cases = {name: (answer, "garbage") for name, answer in Impostor.LINES.items()} | Impostor.OTHERS
        for name, (answer, reason) in cases.items():
            with self.subTest(name=name):
                self.store_.ask("FLUSHALL")
                impostor = Impostor(answer)
                self.addCleanup(impostor.stop)
                server = self.answerer(self.store_, impostor)
                got, found = self.ask(server, prompt_of(300))
                self.assertEqual((got, found), (want, 0))
                self.assertEqual((impostor.n, self.fallbacks(server)), (1, {reason: 1}))
                self.assertEqual(server.stop(), 0)

    def test_without_the_store(self):
        """It fails while the reader is at a prompt: what has come is used."""
        reader = self.slow_reader()
        server = self.answerer(self.store_, reader, ("--ctx", 60000))
        self.ask_during(server, reader, self.store_.stop)
        self.assertEqual(sum(self.fallbacks(server).values()), 1)

    def test_stopped_in_the_middle(self):
        """Neither of the two holds up the other's end."""
        reader = self.slow_reader()
        server = self.answerer(self.store_, reader, ("--ctx", 60000))
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt_of(50000), "max_tokens": 1}))
        reader.wait_for(lambda m: m["requests_running"] == 1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        server.stop()
        connection.close()
        reader.wait_for(lambda m: m["requests_running"] == 0)
        self.assertEqual(reader.stop(), 0)


if __name__ == "__main__":
    unittest.main()
