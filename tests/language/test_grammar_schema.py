#!/usr/bin/env python3
"""JSON schemas: what the masks let through is valid, and what is valid gets through.

The oracle is the package jsonschema. The cases of tests/data/grammar/schemas.json hold schemas
with valid values (their properties in the order of the schema) and invalid ones.
"""

import json
import random
import string
import sys
import unittest

from grammar_tool import ROOT, Grammar

try:
    import jsonschema
except ImportError:
    print("the package jsonschema is not installed")
    sys.exit(77)

CASES = json.loads((ROOT / "tests/data/grammar/schemas.json").read_text())


def spellings(value):
    """A value as clients and models write it."""
    yield json.dumps(value, ensure_ascii=False)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    yield json.dumps(value, ensure_ascii=False, indent=2)
    yield json.dumps(value, ensure_ascii=False, indent="\t")


def validator(schema):
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    return kind(schema, format_checker=getattr(kind, "FORMAT_CHECKER", None))


def make_schema(rng, depth):
    """A random schema of the supported keywords and a maker of valid values for it."""
    roll = rng.randrange(9 if depth > 0 else 6)
    if roll == 0:
        low, high = sorted(rng.randint(-(10 ** rng.randint(1, 6)), 10**6) for _ in range(2))
        return ({"type": "integer", "minimum": low, "maximum": high},
                lambda r: r.randint(low, high))
    if roll == 1:
        low, high = sorted(round(rng.uniform(-100, 100), rng.randint(0, 3)) for _ in range(2))
        return ({"type": "number", "minimum": low, "maximum": high},
                lambda r: min(high, max(low, round(r.uniform(low, high), r.randint(0, 6)))))
    if roll == 2:
        low = rng.randint(0, 5)
        high = low + rng.randint(0, 30)
        letters = string.ascii_letters + "\u00e4\u20ac\U0001f642 \"\\/\n"
        return ({"type": "string", "minLength": low, "maxLength": high},
                lambda r: "".join(r.choice(letters) for _ in range(r.randint(low, high))))
    if roll == 3:
        values = [rng.choice([None, True, 17, -2.5, "a\"b", "", "\u00e4", [1, "x"], {"k": []}])
                  for _ in range(3)]
        return {"enum": values}, lambda r: r.choice(values)
    if roll == 4:
        return {"type": ["boolean", "null"]}, lambda r: r.choice([True, False, None])
    if roll == 5:
        return ({"type": "string"},
                lambda r: "".join(chr(r.choice([32, 65, 0x7f, 0xe9, 0x4e2d, 0x1f600, 9, 0]))
                                  for _ in range(r.randint(0, 8))))
    if roll == 6:
        inner, make = make_schema(rng, depth - 1)
        low = rng.randint(0, 3)
        high = low + rng.randint(0, 4)
        return ({"type": "array", "items": inner, "minItems": low, "maxItems": high},
                lambda r: [make(r) for _ in range(r.randint(low, high))])
    if roll == 7:
        parts = [make_schema(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        return {"anyOf": [p[0] for p in parts]}, lambda r: r.choice(parts)[1](r)
    return make_object(rng, depth)


def make_object(rng, depth):
    names = rng.sample(["a", "ab", "abc", "b", "\u00e4", "a b", "x\"y", "n\n", ""], rng.randint(0, 5))
    inner = {name: make_schema(rng, depth - 1) for name in names}
    required = [name for name in names if rng.random() < 0.5]
    schema = {"type": "object", "properties": {k: v[0] for k, v in inner.items()},
              "required": required, "additionalProperties": False}
    more = make_schema(rng, depth - 1) if rng.random() < 0.4 else None
    if more:
        schema["additionalProperties"] = more[0]

    def make(r):
        value = {k: v[1](r) for k, v in inner.items() if k in required or r.random() < 0.5}
        for name in ["abcd", "aa", "z", "\u00e5", "x"] if more else []:
            if r.random() < 0.3:
                value[name] = more[1](r)
        return value

    return schema, make


class Schema(unittest.TestCase):
    def setUp(self):
        self.tool = Grammar()

    def tearDown(self):
        self.tool.close()

    def walk_all(self, schema, n_walks):
        """Complete walks have to be valid; returns how many were complete."""
        check = validator(schema)
        n_complete = 0
        for seed in range(n_walks):
            text, complete = self.tool.walk(seed, 400)
            if complete:
                n_complete += 1
                with self.subTest(schema=schema, text=text):
                    check.validate(json.loads(text.decode()))
        return n_complete

    def test_cases(self):
        for case in CASES:
            with self.subTest(case=case["name"]):
                error = self.tool.compile("schema", json.dumps(case["schema"]))
                self.assertIsNone(error)
                check = validator(case["schema"])
                for value in case["valid"]:
                    check.validate(value)
                    for text in spellings(value):
                        self.assertEqual(self.tool.match(text), "complete", text)
                for value in case["invalid"]:
                    if "format" not in case["schema"]:  # the oracle does not know all
                        self.assertFalse(check.is_valid(value), value)
                    for text in spellings(value):
                        self.assertNotEqual(self.tool.match(text), "complete", text)
                self.assertGreater(self.walk_all(case["schema"], 40), 4)

    def test_cases_masks(self):
        for i, case in enumerate(CASES):
            with self.subTest(case=case["name"]):
                self.tool.compile("schema", json.dumps(case["schema"]))
                self.assertRegex(self.tool.check(i, 40), "^ok")

    def test_random(self):
        rng = random.Random(4)
        n_complete = n_valid = 0
        for _ in range(250):
            schema, make = make_schema(rng, 3)
            error = self.tool.compile("schema", json.dumps(schema))
            self.assertIsNone(error, schema)
            n_complete += self.walk_all(schema, 6)
            check = validator(schema)
            for _ in range(6):
                value = make(rng)
                if not check.is_valid(value):
                    continue
                n_valid += 1
                for text in spellings(value):
                    with self.subTest(schema=schema, text=text):
                        self.assertEqual(self.tool.match(text), "complete")
        self.assertGreater(n_complete, 1200)
        self.assertGreater(n_valid, 1200)

    def test_integer_ranges(self):
        """Every integer near the bounds of many ranges."""
        rng = random.Random(5)
        for _ in range(120):
            size = 10 ** rng.randint(1, 5)
            low, high = sorted(rng.randint(-size, size) for _ in range(2))
            schema = {"type": "integer", "minimum": low, "exclusiveMaximum": high + 1}
            self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
            near = {base + d for base in (low, high, 0, 10, -10, 100, 1000) for d in range(-12, 13)}
            values = sorted(near | {rng.randint(-2 * size, 2 * size) for _ in range(20)})
            for value, found in zip(values, self.tool.match_all(map(str, values))):
                self.assertEqual(found == "complete", low <= value <= high, (schema, value))

    def test_number_ranges(self):
        rng = random.Random(6)
        for _ in range(150):
            low, high = sorted(round(rng.uniform(-150, 150), rng.randint(0, 4)) for _ in range(2))
            keys = rng.choice(["minimum", "exclusiveMinimum"]), rng.choice(
                ["maximum", "exclusiveMaximum"])
            schema = {"type": "number", keys[0]: low, keys[1]: high}
            if self.tool.compile("schema", json.dumps(schema)):
                self.assertEqual(low, high)
                continue
            check = validator(schema)
            for _ in range(60):
                base = rng.choice([low, high, 0, rng.uniform(-200, 200)])
                value = round(base + rng.choice([0, 0.1, -0.1, 1, -1, 0.001, -0.0001]), 6)
                text = format(value, "f").rstrip("0").rstrip(".")
                if text in ("-0", ""):
                    continue
                expected = check.is_valid(json.loads(text))
                self.assertEqual(self.tool.match(text) == "complete", expected, (schema, text))

    def test_refusals(self):
        """What cannot be followed is named, not ignored."""
        keywords = {"not": {}, "if": {}, "patternProperties": {}, "propertyNames": {},
                    "uniqueItems": True, "multipleOf": 3, "contains": {}, "minProperties": 1,
                    "dependentRequired": {}, "unevaluatedProperties": False, "$dynamicRef": "#a",
                    "nonsense": 1}
        for keyword, value in keywords.items():
            for schema, path in (({keyword: value}, "/"),
                                 ({"properties": {"a": {keyword: value}}}, "/properties/a")):
                error = self.tool.compile("schema", json.dumps(schema))
                self.assertIsNotNone(error, keyword)
                self.assertIn(f'"{keyword}" is not supported', error)
                self.assertTrue(error.startswith(f"json schema: {path}: "), error)
        refused = [
            ({"type": "string", "format": "iri"}, 'the format "iri"'),
            ({"type": "string", "pattern": "(?=a)b"}, "lookahead"),
            ({"type": "string", "pattern": "a", "maxLength": 3}, '"maxLength" beside "pattern"'),
            ({"$ref": "https://example.org/x"}, 'only "#/..."'),
            ({"$ref": "#/$defs/no"}, "which is not there"),
            ({"$ref": "#"}, "nothing can match"),
            ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "left recursion"),
            ({"type": "text"}, '"type" is none of'),
            ({"type": "array", "minItems": -1}, '"minItems"'),
            ({"enum": []}, '"enum"'),
            ({"type": "integer", "enum": [1], "minimum": 0}, '"minimum"'),
            ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, '"pattern" of two schemas'),
            ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "nothing can match"),
            ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "nothing can match"),
            ([3], "no schema"),
        ]
        for schema, words in refused:
            with self.subTest(schema=schema):
                self.assertIn(words, self.tool.compile("schema", json.dumps(schema)) or "")
        for text in ("{", "", '{"a":1,"a":2}', "[" * 100):
            self.assertIsNotNone(self.tool.compile("schema", text), text)

    def test_objects(self):
        self.assertIsNone(self.tool.compile("object"))
        for value in ({}, {"a": [1, {"b": [None, True, -1.5e9]}]}, {"": ""}):
            for text in spellings(value):
                self.assertEqual(self.tool.match(text), "complete", text)
        for text in ("[]", '{"a":01}', '{"a":}', '{"a" :1}', '{"a":"\\ud800"}', '{"a":1,}',
                     '{"a":"\n"}', '{}{}', "{'a':1}", '{"a":.5}', '{"a":NaN}'):
            self.assertNotEqual(self.tool.match(text), "complete", text)
        for seed in range(200):
            text, complete = self.tool.walk(seed, 300)
            if complete:
                self.assertIsInstance(json.loads(text.decode()), dict)

    def test_forced(self):
        schema = {"type": "object", "properties": {"name": {"const": "x"}, "b": {"type": "null"}},
                  "required": ["name", "b"]}
        self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
        self.assertEqual(self.tool.forced(""), b"{")
        self.assertEqual(self.tool.forced('{"'), b'name":')
        self.assertEqual(self.tool.forced('{"name":"'), b'x",')
        self.assertEqual(self.tool.forced('{"name":"x","b":n'), b"ull")


if __name__ == "__main__":
    unittest.main()
