#!/usr/bin/env python3
"""Regular expressions: random ones on random texts, compared with Python's re.fullmatch."""

import re
import unittest

from grammar_tool import Grammar, generator

ALPHABET = "abc01_ -\n\u00e4\u20ac\U0001f642"
CLASSES = ["[abc]", "[^a]", "[a-c0-9]", "[^\\d\\n]", "[\\w-]", "[]a]", "[^]a]", "[\u00e4-\u20ac]",
           "[^\\x00-\\x7f]", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "."]
COUNTS = ["*", "+", "?", "{2}", "{1,}", "{,2}", "{0,3}", "{2,4}", "*?", "+?", "??", "{1,2}?", "{0}"]


def make_regex(rng, depth):
    """A random pattern of the supported subset."""
    roll = rng.random()
    if depth == 0 or roll < 0.35:
        if rng.random() < 0.3:
            return rng.choice(CLASSES)
        return re.escape(rng.choice(ALPHABET))
    if roll < 0.6:
        return "".join(make_regex(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if roll < 0.75:
        branches = [make_regex(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        if rng.random() < 0.2:
            branches.append("")
        return rng.choice(["(", "(?:", "(?P<n%d>" % rng.randrange(10**9)]) + "|".join(branches) + ")"
    return "(?:" + make_regex(rng, depth - 1) + ")" + rng.choice(COUNTS)


def make_texts(rng, tool, n):
    """Random texts, and walks through the grammar with small changes."""
    texts = ["", "a"]
    for i in range(n):
        texts.append("".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 6))))
        if i % 4 == 0:
            walked = tool.walk(rng.randrange(10**6), 12)[0].decode(errors="ignore")
            texts.append(walked)
        at = rng.randint(0, len(walked))
        texts.append(walked[:at] + rng.choice(ALPHABET) + walked[at + rng.randint(0, 1) :])
    return texts


class Regex(unittest.TestCase):
    def setUp(self):
        self.tool = Grammar()

    def tearDown(self):
        self.tool.close()

    def test_like_python(self):
        rng = generator(1)
        compared = matched = 0
        for _ in range(3000):
            pattern = make_regex(rng, 4)
            try:
                oracle = re.compile(pattern, re.ASCII)
            except re.error:
                continue
            error = self.tool.compile("regex", pattern)
            if error and "nothing can match" in error:
                continue
            self.assertIsNone(error, pattern)
            texts = make_texts(rng, self.tool, 8)
            for text, found in zip(texts, self.tool.match_all(texts)):
                expected = oracle.fullmatch(text) is not None
                self.assertEqual(found == "complete", expected, (pattern, text))
                compared += 1
                matched += expected
        self.assertGreater(compared, 50000)
        self.assertGreater(matched, 10000)

    def test_walks_match(self):
        rng = generator(2)
        for _ in range(150):
            pattern = make_regex(rng, 4)
            if self.tool.compile("regex", pattern):
                continue
            for seed in range(3):
                text, complete = self.tool.walk(seed, 200)
                if complete:
                    found = re.compile(pattern, re.ASCII).fullmatch(text.decode())
                    self.assertIsNotNone(found, (pattern, text))

    def test_masks(self):
        rng = generator(3)
        for i in range(40):
            pattern = make_regex(rng, 5)
            if self.tool.compile("regex", pattern) is None:
                self.assertRegex(self.tool.check(i, 12), "^ok", pattern)

    def test_mistakes(self):
        """What Python refuses is refused too, with the byte."""
        patterns = ["a**", "*a", "(a", "a)", "[a", "[b-a]", "a{3,2}", "\\", "(?<n", "a|*", "\\x1",
                    "[\\d-z]", "{1}", "a{2}{3}"]
        for pattern in patterns:
            with self.subTest(pattern=pattern):
                self.assertRaises(re.error, re.compile, pattern)
                self.assertRegex(self.tool.compile("regex", pattern), r"^regex: byte \d+: ")

    def test_refusals(self):
        cases = {"(?=a)": "lookahead", "(?!a)": "lookahead", "(?<=a)b": "lookbehind",
                 "(?<!a)b": "lookbehind", "(a)\\1": "backreference", "\\bword": "word boundary",
                 "(?i)a": "flags", "(?>a)": "atomic", "a++": "possessive", "\\p{L}": "property",
                 "a^b": "anchor", "(?P<n>a)(?P=n)": "named backreference", "\\07": "octal"}
        for pattern, name in cases.items():
            with self.subTest(pattern=pattern):
                self.assertRegex(self.tool.compile("regex", pattern), f"{name}.* not supported")

    def test_limits(self):
        for pattern in ["a{100001}", "(" * 300 + ")" * 300, "((a{1000}){1000}){1000}"]:
            self.assertIsNotNone(self.tool.compile("regex", pattern), pattern[:20])
        self.assertIsNone(self.tool.compile("regex", "(a|b|ab)*c"))
        self.assertEqual(self.tool.match("ab" * 5000 + "c"), "complete")
        self.assertIsNone(self.tool.compile("regex", "(a*)*(a*)*(a|a)*b"))
        self.assertEqual(self.tool.match("a" * 5000 + "b"), "complete")


if __name__ == "__main__":
    unittest.main()
