/* Sets of code points, and their bytes in UTF-8: see code_set.h. */
#include "grammar/code_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/utf8.h"

enum { SURROGATE_FIRST = 0xd800, SURROGATE_LAST = 0xdfff };

const skv_code_range skv_code_digits[1] = {{'0', '9'}};
const skv_code_range skv_code_words[4] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const skv_code_range skv_code_spaces[2] = {{'\t', '\r'}, {' ', ' '}};

void skv_code_set_release(skv_code_set *set)
{
    skv_budget_free(set->budget, set->at, set->capacity, sizeof *set->at);
    *set = (skv_code_set){.budget = set->budget};
}

void skv_code_set_add(skv_code_set *set, uint32_t lo, uint32_t hi)
{
    if (lo > hi || set->failed) return;
    set->failed = set->n == set->capacity &&
                  !skv_budget_grow(set->budget, &set->at, &set->capacity, set->n + 1,
                                   sizeof *set->at, 2 * (size_t)SKV_CODE_RANGES_MAX);
    if (set->failed) return;
    set->at[set->n++] = (skv_code_range){lo, hi};
}

void skv_code_set_add_all(skv_code_set *set, const skv_code_range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++) skv_code_set_add(set, ranges[i].lo, ranges[i].hi);
}

static int by_start(const void *a, const void *b)
{
    const skv_code_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Surrogates are cut out by adding the two sides of every range that has them. */
static void drop_surrogates(skv_code_set *set)
{
    for (size_t i = 0, n = set->n; i < n; i++) {
        skv_code_range r = set->at[i];
        if (r.hi < SURROGATE_FIRST || r.lo > SURROGATE_LAST) continue;
        if (r.lo < SURROGATE_FIRST && r.hi > SURROGATE_LAST) {
            skv_code_set_add(set, SURROGATE_LAST + 1, r.hi);
        }
        if (r.lo < SURROGATE_FIRST) {
            set->at[i].hi = SURROGATE_FIRST - 1;
        } else if (r.hi > SURROGATE_LAST) {
            set->at[i].lo = SURROGATE_LAST + 1;
        } else {
            set->at[i] = (skv_code_range){1, 0}; /* empty: dropped below */
        }
    }
}

void skv_code_set_tidy(skv_code_set *set)
{
    drop_surrogates(set);
    if (set->n > 1) qsort(set->at, set->n, sizeof *set->at, by_start);
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        skv_code_range r = set->at[i];
        if (r.lo > r.hi) continue;
        if (n > 0 && r.lo <= set->at[n - 1].hi + 1) {
            if (r.hi > set->at[n - 1].hi) set->at[n - 1].hi = r.hi;
        } else {
            set->at[n++] = r;
        }
    }
    set->n = n;
}

void skv_code_set_invert(skv_code_set *set)
{
    skv_code_set out = {.budget = set->budget, .failed = set->failed};
    uint32_t next = 0;
    for (size_t i = 0; i < set->n; i++) {
        if (set->at[i].lo > next) skv_code_set_add(&out, next, set->at[i].lo - 1);
        next = set->at[i].hi + 1;
    }
    if (next <= SKV_CODE_MAX) skv_code_set_add(&out, next, SKV_CODE_MAX);
    skv_code_set_tidy(&out);
    skv_code_set_release(set);
    *set = out;
}

void skv_code_set_cut(const skv_code_set *a, uint32_t lo, uint32_t hi, skv_code_set *out)
{
    for (size_t i = 0; i < a->n; i++) {
        uint32_t from = a->at[i].lo > lo ? a->at[i].lo : lo;
        uint32_t to = a->at[i].hi < hi ? a->at[i].hi : hi;
        skv_code_set_add(out, from, to);
    }
}

/* ---- UTF-8 ---- */

typedef struct speller {
    void (*put)(void *user, const skv_utf8_spelling *s);
    void *user;
} speller;

/*
 * Splits code points of one length until every byte's range is independent of the others: the
 * bytes below the first one that differs must run over all of 80..BF.
 */
static void spell_length(const speller *s, uint32_t lo, uint32_t hi)
{
    for (uint32_t shift = 6; shift <= 18; shift += 6) {
        uint32_t low = (UINT32_C(1) << shift) - 1;
        if ((lo & ~low) == (hi & ~low)) break;
        if ((lo & low) != 0) {
            spell_length(s, lo, lo | low);
            spell_length(s, (lo | low) + 1, hi);
            return;
        }
        if ((hi & low) != low) {
            spell_length(s, lo, (hi & ~low) - 1);
            spell_length(s, hi & ~low, hi);
            return;
        }
    }
    char first[4], last[4];
    skv_utf8_spelling out = {.n = skv_utf8_encode(lo, first)};
    (void)skv_utf8_encode(hi, last);
    memcpy(out.lo, first, out.n);
    memcpy(out.hi, last, out.n);
    s->put(s->user, &out);
}

void skv_utf8_spell(skv_code_range range, void (*put)(void *user, const skv_utf8_spelling *s),
                    void *user)
{
    static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xffff, SKV_CODE_MAX};
    const speller s = {put, user};
    uint32_t lo = range.lo;
    for (size_t i = 0; i < 4 && lo <= range.hi; i++) {
        if (lo > last_of_length[i]) continue;
        uint32_t hi = range.hi < last_of_length[i] ? range.hi : last_of_length[i];
        spell_length(&s, lo, hi);
        lo = hi + 1;
    }
}
