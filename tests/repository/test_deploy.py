#!/usr/bin/env python3
"""deploy/ says only options that `serve` has, and names only files that are there."""

import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")) / "swiftkv"


class DeployTest(unittest.TestCase):
    @unittest.skipUnless(PROGRAM.exists(), "the program is not built")
    def test_options(self):
        told = subprocess.run([PROGRAM, "help", "serve"], capture_output=True, text=True, check=True).stdout
        options = set(re.findall(r"--[a-z][a-z-]+", told))
        n = 0
        for path in ("compose.yaml", "kubernetes/server.yaml", "kubernetes/store.yaml", "Containerfile"):
            for line in (ROOT / "deploy" / path).read_text().splitlines():
                said = set(re.findall(r"--[a-z][a-z-]+", line))
                if "swiftkv" in line or "--cache-store" in line:
                    said -= {"--format", "--rm", "--build", "--scale", "--from-file"}
                    self.assertLessEqual(said, options, (path, line))
                    n += len(said)
        self.assertGreater(n, 6)

    def test_files(self):
        for path in re.findall(r"^  - (\S+\.yaml)$|files: \[(\S+)\]", (ROOT / "deploy/kubernetes/kustomization.yaml").read_text(), re.M):
            self.assertTrue((ROOT / "deploy/kubernetes" / "".join(path)).exists(), path)
        for path in re.findall(r"- \./(kubernetes/\S+?):", (ROOT / "deploy/compose.yaml").read_text()):
            self.assertTrue((ROOT / "deploy" / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
