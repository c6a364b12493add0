#!/usr/bin/env python3
"""JSON schemas: what the masks let through is valid, and what is valid gets through.

The oracle is the package jsonschema. The cases of tests/data/grammar/schemas.json hold schemas
with valid values (their properties in the order of the schema) and invalid ones.
"""

import base64
import datetime
import decimal
import fractions
import ipaddress
import itertools
import json
import pathlib
import re
import string
import sys
import typing
import unittest
import uuid

from grammar_tool import ROOT, Grammar, generator
from test_grammar_regex import ALPHABET, make_regex

try:
    import jsonschema
except ImportError:
    print("the package jsonschema is not installed")
    sys.exit(77)
try:
    import pydantic
except ImportError:
    pydantic = None

# What reads values of a format, where jsonschema asks for packages that may be missing, or knows none.
FORMATS = {
    "ipv4network": lambda v: ipaddress.IPv4Interface(v), "ipv4interface": ipaddress.IPv4Interface,
    "ipv6network": lambda v: ipaddress.IPv6Interface(v), "ipv6interface": ipaddress.IPv6Interface,
    "ipvanyaddress": ipaddress.ip_address, "ipvanyinterface": ipaddress.ip_interface, "fraction": fractions.Fraction,
    "ipvanynetwork": ipaddress.ip_interface, "base64": lambda v: base64.b64decode(v, validate=True),
    "byte": lambda v: base64.b64decode(v, validate=True), "base64url": base64.urlsafe_b64decode, "regex": re.compile,
}
if pydantic:
    for name, kind in {"duration": datetime.timedelta, "uri": pydantic.AnyUrl, "uuid4": pydantic.UUID4, "uuid1": pydantic.UUID1,
                       "uuid3": pydantic.UUID3, "uuid5": pydantic.UUID5, "date": datetime.date, "time": datetime.time,
                       "date-time": datetime.datetime, "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address}.items():
        FORMATS[name] = pydantic.TypeAdapter(kind).validate_python

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

    def walk_all(self, schema, n_walks, n_wanted=None):
        """Complete walks have to be valid; returns how many were complete. Where so many are wanted, walks go on for a while."""
        check = validator(schema)
        n_complete = 0
        for seed in range(25 * n_walks if n_wanted else n_walks):
            if seed >= n_walks and n_complete >= n_wanted:
                break
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
                self.assertGreater(self.walk_all(case["schema"], 40, 5), 4)

    def test_cases_masks(self):
        for i, case in enumerate(CASES):
            with self.subTest(case=case["name"]):
                self.tool.compile("schema", json.dumps(case["schema"]))
                self.assertRegex(self.tool.check(i, 40), "^ok")

    def test_random(self):
        rng = generator(4)
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
        rng = generator(5)
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
        rng = generator(6)
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
                if text == "" or text == "-0" and low >= 0:  # a sign is no beginning of what is not negative
                    continue
                expected = check.is_valid(json.loads(text))
                self.assertEqual(self.tool.match(text) == "complete", expected, (schema, text))

    def test_zero_with_a_sign(self):
        for bounds, signed in (({"minimum": -6.1, "maximum": 10}, True), ({"minimum": -1, "maximum": 0}, True), ({"maximum": 3}, True),
                               ({"exclusiveMaximum": 0}, False), ({"minimum": -1, "exclusiveMaximum": 0}, False), ({"minimum": -2, "maximum": -1}, False)):
            schema = {"type": "number", **bounds}
            self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
            for text in ("-0.0", "-0", "-0.000"):
                self.assertEqual(validator(schema).is_valid(json.loads(text)), signed)
                self.assertEqual(self.tool.match(text) == "complete", signed, (schema, text))

    def test_refusals(self):
        """What cannot be followed is named, not ignored."""
        keywords = {"not": {}, "if": {}, "contains": {},
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
            ({"type": "string", "format": "date", "maxLength": 9}, "nothing can match"),
            ({"type": "string", "pattern": "^[a-z]*(?:x|yz){3}$", "maxLength": 9000}, '"maxLength" beside "pattern" takes'),
            ({"type": "string", "format": "uri", "minLength": 900}, '"minLength" beside "format" takes'),
            ({"properties": {"a": {}}, "patternProperties": {"b": {}}}, '"patternProperties" is not supported here'),
            ({"patternProperties": {"b": {}, "c": {}}}, '"patternProperties" is not supported here'),
            ({"patternProperties": {"b": {}}, "additionalProperties": True}, '"patternProperties"'),
            ({"patternProperties": {"(?=b)": {}}}, "lookahead"),
            ({"required": ["a"], "propertyNames": {"minLength": 1}}, '"propertyNames" is not supported here'),
            ({"propertyNames": {"anyOf": [{"const": "a"}]}}, '"propertyNames" is not supported here'),
            ({"propertyNames": {"not": {}}}, '/propertyNames: the keyword "not"'),
            ({"minProperties": 2}, '"minProperties" is not supported here'),
            ({"properties": {"a": {}}, "maxProperties": 1}, '"maxProperties" is not supported here'),
            ({"minProperties": 1, "maxProperties": 0}, "nothing can match"),
            ({"type": "array", "uniqueItems": True}, '"uniqueItems" is supported for'),
            ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, '"uniqueItems"'),
            ({"type": "integer", "multipleOf": 0}, '"multipleOf"'),
            ({"type": "integer", "multipleOf": 1e-30}, '"multipleOf"'),
            ({"type": "integer", "multipleOf": 999983}, '"multipleOf"'),
            ({"type": "integer", "const": "a"}, "nothing can match"),
            ({"type": "string", "const": 1}, "nothing can match"),
            ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3}, "nothing can match"),
            ({"type": "string", "pattern": "(?=a)b"}, "lookahead"),
            ({"type": "string", "pattern": "^a{4}$", "maxLength": 3}, "nothing can match"),
            ({"type": "string", "pattern": "^(?!a)b", "maxLength": 3}, "lookahead"),
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

    def test_places(self):
        """A limit that a schema exceeds is told with the place in it."""
        inner = {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}
        schema = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
        cases = [({"type": "string", "maxLength": 25000}, '"maxLength" is 25000'),
                 ({"type": "string", "minLength": 300000}, '"minLength" is 300000'),
                 ({"type": "string", "pattern": "^(ab?c?d?e?){90000}$"}, "524288 states")]
        for value, said in cases:
            inner["properties"]["b"] = value
            error = self.tool.compile("schema", json.dumps(schema)) or ""
            self.assertIn("/properties/b", error)
            self.assertIn(said, error)

    def test_long_strings(self):
        """Lengths that answers have, many equal ones, and escapes, which take room in the automaton."""
        for n in (3000, 20000):
            schema = {"type": "string", "maxLength": n, "minLength": 5}
            self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
            for text, fits in (("a" * n, True), ("a" * (n + 1), False), ("abcd", False), ("\u00e4\n\x01\x1f\"" * (n // 5), True)):
                self.assertEqual(self.tool.match(json.dumps(text, ensure_ascii=False)) == "complete", fits)
        names = [f"p{i}" for i in range(40)]
        schema = {"type": "object", "properties": {k: {"type": "string", "maxLength": 3000} for k in names}, "required": names}
        self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
        loose = json.dumps({"schema": {"type": "string", "maxLength": 90000, "minLength": 3}, "loose": True})
        self.assertIsNone(self.tool.compile("parts", loose))
        self.assertEqual(self.tool.match('"' + "a" * 95000 + '"'), "complete")

    def test_characters(self):
        """Each character has its one spelling inside a string with a length; escapes may be of any case."""
        self.assertIsNone(self.tool.compile("schema", '{"type":"string","minLength":1,"maxLength":1}'))
        for code in [*range(0x180), 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff]:
            text = json.dumps(chr(code), ensure_ascii=False)
            self.assertEqual(self.tool.match(text), "complete", text)
            if code < 32 and "u00" in text:
                self.assertEqual(self.tool.match(text.upper().replace("U", "u")), "complete", text)
        for text in ("\"\\/\"", "\"\\u0041\"", "\"\\u0020\"", "\"\\u000a\"", "\"\n\"", "\"\""):
            self.assertNotEqual(self.tool.match(text), "complete", text)

    def test_names_that_are_begun(self):
        """Where undeclared members are allowed, an optional name that is begun can be ended."""
        rng = generator(9)
        for _ in range(60):
            names = rng.sample(["name", "age", "nam", "names", "n", "a", "", "x\"y", "\u00e4", "agent"], rng.randint(1, 6))
            kinds = {k: rng.choice([{"type": "integer"}, {"type": "string"}, {"enum": ["q", 7]}]) for k in names}
            required = [k for k in names if rng.random() < 0.4]
            more = rng.choice([True, {"type": "boolean"}])
            schema = {"type": "object", "properties": kinds, "required": required, "additionalProperties": more}
            self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
            check = validator(schema)
            first = {k: {"integer": 1, "string": "s"}.get(kinds[k].get("type"), "q") for k in names if k in required}
            late = {k: {"integer": 1, "string": "s"}.get(kinds[k].get("type"), 7) for k in names if k not in required}
            order = list(late)
            rng.shuffle(order)
            value = first | {"zz": True} | {k: late[k] for k in order}
            check.validate(value)
            for text in spellings(value):
                self.assertEqual(self.tool.match(text), "complete", (schema, text))
            for name in order:  # a value that the name's schema does not allow
                bad = first | {"zz": True, name: [1]}
                self.assertFalse(check.is_valid(bad))
                self.assertEqual(self.tool.match(json.dumps(bad)), "no", (schema, bad))
            for name in required:  # it stands already
                text = json.dumps(first | {"zz": True})[:-1] + ", " + json.dumps(name, ensure_ascii=False) + ":"
                self.assertEqual(self.tool.match(text), "no", (schema, text))
            self.walk_all(schema, 5)

    def test_dates(self):
        """Every day around the ends of February, of many years, as Python has them."""
        self.assertIsNone(self.tool.compile("schema", '{"type":"string","format":"date"}'))
        years = [0, 1, 4, 100, 400, 999, 1600, 1899, 1900, 1904, 2000, 2023, 2024, 2100, 2400, 9996, 9999]
        days = [f"{y:04}-{m:02}-{d:02}" for y in years for m in range(14) for d in (0, 1, 28, 29, 30, 31, 32)]
        for day, found in zip(days, self.tool.match_all(f'"{day}"' for day in days)):
            try:
                datetime.date.fromisoformat(day)
                fits = True
            except ValueError:
                fits = False
            self.assertEqual(found == "complete", fits, day)

    def check_format(self, name, more, valid, invalid):
        schema = {"type": "string", "format": name, **more}
        self.assertIsNone(self.tool.compile("schema", json.dumps(schema)), schema)
        check = validator(schema)
        n_complete = 0
        for seed in range(150):
            text, complete = self.tool.walk(seed, 600)
            if complete:
                n_complete += 1
                value = json.loads(text.decode())
                check.validate(value)
                FORMATS.get(name, lambda v: None)(value)
        self.assertGreater(n_complete, 20, schema)
        for value in valid:
            self.assertEqual(self.tool.match(json.dumps(value)), "complete", (name, value))
        for value in invalid:
            self.assertNotEqual(self.tool.match(json.dumps(value)), "complete", (name, value))

    def test_formats(self):
        """What is generated of a format passes jsonschema's checker, and what reads such values."""
        u = "12345678-9abc-{}def-8000-0123456789ab"
        cases = {
            "date": (["2024-02-29"], ["2023-02-29"]), "time": (["23:59:59.5Z"], ["24:00:00Z"]),
            "date-time": (["2000-02-29T01:02:03+05:30"], ["2100-02-29T01:02:03Z", "2024-01-01"]),
            "duration": (["PT1H30M", "P1DT2H", "P3W", "PT0S", "P1Y2M10DT2H30M5S", "PT1H3S"],
                         ["P", "PT", "1D", "P1H", "P1W2D", "PT1S2M", "P2D1Y"]),
            "uuid": ([u.format(1), u.format("a").upper()], [u.format(1)[1:], u.format("g")]),
            "uuid4": ([u.format(4)], [u.format(1)]), "uuid1": ([u.format(1)], [u.format(4)]),
            "uuid3": ([u.format(3)], []), "uuid5": ([u.format(5)], []), "uuid7": ([u.format(7)], []),
            "ipv4": (["127.0.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
            "ipv6": (["::", "::1", "1::", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::", "2001:db8::"],
                     [":", "1", "1::2::3", "1:2:3:4:5:6:7:8:9", "12345::", ":::"]),
            "ipv4network": (["10.0.0.0/8", "1.2.3.4"], ["1.2.3.4/33"]), "ipv4interface": (["10.0.0.1/8"], []),
            "ipv6network": (["fe80::/10"], ["::/129"]), "ipv6interface": (["::1/128"], []),
            "ipvanyaddress": (["::1", "1.2.3.4"], ["x"]), "ipvanyinterface": (["::1/3"], []), "ipvanynetwork": (["::/3"], []),
            "hostname": (["example.org", "a", "a-b.c"], ["-a", "a-", "a..b", ""]),
            "email": (["a.b+c@example.org"], ["a", "@b.cd", "a@b"]),
            "uri": (["https://example.org", "http://a.b:8080/c/d?e=f&g#h", "mailto:a@b.c", "ftp://u:p@h/x", "http://[::1]:80/",
                     "urn:isbn:1", "https://example.org/%C3%A4"], ["example.org", "http://a b", "1a:b", "http://a/%zz", ""]),
            "multi-host-uri": (["postgres://u:p@h:5432/db"], ["x"]),
            "regex": (["^a+b?$", "[a-z]{3}|\\d+", "(ab|c)*", ""], ["(", "[", "*a", "a**", "a{", "\\"]),
            "base64": (["", "YQ==", "YWI=", "YWJj"], ["YQ", "=", "YQ==YQ=="]), "base64url": (["-_-_"], ["+/+/"]),
            "byte": (["YQ=="], ["Y"]), "fraction": (["1/2", "-3"], ["1/0", "1/"]),
            "password": (["any \u00e4"], []), "binary": (["x"], []), "path": (["/a b"], []), "file-path": (["a"], []),
            "directory-path": (["a/"], []),
        }
        for name, (valid, invalid) in cases.items():
            with self.subTest(format=name):
                self.check_format(name, {}, valid, invalid)

    def test_lengths_beside_formats(self):
        self.check_format("uri", {"minLength": 1, "maxLength": 2083}, ["https://a.b/" + "x" * 500], ["https://a.b/" + "x" * 2083])
        self.check_format("uri", {"minLength": 1}, ["https://a.b/" + "x" * 5000], [])
        self.check_format("password", {"minLength": 8, "maxLength": 9}, ["12345678"], ["1234567"])
        self.check_format("uuid", {"minLength": 36, "maxLength": 40}, [], [])

    def test_patterns_beside_lengths(self):
        """Random patterns with random bounds, on random texts and walks: like Python's re and len."""
        rng = generator(5)
        compared = matched = 0
        for _ in range(400):
            pattern = make_regex(rng, 3)
            pattern = rng.choice(["", "^"]) + f"(?:{pattern})" + rng.choice(["", "$"])
            low, high = sorted(rng.randint(0, 6) for _ in range(2))
            schema = {"type": "string", "pattern": pattern, **rng.choice([{"minLength": low}, {"maxLength": high},
                                                                         {"minLength": low, "maxLength": high}])}  # fmt: skip
            try:
                oracle = re.compile(pattern.removesuffix("$") + "\\Z" * pattern.endswith("$"), re.ASCII)
            except re.error:
                continue
            error = self.tool.compile("schema", json.dumps(schema))
            if error and "nothing can match" in error:
                continue
            self.assertIsNone(error, schema)
            walks = [json.loads(text) for text, whole in (self.tool.walk(seed, 12) for seed in range(6)) if whole]
            texts = walks + ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 7))) for _ in range(12)]
            texts += [walk[:-1] for walk in walks] + [walk + "a" for walk in walks]
            spelled = [json.dumps(text, ensure_ascii=False) for text in texts]
            for text, found in zip(texts, self.tool.match_all(spelled)):
                fits = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 99)
                expected = bool(oracle.search(text)) and fits
                self.assertEqual(found == "complete", expected, (schema, text))
                compared += 1
                matched += expected
        self.assertGreater(compared, 5000)
        self.assertGreater(matched, 1000)

    def test_patterns_beside_formats(self):
        self.check_format("email", {"pattern": "@example\\.org$"}, ["a.b@example.org"], ["a@example.com", "@example.org"])
        self.check_format("date", {"pattern": "^20"}, ["2024-02-29"], ["1999-12-31", "2023-02-29", "20"])
        self.check_format("uuid", {"pattern": "^[^A-Z]*$", "maxLength": 36}, ["0" * 8 + "-1111-2222-3333-" + "a" * 12],
                          ["0" * 8 + "-1111-2222-3333-" + "A" * 12])  # fmt: skip
        self.check_format("hostname", {"minLength": 4, "maxLength": 6}, ["ab.c", "abcdef"], ["abc", "abc.def", "-abc"])

    def test_decimals_of_pydantic(self):
        """All short texts of digits, signs and points: those that the pattern of pydantic 2.12 and 2.13 holds whole, no others."""
        begin = "^(?!^[-+.]*$)[+-]?0*"
        texts = [sign + "".join(t) for n in range(7) for t in itertools.product("09.", repeat=n) for sign in ("", "-")]
        for digits, places in ((None, None), (None, 2), (None, 0), (3, None), (1, None), (4, 2), (2, 2), (2, 0), (1, 3)):
            rest = r"\d*\.?\d*$" if places is None else rf"\d*\.?\d{{0,{places}}}0*$"
            if digits is not None:
                whole = rf"\d{{0,{max(0, digits - (places or 0))}}}"
                parts = r"\d*\.\d*" if places is None else rf"{whole}\.\d{{0,{places}}}"
                rest = rf"(?:{whole}|(?=[\d.]{{1,{digits + 1}}}0*$){parts}0*$)"
            schema = {"type": "string", "pattern": begin + rest}
            with self.subTest(digits=digits, places=places, schema=schema):
                self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
                wanted, n = re.compile(schema["pattern"]), 0
                for text, found in zip(texts, self.tool.match_all([f'"{text}"' for text in texts])):
                    expected = bool(wanted.fullmatch(text))
                    self.assertEqual(found == "complete", expected, text)
                    n += expected
                self.assertGreater(n, 20)

    def test_multiples(self):
        """Multiples within bounds, all integers near them; decimals by exact arithmetic."""
        rng = generator(11)
        for _ in range(120):
            step = rng.choice([1, 2, 3, 5, 7, 8, 10, 12, 25, 60, 100, 125, 1000, 2500, 0.5, 2.5, 5.0])
            schema = {"type": "integer", "multipleOf": step}
            low, high = sorted(rng.randint(-(10 ** rng.randint(1, 5)), 10 ** rng.randint(1, 5)) for _ in range(2))
            for key, value in (("minimum", low), ("maximum", high)):
                if rng.random() < 0.6:
                    schema[key if rng.random() < 0.5 else "exclusive" + key.capitalize()] = value
            error = self.tool.compile("schema", json.dumps(schema))
            check = validator(schema)
            near = {base + d for base in (low, high, 0, 1000, -100) for d in range(-14, 15)}
            values = sorted(near | {int(step * rng.randint(-300, 300)) for _ in range(20)})
            if error:
                self.assertIn("nothing can match", error)
                self.assertFalse([v for v in range(low - 1, high + 2) if check.is_valid(v)], schema)
                continue
            for value, found in zip(values, self.tool.match_all(map(str, values))):
                self.assertEqual(found == "complete", check.is_valid(value), (schema, value))
            for seed in range(10):
                text, complete = self.tool.walk(seed, 400)
                if complete:  # jsonschema divides doubles, which is wrong beyond 2^53
                    self.assertEqual(fractions.Fraction(int(text)) % fractions.Fraction(step), 0, (schema, text))
                    check.evolve(schema={**schema, "multipleOf": 1}).validate(int(text))
        self.assertEqual(self.tool.match("-0"), "no")
        for _ in range(80):
            step = rng.choice(["0.1", "0.01", "0.25", "0.5", "1.5", "0.05", "2", "0.125", "12.5"])
            low = decimal.Decimal(rng.randint(-5000, 5000)) / 10 ** rng.randint(0, 3)
            schema = {"type": "number", "multipleOf": float(step), "minimum": float(low), "maximum": float(low) + 40}
            self.assertIsNone(self.tool.compile("schema", json.dumps(schema)), schema)
            values = {str((low + k * decimal.Decimal(step) / rng.choice([1, 1, 2])).normalize()) for k in range(-5, 300)}
            values = sorted(v for v in values if "E" not in v)
            for value, found in zip(values, self.tool.match_all(values)):
                exact = decimal.Decimal(value)
                fits = exact % decimal.Decimal(step) == 0 and low <= exact <= low + 40
                self.assertEqual(found == "complete", fits, (schema, value))
            for seed in range(6):
                text, complete = self.tool.walk(seed, 60)
                if complete:
                    exact = decimal.Decimal(text.decode())
                    self.assertTrue(exact % decimal.Decimal(step) == 0 and low <= exact <= low + 40, (schema, text))
                    json.loads(text)

    def test_multiples_of_many_digits(self):
        """Bounds whose units 64 bits do not hold."""
        for most in (999999999999999999, 10**18, 1.5e30):
            for step, fits, other in (("0.1", "12345.6", "12345.67"), ("0.25", "3.25", "3.3"), ("7", "14", "15")):
                for bounds in ({"maximum": most}, {"minimum": -most}, {"minimum": -most, "maximum": most}):
                    schema = {"type": "number", "multipleOf": float(step), **bounds}
                    self.assertIsNone(self.tool.compile("schema", json.dumps(schema)), schema)
                    for value, found in ((fits, "complete"), (f"-{fits}", "complete"), (other, None)):
                        self.assertEqual(self.tool.match(value) == "complete", bool(found), (schema, value))

    def test_distinct_values(self):
        """Each value of a list at most once, in the list's order."""
        values = ["a", "ab", 3, None, True]
        for low, high in ((0, None), (1, 2), (3, 9), (5, 5), (0, 1)):
            schema = {"type": "array", "items": {"$ref": "#/$defs/e"}, "uniqueItems": True, "minItems": low,
                      "$defs": {"e": {"enum": values}}}
            if high is not None:
                schema["maxItems"] = high
            self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
            check = validator(schema)
            for mask in range(32):
                some = [v for i, v in enumerate(values) if mask >> i & 1]
                for text in spellings(some):
                    self.assertEqual(self.tool.match(text) == "complete", check.is_valid(some), (schema, some))
            self.assertNotEqual(self.tool.match('["a","a"]'), "complete")
            self.assertGreater(self.walk_all(schema, 30), 10)

    def test_maps(self):
        """Names by a list, a pattern or a length, and how many there are."""
        cases = [
            ({"propertyNames": {"enum": ["x", "xy", 3]}, "additionalProperties": {"type": "integer"}},
             [{}, {"x": 1}, {"xy": 1, "x": 2}], [{"y": 1}, {"x": "a"}, {"xyz": 1}]),
            ({"propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": {"enum": ["a"], "type": "string"}}}, [{"a": None}], [{"b": 1}]),
            ({"propertyNames": {"maxLength": 3, "minLength": 2}, "additionalProperties": {"type": "boolean"}},
             [{"ab": True, "\u00e4\u00f6\u00fc": False}], [{"a": True}, {"abcd": True}]),
            ({"propertyNames": {"format": "uuid"}}, [{}], [{"a": 1}]),
            ({"propertyNames": {}, "minProperties": 1}, [{"a": 1}, {"a": 1, "b": 2}], [{}]),
            ({"propertyNames": {"type": "integer"}}, [{}], [{"a": 1}]),
            ({"patternProperties": {"^[a-c]+$": {"type": "integer"}}}, [{}, {"a": 1, "abc": 2}], [{"a": "x"}]),
            ({"patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False, "maxProperties": 2},
             [{"a": None, "ax": None}], [{"b": None}, {"a": None, "a1": None, "a2": None}]),
            ({"type": "object", "minProperties": 1, "maxProperties": 3, "additionalProperties": {"type": "integer"}},
             [{"a": 1}, {"a": 1, "b": 2, "c": 3}], [{}, {"a": 1, "b": 2, "c": 3, "d": 4}]),
            ({"type": "object", "maxProperties": 0}, [{}], [{"a": 1}]),
        ]
        for schema, valid, invalid in cases:
            with self.subTest(schema=schema):
                self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
                check = validator(schema)
                for value in valid:
                    check.validate(value)
                    for text in spellings(value):
                        self.assertEqual(self.tool.match(text), "complete", text)
                for value in invalid:
                    self.assertFalse(check.is_valid(value), value)
                    self.assertNotEqual(self.tool.match(json.dumps(value)), "complete", value)
                self.assertGreater(self.walk_all(schema, 40), 4)
        loose = {"schema": {"properties": {"a": {"type": "null"}}, "minProperties": 7, "propertyNames": {"const": 3}}, "loose": True}
        self.assertIsNone(self.tool.compile("parts", json.dumps(loose)))
        self.assertEqual(self.tool.match('{"a":null}'), "complete")

    @unittest.skipUnless(pydantic, "the package pydantic is not installed")
    def test_types_of_pydantic(self):
        """Schemas of Python's and pydantic's types: what is generated is read as such a value."""
        p, t = pydantic, typing
        kinds = [
            str, int, float, bool, bytes, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal,
            uuid.UUID, p.UUID1, p.UUID3, p.UUID4, p.UUID5, pathlib.Path, p.NewPath, p.SecretStr, p.SecretBytes, p.AnyUrl,
            p.IPvAnyAddress, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Interface, ipaddress.IPv6Interface,
            set[t.Literal["a", "b", 3]], frozenset[t.Literal["x", "y"]], tuple[int, str], tuple[int, ...],
            list[int], dict[str, int], dict[t.Literal["x", "y"], int], dict[t.Annotated[str, p.Field(pattern="^ab")], int],
            t.Annotated[dict[str, int], p.Field(min_length=1, max_length=3)], t.Optional[str], t.Literal["a", "b"], re.Pattern,
            p.ByteSize, p.Base64Bytes, p.Base64Str, p.Base64UrlStr, p.AwareDatetime, p.PositiveInt, p.NonNegativeFloat,
            p.conint(multiple_of=5, ge=-20), p.confloat(multiple_of=0.5), p.constr(min_length=2, max_length=9),
            p.constr(pattern="^a+$"), p.constr(pattern="^[a-z]+(-[a-z]+)*$", min_length=3, max_length=9), p.conlist(int, min_length=1, max_length=3), fractions.Fraction, t.Any, t.Sequence[int],
        ]  # fmt: skip
        for kind in kinds:
            reader = p.TypeAdapter(kind)
            schema = reader.json_schema()
            with self.subTest(kind=kind, schema=schema):
                self.assertIsNone(self.tool.compile("schema", json.dumps(schema)))
                check, n_complete = validator(schema), 0
                for seed in range(60):
                    text, complete = self.tool.walk(seed, 400)
                    if not complete:
                        continue
                    n_complete += 1
                    check.validate(json.loads(text.decode()))
                    # What a type asks for beyond its schema is its own matter.
                    if kind not in (p.NewPath, p.ByteSize, p.Base64Str, p.Base64UrlStr, decimal.Decimal):
                        reader.validate_json(text)
                self.assertGreater(n_complete, 5)
        for kind in (set[int], dict[str, set[str]]):  # an automaton has no memory for these
            schema = json.dumps(p.TypeAdapter(kind).json_schema())
            self.assertIn('"uniqueItems" is supported for', self.tool.compile("schema", schema))
            self.assertIsNone(self.tool.compile("parts", f'{{"schema":{schema},"loose":true}}'))

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
