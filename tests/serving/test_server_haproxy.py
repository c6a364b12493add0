#!/usr/bin/env python3
"""Three replicas behind HAProxy, as deploy/haproxy.cfg sets them up: each conversation stays with its
replica, whose prefix cache has it; one replica is killed, and nobody but those in flight there may
notice. And servers behind a name, as deploy/kubernetes/haproxy.cfg finds them: they come and go."""

import http.client
import json
import os
import re
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
from other_tools import ROOT, find_program, library_path  # noqa: E402

HAPROXY = find_program("haproxy")
PROMPTS = [f"You are helper number {i}. " + "Answer shortly, in words that a child understands. " * 4 for i in range(12)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@unittest.skipUnless(HAPROXY, "haproxy is absent")
@unittest.skipUnless(base.STORIES.exists(), f"{base.STORIES} is absent")
class HaproxyTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        template = self.folder / "chat.jinja"
        template.write_text(base.CHATML)
        self.replicas = [base.Server(base.STORIES, "--ctx", 512, "--template", template) for _ in range(3)]
        self.addCleanup(self.stop)
        self.port = free_port()
        config = (ROOT / "deploy/haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        for i, replica in enumerate(self.replicas):
            config = config.replace(f"127.0.0.1:{8081 + i}", f"127.0.0.1:{replica.port}")
        path = self.folder / "haproxy.cfg"
        path.write_text(config)
        environment = {**os.environ, "LD_LIBRARY_PATH": library_path()}
        self.haproxy = subprocess.Popen([HAPROXY, "-db", "-q", "-f", path], env=environment)
        wait_until(self.is_up, 0.1)

    def is_up(self):
        try:
            return self.chat(PROMPTS[0])[0] == 200
        except OSError:
            return False

    def stop(self):
        if hasattr(self, "haproxy"):
            self.haproxy.terminate()
            wait_exit(self.haproxy)
        for replica in self.replicas:
            replica.stop()

    def chat(self, system, n=8, **body):
        """Status, replica, answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hello."}]
            body = {"messages": messages, "max_tokens": n, "temperature": 0, **body}
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            response = connection.getresponse()
            data = response.read()
            return response.status, response.getheader("X-Replica"), json.loads(data) if data.startswith(b"{") else data
        finally:
            connection.close()

    def homes(self):
        return {system: self.chat(system)[1] for system in PROMPTS}

    def test_prompts_stay_with_their_replica(self):
        homes = self.homes()
        self.assertGreater(len(set(homes.values())), 1, homes)
        for _ in range(3):
            for system in PROMPTS:
                status, replica, answer = self.chat(system)
                self.assertEqual((status, replica), (200, homes[system]))
                self.assertGreaterEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 64)

    def test_a_key_stays_whatever_its_prompts_begin_with(self):
        homes = {key: self.chat(PROMPTS[0], 1, prompt_cache_key=key)[1] for key in map(str, range(12))}
        self.assertGreater(len(set(homes.values())), 1, homes)
        for system in PROMPTS:
            for key in ("0", "7"):
                self.assertEqual(self.chat(system, 1, prompt_cache_key=key)[:2], (200, homes[key]))

    def test_a_large_body_is_routed_too(self):
        text = "a long result of a tool " * 20000  # 480 KB
        homes = {key: self.chat("Be short.", 1, prompt_cache_key=key)[1] for key in map(str, range(12))}
        for key, home in homes.items():
            messages = [{"role": "user", "content": text}]
            status, replica, _ = self.chat("", 1, messages=messages, prompt_cache_key=key)
            self.assertEqual((status, replica), (400, home))  # it does not fit the context

    def test_one_replica_is_killed(self):
        homes = self.homes()
        gone = homes[PROMPTS[0]]
        done, failed, lock, ended = [], [], threading.Lock(), threading.Event()

        def ask_on(system):
            while not ended.is_set():
                begun = time.monotonic()
                try:
                    status, replica, _ = self.chat(system, 60)
                except (OSError, http.client.HTTPException):
                    status, replica = 0, None
                with lock:
                    (done if status == 200 else failed).append((system, begun, replica, status))

        threads = [threading.Thread(target=ask_on, args=(system,)) for system in PROMPTS]
        for thread in threads:
            thread.start()

        def asked(since):
            """Everybody had an answer to what he asked after that."""
            with lock:
                return {system for system, begun, _, _ in done if begun > since} == set(PROMPTS)

        wait_until(lambda: asked(0))
        self.replicas[int(re.sub(r"\D", "", gone)) - 1].process.kill()
        killed_at = time.monotonic()
        wait_until(lambda: asked(killed_at))
        last = time.monotonic()
        wait_until(lambda: asked(last))
        ended.set()
        for thread in threads:
            thread.join()
        # Each asks one after the other, so at most one of each was in flight there.
        in_flight = [system for system in PROMPTS if homes[system] == gone]
        self.assertLessEqual(len(failed), len(in_flight), failed)
        for system, begun, _, status in failed:
            self.assertIn(system, in_flight)
            self.assertLess(begun, killed_at, (system, status))
        for system, home in self.homes().items():
            if homes[system] != gone:
                self.assertEqual(home, homes[system])
            self.assertNotEqual(home, gone)


class Names:
    """A name server: any name has the addresses of the list."""

    def __init__(self):
        self.addresses = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            query, client = self.socket.recvfrom(4096)
            if not query:
                return
            end = query.index(0, 12) + 5  # of the question: the name, its type and class
            is_a = query[end - 4:end - 2] == b"\0\1"
            told = self.addresses if is_a else []
            answer = query[:2] + b"\x81\x80\0\1" + len(told).to_bytes(2, "big") + b"\0\0\0\0" + query[12:end]
            for address in told:
                answer += b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address)
            self.socket.sendto(answer, client)

    def stop(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()


@unittest.skipUnless(HAPROXY, "haproxy is absent")
class NamesTest(unittest.TestCase):
    def start_server(self, address):
        server = base.Server(base.PLAIN, "--host", address, "--port", self.servers_port)
        self.addCleanup(server.stop)
        return server

    def status(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(*(("GET", path) if path != "/v1/completions" else
                                 ("POST", path, json.dumps({"prompt": [1, 2, 3], "max_tokens": 2}))))
            response = connection.getresponse()
            response.read()
            return response.status, response.getheader("X-Replica")
        except OSError:
            return 0, None
        finally:
            connection.close()

    def answering(self):
        """Who answers twenty requests, if all are answered."""
        told = [self.status("/v1/completions") for _ in range(20)]
        return {replica for _, replica in told} if all(status == 200 for status, _ in told) else set()

    def test_servers_behind_a_name(self):
        names, self.port, self.servers_port = Names(), free_port(), free_port()
        self.addCleanup(names.stop)
        config = (ROOT / "deploy/kubernetes/haproxy.cfg").read_text()
        config = config.replace("bind :8080", f"bind 127.0.0.1:{self.port}")
        config = config.replace("parse-resolv-conf", f"nameserver test 127.0.0.1:{names.port}")
        path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "haproxy.cfg"
        path.write_text(config)
        first = self.start_server("127.0.0.2")
        names.addresses = ["127.0.0.2"]
        environment = {**os.environ, "LD_LIBRARY_PATH": library_path(), "SERVERS": f"server.test:{self.servers_port}"}
        haproxy = subprocess.Popen([HAPROXY, "-db", "-q", "-f", path], env=environment)
        self.addCleanup(wait_exit, haproxy)
        self.addCleanup(haproxy.terminate)
        wait_until(lambda: len(self.answering()) == 1, 0.1)
        self.assertEqual(self.status("/proxy-health")[0], 200)
        second = self.start_server("127.0.0.3")
        names.addresses = ["127.0.0.2", "127.0.0.3"]
        wait_until(lambda: len(self.answering()) == 2, 0.1)
        first.process.kill()
        wait_until(lambda: len(self.answering()) == 1, 0.1)
        second.process.kill()
        wait_until(lambda: self.status("/proxy-health")[0] == 503, 0.1)


if __name__ == "__main__":
    unittest.main()
