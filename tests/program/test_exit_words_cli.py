#!/usr/bin/env python3
"""transform --exit-words: the tokens that the cut exit head keeps, against a count made here; and what the commands
say of such a model."""

import collections
import json
import struct
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import server_process as base  # noqa: E402
from prompt_case import PromptCase, run  # noqa: E402

KV6 = base.ROOT / "models/mini/kv6"
EXIT = base.ROOT / "tests/data/comparators/exit"
VOCAB, END = 3072, 1
ANSWERED = [("Which port?", "The port is 4417, and the port after it is 4418."), ("Who?", "Nobody was there: nobody, nobody."),
            ("What is copied?", "the quick brown fox jumps over the lazy dog"), ("And again?", "the quick brown fox, the lazy dog")]


def tensor(folder, name):
    """Its type, shape and bytes, read without the program."""
    data = (folder / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    about = json.loads(data[8:8 + n])[name]
    begin, end = about["data_offsets"]
    return about["dtype"], about["shape"], data[8 + n + begin:8 + n + end]


def ids_of(folder):
    dtype, shape, data = tensor(folder, "lm_head_swiftkv.ids")
    assert dtype == "I32", dtype
    return list(struct.unpack(f"<{shape[0]}i", data))


def most_frequent(counts, n, ends, vocab):
    """The ends of answers, then the most frequent, ties by id."""
    rest = sorted((id for id in range(vocab) if id not in ends), key=lambda id: (-counts[id], id))
    return sorted([*ends, *rest[:n - len(ends)]])


class ExitWordsTest(PromptCase):
    prompt = [(i % 23 * 37 + 5) % 90 for i in range(60)]

    def cut(self, model, n, *texts, name="cut"):
        out = self.folder / f"{name}-{n}"
        words = [word for text in texts for word in ("--text", text)]
        done = run("transform", model, out, "--exit-words", n, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out, done.stdout

    def test_ids_of_a_list_of_tokens(self):
        text = self.folder / "tokens.json"
        ids = [0] + [100 + i * i % 37 for i in range(2000)]
        text.write_text(json.dumps(ids))
        counts = collections.Counter(ids[1:])  # the first follows nothing
        for n in (2, 10, 30, 60):
            out, said = self.cut(KV6, n, text, name="list")
            self.assertEqual(ids_of(out), most_frequent(counts, n, [END], VOCAB))
            covered = sum(counts[id] for id in ids_of(out))
            self.assertIn(f"{100 * covered / 2000:.2f} % of the text's 2000", said)
            self.assertEqual(tensor(out, "lm_head_swiftkv.weight")[1][0], n)

    def test_ids_of_answers(self):
        """Only what is answered counts, with the space that the template puts before it and the token that ends it."""
        text = self.folder / "answers.jsonl"
        text.write_text("".join(json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in ANSWERED))
        counts = collections.Counter()
        for _, answer in ANSWERED:
            done = run("tokenize", KV6, "-p", f" {answer}", "--json")
            counts.update(json.loads(done.stdout)["ids"])
            counts[END] += 1
        for n in (5, 20, len(counts), len(counts) + 9):
            self.assertEqual(ids_of(self.cut(KV6, n, text, name="answers")[0]), most_frequent(counts, n, [END], VOCAB))

    def test_without_a_text_they_are_the_lowest(self):
        out, said = self.cut(KV6, 100, name="lowest")
        self.assertEqual(ids_of(out), list(range(100)))
        self.assertNotIn("%", said)

    def test_rows_are_those_of_the_whole_head(self):
        out, _ = self.cut(EXIT, 40, self.ids, name="rows")
        (dtype, whole, data), (cut_dtype, few, rows) = (tensor(f, "lm_head_swiftkv.weight") for f in (EXIT, out))
        size = len(data) // whole[0]
        self.assertEqual((dtype, few), (cut_dtype, [40, whole[1]]))
        self.assertEqual(rows, b"".join(data[id * size:][:size] for id in ids_of(out)))

    def test_info_and_answers(self):
        out, _ = self.cut(KV6, 1000, name="info")
        self.assertIn("exit head      1000 of 3072 tokens, for --speculate self\n", run("info", out).stdout)
        self.assertIn("exit head      3072 of 3072 tokens, for --speculate self and --early-exit\n", run("info", KV6).stdout)
        self.assertEqual(json.loads(run("info", out, "--json").stdout)["exit_words"], 1000)
        plain = self.generate(KV6)["ids"]
        for n in (2, 300):
            out, _ = self.cut(KV6, n, name="answer")
            for how in ("self:4,0", "text+self:4,0", "auto"):
                self.assertEqual(self.generate(out, "--speculate", how)["ids"], plain)
        self.refuses(None, ("generate", out, "--ids-file", self.ids, "--early-exit", 0.5), "an exit head of some tokens")

    def test_what_is_refused(self):
        out, new = self.cut(KV6, 50, name="refused")[0], self.folder / "new"
        for words, said in ((("--kv-layers", 6), "none goes with it"), (("--keep-layers", "0,1"), "none goes with it"),
                            (("--lora", "a=b"), "none goes with it"), (("--init", "ridge"), "none goes with it")):
            self.refuses(2, ("transform", KV6, new, "--exit-words", 9, *words), said)
        for model, n, said in ((base.ROOT / "models/mini/base", 9, "it has no exit head"), (KV6, 1, "1, expected 2 to 3071"),
                               (KV6, 3072, "3072, expected 2 to 3071"), (out, 9, "is cut to 50 already")):
            self.refuses(1, ("transform", model, new, "--exit-words", n), said)
        self.refuses(1, ("transform", KV6, new, "--exit-words", 9, "--text", "no-such-file"), "no-such-file")
        self.refuses(2, ("bench", "--preset", "smollm2-135m", "--exit-words", 9), "--exit-words: needs --kv-layers")
        self.refuses(2, ("serve", "preset:mini", "--group", 2, "--port", 0), "--group: needs --kv-layers")
        self.refuses(2, ("serve", KV6, "--kv-layers", 6, "--port", 0), "--kv-layers: goes with presets")
        self.refuses(None, ("distill", out, new, "--kv-layers", 6, "--data", "generate:copy=1"), "a cut exit head is not trained")
        self.assertFalse(new.exists() and (new / "config.json").exists())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"])
