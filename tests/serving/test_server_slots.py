#!/usr/bin/env python3
"""Slots as scripts for llama-server use them: saved to a file, restored, also by another process, and erased."""

import concurrent.futures
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import PLAIN, PROGRAM, Server, prompt_of  # noqa: E402


class SlotTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def serve(self, *words):
        server = Server(PLAIN, "--slot-save-path", self.folder, "--max-running", 4, *words)
        self.addCleanup(server.stop)
        return server

    def slot(self, server, i, action, name=None, headers=None):
        """(status, answer)"""
        body = {"filename": name} if name is not None else None
        status, _, answer = server.ask("POST", f"/slots/{i}?action={action}", body, headers)
        return status, answer

    def ask(self, server, prompt, path="/completion", **body):
        return server.post(path, prompt=prompt, n_predict=4, temperature=0, ignore_eos=True, **body)

    def test_save_and_restore(self):
        server, prompt = self.serve(), prompt_of(100, 1)
        first = self.ask(server, prompt, id_slot=2, return_tokens=True)
        self.assertEqual((first["id_slot"], first["timings"]["cache_n"]), (2, 0))
        status, saved = self.slot(server, 2, "save", "one.bin")
        self.assertEqual((status, set(saved)), (200, {"id_slot", "filename", "n_saved", "n_written", "timings"}))
        self.assertEqual((saved["id_slot"], saved["filename"], saved["n_saved"]), (2, "one.bin", 104))
        self.assertEqual(saved["n_written"], (self.folder / "one.bin").stat().st_size)
        self.assertGreaterEqual(saved["timings"]["save_ms"], 0)
        self.assertEqual(json.loads((self.folder / "one.bin").read_text())["tokens"], prompt + first["tokens"])
        other = self.serve()  # without its memory
        status, restored = self.slot(other, 0, "restore", "one.bin")
        self.assertEqual((status, set(restored)), (200, {"id_slot", "filename", "n_restored", "n_read", "timings"}))
        self.assertEqual((restored["n_restored"], restored["n_read"]), (104, saved["n_written"]))
        again = self.ask(other, prompt)
        self.assertEqual((again["timings"]["cache_n"], again["content"]), (64, first["content"]))
        self.assertEqual(self.slot(other, 0, "save", "two.bin")[0], 200)  # slot 0 without a number
        self.assertEqual((self.folder / "two.bin").read_text(), (self.folder / "one.bin").read_text())

    def test_other_apis_and_streams_fill_slots(self):
        server = self.serve()
        self.ask(server, prompt_of(70, 1), "/v1/completions", id_slot=1)
        server.events("/completion", prompt=prompt_of(80, 2), n_predict=5, ignore_eos=True, id_slot=3)
        self.assertEqual(self.slot(server, 1, "save", "a")[1]["n_saved"], 74)
        self.assertEqual(self.slot(server, 3, "save", "a")[1]["n_saved"], 85)

    def test_erase(self):
        server = self.serve()
        self.ask(server, prompt_of(70, 1), id_slot=1)
        self.assertEqual(self.slot(server, 1, "erase"), (200, {"id_slot": 1, "n_erased": 74}))
        self.assertEqual(self.slot(server, 1, "erase"), (200, {"id_slot": 1, "n_erased": 0}))
        self.assertEqual(self.slot(server, 1, "save", "x")[0], 400)
        self.assertFalse((self.folder / "x").exists())

    def test_what_is_refused(self):
        server = self.serve()
        self.ask(server, prompt_of(70, 1), id_slot=1)
        for name in ("", ".", "..", "../x", "a/b", "/etc/x", ".hidden", "a b", "a\0b", "x" * 129, "a\\b", "ä", 5, None):
            for action in ("save", "restore"):
                status, answer = self.slot(server, 1, action, name)
                self.assertEqual(status, 400, name)
                self.assertEqual(answer["error"]["type"], "invalid_request_error")
        self.assertEqual(list(self.folder.iterdir()), [])
        for i in ("4", "-1", "x", "0x1", "99999999999999999999"):
            self.assertEqual(self.slot(server, i, "erase")[0], 400, i)
        for action in ("", "load", "SAVE"):
            self.assertEqual(self.slot(server, 1, action, "a")[0], 400)
        for value in (4, -2, "1", 0.5):
            status, _, answer = server.ask("POST", "/completion", {"prompt": [1, 2], "n_predict": 1, "id_slot": value})
            self.assertEqual((status, answer["error"]["param"]), (400, "id_slot"))
        self.assertEqual(self.ask(server, prompt_of(70, 1), id_slot=-1)["id_slot"], 0)

    def test_files_that_are_none(self):
        server = self.serve()
        good = {"swiftkv_slot": 1, "model": None, "tokens": [1, 2, 3]}
        self.ask(server, prompt_of(70, 1))
        self.slot(server, 0, "save", "good")
        good["model"] = json.loads((self.folder / "good").read_text())["model"]
        for bad in ("", "{}", "[1]", "no", json.dumps({**good, "model": "x"}), json.dumps({**good, "tokens": []}),
                    json.dumps({**good, "tokens": [1, -1]}), json.dumps({**good, "tokens": [1, 1 << 40]}),
                    json.dumps({**good, "swiftkv_slot": 2}), json.dumps({**good, "tokens": [1] * 100000})):  # fmt: skip
            (self.folder / "bad").write_text(bad)
            self.assertEqual(self.slot(server, 0, "restore", "bad")[0], 400, bad[:60])
        self.assertEqual(self.slot(server, 0, "restore", "absent")[0], 400)
        (self.folder / "folder").mkdir()
        (self.folder / "link").symlink_to(self.folder / "good")
        for name in ("folder", "link"):
            self.assertEqual(self.slot(server, 0, "restore", name)[0], 400)
        (self.folder / "bad").write_text(json.dumps(good))
        self.assertEqual(self.slot(server, 0, "restore", "bad")[1]["n_restored"], 3)

    def test_keys_have_files_and_slots_of_their_own(self):
        keys = self.folder / "keys"
        keys.write_text("first-key-of-two-1\nsecond-key-of-two\n")
        server = self.serve("--api-key-file", keys)
        one, two = ({"Authorization": f"Bearer {key}"} for key in keys.read_text().split())
        status, _, _ = server.ask("POST", "/completion", {"prompt": prompt_of(70, 1), "n_predict": 4, "id_slot": 1}, one)
        self.assertEqual(status, 200)
        self.assertEqual(self.slot(server, 1, "save", "x", two)[0], 400)
        self.assertEqual(self.slot(server, 1, "erase", None, two)[1]["n_erased"], 0)
        self.assertEqual(self.slot(server, 1, "save", "x", one)[0], 200)
        self.assertEqual(self.slot(server, 1, "restore", "x", two)[0], 400)
        self.assertEqual(self.slot(server, 1, "restore", "x", one)[0], 200)
        self.assertEqual(self.slot(server, 1, "save", "x")[0], 401)

    def held(self, begin=""):
        """Bytes of files, of one key or all."""
        return sum(f.stat().st_size for f in self.folder.iterdir() if f.name.startswith(begin))

    def fill(self, server, headers=None):
        """Saves slot 0 under one name after another until it is refused; returns how often it was not, and the error."""
        for i in range(100):
            status, answer = self.slot(server, 0, "save", f"file{i}", headers)
            if status != 200:
                self.assertEqual((status, answer["error"]["param"]), (400, "filename"))
                return i, answer["error"]["message"]
        self.fail("nothing was refused")

    def test_bytes_of_files(self):
        server = self.serve("--slot-save-bytes", 4000)
        self.ask(server, prompt_of(70, 1))
        n, said = self.fill(server)
        size = (self.folder / "file0").stat().st_size
        self.assertEqual(n, 4000 // size)
        for word in ("4000", str(size), "--slot-save-bytes"):
            self.assertIn(word, said)
        self.assertEqual(sorted(f.name for f in self.folder.iterdir()), sorted(f"file{i}" for i in range(n)))
        self.assertEqual(self.slot(server, 0, "save", "file1")[0], 200)  # one that is replaced is not counted
        (self.folder / "file1").unlink()
        self.assertEqual(self.slot(server, 0, "save", "other")[0], 200)
        self.assertEqual(self.slot(server, 0, "save", "file1")[0], 400)
        self.ask(server, prompt_of(90, 1))
        self.assertEqual(self.slot(server, 0, "save", "file0")[0], 200 if self.held() + 200 < 4000 else 400)
        self.assertLessEqual(self.held(), 4000)
        self.assertEqual(self.slot(server, 0, "restore", "other")[0], 200)

    def test_many_at_once(self):
        server = self.serve("--slot-save-bytes", 2000)
        self.ask(server, prompt_of(70, 1))
        names = [f"file{i % 12}" for i in range(48)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda name: self.slot(server, 0, "save", name)[0], names))
        self.assertEqual(set(done), {200, 400})
        self.assertLessEqual(self.held(), 2000)
        for file in self.folder.iterdir():
            self.assertEqual(len(json.loads(file.read_text())["tokens"]), 74, file.name)

    def test_number_of_files(self):
        server = self.serve()
        self.ask(server, prompt_of(70, 1))
        for i in range(4096):
            (self.folder / f"x{i}").touch()
        self.assertIn("4096", self.fill(server)[1])
        (self.folder / "x5").unlink()
        self.assertEqual(self.fill(server)[0], 1)

    def test_a_key_leaves_room_for_others(self):
        keys = Path(self.enterContext(tempfile.TemporaryDirectory())) / "keys"
        keys.write_text("first-key-of-two-1\nsecond-key-of-two\n")
        server = self.serve("--api-key-file", keys, "--slot-save-bytes", 8000)
        one, two = ({"Authorization": f"Bearer {key}"} for key in keys.read_text().split())
        body = {"prompt": prompt_of(70, 1), "n_predict": 4, "temperature": 0, "ignore_eos": True}
        filled = []
        for key in (one, two):
            self.assertEqual(server.ask("POST", "/completion", body, key)[0], 200)
            filled.append(self.fill(server, key)[0])
        size = next(self.folder.iterdir()).stat().st_size
        self.assertEqual(filled[0], 3 * 8000 // 4 // size)
        left = 8000 - filled[0] * size
        self.assertEqual(filled[1], 3 * left // 4 // size)
        self.assertGreater(filled[1], 0)

    def test_without_a_folder(self):
        server = Server(PLAIN)
        self.addCleanup(server.stop)
        status, answer = self.slot(server, 0, "save", "x")
        self.assertEqual(status, 501)
        self.assertIn("--slot-save-path", answer["error"]["message"])
        with self.assertRaises(RuntimeError) as caught:
            Server(PLAIN, "--slot-save-path", self.folder / "absent")
        self.assertIn("--slot-save-path", str(caught.exception))


if __name__ == "__main__":
    if not PROGRAM.exists():
        print("the program is not built")
        sys.exit(77)
    unittest.main()
