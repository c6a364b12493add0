#!/usr/bin/env python3
"""A fleet on hosts of its own: a store, two replicas, a reader, and HAProxy with the rules of deploy/haproxy.cfg, each in
a network namespace. What one replica has read costs the other its last block; long prompts are read by the reader;
whatever happens to the store or the reader, answers stay the same and no request fails.

    tests/serving/test_server_hosts.py    needs root, iproute2, redis-server and haproxy; skipped with a line that says
                                          what is missing
"""

import concurrent.futures
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import hosts  # noqa: E402
from other_tools import ROOT, find_program, library_path  # noqa: E402
from server_process import SWIFTKV, Server, prompt_of  # noqa: E402
from test_server_store import STORE, Garbage, Store, StoreCase  # noqa: E402
from waiting import PATIENCE, wait_exit, wait_until  # noqa: E402

HAPROXY = find_program("haproxy")
CONTEXT = ("--ctx", 20000, "--chunk", 64)


class HostServer(Server):
    def __init__(self, host, *words):
        self.address = host.address
        super().__init__(SWIFTKV, "--host", host.address, "--insecure", *words, launch=host.launch)
        self.launched = False  # `ip netns exec` becomes the program

    def connect(self):
        return http.client.HTTPConnection(self.address, self.port, timeout=PATIENCE)


