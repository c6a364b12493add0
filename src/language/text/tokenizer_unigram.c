/*
 * Viterbi's algorithm for the unigram model. Positions are kept from the last one that every best
 * spelling passes, so that a text of any length takes what a stretch of it takes.
 */
#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

enum { ROOM_MIN = 16 * SKV_TRIE_TEXT_MAX }; /* positions: several times the reach of a piece */

/* The best spelling that ends at a byte position. */
typedef struct best_end {
    float score;    /* as SentencePiece: single precision decides ties the same way */
    uint32_t id;    /* of its last piece */
    uint32_t start; /* where that piece begins; UINT32_MAX: position not reached */
} best_end;

/* One text on its way. */
typedef struct lattice {
    const skv_unigram *model;
    const char *text; /* [n] */
    size_t n;
    best_end *ends; /* owned, [room]: of the positions from `base` on */
    size_t room, base;
    skv_budget *budget; /* borrowed; NULL: none */
    skv_ids *out;
    bool unknown; /* the last piece that was written is unknown */
} lattice;

void skv_unigram_release(skv_unigram *model)
{
    skv_trie_release(&model->pieces);
    skv_free(model->scores);
    *model = (skv_unigram){0};
}

static void offer(best_end *end, size_t start, uint32_t id, float score)
{
    if (end->start != UINT32_MAX && score <= end->score) return;
    *end = (best_end){.score = score, .id = id, .start = (uint32_t)start};
}

static void extend(lattice *l, size_t start)
{
    const skv_unigram *model = l->model;
    const char *text = l->text + start;
    best_end *here = l->ends + (start - l->base);
    float base = start == 0 ? 0.0f : here->score;
    uint32_t code, state = 0, id;
    size_t n = l->n - start, length = skv_utf8_decode(text, n, &code), at = 0;
    bool single = false;
    while (skv_trie_next(&model->pieces, text, n, &state, &at, &id)) {
        single = single || at == length;
        offer(here + at, start, id, base + model->scores[id]);
    }
    if (!single) offer(here + length, start, model->unk, base + model->unk_score);
}

/* Writes an unknown run: as bytes if all have tokens, else as one unknown token. */
static skv_status write_unknown(const skv_unigram *model, const char *text, size_t n,
                                bool after_unknown, skv_ids *out, bool *fell_back, skv_error *err)
{
    *fell_back = model->byte_fallback;
    for (size_t i = 0; *fell_back && i < n; i++) {
        if (model->byte_token[(unsigned char)text[i]] == SKV_NO_TOKEN) *fell_back = false;
    }
    if (!*fell_back) return after_unknown ? SKV_OK : skv_ids_push(out, (int32_t)model->unk, err);
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(skv_ids_push(out, (int32_t)model->byte_token[(unsigned char)text[i]], err));
    }
    return SKV_OK;
}

/* Turns the chain of last pieces from `base` to `end` around and writes it. */
static skv_status write_path(lattice *l, size_t end, skv_error *err)
{
    const skv_unigram *model = l->model;
    best_end *ends = l->ends;
    const uint32_t base = (uint32_t)l->base;
    uint32_t next = (uint32_t)end;
    for (uint32_t at = (uint32_t)end; at > base;) {
        uint32_t start = ends[at - base].start;
        ends[at - base].start = next; /* from here on: where the following piece ends */
        next = at;
        at = start;
    }
    for (uint32_t start = base, stop = next; start < end;) {
        const best_end *piece = &ends[stop - base];
        uint32_t following = piece->start;
        if (piece->id == model->unk) {
            bool fell_back;
            SKV_TRY(write_unknown(model, l->text + start, stop - start, l->unknown, l->out,
                                  &fell_back, err));
            l->unknown = !fell_back;
        } else {
            SKV_TRY(skv_ids_push(l->out, (int32_t)piece->id, err));
            l->unknown = false;
        }
        start = stop;
        stop = following;
    }
    return SKV_OK;
}

/* The last position that the best spellings of both have in common. */
static size_t meet(const lattice *l, size_t a, size_t b)
{
    while (a != b) {
        if (a > b) {
            a = l->ends[a - l->base].start;
        } else {
            b = l->ends[b - l->base].start;
        }
    }
    return a;
}

/* Makes room for this many positions; false if out of budget or memory. */
static bool make_room(lattice *l, size_t room)
{
    const size_t had = l->room;
    if (!skv_budget_resize(l->budget, &l->ends, &l->room, room, sizeof *l->ends)) return false;
    for (size_t i = had; i < room; i++) l->ends[i].start = UINT32_MAX;
    return true;
}

/* Writes the tokens that no text after position `at` can change: all spellings that continue pass
 * one position between there and the farthest reach of a piece. If that frees little, more
 * positions are kept. */
static skv_status settle(lattice *l, size_t at, skv_error *err)
{
    const size_t last = skv_min_size(l->n, l->base + l->room - 1);
    const size_t reach = skv_min_size(last, at + SKV_TRIE_TEXT_MAX);
    size_t common = at;
    for (size_t i = at + 1; i <= reach; i++) {
        if (l->ends[i - l->base].start != UINT32_MAX) common = meet(l, common, i);
    }
    const size_t gone = common - l->base;
    if (gone > 0) {
        SKV_TRY(write_path(l, common, err));
        memmove(l->ends, l->ends + gone, (l->room - gone) * sizeof *l->ends);
        for (size_t i = l->room - gone; i < l->room; i++) l->ends[i].start = UINT32_MAX;
        l->base = common;
    }
    if (gone > l->room / 4) return SKV_OK;
    SKV_REQUIRE(make_room(l, 2 * l->room), err, SKV_MEMORY, "no memory to tokenize %zu bytes",
                l->n);
    return SKV_OK;
}

static skv_status walk_lattice(lattice *l, skv_error *err)
{
    for (size_t i = 0; i < l->n;) {
        uint32_t code;
        if (i + SKV_TRIE_TEXT_MAX >= l->base + l->room && l->base + l->room <= l->n) {
            if (!skv_budget_look(l->budget)) return SKV_MEMORY;
            SKV_TRY(settle(l, i, err));
        }
        extend(l, i);
        i += skv_utf8_decode(l->text + i, l->n - i, &code);
    }
    return write_path(l, l->n, err);
}

skv_status skv_unigram_encode(const skv_unigram *model, skv_text_piece text, skv_budget *budget,
                              skv_ids *out, skv_error *err)
{
    if (text.n == 0) return SKV_OK;
    if (budget && !skv_budget_work(budget, 1 + text.n / 4))
        return skv_budget_check(budget, "tokenizing", err);
    lattice l = {.model = model, .text = text.text, .n = text.n, .budget = budget, .out = out};
    skv_status status = SKV_MEMORY;
    if (make_room(&l, skv_min_size(text.n + 1, ROOM_MIN))) {
        status = walk_lattice(&l, err);
    } else {
        status = skv_fail(err, SKV_MEMORY, "no memory to tokenize %zu bytes", text.n);
    }
    skv_budget_free(budget, l.ends, l.room, sizeof *l.ends);
    if (status == SKV_MEMORY && budget) SKV_TRY(skv_budget_check(budget, "tokenizing", err));
    return status;
}
