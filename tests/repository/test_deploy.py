#!/usr/bin/env python3
"""The unit for systemd, the container file and those of several servers: systemd accepts the unit, its hardening
stays, and all name options, packages and files that exist."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
DEPLOY = ROOT / "deploy"
EXPOSURE_MAX = 1.5  # of systemd-analyze security, 0 to 10


class DeployTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_unit(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder) / "swiftkv.service"
            text = (DEPLOY / "swiftkv.service").read_text()
            # Files of the installed program, which is not installed here.
            text = text.replace("/usr/local/bin/swiftkv", "/bin/true")
            unit.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.M))
            said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
            self.assertEqual((said.returncode, said.stderr.strip()), (0, ""))
            said = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], capture_output=True,
                                  text=True)
            level = re.search(r"exposure level for swiftkv.service: ([0-9.]+)", said.stdout)
            self.assertIsNotNone(level, said.stdout + said.stderr)
            self.assertLessEqual(float(level[1]), EXPOSURE_MAX)

    def test_container(self):
        """Its options are the program's, and it has the libraries that the program needs."""
        text = (DEPLOY / "Containerfile").read_text()
        options = subprocess.run([PROGRAM, "help", "serve"], capture_output=True, text=True, check=True).stdout
        used = re.findall(r'"(--[a-z-]+)"', text)
        self.assertTrue(used)
        for option in used:
            self.assertIn(option, options)
        self.assertIn("script/setup build", text)
        said = subprocess.run(["readelf", "-d", PROGRAM], capture_output=True, text=True, check=True).stdout
        for stem, version in re.findall(r"\(NEEDED\).*\[lib(.+)\.so\.(\d+)\]", said):
            stem = "ssl" if stem == "crypto" else stem  # one package has both
            if stem not in ("c", "m", "mpi") and "san" not in stem:
                package = f"lib{stem}{'-' if stem[-1].isdigit() else ''}{version}"
                self.assertRegex(text, rf"\b{package}\b")

    def test_several_servers(self):
        """Servers get options of serve, and what files name is there; tools/checks/check_deploy.sh asks schemas."""
        options = subprocess.run([PROGRAM, "help", "serve"], capture_output=True, text=True, check=True).stdout
        for path, n in (("compose.yaml", 2), ("kubernetes/server.yaml", 1), ("kubernetes/reader.yaml", 1)):
            lists = re.findall(r"\[--cache-store,[^]]*\]", (DEPLOY / path).read_text())
            self.assertEqual(len(lists), n)
            for option in re.findall(r"--[a-z-]+", " ".join(lists)):
                self.assertRegex(options, rf"(?m)^  {option} ")
        folder = DEPLOY / "kubernetes"
        named = re.findall(r"^  - (\S+\.yaml)$|files: \[(\S+)\]", (folder / "kustomization.yaml").read_text(), re.M)
        self.assertEqual({"".join(one) for one in named} | {"kustomization.yaml"}, set(os.listdir(folder)))
        for path in re.findall(r"- \./(kubernetes/\S+?):", (DEPLOY / "compose.yaml").read_text()):
            self.assertTrue((DEPLOY / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
