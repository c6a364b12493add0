/* Byte-level BPE: words, pairs, merges. See bpe_train.h. */
#include "train/vocabulary/bpe_train.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/unicode_class.h"

enum { BYTES = 256, WORDS_MAX = 1 << 26 };
#define TEXT_MAX ((size_t)1 << 31)

/* ---- words ---- */

static uint64_t hash_of(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return skv_mix64(h);
}

/* The slot of a word: its own, or the free one where it belongs. */
static uint32_t *slot_of(const skv_bpe_trainer *t, const char *word, size_t n)
{
    size_t at = hash_of(word, n) & (t->n_slots - 1);
    for (; t->slots[at] != 0; at = (at + 1) & (t->n_slots - 1)) {
        const skv_bpe_word *w = &t->words[t->slots[at] - 1];
        if (w->n == n && memcmp(t->text.data + w->at, word, n) == 0) break;
    }
    return &t->slots[at];
}

static bool grow_words(skv_bpe_trainer *t)
{
    const size_t capacity = t->words_capacity ? t->words_capacity * 2 : 1024;
    if (capacity > WORDS_MAX) return false;
    skv_bpe_word *words = skv_realloc(t->words, capacity, sizeof *words);
    if (!words) return false;
    t->words = words;
    t->words_capacity = capacity;
    uint32_t *slots = skv_alloc_zero(capacity * 2, sizeof *slots);
    if (!slots) return false;
    skv_free(t->slots);
    t->slots = slots;
    t->n_slots = capacity * 2;
    for (size_t i = 0; i < t->n_words; i++) {
        *slot_of(t, t->text.data + t->words[i].at, t->words[i].n) = (uint32_t)i + 1;
    }
    return true;
}

static skv_status count_word(void *arg, const char *word, size_t n, skv_error *err)
{
    skv_bpe_trainer *t = arg;
    if (n == 0) return SKV_OK;
    if (t->n_words == t->words_capacity) {
        SKV_REQUIRE(grow_words(t), err, SKV_MEMORY, "vocabulary: no memory for %zu words",
                    t->n_words);
    }
    uint32_t *slot = slot_of(t, word, n);
    if (*slot == 0) {
        t->words[t->n_words] = (skv_bpe_word){.at = t->text.size, .n = n};
        SKV_REQUIRE(skv_buf_append(&t->text, word, n), err, SKV_MEMORY,
                    "vocabulary: no memory for %zu words", t->n_words);
        *slot = (uint32_t)++t->n_words;
    }
    t->words[*slot - 1].count++;
    return SKV_OK;
}

/* ---- the trainer ---- */

static bool grow_vocab(skv_bpe_trainer *t)
{
    if (t->n_vocab < t->vocab_capacity) return true;
    const size_t capacity = t->vocab_capacity ? t->vocab_capacity * 2 : 2 * BYTES;
    skv_bpe_token *vocab = skv_realloc(t->vocab, capacity, sizeof *vocab);
    if (!vocab) return false;
    t->vocab = vocab;
    t->vocab_capacity = capacity;
    return true;
}

/* Single digits, then GPT-2's words, as tokenizer.json will have them (vocab_train.c). */
static bool set_pretokenizer(skv_bpe_trainer *t)
{
    skv_pre_step *digits = skv_pretokenizer_add(&t->pre, SKV_PRE_CLASS);
    if (!digits) return false;
    digits->classes = SKV_U_NUMERIC;
    digits->behavior = SKV_SPLIT_ISOLATED;
    skv_pre_step *words = skv_pretokenizer_add(&t->pre, SKV_PRE_SCAN);
    if (!words) return false;
    words->scan = skv_scan_gpt2;
    return true;
}

static bool add_bytes(skv_bpe_trainer *t)
{
    /* The alphabet orders bytes by the characters that represent them, as other implementations
     * do. */
    unsigned char order[BYTES];
    for (size_t i = 0; i < BYTES; i++) {
        size_t at = i;
        const uint32_t code = skv_alphabet_char((unsigned char)i);
        for (; at > 0 && skv_alphabet_char(order[at - 1]) > code; at--) order[at] = order[at - 1];
        order[at] = (unsigned char)i;
    }
    for (uint32_t i = 0; i < BYTES; i++) {
        if (!grow_vocab(t)) return false;
        t->vocab[t->n_vocab++] = (skv_bpe_token){t->spelling.size, 1};
        if (!skv_buf_append(&t->spelling, &order[i], 1)) return false;
    }
    return true;
}

