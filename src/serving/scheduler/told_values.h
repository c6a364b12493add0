/* The values that readers get of logits and hidden states: log-probabilities, and the vector of
 * a prompt. */
#ifndef SKV_SERVE_TOLD_VALUES_H
#define SKV_SERVE_TOLD_VALUES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/fail.h"
#include "engine/logit_look.h"
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

/* The values of a row of logits. */
typedef struct skv_row_values {
    double norm; /* log p(i) = logits[i] - norm */
    skv_token_prob top[SKV_JOB_TOP_MAX];
    size_t n_top;
} skv_row_values;

/** Of the row that the look is at, with its n_top most likely tokens, best first, equal ones by id.
 */
void skv_row_values_of(skv_look *look, size_t n_top, skv_row_values *out);

#endif
