#!/usr/bin/env python3
"""Compares the tokenizer with the original libraries, id by id.

    tools/checks/check_tokenizer.py [--tool build/tests/tool_tokenize] [--strings N] [--only NAME]
    tools/checks/check_tokenizer.py --hashes > tests/data/tokenizer/hashes.txt

Needs `tokenizers` and `sentencepiece`. Every tokenizer of ASSETS is run over all texts of ASSETS
and over N random Unicode strings (mixed scripts, marks, spaces, emoji, spellings of added
tokens), with every setting of add_special and parse_special. Prints one line for each; exits with
1 if any id differs.
"""
import argparse
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT.parent / "shared" / "assets"
BATCH = 50000

SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
OTHERS = "\u200b\u200d\u200c\ufeff\u2060\x00\x01\x1f\x7f\xad\ufffd\u2581\u180e"
EMOJI = ["\U0001F600", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA",
         "\u2764\ufe0f", "\U0001F44D\U0001F3FD", "1\ufe0f\u20e3", "\U0001FAE0"]
RANGES = [(0x20, 0x7e), (0x41, 0x5a), (0x61, 0x7a), (0x30, 0x39), (0xa0, 0x17f), (0x180, 0x24f),
          (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x590, 0x5ff), (0x600, 0x6ff),
          (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x1e00, 0x1eff), (0x2000, 0x206f),
          (0x2070, 0x218f), (0x2190, 0x23ff), (0x2460, 0x24ff), (0x3040, 0x30ff),
          (0x3400, 0x34ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfaff),
          (0xfb00, 0xfdff), (0xfe00, 0xfeff), (0xff00, 0xffef), (0x10000, 0x103ff),
          (0x1d400, 0x1d7ff), (0x1f300, 0x1f6ff), (0x20000, 0x2a6df), (0xe0000, 0xe0fff)]
WORDS = ("the and of don't I'll WE'RE it's 'S 'tis can't hello World camelCase XMLHttp foo_bar "
         "a1b2 3.14 1,000 100000 ... !!! -- => http://a.b/c?d=e \\n {} [] () <a> </s> <s> <|x|> "
         "naïve Straße ſ 'ſ ﬁ Å İ ı Ǆ 你好 こんにちは 안녕 привет שלום مرحبا नमस्ते สวัสดี").split(" ")


def random_string(rng, specials):
    parts = []
    for _ in range(rng.choice((1, 2, 3, 4, 6, 9, 14))):
        kind = rng.random()
        if kind < 0.22:
            parts.append(rng.choice(WORDS))
        elif kind < 0.42:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))))
        elif kind < 0.62:
            parts.append(rng.choice((" ", " ", "  ", "\n", "\n\n", " \n", "\t", "   ")))
        elif kind < 0.70:
            parts.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))))
        elif kind < 0.76:
            parts.append("".join(rng.choice("0123456789") for _ in range(rng.randint(1, 7))))
        elif kind < 0.80:
            parts.append(rng.choice(EMOJI))
        elif kind < 0.84:
            parts.append(rng.choice(OTHERS))
        elif kind < 0.90:
            parts.append("".join(rng.choice("'\".,;:!?-_/\\()[]{}<>|@#$%^&*+=~`")
                                 for _ in range(rng.randint(1, 4))))
        elif kind < 0.94 and specials:
            parts.append(rng.choice(specials))
        elif kind < 0.97:
            code = rng.randrange(0x110000 - 0x800)
            parts.append(chr(code if code < 0xd800 else code + 0x800))
        else:
            parts.append(rng.choice("aeinoux e\u0301 s ' E N \u0327").replace(" ", "") *
                         rng.randint(1, 40))
    return "".join(parts)


def run_tool(tool, path, texts, add_special, parse_special, decode=False):
    with tempfile.TemporaryFile() as inp:
        for text in texts:
            inp.write(struct.pack("<I", len(text)) + text)
        inp.seek(0)
        args = [tool, str(path), "01"[add_special], "01"[parse_special]]
        out = subprocess.run(args + (["decode"] if decode else []), stdin=inp, check=True,
                             stdout=subprocess.PIPE).stdout
    results, at = [], 0
    while at < len(out):
        n, = struct.unpack_from("<I", out, at)
        size = n if decode else 4 * n
        body = out[at + 4:at + 4 + size]
        results.append(body if decode else list(struct.unpack(f"<{n}i", body)))
        at += 4 + size
    assert len(results) == len(texts), (len(results), len(texts))
    return results


class ByTokenizers:
    def __init__(self, path):
        from tokenizers import Tokenizer
        self.t = Tokenizer.from_file(str(path))
        self.t.no_truncation()
        self.t.no_padding()
        self.specials = [a.content for a in self.t.get_added_tokens_decoder().values()]
        self.settings = [(a, p) for a in (False, True) for p in (False, True)]

    def encode(self, texts, add_special, parse_special):
        self.t.encode_special_tokens = not parse_special
        return [e.ids for e in self.t.encode_batch_fast(texts, add_special_tokens=add_special)]

    def decode(self, ids):
        return self.t.decode(ids, skip_special_tokens=False)


