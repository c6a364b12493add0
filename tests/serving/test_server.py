#!/usr/bin/env python3
"""`swiftkv serve` from outside, over HTTP: streams, usage, errors, limits, keys, signals.

The models are those of tests/data/models, which have no tokenizer: prompts are token ids. What
needs text uses ../shared/assets and says so where it is absent.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import (  # noqa: E402
    CHATML, LONG, MODELS, PLAIN, PROGRAM, ROOT, STORIES, SWIFTKV, Server, ServerTest, busy_pages, prompt_of,
)
from waiting import PATIENCE, cpu_seconds, wait_exit, wait_until  # noqa: E402

CANCEL_SECONDS = 0.25


class CompletionTest(ServerTest):
    words = ("--ctx", 512)

    def test_health_and_models(self):
        self.assertEqual(self.server.ask("GET", "/health")[0], 200)
        status, _, models = self.server.ask("GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(models["data"][0]["id"], PLAIN.name)
        self.assertEqual(models["data"][0]["root"], PLAIN.name)
        self.assertEqual(models["data"][0]["max_model_len"], 512)

    def test_what_runs_is_told(self):
        """At the start and of a running server: the same, and what `info` and `doctor` say."""
        told = self.server.ask("GET", "/v1/models")[2]["data"][0]
        facts, start = told["swiftkv"], "".join(self.server.lines)
        info = json.loads(subprocess.run([PROGRAM, "info", PLAIN, "--json"], capture_output=True, check=True).stdout)
        doctor = subprocess.run([PROGRAM, "doctor"], capture_output=True, check=True, text=True).stdout
        self.assertEqual(told["meta"]["n_params"], info["parameters"])
        self.assertRegex(doctor, rf"kernels +{facts['kernels']} is used")
        self.assertEqual((facts["threads"], facts["kv_tokens"]), (1, 4 * 512))
        self.assertGreaterEqual(facts["kv_bytes"], facts["kv_tokens"] * info["kv_bytes_per_token"])
        mib = 1 << 20
        for part in (f"{facts['weights']} weights, {facts['weight_bytes'] / mib:.1f} MiB", "; 1 thread, ",
                     f"{facts['kernels']} kernels", "contexts of 512 tokens", f"{facts['kv']} KV memory of 2048 tokens",
                     f"{facts['kv_bytes'] / mib:.1f} MiB", f"names in the API: {PLAIN.name}"):
            self.assertIn(part, start)

    def test_same_tokens_as_generate(self):
        ids = prompt_of(50)
        answer = self.server.complete(prompt=ids, max_tokens=12, logprobs=0, ignore_eos=True)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(ids, file)
            file.flush()
            command = [PROGRAM, "generate", PLAIN, "--ids-file", file.name, "-n", "12", "--json"]
            command += ["--ignore-eos", "--ctx", "512"]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
        want = [f"token_id:{i}" for i in json.loads(result.stdout)["ids"]]
        self.assertEqual(answer["choices"][0]["logprobs"]["tokens"], want)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        usage = answer["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (50, 12))
        self.assertEqual(answer["timings"]["predicted_n"], 12)

    def test_batches_and_answers(self):
        prompts = [prompt_of(20, i) for i in range(5)]
        body = {"max_tokens": 4, "n": 2, "logprobs": 1, "seed": 3, "ignore_eos": True}
        answer = self.server.complete(prompt=prompts, temperature=1, **body)
        self.assertEqual([c["index"] for c in answer["choices"]], list(range(10)))
        for i, prompt in enumerate(prompts):
            alone = self.server.complete(prompt=prompt, temperature=1, **body)
            for j in range(2):
                self.assertEqual(
                    alone["choices"][j]["logprobs"]["tokens"],
                    answer["choices"][2 * i + j]["logprobs"]["tokens"],
                )
        self.assertEqual(answer["usage"]["completion_tokens"], 40)

    def test_many_prompts_in_one_request(self):
        prompts = [prompt_of(10, i) for i in range(100)]  # more than may wait
        answer = self.server.complete(prompt=prompts, max_tokens=1, ignore_eos=True)
        self.assertEqual(len(answer["choices"]), 100)

    def test_echo_scores_the_prompt(self):
        ids = prompt_of(40)
        answer = self.server.complete(prompt=[ids], max_tokens=1, echo=True, logprobs=1, seed=1234)
        got = answer["choices"][0]["logprobs"]
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            self.assertEqual(len(got[key]), 41)
        self.assertIsNone(got["token_logprobs"][0])
        self.assertIsNone(got["top_logprobs"][0])
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(ids, file)
            file.flush()
            command = [PROGRAM, "score", PLAIN, "--ids-file", file.name, "--json"]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
        want = json.loads(result.stdout)
        for t in range(1, 40):
            self.assertAlmostEqual(got["token_logprobs"][t], want["logprobs"][t], places=4)
            best = max(got["top_logprobs"][t].values())  # equal as numbers where it is greedy
            greedy = want["argmax"][t - 1] == ids[t]
            self.assertEqual(got["token_logprobs"][t] == best, greedy)
        only_prompt = self.server.complete(prompt=ids, max_tokens=0, echo=True, logprobs=1)
        self.assertEqual(len(only_prompt["choices"][0]["logprobs"]["tokens"]), 40)

    def test_stream(self):
        body = {"prompt": prompt_of(30), "max_tokens": 6, "temperature": 0, "ignore_eos": True}
        whole = self.server.complete(logprobs=2, **body)["choices"][0]
        chunks = self.server.chunks(
            "/v1/completions", logprobs=2, stream_options={"include_usage": True}, **body
        )
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], 6)
        tokens = []
        for chunk in chunks[:-1]:
            self.assertIsNone(chunk["usage"])
            self.assertEqual(chunk["id"], chunks[0]["id"])
            tokens += chunk["choices"][0]["logprobs"]["tokens"]
        self.assertEqual(tokens, whole["logprobs"]["tokens"])
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")

    def test_prefix_is_cached(self):
        ids = prompt_of(300, 77)
        first = self.server.complete(prompt=ids, max_tokens=3, logprobs=1, ignore_eos=True)
        again = self.server.complete(prompt=ids, max_tokens=3, logprobs=1, ignore_eos=True)
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in (first, again)]
        self.assertEqual(cached, [0, 256])
        tokens = [a["choices"][0]["logprobs"]["tokens"] for a in (first, again)]
        self.assertEqual(tokens[0], tokens[1])

    def test_sampling_is_repeatable(self):
        body = {"prompt": prompt_of(9), "max_tokens": 20, "temperature": 1.5, "logprobs": 0}
        body |= {"ignore_eos": True, "top_k": 50, "min_p": 0.01}
        texts = [
            self.server.complete(seed=s, **body)["choices"][0]["logprobs"]["tokens"]
            for s in (1, 1, 2)
        ]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_logit_bias_and_stop_ids(self):
        body = {"prompt": prompt_of(9), "max_tokens": 5, "logprobs": 0, "ignore_eos": True}
        answer = self.server.complete(logit_bias={"7": 100}, **body)
        self.assertEqual(answer["choices"][0]["logprobs"]["tokens"], ["token_id:7"] * 5)
        answer = self.server.complete(logit_bias={"7": 100}, stop_token_ids=[7], **body)
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        self.assertEqual(answer["usage"]["completion_tokens"], 0)

    def test_an_answer_cannot_be_longer_and_shorter(self):
        """min_tokens above max_tokens, given or not, on the endpoints that need no text."""
        for n_min, n_max, body in (
            (9, 4, {"max_tokens": 4}), (17, 16, {}), (502, 501, {"max_tokens": 501}), (1, 0, {"max_tokens": 0}),
        ):  # fmt: skip
            with self.subTest(n_min=n_min, n_max=n_max):
                body = {"prompt": prompt_of(10), "min_tokens": n_min, **body}
                error = self.refuses(400, "/v1/completions", body, str(n_min), str(n_max))
                self.assertEqual(error["param"], "min_tokens")
        answer = self.server.complete(prompt=prompt_of(10), min_tokens=16)
        self.assertEqual(answer["usage"]["completion_tokens"], 16)

    def test_bad_requests_are_refused_by_name(self):
        ids = prompt_of(10)
        for field, value, *parts in [
            ("temperature", -1, "-1"),
            ("temperature", "hot"),
            ("top_p", -0.1, "-0.1"),
            ("top_p", 1.5, "1.5"),
            ("min_p", 1, "1"),
            ("top_k", -2, "-2"),
            ("top_k", 1.5),
            ("n", 0),
            ("n", 1000000, "1000000"),
            ("best_of", 2, "2"),
            ("max_tokens", -5, "-5"),
            ("logprobs", 21, "21"),
            ("presence_penalty", 3),
            ("repetition_penalty", 0),
            ("seed", "x"),
            ("stop", [""]),
            ("stop", ["x"] * 17),
            ("stop", "x" * 300),
            ("stop_token_ids", [-1]),
            ("logit_bias", {"x": 1}),
            ("logit_bias", {"1": 101}),
            ("suffix", "x"),
            ("swiftkv", "fast", "fast"),
            ("swiftkv", "teacher"),
            ("response_format", {"type": "json_object"}),
            ("stream_options", 3),
            ("echo", 1),
            ("model", 5),
        ]:
            with self.subTest(field=field, value=value):
                body = {"prompt": ids, field: value}
                error = self.refuses(400, "/v1/completions", body, field, *parts)
                self.assertEqual(error["param"], field)
                self.assertEqual(error["type"], "invalid_request_error")
        for prompt in (None, [], "text", [1, "x"], [-1], [10**9], 3, [[]], {"a": 1}):
            with self.subTest(prompt=prompt):
                self.refuses(400, "/v1/completions", {"prompt": prompt})
        error = self.refuses(404, "/v1/completions", {"prompt": ids, "model": "gpt-9"}, "gpt-9", f'has "{PLAIN.name}"',
                             "--name '*'")
        self.assertEqual(error["code"], "model_not_found")

    def test_unknown_fields_are_ignored(self):
        self.server.complete(prompt=[1, 2], max_tokens=1, user="me", store=True, nonsense={"a": 1})

    def test_length_is_never_cut_silently(self):
        for n in (600, 512):
            body = {"prompt": [1] * n, "max_tokens": 1}
            error = self.refuses(400, "/v1/completions", body, "512", str(n))
            self.assertEqual(error["code"], "context_length_exceeded")
            self.assertEqual([error[key] for key in ("n_prompt_tokens", "n_ctx", "prompt_is_cut")], [n, 512, False])
        answer = self.server.complete(prompt=[1] * 500, max_tokens=20, ignore_eos=True)
        self.assertEqual(answer["usage"]["completion_tokens"], 12)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        answer = self.server.complete(prompt=[1] * 508, ignore_eos=True)
        self.assertEqual(answer["usage"]["completion_tokens"], 4)  # 16 where there is room

    def test_malformed_bodies(self):
        for body in (
            "", "{", "[]", "null", '{"prompt":[1,]}', '{"a":1,"a":2}', '{"prompt":[1e999]}',
            '{"prompt":[1]} x', "[" * 100000, '{"a":' * 70 + "1" + "}" * 70, "\xff\xfe",
            '{"prompt":"\\ud800"}', '{"prompt":[01]}',
        ):  # fmt: skip
            with self.subTest(body=body[:20]):
                data = body.encode("latin-1")
                status, _, answer = self.server.ask("POST", "/v1/completions", data)
                self.assertEqual(status, 400, answer)
        self.server.complete(prompt=[1], max_tokens=1)

    def test_paths_and_methods(self):
        self.refuses(404, "/v1/nothing", {})
        self.refuses(405, "/v1/completions", None, method="GET")
        self.refuses(405, "/health", {}, "POST")

    def test_text_needs_a_tokenizer(self):
        self.refuses(400, "/v1/completions", {"prompt": "x"}, "tokenizer")
        self.refuses(400, "/v1/chat/completions", {"messages": [{"role": "user"}]}, "has no tokenizer")
        self.refuses(400, "/tokenize", {"prompt": "x"}, "tokenizer")

    def test_metrics(self):
        self.server.complete(prompt=prompt_of(10), max_tokens=3, ignore_eos=True)
        metrics = self.server.metrics()
        self.assertGreaterEqual(metrics["generation_tokens_total"], 3)
        self.assertGreaterEqual(metrics['requests_finished_total{reason="length"}'], 1)
        self.assertEqual(metrics["ready"], 1)
        self.assertGreater(metrics["kv_pages"], 0)
        count = metrics["time_to_first_token_seconds_count"]
        self.assertEqual(metrics['time_to_first_token_seconds_bucket{le="+Inf"}'], count)
        _, _, text = self.server.ask("GET", "/metrics")
        for name in set(re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?(?:\{| )", text, re.M)):
            self.assertRegex(name, r"^swiftkv_[a-z0-9_]+$")

    def test_every_metric_is_explained(self):
        """docs/guides/serve.md has a row for each, and none for others."""
        _, _, text = self.server.ask("GET", "/metrics")
        names = set(re.findall(r"^# TYPE swiftkv_(\w+) ", text, re.M))
        page = (ROOT / "docs/guides/serve.md").read_text().split("## Metrics")[1]
        rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
        told = [name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row)]
        self.assertEqual(sorted(told), sorted(names))

    def test_connection_is_kept(self):
        connection = self.server.connect()
        for _ in range(3):
            body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 1})
            connection.request("POST", "/v1/completions", body)
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.status, 200)
        connection.close()

    def test_too_large_a_header(self):
        status, _, _ = self.server.ask("GET", "/health", None, {"X-Large": "x" * 40000})
        self.assertEqual(status, 431)
        many = {f"X-{i}": "y" for i in range(150)}
        self.assertEqual(self.server.ask("GET", "/health", None, many)[0], 431)

    def test_a_body_has_one_length(self):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
        for lengths in (b"Content-Length: 2\r\nContent-Length: 3\r\n",
                        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"):  # fmt: skip
            with socket.create_connection(("127.0.0.1", self.server.port), PATIENCE) as s:
                s.sendall(head + lengths + b"\r\n2\r\n{}\r\n0\r\n\r\n")
                got = b""
                while piece := s.recv(4096):  # until the connection is closed: nothing behind it counts
                    got += piece
            self.assertTrue(got.startswith(b"HTTP/1.1 400 "), got)
            self.assertIn(b"Transfer-Encoding", got)
            self.assertEqual(got.count(b"HTTP/1.1 "), 1)

    def test_too_large_a_body_is_refused_before_it_is_sent(self):
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            s.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"
            )
            self.assertIn(b" 413 ", s.recv(200))


class SwiftkvTest(ServerTest):
    model, words = SWIFTKV, ("--ctx", 512)

    def test_method_of_a_request(self):
        ids = prompt_of(100)
        tokens = {}
        for method in ("auto", "full", "teacher"):
            answer = self.server.complete(
                prompt=ids, max_tokens=8, swiftkv=method, logprobs=0, ignore_eos=True
            )
            tokens[method] = answer["choices"][0]["logprobs"]["tokens"]
        self.assertEqual(tokens["auto"], tokens["full"])
        self.assertNotEqual(tokens["auto"], tokens["teacher"])
        metrics = self.server.metrics()
        self.assertGreater(metrics['prefill_tokens_total{route="swiftkv"}'], 0)
        self.assertGreater(metrics['prefill_tokens_total{route="full"}'], 0)

    def test_methods_side_by_side(self):
        got = {}

        def ask(i, method):
            answer = self.server.complete(
                prompt=prompt_of(60, i), max_tokens=20, swiftkv=method, logprobs=0, ignore_eos=True
            )
            got.setdefault((i, method), []).append(answer["choices"][0]["logprobs"]["tokens"])

        work = [(i, m) for i in range(4) for m in ("auto", "full", "teacher")]
        for together in (False, True):
            threads = [threading.Thread(target=ask, args=w) for w in work]
            for t in threads:
                t.start()
                if not together:
                    t.join()
            for t in threads:
                t.join()
        for key, answers in got.items():
            self.assertEqual(answers[0], answers[1], key)


class HybridTest(ServerTest):
    """Layers that keep a state: an answer has one, and so have places where prompts are continued."""

    model, words = MODELS / "qwen3-5", ("--ctx", 256, "--max-running", 3, "--speculate", "text:3")

    def setUp(self):
        golden = json.loads((self.model / "golden.json").read_text())
        self.cases = [(case["ids"], [f"token_id:{i}" for i in case["greedy"]]) for case in golden["cases"]]

    def answers(self, ids, **more):
        answer = self.server.complete(prompt=ids, max_tokens=12, logprobs=0, ignore_eos=True, **more)
        return [choice["logprobs"]["tokens"] for choice in answer["choices"]]

    def test_a_prompt_goes_on(self):
        """The next turn begins where the answer ended, an edit where the prompts part when that was seen once."""
        first = prompt_of(150, 3)
        texts = [first, first, first + prompt_of(60, 4), first[:100] + prompt_of(40, 5), first[:100] + prompt_of(40, 6)]
        answers = [self.server.complete(prompt=ids, max_tokens=12, ignore_eos=True) for ids in texts]
        cached = [a["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0) for a in answers]
        self.assertEqual(cached, [0, 128, 128, 0, 64])
        self.assertEqual(answers[0]["choices"], answers[1]["choices"])

    def test_more_answers_than_states(self):
        """Each is the oracle's, whatever is answered beside it and whose state it gets."""
        got = []

        def ask(ids, want):
            got.append((self.answers(ids), [want]))

        threads = [threading.Thread(target=ask, args=case) for case in self.cases * 4]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(got), 4 * len(self.cases))
        for answer, want in got:
            self.assertEqual(answer, want)

    def test_answers_that_share_a_prompt(self):
        ids, want = self.cases[-1]
        self.assertEqual(self.answers(ids, n=5), [want] * 5)
        self.assertEqual(self.answers(ids + ids[:3])[0], self.answers(ids + ids[:3])[0])

    def test_what_is_told_and_refused(self):
        self.assertRegex("".join(self.server.lines), r"states of 3 answers at once and of 6 beginnings .*, 0\.\d MiB each")
        body = {"prompt": self.cases[0][0], "max_tokens": 2}
        self.refuses(400, "/v1/completions", {**body, "speculate": "text:4"}, "states have room for 3")
        answers = [self.server.complete(**{**body, "max_tokens": 20, "ignore_eos": True, "speculate": how})["choices"]
                   for how in ("none", "text:3")]
        self.assertEqual(answers[0], answers[1])
        self.server.complete(**{**body, "prompt": prompt_of(90, 1), "evict": "snapkv:20,4"})


