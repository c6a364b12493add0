/*
 * SentencePiece's BPE as merges. It joins neighbours whose concatenation is a piece, the highest
 * score first. Pieces are known beforehand, so all pairs that spell one are too: the pair table
 * of bpe.h with the score as rank.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

enum { PIECE_BYTES_MAX = 512 };

static bool takes_part(const skv_vocab *v, uint32_t id, bool all)
{
    const unsigned left_out = SKV_TOKEN_BYTE | SKV_TOKEN_UNKNOWN | SKV_TOKEN_LITERAL;
    if (!skv_vocab_has(v, id)) return false;
    return all || (v->flags[id] & left_out) == 0;
}

static int compare_codes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts and drops repetitions; returns how many are left. */
static size_t make_unique(uint32_t *codes, size_t n)
{
    size_t kept = 0;
    qsort(codes, n, sizeof *codes, compare_codes);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || codes[kept - 1] != codes[i]) codes[kept++] = codes[i];
    }
    return kept;
}

/* Characters of tokens that are no token themselves become virtual symbols. */
static bool find_virtual(skv_tokenizer *t, bool all)
{
    const skv_vocab *v = &t->vocab;
    size_t n = 0, capacity = 0;
    for (uint32_t id = 0; id < v->n_ids; id++) {
        size_t length, n_text;
        if (!takes_part(v, id, all)) continue;
        const char *text = skv_vocab_text(v, id, &n_text);
        for (size_t i = 0; i < n_text; i += length) {
            uint32_t code;
            length = skv_utf8_decode(text + i, n_text - i, &code);
            if (code == SKV_UTF8_BAD || skv_vocab_find(v, text + i, length) != SKV_NO_TOKEN) {
                continue;
            }
            if (n == capacity) {
                capacity = capacity == 0 ? 64 : capacity * 2;
                uint32_t *codes = skv_realloc(t->bpe.virtual_codes, capacity, sizeof *codes);
                if (!codes) return false;
                t->bpe.virtual_codes = codes;
            }
            t->bpe.virtual_codes[n++] = code;
        }
    }
    t->bpe.n_virtual = n > 0 ? make_unique(t->bpe.virtual_codes, n) : 0;
    return true;
}

/* The symbol that a part of a token is: a token or a virtual character. */
static uint32_t symbol_of(const skv_tokenizer *t, const char *text, size_t n, bool all)
{
    uint32_t id = skv_vocab_find(&t->vocab, text, n), code;
    if (id != SKV_NO_TOKEN) return takes_part(&t->vocab, id, all) ? id : SKV_NO_TOKEN;
    if (skv_utf8_decode(text, n, &code) != n || code == SKV_UTF8_BAD) return SKV_NO_TOKEN;
    const uint32_t *found =
        bsearch(&code, t->bpe.virtual_codes, t->bpe.n_virtual, sizeof code, compare_codes);
    if (!found) return SKV_NO_TOKEN;
    return (uint32_t)(t->vocab.n_ids + (size_t)(found - t->bpe.virtual_codes));
}

/* The order of floats turned round: the highest score is the lowest rank. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* both zeros are equal */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return ordered == 0 ? UINT32_MAX - 1 : ~ordered;
}

/* Calls for every way to spell a token by two symbols; counts, and puts where `put` is set. */
static size_t each_pair(skv_tokenizer *t, const float *scores, bool all, bool put)
{
    size_t n_pairs = 0;
    for (uint32_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n, length;
        uint32_t code;
        if (!takes_part(&t->vocab, id, all)) continue;
        const char *text = skv_vocab_text(&t->vocab, id, &n);
        if (n == 0 || skv_vocab_find(&t->vocab, text, n) != id) continue;
        for (size_t i = skv_utf8_decode(text, n, &code); i < n; i += length) {
            length = skv_utf8_decode(text + i, n - i, &code);
            uint32_t left = symbol_of(t, text, i, all);
            if (left == SKV_NO_TOKEN) continue;
            uint32_t right = symbol_of(t, text + i, n - i, all);
            if (right == SKV_NO_TOKEN) continue;
            n_pairs++;
            if (put) skv_bpe_put(&t->bpe.merges, left, right, rank_of(scores[id]), id);
        }
    }
    return n_pairs;
}

skv_status skv_spm_build_merges(skv_tokenizer *t, const float *scores, bool all, skv_error *err)
{
    for (uint32_t id = 0; id < t->vocab.n_ids; id++) {
        SKV_REQUIRE(t->vocab.texts[id].length <= PIECE_BYTES_MAX, err, SKV_RANGE,
                    "%s: token %u has %u bytes, at most %d", t->name, (unsigned)id,
                    (unsigned)t->vocab.texts[id].length, (int)PIECE_BYTES_MAX);
    }
    t->bpe.late_unknown = true;
    SKV_REQUIRE(find_virtual(t, all), err, SKV_MEMORY, "%s: no memory for the merges", t->name);
    SKV_REQUIRE(skv_bpe_init(&t->bpe.merges, each_pair(t, scores, all, false)), err, SKV_MEMORY,
                "%s: no memory for the merges", t->name);
    each_pair(t, scores, all, true);
    skv_bpe_model_prepare(&t->bpe, &t->vocab);
    return SKV_OK;
}
