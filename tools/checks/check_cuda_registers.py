#!/usr/bin/env python3
"""Compares what ptxas says of the kernels for GPUs, registers and bytes that are spilled, with tests/cuda/registers.txt.

    python3 tools/checks/check_cuda_registers.py [--write]

A kernel with more registers runs in fewer blocks, and one that spills waits for memory, which no test without a GPU
shows. The table is of sm_90a and one version of nvcc; with another, or without one, nothing is compared. --write makes
the table again. It takes half a minute.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/cuda/registers.txt"
KERNELS = ROOT / "src/engine/backend/cuda/kernels/kernels.cu"
PLACES = f"{ROOT}/build/cuda/bin:/usr/local/cuda/bin"


def version_of(nvcc):
    said = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"release ([\d.]+)", said)[1]


def measure(nvcc):
    """{kernel: (registers, bytes of spill stores and loads)}"""
    command = [nvcc, "-std=c++17", "-O3", "-cubin", "-arch=sm_90a", "-Xptxas", "-v", "-o", "/dev/null", str(KERNELS)]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
                       said.stdout + said.stderr, re.DOTALL)
    return {name: (int(registers), int(stores) + int(loads)) for name, stores, loads, registers in found}


def table_of(version, kernels):
    lines = [f"nvcc {version}, sm_90a: registers of a thread, bytes that are spilled"]
    return "\n".join(lines + [f"{name} {a} {b}" for name, (a, b) in sorted(kernels.items())]) + "\n"


def main():
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path=PLACES)
    if not nvcc:
        print("not compared: nvcc is not installed (script/setup-cuda)")
        return
    version, there = version_of(nvcc), TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    if "--write" not in sys.argv and f"nvcc {version}," not in there:
        print(f"not compared: nvcc {version}; the table is of {there[:9]}")
        return
    now = table_of(version, measure(nvcc))
    if "--write" in sys.argv:
        TABLE.write_text(now, encoding="utf-8")
        return
    new, old = now.splitlines(), there.splitlines()
    changed = [f"- {line}" for line in old if line not in new] + [f"+ {line}" for line in new if line not in old]
    if changed:
        sys.exit("\n".join([*changed, f"{TABLE.relative_to(ROOT)}: with --write it says so"]))
    print(f"{len(new) - 1} kernels: registers and spills are those of the table")


if __name__ == "__main__":
    main()
