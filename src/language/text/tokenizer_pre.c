/*
 * The patterns of tokenizer.ggml.pre, as llama.cpp understands the names: the facts of its table.
 * Patterns that a scanner of pretokenize_scan.c knows run there, the others through PCRE2.
 */
#include <string.h>

#include "text/tokenizer_impl.h"

/* clang-format off */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define LLAMA3 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}" \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N" \
    "}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p" \
    "{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TEKKEN \
    "[^\\r\\n\\p{L}\\p{N}]?((?=[\\p{L}])([^a-z]))*((?=[\\p{L}])([^A-Z]))+|[^\\r\\n\\p{L}" \
    "\\p{N}]?((?=[\\p{L}])([^a-z]))+((?=[\\p{L}])([^A-Z]))*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[" \
    "\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O \
    "[^\\r\\n\\p{L}\\p{N}]?((?=[\\p{L}])([^a-z]))*((?=[\\p{L}])([^A-Z]))+(?:'[sS]|'[tT]|'" \
    "[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\\r\\n\\p{L}\\p{N}]?((?=[\\p{L}])([^a-z" \
    "]))+((?=[\\p{L}])([^A-Z]))*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])" \
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Letters that have a case, but for some scripts: the list of the DeepSeek tokenizer. */
#define CASED_LETTERS \
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}" \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}" \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-" \
    "\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}" \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-" \
    "\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}" \
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}" \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}" \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-" \
    "\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}" \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}" \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-" \
    "\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}" \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}" \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}" \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define WIDE_PUNCT \
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}" \
    "\\x{3001}\\x{3002}]+"
#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
/*
 * From U+0800 on, without the white space in between: llama.cpp shows these patterns a line tab in
 * the place of every Unicode space.
 */
#define CJK \
    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{4e00}" \
    "\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK3 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[" \
    "\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define BAILING \
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" \
    "\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED \
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{" \
    "L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const skv_pre_type types[] = {
    {{"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {{"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false},
    {{LLAMA3}, true, true},
    {{"[\r\n]", CASED_LETTERS, WIDE_PUNCT, "\\s+$", CJK, "\\p{N}+"}, false, false},
    /* NOLINTNEXTLINE(bugprone-suspicious-missing-comma): CJK is one pattern in two literals */
    {{"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}, false, false},
    {{"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}, false, false},
    {{"\\p{N}", GPT2}, false, false},
    {{GPT2}, false, false},
    {{QWEN2}, false, false},
    {{QWEN35}, false, false},
    {{LLAMA3}, false, false},
    {{BLOOM}, false, false},
    {{BLOOM, "\\p{N}"}, false, false},
    {{TEKKEN}, true, true},
    {{GPT4O}, false, false},
    {{BAILING}, false, false},
    {{SEED}, false, false},
};

static const struct {
    const char *name;
    unsigned char type; /* index above */
} names[] = {
    {"default", 0}, {"falcon", 1}, {"llama-bpe", 2}, {"llama3", 2}, {"llama-v3", 2},
    {"falcon3", 2}, {"falcon-h1", 2}, {"pixtral", 2}, {"midm-2.0", 2}, {"lfm2", 2},
    {"jina-v5-nano", 2}, {"deepseek-llm", 3}, {"deepseek-coder", 4}, {"deepseek-v3", 5},
    {"hunyuan-dense", 5}, {"joyai-llm", 5}, {"hy_v4", 5}, {"starcoder", 6}, {"refact", 6},
    {"command-r", 6}, {"smollm", 6}, {"codeshell", 6}, {"exaone", 6}, {"minerva-7b", 6},
    {"mellum2", 6}, {"gpt-2", 7}, {"phi-2", 7}, {"mpt", 7}, {"olmo", 7}, {"jais", 7},
    {"trillion", 7}, {"granite-docling", 7}, {"jina-es", 7}, {"jina-de", 7}, {"jina-v2-es", 7},
    {"jina-v2-de", 7}, {"jina-v2-code", 7}, {"jina-v1-en", 7}, {"roberta-bpe", 7},
    {"gigachat", 7}, {"a.x-4.0", 7}, {"mellum", 7}, {"modern-bert", 7}, {"exaone4", 7},
    {"qwen2", 8}, {"stablelm2", 8}, {"deepseek-r1-qwen", 8}, {"kormo", 8}, {"f2llmv2", 8},
    {"megrez", 8}, {"hunyuan", 8}, {"solar-open", 8}, {"grok-2", 8}, {"qwen35", 9}, {"dbrx", 10},
    {"smaug-bpe", 10}, {"glm4", 10}, {"chatglm-bpe", 10}, {"poro-chat", 11}, {"bloom", 11},
    {"gpt3-finnish", 11}, {"viking", 12}, {"tekken", 13}, {"gpt-4o", 14}, {"llama4", 14},
    {"kanana2", 14}, {"talkie", 14}, {"minimax-m2", 14}, {"bailingmoe", 15}, {"bailingmoe2", 15},
    {"llada-moe", 15}, {"seed-coder", 16},
};
/* clang-format on */

const skv_pre_type *skv_pre_type_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0) {
            return &types[names[i].type];
        }
    }
    return NULL;
}

const char *skv_pre_type_name(size_t i)
{
    if (i >= sizeof types / sizeof types[0]) return NULL;
    size_t j = 0;
    while (names[j].type != i) j++;
    return names[j].name;
}