class BySentencePiece:
    def __init__(self, path):
        import sentencepiece
        self.t = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.specials = ["<0x41>", "▁"]
        self.settings = [(False, False), (True, False)]

    def encode(self, texts, add_special, _):
        ids = self.t.encode(texts, num_threads=1)
        return [[self.t.bos_id()] * add_special + i for i in ids]

    def decode(self, ids):
        return self.t.decode(ids)


def assets():
    found = {
        "smollm2": ASSETS / "tokenizers/smollm2/tokenizer.json",
        "minimind": ASSETS / "tokenizers/minimind/tokenizer.json",
        "tinystories-656k": ASSETS / "models/tinystories-656k/tokenizer.json",
        "openllama": ASSETS / "tokenizers/openllama/tokenizer.model",
    }
    for path in sorted((ROOT / "tests/data/tokenizer").glob("*.json")):
        found[path.stem] = path
    for path in sorted((ROOT / "tests/data/tokenizer").glob("*.model")):
        found[path.stem] = path
    return {name: path for name, path in found.items() if path.exists()}


def text_files():
    return sorted(p for p in (ASSETS / "text").rglob("*") if p.is_file())


def reader(path):
    return ByTokenizers(path) if path.suffix == ".json" else BySentencePiece(path)


def compare(name, tool, path, original, texts, setting, report):
    ours = run_tool(tool, path, [t.encode() for t in texts], *setting)
    theirs = original.encode(texts, *setting)
    bad = 0
    for text, a, b in zip(texts, ours, theirs):
        if a != list(b):
            bad += 1
            if report:
                at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y),
                          min(len(a), len(b)))
                print(f"  {name} {setting}: {text[:200]!r}\n    ours   {a[max(0, at - 3):at + 8]}"
                      f"\n    theirs {list(b)[max(0, at - 3):at + 8]}")
                report -= 1
    return bad


def compare_decoded(name, tool, path, original, texts, report):
    """The text of the ids that both gave, special tokens included.

    Texts that spell byte tokens are left out: `tokenizers` replaces a whole run of byte tokens
    when one of them is bad, we only those that are, so that a stream never takes text back.
    """
    texts = [t for t in texts if "<0x" not in t]
    parse = original.settings[-1][1]
    ours = run_tool(tool, path, [t.encode() for t in texts], False, parse, decode=True)
    ids = original.encode(texts, False, parse)
    bad = 0
    for text, a, i in zip(texts, ours, ids):
        b = original.decode(list(i)).encode()
        if a != b:
            bad += 1
            if bad <= report:
                print(f"  {name}: decoding {text[:100]!r}: ours {a[:100]!r}, theirs {b[:100]!r}")
    return bad


def check(name, path, args):
    original = reader(path)
    rng = random.Random(args.seed)
    start, bad = time.time(), 0
    texts = [p.read_bytes().decode(errors="replace") for p in text_files()]
    if texts and not args.no_texts:
        for setting in original.settings:
            bad += compare(name, args.tool, path, original, texts, setting, 3)
        print(f"{name}: {len(texts)} texts, {bad} mismatches", flush=True)
    bad_strings, done = 0, 0
    while done < args.strings:
        batch = [random_string(rng, original.specials)
                 for _ in range(min(BATCH, args.strings - done))]
        setting = original.settings[done // BATCH % len(original.settings)]
        bad_strings += compare(name, args.tool, path, original, batch, setting,
                               5 if bad_strings < 5 else 0)
        done += len(batch)
    print(f"{name}: {done} random strings, {bad_strings} mismatches, "
          f"{time.time() - start:.0f} s", flush=True)
    batch = [random_string(rng, original.specials) for _ in range(min(BATCH, args.strings))]
    bad_decoded = compare_decoded(name, args.tool, path, original, batch, 5)
    print(f"{name}: {len(batch)} strings decoded, {bad_decoded} mismatches", flush=True)
    return bad + bad_strings + bad_decoded


def fnv1a(ids):
    value = 0xcbf29ce484222325
    for i in ids:
        for byte in struct.pack("<i", i):
            value = (value ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return value


def print_hashes():
    """One line a tokenizer and text: both names, number of ids, FNV-1a of the ids."""
    for name, path in assets().items():
        if (ROOT / "tests") in path.parents:
            continue
        original = reader(path)
        for file in text_files():
            ids = original.encode([file.read_bytes().decode(errors="replace")], False, True)[0]
            print(name, file.relative_to(ASSETS / "text"), len(ids), "%016x" % fnv1a(ids))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=str(ROOT / "build/tests/tool_tokenize"))
    parser.add_argument("--strings", type=int, default=200000)
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-texts", action="store_true")
    parser.add_argument("--hashes", action="store_true")
    args = parser.parse_args()
    if args.hashes:
        print_hashes()
        return 0
    bad = 0
    for name, path in assets().items():
        if args.only in (None, name):
            bad += check(name, path, args)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
