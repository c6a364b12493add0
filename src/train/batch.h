/*
 * What a training step works on: tokens of one or more documents, packed one behind another, and
 * where such batches come from.
 */
#ifndef SKV_TRAIN_BATCH_H
#define SKV_TRAIN_BATCH_H

#include <stddef.h>
#include <stdint.h>

/* Everything is borrowed from whoever made the batch. */
typedef struct skv_train_batch {
    size_t n_tokens;
    const int32_t *ids;        /* [n_tokens] */
    const int32_t *targets;    /* [n_tokens]: the next token; -1: no loss here */
    const uint32_t *positions; /* [n_tokens]: restart with each document */
    const uint32_t *doc_start; /* [n_tokens]: index in the batch of its document's first token;
                                * token t attends to [doc_start[t], t] */
} skv_train_batch;

#endif
