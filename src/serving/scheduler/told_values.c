/* Log-probabilities and vectors: see told_values.h. Sums are f64: the order of rows is the
 * prompt's, whatever chunks it came in. */
#include "scheduler/told_values.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "model/forward.h"

skv_status skv_pooled_init(skv_pooled *pooled, size_t n, skv_error *err)
{
    assert(n >= 1);
    *pooled = (skv_pooled){.n = n};
    pooled->sum = skv_alloc_zero(n, sizeof *pooled->sum);
    pooled->vector = skv_alloc_zero(n, sizeof *pooled->vector);
    if (pooled->sum && pooled->vector) return SKV_OK;
    skv_pooled_release(pooled);
    return skv_fail(err, SKV_MEMORY, "job: no memory for a vector of %zu", n);
}

void skv_pooled_release(skv_pooled *pooled)
{
    skv_free(pooled->sum);
    skv_free(pooled->vector);
    *pooled = (skv_pooled){0};
}

void skv_pooled_add(skv_pooled *pooled, const float *row)
{
    for (size_t i = 0; i < pooled->n; i++) pooled->sum[i] += (double)row[i];
    pooled->n_rows++;
}

bool skv_pooled_finish(skv_pooled *pooled)
{
    double square = 0;
    for (size_t i = 0; i < pooled->n; i++) square += pooled->sum[i] * pooled->sum[i];
    double length = sqrt(square);
    if (!isfinite(length) || length <= 0) return false;
    for (size_t i = 0; i < pooled->n; i++) pooled->vector[i] = (float)(pooled->sum[i] / length);
    return true;
}

double skv_logits_norm(const float *logits, size_t n)
{
    size_t best;
    double sum = skv_logits_sum(logits, n, &best);
    return (double)logits[best] + log(sum);
}

void skv_logits_top(const float *logits, size_t n, double norm, size_t n_top, skv_token_prob *top)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        double logprob = (double)logits[i] - norm;
        if (n_kept == n_top && (n_top == 0 || logprob <= top[n_top - 1].logprob)) continue;
        size_t at = n_kept < n_top ? n_kept++ : n_top - 1;
        for (; at > 0 && top[at - 1].logprob < logprob; at--) top[at] = top[at - 1];
        top[at] = (skv_token_prob){(int32_t)i, logprob};
    }
}
