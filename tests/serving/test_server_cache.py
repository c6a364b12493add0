#!/usr/bin/env python3
"""The prefix cache from outside: conversations whose answers come back as text, and what is kept
on disk."""

import concurrent.futures
import itertools
import json
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
from waiting import PATIENCE, wait_exit, wait_until  # noqa: E402

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


LORA = ROOT / "tests/data/lora"


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class MissTest(unittest.TestCase):
    """Why a prompt was not found: the log's word against a comparison of what was sent."""

    def serve(self, model, *words, keys=()):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log, self.n_lines = Path(folder.name) / "log", 0
        if keys:
            path = Path(folder.name) / "keys"
            path.write_text("".join(f"{key}\n" for key in keys))
            words += ("--api-key-file", path)
        server = Server(model, "--request-log", self.log, *words)
        self.addCleanup(server.stop)
        return server

    def ask(self, server, prompt, key=None, path="/completion", **body):
        """The line of a request; its answer's timings say the same."""
        own = {"n_predict": 1} if path == "/completion" else {}
        body = {"prompt": prompt, "temperature": 0, "ignore_eos": True, **own, **body}
        headers = {"X-Api-Key": key} if key else {}
        status, _, answer = server.ask("POST", path, body, headers)
        self.assertEqual(status, 200, answer)
        self.n_lines += 1
        wait_until(lambda: self.log.read_text().count("\n") >= self.n_lines)
        row = json.loads(self.log.read_text().splitlines()[-1])
        timings = answer["timings"]
        self.assertEqual(timings.get("cache_miss", "none"), row["cache_miss"])
        self.assertEqual(timings.get("cache_miss_token"), row.get("cache_miss_token"))
        self.assertEqual(timings.get("cache_lost_n"), row.get("cache_lost_tokens"))
        return row

    def check(self, row, reason, *numbers):
        got = [row[name] for name in ("cache_miss_token", "cache_lost_tokens") if name in row]
        self.assertEqual((row["cache_miss"], *got), (reason, *numbers), row)

    def test_reasons(self):
        server = self.serve(PLAIN, "--lora", f"narrow={LORA / 'narrow'}", "--weights", "f32", "--ctx", 512,
                            "--kv-tokens", 512)  # fmt: skip
        text = prompt_of(300)
        self.check(self.ask(server, text[:40]), "block", 0, 0)
        self.check(self.ask(server, text), "new", 0, 0)
        self.check(self.ask(server, text), "none")
        self.check(self.ask(server, text[:290] + prompt_of(100, 3)), "text", first_difference(
            text, text[:290] + prompt_of(100, 3)), 0)  # fmt: skip
        edited = text[:70] + [text[70] + 1] + text[71:]
        self.check(self.ask(server, edited), "text", 70, 300 - 71 - 1)
        self.check(self.ask(server, text, path="/v1/completions", echo=True, logprobs=0, max_tokens=1), "off", 0, 256)
        self.check(self.ask(server, text, lora="narrow"), "form", 0, 256)
        for seed in range(5, 9):
            self.ask(server, prompt_of(500, seed))
        row = self.ask(server, text)
        self.check(row, "evicted", row["cached_tokens"], 256 - row["cached_tokens"])
        m = server.metrics()
        counts = {reason: m[f'prefix_cache_misses_total{{reason="{reason}"}}'] for reason in
                  ("new", "text", "evicted", "state", "form", "block", "off")}  # fmt: skip
        self.assertEqual(counts, {"new": 1, "text": 6, "evicted": 1, "state": 0, "form": 1, "block": 1, "off": 1})
        lost = {reason: m[f'prefix_cache_lost_tokens_total{{reason="{reason}"}}'] for reason in
                ("text", "form", "evicted", "off")}  # fmt: skip
        self.assertEqual(lost["form"], 256)
        self.assertEqual(lost["off"], 256)
        self.assertEqual(lost["evicted"], 256 - row["cached_tokens"])
        self.assertGreaterEqual(lost["text"], 228)

    def test_edited_conversations(self):
        """The token is the first that differs from the nearest earlier prompt of the same key."""
        rng = random.Random(40)
        keys = ("one", "two")
        server = self.serve(PLAIN, "--ctx", 1024, "--kv-tokens", 65536, keys=keys)
        sent = {key: [[rng.randrange(90) for _ in range(200)]] for key in keys}
        for key in keys:
            self.check(self.ask(server, sent[key][0], key), "new", 0, 0)
        n_text = 0
        for turn in range(40):
            key, other = rng.sample(keys, 2)
            prompt = list(rng.choice(sent[rng.choice((key, key, other))][-12:]))
            at = rng.randrange(len(prompt))
            prompt[at : at + rng.randrange(20)] = [rng.randrange(90) for _ in range(rng.randrange(20))]
            prompt = (prompt + [rng.randrange(90) for _ in range(rng.randrange(64, 150))])[:900]
            common = max(first_difference(old, prompt) for old in sent[key])
            parts = all(len(old) > common for old in sent[key] if first_difference(old, prompt) == common)
            row = self.ask(server, prompt, key, n_predict=0)
            with self.subTest(turn=turn):
                if row["cached_tokens"] >= (len(prompt) - 1) // ROWS * ROWS:
                    self.check(row, "none")
                elif parts:
                    self.assertEqual((row["cache_miss"], row["cache_miss_token"]), ("text", common))
                    n_text += 1
            sent[key].append(prompt)
        self.assertGreater(n_text, 10)

    def test_texts_are_shown_to_who_asks_for_them(self):
        if not STORIES.exists():
            self.skipTest("../shared/assets is absent")
        story = "Once upon a time there was a little girl who lived by the sea. " * 12
        prompts = [f"The clock says {clock}. {story}" for clock in ("nine", "four")]
        for shows in (True, False):
            server = self.serve(STORIES, "--ctx", 512, *(["--log-prompt-text"] * shows), keys=("one", "two"))
            self.check(self.ask(server, prompts[0], "one"), "new", 0, 0)
            row = self.ask(server, prompts[1], "two")
            self.check(row, "new", 0, 0)
            self.assertNotIn("cache_known_text", row)
            row = self.ask(server, prompts[1], "one")
            self.assertEqual(row["cache_miss"], "text")
            self.assertGreater(row["cache_lost_tokens"], 200)
            for name, prompt, word in (("sent", prompts[1], "four"), ("known", prompts[0], "nine")):
                shown = row.get(f"cache_{name}_text")
                if not shows:
                    self.assertIsNone(shown)
                    continue
                self.assertIn(word, shown)
                self.assertIn(shown.removeprefix("<s>").strip(), prompt)
                self.assertLessEqual(len(shown.encode()), 80)
            if not shows:
                self.assertNotIn("clock", self.log.read_text())

    def test_text_at_another_place(self):
        """--cache-shift: usage, timings, the log, the header and /metrics tell it."""
        server = self.serve(SWIFTKV, "--cache-shift", "--weights", "f32", "--ctx", 1024, "--kv-tokens", 8192)
        text = prompt_of(640)
        self.assertNotIn("shifted_tokens", self.ask(server, text))
        moved = text[5:10] + text
        self.assertEqual(self.ask(server, moved)["shifted_tokens"], 576)
        body = {"prompt": moved, "max_tokens": 2, "temperature": 0}
        status, headers, answer = server.ask("POST", "/v1/completions", body)
        details = answer["usage"]["prompt_tokens_details"]
        self.assertEqual((status, details), (200, {"cached_tokens": 640, "cache_write_tokens": 0, "shifted_tokens": 640}))  # in whole pages
        self.assertEqual((headers["x-swiftkv-shifted"], answer["timings"]["shifted_n"]), ("640", 640))
        last = [c for c in server.chunks("/v1/completions", stream_options={"include_usage": True}, **body) if c.get("usage")][-1]
        self.assertEqual(last["usage"]["prompt_tokens_details"], details)
        self.assertGreater(hits(server, "shift"), 0)
        status, headers, answer = server.ask("POST", "/v1/completions", {**body, "prompt": text})
        self.assertNotIn("shifted_tokens", answer["usage"]["prompt_tokens_details"])
        self.assertNotIn("x-swiftkv-shifted", headers)

    def test_cache_shift_is_refused_where_layers_keep_states(self):
        words = [PROGRAM, "serve", ROOT / "tests/data/models/qwen3-5", "--cache-shift", "--port", "0"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("hybrid model, serve --cache-shift: a state has seen", done.stderr)


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

    def test_pinned_prompts_leave_the_disk_last(self):
        """What prompt_cache_key pins stays, up to a quarter of the disk, where newer prompts go."""
        server = self.serve("--kv-tokens", 640)
        self.ask(server, prompt_of(100))
        server.stop()
        each = self.files()[0].stat().st_size
        server = self.serve("--kv-tokens", 640, "--cache-disk-bytes", 40 * each + 10)
        self.ask(server, prompt_of(400, 1), prompt_cache_key="mine")
        for i in range(2, 14):  # six blocks each
            self.ask(server, prompt_of(400, i))
            server.wait_for(lambda m: m["cache_disk_queue_bytes"] == 0)
        self.assertEqual(self.ask(server, prompt_of(400, 1))[1], 384)
        self.assertGreater(hits(server, "disk"), 0)
        self.assertEqual(self.ask(server, prompt_of(400, 2))[1], 0)

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
