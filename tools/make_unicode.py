#!/usr/bin/env python3
"""Writes src/text/unicode_tables.c: the character classes that the tokenizers need.

The classes are asked of the `tokenizers` package itself, because its parts
follow different versions of Unicode and ids must be equal: its regex engine (Oniguruma) follows
Unicode 16.0, Rust's own `is_numeric` and the letter case 17.0, and its punctuation and mark
tables are older.

    python tools/make_unicode.py > src/text/unicode_tables.c
"""
import tokenizers
import unicodedata2
from tokenizers import AddedToken, Regex, Tokenizer, models
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P

TOKENIZERS_VERSION = "0.23.3"
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 64


def kept(pre):
    """The characters that some pre-tokenizer does not drop."""
    out = set()
    for i in range(0, len(CODES), 4096):
        for text, _ in pre.pre_tokenize_str("".join(map(chr, CODES[i:i + 4096]))):
            out.update(map(ord, text))
    return out


def by_regex(pattern):
    return kept(P.Split(Regex(pattern), "removed", invert=True))


def numeric():
    digits = P.Digits(True)
    return {c for c in CODES if len(digits.pre_tokenize_str("a" + chr(c))) == 2}


def word():
    """What a single_word added token may not touch (Rust's \\w)."""
    whitespace = P.Whitespace()
    return {c for c in CODES if len(whitespace.pre_tokenize_str("a" + chr(c))) == 1
            and whitespace.pre_tokenize_str(chr(c)) and
            whitespace.pre_tokenize_str("a" + chr(c))[0][0] == "a" + chr(c)}


def newer():
    """What utf8proc (Unicode 15) decomposes or orders, and the older crate does not know yet."""
    nfkd, out = N.NFKD(), set()
    for c in CODES:
        char = chr(c)
        if unicodedata2.normalize("NFKD", char) != char and nfkd.normalize_str(char) == char:
            out.add(c)
        if unicodedata2.combining(char) > 1 and nfkd.normalize_str(char + "\u0334")[0] == char:
            out.add(c)
    return out


CLASSES = [
    ("LETTER", lambda: by_regex(r"\p{L}")),
    ("NUMBER", lambda: by_regex(r"\p{N}")),
    ("PUNCT", lambda: by_regex(r"\p{P}")),
    ("SYMBOL", lambda: by_regex(r"\p{S}")),
    ("MARK", lambda: by_regex(r"\p{M}")),
    ("SPACE", lambda: by_regex(r"\s")),
    ("UPPER", lambda: by_regex(r"[\p{Lu}\p{Lt}]")),
    ("LOWER", lambda: by_regex(r"\p{Ll}")),
    ("NUMERIC", numeric),
    ("OLD_PUNCT", lambda: set(CODES) - kept(P.Punctuation("removed"))),
    ("OLD_MARK", lambda: {c for c in CODES if N.StripAccents().normalize_str(chr(c)) == ""}),
    ("WORD", word),
    ("HAN", lambda: by_regex(r"\p{Han}")),
    ("NEWER", newer),
]


def lower_pairs():
    lower = N.Lowercase()
    pairs = []
    for c in CODES:
        low = lower.normalize_str(chr(c))
        if low != chr(c):
            assert len(low) == 1 or c == 0x130
            pairs.append((c, ord(low[0])))
    return pairs


def lower_runs(pairs):
    """(first, last, step, delta): runs of letters with one distance between the cases."""
    runs = []
    for code, low in pairs:
        delta = low - code
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            gap = code - last
            if gap == step or (first == last and gap in (1, 2)):
                runs[-1] = (first, code, gap, delta)
                continue
        runs.append((code, code, 1, delta))
    return runs


def print_array(kind, name, values):
    print(f"const {kind} {name}[{len(values)}] = {{")
    line = ""
    for value in values:
        if len(line) > 94:
            print(line)
            line = ""
        line += "%d," % value
    print(line + "};\n")


def main():
    assert tokenizers.__version__ == TOKENIZERS_VERSION, tokenizers.__version__
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    flags = [0] * 0x110000
    for bit, (_, members) in enumerate(CLASSES):
        for code in members():
            flags[code] |= 1 << bit
    sets = sorted(set(flags))
    number = {value: i for i, value in enumerate(sets)}
    assert len(sets) <= 256
    blocks, index = {}, []
    for start in range(0, len(flags), BLOCK):
        block = tuple(number[value] for value in flags[start:start + BLOCK])
        index.append(blocks.setdefault(block, len(blocks)))
    data = [value for block in blocks for value in block]
    print("/*")
    print(" * Character classes, made by tools/make_unicode.py with tokenizers %s: a code's block of %d,"
          % (TOKENIZERS_VERSION, BLOCK))
    print(" * the set number inside it, and the flags of each set. Unicode 16.0, but see unicode_class.h.")
    print(" */")
    print('#include "text/unicode_class.h"\n')
    print("/* clang-format off */")
    print_array("uint16_t", "skv_unicode_block", index)
    print_array("uint8_t", "skv_unicode_set", data)
    print_array("uint16_t", "skv_unicode_flags", sets)
    runs = lower_runs(lower_pairs())
    print(f"const size_t skv_unicode_n_lower = {len(runs)};")
    print(f"const skv_unicode_case skv_unicode_lower_runs[{len(runs)}] = {{")
    for run in runs:
        print("    {0x%x, 0x%x, %d, %d}," % run)
    print("};")
    print("/* clang-format on */")


main()
