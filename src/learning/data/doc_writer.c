/* Writing a document within its budget of tokens: see doc_writer.h. */
#include "data/doc_writer.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { FACTS_MAX = 1 << 20, TRIES_MAX = 100000, AGAIN_MAX = 16 };

/* FNV-1a, mixed. */
static uint64_t hash_of(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return skv_mix64(h);
}

bool skv_doc_held_out(const char *word, size_t n)
{
    return hash_of(word, n) % 8 == 0;
}

void skv_doc_failed(skv_doc_writer *w)
{
    if (w->status == SKV_OK) w->status = skv_fail(w->err, SKV_MEMORY, "document: no memory");
}

/* ---- chance ---- */

size_t skv_doc_below(skv_doc_writer *w, size_t n)
{
    assert(n > 0);
    return (size_t)skv_rng_below(&w->rng, n);
}

int64_t skv_doc_between(skv_doc_writer *w, int64_t low, int64_t high)
{
    assert(low <= high);
    return low + (int64_t)skv_rng_below(&w->rng, (uint64_t)(high - low) + 1);
}

size_t skv_doc_scale(skv_doc_writer *w, size_t low, size_t high)
{
    assert(low >= 1);
    if (high <= low) return low;
    const double from = (double)low, to = (double)high + 1;
    const double x = from * pow(to / from, skv_rng_uniform(&w->rng));
    return x >= to - 1 ? high : (size_t)x;
}

const char *skv_doc_pick(skv_doc_writer *w, skv_word_list list)
{
    return skv_word_at(list, skv_doc_below(w, skv_words_size(list)));
}

const char *skv_doc_noun(skv_doc_writer *w)
{
    const size_t category = skv_doc_below(w, SKV_WORDS_CATEGORIES);
    return skv_doc_pick(w, (skv_word_list)(SKV_WORDS_ANIMALS + category));
}

/* ---- words of one set ---- */

void skv_doc_syllables(skv_doc_writer *w, size_t n, skv_doc_word *out)
{
    size_t size = 0;
    out->text[0] = 0;
    for (size_t i = 0; i < n && size < sizeof out->text; i++) {
        const char *onset = skv_doc_pick(w, SKV_WORDS_ONSETS);
        const int more = snprintf(out->text + size, sizeof out->text - size, "%s%s", onset,
                                  skv_doc_pick(w, SKV_WORDS_RIMES));
        size += (size_t)more;
    }
}

static void draw_key(skv_doc_writer *w, skv_doc_key kind, skv_doc_word *out)
{
    skv_doc_word a, b;
    const char *first, *last;
    switch (kind) {
    case SKV_KEY_PAIR:
        first = skv_doc_pick(w, SKV_WORDS_ADJECTIVES);
        snprintf(out->text, sizeof out->text, "%s-%s", first, skv_doc_noun(w));
        break;
    case SKV_KEY_PSEUDO:
        skv_doc_syllables(w, 1 + skv_doc_below(w, 2), &a);
        skv_doc_syllables(w, 1 + skv_doc_below(w, 2), &b);
        snprintf(out->text, sizeof out->text, "%.30s-%.30s", a.text, b.text);
        break;
    case SKV_KEY_CODE:
        snprintf(out->text, sizeof out->text, "%c%d", (char)('A' + skv_doc_below(w, 26)),
                 (int)skv_doc_between(w, 1000, 9999));
        break;
    case SKV_KEY_PERSON:
        first = skv_doc_pick(w, SKV_WORDS_FIRST_NAMES);
        last = skv_doc_pick(w, SKV_WORDS_LAST_NAMES);
        snprintf(out->text, sizeof out->text, "%s %s", first, last);
        break;
    case SKV_KEY_COMPANY:
        first = skv_doc_pick(w, SKV_WORDS_LAST_NAMES);
        last = skv_doc_pick(w, SKV_WORDS_TRADES);
        snprintf(out->text, sizeof out->text, "%s %s", first, last);
        break;
    case SKV_KEY_NUMBER:
        snprintf(out->text, sizeof out->text, "%d", (int)skv_doc_between(w, 1000, 99999));
        break;
    }
}

