/* The values that readers get of logits and hidden states: log-probabilities, and the vector of
 * a prompt. */
#ifndef SKV_SERVE_TOLD_VALUES_H
#define SKV_SERVE_TOLD_VALUES_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/backend.h"
#include "base/fail.h"
#include "skv/serve.h"

/* The hidden states of a prompt on their way to one vector: their sum, and at the end that sum
 * divided by its length (a mean has the same direction). */
typedef struct skv_pooled {
    double *sum;   /* owned, [n] */
    float *vector; /* owned, [n] */
    size_t n;      /* D */
    size_t n_rows; /* added so far */
} skv_pooled;

SKV_MUST_CHECK skv_status skv_pooled_init(skv_pooled *pooled, size_t n, skv_error *err);
void skv_pooled_release(skv_pooled *pooled);
void skv_pooled_add(skv_pooled *pooled, const float *row);
/** Fills `vector`, of length 1; false: the rows were zeros or not finite. */
bool skv_pooled_finish(skv_pooled *pooled);

/** The likely token i of a picked row whose norm was wanted. */
static inline skv_token_prob skv_row_top(const skv_picked *picked, size_t i)
{
    return (skv_token_prob){picked->top[i].id, (double)picked->top[i].logit - picked->norm};
}

#endif
