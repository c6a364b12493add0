/**
 * The arithmetic that an engine does, counted where it is done: every method of this library
 * reports through it, so what each saves can be compared.
 */
#ifndef SKV_WORK_H
#define SKV_WORK_H

#include <stdint.h>

#include "skv/api.h"

SKV_BEGIN

/*
 * Floating-point operations (a multiply-add is two) of products and attention; norms, rotation,
 * activations and sampling are left out. Attention counts the rows that are there and seen.
 */
typedef struct skv_work {
    double kv, q, o, mlp, attention;
    double vocabulary; /* heads, of an early exit too */
    double prediction; /* the linear maps of KV Prediction */
    double total;      /* of these */
    /* What the unmodified model takes for the same tokens: every layer for each of them, and the
     * head for those whose logits were wanted. */
    double model;
    uint64_t mlp_blocks, mlp_skipped; /* feed-forward blocks of a row that ran, and that were left
                                       * out; those of layers that a row never enters are neither */
    uint64_t exits_asked, exits;      /* rows that could leave early, and that did */
} skv_work;

/** What was done between two readings. */
SKV_API skv_work skv_work_since(const skv_work *now, const skv_work *before);

SKV_END

#endif