skv_status skv_bpe_trainer_init(skv_bpe_trainer *t, uint32_t first, skv_error *err)
{
    *t = (skv_bpe_trainer){.first = first};
    skv_buf_init(&t->text, TEXT_MAX);
    skv_buf_init(&t->spelling, TEXT_MAX);
    const bool made = set_pretokenizer(t) && add_bytes(t);
    skv_pre_work_init(&t->work, &t->pre, TEXT_MAX, NULL, count_word, t);
    if (made) return SKV_OK;
    skv_bpe_trainer_release(t);
    return skv_fail(err, SKV_MEMORY, "vocabulary: no memory");
}

void skv_bpe_trainer_release(skv_bpe_trainer *t)
{
    skv_pre_work_release(&t->work);
    skv_pretokenizer_release(&t->pre);
    skv_buf_release(&t->text);
    skv_buf_release(&t->spelling);
    skv_free(t->words);
    skv_free(t->slots);
    skv_free(t->tokens);
    skv_free(t->vocab);
    skv_free(t->merges);
    *t = (skv_bpe_trainer){.first = t->first};
}

skv_status skv_bpe_trainer_add(skv_bpe_trainer *t, const char *text, size_t n, skv_error *err)
{
    t->n_bytes += n;
    return n > 0 ? skv_pretokenize(&t->work, text, n, true, err) : SKV_OK;
}

/* ---- pairs ---- */

typedef struct pair_count {
    uint32_t left, right;
    uint64_t count; /* 0 while the slot has never been used, or none is left */
    bool used;
} pair_count;

/* Open addressing; pairs are never taken out, their count falls to 0. */
typedef struct pair_table {
    pair_count *at; /* owned */
    size_t n_slots, n_used;
} pair_table;

static pair_count *find_pair(const pair_table *p, uint32_t left, uint32_t right)
{
    size_t i = skv_mix64((uint64_t)left << 32 | right) & (p->n_slots - 1);
    while (p->at[i].used && (p->at[i].left != left || p->at[i].right != right)) {
        i = (i + 1) & (p->n_slots - 1);
    }
    return &p->at[i];
}

static bool grow_pairs(pair_table *p)
{
    pair_table bigger = {.n_slots = p->n_slots ? p->n_slots * 2 : 4096};
    bigger.at = skv_alloc_zero(bigger.n_slots, sizeof *bigger.at);
    if (!bigger.at) return false;
    for (size_t i = 0; i < p->n_slots; i++) { /* without pairs that no longer occur */
        if (!p->at[i].used || p->at[i].count == 0) continue;
        *find_pair(&bigger, p->at[i].left, p->at[i].right) = p->at[i];
        bigger.n_used++;
    }
    skv_free(p->at);
    *p = bigger;
    return true;
}

static bool add_pair(pair_table *p, uint32_t left, uint32_t right, uint64_t count)
{
    if (2 * p->n_used >= p->n_slots && !grow_pairs(p)) return false;
    pair_count *pair = find_pair(p, left, right);
    if (!pair->used) {
        *pair = (pair_count){.left = left, .right = right, .used = true};
        p->n_used++;
    }
    pair->count += count;
    return true;
}

static bool add_word_pairs(pair_table *p, const uint32_t *tokens, const skv_bpe_word *word)
{
    for (size_t i = 0; i + 1 < word->n_tokens; i++) {
        if (!add_pair(p, tokens[i], tokens[i + 1], word->count)) return false;
    }
    return true;
}

static const pair_count *best_pair(const pair_table *p)
{
    const pair_count *best = NULL;
    for (size_t i = 0; i < p->n_slots; i++) {
        const pair_count *x = &p->at[i];
        if (!x->used || (best && x->count < best->count)) continue;
        if (!best || x->count > best->count || x->left < best->left ||
            (x->left == best->left && x->right < best->right)) {
            best = x;
        }
    }
    return best && best->count > 1 ? best : NULL;
}

/* ---- merges ---- */

static bool has_pair(const uint32_t *tokens, size_t n, uint32_t left, uint32_t right)
{
    for (size_t i = 0; i + 1 < n; i++) {
        if (tokens[i] == left && tokens[i + 1] == right) return true;
    }
    return false;
}

/* Every occurrence from the left becomes `id`; returns how many tokens are left. */
static uint32_t merge_word(uint32_t *tokens, size_t n, uint32_t left, uint32_t right, uint32_t id)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && tokens[i] == left && tokens[i + 1] == right) {
            tokens[kept++] = id;
            i++;
        } else {
            tokens[kept++] = tokens[i];
        }
    }
    return kept;
}