class LoadTest(ServerTest):
    """Requests that would take very long, and what can be done about them."""

    words = (*LONG, "--max-running", 1, "--max-queue", 2, "--ping-interval", 0.2)

    def open_stream(self, n_prompt=10, **body):
        connection = self.server.connect()
        body = {"prompt": prompt_of(n_prompt, 5), "stream": True, "ignore_eos": True, **body}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        return connection, response

    def cancel(self, connection, response):
        # Both hold the socket.
        response.close()
        connection.close()

    def frees_pages_in_every_phase(self):
        """Seconds by phase that it took the server to see that its client had left, and to end the request:
        of its own processor time, as a busy machine makes everything late; on a quiet one, of the clock."""
        strict = "SKV_TEST_STRICT" in os.environ
        now = time.monotonic if strict else lambda: cpu_seconds(self.server.process)
        idle = self.server.metrics()
        self.assertEqual(busy_pages(idle), 0)
        phases = {}

        def leave(phase, stream, condition):
            begun = now()
            self.cancel(*stream)
            self.server.wait_for(condition)
            phases[phase] = now() - begun

        # Queue: behind somebody who decodes.
        first = self.open_stream(max_tokens=30000)
        first[1].readline()
        second = self.open_stream(max_tokens=10)
        self.server.wait_for(lambda m: m["queued_prompt_tokens"] == 10)
        leave("queue", second, lambda m: m["queued_prompt_tokens"] == 0)
        leave("decode", first, lambda m: busy_pages(m) == 0)
        third = self.open_stream(n_prompt=60000, max_tokens=10)
        self.server.wait_for(lambda m: busy_pages(m) > 0)
        leave("prefill", third, lambda m: busy_pages(m) == 0)
        after = self.server.metrics()
        for phase in phases:
            name = f'requests_cancelled_total{{phase="{phase}"}}'
            self.assertEqual(after[name] - idle[name], 1, phases)
        return phases

    def test_disconnect_frees_pages_in_every_phase(self):
        # What else happens on the machine only adds, and is not there every time.
        for _ in range(5):
            phases = self.frees_pages_in_every_phase()
            if max(phases.values()) < CANCEL_SECONDS:
                break
        if "SKV_TEST_STRICT" in os.environ:
            print({phase: f"{1000 * seconds:.0f} ms" for phase, seconds in phases.items()})
        self.assertLess(max(phases.values()), CANCEL_SECONDS, phases)

    def test_whole_answers_are_cancelled_too(self):
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as s:
            body = json.dumps({"prompt": [1, 2], "max_tokens": 30000, "ignore_eos": True})
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            s.sendall((head + body).encode())
            self.server.wait_for(lambda m: m["requests_running"] == 1)
        self.server.wait_for(lambda m: m["requests_running"] == 0)

    def test_full_queue(self):
        streams = [self.open_stream(max_tokens=30000)]
        streams[0][1].readline()
        streams += [self.open_stream(max_tokens=1) for _ in range(2)]
        status, headers, answer = self.server.ask("POST", "/v1/completions", {"prompt": [1]})
        self.assertEqual(status, 429, answer)
        self.assertEqual(answer["error"]["type"], "rate_limit_error")
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(self.server.ask("GET", "/health")[0], 200)
        for stream in streams:
            self.cancel(*stream)
        self.server.wait_for(lambda m: m["requests_running"] + m["requests_waiting"] == 0)

    def test_signs_of_life(self):
        first = self.open_stream(max_tokens=30000)
        first[1].readline()
        connection, response = self.open_stream(max_tokens=1)
        self.assertTrue(response.readline().startswith(b": "))
        self.cancel(connection, response)
        self.cancel(*first)
        self.server.wait_for(lambda m: m["requests_running"] + m["requests_waiting"] == 0)
        # And while a prompt is read.
        connection, response = self.open_stream(n_prompt=60000, max_tokens=1)
        self.assertTrue(response.readline().startswith(b": "))
        self.cancel(connection, response)
        self.server.wait_for(lambda m: busy_pages(m) == 0)

    def test_progress(self):
        connection, response = self.open_stream(
            n_prompt=60000, max_tokens=1, return_progress=True
        )
        event = response.readline()
        while b"prompt_progress" not in event:
            self.assertTrue(event)
            event = response.readline()
        progress = json.loads(event.removeprefix(b"data: "))["prompt_progress"]
        self.assertEqual(progress["total"], 60000)
        self.assertGreater(progress["processed"], 0)
        self.cancel(connection, response)
        self.server.wait_for(lambda m: busy_pages(m) == 0)


