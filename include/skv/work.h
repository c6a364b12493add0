/**
 * Counts of the arithmetic that an engine does. All methods use the same counters, so their savings
 * can be compared.
 */
#ifndef SKV_WORK_H
#define SKV_WORK_H

#include <stdint.h>

#include "skv/api.h"

SKV_BEGIN

/*
 * Floating-point operations of matrix products and attention; a multiply-add counts as two. Norms,
 * rotary embeddings, activations and sampling are not counted. Attention counts the rows that a
 * query attends to.
 */
typedef struct skv_work {
    double kv, q, o, mlp, attention;
    double vocabulary; /* output heads, including that of an early exit */
    double prediction; /* the linear maps of KV Prediction */
    double total;      /* the sum of these */
    /* The cost of the same tokens in the unmodified model: every layer for every token, and the
     * output head for tokens with requested logits. */
    double model;
    uint64_t mlp_blocks,
        mlp_skipped;             /* feed-forward blocks that ran and that were skipped, summed
                                  * over rows; layers that a row never enters count as neither */
    uint64_t exits_asked, exits; /* rows that could exit early, and those that did */
} skv_work;

/** Returns the difference of two readings. */
SKV_API skv_work skv_work_since(const skv_work *now, const skv_work *before);

SKV_END

#endif