static bool merge_everywhere(skv_bpe_trainer *t, pair_table *p, uint32_t left, uint32_t right,
                             uint32_t id)
{
    for (size_t i = 0; i < t->n_words; i++) {
        skv_bpe_word *word = &t->words[i];
        uint32_t *tokens = t->tokens + word->at;
        if (!has_pair(tokens, word->n_tokens, left, right)) continue;
        for (size_t k = 0; k + 1 < word->n_tokens; k++) {
            find_pair(p, tokens[k], tokens[k + 1])->count -= word->count;
        }
        word->n_tokens = merge_word(tokens, word->n_tokens, left, right, id);
        if (!add_word_pairs(p, tokens, word)) return false;
    }
    return true;
}

static bool same_spelling(const skv_bpe_trainer *t, const skv_bpe_token *a, const skv_bpe_token *b)
{
    return a->n == b->n && memcmp(t->spelling.data + a->at, t->spelling.data + b->at, a->n) == 0;
}

/* Returns the id of two tokens' joined text: a new one unless another merge made it before. */
static bool add_token(skv_bpe_trainer *t, uint32_t left, uint32_t right, uint32_t *id)
{
    if (!grow_vocab(t)) return false;
    skv_bpe_token token = {.at = t->spelling.size};
    for (size_t part = 0; part < 2; part++) {
        const skv_bpe_token from = t->vocab[(part == 0 ? left : right) - t->first];
        for (size_t i = 0; i < from.n; i++) { /* byte by byte: appending may move the bytes */
            if (!skv_buf_byte(&t->spelling, t->spelling.data[from.at + i])) return false;
        }
        token.n += from.n;
    }
    size_t i = BYTES;
    while (i < t->n_vocab && !same_spelling(t, &t->vocab[i], &token)) i++;
    if (i == t->n_vocab) t->vocab[t->n_vocab++] = token;
    *id = t->first + (uint32_t)i;
    return true;
}

static bool add_merge(skv_bpe_trainer *t, uint32_t left, uint32_t right, uint32_t *id)
{
    if (t->n_merges == t->merges_capacity) {
        const size_t capacity = t->merges_capacity ? t->merges_capacity * 2 : 1024;
        skv_bpe_merge *merges = skv_realloc(t->merges, capacity, sizeof *merges);
        if (!merges) return false;
        t->merges = merges;
        t->merges_capacity = capacity;
    }
    if (!add_token(t, left, right, id)) return false;
    t->merges[t->n_merges++] = (skv_bpe_merge){left, right, *id};
    return true;
}

static bool split_words(skv_bpe_trainer *t, pair_table *p)
{
    uint32_t id_of[BYTES];
    for (uint32_t i = 0; i < BYTES; i++) {
        id_of[(unsigned char)t->spelling.data[t->vocab[i].at]] = t->first + i;
    }
    t->tokens = skv_alloc(t->text.size + 1, sizeof *t->tokens);
    if (!t->tokens) return false;
    for (size_t i = 0; i < t->text.size; i++) t->tokens[i] = id_of[(unsigned char)t->text.data[i]];
    for (size_t i = 0; i < t->n_words; i++) {
        t->words[i].n_tokens = (uint32_t)t->words[i].n;
        if (!add_word_pairs(p, t->tokens + t->words[i].at, &t->words[i])) return false;
    }
    return true;
}

static bool learn(skv_bpe_trainer *t, pair_table *p, size_t n_vocab)
{
    if (!grow_pairs(p) || !split_words(t, p)) return false;
    const pair_count *best;
    const size_t n_merges = n_vocab > BYTES ? n_vocab - BYTES : 1;
    while (t->n_vocab < n_vocab && (best = best_pair(p))) {
        const uint32_t left = best->left, right = best->right;
        uint32_t id;
        if (!add_merge(t, left, right, &id) || !merge_everywhere(t, p, left, right, id))
            return false;
        if (t->on_progress) {
            t->on_progress(t->user, "merging", (double)(t->n_vocab - BYTES) / (double)n_merges);
        }
    }
    return true;
}

skv_status skv_bpe_trainer_learn(skv_bpe_trainer *t, size_t n_vocab, skv_error *err)
{
    assert(!t->tokens);
    pair_table pairs = {.n_slots = 0};
    const bool learnt = learn(t, &pairs, n_vocab);
    skv_free(pairs.at);
    SKV_REQUIRE(learnt, err, SKV_MEMORY, "vocabulary: no memory for the pairs of %zu words",
                t->n_words);
    return SKV_OK;
}

uint64_t skv_bpe_trainer_tokens(const skv_bpe_trainer *t)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t->n_words; i++) n += t->words[i].count * t->words[i].n_tokens;
    return n;
}
