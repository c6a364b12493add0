#!/usr/bin/env python3
"""Runs the properties of the tests for a night: each with one seed after another, for as long as is asked.

    tools/checks/check_properties.py [--seconds 600] [--seed S] [--only NAME,...] [--build FOLDER] [--json FILE]

A property of the suite has a fixed seed and few cases. Here SKV_TEST_SEED counts up from --seed, and where a property is larger at
night its variable is set too. Told for each: runs, seeds, cases, processor and elapsed seconds, and what failed, with the command
that repeats it. Some need packages of tests/clients/requirements.txt; one that is skipped is told as such and fails the check.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
# Words behind the build's folder or Python, and variables.
PROPERTIES = {
    "round": (["tests/language/test_reply_round.py"], {"SKV_CALL_CASES": 60}),
    "calls": (["tests/serving/test_server_calls.py", "EveryTemplateTest"], {"SKV_CALL_CASES": 2}),
    "accounts": (["tests/serving/test_server_accounts.py", "AccountsTest.test_every_shape_everywhere", "AccountsTest.test_clients_leave",
                  "AccountsTest.test_the_end"], {"SKV_ACCOUNTS": "30,32"}),  # fmt: skip
    "shares": (["tests/serving/test_server_accounts.py", "SharesTest"], {"SKV_ACCOUNTS": "30,32"}),
    "schemas": (["tests/language/test_grammar_schema.py"], {}),
    "regex": (["tests/language/test_grammar_regex.py", "Regex.test_like_python", "Regex.test_walks_match", "Regex.test_masks"], {}),
    "gbnf": (["tests/language/test_grammar_gbnf.py"], {}),
    "sampler": (["tests/test_logit_look"], {}),
    "marks": (["tests/test_text_marks"], {"SKV_TEST_ALL": "1"}),
    "hostile": (["tests/tool_hostile", "--cases", "20000", "--jobs", "1", "--seed", "{seed}"], {}),
}


def run(words, variables, seed, build):
    """Its status, cases and output."""
    script = words[0].endswith(".py")
    command = [sys.executable, ROOT / words[0]] if script else [build / words[0]]
    command = [str(w).format(seed=seed) for w in [*command, *words[1:]]]
    more = {"SKV_TEST_SEED": seed, "SKV_BUILD": build, **variables}
    done = subprocess.run(command, env={**os.environ, **{k: str(v) for k, v in more.items()}}, cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    return done.returncode, sum(map(int, re.findall(r"(\d+) cases$", done.stdout, re.M))), done.stdout, (command, more)


def check(name, args):
    words, variables = PROPERTIES[name]
    told = {"property": name, "seed": args.seed, "runs": 0, "cases": 0, "failed": [], "skipped": False}
    begun, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    while told["runs"] == 0 or time.monotonic() - begun < args.seconds:
        seed = args.seed + told["runs"]
        status, cases, output, (command, more) = run(words, variables, seed, args.build)
        told["runs"] += 1
        told["cases"] += cases
        if status == SKIPPED:
            told["skipped"] = True
            break
        if status != 0:
            told["failed"].append(seed)
            print(" ".join([f"{k}={v}" for k, v in more.items()] + command), output[-6000:], sep="\n", flush=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told["seconds"] = round(time.monotonic() - begun)
    told["cpu_seconds"] = round(after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime)
    print("{property}: {runs} runs from seed {seed} on, {cases} cases, {seconds} s ({cpu_seconds} s of processor time), failed: {failed}".format(**told)
          + (", skipped" if told["skipped"] else ""), flush=True)  # fmt: skip
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="for each property")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default=",".join(PROPERTIES))
    parser.add_argument("--build", type=lambda text: Path(text).resolve(), default=ROOT / "build")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    told = [check(name, args) for name in args.only.split(",")]
    if args.json:
        args.json.write_text(json.dumps(told, indent=1) + "\n")
    sys.exit(any(one["failed"] or one["skipped"] for one in told))


if __name__ == "__main__":
    main()
