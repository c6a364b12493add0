/*
 * Drafts from text that was seen: the longest match of the last tokens with what came before them,
 * and what followed it there (suffix decoding, arXiv:2411.04975, with the latest match in place of
 * a tree's most frequent one). Answers that copy, edit or quote their prompt get most of their
 * tokens in this way.
 *
 * Places are chained by their two tokens before, newest first, as in a compressor. The memory is
 * bounded by the sequence's length, and a search looks at CHAIN_MAX places.
 */
#include "base/mem.h"
#include "base/size.h"
#include "engine/draft.h"

enum {
    GRAM = 2,       /* tokens that a place is found by: the shortest match */
    HEAD_BITS = 14, /* of the table of chains */
    CHAIN_MAX = 64, /* places that a search looks at */
    MATCH_MAX = 32  /* a longer match is not better */
};

typedef struct text_index {
    uint32_t heads[1 << HEAD_BITS]; /* the latest place of a chain, 0: none */
    uint32_t *earlier;              /* owned, [max_tokens], mapped: the place before it */
    int32_t *ids;                   /* owned, [max_tokens], mapped: what the places are of */
    size_t n, max_tokens;           /* places below n are in the chains */
} text_index;

static size_t chain_of(const int32_t *ids, size_t at)
{
    const uint32_t a = (uint32_t)ids[at - 2], b = (uint32_t)ids[at - 1];
    return (a * 0x9e3779b1U ^ b * 0x85ebca6bU) * 0xc2b2ae35U >> (32 - HEAD_BITS);
}

static void release(void *state)
{
    text_index *t = state;
    if (!t) return;
    if (t->earlier) skv_unmap(t->earlier, t->max_tokens * sizeof *t->earlier);
    if (t->ids) skv_unmap(t->ids, t->max_tokens * sizeof *t->ids);
    skv_free(t);
}

static skv_status create(size_t max_tokens, void **state, skv_error *err)
{
    text_index *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "drafts: no memory");
    t->max_tokens = max_tokens;
    t->earlier = skv_map_zero(max_tokens * sizeof *t->earlier);
    t->ids = skv_map_zero(max_tokens * sizeof *t->ids);
    if (!t->earlier || !t->ids) {
        release(t);
        return skv_fail(err, SKV_MEMORY, "drafts: no memory for %zu tokens", max_tokens);
    }
    *state = t;
    return SKV_OK;
}

/* Places from n on leave their chains, the latest first. */
static void forget(text_index *t, size_t n)
{
    while (t->n > n) {
        const size_t at = --t->n;
        if (at >= GRAM) t->heads[chain_of(t->ids, at)] = t->earlier[at];
    }
}

/* The index has the places of ids [n]. The last token's own place is `n`, which is not among them:
 * nothing follows it yet. */
static void follow(text_index *t, const int32_t *ids, size_t n)
{
    size_t same = 0;
    while (same < t->n && same < n && t->ids[same] == ids[same]) same++;
    forget(t, same);
    for (size_t at = t->n; at < n; at++) {
        t->ids[at] = ids[at];
        if (at < GRAM) continue;
        uint32_t *head = &t->heads[chain_of(ids, at)];
        t->earlier[at] = *head;
        *head = (uint32_t)at;
    }
    t->n = n;
}

/* Tokens before place a and before place b > a that agree. */
static size_t match(const int32_t *ids, size_t a, size_t b)
{
    const size_t most = skv_min_size(a, MATCH_MAX);
    size_t n = 0;
    while (n < most && ids[a - 1 - n] == ids[b - 1 - n]) n++;
    return n;
}

static size_t propose(void *state, const int32_t *ids, size_t n, int32_t *out, size_t most,
                      size_t *n_match)
{
    text_index *t = state;
    size_t best = 0, best_at = 0;
    *n_match = 0;
    follow(t, ids, n);
    if (n < GRAM) return 0;
    size_t at = t->heads[chain_of(ids, n)];
    for (size_t i = 0; at > 0 && i < CHAIN_MAX && best < MATCH_MAX; i++) {
        const size_t n_same = match(ids, at, n);
        if (n_same > best) {
            best = n_same;
            best_at = at;
        }
        at = t->earlier[at];
    }
    if (best < GRAM) return 0;
    *n_match = best;
    const size_t n_out = skv_min_size(most, best * 2);
    /* Text that repeats itself goes on with what is drafted. */
    for (size_t i = 0; i < n_out; i++) {
        out[i] = best_at + i < n ? ids[best_at + i] : out[best_at + i - n];
    }
    return n_out;
}

const skv_draft_method skv_draft_text = {
    .name = "text",
    .form = "[K]",
    .about = "what followed the last tokens when they came before, in the prompt or the answer",
    .id = SKV_DRAFT_TEXT,
    .most = 12,
    .create = create,
    .free = release,
    .propose = propose,
};
