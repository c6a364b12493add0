#!/usr/bin/env python3
"""Counts test cases in a JUnit file of ctest or pytest: prints "PASSED FAILED SKIPPED".

A cmocka or unittest program counts as its cases, any other test as one. A program that
failed without naming a failed case (it crashed, or timed out) counts as one failure more.
"""

import re
import sys
import xml.etree.ElementTree as ET

CMOCKA = {
    "passed": re.compile(r"^\[  PASSED  \] (\d+) test", re.M),
    "failed": re.compile(r"^\[  FAILED  \] (\d+) test", re.M),
    "skipped": re.compile(r"^\[  SKIPPED \] (\d+) test", re.M),
}
UNITTEST = re.compile(r"^Ran (\d+) tests? in [^\n]*\n\n(OK|FAILED)(?: \(([^)]*)\))?", re.M)


def cmocka_cases(text):
    """(passed, failed, skipped) of a cmocka program's output, or None."""
    sums = {k: sum(map(int, pattern.findall(text))) for k, pattern in CMOCKA.items()}
    if not any(sums.values()):
        return None
    return sums["passed"], sums["failed"], sums["skipped"]


def unittest_cases(text):
    """(passed, failed, skipped) of a Python unittest program's output, or None."""
    match = UNITTEST.search(text)
    if not match:
        return None
    n = int(match.group(1))
    notes = dict(re.findall(r"(\w+)=(\d+)", match.group(3) or ""))
    failed = int(notes.get("failures", 0)) + int(notes.get("errors", 0))
    skipped = int(notes.get("skipped", 0))
    return n - failed - skipped, failed, skipped


def count(root):
    """Sums (passed, failed, skipped) over the <testcase> elements below root."""
    if suite := root.find("testsuite[@name='pytest']"):
        n, failures, errors, skipped = (
            int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")
        )
        return [n - failures - errors - skipped, failures + errors, skipped]
    totals = [0, 0, 0]
    for case in root.iter("testcase"):
        ok = case.get("status") == "run" and case.find("failure") is None
        left_out = case.get("status") == "notrun" and case.find("skipped") is not None
        if left_out and (case.find("skipped").get("message") or "").startswith("SKIP"):
            totals[2] += 1
            continue
        text = case.findtext("system-out") or ""
        cases = cmocka_cases(text) or unittest_cases(text) or ((1, 0, 0) if ok else (0, 1, 0))
        if not ok and not cases[1]:
            cases = (cases[0], 1, cases[2])
        totals = [a + b for a, b in zip(totals, cases)]
    return totals


if __name__ == "__main__":
    print(*count(ET.parse(sys.argv[1]).getroot()))