static bool grow_taken(skv_doc_writer *w)
{
    const size_t capacity = w->taken_capacity ? w->taken_capacity * 2 : 256;
    uint64_t *taken = skv_alloc_zero(capacity, sizeof *taken);
    if (!taken) return false;
    for (size_t i = 0; i < w->taken_capacity; i++) {
        if (w->taken[i] == 0) continue;
        size_t at = w->taken[i] & (capacity - 1);
        while (taken[at] != 0) at = (at + 1) & (capacity - 1);
        taken[at] = w->taken[i];
    }
    skv_free(w->taken);
    w->taken = taken;
    w->taken_capacity = capacity;
    return true;
}

/* Remembers a key; false when the document has it already. */
static bool take(skv_doc_writer *w, uint64_t hash)
{
    if (2 * w->n_taken >= w->taken_capacity && !grow_taken(w)) {
        skv_doc_failed(w);
        return true;
    }
    hash |= 1; /* 0 means free */
    const size_t mask = w->taken_capacity - 1;
    size_t at = hash & mask;
    for (; w->taken[at] != 0; at = (at + 1) & mask) {
        if (w->taken[at] == hash) return false;
    }
    w->taken[at] = hash;
    w->n_taken++;
    return true;
}

void skv_doc_new_key(skv_doc_writer *w, skv_doc_key kind, skv_doc_word *out)
{
    for (size_t i = 0; i < TRIES_MAX; i++) {
        draw_key(w, kind, out);
        const uint64_t hash = hash_of(out->text, strlen(out->text));
        if ((hash % 8 == 0) == w->held_out && take(w, hash)) return;
    }
    if (w->status == SKV_OK) {
        w->status =
            skv_fail(w->err, SKV_FULL,
                     "document: %zu tokens need more names than can be drawn: ask for fewer tokens",
                     w->budget);
    }
}

skv_doc_key skv_doc_any_key(skv_doc_writer *w)
{
    static const skv_doc_key kinds[] = {SKV_KEY_PAIR,   SKV_KEY_PAIR,   SKV_KEY_PAIR,
                                        SKV_KEY_PSEUDO, SKV_KEY_PSEUDO, SKV_KEY_CODE};
    return kinds[skv_doc_below(w, sizeof kinds / sizeof kinds[0])];
}

int64_t skv_doc_number(skv_doc_writer *w, int64_t low, int64_t high)
{
    char text[32];
    int64_t value = low;
    for (size_t i = 0; i < TRIES_MAX; i++) {
        value = skv_doc_between(w, low, high);
        const int n = snprintf(text, sizeof text, "%lld", (long long)value);
        if (skv_doc_held_out(text, (size_t)n) == w->held_out) break;
    }
    return value;
}

/* ---- counting ---- */

/* Approximates a small byte-level vocabulary on English: digits and signs one by one, letters by
 * fours, a space with the following word. */
static size_t estimate(const char *text, size_t n)
{
    size_t count = 0, run = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        const bool before_word = c == ' ' && i + 1 < n && (text[i + 1] < '0' || text[i + 1] > '9');
        if (letter) {
            count += run++ % 4 == 0;
        } else {
            run = 0;
            count += !before_word;
        }
    }
    return count;
}

size_t skv_doc_count(skv_doc_writer *w, const char *text, size_t n)
{
    if (!w->tokenizer) return estimate(text, n);
    w->ids.n = 0;
    const skv_encode_options plain = {0};
    skv_status status = skv_tokenizer_encode(w->tokenizer, text, n, plain, &w->ids, w->err);
    if (status != SKV_OK && w->status == SKV_OK) w->status = status;
    return w->ids.n;
}

/* ---- text ---- */

