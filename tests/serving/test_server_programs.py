#!/usr/bin/env python3
"""What other people's tools say of the server: schemathesis of /openapi.json and of the answers to
what it makes up, promtool of /metrics."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402
from other_tools import find_program  # noqa: E402
from waiting import PATIENCE  # noqa: E402

SCHEMATHESIS = find_program("schemathesis")
PROMTOOL = find_program("promtool")
ALL = "SKV_TEST_ALL" in os.environ
# Requests that the description allows may be refused for what it cannot tell: a grammar that is
# none, ids beyond the vocabulary, a prompt that is too long.
EXCEPT = "positive_data_acceptance"


class ToolsTest(unittest.TestCase):
    def start(self, *words):
        """A model with text where the assets are, else one that takes ids only; slots can be saved."""
        words = ("--slot-save-path", self.folder(), *words)
        if base.STORIES.exists():
            template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
            self.addCleanup(template.close)
            template.write(base.CHATML)
            template.flush()
            server = base.Server(base.STORIES, "--ctx", 64, "--template", template.name, *words)
        else:
            server = base.Server(base.PLAIN, "--ctx", 64, *words)
        self.addCleanup(server.stop)
        return server

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def check(self, server, *words):
        with tempfile.TemporaryDirectory() as folder:
            command = [SCHEMATHESIS, "run", f"http://127.0.0.1:{server.port}/openapi.json"]
            # How long a busy machine takes to make a request up says nothing of the server.
            command += ["--seed", "1", "--no-color", "--suppress-health-check", "too_slow"]
            command += ["--generation-database", "none", *words]
            environment = os.environ | {"NO_COLOR": "1"}
            result = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, cwd=folder, env=environment
            )
        self.assertEqual(result.returncode, 0, result.stdout[-8000:] + result.stderr[-2000:])
        made = int(re.search(r"(\d+) generated", result.stdout).group(1))
        self.assertGreater(made, 100, result.stdout)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        return result.stdout

    @unittest.skipUnless(SCHEMATHESIS, "schemathesis is not installed")
    def test_requests_that_schemathesis_makes(self):
        phases = "coverage,fuzzing" if ALL else "fuzzing"
        self.check(self.start(), "--phases", phases, "--max-examples", 20 if ALL else 5, "--exclude-checks", EXCEPT)

    @unittest.skipUnless(SCHEMATHESIS, "schemathesis is not installed")
    def test_keys_models_and_adapters(self):
        """Behind a key, of two models one is loaded at a time; the names that the description lists are asked for
        at random."""
        lora, key = base.ROOT / "tests/data/lora", {"Authorization": "Bearer one-key"}
        adapters = ",".join(f"{name}@{base.PLAIN.name}={lora}/{name}" for name in ("narrow", "wide"))
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("one-key\n")
            file.flush()
            server = base.Server(base.PLAIN, base.MODELS / "qwen3-v5", "--ctx", 64, "--max-loaded", 1, "--lora", adapters,
                                 "--api-key-file", file.name, "--slot-save-path", self.folder())  # fmt: skip
            self.addCleanup(server.stop)
            self.check(server, "--phases", "fuzzing", "--max-examples", 15 if ALL else 6, "--exclude-checks", EXCEPT,
                       "-H", f"Authorization: {key['Authorization']}")  # fmt: skip
        text = server.ask("GET", "/metrics", headers=key)[2]
        loads = re.findall(r"^swiftkv_model_loads_total\{.*\} (\d+)$", text, re.M)
        self.assertGreater(sum(map(int, loads)), 2, text)
        self.assertEqual(server.ask("GET", "/v1/models")[0], 401)

    @unittest.skipUnless(PROMTOOL, "promtool (package prometheus) is absent")
    def test_metrics(self):
        server = self.start("--rpm", 1000)
        prompt = base.prompt_of(10)
        server.complete(prompt=prompt, max_tokens=3)
        text = server.ask("GET", "/metrics")[2]
        self.assertGreater(text.count("\n"), 200)
        command = [PROMTOOL, "check", "metrics"]
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_metrics_under_other_names(self):
        """Those of docs/reference/http.md; promtool has nothing to say but what llama-server's and vLLM's names are."""
        server = self.start("--metrics-compat", "--name", 'a "model"')
        server.complete(prompt=base.prompt_of(10), max_tokens=3, ignore_eos=True)
        text = server.ask("GET", "/metrics")[2]
        names = set(re.findall("^# TYPE ((?:llamacpp|vllm):[^ ]+) ", text, re.M))
        page = (base.ROOT / "docs/reference/http.md").read_text().split("### Metrics under other names")[1]
        rows = [line.split("|")[1] for line in page.split("\n## ")[0].splitlines() if line.startswith("| `")]
        self.assertEqual(names, {name for row in rows for name in re.findall("`([a-z0-9:_]+)", row)})
        labels = r'engine="0",model_name="a \"model\""'
        for line in (
            "llamacpp:prompt_tokens_total 10",
            "llamacpp:tokens_predicted_total 3",
            "llamacpp:requests_processing 0",
            f"vllm:generation_tokens_total{{{labels}}} 3",
            f'vllm:request_success_total{{{labels},finished_reason="length"}} 1',
            f'vllm:e2e_request_latency_seconds_bucket{{{labels},le="+Inf"}} 1',
        ):
            self.assertIn(f"\n{line}\n", text)
        if PROMTOOL:
            command = [PROMTOOL, "check", "metrics"]
            result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
            expected = {f"{name} metric names should not contain ':'" for name in names}
            expected.add('llamacpp:n_tokens_max counter metrics should have "_total" suffix')  # llama-server's type of a maximum
            self.assertEqual(set(filter(None, (result.stdout + result.stderr).splitlines())), expected)


if __name__ == "__main__":
    if not base.PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
