#!/usr/bin/env python3
"""Several models behind one port: who is loaded when, who waits, and what happens when loading fails or nobody waits
any more."""

import json
import os
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
import server_process as base  # noqa: E402
from waiting import PATIENCE, wait_exit, wait_until  # noqa: E402

ONE, TWO, THREE = (base.MODELS / name for name in ("llama3-v5", "qwen3-v5", "qwen2-swiftkv-g2"))
PROMPT = base.prompt_of(12)


def alone(model):
    server = base.Server(model, "--ctx", 128)
    answer = server.complete(prompt=PROMPT, max_tokens=6, ignore_eos=True)["choices"][0]["text"]
    ids = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "logprobs": 1, "temperature": 0})
    server.stop()
    return answer, ids[2]["choices"][0]["logprobs"]["token_logprobs"]


class ModelsTest(unittest.TestCase):
    def start(self, *words, models=(ONE, TWO, THREE)):
        words = (*models[1:], "--ctx", 128, *words)
        server = base.Server(models[0], *words)
        self.addCleanup(server.stop)
        return server

    def states(self, server):
        return server.ask("GET", "/health")[2]["models"]

    def loaded(self, server):
        return {name for name, state in self.states(server).items() if state == "loaded"}

    def complete(self, server, model, **body):
        return server.complete(model=model, prompt=PROMPT, **{"max_tokens": 6, **body})

    def test_each_answers_as_alone(self):
        server = self.start()
        for model in (ONE, TWO, THREE, ONE):
            answer = self.complete(server, model.name, logprobs=1)
            self.assertEqual(answer["model"], model.name)
            self.assertEqual(answer["choices"][0]["logprobs"]["token_logprobs"], alone(model)[1])
            self.assertEqual(self.loaded(server), {model.name})
        self.assertEqual(server.metrics()[f'model_loads_total{{model="{ONE.name}"}}'], 2)

    def test_names_of_their_own(self):
        """NAME=MODEL; what is a path as a whole stays one."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        odd = Path(folder.name) / "a=b"
        odd.symlink_to(TWO)
        server = self.start(models=(f"small,org/small={ONE}", odd, f"last={THREE}"))
        names = [m["id"] for m in server.ask("GET", "/v1/models")[2]["data"]]
        self.assertEqual(names, ["small", "org/small", "a=b", "last"])
        for name, model, own in (("org/small", ONE, "small"), ("a=b", TWO, "a=b"), ("last", THREE, "last")):
            answer = self.complete(server, name, logprobs=1)
            self.assertEqual(answer["model"], own)
            self.assertEqual(answer["choices"][0]["logprobs"]["token_logprobs"], alone(model)[1])
        status, _, answer = server.ask("POST", "/v1/completions", {"model": ONE.name, "prompt": PROMPT})
        self.assertEqual(status, 404)
        self.assertIn('has "small", "org/small", "a=b", "last" (serve NAME=MODEL', answer["error"]["message"])
        for words, part in ((("--name", "b", f"a={ONE}"), "both name the model"), ((f"a,*={ONE}", TWO), "any name")):
            done = subprocess.run([base.PROGRAM, "serve", *words], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(part, done.stderr)

    def test_without_a_name_the_first(self):
        server = self.start()
        self.assertEqual(server.complete(prompt=PROMPT, max_tokens=1)["model"], ONE.name)
        status, _, answer = server.ask("POST", "/v1/completions", {"model": "other", "prompt": PROMPT})
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        self.assertEqual(server.ask("POST", "/v1/completions", {"model": 3, "prompt": PROMPT})[0], 400)

    def test_the_one_idle_longest_leaves(self):
        server = self.start("--max-loaded", 2)
        for model, expected in ((TWO, {ONE, TWO}), (ONE, {ONE, TWO}), (THREE, {ONE, THREE}), (TWO, {TWO, THREE})):
            self.complete(server, model.name)
            self.assertEqual(self.loaded(server), {m.name for m in expected})

    def test_memory_is_bounded(self):
        """The models take some 111, 75 and 51 MiB."""
        server = self.start("--max-loaded", 3, "--kv-tokens", 65536, "--models-memory", 200)
        for model, expected in ((TWO, {ONE, TWO}), (THREE, {TWO, THREE}), (TWO, {TWO, THREE}), (ONE, {TWO, ONE})):
            self.complete(server, model.name)
            self.assertEqual(self.loaded(server), {m.name for m in expected})
        server = self.start("--kv-tokens", 65536, "--models-memory", 80, models=(TWO, ONE, THREE))
        status, _, answer = server.ask("POST", "/v1/completions", {"model": ONE.name, "prompt": PROMPT})
        self.assertEqual((status, answer["error"]["code"]), (503, "model_load_failed"), answer)
        self.assertIn("MiB are available", answer["error"]["message"])
        self.complete(server, THREE.name)

    def test_a_model_that_never_fits_sends_nobody_away(self):
        server = self.start("--max-loaded", 3, "--kv-tokens", 65536, "--models-memory", 150, models=(THREE, TWO, ONE))
        self.complete(server, TWO.name)
        self.assertEqual(self.loaded(server), {THREE.name, TWO.name})
        server.stop()
        server = self.start("--max-loaded", 3, "--kv-tokens", 65536, "--models-memory", 100, models=(THREE, ONE))
        status, _, answer = server.ask("POST", "/v1/completions", {"model": ONE.name, "prompt": PROMPT})
        self.assertEqual((status, answer["error"]["code"]), (503, "model_load_failed"), answer)
        self.assertEqual(self.loaded(server), {THREE.name})
        self.assertEqual(server.metrics()[f'model_loads_total{{model="{THREE.name}"}}'], 1)

    def test_who_waits_sleeps(self):
        """Requests that wait for a model look at it now and then, and do not wake each other."""
        server = self.start("--max-loaded", 1, "--ctx", 65536, "--kv-tokens", 65536, "--connections-per-ip", 40, models=(ONE, TWO))
        tasks = Path(f"/proc/{server.process.pid}/task")
        connection, response = self.long_answer(server, ONE.name)
        before, answers = set(os.listdir(tasks)), []
        threads = [threading.Thread(target=lambda: answers.append(self.complete(server, TWO.name))) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(set(os.listdir(tasks)) - before) >= len(threads) and self.states(server)[TWO.name] == "waiting")
        waiting = set(os.listdir(tasks)) - before
        start, first = time.monotonic(), self.switches(tasks, waiting)
        time.sleep(0.5)
        n_looks = 10 * (time.monotonic() - start) + 1  # one each 0.1 s
        self.assertLess(self.switches(tasks, waiting) - first, 3 * len(waiting) * n_looks)
        response.close()
        connection.close()
        for thread in threads:
            thread.join()
        self.assertEqual(len(answers), len(threads))

    @staticmethod
    def switches(tasks, names):
        """How often threads have fallen asleep."""
        texts = [(tasks / name / "status").read_text() for name in names if (tasks / name).exists()]
        return sum(int(text.split("voluntary_ctxt_switches:")[1].split()[0]) for text in texts)

    def test_it_waits_for_memory_of_a_busy_model(self):
        server = self.start("--max-loaded", 2, "--ctx", 65536, "--kv-tokens", 65536, "--models-memory", 100, models=(ONE, TWO))
        connection, response = self.long_answer(server, ONE.name)
        result = []
        waiting = threading.Thread(target=lambda: result.append(self.complete(server, TWO.name)))
        waiting.start()
        wait_until(lambda: self.states(server)[TWO.name] == "waiting")
        time.sleep(0.3)
        self.assertEqual(self.states(server), {ONE.name: "loaded", TWO.name: "waiting"})
        self.assertEqual(server.metrics()[f'model_load_failures_total{{model="{TWO.name}"}}'], 0)
        response.close()
        connection.close()
        waiting.join(PATIENCE)
        self.assertEqual(result[0]["model"], TWO.name)
        self.assertEqual(self.loaded(server), {TWO.name})

    def test_each_has_a_cache_of_its_own(self):
        """Below a folder that is not there yet; what one model has read is found again, and not by the other."""
        with tempfile.TemporaryDirectory() as folder:
            cache, long = Path(folder) / "cache", base.prompt_of(100)
            for turn in range(2):
                server = self.start("--ctx", 256, "--cache-dir", cache, models=(ONE, TWO))
                for model in (ONE, TWO):
                    answer = server.complete(model=model.name, prompt=long, max_tokens=2)
                    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                    self.assertEqual(cached > 0, turn == 1, (model, cached))
                self.assertEqual(server.stop(), 0)
            self.assertEqual({path.name for path in cache.iterdir()}, {ONE.name, TWO.name})

    def test_lists(self):
        server = self.start()
        models = {m["id"]: m["swiftkv"]["state"] for m in server.ask("GET", "/v1/models")[2]["data"]}
        self.assertEqual(models, {ONE.name: "loaded", TWO.name: "unloaded", THREE.name: "unloaded"})
        tags = [m["name"] for m in server.ask("GET", "/api/tags")[2]["models"]]
        self.assertEqual(tags, [ONE.name, TWO.name, THREE.name])
        self.assertEqual([m["name"] for m in server.ask("GET", "/api/ps")[2]["models"]], [ONE.name])
        self.assertEqual(server.ask("GET", f"/v1/models/{TWO.name}")[2]["id"], TWO.name)
        self.assertEqual(server.ask("GET", f"/props?model={TWO.name}")[2]["model_alias"], TWO.name)
        self.assertEqual(self.loaded(server), {TWO.name})
        text = server.ask("GET", "/metrics")[2]
        self.assertIn(f'swiftkv_steps_total{{model="{TWO.name}"}}', text)
        self.assertNotIn(f'swiftkv_steps_total{{model="{ONE.name}"}}', text)

    def test_many_at_once(self):
        """Requests for three models at a time: all are answered, none with a 404 or 503."""
        server = self.start()
        failures = []

        def client(i):
            for k in range(4):
                model = (ONE, TWO, THREE)[(i + k) % 3].name
                status, _, answer = server.ask(
                    "POST", "/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
                )
                if status != 200 or answer["model"] != model:
                    failures.append((status, answer))

        threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def long_answer(self, server, model):
        """A stream that has begun; its connection."""
        connection = server.connect()
        body = {"model": model, "prompt": PROMPT, "max_tokens": 60000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        return connection, response

    def hurry(self):
        return self.start("--ctx", 65536, "--kv-tokens", 65536, models=(ONE, TWO))

    def test_requests_keep_their_model(self):
        server = self.hurry()
        connection, response = self.long_answer(server, ONE.name)
        waiting = threading.Thread(target=self.complete, args=(server, TWO.name))
        waiting.start()
        wait_until(lambda: self.states(server)[TWO.name] == "waiting")
        self.assertEqual(self.states(server)[ONE.name], "loaded")
        self.assertTrue(response.readline() is not None)
        response.close()
        connection.close()
        waiting.join(PATIENCE)
        self.assertEqual(self.loaded(server), {TWO.name})

    def test_waiting_is_not_reading(self):
        """A request that waits for its model is read afterwards: to its end, which is told to be wrong here."""
        server = self.start(*base.LONG, "--request-seconds", 2, models=(ONE, TWO))
        connection, response = self.long_answer(server, ONE.name)
        result = []
        body = {"model": TWO.name, "prompt": [[1] * 40] * 1000 + [[-1]]}
        waiting = threading.Thread(target=lambda: result.append(server.ask("POST", "/v1/completions", body)))
        waiting.start()
        wait_until(lambda: self.states(server)[TWO.name] == "waiting")
        time.sleep(2.5)
        response.close()
        connection.close()
        waiting.join(PATIENCE)
        self.assertIn("-1 is not a token id", result[0][2]["error"]["message"])

    def test_leaving_while_waiting(self):
        server = self.hurry()
        connection, response = self.long_answer(server, ONE.name)
        body = json.dumps({"model": TWO.name, "prompt": PROMPT}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            wait_until(lambda: self.states(server)[TWO.name] == "waiting")
        wait_until(lambda: self.states(server)[TWO.name] == "unloaded")
        self.assertEqual(self.loaded(server), {ONE.name})
        response.close()
        connection.close()

    def test_patience_ends(self):
        server = self.start("--ctx", 65536, "--kv-tokens", 65536, "--queue-timeout", 0.3, models=(ONE, TWO))
        connection, response = self.long_answer(server, ONE.name)
        status, headers, answer = server.ask("POST", "/v1/completions", {"model": TWO.name, "prompt": PROMPT})
        self.assertEqual((status, headers["Retry-After"] is not None), (503, True), answer)
        self.assertIn("was not loaded within 0.3 s", answer["error"]["message"])
        response.close()
        connection.close()

    def test_loading_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder) / "broken"
            shutil.copytree(TWO, broken)
            server = self.start(models=(ONE, broken, THREE))
            weights = broken / "model.safetensors"
            os.truncate(weights, weights.stat().st_size // 2)
            status, _, answer = server.ask("POST", "/v1/completions", {"model": "broken", "prompt": PROMPT})
            self.assertEqual((status, answer["error"]["code"]), (503, "model_load_failed"), answer)
            self.assertIn('"broken" could not be loaded: ', answer["error"]["message"])
            self.complete(server, THREE.name)
            self.complete(server, ONE.name)
            shutil.copy(TWO / "model.safetensors", weights)
            self.complete(server, "broken")
            self.assertEqual(server.metrics()['model_load_failures_total{model="broken"}'], 1)

    def test_sigterm_while_one_waits(self):
        server = self.hurry()
        connection, response = self.long_answer(server, ONE.name)
        result = []
        body = {"model": TWO.name, "prompt": PROMPT}
        waiting = threading.Thread(target=lambda: result.append(server.ask("POST", "/v1/completions", body)))
        waiting.start()
        wait_until(lambda: self.states(server)[TWO.name] == "waiting")
        server.process.send_signal(signal.SIGTERM)
        waiting.join(PATIENCE)
        self.assertEqual(result[0][0], 503)
        self.assertIn("shutting down", result[0][2]["error"]["message"])
        response.close()
        connection.close()
        self.assertEqual(wait_exit(server.process), 0)

    def test_a_stream_that_waits_gets_signs_of_life(self):
        """Comments, and then its answer, or a refusal as an event."""
        server = self.start("--ctx", 65536, "--kv-tokens", 65536, "--ping-interval", 0.05, models=(ONE, TWO))
        connection, response = self.long_answer(server, ONE.name)
        result = []
        body = {"model": TWO.name, "prompt": PROMPT, "max_tokens": 3, "temperature": 0}
        waiter = server.connect()
        waiter.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
        waiting = threading.Thread(target=lambda: result.extend(line.decode() for line in waiter.getresponse()))
        waiting.start()
        wait_until(lambda: sum(line.startswith(": waiting for") for line in result) > 2)
        self.assertEqual(self.states(server)[TWO.name], "waiting")
        response.close()
        connection.close()
        waiting.join(PATIENCE)
        waiter.close()
        events = [e for e in "".join(result).split("\n\n") if e]
        self.assertEqual(events[0], ": waiting for the model")
        self.assertEqual(events[-1], "data: [DONE]")
        said = "".join(json.loads(e[6:])["choices"][0]["text"] for e in events[:-1] if e.startswith("data: "))
        self.assertEqual(said, server.complete(**body)["choices"][0]["text"])
        # Without a stream, and where the wait ends badly.
        for path, end in (("/v1/completions", "data: [DONE]"), ("/v1/messages", "event: error")):
            refused = self.start("--ctx", 65536, "--kv-tokens", 65536, "--ping-interval", 0.05, "--queue-timeout", 0.4,
                                 models=(ONE, TWO))  # fmt: skip
            connection, response = self.long_answer(refused, ONE.name)
            self.assertEqual(refused.ask("POST", path, {**body, "stream": False})[0], 503)
            events = [e for e in refused.events(path, **body) if e]
            self.assertEqual(events[0], ": waiting for the model")
            self.assertIn("was not loaded within 0.4 s", events[-2 if "DONE" in end else -1])
            self.assertTrue(events[-1].startswith(end), events)
            response.close()
            connection.close()

    def test_sigterm_ends_loading(self):
        """A large model, with random weights, loads for many seconds."""
        server = self.start("--weights", "int8", models=(ONE, "preset:llama-3.2-1b"))
        result = []
        body = {"model": "preset:llama-3.2-1b", "prompt": PROMPT}
        waiting = threading.Thread(target=lambda: result.append(server.ask("POST", "/v1/completions", body)))
        waiting.start()
        wait_until(lambda: "loading" in self.states(server).values())
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(wait_exit(server.process), 0)  # in an orderly way, within the time that it gives itself
        waiting.join(PATIENCE)
        self.assertEqual(result[0][0], 503)
        self.assertIn("shutting down", result[0][2]["error"]["message"])
        self.assertNotIn("swiftkv: preset:llama-3.2-1b is loaded\n", server.lines)

    def test_adapters_and_drafts_of_several_models(self):
        lora, one = base.ROOT / "tests/data/lora", ONE
        words = ("--lora", f"narrow@{one.name}={lora / 'narrow'},wide@{one.name}={lora / 'wide'}", "--weights", "f32",
                 "--draft", f"{one.name}={one}")  # fmt: skip
        server = self.start(*words, "--ctx", 256, models=(TWO, one))
        alone = base.Server(one, "--lora", f"narrow={lora / 'narrow'},wide={lora / 'wide'}", "--weights", "f32",
                            "--ctx", 256)  # fmt: skip
        self.addCleanup(alone.stop)
        ask = {"prompt": base.prompt_of(40), "max_tokens": 6, "logprobs": 0, "ignore_eos": True}
        for name in (one.name, "narrow", "wide"):
            want = alone.complete(model=name, **ask)["choices"][0]["logprobs"]
            self.assertEqual(server.complete(model=name, **ask)["choices"][0]["logprobs"], want)
        self.assertEqual(self.loaded(server), {one.name})
        drafted = [v for k, v in server.metrics().items() if k.startswith("drafted_tokens_total")]
        self.assertGreater(sum(drafted), 0)
        self.assertEqual(server.complete(model=TWO.name, **ask)["model"], TWO.name)
        status, _, answer = server.ask("POST", "/v1/completions", {**ask, "model": TWO.name, "lora": "narrow"})
        self.assertEqual((status, answer["error"]["param"]), (400, "lora"))

    def test_keys_and_rates_hold_across_models(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("one-key rpm=3\n")
            file.flush()
            server = self.start("--api-key-file", file.name, models=(ONE, TWO))
            headers = {"Authorization": "Bearer one-key"}
            statuses = [
                server.ask("POST", "/v1/completions", {"model": model.name, "prompt": PROMPT, "max_tokens": 1}, headers)[0]
                for model in (ONE, TWO, ONE, TWO)
            ]
            self.assertEqual(statuses, [200, 200, 200, 429])
            self.assertEqual(server.ask("POST", "/v1/completions", {"model": TWO.name, "prompt": PROMPT})[0], 401)
            server.process.send_signal(signal.SIGHUP)
            server.wait_line("API keys were read again")

    def test_refused_at_the_start(self):
        for words, part in (((ONE, ONE), "two models are called"), ((ONE, TWO, "--name", "x"), "--name goes with one"),
                            ((ONE, TWO, "--lora", "x=y"), "NAME@MODEL=PATH"),
                            ((ONE, TWO, "--lora", f"x@{ONE.name}=y,z@other=y"), "NAME@MODEL=PATH"),
                            ((ONE, TWO, "--draft", "x"), "MODEL=PATH"),
                            ((ONE, TWO, "--models-memory", 1, "--kv-tokens", 65536), "1 MiB are available")):
            with self.assertRaises(RuntimeError) as caught:
                base.Server(*words)
            self.assertIn(part, str(caught.exception))


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
