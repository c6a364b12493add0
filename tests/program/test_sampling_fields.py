#!/usr/bin/env python3
"""The fields of sampling are the same everywhere: the table that the program prints is what requests and the command
line accept and refuse, with the same words, and what /openapi.json and the manual say."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402

# The seed may be any whole number, so it has no bounds to try.
UNBOUNDED = {"seed"}
RANGE = re.compile(r"(between|above|at least) (\S+) and (at most |below )?(\S+)")


def table():
    """{request field: (option, lowest, highest, both allowed, default)}."""
    words = subprocess.run([base.PROGRAM, "help", "--sampling"], capture_output=True, text=True, check=True).stdout
    out = {}
    for line in words.splitlines()[2:]:
        field, option, values, initial, _ = (cell.strip(" `") for cell in line.strip("|").split("|"))
        found = RANGE.match(values)
        bounds = None
        if found:
            bounds = float(found[2]), float(found[4]), found[1] != "above", found[3] != "below "
        out[field] = option.split()[0], bounds, float(initial)
    return out


class SamplingTest(base.ServerTest):
    words = ("--ctx", 64)

    def ask(self, field, value):
        status, _, answer = self.server.ask("POST", "/v1/completions", {"prompt": [1], "max_tokens": 1, field: value})
        return status, answer.get("error", {}).get("message")

    def run_program(self, option, value):
        command = [base.PROGRAM, "generate", base.PLAIN, "--ids-file", "/dev/stdin", "-n", "1", option, f"{value:.15g}"]
        done = subprocess.run(command, input="[1]", capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.strip()

    def refused(self, field, option, value):
        status, message = self.ask(field, value)
        self.assertEqual(status, 400)
        self.assertTrue(message.startswith(f"{field}: "), message)
        code, said = self.run_program(option, value)
        self.assertEqual(code, 2)
        self.assertEqual(said, "swiftkv: " + message.replace(field, option, 1))

    def accepted(self, field, option, value):
        self.assertEqual(self.ask(field, value)[0], 200)
        code, said = self.run_program(option, value)
        self.assertEqual(code, 0, said)

    def test_bounds(self):
        n = 0
        for field, (option, bounds, initial) in table().items():
            if field in UNBOUNDED:
                continue
            low, high, low_allowed, high_allowed = bounds
            with self.subTest(field=field):
                self.refused(field, option, low - 1)
                self.refused(field, option, high + 1)
                (self.accepted if low_allowed else self.refused)(field, option, low)
                (self.accepted if high_allowed else self.refused)(field, option, high)
                self.accepted(field, option, initial)
                n += 1
        self.assertGreaterEqual(n, 7)

    def test_openapi(self):
        doc = self.server.ask("GET", "/openapi.json")[2]
        schemas = doc["components"]["schemas"]
        for name in ("CompletionRequest", "ChatRequest", "MessagesRequest", "ResponsesRequest"):
            for field, (_, bounds, _) in table().items():
                with self.subTest(schema=name, field=field):
                    schema = schemas[name]["properties"][field]
                    self.assertTrue(schema["description"])
                    if field in UNBOUNDED:
                        continue
                    low, high, low_allowed, high_allowed = bounds
                    self.assertEqual(schema["minimum" if low_allowed else "exclusiveMinimum"], low)
                    self.assertEqual(schema["maximum" if high_allowed else "exclusiveMaximum"], high)
        self.assertEqual(schemas["ChatRequest"]["properties"]["temperature"]["default"], 1)

    def test_manual(self):
        text = (base.ROOT / "man/swiftkv.1").read_text()
        for option, bounds, _ in table().values():
            self.assertRegex(text, rf"\.It Fl {option[1:]} Ar \w\n.*\n", option)
            if bounds:
                self.assertIn(f"{bounds[1]:.15g}; by default", text)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
