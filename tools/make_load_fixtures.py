#!/usr/bin/env python3
"""Makes tests/data/load/stats.json: samples, and what numpy says of them.

    tools/make_load_fixtures.py
"""

import json
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent.parent / "tests/data/load/stats.json"


def case(values):
    values = np.asarray(values, dtype=np.float64)
    return {
        "values": values.tolist(),
        "mean": float(np.mean(values)),
        "std": float(np.std(values)),
        "median": float(np.median(values)),
        "p90": float(np.percentile(values, 90)),
        "p99": float(np.percentile(values, 99)),
    }


def main():
    draw = np.random.default_rng(5)
    cases = [case([7.5]), case([3, 1]), case([0, 0, 0, 0])]
    cases += [case(np.round(draw.lognormal(3, 1, n), 6)) for n in (10, 99, 100, 101, 500)]
    cases.append(case(1e6 + np.round(draw.normal(0, 0.01, 200), 9)))  # little beside the mean
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