static skv_piece *add_piece(skv_doc_writer *w, skv_piece_role role)
{
    skv_document *doc = w->doc;
    if (doc->n_pieces == doc->pieces_capacity) {
        const size_t capacity = doc->pieces_capacity ? doc->pieces_capacity * 2 : 64;
        skv_piece *pieces = skv_realloc(doc->pieces, capacity, sizeof *pieces);
        if (!pieces) {
            skv_doc_failed(w);
            return NULL;
        }
        doc->pieces = pieces;
        doc->pieces_capacity = capacity;
    }
    skv_piece *piece = &doc->pieces[doc->n_pieces++];
    *piece = (skv_piece){.at = doc->text.size, .role = role};
    return piece;
}

static void append(skv_doc_writer *w, skv_piece *piece, const char *text, size_t n)
{
    if (!skv_buf_append(&w->doc->text, text, n)) skv_doc_failed(w);
    piece->n += n;
}

bool skv_doc_line(skv_doc_writer *w, size_t *at, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    const int made = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert(made >= 0 && (size_t)made < sizeof line);
    const size_t n = skv_min_size((size_t)made, sizeof line - 1);
    const size_t cost = skv_doc_count(w, line, n);
    if (w->status != SKV_OK || w->used + cost + w->reserve > w->budget) return false;
    skv_document *doc = w->doc;
    skv_piece *piece = doc->n_pieces ? &doc->pieces[0] : add_piece(w, SKV_PIECE_USER);
    if (!piece) return false;
    if (at) *at = doc->text.size;
    append(w, piece, line, n);
    w->used += cost;
    return w->status == SKV_OK;
}

skv_doc_fact *skv_doc_fact_new(skv_doc_writer *w)
{
    if (w->n_facts == w->facts_capacity) {
        const size_t capacity = w->facts_capacity ? w->facts_capacity * 2 : 64;
        skv_doc_fact *facts =
            capacity <= FACTS_MAX ? skv_realloc(w->facts, capacity, sizeof *facts) : NULL;
        if (!facts) {
            skv_doc_failed(w);
            return NULL;
        }
        w->facts = facts;
        w->facts_capacity = capacity;
    }
    skv_doc_fact *fact = &w->facts[w->n_facts++];
    *fact = (skv_doc_fact){.at = 0};
    return fact;
}

bool skv_doc_ask(skv_doc_writer *w, size_t at, const char *question, const char *answer)
{
    const size_t n_question = strlen(question), n_answer = strlen(answer);
    if (w->status != SKV_OK || w->n_asked == w->n_questions) return false;
    if (!take(w, hash_of(question, n_question))) return ++w->n_again < AGAIN_MAX;
    const size_t cost = skv_doc_count(w, question, n_question) +
                        skv_doc_count(w, answer, n_answer) + w->turn_tokens;
    if (w->status != SKV_OK || (w->n_asked > 0 && w->used + cost > w->budget)) return false;
    skv_document *doc = w->doc;
    const size_t n_context = doc->n_pieces ? doc->pieces[0].n : 0;
    const bool goes_on = w->n_asked == 0 && doc->n_pieces > 0;
    skv_piece *asking = goes_on ? &doc->pieces[0] : add_piece(w, SKV_PIECE_USER);
    if (!asking) return false;
    if (goes_on) append(w, asking, "\n", 1);
    append(w, asking, question, n_question);
    skv_piece *piece = add_piece(w, SKV_PIECE_ASSISTANT);
    if (!piece) return false;
    piece->loss = true;
    piece->depth = n_context > 0 ? fmin(1.0, (double)at / (double)n_context) : 0;
    append(w, piece, answer, n_answer);
    w->used += cost;
    w->n_asked++;
    return w->status == SKV_OK;
}

bool skv_doc_piece(skv_doc_writer *w, bool loss, const char *text, size_t n)
{
    const size_t cost = skv_doc_count(w, text, n);
    if (w->status != SKV_OK || w->used + cost > w->budget) return false;
    skv_piece *piece = add_piece(w, SKV_PIECE_TEXT);
    if (!piece) return false;
    piece->loss = loss;
    append(w, piece, text, n);
    w->used += cost;
    return w->status == SKV_OK;
}
