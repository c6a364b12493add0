/* Where tokens were seen before: see draft_index.h. */
#include "drafts/draft_index.h"

#include <assert.h>

#include "base/mem.h"
#include "base/size.h"

enum {
    HEAD_BITS = 14, /* of the table of chains */
    CHAIN_MAX = 64, /* places that a search looks at */
    MATCH_MAX = 32  /* a longer match is not better */
};

struct skv_draft_index {
    uint32_t heads[1 << HEAD_BITS]; /* the latest place of a chain, 0: none */
    uint32_t *earlier;              /* owned, [max_tokens], mapped: the place before it */
    int32_t *ids;                   /* owned, [max_tokens], mapped: the text */
    size_t n, max_tokens;
};

/* The chain of the place after ids [at]. */
static size_t chain_of(const int32_t *ids, size_t at)
{
    const uint32_t a = (uint32_t)ids[at - 2], b = (uint32_t)ids[at - 1];
    return (a * 0x9e3779b1U ^ b * 0x85ebca6bU) * 0xc2b2ae35U >> (32 - HEAD_BITS);
}

skv_status skv_draft_index_create(size_t max_tokens, skv_draft_index **out, skv_error *err)
{
    skv_draft_index *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "drafts: no memory");
    t->max_tokens = max_tokens;
    t->earlier = skv_map_zero(max_tokens * sizeof *t->earlier);
    t->ids = skv_map_zero(max_tokens * sizeof *t->ids);
    if (!t->earlier || !t->ids) {
        skv_draft_index_free(t);
        return skv_fail(err, SKV_MEMORY, "drafts: no memory for %zu tokens", max_tokens);
    }
    *out = t;
    return SKV_OK;
}

void skv_draft_index_free(skv_draft_index *t)
{
    if (!t) return;
    if (t->earlier) skv_unmap(t->earlier, t->max_tokens * sizeof *t->earlier);
    if (t->ids) skv_unmap(t->ids, t->max_tokens * sizeof *t->ids);
    skv_free(t);
}

size_t skv_draft_index_bytes(size_t max_tokens)
{
    return sizeof(skv_draft_index) + max_tokens * (sizeof(uint32_t) + sizeof(int32_t));
}

const int32_t *skv_draft_index_ids(const skv_draft_index *t, size_t *n)
{
    *n = t->n;
    return t->ids;
}

void skv_draft_index_put(skv_draft_index *t, int32_t id)
{
    const size_t at = t->n++;
    assert(at < t->max_tokens);
    t->ids[at] = id;
    if (at < SKV_DRAFT_GRAM) return;
    uint32_t *head = &t->heads[chain_of(t->ids, at)];
    t->earlier[at] = *head;
    *head = (uint32_t)at;
}

/* Places leave their chains, the latest first. */
void skv_draft_index_truncate(skv_draft_index *t, size_t n)
{
    while (t->n > n) {
        const size_t at = --t->n;
        if (at >= SKV_DRAFT_GRAM) t->heads[chain_of(t->ids, at)] = t->earlier[at];
    }
}

/* Tokens before place `at` of the text that agree with the last ones of ids [n]. */
static size_t match(const skv_draft_index *t, size_t at, const int32_t *ids, size_t n)
{
    const size_t most = skv_min_size(skv_min_size(at, n), MATCH_MAX);
    size_t n_same = 0;
    while (n_same < most && t->ids[at - 1 - n_same] == ids[n - 1 - n_same]) n_same++;
    return n_same;
}

size_t skv_draft_index_find(const skv_draft_index *t, const int32_t *ids, size_t n, size_t *at)
{
    size_t best = 0;
    if (n < SKV_DRAFT_GRAM) return 0;
    size_t place = t->heads[chain_of(ids, n)];
    for (size_t i = 0; place > 0 && i < CHAIN_MAX && best < MATCH_MAX; i++) {
        const size_t n_same = match(t, place, ids, n);
        if (n_same > best) {
            best = n_same;
            *at = place;
        }
        place = t->earlier[place];
    }
    return best >= SKV_DRAFT_GRAM ? best : 0;
}
