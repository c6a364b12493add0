#!/usr/bin/env python3
"""Training under mpirun: 2 and 4 processes give the losses of one, on one machine and on hosts that
are network namespaces; a process that dies leaves the last checkpoint good, and the run goes on from
there to the same end; what fails on one process ends all of them with one message.

    tests/learning/test_mpi.py        SKV_BUILD names the build folder; skipped with a line that says why where
                             MPI, or for the last tests namespaces, cannot be had
"""

import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import mpirun  # noqa: E402
from waiting import wait_until  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
HOSTS = ROOT / "tools/mpi_hosts.sh"
MODEL = ROOT / "tests/data/models/llama-mha"
MPIRUN = mpirun.WORDS
STEPS = 12
LONG = 120
SECONDS = 1200  # what hangs; nothing is asked to be fast
TRIES = 50  # a run may end before its turn to be killed comes: on a busy machine, now and then


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class MpiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = mpirun.short_folder(cls)
        cls.data = cls.folder / "ids.json"
        cls.data.write_text(json.dumps([i * i % 97 for i in range(4000)]))
        cls.shared = cls.folder / "shared"  # the other hosts have their own
        cls.shared.mkdir()

    def words(self, name, *more, command="distill", steps=STEPS, rows=4, data=None):
        log = self.shared / f"{name}.log"
        layers = ("--kv-layers", "2", "--group", "2", "--hidden-loss-mult", "0.5")
        words = (PROGRAM, command, MODEL, self.shared / name, "--data", data or self.data,
                 "--seq", 32, "--rows", rows, "--steps", steps, "--lr", "2e-3", "--log", log,
                 "--checkpoint-every", 5, *(layers if command == "distill" else ()), *more)
        return [str(word) for word in words]

    def start(self, words):
        environment = dict(mpirun.environment(self.folder) if words[0] == "mpirun" else os.environ,
                           SKV_HOST_FOLDER=str(self.shared))
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env=environment)
        self.addCleanup(kill_group, process)
        return process

    def finish(self, process):
        out, errors = process.communicate(timeout=SECONDS)
        return process.returncode, out, errors

    def run_ok(self, words):
        code, out, errors = self.finish(self.start(words))
        self.assertEqual(code, 0, (words, out[-2000:], errors[-2000:]))
        return out

    def one(self):
        """The run of one process that the others are compared with."""
        if not (self.shared / "one.log").exists():
            self.run_ok(self.words("one", "--f32"))
        return "one"

    def whole(self):
        """A longer run of two processes that nothing interrupts."""
        if not (self.shared / "whole.log").exists():
            self.run_ok([*MPIRUN, "-np", "2", *self.words("whole", steps=LONG)])
        return "whole"

    def log(self, name):
        """The lines of the log by step: those after a resumption replace what came before."""
        lines = (self.shared / f"{name}.log").read_text().splitlines()
        return {line["step"]: line for line in map(json.loads, lines)}

    def same_losses(self, name, other, tolerance, missing=None):
        one, two = self.log(name), self.log(other)
        if missing is not None:
            one.pop(missing)
            two.pop(missing, None)
        self.assertEqual(sorted(one), sorted(two))
        self.assertGreaterEqual(len(one), STEPS - 1)
        for step, line in one.items():
            for key in ("loss", "hidden_loss"):
                self.assertLessEqual(abs(line[key] - two[step][key]), tolerance * abs(line[key]),
                                     (step, key, line[key], two[step][key]))
            for key in ("tokens", "loss_tokens", "lr"):
                self.assertEqual(line[key], two[step][key])

    def wait_for_step(self, name, step, process):
        """Until the log has so many lines, or the run is over."""
        log = self.shared / f"{name}.log"
        wait_until(lambda: process.poll() is not None or (log.exists() and log.read_text().count("\n") >= step))

    def processes_of(self, name):
        """Ids of the processes that train into `name`, in the order in which they began."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == bytes(PROGRAM) and bytes(self.shared / name) in words:
                found.append(int(path.parent.name))
        return sorted(found)

    # ------------------------------------------------------------------------------------- tests

    def test_losses_are_those_of_one_process(self):
        """In f32: with bf16 a weight on the edge of two values may be rounded to either."""
        for n in (2, 4):
            out = self.run_ok([*MPIRUN, "-np", str(n), *self.words(f"distill-{n}", "--f32")])
            self.assertEqual(out.count(f"{n} processes, "), 1, out)
            self.assertEqual(out.count(": written"), 1, out)
            self.same_losses(self.one(), f"distill-{n}", 1e-5)
        again = ("--accumulate", "4", "--f32")
        self.run_ok(self.words("train-1", *again, command="train", rows=1))
        words = self.words("train-2", *again, command="train", rows=1)
        self.run_ok([*MPIRUN, "-np", "2", *words])
        self.same_losses("train-1", "train-2", 1e-5)

    def goes_on(self, launch, name, words):
        """The run is taken to its end, which is that of the run that nothing interrupted."""
        self.assertFalse((self.shared / name / "config.json").exists())
        latest = json.loads((self.shared / name / "checkpoint/latest.json").read_text())["step"]
        self.assertTrue(0 < latest < LONG, latest)
        self.run_ok([*launch, *words, "--resume"])
        # A process may die between its checkpoint and that step's line of the log.
        self.same_losses(self.whole(), name, 0, missing=latest)
        for file in ("model.safetensors", "config.json"):
            self.assertEqual((self.shared / "whole" / file).read_bytes(),
                             (self.shared / name / file).read_bytes())

    def strike(self, launch, name, step, victim, which):
        """Starts the run and sends one of its processes a signal behind a step. The messages of the run; None
        if it was over before the signal came."""
        process = self.start(launch)
        self.wait_for_step(name, step, process)
        try:
            os.kill(self.processes_of(name)[victim], which)
        except (IndexError, ProcessLookupError):
            pass
        code, _, errors = self.finish(process)
        wait_until(lambda: not self.processes_of(name))  # none goes on alone
        latest = json.loads((self.shared / name / "checkpoint/latest.json").read_text())["step"]
        if latest == LONG or (self.shared / name / "config.json").exists():
            return None
        self.assertNotEqual(code, 0)
        return errors

    def forget(self, name):
        shutil.rmtree(self.shared / name)
        (self.shared / f"{name}.log").unlink()

    def dies(self, launch, name, victim):
        words = self.words(name, steps=LONG)
        for _ in range(TRIES):
            if self.strike([*launch, *words], name, 13, victim, signal.SIGKILL) is not None:
                self.goes_on(launch, name, words)
                return
            self.forget(name)
        self.fail(f"{TRIES} runs were over before they could be killed")

    def test_a_process_dies(self):
        for victim in (0, 1):
            self.dies([*MPIRUN, "-np", "2"], f"killed-{victim}", victim)

    def test_a_process_is_stopped(self):
        """One that gets SIGTERM or Ctrl-C stops all behind a checkpoint."""
        words = [*MPIRUN, "-np", "2", *self.words("stopped", "--checkpoint-every", 1000, steps=LONG)]
        for _ in range(TRIES):
            if self.is_stopped_twice(words):
                self.goes_on([], "stopped", words)
                return
            self.forget("stopped")
        self.fail(f"{TRIES} runs were over before they could be stopped")

    def is_stopped_twice(self, words):
        for victim, which in ((0, signal.SIGINT), (1, signal.SIGTERM)):
            resume = ["--resume"] if victim else []
            lines = max(self.log("stopped")) if victim else 0  # of the run that was stopped
            errors = self.strike([*words, *resume], "stopped", lines + 10, victim, which)
            if errors is None:
                return False
            self.assertEqual(errors.count("training: stopped after step "), 1, errors)
        return True

    def fails(self, words, *parts):
        code, out, errors = self.finish(self.start(words))
        self.assertNotEqual(code, 0, out)
        lines = [line for line in errors.splitlines() if line.startswith("swiftkv: ")]
        self.assertEqual(len(lines), 1, errors)
        for part in parts:
            self.assertIn(part, lines[0])

    def test_one_process_fails(self):
        other = self.folder / "other.json"
        other.write_text(json.dumps([i * i * 2 % 97 for i in range(4000)]))
        broken = self.folder / "broken.json"
        broken.write_text("[1, 2, -3]")

        def pair(name, **more):
            first, second = self.words(name), self.words(name, **more)
            return [*MPIRUN, "-np", "1", *first, ":", "-np", "1", *second]

        cases = ((pair("a", data=other), "process 1 of 2 has read other data than process 0"),
                 (pair("b", data=broken), "process 1 of 2: ", "item 2 is not a token id"),
                 ([*MPIRUN, "-np", "2", *self.words("e", rows=3)],
                  "stage 0: 1 batches of 3 rows are 3 rows a step, which 2 processes"),
                 ([*MPIRUN, "-np", "2", *self.words("f"), "--log", "/nowhere/log"], "/nowhere/log: cannot be written"))
        with concurrent.futures.ThreadPoolExecutor(mpirun.AT_ONCE) as pool:
            for done in [pool.submit(self.fails, *case) for case in cases]:
                done.result()

    def test_dry_run_speaks_once(self):
        out = self.run_ok([*MPIRUN, "-np", "2", *self.words("plan", "--dry-run")])
        self.assertEqual(out.count("arithmetic a step"), 1, out)

    # ------------------------------------------------------------------------------------- hosts

    def need_hosts(self):
        result = subprocess.run([HOSTS, "2", "1", "true"], capture_output=True, text=True,
                                stdin=subprocess.DEVNULL, timeout=SECONDS, check=False,
                                start_new_session=True)
        if result.returncode == 77:
            self.skipTest(result.stderr.strip())
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_hosts(self):
        """The other hosts do not see the folder that is written to."""
        self.need_hosts()
        for hosts, slots in ((2, 1), (2, 2), (4, 1)):
            name = f"hosts-{hosts}-{slots}"
            out = self.run_ok([HOSTS, str(hosts), str(slots), *self.words(name, "--f32")])
            self.assertEqual(out.count(f"{hosts * slots} processes, "), 1, out)
            self.same_losses(self.one(), name, 1e-5)

    def test_a_host_loses_its_process(self):
        self.need_hosts()
        self.dies([str(HOSTS), "2", "1"], "killed-host", 1)


if __name__ == "__main__":
    mpirun.main()
