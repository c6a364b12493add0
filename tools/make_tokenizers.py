#!/usr/bin/env python3
"""Makes the small tokenizers of tests/data/tokenizer and the ids that they must give.

    python tools/make_tokenizers.py OUT

Needs `tokenizers` 0.23.3 and `sentencepiece` 0.2. NAME.json / NAME.model are the tokenizers,
NAME.gold has one case a line: hexadecimal text, ids with add_special off and parse_special on,
ids with add_special on and parse_special off.
"""
import random
import sys
from pathlib import Path

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

sys.path.insert(0, str(Path(__file__).resolve().parent))
from check_tokenizer import random_string  # noqa: E402

TEXT = ["The quick brown fox jumps over the lazy dog, and it's 12345 o'clock. ",
        "In the beginning was the word; the word wasn't written in 1,000 days!\n",
        "Über den Wolken muß die Freiheit wohl grenzenlos sein, naïve café.\n",
        "def main(argc, argv):\n    return argc + 1  # 世界你好 привет мир\n",
        "HELLO World CamelCase XMLHttpRequest foo_bar --- <= != \t\ttabs\r\n"] * 20
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
            r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+")


def byte_level(pre, **options):
    t = Tokenizer(models.BPE(**options))
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=420, show_progress=False, special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|end|>"])
    t.add_tokens([AddedToken("  wide", normalized=False, lstrip=True, rstrip=True),
                  AddedToken("single", normalized=True, single_word=True)])
    return t


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def with_bytes(*steps):
    return pre_tokenizers.Sequence(list(steps) + [
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True))
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return t


def llama3():
    t = byte_level(with_bytes(split(LLAMA3)), ignore_merges=True)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)])])
    return t


def qwen2():
    t = byte_level(with_bytes(split(LLAMA3.replace("{1,3}", ""))))
    t.normalizer = normalizers.NFC()
    return t


def o200k():
    return byte_level(with_bytes(split(O200K, "removed", True)))


def deepseek():
    return byte_level(with_bytes(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
                                 split(DEEPSEEK)))


def falcon():
    t = byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]))
    return t


def metaspace():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=500, show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="$A $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def words():
    """The rarer steps: lower case, accents, unknown tokens that are not fused."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([
        normalizers.Strip(), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Replace(Regex("[0-9]+"), "#"),
        normalizers.Replace("quick", "slow")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Split("o", "merged_with_next")])
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=200, show_progress=False, special_tokens=["<unk>", "[MASK]"]))
    t.add_tokens([AddedToken("Straße", normalized=True)])
    return t


def spm(out, name, **options):
    text = out / "text.tmp"
    text.write_text("".join(TEXT))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(out / name), minloglevel=2,
        hard_vocab_limit=False, **options)
    text.unlink()
    (out / (name + ".vocab")).unlink()


SPM = {
    "spm_bpe": dict(model_type="bpe", vocab_size=480, byte_fallback=True,
                    normalization_rule_name="identity", remove_extra_whitespaces=False,
                    user_defined_symbols=["<sep>", "\n"]),
    "spm_nfkc": dict(model_type="bpe", vocab_size=200, normalization_rule_name="nmt_nfkc"),
    "spm_unigram": dict(model_type="unigram", vocab_size=420, byte_fallback=True,
                        normalization_rule_name="identity", user_defined_symbols=["<sep>"]),
    "spm_suffix": dict(model_type="unigram", vocab_size=150,
                       treat_whitespace_as_suffix=True, normalization_rule_name="identity"),
}
JSON = [gpt2, llama3, qwen2, o200k, deepseek, falcon, metaspace, words]


def make_cases():
    rng = random.Random(5)
    specials = ["<s>", "</s>", "<|end|>", "  wide", "single", "[MASK]", "<sep>", "Straße"]
    cases = ["", " ", "  ", "\n", "a", " a", "a ", "\t\n \r\n", "'S'll'RE 'ſ", "<s>x</s>",
             "  wide  wide", "single singles asingle", "The quick brown fox", "é e\u0301 ﬁ Å",
             "a" * 300, "\u0301" * 20, " " * 50, "1234567 ١٢٣ ½", "\ub648\u11a7\u1103\u1161\u11a8"]
    return cases + [random_string(rng, specials) for _ in range(180)]


def line(text, plain, special):
    return "%s|%s|%s\n" % (text.encode().hex(), " ".join(map(str, plain)),
                           " ".join(map(str, special)))


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    cases = make_cases()
    for make in JSON:
        t = make()
        t.save(str(out / (make.__name__ + ".json")), pretty=False)
        with open(out / (make.__name__ + ".gold"), "w") as gold:
            for text in cases:
                t.encode_special_tokens = False
                plain = t.encode(text, add_special_tokens=False).ids
                t.encode_special_tokens = True
                gold.write(line(text, plain, t.encode(text, add_special_tokens=True).ids))
    for name, options in SPM.items():
        spm(out, name, **options)
        t = sentencepiece.SentencePieceProcessor(model_file=str(out / (name + ".model")))
        with open(out / (name + ".gold"), "w") as gold:
            for text in cases:
                if "<s>" in text or "</s>" in text:
                    continue
                ids = t.encode(text)
                gold.write(line(text, ids, [t.bos_id()] + ids))


main()
