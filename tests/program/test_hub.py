#!/usr/bin/env python3
"""Models by name: the Hugging Face cache of the machine, as huggingface_hub keeps it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import MODELS, PROGRAM, Server  # noqa: E402

try:
    import huggingface_hub
except ImportError:
    huggingface_hub = None

COMMIT, OLDER = "a" * 40, "b" * 40
FOLDER = MODELS / "llama3-v5"
GGUF = MODELS / "llama-gguf/model.gguf"


class HubTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.home = Path(self.folder.name)
        self.cache = self.home / "hub"

    def add(self, name, files, commit=COMMIT, refs=("main",)):
        """files: {name in the repository: where it is}; as huggingface_hub lays it out."""
        root = self.cache / f"models--{name.replace('/', '--')}"
        for file, source in files.items():
            blob = root / "blobs" / f"{commit[:4]}-{Path(file).name}"
            link = root / "snapshots" / commit / file
            for path in (blob, link):
                path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, blob)
            link.symlink_to(os.path.relpath(blob, link.parent))
        for ref in refs:
            path = root / "refs" / ref
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit)
        return root / "snapshots" / commit

    def ask(self, *words, **environment):
        environment = {"PATH": os.environ["PATH"], "HF_HOME": str(self.home), **environment}
        return subprocess.run([PROGRAM, *words], env=environment, cwd=self.home, capture_output=True, text=True)

    def refused(self, name, *parts):
        result = self.ask("info", name)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        for part in (name, *parts):
            self.assertIn(part, result.stderr)

    def folder_files(self):
        return {file.name: file for file in FOLDER.iterdir() if file.is_file()}

    def test_folders(self):
        newer = self.add("org/small", self.folder_files())
        older = self.add("org/small", self.folder_files(), OLDER, ("v1", "refs/pr/1"))
        for name, want in (("org/small", newer), ("org/small@main", newer), ("org/small@v1", older),
                           (f"org/small@{OLDER}", older), ("org/small@refs/pr/1", older)):
            result = self.ask("info", name)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue(result.stdout.startswith(str(want)), result.stdout[:200])
        ids = self.home / "ids.json"
        ids.write_text("[1, 2, 3]")
        by_name, by_path = (self.ask("generate", model, "--ids-file", ids, "-n", "4", "--json").stdout
                            for model in ("org/small", FOLDER))
        self.assertIn('"ids"', by_path)
        self.assertEqual(by_name.split('"ids"')[1].split("]")[0], by_path.split('"ids"')[1].split("]")[0])

    def test_a_path_comes_first(self):
        self.add("org/small", self.folder_files())
        shutil.copytree(FOLDER, self.home / "org/small")
        self.assertTrue(self.ask("info", "org/small").stdout.startswith("org/small"))

    def test_first_commands(self):
        result = self.ask()
        self.assertEqual(result.returncode, 2)
        self.assertIn("swiftkv bench --preset", result.stderr)
        self.add("org/small", self.folder_files())
        self.assertIn("swiftkv chat org/small", self.ask().stderr)
        (self.home / "models/mini").mkdir(parents=True)
        (self.home / "models/mini/kv6").symlink_to(FOLDER)
        self.assertIn("swiftkv compare models/mini/kv6", self.ask().stderr)

    def test_doctor(self):
        result = self.ask("doctor")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for word in ("processor", "kernels", "threads", "memory", "open files", str(self.cache)):
            self.assertIn(word, result.stdout)
        script = 'ulimit -n 256; ulimit -v 4000000; ulimit -f 100000; exec "$0" doctor'
        changed = subprocess.run(["sh", "-c", script, PROGRAM], capture_output=True, text=True, env={"HOME": "/"})
        self.assertEqual(changed.returncode, 0, changed.stderr)
        for word in ("ulimit -n", "ulimit -v", "ulimit -f"):
            self.assertIn(f"  -> change    {word}", changed.stdout)

    def test_where_the_cache_is(self):
        self.add("org/small", self.folder_files())
        other = self.home / ".cache/huggingface"
        other.parent.mkdir()
        other.symlink_to(self.home)
        for environment in ({"HF_HUB_CACHE": str(self.cache), "HF_HOME": "/nowhere"},
                            {"HF_HOME": "", "XDG_CACHE_HOME": str(self.home / ".cache")},
                            {"HF_HOME": "", "HOME": str(self.home)},
                            {"HF_HOME": "~/.cache/huggingface", "HOME": str(self.home)}):
            self.assertEqual(self.ask("info", "org/small", **environment).returncode, 0, environment)
        self.assertIn("/nowhere/hub", self.ask("info", "org/small", HF_HOME="/nowhere").stderr)

    def test_gguf_files(self):
        self.add("org/one-GGUF", {"one-Q8_0.gguf": GGUF, "mmproj-one-f16.gguf": GGUF})
        self.add("org/many-GGUF", {"many-Q4_K_M.gguf": GGUF, "many.q8_0.gguf": GGUF, "many-IQ4_NL.gguf": GGUF,
                                   "BF16/many-BF16-00001-of-00002.gguf": GGUF,
                                   "BF16/many-BF16-00002-of-00002.gguf": GGUF, "README.md": GGUF})
        for name, want in (("org/one-GGUF", "one-Q8_0.gguf"), ("org/many-GGUF:Q4_K_M", "many-Q4_K_M.gguf"),
                           ("org/many-GGUF:q8_0", "many.q8_0.gguf"), ("org/many-GGUF@main:IQ4_NL", "many-IQ4_NL.gguf"),
                           ("org/many-GGUF:bf16", "many-BF16-00001-of-00002.gguf")):
            self.assertIn(want, (self.ask("info", name).stdout + self.ask("info", name).stderr).splitlines()[0])
        self.refused("org/many-GGUF", "4 GGUF files", "many-Q4_K_M.gguf")
        self.refused("org/many-GGUF:Q5_K", "Q5_K", "many-IQ4_NL.gguf")
        self.refused("org/many-GGUF:Q4_K", "no GGUF file of Q4_K")

    def test_what_is_not_there(self):
        self.add("org/empty", {"README.md": GGUF})
        self.refused("org/none", str(self.cache))
        self.refused("org/empty", "no config.json and no GGUF file")
        self.refused("org/empty@v2", "revision v2")
        self.refused("../../etc", "cannot open")
        self.refused("org/..", "cannot open")
        for name in ("org/empty@../../../../etc", "org/empty@/etc", "a/b/c", "org/x:../y"):
            self.assertEqual(self.ask("info", name).returncode, 1, name)

    def test_a_path_with_a_slip(self):
        """A folder before the slash is here: that is no name of a model."""
        (self.home / "build").mkdir()
        self.refused("build/mine", "no such file or folder in build")
        self.add("build/small", self.folder_files())
        self.assertEqual(self.ask("info", "build/small").returncode, 0)

    def test_references_that_lead_elsewhere(self):
        self.add("org/small", self.folder_files())
        (self.cache / "models--org--small/refs/main").write_text("../../../../../../etc")
        self.refused("org/small", "revision main")

    def test_served_under_its_name(self):
        self.add("org/small", self.folder_files())
        before = os.environ.get("HF_HOME")
        os.environ["HF_HOME"] = str(self.home)
        try:
            server = Server("org/small@main", "--ctx", 64)
        finally:
            del os.environ["HF_HOME"]
            if before:
                os.environ["HF_HOME"] = before
        _, _, models = server.ask("GET", "/v1/models")
        server.stop()
        self.assertEqual(models["data"][0]["id"], "org/small")

    @unittest.skipUnless(huggingface_hub, "the package huggingface_hub is not installed")
    def test_as_huggingface_hub_finds_it(self):
        self.add("org/small", self.folder_files())
        self.add("org/small", self.folder_files(), OLDER, ("v1",))
        for revision in ("main", "v1"):
            want = huggingface_hub.snapshot_download("org/small", revision=revision, cache_dir=self.cache,
                                                     local_files_only=True)
            found = self.ask("info", f"org/small@{revision}").stdout.splitlines()[0]
            self.assertTrue(os.path.samefile(found.split(",")[0].strip(), want), (found, want))


if __name__ == "__main__":
    unittest.main()
