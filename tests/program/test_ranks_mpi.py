#!/usr/bin/env python3
"""One model on 2 and 4 processes of mpirun: generate, score, bench, eval and serve give what one process gives; a rank reads
its part of the files alone; what cannot be divided is refused by name; a rank that is killed ends the others.

    tests/program/test_ranks_mpi.py    SKV_BUILD names the build folder; skipped with a line that says why where MPI, or for
                             the last test namespaces, cannot be had
"""

import concurrent.futures
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import mpirun  # noqa: E402
import server_process as base  # noqa: E402
from test_combinations import TEXT, add_exit_head, copy_with_letters  # noqa: E402
from waiting import PATIENCE, wait_exit, wait_until  # noqa: E402

MODELS = base.MODELS
HOSTS = base.ROOT / "tools/mpi_hosts.sh"
EXACT = ("--threads", 1, "--weights", "f32", "--kv", "f32")
IDS = [(i * 37 + 5) % 90 for i in range(70)]
NEAR = 1e-4


def on(n, *words):
    launch = mpirun.launch(n) if n > 1 else []
    return [*launch, str(base.PROGRAM), *map(str, words)]


def run(words, text="", **more):
    """text: for the standard input"""
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, input=text, **more)


def messages(done):
    return [line for line in done.stderr.splitlines() if line.startswith("swiftkv: ")]


class RanksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = mpirun.short_folder(cls)
        cls.ids = cls.folder / "ids.json"
        cls.ids.write_text(json.dumps(IDS))

    def launch(self, words, **more):
        own = {"env": mpirun.environment(self.folder)} if words[0] == "mpirun" else {}
        return run(words, **own, **more)

    def ok(self, words, **more):
        done = self.launch(words, **more)
        self.assertEqual(done.returncode, 0, (words, done.stderr[-2000:]))
        return done.stdout

    def refused(self, words, *parts, **more):
        done = self.launch(words, **more)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        lines = messages(done)
        self.assertEqual(len(lines), 1, done.stderr)
        for part in parts:
            self.assertIn(part, lines[0])

    def near(self, one, other):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertEqual(a is None, b is None)
            self.assertTrue(a is None or math.isclose(a, b, abs_tol=NEAR), (a, b))

    def scored(self, n, model):
        return json.loads(self.ok(on(n, "score", model, "--ids-file", self.ids, "--json", *EXACT)))["logprobs"]

    def generated(self, n, model, *more):
        words = on(n, "generate", model, "--ids-file", self.ids, "-n", 12, "--json", *EXACT, *more)
        return json.loads(self.ok(words))

    # ------------------------------------------------------------------------------------- tests

    def test_likelihoods_and_answers(self):
        for n, model in ((2, "llama3-v5"), (2, "qwen2-swiftkv-g2"), (4, "llama-mha")):
            scored = self.scored(n, MODELS / model)
            self.near(self.scored(1, MODELS / model), scored)
            self.assertEqual(self.scored(n, MODELS / model), scored)
            one, more = self.generated(1, MODELS / model), self.generated(n, MODELS / model)
            self.assertEqual(one["ids"], more["ids"])
            self.assertEqual(one["kv_bytes"], n * more["kv_bytes"])
            self.assertNotIn("ranks", one)
            self.assertEqual(more["ranks"]["n"], n)

    def test_evictions_and_drafts(self):
        model = MODELS / "qwen2-swiftkv-g2"
        for more in (("--evict", "snapkv:24,8", "--speculate", "text"), ("--evict", "h2o:24,query", "--ffn-skip", "0.6,4,0,0,1")):
            self.assertEqual(self.generated(1, model, *more)["ids"], self.generated(2, model, *more)["ids"])

    def test_bench_and_eval(self):
        lines = self.ok(on(2, "bench", MODELS / "llama3-v5", "--prompt", 40, "--gen", 4, "--repeat", 2, "--json", *EXACT))
        self.assertEqual([json.loads(line)["prompt"] for line in lines.splitlines()][0], 40)
        task = self.folder / "text.txt"
        task.write_text("Once upon a time there was a little dog who liked to play in the garden. " * 8)
        words = ("eval", base.STORIES, "--task", task, "--json", *EXACT)
        one, two = (json.loads(self.ok(on(n, *words)).splitlines()[0])["tasks"][0] for n in (1, 2))
        self.assertEqual(one["metric"], two["metric"])
        self.assertAlmostEqual(one["metrics"][one["metric"]]["value"], two["metrics"][one["metric"]]["value"], 3)

    def test_other_commands(self):
        """chat, compare, similarity and eval beside a reference say what they say on one process."""
        model = copy_with_letters(MODELS / "qwen2-swiftkv-g2", self.folder / "letters")
        text = self.folder / "letters.txt"
        text.write_text(TEXT * 2)

        def said(n, *words, **more):
            return self.ok(on(n, words[0], model, *words[1:], *EXACT), **more)

        chat = ("chat", "--raw", "-n", 6, "--temp", 0)
        lines = TEXT + "\nand then\n"
        self.assertEqual(said(1, *chat, text=lines), said(2, *chat, text=lines))
        one, two = (json.loads(said(n, "compare", "-p", TEXT, "-n", 6, "--json"))[0] for n in (1, 2))
        for who in ("teacher", "swiftkv"):
            self.assertEqual(one[who]["text"], two[who]["text"])
        one, two = (json.loads(said(n, "similarity", "--text", text, "--json"))["simscore"] for n in (1, 2))
        self.near(one, two)
        for reference in ("teacher", MODELS / "qwen2-window"):
            one, two = (json.loads(said(n, "eval", "--task", text, "--reference", reference, "--json").splitlines()[0]) for n in (1, 2))
            for name, value in one["tasks"][0]["metrics"].items():
                other = two["tasks"][0]["metrics"][name]["value"]  # a perplexity is a power of log-probabilities
                self.assertTrue(math.isclose(value["value"], other, rel_tol=NEAR, abs_tol=NEAR), (reference, name, value, other))

    def test_a_rank_reads_its_part(self):
        """What other ranks read is no number in its file."""
        whole = self.generated(2, MODELS / "llama-mha")["ids"]
        for rank in range(2):
            shutil.copytree(MODELS / "llama-mha", self.folder / str(rank) / "model")
            spoil(self.folder / str(rank) / "model/model.safetensors", rank, 2)
        words = ["generate", "model", "--ids-file", self.ids, "-n", 12, "--json", *EXACT]
        pair = [*mpirun.WORDS]
        for rank in range(2):
            pair += [":"] * rank + ["-np", "1", "--wdir", str(self.folder / str(rank)), *on(1, *words)]
        self.assertEqual(json.loads(self.ok(pair))["ids"], whole)

    def test_what_is_refused(self):
        def generate(n, model, *more):
            return on(n, "generate", model, "--ids-file", self.ids, "-n", 2, *more)

        cases = [(generate(4, MODELS / "llama3-v5"), "llama3-v5: layer 0 has 2 KV heads, which 4 ranks cannot divide"),
                 (generate(2, MODELS / "olmo2"), "norm of queries and keys is over all heads together")]
        # What is said of whole models and methods, and by whom: rank 0, once. test_combinations.py has the other columns.
        exit_head = copy_with_letters(MODELS / "qwen2-swiftkv-g1", self.folder / "exits")
        add_exit_head(exit_head)
        kvpred, plain = base.ROOT / "tests/data/kvpred/qwen3-c", MODELS / "llama3-v5"
        for model, more, reason in (
            (plain, ("--evict", "adakv:24,8"), "evict adakv, several ranks: a layer's rows are dealt to all of its heads"),
            (plain, ("--prune", "random:0.5"), "several ranks: tokens are chosen by the attention of all heads"),
            (plain, ("--lora", "a=nowhere"), "adapters are not divided"),
            (plain, ("--draft", plain), "the model that drafts is not divided"),
            (exit_head, ("--early-exit", "0.5"), "several ranks: no rank but the first has the exit head's logits"),
            (exit_head, ("--speculate", "self:4,0"), "several ranks: the model that drafts is not divided"),
            (kvpred, (), "several ranks: a layer's keys and values are predicted from all heads"),
        ):
            cases.append((generate(2, model, *more), reason))
        key = self.folder / "key"
        key.write_text("0123456789abcdef\n")
        store = ("--cache-store", "redis://127.0.0.1:1", "--cache-key-file", key)
        for words, reason in (
            (("--cache-dir", self.folder / "cache"), "--cache-dir, several ranks: known prompts stay in memory"),
            (store, "--cache-store, several ranks: known prompts stay in memory"),
            (("--prefill-from", "http://127.0.0.1:1", *store), "--prefill-from, several ranks: known prompts stay in memory"),
            (("--role", "read", *store), "--role read, several ranks: a reader is one process"),
            ((MODELS / "qwen2",), "several ranks: they hold one model, there are 2"),
        ):
            cases.append((on(2, "serve", plain, *words, "--port", 0), reason))
        with concurrent.futures.ThreadPoolExecutor(mpirun.AT_ONCE) as pool:
            for done in [pool.submit(self.refused, *case) for case in cases]:
                done.result()

    def test_one_rank_fails(self):
        shutil.copytree(MODELS / "llama-mha", self.folder / "here" / "model")
        (self.folder / "there").mkdir()
        words = on(1, "generate", "model", "--ids-file", self.ids, "-n", 2)
        pair = [*mpirun.WORDS, "-np", "1", "--wdir", str(self.folder / "here"), *words, ":",
                "-np", "1", "--wdir", str(self.folder / "there"), *words]
        self.refused(pair, "process 1 of 2: model: ")
        shutil.copytree(MODELS / "llama3-v5", self.folder / "there" / "model")
        self.refused(pair, "process 1 of 2 has another model or memory than process 0")

    # ------------------------------------------------------------------------------------- serving

    def serve(self, n, model, *words):
        launch = mpirun.launch(n) if n > 1 else ()
        server = base.Server(model, *EXACT[2:], *words, launch=launch)
        self.addCleanup(self.end, server)
        return server

    def end(self, server):
        if server.process.poll() is None:
            self.assertEqual(server.stop(), 0)

    def ask(self, server, prompt, **more):
        answer = server.complete(prompt=prompt, max_tokens=8, logprobs=1, **more)
        return answer["choices"][0]["logprobs"]["token_logprobs"], answer["usage"]

    def test_serving(self):
        """Answers, known prompts, many requests at once, evictions, the teacher, embeddings; one that leaves."""
        model = MODELS / "qwen2-swiftkv-g2"
        asks = [{"prompt": base.prompt_of(20 + 7 * i, i)} for i in range(6)]
        asks += [{"prompt": base.prompt_of(90, 9), "evict": "snapkv:24,8"}, {"prompt": base.prompt_of(90, 10), "swiftkv": "teacher"}]
        servers = [self.serve(n, model, "--ctx", 2048, "--kv-tokens", 4096) for n in (1, 2)]
        answers = []
        for server in servers:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers.append(list(pool.map(lambda more, s=server: self.ask(s, **more), asks)))
        for (one, _), (two, _) in zip(*answers):
            self.near(one, two)
        two = servers[1]
        long = base.prompt_of(200, 3)
        first, usage = self.ask(two, long)
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)
        again, usage = self.ask(two, long)
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 192)
        self.assertEqual(first, again)  # a server is batch invariant
        kept = base.prompt_of(200, 4)
        self.ask(two, kept, prompt_cache_key="1")
        for i in range(16):  # more than the memory holds: blocks are given up, but not those that stay
            self.ask(two, base.prompt_of(300, 20 + i))
        self.assertEqual(self.ask(two, kept)[1]["prompt_tokens_details"]["cached_tokens"], 192)
        self.assertEqual(self.ask(two, long)[0], first)
        connection = two.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": long, "max_tokens": 1500, "stream": True, "ignore_eos": True}))
        connection.getresponse().read(64)
        connection.close()
        two.wait_for(lambda metrics: metrics["requests_running"] == 0)
        self.assertEqual(self.ask(two, long)[0], first)

    def test_a_rank_dies(self):
        for victim in (0, 1):
            server = self.serve(2, MODELS / "llama3-v5")
            self.ask(server, IDS)
            ranks = server.ranks()
            self.assertEqual(len(ranks), 2)
            os.kill(ranks[victim], signal.SIGKILL)
            wait_exit(server.process)
            server.reader.join()
            server.process.stderr.close()
            self.assertNotEqual(server.process.returncode, 0)
            self.assertIn(f"process rank {victim} ", " ".join("".join(server.lines).split()))
            wait_until(lambda r=ranks: not any(Path(f"/proc/{pid}").exists() for pid in r))

    # ------------------------------------------------------------------------------------- hosts

    def test_hosts(self):
        """2 machines with 2 ranks each, which are namespaces."""
        done = run([str(HOSTS), "2", "1", "true"], start_new_session=True)
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        words = on(1, "score", MODELS / "llama-mha", "--ids-file", self.ids, "--json", *EXACT)
        logprobs = json.loads(self.ok([str(HOSTS), "2", "2", *words], start_new_session=True))["logprobs"]
        self.near(self.scored(1, MODELS / "llama-mha"), logprobs)
        self.assertEqual(self.scored(4, MODELS / "llama-mha"), logprobs)


def spoil(path, rank, n):
    """NaN in all of an f32 file that is another rank's: see src/engine/model/ranks_sum.h."""
    data = bytearray(path.read_bytes())
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    for name, about in header.items():
        if len(about["shape"]) < 2:
            continue
        (rows, columns), (at, _) = about["shape"], about["data_offsets"]
        by_column = "o_proj" in name or "down_proj" in name
        size = columns if by_column else rows
        part = size // n
        if "embed" in name or "lm_head" in name:
            part = -(-(-(-size // n)) // 16) * 16
        own = range(rank * part, min(size, (rank + 1) * part))
        for row in range(rows):
            for column in range(columns):
                if (column if by_column else row) not in own:
                    struct.pack_into("<f", data, start + at + 4 * (row * columns + column), math.nan)
    path.write_bytes(data)


if __name__ == "__main__":
    mpirun.main()
