#!/usr/bin/env python3
"""What the JUnit files of ctest and pytest say, for script/test.

    tools/test_report.py count LOGS STAGE    prints "PASSED FAILED SKIPPED"
    tools/test_report.py times LOGS          prints a table of LOGS/times.tsv, the slowest first

`count` reads LOGS/STAGE.xml and, where tests were run once more, LOGS/STAGE.again.xml. It adds the
seconds of every test to LOGS/times.tsv, and to LOGS/flaky.txt each test that failed first and passed
then. More than FLAKY_MAX of these count as failures, and the status is 1.

A cmocka or unittest program counts as its cases, any other test as one. A program that failed without
naming a failed case (it crashed, or timed out) counts as one failure more.
"""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

FLAKY_MAX = 2
SHOWN_SECONDS = 1.0
CMOCKA = {
    "passed": re.compile(r"^\[  PASSED  \] (\d+) test", re.M),
    "failed": re.compile(r"^\[  FAILED  \] (\d+) test", re.M),
    "skipped": re.compile(r"^\[  SKIPPED \] (\d+) test", re.M),
}
UNITTEST = re.compile(r"^Ran (\d+) tests? in [^\n]*\n\n(OK|FAILED)(?: \(([^)]*)\))?", re.M)
# The first of these in a test's output says why it failed: cmocka's, Python's, a sanitizer's.
MESSAGE = re.compile(r"^(?:\[ +ERROR +\] --- |E +|(?=\w*(?:Error|Exception): )|(?===\d+==ERROR))(.+)", re.M)


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


class Test:
    """A <testcase>: its name, seconds, cases (passed, failed, skipped) and, if it failed, a message."""

    def __init__(self, case, is_pytest):
        self.name = case.get("name")
        self.seconds = float(case.get("time") or 0)
        bad = [found for tag in ("failure", "error") for found in case.findall(tag)]
        text = "\n".join([case.findtext("system-out") or "", *(found.text or "" for found in bad)])
        skipped = case.find("skipped")
        if is_pytest:
            self.name = f"{case.get('classname')}.{self.name}"
            self.cases = (0, 1, 0) if bad else (0, 0, 1) if skipped is not None else (1, 0, 0)
        elif case.get("status") == "notrun" and skipped is not None and (skipped.get("message") or "").startswith("SKIP"):
            self.cases = (0, 0, 1)
        else:
            ok = case.get("status") == "run" and not bad
            cases = cmocka_cases(text) or unittest_cases(text) or ((1, 0, 0) if ok else (0, 1, 0))
            self.cases = cases if ok or cases[1] else (cases[0], 1, cases[2])
        self.failed = self.cases[1] > 0
        found = MESSAGE.search(text)
        lines = text.strip().splitlines()
        self.message = found[1].strip() if found else lines[-1].strip() if lines else "no output"


def read_tests(path):
    """name -> Test of a JUnit file; empty without one."""
    if not path.exists():
        return {}
    root = ET.parse(path).getroot()
    is_pytest = root.find("testsuite[@name='pytest']") is not None
    return {test.name: test for test in (Test(case, is_pytest) for case in root.iter("testcase"))}


def count(first, again):
    """(passed, failed, skipped) and the flaky tests of a run and of the second try of what failed."""
    flaky = [test for name, test in first.items() if test.failed and name in again and not again[name].failed]
    believed = flaky if len(flaky) <= FLAKY_MAX else []
    final = {**first, **{test.name: again[test.name] for test in believed}}
    return [sum(test.cases[i] for test in final.values()) for i in range(3)], flaky


def count_stage(logs, stage):
    first, again = (read_tests(logs / f"{stage}{part}.xml") for part in ("", ".again"))
    sums, flaky = count(first, again)
    with open(logs / "times.tsv", "a") as out:
        out.writelines(f"{test.seconds:.2f}\t{stage}\t{test.name}\n" for test in first.values())
    with open(logs / "flaky.txt", "a") as out:
        out.writelines(f"flaky: {test.name} ({stage}: {test.message[:120]})\n" for test in flaky)
    print(*(sums if first else (0, 1, 0)))
    return 1 if len(flaky) > FLAKY_MAX or not first else 0


def print_times(logs):
    """The stages, then the tests of SHOWN_SECONDS and more, and what the others take together."""
    path = logs / "times.tsv"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [(float(seconds), stage, test) for seconds, stage, test in (line.split("\t") for line in lines)]
    stages = [row for row in rows if not row[2]]
    tests = [row for row in rows if row[2]]
    slow = [row for row in tests if row[0] >= SHOWN_SECONDS]
    for seconds, stage, test in sorted(stages, reverse=True) + sorted(slow, reverse=True):
        print(f"{seconds:8.1f} s  {stage:11} {test}".rstrip())
    rest = sum(row[0] for row in tests) - sum(row[0] for row in slow)
    if tests:
        print(f"{rest:8.1f} s  {len(tests) - len(slow)} tests of less than {SHOWN_SECONDS:g} s each; all are in {path}")


if __name__ == "__main__":
    LOGS = Path(sys.argv[2])
    sys.exit(count_stage(LOGS, sys.argv[3]) if sys.argv[1] == "count" else print_times(LOGS))