class LifeTest(unittest.TestCase):
    """Servers that end."""

    def start(self, *words):
        server = Server(PLAIN, *words)
        self.addCleanup(server.stop)
        return server

    def test_term_finishes_what_is_in_flight(self):
        server = self.start("--ctx", 4096, "--shutdown-timeout", PATIENCE)
        connection = server.connect()
        body = {"prompt": [1, 2, 3], "max_tokens": 3000, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()  # it runs
        server.process.send_signal(signal.SIGTERM)

        def is_draining():
            try:
                return server.ask("GET", "/health")[0] == 503
            except OSError:
                return True  # it was quick

        wait_until(is_draining)
        events = response.read().decode().strip().split("\n\n")
        connection.close()
        self.assertEqual(events[-1], "data: [DONE]")
        usage = json.loads(events[-2].removeprefix("data: "))["usage"]
        self.assertEqual(usage["completion_tokens"], 3000)
        self.assertEqual(wait_exit(server.process), 0)

    def test_draining_refuses_and_a_second_term_stops(self):
        server = self.start(*LONG, "--shutdown-timeout", 3600)
        connection = server.connect()
        body = {"prompt": [1], "max_tokens": 60000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.ask("GET", "/health")[0] == 503)
        status, headers, answer = server.ask("POST", "/v1/completions", {"prompt": [1]})
        self.assertEqual(status, 503, answer)
        self.assertTrue(headers["Retry-After"])
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(wait_exit(server.process), 0)
        connection.close()

    def test_watchdog(self):
        """Steps that take longer than the watchdog waits: /health fails and the log has the threads' stacks;
        systemd gets signs of life; the server comes back."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.bind(f"{folder}/notify")
            systemd.settimeout(PATIENCE)
            with mock.patch.dict(os.environ, {"NOTIFY_SOCKET": f"{folder}/notify"}):
                server = self.start(*LONG, "--watchdog", 0.001, "--step-ms", 1000)
            self.assertEqual(systemd.recv(100), b"WATCHDOG=1")
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            connection = server.connect()
            body = {"prompt": prompt_of(60000), "max_tokens": 1000, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body))
            response = connection.getresponse()
            wait_until(lambda: server.ask("GET", "/health")[::2] == (503, {"status": "stalled"}))
            server.wait_line("swiftkv: stalled: there is work")
            if os.environ.get("SKV_SYSTEM") == "portable":
                server.wait_line("swiftkv: this system does not tell")
            else:
                server.wait_line("swiftkv: thread ")
                server.wait_line("swiftkv(+0x")
            response.close()
            connection.close()
            wait_until(lambda: server.ask("GET", "/health")[0] == 200)
            server.wait_line("swiftkv: no longer stalled")

    def test_shutdown_timeout(self):
        server = self.start(*LONG, "--shutdown-timeout", 0.5)
        connection = server.connect()
        body = {"prompt": [1], "max_tokens": 60000, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        server.wait_for(lambda m: m["requests_running"] == 1)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(wait_exit(server.process), 0)
        connection.close()

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("# two of them\nalpha-key\n  beta-key  # with a remark\n")
            file.flush()
            server = self.start("--api-key-file", file.name, "--ctx", 512)

            def status(path="/v1/models", **headers):
                return server.ask("GET", path, None, headers)[0]

            self.assertEqual((status("/health"), status("/")), (200, 200))
            for path in ("/v1/models", "/metrics", "/v1/nothing", "/favicon.ico"):
                got, _, answer = server.ask("GET", path)
                self.assertEqual(got, 401)
                self.assertEqual(answer["error"]["type"], "authentication_error")
            self.assertEqual(status(Authorization="Bearer alpha-key"), 200)
            self.assertEqual(status(Authorization="Bearer beta-key"), 200)
            self.assertEqual(status(**{"X-Api-Key": "beta-key"}), 200)
            self.assertEqual(status("/v1/nothing", Authorization="Bearer alpha-key"), 404)
            self.assertEqual(status(Authorization="bearer  beta-key"), 200)  # schemes have no case
            for path in ("/health%00", "/%68ealth", "/health/", "/health/../v1/models", "//"):
                self.assertEqual(status(path), 401)
            for key in ("alpha-ke", "alpha-keyy", "", "#", "x" * 1000):
                self.assertEqual(status(Authorization="Bearer " + key), 401)
            # One key's prompts are not another's.
            cached = []
            for key in ("alpha-key", "alpha-key", "beta-key"):
                body = {"prompt": prompt_of(200), "max_tokens": 1}
                headers = {"Authorization": "Bearer " + key}
                _, _, answer = server.ask("POST", "/v1/completions", body, headers)
                cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(cached, [0, 192, 0])
            Path(file.name).write_text("gamma-key\n")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: status(Authorization="Bearer gamma-key") == 200)
            self.assertEqual(status(Authorization="Bearer alpha-key"), 401)
            Path(file.name).write_text("")
            server.process.send_signal(signal.SIGHUP)
            server.wait_line("no key")
            self.assertEqual(status(Authorization="Bearer gamma-key"), 200)

    def refuses_to_start(self, *words, model=PLAIN, status=1):
        command = [PROGRAM, "serve", model, *map(str, words)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        return result.stderr

    def test_refuses_to_listen_elsewhere_without_keys(self):
        for host in ("0.0.0.0", "::"):
            self.assertIn("--api-key-file", self.refuses_to_start("--host", host, "--port", 0))

    def test_refuses_a_port_in_use(self):
        server = self.start()
        self.assertIn(str(server.port), self.refuses_to_start("--port", server.port))

    def test_refuses_a_file_without_keys(self):
        with tempfile.NamedTemporaryFile("w") as file:
            self.assertIn("no key", self.refuses_to_start("--api-key-file", file.name))
        self.assertIn("/nowhere", self.refuses_to_start("--api-key-file", "/nowhere"))

    def test_refuses_methods_without_known_prompts_before_it_listens(self):
        self.assertIn("auxiliary", self.refuses_to_start(model="preset:tiny-128k+lp-0.5"))
        self.assertIn("prune random", self.refuses_to_start("--prune", "random:0.5", status=2))

    def test_slow_clients_are_cut_off(self):
        """They send a byte now and then, so that they are never idle."""
        server = self.start("--header-timeout", 0.5, "--body-timeout", 0.5)
        slow = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(20)]
        for i, s in enumerate(slow):
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
            s.sendall(head + b"X-Slow: " if i % 2 else head + b"\r\n{")
            s.setblocking(False)

        def is_open(s):
            try:
                s.send(b" ")
                return s.recv(4096) != b""
            except BlockingIOError:
                return True
            except OSError:
                return False

        wait_until(lambda: not any([is_open(s) for s in slow]), 0.05)
        for s in slow:
            s.close()
        # Who is quick is served. On a busy machine it may take some tries to be quick.
        cut = wait_until(lambda: self.answered(server.metrics))["http_connections_cut_total"]
        self.assertGreaterEqual(cut, 20)

    @staticmethod
    def answered(ask):
        try:
            return ask()
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def test_too_many_connections(self):
        server = self.start("--connections", 8, "--connections-per-ip", 6)
        many = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(12)]
        served = 0
        for s in many:
            try:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                served += s.recv(4096).startswith(b"HTTP/1.1 200 ")
            except OSError:
                pass
        self.assertEqual(served, 6)
        for s in many:
            s.close()
        # Places are free once the server has seen that the clients left; until then it says 503.
        wait_until(lambda: (self.answered(lambda: server.ask("GET", "/health")) or [0])[0] == 200)

    def test_a_reader_who_does_not_read(self):
        server = self.start(*LONG, "--stall-timeout", 0.5)
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.port))
        body = json.dumps(
            {"prompt": [1], "max_tokens": 60000, "ignore_eos": True, "stream": True, "logprobs": 5}
        )
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        server.wait_for(lambda m: m["requests_running"] == 1)
        server.wait_for(lambda m: m["requests_running"] == 0)
        s.close()


@unittest.skipUnless(STORIES.exists(), "../shared/assets is absent")
class TextTest(ServerTest):
    model = STORIES

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False) as file:
            file.write(CHATML)
        cls.template = Path(file.name)
        cls.words = ("--ctx", 512, "--template", cls.template)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.template.unlink()

    def test_text(self):
        answer = self.server.complete(prompt="Once upon a time", max_tokens=20)
        text = answer["choices"][0]["text"]
        self.assertEqual(text, ", there was a little girl named Lily. She loved to play outsid")
        chunks = self.server.chunks(
            "/v1/completions", prompt="Once upon a time", max_tokens=20, temperature=0
        )
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), text)

    def test_answers_follow_what_is_asked_for(self):
        schema = {
            "type": "object",
            "properties": {"name": {"enum": ["Lily", "Tom"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
            "required": ["name", "age"],
            "additionalProperties": False,
        }
        whole = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        for field, value in (
            ("response_format", whole),
            ("guided_json", schema),
            ("guided_json", json.dumps(schema)),
            ("json_schema", schema),
            ("structured_outputs", {"json": schema}),
        ):
            with self.subTest(field=field):
                answer = self.server.complete(
                    prompt="Once", max_tokens=200, temperature=1, seed=3, n=2, **{field: value}
                )
                for choice in answer["choices"]:
                    said = json.loads(choice["text"])
                    self.assertIn(said["name"], ("Lily", "Tom"))
                    self.assertIn(said["age"], range(1, 100))
                    self.assertEqual(choice["finish_reason"], "stop")
        for field, value, pattern in (
            ("guided_regex", "[A-Z][a-z]{2,5} is [0-9]{1,2}", "[A-Z][a-z]{2,5} is [0-9]{1,2}"),
            ("guided_choice", ["a cat", "a dog"], "a cat|a dog"),
            ("guided_grammar", 'root ::= "yes" | "no"', "yes|no"),
            ("grammar", 'root ::= [a-c]+ "."', r"[a-c]+\."),
            ("structured_outputs", {"choice": ["up", "down"]}, "up|down"),
        ):
            with self.subTest(field=field):
                answer = self.server.complete(prompt="Once", max_tokens=100, **{field: value})
                self.assertRegex(answer["choices"][0]["text"], f"^({pattern})$")
        chunks = self.server.chunks(
            "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=60,
            response_format=whole, temperature=0,
        )
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
        self.assertIn("name", json.loads(text))
        answer = self.server.complete(prompt="Once", max_tokens=5, response_format={"type": "json_object"})
        self.assertEqual(answer["choices"][0]["text"].lstrip()[0], "{")

    def test_what_cannot_be_followed_is_refused_by_name(self):
        for body, field, *parts in (
            ({"guided_json": {"type": "object", "minProperties": 9}}, "guided_json", "minProperties"),
            ({"guided_regex": "(?=a)"}, "guided_regex"),
            ({"grammar": 'root ::= root "a" | "b"'}, "grammar", "root"),
            ({"guided_choice": []}, "guided_choice"),
            ({"guided_regex": "a", "grammar": 'root ::= "a"'}, "grammar", "guided_regex"),
            ({"response_format": {"type": "xml"}}, "response_format", "xml"),
            ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
            ({"structured_outputs": 3}, "structured_outputs"),
        ):
            with self.subTest(body=body):
                error = self.refuses(400, "/v1/completions", {"prompt": "Once", **body}, field, *parts)
                self.assertEqual(error["param"], field)

    def test_a_complete_answer_ends_before_min_tokens(self):
        """What follows a grammar has nothing to go on with when it is complete; what may go on, does."""
        for body, pattern in (({"guided_choice": ["a cat", "a dog"]}, "a cat|a dog"),
                              ({"guided_regex": "[a-c]{1,12}"}, "[a-c]{9,12}")):  # fmt: skip
            answer = self.server.complete(prompt="Once", max_tokens=30, min_tokens=9, logprobs=0, **body)
            choice = answer["choices"][0]
            self.assertRegex(choice["text"], f"^({pattern})$")
            self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"])
            self.assertEqual(choice["finish_reason"], "stop")

    def test_a_complete_answer_ends_where_ends_are_ignored(self):
        """With ignore_eos a grammar that may go on does, and one that is complete ends the answer."""
        for body, n_max, pattern, reason in (
            ({"guided_choice": ["a cat", "a dog"]}, 30, "a cat|a dog", "stop"),
            ({"guided_regex": "[A-Z][a-z]{2,5}[.]"}, 30, r"[A-Z][a-z]{2,5}\.", "stop"),
            ({"guided_regex": "[a-c]{1,12}"}, 30, "[a-c]{12}", "stop"),
            ({"guided_regex": "[a-c]{1,90}"}, 9, "[a-c]{9,}", "length"),
        ):
            for temperature in (0, 1):
                with self.subTest(body=body, temperature=temperature):
                    answer = self.server.complete(
                        prompt="Once", max_tokens=n_max, temperature=temperature, seed=4, logprobs=0,
                        ignore_eos=True, n=2 if temperature else 1, **body,
                    )  # fmt: skip
                    for choice in answer["choices"]:
                        self.assertRegex(choice["text"], f"^({pattern})$")
                        self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"])
                        self.assertEqual(choice["finish_reason"], reason)

    def test_stop_texts(self):
        for stop, want in (("Lily", ", there was a little girl named "), ("named L", None)):
            answer = self.server.complete(prompt="Once upon a time", max_tokens=40, stop=[stop])
            choice = answer["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(choice["stop_reason"], stop)
            self.assertEqual(choice["text"], want or ", there was a little girl ")
            chunks = self.server.chunks(
                "/v1/completions",
                prompt="Once upon a time",
                max_tokens=40,
                temperature=0,
                stop=stop,
            )
            text = "".join(c["choices"][0]["text"] for c in chunks)
            self.assertEqual(text, choice["text"])

    def test_echo(self):
        answer = self.server.complete(prompt="Once upon a time", max_tokens=2, echo=True)
        self.assertTrue(answer["choices"][0]["text"].startswith("Once upon a time, "))

    def test_chat(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": "Tell a story."}]}]
        body = {"messages": messages, "max_tokens": 12, "temperature": 0}
        answer = self.server.post("/v1/chat/completions", logprobs=True, top_logprobs=2, **body)
        choice = answer["choices"][0]
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(choice["message"]["role"], "assistant")
        content = choice["logprobs"]["content"]
        self.assertEqual(len(content), 12)
        joined = b"".join(bytes(t["bytes"]) for t in content).decode()
        self.assertEqual(joined, choice["message"]["content"])
        for token in content:
            self.assertEqual(len(token["top_logprobs"]), 2)
            self.assertEqual(token["logprob"], token["top_logprobs"][0]["logprob"])
        chunks = self.server.chunks(
            "/v1/chat/completions", stream_options={"include_usage": True}, **body
        )
        # The role comes with the first token, not before.
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertTrue(chunks[1]["choices"][0]["delta"]["content"])
        for chunk in chunks[1:-1]:
            self.assertNotIn("role", chunk["choices"][0]["delta"])
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[1:-1])
        self.assertEqual(text, choice["message"]["content"])
        self.assertEqual(chunks[-1]["usage"], answer["usage"] | {
            "prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]})
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")

    def test_zero_bytes_are_characters(self):
        messages = [{"role": "user", "content": "a\0b"}]
        text = self.server.post("/apply-template", messages=messages)["prompt"]
        self.assertEqual(text, "[user] a\0b\n[assistant]")
        answer = self.server.post("/v1/chat/completions", messages=messages, max_tokens=1)
        self.assertEqual(answer["usage"]["prompt_tokens"], self.server.post("/tokenize", content=text)["count"])

    def test_bad_chats(self):
        for messages in (
            None, [], "x", [{"content": "x"}], [{"role": "user", "content": 3}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
        ):  # fmt: skip
            with self.subTest(messages=messages):
                error = self.refuses(400, "/v1/chat/completions", {"messages": messages})
                self.assertEqual(error["param"], "messages")
        one = [{"role": "user", "content": "x"}]
        for field, value in (
            ("tools", [{"type": "function"}]),
            ("chat_template", "{{ x }}"),
            ("chat_template_kwargs", {"messages": []}),
            ("top_logprobs", 3),
        ):
            with self.subTest(field=field):
                error = self.refuses(400, "/v1/chat/completions", {"messages": one, field: value})
                self.assertEqual(error["param"], field)

    def test_tokens(self):
        ids = self.server.post("/tokenize", prompt="Once upon a time", add_special_tokens=False)
        self.assertEqual(ids["count"], len(ids["tokens"]))
        self.assertEqual(ids["max_model_len"], 512)
        with_bos = self.server.post("/tokenize", prompt="Once upon a time")
        self.assertEqual(with_bos["tokens"][1:], ids["tokens"])
        content = self.server.post("/tokenize", content="Once upon a time")
        self.assertEqual(content["tokens"], ids["tokens"])
        text = self.server.post("/detokenize", tokens=ids["tokens"])
        self.assertEqual(text["prompt"], "Once upon a time")
        self.assertEqual(text["content"], text["prompt"])
        _, _, info = self.server.ask("GET", "/tokenizer_info")
        self.assertEqual(info["eos_token"], "</s>")
        self.assertEqual(info["chat_template"], CHATML)

    def test_apply_template(self):
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U\n"}]
        answer = self.server.post("/apply-template", messages=messages)
        self.assertEqual(answer["prompt"], "[system] S\n[user] U\n\n[assistant]")
        ids = self.server.post("/tokenize", messages=messages)
        text = self.server.post("/detokenize", tokens=ids["tokens"])
        self.assertEqual(text["prompt"], answer["prompt"])


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
