/* Earlier answers: see draft_history.h. */
#include "drafts/draft_history.h"

#include "base/mem.h"
#include "base/size.h"
#include "drafts/draft_index.h"

enum { END = -1 }; /* after each answer: no token, so no match goes beyond it */

struct skv_draft_history {
    skv_draft_index *index; /* owned */
    size_t max_tokens;
};

skv_status skv_draft_history_create(size_t max_tokens, skv_draft_history **out, skv_error *err)
{
    skv_draft_history *h = skv_alloc_zero(1, sizeof *h);
    SKV_REQUIRE(h, err, SKV_MEMORY, "drafts: no memory");
    h->max_tokens = max_tokens;
    const skv_status status = skv_draft_index_create(max_tokens, &h->index, err);
    if (status != SKV_OK) {
        skv_free(h);
        return status;
    }
    *out = h;
    return SKV_OK;
}

void skv_draft_history_free(skv_draft_history *h)
{
    if (!h) return;
    skv_draft_index_free(h->index);
    skv_free(h);
}

size_t skv_draft_history_bytes(size_t max_tokens)
{
    return sizeof(skv_draft_history) + skv_draft_index_bytes(max_tokens);
}

/* The younger half of the tokens moves to the front. The rest of the answer that is cut becomes
 * one of its own. */
static void drop_older(skv_draft_history *h)
{
    size_t n;
    const int32_t *ids = skv_draft_index_ids(h->index, &n);
    const size_t first = n - n / 2;
    int32_t *kept = skv_alloc(n / 2 + 1, sizeof *kept);
    for (size_t i = first; kept && i < n; i++) kept[i - first] = ids[i];
    skv_draft_index_truncate(h->index, 0);
    for (size_t i = 0; kept && i < n - first; i++) skv_draft_index_put(h->index, kept[i]);
    skv_free(kept);
}

void skv_draft_history_add(skv_draft_history *h, const int32_t *ids, size_t n)
{
    const size_t most = h->max_tokens / 2 - 1;
    size_t n_before;
    if (n > most) {
        ids += n - most;
        n = most;
    }
    (void)skv_draft_index_ids(h->index, &n_before);
    if (n_before + n + 1 > h->max_tokens) drop_older(h);
    for (size_t i = 0; i < n; i++) skv_draft_index_put(h->index, ids[i]);
    skv_draft_index_put(h->index, END);
}

size_t skv_draft_history_find(const skv_draft_history *h, const int32_t *ids, size_t n,
                              const int32_t **out, size_t *n_out)
{
    size_t at = 0, end;
    const size_t n_match = skv_draft_index_find(h->index, ids, n, &at);
    const int32_t *all = skv_draft_index_ids(h->index, &end);
    *out = all + at;
    *n_out = 0;
    while (n_match > 0 && at + *n_out < end && all[at + *n_out] != END) ++*n_out;
    return *n_out > 0 ? n_match : 0;
}
