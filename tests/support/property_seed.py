"""Seeds of properties. SKV_TEST_SEED draws other cases than those that every run has; tools/checks/check_properties.py sets it."""

import atexit
import os
import random

SEED = int(os.environ.get("SKV_TEST_SEED", 0))  # 0: the cases of every run
tried = {"cases": 0}


def generator(usual):
    """A generator for a property whose usual seed is this."""
    return random.Random(f"{SEED}, {usual}" if SEED else usual)


def count(n=1):
    """Adds tried cases, which a run with a seed of its own tells at its end."""
    if SEED and not tried["cases"]:
        atexit.register(lambda: print(tried["cases"], "cases", flush=True))
    tried["cases"] += n
