#!/usr/bin/env python3
"""Rules in the GBNF notation: random ones, often empty or repeated, compared with sets of ends."""

import unittest

from grammar_tool import Grammar, generator

COUNTS = [(0, 1), (0, None), (1, None), (2, None), (0, 8), (2, 3), (2, 999), (0, 300), (5, 40)]


def make_expr(rng, depth, rules):
    """An expression that calls only rules of the list `rules`."""
    roll = rng.random()
    if depth == 0 or roll < 0.2:
        return ("text", rng.choice(["a", "b", "ab", "aa", "", ""]))
    if roll < 0.45 and rules:
        return ("call", rng.choice(rules))
    if roll < 0.8:
        kind = "any" if roll < 0.6 else "all"
        return (kind, [make_expr(rng, depth - 1, rules) for _ in range(rng.randint(2, 3))])
    return ("repeat", make_expr(rng, depth - 1, rules), *rng.choice(COUNTS))


def spell(expr):
    kind, what = expr[:2]
    if kind == "text":
        return f'"{what}"'
    if kind == "call":
        return f"r{what}"
    if kind == "repeat":
        low, high = expr[2:]
        return f"({spell(what)}){{{low},{'' if high is None else high}}}"
    return "(" + (" | " if kind == "any" else " ").join(map(spell, what)) + ")"


def find_ends(expr, rules, text, begins):
    """Where the expression may end when it begins at one of the set `begins`."""
    kind, what = expr[:2]
    if kind == "text":
        return {at + len(what) for at in begins if text.startswith(what, at)}
    if kind == "call":
        return find_ends(rules[what], rules, text, begins)
    if kind == "any":
        return set().union(*(find_ends(one, rules, text, begins) for one in what))
    if kind == "all":
        for one in what:
            begins = find_ends(one, rules, text, begins)
        return begins
    low, high = expr[2:]
    for _ in range(low):
        found = find_ends(what, rules, text, begins)
        if found == begins:
            break
        begins = found
    ends = set(begins)
    for _ in range(len(text) + 1 if high is None else high - low):
        begins = find_ends(what, rules, text, begins) - ends
        if not begins:
            break
        ends |= begins
    return ends


class Gbnf(unittest.TestCase):
    def setUp(self):
        self.tool = Grammar()

    def tearDown(self):
        self.tool.close()

    def test_like_sets_of_ends(self):
        rng = generator(1)
        matched = compared = 0
        for i in range(400):
            rules = {}
            for rule in reversed(range(4)):
                rules[rule] = make_expr(rng, 3, list(rules))
            grammar = "".join(f"r{rule} ::= {spell(rules[rule])}\n" for rule in rules)
            error = self.tool.compile("gbnf", "root ::= r0\n" + grammar)
            if error and "524288 states" in error:
                continue
            self.assertIsNone(error, grammar)
            texts = ["", "a", "b", "ab", "ba", "aabbabab"]
            texts += ["".join(rng.choices("ab", k=rng.randint(2, 9))) for _ in range(12)]
            for text, found in zip(texts, self.tool.match_all(texts)):
                expected = len(text) in find_ends(rules[0], rules, text, {0})
                self.assertEqual(found == "complete", expected, (grammar, text))
                compared += 1
                matched += expected
            self.assertRegex(self.tool.check(i, 6), "^ok", grammar)
        self.assertGreater(compared, 5000)
        self.assertGreater(matched, 500)


if __name__ == "__main__":
    unittest.main()
