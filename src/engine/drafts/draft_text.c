/*
 * Drafts from text that was seen: the longest match of the last tokens with what came before them,
 * in the prompt, in the answer or in earlier answers, and what followed it there (suffix decoding,
 * arXiv:2411.04975, with the latest match in place of a tree's most frequent one). Answers that
 * copy, edit or quote their prompt, and answers like those before them, get most of their tokens in
 * this way.
 */
#include "base/mem.h"
#include "base/size.h"
#include "drafts/draft.h"
#include "drafts/draft_index.h"
#include "engine/engine.h"

enum { FACTOR = 2 }; /* a draft is at most so many times as long as its match */

typedef struct text_state {
    skv_draft_index *own;             /* owned: the sequence's tokens but the last */
    const skv_draft_history *history; /* borrowed; NULL: none */
} text_state;

static void release(void *state)
{
    text_state *t = state;
    if (!t) return;
    skv_draft_index_free(t->own);
    skv_free(t);
}

static skv_status create(size_t max_tokens, void **state, skv_error *err)
{
    text_state *t = skv_alloc_zero(1, sizeof *t);
    SKV_REQUIRE(t, err, SKV_MEMORY, "drafts: no memory");
    const skv_status status = skv_draft_index_create(max_tokens, &t->own, err);
    if (status != SKV_OK) {
        release(t);
        return status;
    }
    *state = t;
    return SKV_OK;
}

/* The index has the places of ids [n]. The last token's own place is `n`, which is not among them:
 * nothing follows it yet. */
static void follow(skv_draft_index *own, const int32_t *ids, size_t n)
{
    size_t same = 0, n_before;
    const int32_t *before = skv_draft_index_ids(own, &n_before);
    while (same < n_before && same < n && before[same] == ids[same]) same++;
    skv_draft_index_truncate(own, same);
    for (size_t at = same; at < n; at++) skv_draft_index_put(own, ids[at]);
}

static size_t propose(void *state, const int32_t *ids, size_t n, int32_t *out, size_t most,
                      size_t *n_match)
{
    text_state *t = state;
    size_t at = 0;
    follow(t->own, ids, n);
    *n_match = skv_draft_index_find(t->own, ids, n, &at);
    if (t->history) {
        const int32_t *answer;
        size_t n_answer, n_same = skv_draft_history_find(t->history, ids, n, &answer, &n_answer);
        if (n_same > *n_match) {
            *n_match = n_same;
            most = skv_min_size(skv_min_size(most, FACTOR * n_same), n_answer);
            for (size_t i = 0; i < most; i++) out[i] = answer[i];
            return most;
        }
    }
    const size_t n_out = skv_min_size(most, FACTOR * *n_match);
    /* Text that repeats itself goes on with what is drafted. */
    for (size_t i = 0; i < n_out; i++) out[i] = at + i < n ? ids[at + i] : out[at + i - n];
    return n_out;
}

const skv_draft_method skv_draft_text = {
    .name = "text",
    .id = SKV_DRAFT_TEXT,
    .most = 12,
    .create = create,
    .free = release,
    .propose = propose,
};

void skv_sequence_set_history(skv_sequence *s, const skv_draft_history *history)
{
    const skv_drafter *d = s->drafter;
    if (d && d->text == &skv_draft_text) ((text_state *)d->state)->history = history;
}
