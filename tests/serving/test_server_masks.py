#!/usr/bin/env python3
"""Constrained answers that take long to constrain, beside a plain stream: the stream's tokens come in time, its text is
the same, and the one who asked for too much is told so."""

import json
import os
import pathlib
import re
import socket
import string
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import sanitizer  # noqa: E402
import server_process as base  # noqa: E402
from waiting import cpu_seconds, wait_until  # noqa: E402

MODEL = base.ROOT / "models/mini/kv6-g2"
STEP_MS = 100
GAP_MAX = sanitizer.seconds(2 * STEP_MS / 1000)  # seconds between two tokens of the neighbour
TOKENS = 24 if "SKV_TEST_ALL" in os.environ else 12
ROUNDS = 4
PLAIN = {"prompt": "The little dog went to the park and", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}

LETTERS = string.ascii_lowercase


def alternatives(form, n=26):
    return "|".join("(" + form(LETTERS[i % 26], i) + ")" for i in range(n))


def regex(text):
    return {"guided_regex": text}


def gbnf(text):
    return {"guided_grammar": text}


def schema(value):
    return {"guided_json": value}


def one_of(values):
    return schema({"anyOf": values})


# Each makes the positions of its automaton many, wide or always new.
ATTACKS = {
    "item 9": regex(alternatives(lambda c, i: f".*{c}.{{{i},{40 + i}}}")),
    "longer": regex(alternatives(lambda c, i: f".*{c}.{{{i},{90 + i}}}", 10)),
    "exact distances": regex(alternatives(lambda c, i: f".*{c}.{{{30 + i}}}", 20)),
    "one letter far back": regex(".*a.{300}"),
    "two letters far back": regex("(.*a.{200})|(.*e.{199})"),
    "nested counts": regex("((([a-z ]{0,9}a?){0,9}e?){0,9}i?){0,9}"),
    "optional pieces": regex("(a?b?c?d?e?f?g?h?){0,40}.{0,60}(x|y)?"),
    "stars in stars": regex("(([a-m]*[h-z ]*)*([a-z]* [a-z]*)*)*"),
    "words of classes": regex(r"(\w{0,30}\W{0,3}\w{1,30}\s?){0,40}"),
    "unicode classes": regex(r"([\u00e0-\u04ff]|\w|[\u3040-\u9fff]| ){0,200}(\w.{0,80}|\W.{1,81})"),
    "wide counts": regex(".{0,3000}a.{0,3000}"),
    "many wide counts": regex("|".join(f"[{c}-z ]{{0,{900 + i}}}" for i, c in enumerate(LETTERS[:20]))),
    "ambiguous rule": gbnf('root ::= s\ns ::= s2 | s2 s\ns2 ::= [a-z ] | [a-z ] s2\n'),
    "ambiguous sums": gbnf('root ::= e\ne ::= [a-z ]+ e [a-z ]+ e | [a-z ]{1,8} | e2 e2\ne2 ::= [a-z ] e | [ -z]\n'),
    "counted rules": gbnf("root ::= (a{1,30} b{0,30} | b{1,31} a{0,29}){1,30}\na ::= [a-m ] | [a-z]\nb ::= [h-z ] | [a-z]\n"),
    "deep stacks": gbnf('root ::= x\nx ::= [a-z ] x [a-z ] | [a-z ] x [a-z .] | [a-z ]\n'),
    "hidden end": gbnf("root ::= p{1,60}\np ::= q{0,12} r?\nq ::= [a-z ]? r?\nr ::= [a-z ]{0,3} [e-t ]\n"),
    "wide anyOf": one_of([{"type": "object", "properties": {f"{c}{i}": {"type": "string", "maxLength": i}
                                                            for i, c in enumerate(LETTERS[k:])}} for k in range(20, 25)]),
    "large enum": schema({"type": "array", "items": {"enum": [f"{c}{i}-{i * i}" for i in range(60) for c in LETTERS]}}),
    "patterns": one_of([{"type": "string", "pattern": f"^.*{c}.{{{i},{40 + i}}}$"} for i, c in enumerate(LETTERS)]),
    "lengths": one_of([{"type": "string", "minLength": i, "maxLength": 100 + i} for i in range(6)]),
    "optional properties": schema({"type": "object", "properties": {f"{c}{d}": {"type": "integer"}
                                                                    for c in LETTERS[:12] for d in LETTERS[:12]}}),
    "nested anyOf": schema({"$defs": {"n": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/n"}},
                                                      {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}}]}},
                            "$ref": "#/$defs/n"}),
}


class Stream(threading.Thread):
    """A request whose answer is read event by event, until it ends or is left."""

    def __init__(self, server, **body):
        super().__init__(daemon=True)
        self.connection, self.process = server.connect(), server.process
        self.body = {**body, "stream": True}
        self.times, self.events, self.status = [], [], 0
        self.start()

    def run(self):
        try:
            self.connection.request("POST", "/v1/completions", json.dumps(self.body))
            with self.connection.getresponse() as response:
                self.status = response.status
                for line in response:
                    self.take(line)
        except (OSError, ValueError, AttributeError):
            pass  # it was left

    def take(self, line):
        event = line.removeprefix(b"data: ")
        if event.startswith(b"{"):
            self.times.append((time.monotonic(), cpu_seconds(self.process)))
            self.events.append(json.loads(event))

    def leave(self):
        sock = self.connection.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.join()
        self.connection.close()

    def text(self):
        return "".join(e["choices"][0]["text"] for e in self.events if e.get("choices"))

    def worst_gap(self):
        """Seconds between two tokens, in which the server did not work all the time if others had the processor."""
        return max(min(b[0] - a[0], b[1] - a[1]) for a, b in zip(self.times, self.times[1:]))


