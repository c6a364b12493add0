"""Processes of Open MPI on this machine, for tests: why there can be none, the words that start some, and the main
program of a script of such tests."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(os.environ.get("SKV_BUILD", Path(__file__).resolve().parents[2] / "build")).resolve() / "swiftkv"
# Processes that wait let others run: they may be more than the processors. They speak through memory, and do not look
# for networks first.
WORDS = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1",
         "--mca", "btl", "self,vader"]
AT_ONCE = 4  # so many commands of a test: mpirun waits most of the time, more than a second after one that fails
if os.geteuid() == 0:
    WORDS.append("--allow-run-as-root")


def why_not():
    """What is missing, or None."""
    if not shutil.which("mpirun"):
        return "no mpirun here"
    linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False).stdout
    return None if "libmpi" in linked else "built without MPI"


AVAILABLE = why_not() is None


def launch(n):
    """The words before a command that make n processes of it."""
    return [*WORDS, "-np", str(n)]


def environment(folder):
    """Of one launch: launches at the same time fail where both make the folder that all of a user share."""
    return {**os.environ, "TMPDIR": tempfile.mkdtemp(prefix="o", dir=folder)}


def short_folder(case):
    """A folder of a class of tests. Open MPI makes socket names from the folder of temporary files: a short one."""
    temporary = tempfile.TemporaryDirectory(prefix="skv-", dir="/tmp")
    case.addClassCleanup(temporary.cleanup)
    return Path(temporary.name)


def main():
    """Runs the tests of the script that was started; without MPI it is skipped, with a line that says why."""
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(verbosity=2)
