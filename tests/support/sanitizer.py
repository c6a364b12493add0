"""What a test has to know about a build with a sanitizer; CMakeCache.txt in SKV_BUILD says whether it is one.

Such a program is slower, and its resident size means little: freed memory is kept back for a while, and every
allocation has room around it. The server's own account is compared all the same, and what is lost is reported when the
program ends."""

import functools
import math
import os
from pathlib import Path

# As tests/tool_hostile has them.
SLOWER = 8
REPORTS = ("Sanitizer:", "runtime error:")


@functools.cache
def is_used():
    build = os.environ.get("SKV_BUILD", Path(__file__).resolve().parents[2] / "build")
    try:
        return "\nSKV_SANITIZE:STRING=\n" not in (Path(build) / "CMakeCache.txt").read_text()
    except OSError:
        return False


def seconds(n):
    """A limit on time."""
    return n * SLOWER if is_used() else n


def resident(n):
    """A limit on resident memory."""
    return math.inf if is_used() else n


def check(lines):
    """Raises if a program has written a report."""
    if any(report in line for line in lines for report in REPORTS):
        raise AssertionError("".join(lines))