class Proxy:
    """What clients see: HAProxy with the rules of deploy/haproxy.cfg."""

    def __init__(self, host, folder, replicas):
        lines = (ROOT / "deploy/haproxy.cfg").read_text().replace("127.0.0.1:8080", f"{host.address}:8080").splitlines(True)
        lines = [line for line in lines if not line.startswith("    server ")]
        lines += [f"    server replica{i + 1} {one.address}:{one.port}\n" for i, one in enumerate(replicas)]
        path = folder / "haproxy.cfg"
        path.write_text("".join(lines))
        self.address = host.address
        self.process = subprocess.Popen([*host.launch, HAPROXY, "-db", "-q", "-f", path],
                                        env={**os.environ, "LD_LIBRARY_PATH": library_path()})
        wait_until(self.is_up, 0.1)

    def is_up(self):
        try:
            return self.ask(prompt_of(10), 1)[0] == 200
        except OSError:
            return False

    def ask(self, ids, n=8):
        """(status, replica, tokens with their log-probabilities)"""
        connection = http.client.HTTPConnection(self.address, 8080, timeout=PATIENCE)
        body = {"prompt": ids, "max_tokens": n, "temperature": 0, "logprobs": 2, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, response.getheader("X-Replica"), answer["choices"][0]["logprobs"] if "choices" in answer else answer

    def stop(self):
        self.process.terminate()
        wait_exit(self.process)


class FleetTest(StoreCase):
    def setUp(self):
        super().setUp()
        names = ("store", "a", "b", "reader", "proxy", "lone")
        self.hosts = {name: hosts.Host(name, i + 1) for i, name in enumerate(names)}
        self.addCleanup(lambda: [hosts.ip("netns", "delete", name) for name in names])
        self.store_ = Store("protected-mode no", host=self.hosts["store"].address, launch=self.hosts["store"].launch)
        self.addCleanup(self.store_.stop)
        self.shared = (*CONTEXT, "--cache-store", f"redis://{self.store_.host}:{self.store_.port}", "--cache-key-file", self.key,
                       "--cache-store-timeout", 0.25)
        self.reader = self.begin("reader", *self.shared, "--role", "read", "--step-ms", 1)
        away = ("--prefill-from", f"http://{self.reader.address}:{self.reader.port}", "--prefill-above", 1000, "--prefill-timeout", 1)
        self.a, self.b = (self.begin(name, *self.shared, *away) for name in "ab")
        self.lone = self.begin("lone", *CONTEXT)
        self.proxy = Proxy(self.hosts["proxy"], self.folder, (self.a, self.b))
        self.addCleanup(self.proxy.stop)

    def begin(self, name, *words):
        server = HostServer(self.hosts[name], *words)
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def computed(self, server):
        return server.metrics()['prefill_tokens_total{route="swiftkv"}']

    def test_one_fleet(self):
        """All of it with one fleet: what is begun takes longer than what is tried."""
        self.check_last_block()
        self.check_reader()
        self.check_store_under_load()
        for way in ("killed", "unplugged"):
            with self.subTest(reader=way):
                self.check_reader_lost(way)
        for server in (self.a, self.b):
            self.assertEqual(server.metrics()['requests_finished_total{reason="failed"}'], 0)
            self.assertEqual(server.stop(), 0)

    def check_last_block(self):
        ids = prompt_of(300)
        want, _ = self.ask(self.lone, ids)
        self.assertEqual(self.ask(self.a, ids), (want, 0))
        self.sent(self.a, 4)
        before = self.computed(self.b)
        self.assertEqual(self.ask(self.b, ids), (want, 256))
        self.assertLessEqual(self.computed(self.b) - before, 300 - 256)
        self.assertEqual(self.stored_hits(self.b), 256)

    def check_reader(self):
        ids = prompt_of(2000, 1)
        want, _ = self.ask(self.lone, ids)
        before = self.computed(self.a)
        self.assertEqual(self.ask(self.a, ids), (want, 1984))
        self.assertLessEqual(self.computed(self.a) - before, 2000 - 1984)
        self.assertEqual(self.a.metrics()["reader_read_total"], 1)
        self.assertEqual(self.reader.metrics()["cache_store_written_total"], 1984 // 64)
        self.assertEqual(self.ask(self.b, ids), (want, 1984))  # from the store, and nobody reads it again
        self.assertEqual(self.b.metrics()["reader_prompts_total"], 0)

    # ---------------------------------------------------------------------------------- the store

    def check_store_under_load(self):
        """Requests through the proxy go on, and all are answered as they were without a store."""
        prompts = [prompt_of(200 + 10 * i, i + 10) for i in range(8)]
        want = [self.ask(self.lone, ids)[0] for ids in prompts]
        ends, wrong, replicas = threading.Event(), [], set()

        def go_on(k):
            while not ends.is_set():
                k += 1
                try:
                    status, replica, logprobs = self.proxy.ask(prompts[k % 8])
                    replicas.add(replica)
                    if status != 200 or logprobs != want[k % 8]:
                        wrong.append((status, k))
                except (OSError, http.client.HTTPException) as error:
                    wrong.append(error)

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            clients = [pool.submit(go_on, i) for i in range(3)]
            try:
                took = {what: self.after(what) for what in ("start", "frozen", "killed", "unplugged", "full", "garbage")}
            finally:
                ends.set()
            for client in clients:
                client.result()
        self.assertEqual((wrong, replicas), ([], {"replica1", "replica2"}))
        # Naps of 10 ms: within a second, on a machine that does not stand still in the meantime.
        self.assertLess(max(took.values()), 100, took)

    def after(self, what):
        """Naps until what one replica has read since is found by the other."""
        store, host = self.store_, self.hosts["store"]
        if what == "frozen":
            store.process.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            store.process.send_signal(signal.SIGCONT)
        elif what == "killed":
            store.stop()
            time.sleep(0.3)
            store.start()
        elif what == "unplugged":
            host.plug(False)
            time.sleep(0.8)
            host.plug(True)
        elif what == "full":
            for words in (("maxmemory", "1"), ("maxmemory-policy", "noeviction")):
                store.ask("CONFIG", "SET", *words)
            time.sleep(0.4)
            store.ask("CONFIG", "SET", "maxmemory", "64mb")
        elif what == "garbage":
            store.stop()
            garbage = subprocess.Popen([*host.launch, sys.executable, "-B", __file__, "garbage", store.host, str(store.port)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            garbage.stdout.readline()
            time.sleep(1.2)
            n = int(garbage.communicate(b"\n")[0])
            self.assertGreater(n, 1)
            store.start()
        self.fresh = getattr(self, "fresh", 1000)
        for n in range(1000):
            self.fresh += 1
            ids = prompt_of(130, self.fresh)
            self.ask(self.a, ids, 1)
            time.sleep(0.01)
            if self.ask(self.b, ids, 1)[1] == 128:
                return n
        self.fail(f"the store is not used again: {what}")
        return None

    # --------------------------------------------------------------------------------- the reader

    def check_reader_lost(self, way):
        """In the middle of a prompt: the answer comes, of what was read there and what is read here."""
        ids = prompt_of(15000, 20 + len(way))
        want, _ = self.ask(self.lone, ids)
        before = self.b.metrics()["cache_store_read_total"]
        self.b.wait_for(lambda m: m["reader_up"] == 1)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.ask, self.b, ids)
            self.b.wait_for(lambda m: m["cache_store_read_total"] >= before + 2)
            if way == "killed":
                self.reader.process.kill()
            else:
                self.hosts["reader"].plug(False)
            got, found = answer.result()
        self.assertEqual(got, want)
        self.assertTrue(0 < found < 14900, found)
        self.assertEqual(self.b.metrics()['reader_fallbacks_total{reason="%s"}' % {"killed": "lost", "unplugged": "slow"}[way]], 1)
        if way == "killed":
            self.reader = self.begin("reader", *self.shared, "--role", "read", "--step-ms", 1, "--port", self.reader.port)
        else:
            self.hosts["reader"].plug(True)


def say_garbage(host, port):
    """Until a line comes on the standard input; then how often somebody has asked."""
    garbage = Garbage(int(port), host)
    print("ready", flush=True)
    sys.stdin.readline()
    garbage.stop()
    print(garbage.n)


if __name__ == "__main__":
    if sys.argv[1:2] == ["garbage"]:
        say_garbage(*sys.argv[2:])
        sys.exit()
    missing = [name for name, there in (("redis-server", STORE), ("haproxy", HAPROXY)) if not there]
    if missing:
        print(f"skipped: {', '.join(missing)} is absent")
        sys.exit(77)
    hosts.enter()
    unittest.main()
