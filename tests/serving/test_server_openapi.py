#!/usr/bin/env python3
"""/openapi.json says what the server does: every route is described, every field that the code reads
has a schema, every bound is where the description has it, every response is as described."""

import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None

SERVER = base.ROOT / "src/serving/http"
SAMPLING = base.ROOT / "src/common/sampling_fields.c"
HANDMADE = json.loads((SERVER / "openapi.json").read_text())
# The endpoints whose fields are probed, with a body that is as small as can be.
PROBED = {
    "/v1/completions": {"prompt": [1], "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
    "/v1/embeddings": {"input": [1]},
}
ELSEWHERE = ("teacher", "required")  # for a model, or beside fields, that others have
BIG = {"max_tokens", "max_completion_tokens", "min_tokens", "dimensions"}  # beyond any context


def walk(value):
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(inner)


class Description:
    def __init__(self, server):
        status, headers, self.doc = server.ask("GET", "/openapi.json")
        assert status == 200 and headers["Content-Type"] == "application/json"

    def resolve(self, schema):
        while "$ref" in schema:
            node = self.doc
            for part in schema["$ref"].removeprefix("#/").split("/"):
                node = node[part]
            schema = node
        return schema

    def body(self, path):
        content = self.doc["paths"][path]["post"]["requestBody"]["content"]
        return self.resolve(content["application/json"]["schema"])

    def fields(self, path):
        """The schemas of a body's members by name."""
        schema = self.body(path)
        found = {}
        for part in (*schema.get("allOf", ()), *schema.get("anyOf", ()), schema):
            found |= self.resolve(part).get("properties", {})
        return {name: self.resolve(value) for name, value in found.items()}

    def check(self, instance, schema):
        """The response's errors."""
        whole = {**schema, "components": self.doc["components"]}
        validator = jsonschema.Draft202012Validator(whole)
        return [error.message for error in validator.iter_errors(instance)]


def beyond(schema):
    """Values just outside a field's schema."""
    for name, step in (("minimum", -1), ("maximum", 1)):
        if name in schema and abs(schema[name]) < 2**63 - 1:
            yield schema[name] + step
    for name in ("exclusiveMinimum", "exclusiveMaximum"):
        if name in schema:
            yield schema[name]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "integer" in kinds:
        yield 1.5
    if kinds and not {"string", "object"} & set(kinds):
        yield "nonsense"
    if kinds and "array" not in kinds:
        yield [[]]
    if "enum" in schema:
        yield "nonsense"
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if schema.get("minLength") == 1:
        yield ""
    if schema.get("minItems") == 1:
        yield []
    if "maxItems" in schema:
        yield [5] * (schema["maxItems"] + 1)
    if "maxProperties" in schema:
        yield {str(i): 1 for i in range(schema["maxProperties"] + 1)}


def within(schema):
    """Values at a field's bounds."""
    for name in ("minimum", "maximum"):
        if name in schema:
            yield schema[name]
    yield from schema.get("enum", ())
    if "maxLength" in schema:
        yield "x" * schema["maxLength"]
    if "maxItems" in schema and schema.get("items", {}).get("type") in ("string", "integer"):
        yield ["x" if schema["items"]["type"] == "string" else 5] * schema["maxItems"]
    kinds = schema.get("type", [])
    if "null" in kinds:
        yield None
    if "boolean" in kinds:
        yield True


class OpenapiTest(base.ServerTest):
    """On a model that takes ids only."""

    words = ("--ctx", 64)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.api = Description(cls.server)

    # ---- routes ----

    def test_every_route_is_described(self):
        ids = []
        for path, methods in self.api.doc["paths"].items():
            for method, operation in methods.items():
                with self.subTest(method=method, path=path):
                    self.assertNotIn("x-undescribed", operation, "add it to src/serving/http/openapi.json")
                    self.assertTrue(operation["summary"].endswith("."))
                    self.assertIn("200", operation["responses"])
                    self.assertEqual("requestBody" in operation, method == "post")
                    ids.append(operation["operationId"])
        self.assertEqual(len(ids), len(set(ids)))

    def test_every_description_has_a_route(self):
        for path, methods in HANDMADE["paths"].items():
            for method in methods:
                body = "{" if method == "post" else None  # no JSON
                named = path.replace("{model}", self.model.stem)
                status, _, _ = self.server.ask(method.upper(), named, body)
                # Readers have a path that servers which answer have not.
                self.assertIn(status, {"/read": (404,), "/slots/{slot}": (501,)}.get(path, (200, 400)), (method, path))
            status, headers, _ = self.server.ask("DELETE", path)
            self.assertEqual(status, 405)
            told = {m.strip().lower() for m in headers["Allow"].split(",")} - {"head"}
            self.assertEqual(told, set(methods), path)

    def test_references_and_schemas(self):
        for node in walk(self.api.doc):
            if isinstance(node, dict) and isinstance(node.get("$ref"), str):
                self.api.resolve(node)
        self.assertNotIn("x-fields", json.dumps(self.api.doc))
        if jsonschema is None:
            self.skipTest("the package jsonschema is not installed")
        for schema in self.api.doc["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)

    # ---- fields ----

    def test_every_field_that_is_read_is_described(self):
        described = {name for node in walk(self.api.doc) if isinstance(node, dict)
                     for name in node.get("properties", {})}  # fmt: skip
        read = set()
        for path in sorted(SERVER.rglob("*.c")):
            text = path.read_text()
            read |= set(re.findall(r'json_(?:body|object)_(?:get|flag)\(\s*(?:a->|r->|r\.)?body,\s*"(\w+)"', text))
            read |= set(re.findall(r'\{"(\w+)", SKV_GRAMMAR_', text))
            read |= set(re.findall(r'\bPARAM\(\w+, "(\w+)"', text))
        read |= set(re.findall(r'\{"(\w+)", "\w+", SKV_FIELD_', SAMPLING.read_text()))
        self.assertGreater(len(read), 20)
        self.assertEqual(read - described, set())

    def probe(self, path, field, value):
        body = dict(PROBED[path])
        body |= {"logprobs": True} if field == "top_logprobs" and value else {}
        status, _, answer = self.server.ask("POST", path, body | {field: value})
        if isinstance(answer, str):  # events
            self.assertEqual(field, "stream")
            return status, None, answer
        return status, answer.get("error", {}).get("param"), answer

    def paths(self):
        return ("/v1/completions", "/v1/embeddings")

    @unittest.skipUnless(jsonschema, "the package jsonschema is not installed")
    def test_what_is_outside_is_refused_by_name(self):
        n = 0
        for path in self.paths():
            for field, schema in self.api.fields(path).items():
                for part in schema.get("anyOf", [schema]):
                    for value in beyond(self.api.resolve(part)):
                        if not self.api.check(value, schema):
                            continue  # another alternative allows it
                        with self.subTest(path=path, field=field, value=str(value)[:30]):
                            status, param, answer = self.probe(path, field, value)
                            self.assertIn(status, (400, 404), answer)
                            self.assertEqual(param, field, answer)
                            n += 1
        self.assertGreater(n, 60)

    def test_what_is_inside_is_taken(self):
        for path in self.paths():
            for field, schema in self.api.fields(path).items():
                for part in schema.get("anyOf", [schema]):
                    for value in within(self.api.resolve(part)):
                        if (field in BIG and value) or value in ELSEWHERE or field == "input":
                            continue
                        if value is None and field in PROBED[path]:
                            continue
                        if field == "continue_final_message" and value:
                            continue  # of another conversation
                        with self.subTest(path=path, field=field, value=str(value)[:30]):
                            self.inside(path, field, value)

    def inside(self, path, field, value):
        if field == "stop" and value is not None:
            self.skipTest("stop texts need a tokenizer")
        status, _, answer = self.probe(path, field, value)
        self.assertEqual(status, 200, answer)

    # ---- responses ----

    def requests(self):
        """(method, path, body) that are answered."""
        ids = base.prompt_of(5)
        yield "GET", "/v1/models", None
        yield "GET", "/tokenizer_info", None
        yield "GET", "/health", None
        yield "POST", "/v1/completions", {"prompt": ids, "max_tokens": 3, "logprobs": 2, "echo": True}
        yield "POST", "/v1/completions", {"prompt": [ids, ids], "max_tokens": 2, "n": 2}
        yield "POST", "/v1/embeddings", {"input": ids}
        yield "POST", "/v1/embeddings", {"input": [ids], "encoding_format": "base64"}

    @unittest.skipUnless(jsonschema, "the package jsonschema is not installed")
    def test_responses_are_as_described(self):
        for method, path, body in self.requests():
            with self.subTest(path=path):
                status, _, answer = self.server.ask(method, path, body)
                self.assertEqual(status, 200, answer)
                operation = self.api.doc["paths"][path][method.lower()]
                content = operation["responses"]["200"]["content"]["application/json"]
                self.assertEqual(self.api.check(answer, content["schema"]), [])
                if body is not None:
                    self.assertEqual(self.api.check(body, self.api.body(path)), [])

    @unittest.skipUnless(jsonschema, "the package jsonschema is not installed")
    def test_errors_are_as_described(self):
        for path, methods in self.api.doc["paths"].items():
            operation = methods.get("post") or methods["get"]
            refused = self.api.resolve(operation["responses"]["4XX"])
            schema = refused["content"]["application/json"]["schema"]
            _, _, answer = self.server.ask("POST", path, "{")
            self.assertEqual(self.api.check(answer, schema), [], path)

    def test_version_and_name(self):
        self.assertRegex(self.api.doc["info"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(self.api.doc["components"]["schemas"]["Model"]["enum"], [base.PLAIN.name, "", None])
        self.assertNotIn("security", self.api.doc)


@unittest.skipUnless(base.STORIES.exists(), "../shared/assets is absent")
class TextOpenapiTest(OpenapiTest):
    """The same with texts."""

    model = base.STORIES

    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
            file.write(base.CHATML)
            file.flush()
            cls.words = ("--ctx", 64, "--template", file.name)  # it is read when the server starts
            super().setUpClass()

    def paths(self):
        return tuple(PROBED)

    def inside(self, path, field, value):
        status, _, answer = self.probe(path, field, value)
        self.assertEqual(status, 200, answer)

    def requests(self):
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        yield from super().requests()
        yield "POST", "/v1/chat/completions", chat | {"max_tokens": 3}
        yield "POST", "/v1/chat/completions", chat | {"max_tokens": 3, "logprobs": True, "top_logprobs": 2}
        yield "POST", "/v1/completions", {"prompt": "Once", "max_tokens": 9, "stop": "e"}
        for words in ({"prompt": "Once"}, {"content": "Once"}, chat):
            yield "POST", "/tokenize", words
        yield "POST", "/detokenize", {"tokens": [5, 6]}
        yield "POST", "/apply-template", chat
        yield "POST", "/v1/messages", chat | {"max_tokens": 3}
        yield "POST", "/v1/messages/count_tokens", chat
        yield "POST", "/v1/responses", {"input": "Hi", "max_output_tokens": 3}

    def test_version_and_name(self):
        self.assertEqual(
            self.api.doc["components"]["schemas"]["Model"]["enum"], ["stories260k-f32", "", None]
        )


class KeyedOpenapiTest(unittest.TestCase):
    def test_keys_are_described(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("one-key\n")
            file.flush()
            server = base.Server(base.PLAIN, "--api-key-file", file.name)
            self.addCleanup(server.stop)
            self.assertEqual(server.ask("GET", "/openapi.json")[0], 401)
            doc = server.ask("GET", "/openapi.json", None, {"X-Api-Key": "one-key"})[2]
        self.assertEqual(doc["security"], [{"bearer": []}, {"key": []}])
        self.assertEqual(doc["paths"]["/health"]["get"]["security"], [])


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
