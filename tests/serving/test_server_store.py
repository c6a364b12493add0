#!/usr/bin/env python3
"""Cached prompts that several servers share in Valkey or Redis: what one has read the others need not read, and
nothing that happens to the store fails a request."""

import concurrent.futures
import shutil
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

import sanitizer  # noqa: E402
from server_process import PLAIN, PROGRAM, SWIFTKV, Server, prompt_of  # noqa: E402
from waiting import PATIENCE, wait_exit, wait_until  # noqa: E402

STORE = shutil.which("redis-server") or shutil.which("valkey-server")
KEY = "0f3c5a9e7b1d2468ace013579bdf0246"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Store:
    """A store of its own, empty at every start."""

    def __init__(self, *lines, tls=False, host="127.0.0.1", launch=()):
        """lines: of its configuration; launch: words before the program's"""
        self.port, self.host, self.command = free_port(), host, [*launch, STORE, "-"]
        ports = ["port 0", f"tls-port {self.port}"] if tls else [f"port {self.port}"]
        fixed = [f"bind {host}", 'save ""', "maxmemory 64mb", "maxmemory-policy allkeys-lru"]
        self.lines = "\n".join([*ports, *fixed, *lines, ""])
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.process.stdin.write(self.lines)
        self.process.stdin.close()
        wait_until(self.accepts, 0.005)

    def accepts(self):
        if self.process.poll() is not None:
            raise RuntimeError("the store does not start")
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        wait_exit(self.process)

    def ask(self, *words):
        """The reply to a command: bytes, a number, None or a list of them."""
        with socket.create_connection((self.host, self.port), PATIENCE) as connection:
            data = b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                data += b"$%d\r\n%s\r\n" % (len(word), word)
            connection.sendall(data)
            return self.read(connection.makefile("rb"))

    def read(self, file):
        line = file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.read(file) for _ in range(int(rest))]
        if kind != b"$":
            return rest
        n = int(rest)
        return None if n < 0 else file.read(n + 2)[:n]

    def blocks(self):
        return sorted(self.ask("KEYS", "skv:*"))


