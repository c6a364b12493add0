/* Rows of logits, plainly: the specification. Compiled without fused multiply-adds. */
#include <math.h>

#include "kernels/logits.h"

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint64_t skv_logit_weight(const skv_logit_scale *s, float x)
{
    double t = ((double)x - (double)s->max) * s->factor;
    t = t > SKV_LOGIT_LOWEST ? t : SKV_LOGIT_LOWEST;
    const double rounded = t + SKV_LOGIT_ROUND; /* its low bits are n */
    const double f = t - (rounded - SKV_LOGIT_ROUND);
    const double f2 = f * f, f4 = f2 * f2, f8 = f4 * f4;
    const double p0 = (SKV_LOGIT_C3 * f + SKV_LOGIT_C2) * f2 + (SKV_LOGIT_C1 * f + SKV_LOGIT_C0);
    const double p4 = (SKV_LOGIT_C7 * f + SKV_LOGIT_C6) * f2 + (SKV_LOGIT_C5 * f + SKV_LOGIT_C4);
    const double p8 = SKV_LOGIT_C9 * f + SKV_LOGIT_C8;
    const double p = (p4 * f4 + p0) + p8 * f8;
    const double weight = of_bits(bits_of(p) + (bits_of(rounded) << SKV_LOGIT_POWER_BITS));
    return bits_of(weight + SKV_LOGIT_WHOLE) - bits_of(SKV_LOGIT_WHOLE);
}

uint32_t skv_logit_bucket(const skv_logit_scale *s, float x)
{
    const double last = SKV_LOGIT_BUCKETS - 1, at = ((double)s->high - (double)x) * s->per;
    return (uint32_t)(at < last ? at : last);
}

static bool is_inside(float x, float low, float high)
{
    return x >= low && x <= high;
}

static void maxima_ref(float *maxima, const float *x, size_t n)
{
    for (size_t b = 0; b < skv_logit_blocks(n); b++) maxima[b] = -HUGE_VALF;
    for (size_t i = 0; i < n; i++) {
        float *max = &maxima[i / SKV_LOGIT_BLOCK];
        if (x[i] > *max) *max = x[i];
    }
}

static void weigh_ref(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    for (size_t b = 0; b < skv_logit_blocks(row->n); b++) sums[b] = 0;
    for (size_t i = 0; i < row->n; i++) {
        const float x = row->x[i];
        if (is_inside(x, s->low, s->high)) sums[i / SKV_LOGIT_BLOCK] += skv_logit_weight(s, x);
    }
}

static void spread_ref(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    for (size_t i = 0; i < row->n; i++) {
        const float x = row->x[i];
        if (is_inside(x, s->low, s->high)) sums[skv_logit_bucket(s, x)] += skv_logit_weight(s, x);
    }
}

static size_t between_ref(uint32_t *ids, size_t most, const skv_logit_row *row, float low,
                          float high, size_t *i_block)
{
    size_t n = 0, b = *i_block;
    for (; b < skv_logit_blocks(row->n) && n + SKV_LOGIT_BLOCK <= most; b++) {
        const size_t end = skv_min_size((b + 1) * SKV_LOGIT_BLOCK, row->n);
        for (size_t i = b * SKV_LOGIT_BLOCK; i < end; i++) {
            if (is_inside(row->x[i], low, high)) ids[n++] = (uint32_t)i;
        }
    }
    *i_block = b;
    return n;
}

const skv_logit_kernels skv_logits_ref = {
    .maxima = maxima_ref,
    .weigh = weigh_ref,
    .spread = spread_ref,
    .between = between_ref,
};
