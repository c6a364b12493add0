#!/usr/bin/env python3
"""What people who come from llama-server, vLLM and others expect of `swiftkv serve`: the requests
that their clients send."""

import contextlib
import gzip
import http.client
import json
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import CHATML, PLAIN, ROOT, TEMPLATES, Server, ServerTest, prompt_of  # noqa: E402
from waiting import PATIENCE  # noqa: E402

MINI = ROOT / "models/mini/base"
USER = {"role": "user", "content": "Tell me"}
# As Gemma's: no system messages, user and assistant in turns.
STRICT = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TELLS = CHATML + (
    "|{{ date_string }}|{{ enable_thinking }}|{{ reasoning_effort }}|{{ functions is defined }}|"
)


def with_day(form, ask):
    """The day, and what was said on it: asked again where midnight has passed meanwhile."""
    while True:
        day, said = time.strftime(form, time.gmtime()), ask()
        if day == time.strftime(form, time.gmtime()):
            return day, said


def template_file(text):
    file = tempfile.NamedTemporaryFile("w", suffix=".jinja")
    file.write(text)
    file.flush()
    return file


@contextlib.contextmanager
def changed_model(model, name, value):
    """A folder like the model's with one JSON file that says something else."""
    with tempfile.TemporaryDirectory() as folder:
        for file in model.iterdir():
            if file.name != name:
                (Path(folder) / file.name).symlink_to(file)
        (Path(folder) / name).write_text(json.dumps(value))
        yield folder


