/*
 * Drafts: a table of sources, each a file of its own (draft_text.c), and what a sequence keeps of
 * its source. A source knows nothing of sampling: it proposes ids, and whoever runs the step judges
 * them (generate.c, the scheduler's advance.c).
 *
 * A step over the next token and K drafted ones is a span that wants SKV_WANT_DRAFTED: its rows
 * give the bits that single steps would give (skv_attention_item.follows), and the sequence is
 * truncated behind the last token that was right. So a draft never takes back more than K rows.
 */
#ifndef SKV_ENGINE_DRAFT_H
#define SKV_ENGINE_DRAFT_H

#include "base/fail.h"
#include "skv/speculation.h"

typedef struct skv_draft_method {
    const char *name, *form, *about;
    skv_drafting id;
    size_t most; /* K, the default */
    /* The state of a sequence of at most max_tokens tokens. */
    skv_status (*create)(size_t max_tokens, void **state, skv_error *err);
    void (*free)(void *state); /* NULL is allowed */
    /* Writes what may follow ids [n], at most `most` tokens, to out; returns how many. Between two
     * calls ids may have become longer, or shorter and different from some point on. */
    size_t (*propose)(void *state, const int32_t *ids, size_t n, int32_t *out, size_t most);
} skv_draft_method;

extern const skv_draft_method skv_draft_text;

/* What a sequence has of a source. */
typedef struct skv_drafter {
    const skv_draft_method *method;
    void *state;  /* owned */
    size_t most;  /* K */
    size_t reach; /* tokens of the next draft at most: more after one that was right */
    skv_draft_counts counts;
} skv_drafter;

void skv_drafter_free(skv_drafter *drafter);

#endif
