#!/usr/bin/env python3
"""The prefix cache from outside: conversations whose answers come back as text, and what is kept
on disk."""

import concurrent.futures
import itertools
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from server_process import MODELS, PLAIN, PROGRAM, ROOT, STORIES, SWIFTKV, Server, prompt_of  # noqa: E402
from waiting import PATIENCE, wait_exit  # noqa: E402

TINY = ROOT / "../shared/assets/models/tinystories-656k"
ROWS = 64  # of a page
# Marks around the messages, as most templates have them.
TEMPLATE = (
    "{% for m in messages %}{{ bos_token }}{{ m.role }}\n{{ m.content }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"
)
TRIMMED_TEMPLATE = TEMPLATE.replace("m.content", "m.content | trim")
PLAIN_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def cached_of(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def hits(server, kind):
    return server.metrics()[f'prefix_cache_hits_by_kind_total{{kind="{kind}"}}']


def text_hits(server):
    return hits(server, "text")


def write_template(folder, text):
    path = Path(folder) / "template.jinja"
    path.write_text(text)
    return path


class Conversation:
    """Turns that a client adds to each other, and what each had to find again."""

    def __init__(self, server, **body):
        self.server = server
        self.body = {"temperature": 1, "max_tokens": 70, **body}
        self.messages = []
        self.n_known = 0  # ids up to the end of the last answer
        self.n_computed = 0  # of them: what an answer without an end stopped at was not
        self.retokenized = 0  # answers that the tokenizer cuts otherwise

    def ask(self, text, seed):
        self.messages.append({"role": "user", "content": text})
        answer = self.server.post(
            "/v1/chat/completions", messages=self.messages, seed=seed, **self.body
        )
        usage, choice = answer["usage"], answer["choices"][0]
        self.messages.append(choice["message"])
        self.n_known = usage["prompt_tokens"] + usage["completion_tokens"]
        self.n_computed = self.n_known - (choice["finish_reason"] == "length")
        plain = self.server.post(
            "/tokenize", messages=self.messages, add_generation_prompt=False
        )["count"]
        closing = 2 if "eos_token" in self.server.template else 1
        self.retokenized += plain != self.n_known + closing
        return answer


def whole_pages(n_computed):
    return n_computed // ROWS * ROWS


class ConversationTest(unittest.TestCase):
    def serve(self, model, template, *words):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = write_template(folder.name, template)
        server = Server(model, "--template", path, "--ctx", 2048, *words)
        server.template = template
        self.addCleanup(server.stop)
        return server

    def check_turns(self, model, template, differs, slack=0, **body):
        """slack: tokens of an answer that what follows may be joined to"""
        if not model.exists():
            self.skipTest(f"{model} is absent")
        server = self.serve(model, template)
        retokenized = 0
        for seed in (4, 5, 6) if differs else (0, 1, 2):  # their draws are cut otherwise, or are not
            talk = Conversation(server, **body)
            for turn in range(6):
                n_known, n_computed = talk.n_known, talk.n_computed
                answer = talk.ask(f"Tell me about turn {turn} of talk {seed}.", seed)
                with self.subTest(seed=seed, turn=turn):
                    self.assertGreaterEqual(answer["usage"]["prompt_tokens"], n_known)
                    if turn > 0:
                        self.assertLessEqual(cached_of(answer), whole_pages(n_computed))
                        least = whole_pages(n_computed - slack)
                        self.assertGreaterEqual(cached_of(answer), least)
            retokenized += talk.retokenized
        hits = text_hits(server)
        if differs:
            self.assertGreater(retokenized, 0)
            self.assertGreater(hits, 0)
        else:
            self.assertEqual((retokenized, hits), (0, 0))

    def test_marks_and_trimmed_answers(self):
        # This tokenizer puts a space behind every mark, which the model does not.
        self.check_turns(STORIES, TRIMMED_TEMPLATE, True)

    def test_another_tokenizer(self):
        self.check_turns(TINY, TEMPLATE, True)

    def test_text_alone_around_answers(self):
        # Sampling writes what the tokenizer would not.
        self.check_turns(STORIES, PLAIN_TEMPLATE, True, slack=3)

    def test_answers_as_the_tokenizer_cuts_them(self):
        self.check_turns(STORIES, PLAIN_TEMPLATE, False, slack=3, temperature=0)

    def test_can_be_turned_off(self):
        if not STORIES.exists():
            self.skipTest("../shared/assets is absent")
        server = self.serve(STORIES, TEMPLATE, "--no-text-match")
        talk = Conversation(server)
        for seed in range(3):
            plain = server.post(
                "/tokenize",
                messages=talk.messages + [{"role": "user", "content": "And then?"}],
            )["count"]
            answer = talk.ask("And then?", seed)
            self.assertEqual(answer["usage"]["prompt_tokens"], plain)
        self.assertEqual(text_hits(server), 0)

    def test_keys_do_not_share_texts(self):
        if not STORIES.exists():
            self.skipTest("../shared/assets is absent")
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("one\ntwo\n")
            file.flush()
            server = self.serve(STORIES, TEMPLATE, "--api-key-file", file.name)
        messages = [{"role": "user", "content": "Tell me a long story about the sea."}]
        body = {"temperature": 1, "seed": 5, "max_tokens": 150}
        counts = {}
        for key, turn in (("one", 0), ("one", 1), ("two", 1), ("one", 2), ("two", 2)):
            headers = {"X-Api-Key": key}
            status, _, answer = server.ask(
                "POST", "/v1/chat/completions", {"messages": messages, **body}, headers
            )
            self.assertEqual(status, 200, answer)
            counts[key, turn] = answer["usage"]["prompt_tokens"], cached_of(answer)
            if turn == 0:
                messages.append(answer["choices"][0]["message"])
                messages.append({"role": "user", "content": "And then?"})
        self.assertGreaterEqual(counts["one", 1][1], 128)
        self.assertEqual(counts["two", 1][1], 0)


OURS = re.compile(r"[0-9a-f]{32}\.(skv|tmp)")


class DiskTest(unittest.TestCase):
    """The models of tests/data: prompts are ids."""

    model, words = PLAIN, ("--ctx", 512)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "cache"

    def serve(self, *words, model=None):
        server = Server(
            model or self.model, *self.words, "--cache-dir", self.folder, *words
        )
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        return server

    def refused(self, folder):
        """What the program says that does not start."""
        words = [PROGRAM, "serve", self.model, "--port", 0, *self.words, "--cache-dir", folder]
        result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 1)
        return result.stderr.splitlines()[-1]

    def files(self):
        return sorted(p for p in self.folder.iterdir() if OURS.fullmatch(p.name))

    def ask(self, server, ids, n=8, **body):
        """(tokens with their log-probabilities, tokens found)"""
        answer = server.complete(
            prompt=ids, max_tokens=n, logprobs=2, ignore_eos=True, **body
        )
        return answer["choices"][0]["logprobs"], cached_of(answer)

    def test_after_a_restart(self):
        prompts = [prompt_of(300, i) for i in range(4)]
        first = self.serve()
        want = [self.ask(first, ids) for ids in prompts]
        self.assertEqual(first.stop(), 0)
        self.assertEqual(len(self.files()), 4 * 4)
        again = self.serve()
        for ids, (logprobs, _) in zip(prompts, want):
            self.assertEqual(self.ask(again, ids), (logprobs, 256))
        self.assertEqual(hits(again, "disk"), 4 * 256)
        self.assertEqual(self.ask(again, prompts[0])[1], 256)
        self.assertEqual(hits(again, "memory"), 256)
        metrics = again.metrics()
        self.assertEqual(metrics["cache_disk_read_total"], 16)
        self.assertEqual(metrics["cache_disk_files"], 16)
        sizes = sum(p.stat().st_size for p in self.files())
        self.assertEqual(metrics["cache_disk_bytes"], sizes)
        self.assertEqual([p.stat().st_mode & 0o77 for p in self.folder.iterdir()], [0] * 18)

    def test_sliding_windows(self):
        """Gemma 4, whose last layers read the rows of others: from the disk, in turns, evicted and put back, the
        answers are those of a server that keeps nothing and has room."""
        model = MODELS / "gemma4-e2b"
        prompts = [prompt_of(200 + 20 * i, i) for i in range(4)]
        alone = Server(model, *self.words, "--no-prefix-cache")
        self.addCleanup(lambda: alone.process.poll() is None and alone.stop())
        evicted = {"snapkv": {"capacity": 40, "window": 8}}
        want = [(self.ask(alone, ids)[0], self.ask(alone, ids + prompt_of(70, 9))[0], self.ask(alone, ids, **evicted)[0])
                for ids in prompts]
        alone.stop()
        for words in ((), ("--kv-tokens", 512), ("--chunk", 64)):
            server = self.serve(*words, model=model)
            for ids, (first, turn, kept) in zip(prompts, want):
                self.assertEqual(self.ask(server, ids)[0], first, words)
                self.assertEqual(self.ask(server, ids + prompt_of(70, 9))[0], turn, words)
                self.assertEqual(self.ask(server, ids, **evicted)[0], kept, words)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                said = list(pool.map(lambda ids: self.ask(server, ids)[0], prompts))
            self.assertEqual(said, [first for first, _, _ in want], words)
            self.assertGreater(hits(server, "memory"), 0, words)
            if words:  # another server has left its rows there
                self.assertGreater(hits(server, "disk"), 0, words)
            server.stop()

    def test_methods_do_not_mix(self):
        ids = prompt_of(200)
        first = self.serve(model=SWIFTKV)
        want = {m: self.ask(first, ids, swiftkv=m)[0] for m in ("auto", "teacher")}
        self.assertNotEqual(want["auto"], want["teacher"])
        first.stop()
        again = self.serve(model=SWIFTKV)
        for method in ("auto", "teacher", "full"):
            found = 192 if method != "full" else 192
            expected = want["auto" if method == "full" else method]
            logprobs, cached = self.ask(again, ids, swiftkv=method)
            self.assertEqual(cached, found)
            if method != "full":
                self.assertEqual(logprobs, expected)

    def test_more_prompts_than_memory(self):
        server = self.serve("--kv-tokens", 640)
        prompts = [prompt_of(400, i) for i in range(6)]
        want = [self.ask(server, ids)[0] for ids in prompts]
        server.wait_for(lambda m: m["cache_disk_queue_bytes"] == 0)
        for ids, logprobs in zip(prompts, want):
            self.assertEqual(self.ask(server, ids), (logprobs, 384))
        self.assertGreater(hits(server, "disk"), 4 * 384)

    def test_many_at_once(self):
        server = self.serve("--kv-tokens", 800)
        prompts = [prompt_of(300 + i, i % 5) for i in range(15)]
        want = [self.ask(server, ids)[0] for ids in prompts]
        wrong = []

        def read(i):
            for k in range(i, 45 + i, 3):
                if self.ask(server, prompts[k % 15])[0] != want[k % 15]:
                    wrong.append(k)

        readers = [threading.Thread(target=read, args=(i,)) for i in range(3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        self.assertEqual(wrong, [])
        self.assertGreater(hits(server, "disk"), 0)

    def test_limit(self):
        server = self.serve("--kv-tokens", 640)
        self.ask(server, prompt_of(100))
        server.stop()
        each = self.files()[0].stat().st_size
        server = self.serve("--kv-tokens", 640, "--cache-disk-bytes", 7 * each + 10)
        for i in range(12):
            self.ask(server, prompt_of(400, i))
            server.wait_for(lambda m: m["cache_disk_queue_bytes"] == 0)
            self.assertLessEqual(server.metrics()["cache_disk_bytes"], 7 * each)
        server.stop()
        self.assertEqual(len(self.files()), 7)
        server = self.serve("--kv-tokens", 640, "--cache-disk-bytes", 3 * each)
        self.assertEqual(len(self.files()), 3)
        self.assertGreater(self.ask(server, prompt_of(400, 11))[1], 0)

    def test_bad_files(self):
        ids = prompt_of(500)
        first = self.serve()
        want, _ = self.ask(first, ids)
        first.stop()
        files = self.files()
        self.assertEqual(len(files), 7)
        rng = random.Random(3)
        keep = {p: p.read_bytes() for p in files}
        others = {"readme.txt": b"mine", "0" * 31 + ".skv": b"", "lock2": b""}
        for name, data in others.items():
            (self.folder / name).write_bytes(data)
        for turn in range(6):
            with self.subTest(turn=turn):
                path = rng.choice(files)
                data = bytearray(keep[path])
                if turn == 0:
                    path.write_bytes(b"")
                elif turn == 1:
                    path.write_bytes(data[: rng.randrange(1, len(data))])
                elif turn == 2:
                    path.write_bytes(data + b"x")
                elif turn == 3:  # another block's content
                    path.write_bytes(keep[rng.choice([p for p in files if p != path])])
                else:
                    place = rng.randrange(len(data)) if turn == 4 else rng.randrange(128)
                    data[place] ^= 1 << rng.randrange(8)
                    path.write_bytes(data)
                (self.folder / ("f" * 32 + ".tmp")).write_bytes(b"unfinished")
                server = self.serve()
                logprobs, cached = self.ask(server, ids)
                self.assertEqual(logprobs, want)
                self.assertLess(cached, 448)
                self.assertFalse(path.exists())
                self.assertGreaterEqual(server.metrics()["cache_disk_removed_total"], 2)
                server.stop()
                lines = [line for line in server.lines if "removed" in line]
                self.assertIn(len(lines), (1, 2), server.lines)
                self.assertEqual(len(self.files()), 7)  # written again at the end
        for name, data in others.items():
            self.assertEqual((self.folder / name).read_bytes(), data)

    def test_another_model_and_another_process(self):
        first = self.serve()
        self.ask(first, prompt_of(300))
        self.assertIn("another process uses it", self.refused(self.folder))
        first.stop()
        for model, *words in ((SWIFTKV,), (PLAIN, "--kv", "int8"), (PLAIN, "--weights", "int8")):
            with self.subTest(words=words):
                self.assertEqual(len(self.files()), 4)
                server = self.serve(*words, model=model)
                self.assertEqual(len(self.files()), 0)
                self.assertEqual(self.ask(server, prompt_of(300))[1], 0)
                server.stop()
                self.assertEqual(sum("4 files" in line for line in server.lines), 1)

    def test_keys_after_a_restart(self):
        ids, keys = prompt_of(300), self.folder.parent / "keys"
        found = {}
        for turn, text in enumerate(("one\ntwo\n", "two\none\nthree\n")):
            keys.write_text(text)
            server = self.serve("--api-key-file", keys)
            for key in ("two", "one") if turn else ("one",):
                body = {"prompt": ids, "max_tokens": 2}
                status, _, answer = server.ask(
                    "POST", "/v1/completions", body, {"X-Api-Key": key}
                )
                self.assertEqual(status, 200)
                found[key, turn] = cached_of(answer)
            server.stop()
        self.assertEqual(found, {("one", 0): 0, ("two", 1): 0, ("one", 1): 256})
        for path in self.folder.iterdir():
            self.assertNotIn(b"one", path.name.encode())

    def test_killed_again_and_again(self):
        rng = random.Random(11)
        prompts = [prompt_of(400, i) for i in range(6)]
        want = None
        n_disk = 0
        for turn in range(8):
            server = self.serve("--kv-tokens", 640)
            self.assertEqual([p for p in self.files() if p.suffix == ".tmp"], [])
            if want is None:
                want = [self.ask(server, ids)[0] for ids in prompts]
                server.wait_for(lambda m: m["cache_disk_files"] > 0)
            n_asked, wrong = rng.randrange(20), []
            killer = threading.Timer(rng.uniform(0, 0.02), server.process.kill)  # in the middle of an answer, or not
            try:
                for n in itertools.count():
                    if n == n_asked:
                        killer.start()
                    i = rng.randrange(6)
                    if self.ask(server, prompts[i])[0] != want[i]:
                        wrong.append(i)
            except (OSError, AssertionError, ValueError, Exception):
                pass
            killer.join()
            wait_exit(server.process)
            server.reader.join()
            server.process.stderr.close()
            self.assertEqual(wrong, [])
            for line in server.lines:
                self.assertNotIn("damaged", re.sub("damaged, unfinished or another", "", line))
        server = self.serve("--kv-tokens", 640)
        for ids, logprobs in zip(prompts, want):
            self.assertEqual(self.ask(server, ids)[0], logprobs)
        n_disk += hits(server, "disk")
        self.assertGreater(n_disk, 0)

    def test_texts_after_a_restart(self):
        if not STORIES.exists():
            self.skipTest("../shared/assets is absent")
        template = write_template(self.folder.parent, TEMPLATE)
        words = ("--template", template, "--ctx", 2048)
        first = self.serve(*words, model=STORIES)
        first.template = TEMPLATE
        talk = Conversation(first)
        for turn in range(3):
            talk.ask(f"Tell me about turn {turn}.", turn)
        n_computed, messages = talk.n_computed, list(talk.messages)
        want = talk.ask("And then?", 9)
        first.stop()
        again = self.serve(*words, model=STORIES)
        again.template = TEMPLATE
        talk.server, talk.messages = again, messages
        got = talk.ask("And then?", 9)
        self.assertEqual(got["choices"][0]["message"], want["choices"][0]["message"])
        self.assertEqual(got["usage"]["prompt_tokens"], want["usage"]["prompt_tokens"])
        self.assertGreaterEqual(cached_of(got), whole_pages(n_computed))
        self.assertGreater(hits(again, "disk"), 0)

    def test_wrong_folders(self):
        blocked = self.folder.parent / "file"
        blocked.write_text("")
        for folder in (blocked, blocked / "x", self.folder / "a/b"):
            self.assertIn("cache-dir: ", self.refused(folder))


class RowsTest(DiskTest):
    """SwiftKV: files with layer l's input instead of the deep keys and values."""

    model, words = SWIFTKV, ("--ctx", 512, "--cache-disk-form", "rows")
    # What files are like does not matter to these.
    test_bad_files = test_another_model_and_another_process = test_keys_after_a_restart = None
    test_texts_after_a_restart = test_wrong_folders = test_limit = None

    def kinds(self):
        """2: a text. 1: a block with all its keys and values. 3: one with rows."""
        return {int.from_bytes(p.read_bytes()[12:16], "little") for p in self.files()}

    def test_both_forms_are_read(self):
        ids, want = prompt_of(400), None
        for forms in (("rows", "kv"), ("kv", "rows")):
            for path in self.files() if want else ():
                path.unlink()
            for form, found in zip(forms, (0, 384)):
                server = self.serve("--cache-disk-form", form)
                logprobs, cached = self.ask(server, ids)
                want = want or logprobs
                self.assertEqual((logprobs, cached), (want, found))
                self.assertEqual(hits(server, "disk"), found)
                server.stop()
                self.assertEqual(self.kinds(), {3 if forms[0] == "rows" else 1})

    def test_full_blocks_are_written_at_once(self):
        server = self.serve()
        want, _ = self.ask(server, prompt_of(300), 100)
        server.wait_for(lambda m: m["cache_disk_files"] == 6)
        server.process.kill()
        wait_exit(server.process)
        server.reader.join()
        server.process.stderr.close()
        again = self.serve()
        self.assertEqual(self.ask(again, prompt_of(300), 100), (want, 256))
        self.assertEqual(hits(again, "disk"), 256)

    def test_weights_and_caches(self):
        for turn, words in enumerate((("--weights", "int8"), ("--kv", "fp8"), ("--kv", "f32"))):
            with self.subTest(words=words):
                first = self.serve(*words)
                want, _ = self.ask(first, prompt_of(300, turn))
                first.stop()
                again = self.serve(*words)
                self.assertEqual(self.ask(again, prompt_of(300, turn)), (want, 256))
                again.stop()


if __name__ == "__main__":
    unittest.main()