class NamesTest(ServerTest):
    model = PLAIN
    words = ("--ctx", 256, "--name", "org/small,gpt-3.5-turbo")

    def test_every_name_is_served(self):
        for name in ("org/small", "gpt-3.5-turbo", "", None):
            answer = self.server.complete(model=name, prompt=prompt_of(5), max_tokens=1)
            self.assertEqual(answer["model"], "org/small")
        self.refuses(404, "/v1/completions", {"model": "gpt", "prompt": [1]}, "gpt", "org/small")

    def test_models(self):
        _, _, models = self.server.ask("GET", "/v1/models")
        self.assertEqual([m["id"] for m in models["data"]], ["org/small", "gpt-3.5-turbo"])
        self.assertEqual((models["first_id"], models["last_id"], models["has_more"]),
                         ("org/small", "gpt-3.5-turbo", False))
        for one in models["data"]:
            self.assertEqual((one["type"], one["display_name"]), ("model", one["id"]))
            self.assertTrue(one["created_at"].endswith("Z"))
        for path in ("/v1/models/org/small", "/v1/models/org%2Fsmall", "/models/gpt-3.5-turbo"):
            status, _, model = self.server.ask("GET", path)
            self.assertEqual((status, model["object"]), (200, "model"), path)
        for path in ("/v1/models/gpt", "/v1/models/org", "/v1/models/%", "/v1/models/%00"):
            self.assertEqual(self.server.ask("GET", path)[0], 404, path)

    def test_paths_with_and_without_the_version(self):
        for path in ("/health", "/v1/health", "/models", "/v1/models"):
            self.assertEqual(self.server.ask("GET", path)[0], 200, path)
        self.assertIn("content", self.server.post("/completions", prompt=[1], max_tokens=1))
        for path in ("/v2/models", "/v1", "/v1/v1/models"):
            self.assertEqual(self.server.ask("GET", path)[0], 404, path)

    def test_long_answers_end_with_the_context(self):
        for n in (-1, 100000):
            answer = self.server.complete(prompt=prompt_of(200), max_tokens=n, ignore_eos=True)
            self.assertEqual(answer["usage"]["completion_tokens"], 56)
            self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        both = self.server.complete(prompt=[prompt_of(250), prompt_of(200)], max_tokens=30,
                                    ignore_eos=True)
        self.assertEqual(both["usage"]["completion_tokens"], 6 + 30)
        self.refuses(400, "/v1/completions", {"prompt": prompt_of(256), "max_tokens": 1}, "256")
        self.refuses(400, "/v1/completions", {"prompt": [1], "max_tokens": -2}, "max_tokens")

    def test_names_of_llama_cpp(self):
        answer = self.server.complete(prompt=prompt_of(9), n_predict=3, ignore_eos=True)
        self.assertEqual(answer["usage"]["completion_tokens"], 3)
        ask = {"prompt": prompt_of(9), "max_tokens": 20, "temperature": 0, "ignore_eos": True,
               "logprobs": 0}
        ours = self.server.complete(repetition_penalty=5, **ask)
        theirs = self.server.complete(repeat_penalty=5, **ask)
        tokens = [a["choices"][0]["logprobs"]["tokens"] for a in (ours, theirs)]
        self.assertEqual(*tokens)
        self.assertNotEqual(tokens[0], self.server.complete(**ask)["choices"][0]["logprobs"]["tokens"])

    def test_what_changes_the_answer_is_refused_by_name(self):
        for name, neutral, value in (
            ("typical_p", 1, 0.5), ("mirostat", 0, 2), ("xtc_probability", 0, 0.3), ("tfs_z", 1, 0.9),
            ("dry_multiplier", 0, 0.8), ("top_n_sigma", -1, 1), ("dynatemp_range", 0, 1),
            ("samplers", [], ["top_k"]), ("lora", [], [{"id": 0, "scale": 1}]),
        ):
            self.server.complete(prompt=[1], max_tokens=1, **{name: neutral})
            self.refuses(400, "/v1/completions", {"prompt": [1], name: value}, name)

    def test_small_things(self):
        greedy = {"prompt": prompt_of(9), "max_tokens": 8, "ignore_eos": True, "logprobs": 0}
        zero = self.server.complete(top_p=0, temperature=1, **greedy)["choices"][0]
        self.assertEqual(zero["logprobs"]["tokens"],
                         self.server.complete(temperature=0, **greedy)["choices"][0]["logprobs"]["tokens"])
        self.assertTrue(self.server.complete(prompt=[1], max_tokens=1)["system_fingerprint"])
        self.assertEqual(self.server.complete(prompt=[1], max_tokens=1, grammar="")["object"],
                         "text_completion")

    def raw(self, body, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/v1/completions", body, headers)
        response = connection.getresponse()
        out = response.status, json.loads(response.read())
        connection.close()
        return out

    def test_bodies(self):
        self.assertEqual(self.raw(b'{"prompt":[1],"prompt":[1,2],"max_tokens":1}')[1]["usage"]["prompt_tokens"], 2)
        self.assertEqual(self.raw(b'\xef\xbb\xbf{"prompt":[1],"max_tokens":1}')[0], 200)
        status, body = self.raw(gzip.compress(b'{"prompt":[1]}'), Content_Encoding="gzip")
        self.assertEqual(status, 415)
        self.assertIn("gzip", body["error"]["message"])

    def test_no_cors_unless_asked_for(self):
        status, headers, _ = self.server.ask("GET", "/health", headers={"Origin": "http://a.example"})
        self.assertEqual(status, 200)
        self.assertNotIn("access-control-allow-origin", {k.lower() for k in dict(headers)})


class AnyNameTest(ServerTest):
    model = PLAIN
    words = ("--ctx", 256, "--name", "small,*", "--cors-origin", "http://a.example,https://b.example")

    def test_any_name(self):
        self.assertEqual(self.server.complete(model="gpt-4o", prompt=[1], max_tokens=1)["model"], "small")

    def test_origins(self):
        for origin, allowed in (("http://a.example", True), ("https://b.example", True),
                                ("http://a.example.evil", False), ("http://a", False), ("null", False)):
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
            connection.request("OPTIONS", "/v1/chat/completions", headers={
                "Origin": origin, "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type"})
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.status, 200 if allowed else 405)
            self.assertEqual(response.headers["Access-Control-Allow-Origin"], origin if allowed else None)
            self.assertIsNone(response.headers["Access-Control-Allow-Credentials"])
            if allowed:
                self.assertIn("Authorization", response.headers["Access-Control-Allow-Headers"])
            connection.request("GET", "/v1/models", headers={"Origin": origin})
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.headers["Access-Control-Allow-Origin"], origin if allowed else None)
            connection.close()


    def test_preflight_has_no_body(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        connection.request("OPTIONS", "/v1/completions", b"x" * 100, {
            "Origin": "http://a.example", "Access-Control-Request-Method": "POST"})
        self.assertEqual(connection.getresponse().status, 405)
        connection.close()


class ChatTest(ServerTest):
    model = MINI

    @classmethod
    def setUpClass(cls):
        cls.file = template_file(TELLS)
        cls.words = ("--ctx", 256, "--template", cls.file.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.file.close()

    def rendered(self, messages, **body):
        return self.server.post("/apply-template", messages=messages, **body)["prompt"]

    def test_answers_continue_the_last_message(self):
        begun = [USER, {"role": "assistant", "content": "One day "}]
        self.assertTrue(self.rendered(begun, continue_final_message=True).endswith("[assistant] One day "))
        self.assertTrue(self.rendered([USER, {**begun[1], "prefix": True}]).endswith("[assistant] One day "))
        self.assertIn("[assistant] One day \n[assistant]", self.rendered(begun))
        # The same prompt as the text of it, so the same answer.
        ask = {"temperature": 0, "max_tokens": 12}
        text = self.rendered(begun, continue_final_message=True)
        chat = self.server.post("/v1/chat/completions", messages=begun, continue_final_message=True, **ask)
        ids = self.server.post("/tokenize", content=text)["tokens"]
        whole = self.server.complete(prompt=ids, **ask)
        self.assertEqual(chat["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"])
        self.assertEqual(chat["choices"][0]["message"]["content"], whole["choices"][0]["text"])
        message = self.server.post("/v1/messages", messages=begun, **ask)
        self.assertEqual(message["content"][0]["text"], whole["choices"][0]["text"])
        for messages, more in (([USER], {}), (begun, {"add_generation_prompt": True})):
            self.refuses(400, "/v1/chat/completions",
                         {"messages": messages, "continue_final_message": True, **more},
                         "continue_final_message")

    def test_parts_of_text_are_lines(self):
        parts = [{"type": "text", "text": "What is"}, {"type": "text", "text": "the best book"}]
        self.assertIn("What is\nthe best book", self.rendered([{"role": "user", "content": parts}]))

    def test_content_may_be_missing(self):
        self.assertIn("[assistant] \n", self.rendered([USER, {"role": "assistant", "content": None}, USER]))

    def test_variables_of_templates(self):
        for body, wanted in (({}, "|||False|"), ({"reasoning_effort": "none"}, "|False||"),
                             ({"reasoning_effort": "high"}, "|True|high|")):
            today, text = with_day("%d %b %Y", lambda b=body: self.rendered([USER], **b))
            self.assertIn(f"|{today}{wanted}", text)
        self.assertIn("|then|False|high|", self.rendered(
            [USER], reasoning_effort="high",
            chat_template_kwargs={"date_string": "then", "enable_thinking": False}))

    def test_schema_of_a_json_object(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
                  "additionalProperties": False}
        ask = {"messages": [USER], "temperature": 1, "max_tokens": 64}
        for seed in range(3):
            answer = self.server.post(
                "/v1/chat/completions", seed=seed,
                response_format={"type": "json_object", "schema": schema}, **ask)
            said = answer["choices"][0]["message"]["content"]
            if answer["choices"][0]["finish_reason"] == "stop":
                self.assertEqual(list(json.loads(said)), ["a"])
            self.assertRegex(said, r'^\s*\{\s*"a"\s*:\s*-?\d')
        self.refuses(400, "/v1/chat/completions",
                     {"response_format": {"type": "json_object", "schema": 1}, **ask}, "schema")

    def test_tokens_of_a_response(self):
        answer = self.server.post("/v1/responses/input_tokens", input="Tell me")
        self.assertEqual(answer["object"], "response.input_tokens")
        other = self.server.post("/v1/messages/count_tokens", messages=[USER])
        self.assertEqual(answer["input_tokens"], other["input_tokens"])


class StrictTemplateTest(unittest.TestCase):
    def test_a_system_message_goes_before_the_first_turn(self):
        with template_file(STRICT) as file:
            server = Server(MINI, "--ctx", 128, "--template", file.name)
            try:
                answer = server.post("/apply-template",
                                     messages=[{"role": "system", "content": "Be brief."}, USER])
                self.assertEqual(answer["prompt"], "<user>Be brief.\n\nTell me</user><assistant>")
                status, _, answer = server.ask("POST", "/apply-template",
                                               {"messages": [{"role": "system", "content": "Be brief."}]})
                self.assertEqual(status, 400)
                self.assertIn("System role not supported", answer["error"]["message"])
            finally:
                server.stop()

    def test_firefunction(self):
        path = TEMPLATES / "fireworks-ai-llama-3-firefunction-v2.jinja"
        if not path.exists():
            self.skipTest("../shared/assets/templates: absent")
        server = Server(MINI, "--ctx", 2048, "--template", path)
        try:
            today, answer = with_day("%b %d %Y", lambda: server.post("/apply-template", messages=[USER]))
            self.assertIn("Today is " + today, answer["prompt"])
        finally:
            server.stop()


class DefaultsTest(unittest.TestCase):
    """generation_config.json, then options, then the request."""

    def serve(self, generation, *words):
        with changed_model(PLAIN, "generation_config.json", generation) as folder:
            server = Server(folder, "--ctx", 256, *words)
        self.addCleanup(server.stop)
        return server

    def tokens(self, server, **body):
        answer = server.post("/v1/completions", prompt=prompt_of(9), max_tokens=24, ignore_eos=True,
                             logprobs=0, **{"seed": 7, **body})
        return answer["choices"][0]["logprobs"]["tokens"]

    def test_order(self):
        own = {"do_sample": True, "temperature": 0.7, "top_k": 5, "repetition_penalty": 1.3}
        said = {"temperature": 0.7, "top_k": 5, "repetition_penalty": 1.3}
        plain = self.serve({})
        self.assertFalse([line for line in plain.lines if "sampling defaults" in line])
        by_model = self.serve(own)
        self.assertEqual(self.tokens(by_model), self.tokens(plain, **said))
        self.assertTrue([line for line in by_model.lines
                         if "temperature 0.7, top_k 5" in line and "generation_config.json" in line])
        with_options = self.serve(own, "--temp", 0.9, "--seed", 7)
        self.assertEqual(self.tokens(with_options), self.tokens(plain, **{**said, "temperature": 0.9}))
        self.assertEqual(self.tokens(with_options, temperature=0.2),
                         self.tokens(plain, **{**said, "temperature": 0.2}))
        _, _, openapi = with_options.ask("GET", "/openapi.json")
        fields = openapi["components"]["schemas"]["CompletionRequest"]["properties"]
        self.assertEqual((fields["temperature"]["default"], fields["top_k"]["default"]), (0.9, 5))
        without = self.serve(own, "--no-generation-config")
        self.assertEqual(self.tokens(without), self.tokens(plain))

    def test_seed_of_all(self):
        server = self.serve({}, "--seed", 0)
        self.assertEqual(self.tokens(server, seed=None), self.tokens(server, seed=None))
        self.assertEqual(self.tokens(server, seed=None), self.tokens(server, seed=0))


class FallbackTest(unittest.TestCase):
    def test_without_a_template(self):
        own = json.loads((MINI / "tokenizer_config.json").read_text())
        del own["chat_template"]
        with changed_model(MINI, "tokenizer_config.json", own) as folder:
            server = Server(folder, "--ctx", 128)
        try:
            self.assertTrue([line for line in server.lines if "no chat template" in line])
            answer = server.post("/apply-template", messages=[USER])
            self.assertEqual(answer["prompt"],
                             "<|im_start|>user\nTell me<|im_end|>\n<|im_start|>assistant\n")
        finally:
            server.stop()

    def test_named_templates(self):
        said = [{"role": "system", "content": "S"}, USER, {"role": "assistant", "content": "A"}, USER]
        for name, want in (
            ("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"),
            ("mistral", "[INST] S\n\nTell me [/INST] A"),
            ("gemma", "<start_of_turn>user\nS\n\nTell me<end_of_turn>\n<start_of_turn>model\nA"),
            ("phi3", "<|system|>\nS<|end|>\n<|user|>\nTell me<|end|>\n<|assistant|>\nA<|end|>\n"),
            ("zephyr", "<|user|>\nTell me"),
            ("vicuna", "S\n\nUSER: Tell me\nASSISTANT: A"),
        ):
            server = Server(MINI, "--ctx", 128, "--template", name)
            try:
                answer = server.post("/apply-template", messages=said)
                self.assertIn(want, answer["prompt"])
            finally:
                server.stop()


class LlamaServerTest(ServerTest):
    """llama-server's own endpoints."""

    model = MINI
    words = ("--ctx", 512, "--max-running", 3)

    def whole(self, **body):
        return self.server.post("/completion", temperature=0, **body)

    def test_completions(self):
        ours = self.server.complete(prompt="Once upon", max_tokens=6, logprobs=2)["choices"][0]
        answer = self.whole(prompt="Once upon", n_predict=6, n_probs=2, return_tokens=True)
        self.assertEqual(answer["content"], ours["text"])
        self.assertEqual((answer["stop"], answer["stop_type"], answer["truncated"]), (True, "limit", False))
        self.assertEqual((answer["tokens_predicted"], answer["tokens_evaluated"]), (6, 5))
        self.assertEqual(answer["prompt"], "<|begin|>Once upon")  # with the token that the server adds
        tokens = answer["completion_probabilities"]
        self.assertEqual([t["token"] for t in tokens], ours["logprobs"]["tokens"])
        self.assertEqual([t["logprob"] for t in tokens], ours["logprobs"]["token_logprobs"])
        self.assertEqual([t["id"] for t in tokens], answer["tokens"])
        self.assertEqual({len(t["top_logprobs"]) for t in tokens}, {2})
        self.assertEqual(answer["generation_settings"]["n_predict"], 6)
        self.assertEqual(answer["timings"]["predicted_n"], 6)
        plain = self.whole(prompt="Once upon", n_predict=6)
        self.assertEqual((plain["tokens"], "completion_probabilities" in plain), ([], False))

    def test_streams(self):
        whole = self.whole(prompt="Once upon", n_predict=6, n_probs=1, return_tokens=True)
        events = self.server.events("/completion", prompt="Once upon", n_predict=6, n_probs=1, temperature=0)
        parts = [json.loads(e.removeprefix("data: ")) for e in events if e]
        self.assertEqual([p["stop"] for p in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual("".join(p["content"] for p in parts), whole["content"])
        self.assertEqual([i for p in parts for i in p["tokens"]], whole["tokens"])
        told = [t for p in parts for t in p.get("completion_probabilities", [])]
        self.assertEqual(told, whole["completion_probabilities"])
        self.assertEqual(parts[-1]["tokens_predicted"], 6)

    def test_why_it_ended(self):
        word = self.whole(prompt="Once upon", n_predict=60, stop=["king", "time"])
        self.assertEqual((word["stop_type"], word["stopping_word"]), ("word", "time"))
        eos = self.whole(prompt="Once upon", n_predict=60, logit_bias=[[1, 100]])
        self.assertEqual((eos["stop_type"], eos["content"]), ("eos", ""))
        full = self.whole(prompt=prompt_of(500), n_predict=60, ignore_eos=True)
        self.assertEqual((full["stop_type"], full["truncated"], full["tokens_predicted"]),
                         ("limit", True, 12))

    def test_prompts_of_texts_and_ids(self):
        _, _, ids = self.server.ask("POST", "/tokenize", {"content": " a king"})
        mixed = self.whole(prompt=["Once upon", *ids["tokens"]], n_predict=4)
        self.assertEqual(mixed["content"], self.whole(prompt="Once upon a king", n_predict=4)["content"])
        many = self.whole(prompt=["Once upon", [5, " a king", 6], [7, 8]], n_predict=3)
        self.assertEqual([answer["index"] for answer in many], [0, 1, 2])
        self.assertEqual(many[0]["content"], self.whole(prompt="Once upon", n_predict=3)["content"])
        self.refuses(400, "/completion", {"prompt": ["a", 1.5, 2]}, "prompt")
        self.refuses(400, "/completion", {"prompt": ["a", 99999999]}, "99999999")

    def test_biases(self):
        first = self.whole(prompt="Once upon", n_predict=1, return_tokens=True)["tokens"][0]
        for biases in ([[first, False]], [[first, -100]], {str(first): -100}):
            other = self.whole(prompt="Once upon", n_predict=1, return_tokens=True, logit_bias=biases)
            self.assertNotEqual(other["tokens"], [first])
        text = self.whole(prompt="Once upon", n_predict=1, return_tokens=True, logit_bias=[])["content"]
        for biases in ([[text, False]], {text: -100}):
            other = self.whole(prompt="Once upon", n_predict=1, return_tokens=True, logit_bias=biases)
            self.assertNotEqual(other["tokens"], [first])
        for biases in ([["the"]], [[None, 1]], [[-1, 1]], [["the", "1"]], {"the": None}, "the"):
            self.refuses(400, "/completion", {"prompt": "a", "logit_bias": biases}, "logit_bias")

    def test_fields_of_the_response(self):
        fields = ["content", "timings/predicted_n", "generation_settings/n_predict", "missing", "stop/deeper"]
        answer = self.whole(prompt="Once upon", n_predict=3, response_fields=fields)
        self.assertEqual(set(answer), set(fields[:3]))
        self.assertEqual((answer["timings/predicted_n"], answer["generation_settings/n_predict"]), (3, 3))
        for bad in ("content", [1], ["content"] * 65):
            self.refuses(400, "/completion", {"prompt": "a", "response_fields": bad}, "response_fields")

    def test_a_prompt_in_an_object(self):
        text = {"prompt_string": "Once upon"}
        want = self.whole(prompt="Once upon", n_predict=3)["content"]
        self.assertEqual(self.whole(prompt=text, n_predict=3)["content"], want)
        both = self.whole(prompt=[text, "Once upon"], n_predict=3)
        self.assertEqual([b["content"] for b in both], [want, want])
        self.refuses(400, "/completion", {"prompt": text | {"multimodal_data": ["AA"]}}, "prompt")

    def test_pieces(self):
        pieces = self.server.post("/tokenize", content="Once upon a time", with_pieces=True)["tokens"]
        plain = self.server.post("/tokenize", content="Once upon a time")["tokens"]
        self.assertEqual([p["id"] for p in pieces], plain)
        self.assertEqual("".join(p["piece"] for p in pieces).strip(), "Once upon a time")

    def test_rates_leave_out_the_first_token(self):
        one = self.whole(prompt="Once upon", n_predict=1)["timings"]
        self.assertEqual((one["predicted_n"], one["predicted_per_second"]), (1, 0))
        many = self.whole(prompt="Once upon", n_predict=9)["timings"]
        self.assertAlmostEqual(many["predicted_per_second"], 8e3 / many["predicted_ms"], places=5)

    def test_ends_of_answers_are_forbidden(self):
        for ignores in (True, False):
            settings = self.whole(prompt="a", n_predict=1, ignore_eos=ignores)["generation_settings"]
            self.assertEqual([b["bias"] for b in settings["logit_bias"]], [None] * ignores)

    def test_what_is_refused(self):
        for name, value in (("n_probs", 21), ("post_sampling_probs", True), ("n_keep", 4), ("n_indent", 2)):
            self.refuses(400, "/completion", {"prompt": "a", name: value}, name)
        for body in ({"seed": -1}, {"cache_prompt": True, "id_slot": -1}, {"n_keep": 0}):
            self.whole(prompt="a", n_predict=1, **body)

    def test_settings_and_slots(self):
        _, _, props = self.server.ask("GET", "/props")
        self.assertEqual((props["total_slots"], props["default_generation_settings"]["n_ctx"]), (3, 512))
        self.assertEqual((props["bos_token"], props["eos_token"]), ("<|begin|>", "<|end|>"))
        self.assertIn("message", props["chat_template"])
        _, _, slots = self.server.ask("GET", "/slots")
        self.assertEqual([slot["id"] for slot in slots], [0, 1, 2])
        self.assertEqual({slot["is_processing"] for slot in slots}, {False})
        self.assertEqual(self.server.ask("GET", "/slots?fail_on_no_slot=1")[0], 200)

    def test_busy_slots(self):
        connections = [self.server.connect() for _ in range(3)]
        for connection in connections:
            connection.request("POST", "/completion", json.dumps(
                {"prompt": prompt_of(5), "ignore_eos": True, "n_predict": 500, "stream": True}))
        try:
            self.server.wait_for(lambda m: m["requests_running"] == 3)
            status, _, answer = self.server.ask("GET", "/slots?fail_on_no_slot=1")
            if status == 503:  # they may have ended since
                self.assertIn("slot", answer["error"]["message"])
        finally:
            for connection in connections:
                connection.close()

    def test_vectors(self):
        ours = self.server.post("/v1/embeddings", input=["a b", "c"])["data"]
        theirs = self.server.post("/embedding", content=["a b", "c"])
        self.assertEqual(theirs, [{"index": one["index"], "embedding": [one["embedding"]]} for one in ours])

    def test_a_model_without_marks_fills_no_gap(self):
        self.refuses(400, "/infill", {"input_prefix": "a", "input_suffix": "b"}, "marks")


class InfillTest(unittest.TestCase):
    """Gaps in texts, by a model whose vocabulary has the marks of one."""

    def serve(self, *names):
        own = (MINI / "tokenizer.json").read_text()
        for old, new in zip(("<|user|>", "<|assistant|>", "<|system|>"), names, strict=True):
            own = own.replace(old, new)
        with changed_model(MINI, "tokenizer.json", json.loads(own)) as folder:
            server = Server(folder, "--ctx", 256)
        self.addCleanup(server.stop)
        return server

    def ids(self, server, text):
        return server.post("/tokenize", content=text)["tokens"]

    def evaluated(self, server, **body):
        return server.post("/infill", n_predict=2, temperature=0, **body)

    def test_order_of_the_parts(self):
        for names, order in (
            (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), "prefix suffix middle"),
            (("[PREFIX]", "[SUFFIX]", "[MIDDLE]"), "suffix prefix"),
        ):
            server = self.serve(*names)
            prefix, suffix = self.ids(server, "the king"), self.ids(server, "and the queen")
            parts = {"prefix": [2, *prefix], "suffix": [3, *suffix], "middle": [4]}
            prompt = [0] + [i for name in order.split() for i in parts[name]]
            ours = server.complete(prompt=prompt, max_tokens=2)["choices"][0]["text"]
            answer = self.evaluated(server, input_prefix="the king", input_suffix="and the queen")
            self.assertEqual((answer["content"], answer["tokens_evaluated"]), (ours, len(prompt)))
            longer = self.evaluated(server, input_prefix="the", prompt=" king", input_suffix="and the queen")
            self.assertEqual(longer["content"], ours)

    def test_marks_in_the_text_are_text(self):
        server = self.serve("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
        answer = self.evaluated(server, input_prefix="<|fim_middle|>", input_suffix="")
        self.assertGreater(answer["tokens_evaluated"], 8)

    def test_long_texts_are_cut_around_the_gap(self):
        server = self.serve("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
        long = "the king and the queen " * 200
        answer = self.evaluated(server, input_prefix=long + "the end", input_suffix=long)
        self.assertEqual(answer["tokens_evaluated"], 4 + 3 * 32 + 32)
        extra = [{"filename": "a.txt", "text": long}, {"text": "b"}]
        answer = self.evaluated(server, input_prefix="a", input_suffix="b", input_extra=extra)
        self.assertLess(answer["tokens_evaluated"], 4 + 2 + 64 + 4)

    def test_as_many_files_as_there_is_room_for(self):
        server = self.serve("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
        extra = [{"filename": "a", "text": "b"}] * 100000
        answer = self.evaluated(server, input_prefix="a", input_suffix="b", input_extra=extra)
        self.assertLess(answer["tokens_evaluated"], 4 + 2 + 64 + 4)

    def test_bad_requests(self):
        server = self.serve("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
        for body, part in (({}, "input_prefix"), ({"input_prefix": 3}, "input_prefix"),
                           ({"input_prefix": "a", "input_extra": "b"}, "input_extra"),
                           ({"input_prefix": "a", "input_extra": ["b"]}, "input_extra")):
            status, _, answer = server.ask("POST", "/infill", body)
            self.assertEqual(status, 400)
            self.assertIn(part, answer["error"]["message"])


if __name__ == "__main__":
    unittest.main()
