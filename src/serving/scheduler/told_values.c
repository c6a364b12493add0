/* Log-probabilities and vectors: see told_values.h. Sums of vectors are f64: the order of rows is
 * the prompt's, whatever chunks it came in. */
#include "scheduler/told_values.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"

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
