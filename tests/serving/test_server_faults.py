#!/usr/bin/env python3
"""tools/checks/check_faults.py at small sizes: clients who leave, slow ones, mutated requests, hostile
grammars, kill -9 while blocks are written, SIGTERM under load. docs/explanation/testing.md has the command
for the full sizes."""

import os
import socket
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402
from waiting import PATIENCE  # noqa: E402

ALL = "SKV_TEST_ALL" in os.environ
SMALL = (
    ("disconnect", "--clients", 40, "--at-once", 20),
    ("slow", "--slow", 9, "--header-timeout", 1, "--body-timeout", 1, "--stall-timeout", 1),
    ("fuzz", "--fuzz-seconds", 2 if ALL else 1),
    # What others run decides how late a token is: only a stream that was held for 200 naps of 10 ms fails here.
    ("hostile", "--seconds", 3 if ALL else 1, "--gap-ms", 1000),
    ("kill", "--kills", 2),
    ("term", "--terms", 2),
)


SECOND = base.STORIES.parent.parent / "tinystories-656k"


@unittest.skipUnless(base.STORIES.exists(), f"{base.STORIES} is absent")
class FaultsTest(unittest.TestCase):
    def test_small(self):
        self.small()

    @unittest.skipUnless(SECOND.exists(), f"{SECOND} is absent")
    def test_several_models_and_adapters(self):
        """Two models of which one is loaded at a time, and two adapters: each client chooses at random."""
        self.small("--mix", SECOND)

    def small(self, *more):
        build = os.environ.get("SKV_BUILD", base.ROOT / "build")
        for section, *words in SMALL:
            with self.subTest(section=section):
                command = [sys.executable, "-B", base.ROOT / "tools/checks/check_faults.py", "--build", build]
                command += ["--only", section, "--kv-tokens", 2048, *words, *more]
                result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class StatusTest(base.ServerTest):
    words = base.LONG

    def test_who_left_is_no_error_of_the_server(self):
        """A client that shuts its side down has left; 5xx are for what an operator has to look at."""
        body = b'{"prompt": [1, 2], "max_tokens": 60000, "ignore_eos": true}'
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            self.server.wait_for(lambda m: m["requests_running"] == 1)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(PATIENCE)
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 499 "))
        self.assertEqual(self.server.metrics()['http_responses_total{class="5xx"}'], 0)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        sys.exit(77)
    unittest.main()
