/*
 * What a training step works on: tokens of one or more documents, packed one behind another, and
 * where such batches come from.
 */
#ifndef SKV_DATA_BATCH_H
#define SKV_DATA_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* Everything is borrowed from whoever made the batch. */
typedef struct skv_train_batch {
    size_t n_tokens;
    const int32_t *ids;        /* [n_tokens] */
    const int32_t *targets;    /* [n_tokens]: the next token; -1: no loss here */
    const uint32_t *positions; /* [n_tokens]: restart with each document */
    const uint32_t *doc_start; /* [n_tokens]: index in the batch of its document's first token;
                                * token t attends to [doc_start[t], t] */
} skv_train_batch;

enum { SKV_BATCH_STATE_WORDS = 16 };

/* Where batches come from. What follows depends on nothing but the seed the source was made with
 * and its state, so that a run can be continued. */
typedef struct skv_batch_source {
    void *ctx;
    /* The next batch; it stays valid until the next call. A source repeats its data for ever. */
    skv_status (*next)(void *ctx, skv_train_batch *batch, skv_error *err);
    /* Cursor and random state, unused words zero. */
    void (*save)(const void *ctx, uint64_t state[SKV_BATCH_STATE_WORDS]);
    skv_status (*restore)(void *ctx, const uint64_t state[SKV_BATCH_STATE_WORDS], skv_error *err);
} skv_batch_source;

#endif
