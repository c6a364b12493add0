#!/usr/bin/env python3
"""--download: a server of this test answers as the hub does. What it sends, and when it fails, is a test's to say.
Failed requests are tried again after hundredths of a second (SWIFTKV_RETRY_SECONDS)."""

import fcntl
import hashlib
import http.server
import io
import itertools
import json
import os
import pty
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import MODELS, PROGRAM  # noqa: E402
from waiting import PATIENCE, wait_until  # noqa: E402

try:
    import huggingface_hub
except ImportError:
    huggingface_hub = None

COMMIT, OLDER = "a" * 40, "b" * 40
TOKEN = "hf_of_this_test"
FOLDER = {path.name: path.read_bytes() for path in (MODELS / "qwen2-swiftkv-g2").iterdir()
          if path.is_file() and path.name != "golden.json"}
GGUF = (MODELS / "llama-gguf/model.gguf").read_bytes()
CONTENT = bytes(range(256)) * 1200


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Models by name: {path: bytes}. A request goes to `answer` first, where a test can fail it."""

    def __init__(self):
        self.models, self.commits, self.requests, self.listing = {}, {}, [], None
        self.fetched = []  # paths of files, HEAD left out
        self.answer = lambda request, path: False
        self.elsewhere = None  # large files lie on this address
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = unquote(urlsplit(self.path).path)
                hub.requests.append((self.path, dict(self.headers)))
                hub.fetched += [path] if self.command == "GET" and "/resolve/" in path else []
                try:
                    if not hub.answer(self, path):
                        hub.serve(self, path)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def send_half(self, request, path):
        """The first half of an answer: its header and some of its body."""
        connection, request.wfile = request.wfile, io.BytesIO()
        self.serve(request, path)
        answer, request.wfile = request.wfile.getvalue(), connection
        request.wfile.write(answer[:len(answer) // 2])

    def send(self, request, status, body=b"", **headers):
        request.send_response(status)
        headers.setdefault("Content-Length", len(body))
        headers.setdefault("Connection", "close")  # as the handler does: clients do not come back on it
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), str(value))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)

    def entry(self, path, data):
        row = {"rfilename": path, "size": len(data), "blobId": git_hash(data)}
        if path.endswith((".safetensors", ".gguf")):
            row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return row

    def list(self, name):
        files = [self.entry(path, data) for path, data in self.models[name].items()]
        return {"id": name, "sha": self.commits.get(name, COMMIT), "siblings": files}

    def tree(self, name):
        """The same in the form that huggingface_hub reads."""
        rows = [row | {"type": "file", "path": row["rfilename"], "oid": row["blobId"]}
                for row in self.list(name)["siblings"]]
        return [row | ({"lfs": row["lfs"] | {"oid": row["lfs"]["sha256"]}} if "lfs" in row else {}) for row in rows]

    def serve(self, request, path):
        parts = path.strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.models:
            return self.send(request, 404, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if parts[0] == "api":
            if parts[4] == "tree":
                return self.send(request, 200, json.dumps(self.tree(name)).encode(), Content_Type="application/json")
            listing = self.listing or json.dumps(self.list(name)).encode()
            return self.send(request, 200, listing, Content_Type="application/json")
        file = "/".join(parts[4:])
        data = self.models[name].get(file)
        if data is None:
            return self.send(request, 404, X_Error_Code="EntryNotFound")
        row = self.entry(file, data)
        headers = {"X_Repo_Commit": self.commits.get(name, COMMIT), "ETag": f'"{row["blobId"]}"'}
        if "lfs" in row:
            headers["X_Linked_Etag"] = f'"{row["lfs"]["sha256"]}"'
            headers["X_Linked_Size"] = len(data)
            if self.elsewhere:
                return self.send(request, 302, Location=self.elsewhere + path, **headers)
        self.send_file(request, data, **headers)

    def send_file(self, request, data, **headers):
        begin = request.headers.get("Range", "")
        if not begin:
            return self.send(request, 200, data, Accept_Ranges="bytes", **headers)
        at = int(begin[len("bytes="):-1])
        if at >= len(data):
            return self.send(request, 416, Content_Range=f"bytes */{len(data)}")
        headers["Content_Range"] = f"bytes {at}-{len(data) - 1}/{len(data)}"
        self.send(request, 206, data[at:], **headers)

    def files_asked(self):
        return [path.split("/resolve/")[1].split("/", 1)[1] for path, _ in self.requests if "/resolve/" in path]


class DownloadTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.cache = self.home / "hub"
        self.hub = self.new_hub()
        self.hub.models["org/small"] = dict(FOLDER)

    def new_hub(self):
        hub = Hub()
        self.addCleanup(hub.stop)
        return hub

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HF_HOME": str(self.home), "HF_ENDPOINT": self.hub.address,
                "no_proxy": "*", "SWIFTKV_RETRY_SECONDS": "0.01", **more}

    def ask(self, *words, before=None, **environment):
        return subprocess.run([PROGRAM, *words], env=self.environment(**environment), cwd=self.home,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, preexec_fn=before,
                              timeout=PATIENCE)

    def begin(self, name, **more):
        """A download that goes on beside the test."""
        process = subprocess.Popen([PROGRAM, "info", name, "--download"], env=self.environment(), text=True,
                                   stdout=subprocess.DEVNULL, **{"stderr": subprocess.DEVNULL, **more})
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def download(self, name="org/small", **more):
        result = self.ask("info", name, "--download", **more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def refused(self, *parts, name="org/small", **more):
        result = self.ask("info", name, "--download", **more)
        self.assertEqual(result.returncode, 1, result.stderr)
        last = result.stderr.splitlines()[-1]
        for part in (name, *parts):
            self.assertIn(part, last)
        self.assertNotIn(TOKEN, result.stderr)
        return result

    def root(self, name="org/small"):
        return self.cache / f"models--{name.replace('/', '--')}"

    def check(self, name="org/small", commit=COMMIT, files=None):
        """The cache holds what the hub has, in the form that Python's tools write."""
        root, data = self.root(name), self.hub.models[name]
        self.assertEqual((root / "refs/main").read_text(), commit)
        for path in files or data:
            link = root / "snapshots" / commit / path
            self.assertTrue(link.is_symlink(), link)
            self.assertFalse(os.readlink(link).startswith("/"))
            self.assertEqual(link.read_bytes(), data[path], path)
        self.assertEqual([p.name for p in (root / "blobs").iterdir() if "incomplete" in p.name], [])

    # ---- what is fetched ----

    def test_a_folder(self):
        self.hub.models["org/small"] |= {"README.md": b"no", "pytorch_model.bin": b"no", "onnx/model.onnx": b"no"}
        self.download()
        self.check(files=FOLDER)
        self.assertEqual(sorted(self.hub.files_asked()), sorted(FOLDER))
        self.assertEqual(self.ask("info", "org/small").returncode, 0)

    def test_no_request_without_being_asked(self):
        result = self.ask("info", "org/small")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--download", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)
        self.download()
        n = len(self.hub.requests)
        for words in (("info", "org/small"), ("info", "org/other"), ("tokenize", "org/small", "-p", "a")):
            self.ask(*words)
        self.assertEqual(len(self.hub.requests), n)
        self.assertEqual(self.ask("info", "org/other", "--download", HF_HUB_OFFLINE="1").returncode, 1)
        self.assertEqual(len(self.hub.requests), n)

    def on_terminal(self, typed):
        """What the program writes to a terminal where this is typed, and its status."""
        main, side = pty.openpty()
        process = subprocess.Popen([PROGRAM, "info", "org/small"], env=self.environment(), stdin=side, stdout=side,
                                   stderr=side, close_fds=True)
        os.close(side)
        text, sent = b"", False
        try:
            while chunk := os.read(main, 4096):
                text += chunk
                if b"[y/N]" in text and not sent:
                    self.assertEqual(self.hub.requests, [])
                    os.write(main, typed)
                    sent = True
        except OSError:  # the other side is closed
            pass
        os.close(main)
        return process.wait(), text.decode(errors="replace")

    def test_question_on_a_terminal(self):
        status, text = self.on_terminal(b"n\n")
        self.assertEqual(status, 1, text)
        self.assertEqual(self.hub.requests, [])
        status, text = self.on_terminal(b"y\n")
        self.assertEqual(status, 0, text)
        self.check(files=FOLDER)

    def test_parts_by_index(self):
        whole = FOLDER["model.safetensors"]
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        index = {"weight_map": {"a": names[0], "b": names[1]}}
        files = {k: v for k, v in FOLDER.items() if k != "model.safetensors"}
        files |= {names[0]: whole, names[1]: whole + b"x", "model.safetensors.index.json": json.dumps(index).encode()}
        self.hub.models["org/parts"] = files | {"original/consolidated.safetensors": b"no", "other.safetensors": b"no"}
        self.ask("info", "org/parts", "--download")
        self.check("org/parts", files=files)
        self.assertEqual(sorted(self.hub.files_asked()), sorted(files))
        for bad in ("../../x", "missing.safetensors", 7):
            index["weight_map"]["c"] = bad
            self.hub.models["org/bad"] = files | {"model.safetensors.index.json": json.dumps(index).encode()}
            self.refused("model.safetensors.index.json", name="org/bad")

    def test_gguf(self):
        self.hub.models["org/many-GGUF"] = {
            "many-Q4_K_M.gguf": GGUF, "many-Q8_0.gguf": GGUF + b"8", "config.json": b"{}", "mmproj-f16.gguf": b"no",
            "BF16/many-BF16-00001-of-00002.gguf": GGUF + b"1", "BF16/many-BF16-00002-of-00002.gguf": GGUF + b"2",
        }
        self.download("org/many-GGUF:Q4_K_M")
        self.assertEqual(self.hub.files_asked(), ["many-Q4_K_M.gguf"])
        self.ask("info", "org/many-GGUF:bf16", "--download")
        self.assertEqual(sorted(self.hub.files_asked()[1:]), [
            "BF16/many-BF16-00001-of-00002.gguf", "BF16/many-BF16-00002-of-00002.gguf"])
        self.refused("3 GGUF files", "many-Q8_0.gguf", name="org/many-GGUF")
        self.refused("no GGUF file of Q5_K", name="org/many-GGUF:Q5_K")

    def test_revisions(self):
        self.download("org/small@refs/pr/1")
        self.assertEqual((self.root() / "refs/refs/pr/1").read_text(), COMMIT)
        self.assertIn("/revision/refs%2Fpr%2F1?", self.hub.requests[0][0])
        self.download(f"org/small@{COMMIT}")
        self.assertFalse((self.root() / "refs" / COMMIT).exists())

    def test_a_newer_commit(self):
        self.hub.commits["org/small"] = OLDER
        self.download()
        self.hub.commits["org/small"] = COMMIT
        self.hub.models["org/small"]["config.json"] = FOLDER["config.json"] + b"\n"
        n = len(self.hub.files_asked())
        self.download()
        self.check(files=FOLDER)
        self.assertEqual(self.hub.files_asked()[n:], ["config.json"])

    def test_hub_away(self):
        address = self.hub.address
        self.refused("onnect", HF_ENDPOINT="http://127.0.0.1:9")
        self.download(HF_ENDPOINT=address + "/")
        result = self.download(HF_ENDPOINT="http://127.0.0.1:9")
        self.assertIn("the cached files are used", result.stderr)

    # ---- tokens ----

    def test_the_token_stays_here(self):
        other = self.new_hub()
        other.answer = lambda request, path: other.send_file(request, FOLDER["model.safetensors"]) or True
        self.hub.elsewhere = other.address
        self.download(HF_TOKEN=TOKEN)
        self.check(files=FOLDER)
        self.assertTrue(all(headers.get("Authorization") == f"Bearer {TOKEN}" for _, headers in self.hub.requests))
        self.assertEqual(len(other.requests), 1)
        for _, headers in other.requests:
            self.assertNotIn(TOKEN, json.dumps(headers))

    def test_token_of_a_file(self):
        (self.home / "token").write_text(TOKEN + "\n")
        self.download()
        self.assertEqual(self.hub.requests[0][1]["Authorization"], f"Bearer {TOKEN}")

    def test_gated(self):
        for status, part in ((401, "HF_TOKEN"), (403, "ask for access")):
            self.hub.answer = lambda request, path, status=status: self.hub.send(
                request, status, b"no", X_Error_Code="GatedRepo", X_Error_Message="Access is restricted") or True
            self.refused(str(status), part, "Access is restricted", HF_TOKEN=TOKEN)
        self.hub.answer = lambda request, path: "/resolve/" in path and (self.hub.send(request, 403, b"no") or True)
        self.refused("403", "ask for access")
        self.hub.answer = lambda request, path: False
        self.refused("404", "Repository not found", name="org/none")

    def test_bad_tokens(self):
        self.refused("HF_TOKEN", HF_TOKEN="x" * 2000)
        self.assertEqual(self.hub.requests, [])

    # ---- interruptions ----

    def one_file(self, data=CONTENT):
        self.hub.models["org/one"] = {"one-Q8_0.gguf": data}
        digest = hashlib.sha256(data).hexdigest()
        return self.root("org/one") / "blobs" / digest, self.root("org/one") / "blobs" / f"{digest}.incomplete"

    def finish(self):
        self.ask("info", "org/one", "--download")
        self.check("org/one")

    def test_resumed_at_every_kind_of_boundary(self):
        n = len(CONTENT)
        for at in (0, 1, 63, 64, 4095, 4096, 65536, n - 1, n):
            blob, incomplete = self.one_file()
            shutil.rmtree(self.cache, ignore_errors=True)
            incomplete.parent.mkdir(parents=True)
            incomplete.write_bytes(CONTENT[:at])
            self.hub.requests.clear()
            self.finish()
            ranges = [headers.get("Range") for path, headers in self.hub.requests if "/resolve/" in path]
            self.assertEqual(ranges, [] if at == n else [f"bytes={at}-" if at else None], at)

    def test_what_was_left_is_wrong(self):
        for left in (b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5), CONTENT + b"y"):
            blob, incomplete = self.one_file()
            shutil.rmtree(self.cache, ignore_errors=True)
            incomplete.parent.mkdir(parents=True)
            incomplete.write_bytes(left)
            self.finish()

    def cut_after(self, cuts, status=None):
        """The first answers end after so many bytes."""
        left = list(cuts)

        def answer(request, path):
            if "/resolve/" not in path or not left:
                return False
            n = left.pop(0)
            begin = int(request.headers.get("Range", "bytes=0-")[len("bytes="):-1])
            request.send_response(206 if begin else 200)
            request.send_header("Content-Length", str(len(CONTENT) - begin))
            if begin:
                request.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
            request.end_headers()
            request.wfile.write(CONTENT[begin:begin + n])
            return True

        self.hub.answer = answer

    def test_server_cuts(self):
        self.one_file()
        self.cut_after([1000, 0, 70000, 1])
        self.finish()
        ranges = [headers.get("Range") for path, headers in self.hub.requests if "/resolve/" in path]
        self.assertEqual(ranges, [None, "bytes=1000-", "bytes=1000-", "bytes=71000-", "bytes=71001-"])

    def test_server_without_ranges(self):
        blob, incomplete = self.one_file()
        incomplete.parent.mkdir(parents=True)
        incomplete.write_bytes(b"z" * 500)
        self.hub.answer = lambda request, path: "/resolve/" in path and (self.hub.send(request, 200, CONTENT) or True)
        self.finish()

    def test_killed_and_resumed(self):
        blob, incomplete = self.one_file()
        go_on, _ = self.stop_in_the_middle()
        process = self.begin("org/one")
        self.wait_for_bytes(100000)
        process.kill()
        process.wait()
        go_on.set()
        self.assertEqual(incomplete.stat().st_size, 100000)
        self.assertFalse((self.root("org/one") / "refs/main").exists())
        self.finish()
        self.assertEqual(self.hub.requests[-1][1]["Range"], "bytes=100000-")

    def test_wrong_hash(self):
        blob, incomplete = self.one_file()
        wrong = CONTENT[:-1] + b"!"
        self.hub.answer = lambda request, path: "/resolve/" in path and (self.hub.send_file(request, wrong) or True)
        self.refused("one-Q8_0.gguf", "hash", name="org/one")
        self.assertFalse(blob.exists())
        self.assertFalse((self.root("org/one") / "snapshots").exists())
        self.hub.answer = lambda request, path: False
        self.finish()

    def test_too_long_and_too_short(self):
        self.one_file()
        for data, part in ((CONTENT + b"more", "more than"), (CONTENT[:-5], "ended it")):
            self.hub.answer = lambda request, path, data=data: "/resolve/" in path and (
                self.hub.send(request, 200, data) or True)
            shutil.rmtree(self.cache, ignore_errors=True)
            self.refused("one-Q8_0.gguf", part, name="org/one")

    def test_other_commit_or_hash_in_headers(self):
        self.one_file()
        for header in ("X_Repo_Commit", "X_Linked_Etag"):
            self.hub.answer = lambda request, path, header=header: "/resolve/" in path and (
                self.hub.send(request, 200, CONTENT, **{header: "c" * 40}) or True)
            self.refused("one-Q8_0.gguf", "c" * 40, name="org/one")

    def test_disk_full(self):
        blob, incomplete = self.one_file()
        result = self.refused("one-Q8_0.gguf", "File too large", name="org/one",
                              before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000)))
        self.assertEqual(result.stderr.count("\n"), 1)
        self.assertLessEqual(incomplete.stat().st_size, 100000)
        self.finish()

    def test_small_disk(self):
        if os.geteuid() != 0:
            self.skipTest("mounting a small disk needs root")
        self.cache.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", self.cache],
                          capture_output=True).returncode != 0:
            self.skipTest("a small disk cannot be mounted here")
        try:
            blob, incomplete = self.one_file()
            other = self.cache / "other"
            other.write_bytes(bytes(200000))
            self.refused("has room for", name="org/one")
            self.assertEqual(self.hub.files_asked(), [])
            other.unlink()

            def fill(request, path):  # after the room was looked at
                if "/resolve/" in path:
                    other.write_bytes(bytes(200000))
                return False

            self.hub.answer = fill
            result = self.refused("one-Q8_0.gguf", "No space left on device", name="org/one")
            self.assertEqual(result.stderr.count("\n"), 1)
            kept = incomplete.stat().st_size
            self.assertFalse(blob.exists())
            other.unlink()
            self.hub.answer = lambda request, path: False
            self.finish()
            self.assertEqual(self.hub.requests[-1][1].get("Range"), f"bytes={kept}-" if kept else None)
        finally:
            subprocess.run(["umount", self.cache], check=True)

    def test_two_processes(self):
        """The file comes when two of three have said that they wait for it."""
        self.one_file()
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.hub.answer = lambda request, path: "/resolve/" in path and not go_on.wait(PATIENCE)
        texts = [self.home / f"stderr-{i}" for i in range(3)]
        processes = []
        for text in texts:
            with text.open("w") as file:
                processes.append(self.begin("org/one", stderr=file))
        wait_until(lambda: sum("another process fetches it" in text.read_text() for text in texts) == 2)
        go_on.set()
        self.assertEqual([process.wait() for process in processes], [1] * 3)  # one-Q8_0.gguf is no model
        texts = [text.read_text() for text in texts]
        self.assertEqual(len(self.hub.files_asked()), 1, texts)
        self.assertEqual(sum("another process fetches it" in text for text in texts), 2, texts)
        self.hub.answer = lambda request, path: False
        self.check("org/one")

    def parts(self, n, size):
        """A model of n parts, whose first answers a test may end anywhere: eight are asked for at once."""
        files = {f"many-{i + 1:05}-of-{n:05}.gguf": bytes((i + j) % 256 for j in range(size)) for i in range(n)}
        self.hub.models["org/parts"] = files
        return list(files)

    def finish_parts(self):
        result = self.ask("info", "org/parts", "--download")
        self.check("org/parts")
        return result

    def asked_of(self, file):
        return [headers.get("Range") for path, headers in self.hub.requests if path.endswith("/" + file)]

    def test_cut_at_every_byte_of_a_body(self):
        """Part i ends after i bytes: none, the last but one and the last among them."""
        size = 64
        names = self.parts(size + 1, size)
        seen = set()

        def answer(request, path):
            file = path.rsplit("/", 1)[-1]
            if "/resolve/" not in path or file in seen:
                return False
            seen.add(file)
            request.send_response(200)
            request.send_header("Content-Length", str(size))
            request.end_headers()
            request.wfile.write(self.hub.models["org/parts"][file][:names.index(file)])
            return True

        self.hub.answer = answer
        self.finish_parts()
        for i, file in enumerate(names):
            again = [] if i == size else [f"bytes={i}-" if i else None]
            self.assertEqual(self.asked_of(file), [None, *again], file)

    def test_cut_in_the_header(self):
        """Part i ends within the header of its answer, after 3 i bytes."""
        data = bytes(50)
        digest = hashlib.sha256(data).hexdigest()
        header = (f'HTTP/1.1 200 OK\r\nX-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: "{digest}"\r\n'
                  f"Accept-Ranges: bytes\r\nContent-Length: {len(data)}\r\n\r\n").encode()
        names = self.parts(len(header) // 3, len(data))
        seen = set()

        def answer(request, path):
            file = path.rsplit("/", 1)[-1]
            if "/resolve/" not in path or file in seen:
                return False
            seen.add(file)
            part = self.hub.models["org/parts"][file]
            whole = header.replace(digest.encode(), hashlib.sha256(part).hexdigest().encode())
            request.wfile.write(whole[:3 * names.index(file)])
            return True

        self.hub.answer = answer
        self.finish_parts()
        for file in names:
            self.assertEqual(self.asked_of(file), [None, None], file)

    def test_cut_list(self):
        """The list ends within its header, at its first byte, in the middle and before its last byte."""
        text = json.dumps(self.hub.list("org/small")).encode()
        header = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
        for n in (0, 10, len(header) - 2, len(header), len(header) + len(text) // 2, len(header) + len(text) - 1):
            left = [n]

            def answer(request, path, left=left):
                if not path.startswith("/api/") or not left:
                    return False
                request.wfile.write((header + text)[:left.pop()])
                return True

            self.hub.answer = answer
            shutil.rmtree(self.cache, ignore_errors=True)
            self.download()
            self.check(files=FOLDER)

    def test_other_range_than_asked(self):
        """What does not begin where the file ends is not added to it."""
        blob, incomplete = self.one_file()
        for begin, status in ((0, 206), (999, 206), (1001, 206), (None, 206)):
            shutil.rmtree(self.cache, ignore_errors=True)
            incomplete.parent.mkdir(parents=True)
            incomplete.write_bytes(CONTENT[:1000])

            def answer(request, path, begin=begin, status=status):
                if "/resolve/" not in path:
                    return False
                more = {} if begin is None else {
                    "Content_Range": f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}"}
                self.hub.send(request, status, CONTENT[begin or 0:], **more)
                return True

            self.hub.answer = answer
            self.refused("one-Q8_0.gguf", "not from 1000", name="org/one")
            self.assertEqual(incomplete.read_bytes(), CONTENT[:1000])
            self.hub.answer = lambda request, path: False
            self.finish()

    def test_changed_between_parts(self):
        """The file behind the same address changes after half of it came."""
        other = bytes(255 - b for b in CONTENT)
        for says in (True, False):
            blob, incomplete = self.one_file()
            shutil.rmtree(self.cache, ignore_errors=True)
            self.hub.requests.clear()
            seen = []

            def answer(request, path, says=says, seen=seen):
                if "/resolve/" not in path:
                    return False
                seen.append(path)
                if len(seen) == 1:
                    request.send_response(200)
                    request.send_header("Content-Length", str(len(CONTENT)))
                    request.end_headers()
                    request.wfile.write(CONTENT[:150000])
                elif len(seen) == 2:
                    tag = hashlib.sha256(other if says else CONTENT).hexdigest()
                    self.hub.send_file(request, other, X_Linked_Etag=f'"{tag}"')
                else:
                    return False
                return True

            self.hub.answer = answer
            if says:  # nothing of the other file is kept
                self.refused("one-Q8_0.gguf", "hash", name="org/one")
                self.assertEqual(incomplete.read_bytes(), CONTENT[:150000])
            else:  # its hash tells, and all of it is fetched once more
                self.ask("info", "org/one", "--download")
                self.assertEqual(self.asked_of("one-Q8_0.gguf"), [None, "bytes=150000-", None])
            self.finish()

    def test_all_parts_were_left_whole(self):
        """More files than are asked for at once got all their bytes, and no names: nothing is fetched again."""
        names = self.parts(20, 50)
        blobs = self.root("org/parts") / "blobs"
        blobs.mkdir(parents=True)
        for name in names:
            data = self.hub.models["org/parts"][name]
            (blobs / f"{hashlib.sha256(data).hexdigest()}.incomplete").write_bytes(data)
        self.finish_parts()
        self.assertEqual(self.hub.files_asked(), [])

    def test_killed_while_naming(self):
        """A link or revision that was made and got no name yet is removed by the next run."""
        self.download()
        blobs = self.root() / "blobs"
        (blobs / "name-4711.incomplete").symlink_to("../../blobs/x")
        (blobs / "name.incomplete").write_text(COMMIT)
        shutil.rmtree(self.root() / "snapshots")
        self.download()
        self.check(files=FOLDER)

    def test_kills_at_any_time(self):
        """However often a download of many files is killed, in the end nothing is left over."""
        self.parts(120, 50)
        kills = random.Random(8)
        for _ in range(12):
            process = self.begin("org/parts")
            time.sleep(kills.uniform(0, 0.15))
            process.kill()
            process.communicate()
        self.finish_parts()

    def test_a_new_file_after_a_cut(self):
        """The next commit has another file of this name: what came of the old one is not mixed with it."""
        blob, incomplete = self.one_file()
        incomplete.parent.mkdir(parents=True)
        incomplete.write_bytes(CONTENT[:1000])
        self.hub.models["org/one"] = {"one-Q8_0.gguf": CONTENT[::-1]}
        self.ask("info", "org/one", "--download")
        self.assertEqual(self.asked_of("one-Q8_0.gguf"), [None])
        link = self.root("org/one") / "snapshots" / COMMIT / "one-Q8_0.gguf"
        self.assertEqual(link.read_bytes(), self.hub.models["org/one"]["one-Q8_0.gguf"])
        self.assertEqual(incomplete.read_bytes(), CONTENT[:1000])

    def test_killed_between_files_and_names(self):
        """All blobs are there, and some names: nothing is fetched again."""
        for keep in range(4):
            shutil.rmtree(self.cache, ignore_errors=True)
            self.hub.answer = lambda request, path: False
            self.download()
            (self.root() / "refs/main").unlink()
            for link in sorted((self.root() / "snapshots" / COMMIT).iterdir())[keep:]:
                link.unlink()
            self.hub.fetched.clear()
            self.download()
            self.check(files=FOLDER)
            self.assertEqual(self.hub.fetched, [])

    def opens_or_not(self):
        """After a kill a name stands for the whole model or for none; True: the whole."""
        root = self.root()
        for link in root.glob("snapshots/*/*"):
            self.assertEqual(link.read_bytes(), FOLDER[link.name], link)
        whole = self.ask("info", "org/small").returncode == 0
        known = self.ask("info", f"org/small@{COMMIT}").returncode == 0
        self.assertEqual((root / "refs/main").exists(), whole)
        if known:
            self.assertEqual({link.name for link in root.glob("snapshots/*/*")}, set(FOLDER))
        if huggingface_hub and (root / "refs").exists():
            repos = huggingface_hub.scan_cache_dir(self.cache).repos
            self.assertEqual({ref for repo in repos for ref in repo.refs}, {"main"} if whole else set())
        if whole and huggingface_hub:
            found = huggingface_hub.snapshot_download("org/small", cache_dir=self.cache, local_files_only=True)
            self.assertEqual({p.name: p.read_bytes() for p in Path(found).iterdir()}, FOLDER)
        return whole

    def kill_at(self, i, send):
        """Kills a download while its i-th request waits for the rest of the answer, of which `send` sends a part."""
        asked, n, go_on = threading.Event(), itertools.count(), threading.Event()
        self.addCleanup(go_on.set)

        def answer(request, path):
            if next(n) != i:
                return False
            send(request, path)
            request.wfile.flush()
            asked.set()
            go_on.wait(PATIENCE)
            return True

        self.hub.answer = answer
        process = self.begin("org/small")
        self.assertTrue(asked.wait(PATIENCE))
        return process, go_on

    def test_killed_at_any_time(self):
        """With each request, before its answer, in the middle of it and, at some moment, behind it: the last answer
        is followed by the names."""
        parts = (lambda request, path: None, self.hub.send_half, *[self.hub.serve] * 6)
        for i, send in itertools.product(range(1 + len(FOLDER)), parts):
            shutil.rmtree(self.cache, ignore_errors=True)
            process, go_on = self.kill_at(i, send)
            if send == self.hub.serve:
                time.sleep(random.uniform(0, 0.01))  # any moment is as good: no outcome depends on it
            process.kill()
            process.wait()
            go_on.set()
            self.hub.answer = lambda request, path: False
            self.cache.mkdir(exist_ok=True)
            self.opens_or_not()
            self.download()
            self.assertTrue(self.opens_or_not())

    def test_the_other_goes_on_after_a_kill(self):
        """Of two processes the one that fetches is killed: the one that waits goes on where it was."""
        blob, incomplete = self.one_file()
        self.stop_in_the_middle()
        first = self.begin("org/one")
        self.wait_for_bytes(100000)
        second = self.begin("org/one", stderr=subprocess.PIPE)
        self.assertIn("another process fetches it", second.stderr.readline())
        first.kill()
        first.wait()
        second.communicate()
        self.check("org/one")
        self.assertEqual(self.asked_of("one-Q8_0.gguf"), [None, "bytes=100000-"])

    def test_the_lock_of_python(self):
        blob, incomplete = self.one_file()
        lock = self.cache / ".locks/models--org--one" / f"{blob.name}.lock"
        lock.parent.mkdir(parents=True)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = self.begin("org/one", stderr=subprocess.PIPE)
            self.assertIn("another process", process.stderr.readline())
            self.assertEqual(self.hub.files_asked(), [])
        process.communicate()
        self.check("org/one")

    # ---- what the hub may say ----

    def fail_first(self, n, *status, **headers):
        left = [n]

        def answer(request, path):
            left[0] -= 1
            return left[0] >= 0 and (self.hub.send(request, *status, **headers) or True)

        self.hub.answer = answer

    def test_later(self):
        self.fail_first(1, 429, b"slow down", Retry_After=1)
        start = time.monotonic()
        result = self.download()
        self.assertGreater(time.monotonic() - start, 0.95)  # without Retry-After it would be a hundredth
        self.assertIn("429", result.stderr)
        shutil.rmtree(self.cache)
        self.fail_first(1, 503, b"")
        self.download()
        shutil.rmtree(self.cache)
        self.fail_first(1, 429, b"", Retry_After=100000)
        self.refused("429")

    def test_malicious_lists(self):
        row = self.hub.entry("config.json", FOLDER["config.json"])
        for path in ("../x", "/etc/passwd", "a/../../x", "..", ".", "", "a//b", "a\\..\\b", "a\nb", "x" * 300,
                     "a/" * 600 + "b", "blobs/../../../x"):
            self.hub.listing = json.dumps({"sha": COMMIT, "siblings": [row, row | {"rfilename": path}]}).encode()
            result = self.refused("refused file name")
            self.assertEqual(result.stderr.count("\n"), 1)
        for change in ({"blobId": "../../x"}, {"blobId": "A" * 40}, {"blobId": None}, {"size": -1}, {"size": 1 << 50},
                       {"size": "9"}, {"lfs": {"sha256": "../" * 20, "size": 1}}, {"rfilename": 5}):
            self.hub.listing = json.dumps({"sha": COMMIT, "siblings": [row | change]}).encode()
            self.refused("the hub's list")
        for listing in (b" ", b"{", b"[]", b"{}", json.dumps({"sha": "../../x", "siblings": [row]}).encode(),
                        json.dumps({"sha": COMMIT, "siblings": []}).encode(), b"[" * 100000):
            self.hub.listing = listing
            self.refused("the hub's list")
        huge = [row, self.hub.entry("model.safetensors", b""), row | {"rfilename": "tokenizer.json", "size": 1 << 40}]
        self.hub.listing = json.dumps({"sha": COMMIT, "siblings": huge}).encode()
        self.refused("tokenizer.json", "at most")
        self.assertEqual(self.hub.files_asked(), [])
        self.assertEqual(sorted(p.name for p in self.home.iterdir()), ["hub"] if self.cache.exists() else [])

    def test_list_without_end(self):
        def answer(request, path):
            request.send_response(200)
            request.end_headers()
            for _ in range(200):
                request.wfile.write(b" " * (1 << 20))
            return True

        self.hub.answer = answer
        self.refused("longer than")

    def test_redirections_without_end(self):
        self.hub.answer = lambda request, path: self.hub.send(request, 302, Location=path) or True
        self.refused("redirect")
        self.hub.answer = lambda request, path: self.hub.send(request, 302, Location="file:///etc/passwd") or True
        self.refused(self.hub.address)

    def test_stalled(self):
        """Five times the connection ends, and the last time nothing comes."""
        stop, n = threading.Event(), itertools.count(1)
        self.addCleanup(stop.set)
        self.hub.answer = lambda request, path: next(n) < 6 or not stop.wait(PATIENCE)
        process = self.ask("info", "org/small", "--download", HF_HUB_DOWNLOAD_TIMEOUT="1")
        self.assertEqual(process.returncode, 1)
        self.assertIn("imeout", process.stderr)
        self.assertEqual(len(self.hub.requests), 6)

    def test_tried_later_and_later(self):
        """Each try waits twice as long as the one before: 0.05, 0.1, 0.2, 0.4 and 0.8 s at least."""
        times = []
        self.hub.answer = lambda request, path: times.append(time.monotonic()) or True
        self.assertEqual(self.ask("info", "org/small", "--download", SWIFTKV_RETRY_SECONDS="0.05").returncode, 1)
        waits = [after - before for before, after in zip(times, times[1:])]
        self.assertEqual(len(waits), 5)
        for i, wait in enumerate(waits):
            self.assertGreater(wait, 0.9 * 0.05 * 2**i)

    # ---- Python's tools ----

    @unittest.skipUnless(huggingface_hub, "the package huggingface_hub is not installed")
    def test_python_finds_it(self):
        for name in ("org/small", "org/small@refs/pr/1"):
            self.download(name)
            found = huggingface_hub.snapshot_download("org/small", revision=(name.split("@") + [None])[1],
                                                      cache_dir=self.cache, local_files_only=True)
            for path, data in FOLDER.items():
                self.assertEqual((Path(found) / path).read_bytes(), data)
            self.assertEqual(huggingface_hub.try_to_load_from_cache("org/small", "config.json", cache_dir=self.cache),
                             str(Path(found) / "config.json"))
        info = huggingface_hub.scan_cache_dir(self.cache)
        self.assertEqual([repo.repo_id for repo in info.repos], ["org/small"])
        self.assertEqual(list(info.warnings), [])

    @unittest.skipUnless(huggingface_hub, "the package huggingface_hub is not installed")
    def test_what_python_fetched(self):
        code = ("import huggingface_hub, sys;"
                "print(huggingface_hub.snapshot_download('org/small', cache_dir=sys.argv[1]))")
        done = subprocess.run([sys.executable, "-c", code, self.cache], capture_output=True, text=True,
                              env={**os.environ, **self.environment(), "HF_HUB_DISABLE_XET": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(files=FOLDER)
        n = len(self.hub.files_asked())
        self.download()
        self.assertEqual(len(self.hub.files_asked()), n, "nothing is fetched twice")
        self.assertTrue(self.ask("info", "org/small").stdout.startswith(done.stdout.strip()))

    def python(self, **more):
        code = ("import huggingface_hub, sys;"
                "print(huggingface_hub.snapshot_download('org/one', cache_dir=sys.argv[1]))")
        return subprocess.Popen([sys.executable, "-c", code, self.cache], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env={**os.environ, **self.environment(),
                                                             "HF_HUB_DISABLE_XET": "1"}, **more)

    def stop_in_the_middle(self):
        """The first GET of the file stands still after 100000 bytes; returns what lets it go on."""
        go_on, stood = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def answer(request, path):
            if "/resolve/" not in path or request.command != "GET" or stood.is_set():
                return False
            request.send_response(200)
            request.send_header("Content-Length", str(len(CONTENT)))
            request.end_headers()
            request.wfile.write(CONTENT[:100000])
            request.wfile.flush()
            stood.set()
            go_on.wait(PATIENCE)
            return True

        self.hub.answer = answer
        return go_on, stood

    def wait_for_bytes(self, n):
        """Until this many bytes of a file are on the disk; it."""
        blobs = self.root("org/one") / "blobs"
        return wait_until(lambda: next((p for p in blobs.glob("*.incomplete") if p.stat().st_size >= n), None))

    @unittest.skipUnless(huggingface_hub, "the package huggingface_hub is not installed")
    def test_python_goes_on_after_a_kill(self):
        self.one_file()
        _, stood = self.stop_in_the_middle()
        first = self.begin("org/one")
        self.assertTrue(stood.wait(PATIENCE))
        self.wait_for_bytes(100000)
        first.kill()
        first.wait()
        out, err = self.python().communicate()
        link = self.root("org/one") / "snapshots" / COMMIT / "one-Q8_0.gguf"
        self.assertEqual(link.read_bytes(), CONTENT, err)
        self.assertEqual(out.strip(), str(link.parent))
        self.assertEqual((self.root("org/one") / "refs/main").read_text(), COMMIT)

    @unittest.skipUnless(huggingface_hub, "the package huggingface_hub is not installed")
    def test_goes_on_after_python_was_killed(self):
        self.one_file()
        _, stood = self.stop_in_the_middle()
        first = self.python()
        self.assertTrue(stood.wait(PATIENCE))
        first.kill()  # what it has read may not be written yet, and need not be
        first.communicate()
        self.ask("info", "org/one", "--download")
        found = huggingface_hub.snapshot_download("org/one", cache_dir=self.cache, local_files_only=True)
        self.assertEqual((Path(found) / "one-Q8_0.gguf").read_bytes(), CONTENT)

    @unittest.skipUnless(huggingface_hub, "the package huggingface_hub is not installed")
    def test_python_waits_for_us(self):
        self.one_file()
        go_on, stood = self.stop_in_the_middle()
        ours = self.begin("org/one")
        self.assertTrue(stood.wait(PATIENCE))
        theirs = self.python()
        wait_until(lambda: len(self.hub.requests) >= 5)  # it has asked what there is
        self.assertEqual(len(self.hub.fetched), 1)
        go_on.set()
        ours.wait()
        out, err = theirs.communicate()
        self.assertEqual(theirs.returncode, 0, err)
        self.assertEqual((Path(out.strip()) / "one-Q8_0.gguf").read_bytes(), CONTENT)
        self.assertEqual(len(self.hub.fetched), 2, "the rest after the cut, and nothing twice")
        self.check("org/one")


def built_with_curl():
    with tempfile.TemporaryDirectory() as home:
        result = subprocess.run([PROGRAM, "info", "org/none", "--download"], capture_output=True, text=True,
                                env={"HF_HOME": home, "HF_ENDPOINT": "http://127.0.0.1:9", "no_proxy": "*"})
    return "without libcurl" not in result.stderr


if __name__ == "__main__":
    if not built_with_curl():
        print("skipped: swiftkv was built without libcurl")
        sys.exit(77)
    unittest.main()
