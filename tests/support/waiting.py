"""Waiting in tests. Naps are counted, not seconds: where a machine is busy, or stood still for a while,
a test takes longer and does not fail."""

import threading
import time

NAP = 0.01
REST = 240  # seconds that all naps take together; on a busy machine a wait takes longer
PATIENCE = 800  # seconds a program or an answer may take: what hangs is ended here


def wait_until(condition, nap=NAP):
    """What `condition` returns as soon as that is true; what is not after so long never will be."""
    for _ in range(int(REST / nap)):
        value = condition()
        if value:
            return value
        time.sleep(nap)
    raise AssertionError("waited in vain")


def wait_exit(process):
    """A process's status, once it has ended."""
    wait_until(lambda: process.poll() is not None)
    return process.returncode


def cpu_seconds(process):
    """The processor time that a process has taken. What it does in the meantime is bounded by this,
    however little of the machine it gets."""
    return time.clock_gettime(~process.pid << 3 | 2)  # CPUCLOCK_SCHED of the whole process


class NapClock:
    """Seconds as naps that were taken: it stands still where the machine does, and is slow where that is busy."""

    def __init__(self):
        self.n = 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            time.sleep(NAP)
            self.n += 1

    def now(self):
        return self.n * NAP
