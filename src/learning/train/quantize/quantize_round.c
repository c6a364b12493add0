/* Rows of floats as codes and scales: see quantizer.h. */
#include <math.h>

#include "base/float16.h"
#include "train/quantize/quantizer.h"

static float rounded_scale(const skv_rounding *r, float scale)
{
    return r->scale_type == SKV_DTYPE_BF16 ? skv_float_of_bf16(skv_bf16_of_float(scale))
                                           : skv_float_of_f16(skv_f16_of_float(scale));
}

int skv_round_code(const skv_rounding *r, float x, float scale)
{
    const float most = (float)(1 << (r->bits - 1));
    if (scale == 0.0F) return 0;
    return (int)fminf(fmaxf(rintf(x / scale), -most), most - 1.0F);
}

/* The squared error of a group x [n]. */
static float group_error(const skv_rounding *r, const float *x, const float *importance, size_t n,
                         float scale)
{
    float error = 0.0F;
    for (size_t k = 0; k < n; k++) {
        const float miss = (float)skv_round_code(r, x[k], scale) * scale - x[k];
        error += miss * miss * (importance ? importance[k] : 1.0F);
    }
    return error;
}

/* The element of largest magnitude. */
static float extreme(const float *x, size_t n)
{
    float most = 0.0F;
    for (size_t k = 0; k < n; k++) {
        if (fabsf(x[k]) > fabsf(most)) most = x[k];
    }
    return most;
}

/* The lowest code has the extreme's sign, since there is one more of them. Larger and smaller
 * scales trade the extreme's error for the error of the rest: at 8 bits there is nothing to win. */
static float best_scale(const skv_rounding *r, const float *x, const float *importance, size_t n)
{
    enum { N_TRIES = 13 };
    const float most = extreme(x, n);
    if (r->bits == 8) return rounded_scale(r, fabsf(most) / 127.0F);
    float chosen = 0.0F, best = INFINITY;
    for (int t = 0; t < N_TRIES; t++) {
        const float scale = rounded_scale(r, most / (-8.5F + 0.25F * (float)t));
        const float error = group_error(r, x, importance, n, scale);
        if (!(error < best)) continue;
        best = error;
        chosen = scale;
    }
    return chosen;
}

void skv_round_scales(const skv_rounding *r, const float *x, const float *importance, size_t K,
                      float *scales)
{
    for (size_t k = 0; k < K; k += r->group) {
        const float *counts = importance ? importance + k : NULL;
        scales[k / r->group] = best_scale(r, x + k, counts, r->group);
    }
}

void skv_round_row(const skv_rounding *r, const float *x, const float *scales, size_t K,
                   int8_t *codes)
{
    for (size_t k = 0; k < K; k++) {
        codes[k] = (int8_t)skv_round_code(r, x[k], scales[k / r->group]);
    }
}
