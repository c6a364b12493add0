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
#include "skv/skv.h"

/* Rows behind what a sequence has seen that have run the layers below l. The keys and values of all
 * layers are in the cache: a step that begins with their tokens goes on at layer l. Whatever else
 * is done to the sequence forgets them. */
typedef struct skv_ready_rows {
    size_t n;
    float *x; /* [SKV_DRAFT_MAX + 1, D], owned: the residual stream at boundary l; NULL: none */
} skv_ready_rows;

typedef struct skv_draft_method {
    const char *name, *form, *about;
    skv_drafting id;
    size_t most; /* K, the default */
    double sure; /* P, the default; 0: it takes none */
    /* The state of a sequence of at most max_tokens tokens. */
    skv_status (*create)(size_t max_tokens, void **state, skv_error *err);
    void (*free)(void *state); /* NULL is allowed */
    /* Writes what may follow ids [n], at most `most` tokens, to out; returns how many. Between two
     * calls ids may have become longer, or shorter and different from some point on. */
    size_t (*propose)(void *state, const int32_t *ids, size_t n, int32_t *out, size_t most);
    /* In place of these three, where the model itself drafts: what may follow the tokens `next` of
     * sequences of this source and of one plan, which are their ids[n_seen]. Each has room for
     * 1 + most rows, most is 1 or more, and n is SKV_LOGIT_ROWS or less. */
    void (*run)(skv_draft_request *requests, size_t n);
    bool keeps_rows; /* skv_drafter.ready */
    /* In place of all of these: a source that proposes, and one that runs where it does not. */
    const struct skv_draft_method *first, *then;
} skv_draft_method;

extern const skv_draft_method skv_draft_text, skv_draft_self, skv_draft_aux;

/* What a sequence has of a source. */
typedef struct skv_drafter {
    const skv_draft_method *text, *model; /* one that proposes, and one that runs; NULL: none */
    skv_drafting last;                    /* whose the latest draft is */
    void *state;                          /* of `text`, owned */
    size_t most;                          /* K */
    double sure;                          /* P */
    size_t reach; /* tokens of the next text at most: more after one that was right */
    skv_ready_rows ready;
    skv_draft_counts counts[SKV_DRAFT_SOURCES];
} skv_drafter;

void skv_drafter_free(skv_drafter *drafter);

/** Whether a row of logits [n] gives its best one a probability of `sure` or more. */
bool skv_draft_is_sure(const float *logits, size_t n, size_t best, double sure);

/** How many ready rows a sequence has that are those of the tokens ids [n]: n or 0. */
size_t skv_sequence_ready(const skv_sequence *sequence, const int32_t *ids, size_t n);
/** Of its ready rows the first n stay, and the others are taken back; so is what an auxiliary has
 * read behind them. */
void skv_sequence_keep_ready(skv_sequence *sequence, size_t n);

#endif