class MasksTest(base.ServerTest):
    model = MODEL
    words = ["--step-ms", STEP_MS, "--max-running", 32]

    def attack(self, body, n_requests=1):
        """Requests that are under way."""
        body = {"prompt": "Once", "max_tokens": 300, "temperature": 1, "n": 16, **body}
        attackers = [Stream(self.server, seed=i, **body) for i in range(n_requests)]
        wait_until(lambda: all(a.times or not a.is_alive() for a in attackers) or self.server.metrics()["requests_running"])
        return attackers

    def plain(self):
        stream = Stream(self.server, **PLAIN)
        stream.join()
        stream.connection.close()
        self.assertEqual(stream.events[-1]["choices"][0]["finish_reason"], "length", stream.events[-1])
        self.assertGreaterEqual(len(stream.times), TOKENS)
        return stream

    def check_neighbour(self, body, n_requests=1):
        """Two rounds in time are enough: a machine that stands still is not the server's fault."""
        gaps = []
        for _ in range(ROUNDS):
            attackers = self.attack(body, n_requests)
            stream = self.plain()
            for attacker in attackers:
                attacker.leave()
                self.assertIn(attacker.status, (0, 200), attacker.events)
            self.server.wait_for(lambda m: m["requests_running"] == 0 and m["requests_waiting"] == 0)
            self.assertEqual(stream.text(), self.alone)
            gaps.append(stream.worst_gap())
            if sum(gap <= GAP_MAX for gap in gaps) == 2:
                return max(gaps)
        self.fail(f"worst gaps: {gaps}, at most {GAP_MAX} s")

    def test_neighbours_are_in_time(self):
        self.alone = self.plain().text()
        for name, body in ATTACKS.items():
            with self.subTest(name):
                gap = self.check_neighbour(body)
                if os.environ.get("SKV_TELL"):
                    print(f"{name:22} {gap * 1e3:6.1f} ms", flush=True)

    def test_many_attackers(self):
        """Eight requests with sixteen answers each; the neighbour waits for a place among the running ones, not for
        their masks."""
        self.alone = self.plain().text()
        for name in ("item 9", "patterns"):
            with self.subTest(name):
                gap = self.check_neighbour({**ATTACKS[name], "n": 3}, 8)
                if os.environ.get("SKV_TELL"):
                    print(f"8 x {name:18} {gap * 1e3:6.1f} ms", flush=True)


    def test_ordinary_grammars_are_not_refused(self):
        """Masks that are quick are never refused, however many there are."""
        answer = self.server.complete(prompt="Once", max_tokens=30, n=16, temperature=1, guided_regex="[a-z ]{60}")
        self.assertEqual(len(answer["choices"]), 16)


class MemoryTest(base.ServerTest):
    model = MODEL
    words = ["--memory", 96, "--max-queue", 100]

    def resident(self, field):
        text = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.M)[1]) << 10

    def test_large_grammars_share_the_memory(self):
        """Sixty of them, of which each would take 20 MB: some run, some wait, some are refused, and neither the account
        nor the process goes beyond its limit."""
        stream = Stream(self.server, **PLAIN)
        stream.join()
        stream.connection.close()
        before, alone = self.resident("VmRSS"), stream.text()
        attackers = [Stream(self.server, prompt="Once", max_tokens=40, temperature=1, seed=i,
                            guided_regex=f".{{0,{38000 - i}}}") for i in range(60)]
        while any(a.is_alive() for a in attackers):
            stream = Stream(self.server, **PLAIN)
            stream.join()
            stream.connection.close()
            self.assertEqual((stream.status, stream.text()), (200, alone))
        for attacker in attackers:
            attacker.leave()
        statuses = [a.status for a in attackers]
        self.assertLessEqual(set(statuses), {200, 503})
        self.assertIn(200, statuses)
        metrics = self.server.metrics()
        self.assertLessEqual(metrics["memory_peak_bytes"], metrics["memory_limit_bytes"] + (2 << 20))
        self.assertEqual(metrics["grammar_memory_bytes"], 0)
        most = sanitizer.resident(1.1 * metrics["memory_limit_bytes"])
        self.assertLessEqual(self.resident("VmHWM") - before, most)


class LimitTest(base.ServerTest):
    model = MODEL
    words = ["--mask-seconds", 0.0005]

    def test_too_long_a_mask_is_an_error_of_its_request(self):
        body = {"prompt": "Once", "max_tokens": 50, **ATTACKS["item 9"]}
        alone = self.server.complete(**PLAIN)["choices"][0]["text"]
        self.refuses(400, "/v1/completions", body, "guided_regex", "0.0005 s")
        self.refuses(400, "/v1/completions", {**body, "n": 4}, "guided_regex", "0.0005 s")
        stream = Stream(self.server, **body)
        stream.join()
        stream.connection.close()
        self.assertIn("0.0005 s", stream.events[-1]["error"]["message"])
        self.assertEqual(self.server.complete(**PLAIN)["choices"][0]["text"], alone)
        metrics = self.server.metrics()
        self.assertEqual(metrics["masks_refused_total"], 3)
        self.assertEqual(metrics["grammar_memory_bytes"], 0)
        self.assertEqual(metrics["http_responses_total{class=\"5xx\"}"], 0)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        sys.exit(77)
    unittest.main()