class Garbage:
    """Something at the store's port that says what it likes."""

    LINES = (b"+OK\r\n+PONG\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+PONG\r\n$999999999999\r\n",
             b"+PONG\r\n$-7\r\n", b"+PONG\r\n$5\r\nhello", b"+PONG\r\n*3\r\n:1\r\n", b"+PONG\r\n" + b"x" * 9000,
             b"+PONG\r\n$200\r\n" + b"y" * 200 + b"\r\n", b"-LOADING\x1b[31m wait\r\n", b"")

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_server((host, port))
        self.n, self.held = 0, []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
                connection.sendall(self.LINES[self.n % len(self.LINES)])
            except OSError:
                return
            self.n += 1
            self.held.append(connection)
            if self.n % 3 == 0:
                self.held.pop().close()

    def stop(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
        for connection in self.held:
            connection.close()


@unittest.skipUnless(STORE, "redis-server is not installed: the store that servers share is not tested")
class StoreCase(unittest.TestCase):
    # On a busy machine an answer may take long.
    model, words, patience = PLAIN, ("--ctx", 512), 30

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.key = self.write("key", KEY + "\n")

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def store(self, *lines, **options):
        store = Store(*lines, **options)
        self.addCleanup(store.stop)
        return store

    def serve(self, *stores, words=(), model=None, key=None, scheme="redis", host="127.0.0.1"):
        places = ",".join(f"{host}:{store.port}" for store in stores)
        server = Server(model or self.model, *self.words, "--cache-store", f"{scheme}://{places}", "--cache-key-file",
                        key or self.key, "--cache-store-timeout", self.patience, *words)
        self.addCleanup(self.end, server)
        return server

    def end(self, server):
        """A server that a sanitizer has ended says why."""
        if server.process.poll() is None:
            server.stop()
        server.reader.join()
        server.process.stderr.close()
        sanitizer.check(server.lines)

    def ask(self, server, ids, n=8, **body):
        """(tokens with their log-probabilities, tokens found)"""
        answer = server.complete(prompt=ids, max_tokens=n, logprobs=2, ignore_eos=True, **body)
        return answer["choices"][0]["logprobs"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def sent(self, server, n):
        server.wait_for(lambda m: m["cache_store_written_total"] >= n)

    def stored_hits(self, server):
        return server.metrics()['prefix_cache_hits_by_kind_total{kind="store"}']


class SharedTest(StoreCase):
    def check_shared(self, model=None, words=(), n=300, found=256, **body):
        store = self.store()
        first = self.serve(store, words=words, model=model)
        second = self.serve(store, words=words, model=model)
        want, cached = self.ask(first, prompt_of(n), **body)
        self.assertEqual(cached, 0)
        self.sent(first, n // 64)
        self.assertEqual(self.ask(second, prompt_of(n), **body), (want, found))
        self.assertEqual(self.stored_hits(second), found)
        self.assertEqual(second.metrics()["cache_store_bad_total"], 0)
        return store, first, second

    def test_what_one_has_read(self):
        """In chunks, whose blocks go out while the next one is computed."""
        store, first, second = self.check_shared(words=("--chunk", 64))
        self.assertEqual(len(store.blocks()), 4)
        # It goes on where the other one stood, and what it adds comes back.
        more = prompt_of(300) + prompt_of(150, 3)
        want, cached = self.ask(second, more)
        self.assertEqual(cached, 256)
        self.sent(second, 3)
        self.assertEqual(self.ask(first, more), (want, 448))
        # What is in memory is not asked for, and not sent again.
        written = first.metrics()["cache_store_written_total"]
        self.assertEqual(self.ask(first, more), (want, 448))
        self.assertEqual(self.stored_hits(first), 448 - 256)
        self.assertEqual(first.metrics()["cache_store_written_total"], written)

    def test_forms_of_a_block(self):
        for words in (("--cache-disk-form", "rows"), ("--cache-disk-form", "kv"),
                      ("--kv", "fp8", "--cache-disk-form", "rows"), ("--kv", "int8")):
            with self.subTest(words=words):
                store, _, second = self.check_shared(SWIFTKV, words)
                kinds = {store.ask("GET", name)[12] for name in store.blocks()}
                self.assertEqual(kinds, {3 if "rows" in words else 1})
                second.stop()

    def test_eviction(self):
        self.check_shared(found=256, snapkv={"capacity": 40, "window": 8})

    def test_methods_do_not_mix(self):
        store = self.store()
        first, second = self.serve(store, model=SWIFTKV), self.serve(store, model=SWIFTKV)
        want = {m: self.ask(first, prompt_of(200), swiftkv=m)[0] for m in ("auto", "teacher")}
        self.sent(first, 6)
        for method, logprobs in want.items():
            self.assertEqual(self.ask(second, prompt_of(200), swiftkv=method), (logprobs, 192))

    def test_strangers_find_nothing(self):
        """Another cache key, another model, another type of cache."""
        store = self.store()
        first = self.serve(store)
        self.ask(first, prompt_of(200))
        self.sent(first, 3)
        for words in ({"key": self.write("other", KEY[::-1])}, {"words": ("--kv", "fp8")}, {"model": SWIFTKV}):
            stranger = self.serve(store, **words)
            self.assertEqual(self.ask(stranger, prompt_of(200))[1], 0)
            self.assertEqual(stranger.metrics()["cache_store_missed_total"], 1)
            stranger.stop()

    def test_copies_of_a_model(self):
        """The same files elsewhere, of another time, are the same model; one with another last bit is not."""
        store = self.store()
        first = self.serve(store)
        want, _ = self.ask(first, prompt_of(200))
        self.sent(first, 3)
        copy = self.folder / "copy"
        shutil.copytree(self.model, copy, copy_function=shutil.copyfile)
        second = self.serve(store, model=copy)
        self.assertEqual(self.ask(second, prompt_of(200)), (want, 192))
        weights = copy / "model-00003-of-00003.safetensors"
        data = bytearray(weights.read_bytes())
        data[-4] ^= 1
        weights.write_bytes(data)
        self.assertEqual(self.ask(self.serve(store, model=copy), prompt_of(200))[1], 0)

    def test_api_keys(self):
        store = self.store()
        keys = ("--api-key-file", self.write("api", "one\ntwo\n"))
        first, second = self.serve(store, words=keys), self.serve(store, words=keys)

        def found(server, key):
            body = {"prompt": prompt_of(200), "max_tokens": 1}
            status, _, answer = server.ask("POST", "/v1/completions", body, {"X-Api-Key": key})
            self.assertEqual(status, 200, answer)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual(found(first, "one"), 0)
        wait_until(lambda: len(store.blocks()) == 3)
        self.assertEqual([found(second, "two"), found(second, "one")], [0, 192])

    def test_disk_first(self):
        store = self.store()
        disk = ("--cache-dir", self.folder / "cache")
        first, other = self.serve(store, words=disk), self.serve(store)
        self.ask(first, prompt_of(200))
        first.stop()
        want, _ = self.ask(other, prompt_of(200) + prompt_of(200, 1))
        self.sent(other, 3)
        again = self.serve(store, words=disk)
        self.assertEqual(self.ask(again, prompt_of(200) + prompt_of(200, 1)), (want, 384))
        metrics = again.metrics()
        hits = [metrics[f'prefix_cache_hits_by_kind_total{{kind="{kind}"}}'] for kind in ("disk", "store")]
        self.assertEqual(hits, [192, 192])

    def test_several_instances(self):
        stores = [self.store() for _ in range(3)]
        first, second = self.serve(*stores), self.serve(*reversed(stores))
        prompts = [prompt_of(450, i) for i in range(6)]
        want = [self.ask(first, ids)[0] for ids in prompts]
        self.sent(first, 42)
        counts = [len(store.blocks()) for store in stores]
        self.assertEqual(sum(counts), 42)
        self.assertGreater(min(counts), 4)
        for ids, logprobs in zip(prompts[:3], want):
            self.assertEqual(self.ask(second, ids), (logprobs, 448))
        # Without one of them the others take its blocks.
        stores[1].stop()
        for server in (first, second):
            server.wait_for(lambda m: m["cache_store_up"] == 2)
        fresh, _ = self.ask(first, prompt_of(450, 9))
        self.sent(first, 49)
        self.assertEqual(self.ask(second, prompt_of(450, 9)), (fresh, 448))


class ForgedTest(StoreCase):
    def test_bad_values(self):
        """Damaged, cut, replayed, forged by who has no key: not used, counted, and replaced."""
        store = self.store()
        first = self.serve(store)
        ids = prompt_of(300)
        want, _ = self.ask(first, ids)
        self.sent(first, 4)
        names = store.blocks()
        keep = {name: store.ask("GET", name) for name in names}
        first.stop()
        value = keep[names[0]]

        def flip(place):
            return value[:place] + bytes([value[place] ^ 1]) + value[place + 1:]

        wrongs = [b"", b"x", value[:-1], value + b"x", value[:127], keep[names[1]], b"\0" * len(value), flip(200),
                  flip(len(value) - 1), flip(9), flip(40), flip(90), flip(114), flip(124)]
        for i, wrong in enumerate(wrongs):
            with self.subTest(i=i):
                bad = names[0]
                server = self.serve(store)
                store.ask("SET", bad, wrong)
                logprobs, cached = self.ask(server, ids)
                self.assertEqual(logprobs, want)
                self.assertLess(cached, 256)
                self.assertEqual(server.metrics()["cache_store_bad_total"], 1)
                wait_until(lambda: store.ask("GET", bad) == keep[bad], 0.01)
                server.stop()

class FaultTest(StoreCase):
    patience = 0.25

    def test_faults_under_load(self):
        """Frozen, killed, restarted, full and replaced by garbage: no request fails, a store that does not answer is
        waited for once, answers stay as they are, and what one server has read another finds soon after the store's
        return."""
        store = self.store()
        servers = [self.serve(store, words=("--kv-tokens", 1024)) for _ in range(2)]
        prompts = [prompt_of(200 + 10 * i, i) for i in range(6)]
        want = [self.ask(servers[0], ids)[0] for ids in prompts]
        ends, wrong = threading.Event(), []

        def read(i):
            k = i
            while not ends.is_set():
                k += 1
                try:
                    if self.ask(servers[k % 2], prompts[k % 6])[0] != want[k % 6]:
                        wrong.append(k)
                except Exception as error:
                    wrong.append(error)

        fresh = iter(range(1000, 9000))

        def recovered():
            """Naps of 10 ms until one finds what the other has read since: a machine that stands still takes none."""
            for n in range(1000):
                ids = prompt_of(130, next(fresh))
                self.ask(servers[0], ids, 1)
                time.sleep(0.01)
                if self.ask(servers[1], ids, 1)[1] == 128:
                    return n
            self.fail("the store is not used again")

        def go_on():
            """Ten new prompts are answered by each server: how often it waited in vain for what the store has of them."""
            before = [server.metrics()["cache_store_unread_total"] for server in servers]
            for ids in (prompt_of(130, next(fresh)) for _ in range(10)):
                for server in servers:
                    self.ask(server, ids, 1)
            return [server.metrics()["cache_store_unread_total"] - n for server, n in zip(servers, before)]

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read, i) for i in range(3)]
            try:
                took = {"start": recovered()}
                store.process.send_signal(signal.SIGSTOP)
                unread = go_on()
                store.process.send_signal(signal.SIGCONT)
                took["frozen"] = recovered()
                store.stop()
                go_on()
                store.start()
                took["killed"] = recovered()
                store.ask("CONFIG", "SET", "maxmemory", "1")
                store.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
                go_on()
                store.ask("CONFIG", "SET", "maxmemory", "64mb")
                took["full"] = recovered()
                store.stop()
                garbage = Garbage(store.port)
                wait_until(lambda: garbage.n > 2)
                garbage.stop()
                store.start()
                took["garbage"] = recovered()
            finally:
                ends.set()
            for reader in readers:
                reader.result()
        self.assertEqual(wrong, [])
        self.assertLessEqual(max(unread), 2)  # then its circuit breaker is open; one may be under way
        self.assertLess(max(took.values()), 100, took)
        failed = sum(server.metrics()['requests_finished_total{reason="failed"}'] for server in servers)
        self.assertEqual(failed, 0)
        for server in servers:
            self.assertEqual(server.stop(), 0)
            self.assertTrue(all("\x1b" not in line for line in server.lines))

    def test_without_a_store(self):
        """One that never was there costs nothing, and one that comes later is used."""
        store = self.store()
        store.stop()
        first = self.serve(store)
        want, _ = self.ask(first, prompt_of(200))
        store.start()
        first.wait_for(lambda m: m["cache_store_up"] == 1)
        second = self.serve(store)
        self.ask(first, prompt_of(200))  # its end sends what it has
        self.sent(first, 3)
        self.assertEqual(self.ask(second, prompt_of(200)), (want, 192))

    def test_a_frozen_store_at_the_end(self):
        store = self.store()
        server = self.serve(store)
        store.process.send_signal(signal.SIGSTOP)
        self.ask(server, prompt_of(200))
        self.assertEqual(server.stop(), 0)  # within the seconds after which it would end itself

    def test_refused_options(self):
        short = self.write("short", "secret")
        for words, line in (
            (("--cache-store", "redis://localhost:1"), "--cache-key-file"),
            (("--cache-store", "redis://localhost:1", "--cache-key-file", short), "at least 16"),
            (("--cache-store", "localhost:1", "--cache-key-file", self.key), "redis://"),
            (("--cache-store", "redis://localhost", "--cache-key-file", self.key), "HOST:PORT"),
            (("--cache-store", "redis://u:p@h:1", "--cache-key-file", self.key), "--cache-store-auth"),
            (("--cache-store", "redis://h:0", "--cache-key-file", self.key), "1..65535"),
            (("--cache-store", "redis://h:1,rediss://h:2", "--cache-key-file", self.key), "mixed"),
            (("--cache-store", "redis://h:1,h:1", "--cache-key-file", self.key), "twice"),
            (("--cache-store", "redis://h:1", "--cache-key-file", self.key, "--cache-store-ca", short), "rediss"),
            (("--cache-store", "redis://h:1", "--cache-key-file", self.folder / "none"), "none"),
        ):
            command = [PROGRAM, "serve", self.model, "--port", 0, *self.words, *words]
            result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(result.returncode, 1, words)
            self.assertIn(line, result.stderr.splitlines()[-1])


@unittest.skipUnless(shutil.which("openssl"), "openssl is not installed: no certificates for the store")
class SecureTest(StoreCase):
    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=PATIENCE)

    def make_certificates(self):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                     "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "2")
        self.write("names", "subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        for name in ("store", "client"):
            self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                         f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                         "-out", f"{name}.pem", "-days", "2", "-extfile", "names")

    def test_pinned_prompts_count_as_used(self):
        """A store gives up what was not used for longest; a server may lack the right to say so."""
        for touches in (True, False):
            store = self.store(*([] if touches else ["user default on nopass ~skv:* +@all -touch"]))
            server = self.serve(store)
            self.ask(server, prompt_of(300), prompt_cache_key="mine")
            self.sent(server, 4)

            def said(store=store):
                rows = store.ask("INFO", "commandstats").decode().splitlines()
                return next((row for row in rows if row.startswith("cmdstat_touch:")), "")

            wait_until(said)
            if touches:
                wait_until(lambda: "calls=1," not in said())
            for seed in range(2):  # and then it does not say so again
                self.ask(server, prompt_of(300, 5 + seed))
                self.sent(server, 8 + 4 * seed)
            self.assertEqual("rejected_calls=1," in said(), not touches)
            self.assertEqual(server.metrics()["cache_store_up"], 1)

    def test_certificates_and_a_user(self):
        self.make_certificates()
        lines = [f"tls-cert-file {self.folder}/store.pem", f"tls-key-file {self.folder}/store.key",
                 f"tls-ca-cert-file {self.folder}/ca.pem", "user default off",
                 "user cache on >word ~skv:* +get +set +touch +ping"]
        store = self.store(*lines, tls=True)
        whole = ["--cache-store-ca", self.folder / "ca.pem", "--cache-store-cert", self.folder / "client.pem",
                 "--cache-store-key", self.folder / "client.key",
                 "--cache-store-auth", self.write("auth", "cache word\n")]
        first, second = (self.serve(store, words=whole, scheme="rediss", host=host)
                         for host in ("127.0.0.1", "localhost"))
        want, _ = self.ask(first, prompt_of(300))
        self.sent(first, 4)
        self.assertEqual(self.ask(second, prompt_of(300)), (want, 256))
        self.assertEqual(first.stop(), 0)
        wrong = {"password": [*whole[:7], self.write("bad", "cache other\n")], "user": whole[:6],
                 "certificate": [whole[0], self.folder / "store.pem", *whole[2:]], "client": [*whole[:2], *whole[6:]]}
        for what, words in wrong.items():
            with self.subTest(what=what):
                server = self.serve(store, words=words, scheme="rediss")
                self.assertEqual(self.ask(server, prompt_of(300)), (want, 0))
                self.assertEqual(server.metrics()["cache_store_up"], 0)
                self.assertTrue(any("not used until it answers" in line for line in server.lines), server.lines)
                self.assertFalse(any("other" in line for line in server.lines))
                server.stop()


if __name__ == "__main__":
    unittest.main()
