/*
 * Attention, plainly: the specification. One row of the cache after the other, online softmax
 * (Milakov and Gimelshein, arXiv:1805.02867) in double precision for each query head.
 */
#include <math.h>

#include "kernels/attention.h"
#include "kernels/kv_page.h"

enum { TOKENS = 16 }; /* tokens of a task: any number works as well as any other */

/* Scratch: k [Dh] and v [Dh] in f32, then for each head {o [Dh], m, l} in f64. */
static size_t tokens_ref(size_t n_group, size_t head_dim)
{
    (void)n_group;
    (void)head_dim;
    return TOKENS;
}

static size_t scratch_ref(size_t n_group, size_t head_dim)
{
    return 2 * head_dim * sizeof(float) + n_group * (head_dim + 2) * sizeof(double);
}

/* Takes one row into the running softmax state = {o [Dh], m, l} of one query head. */
static void take_row(const skv_attention *a, const float *q, const float *k, const float *v,
                     double *state)
{
    size_t Dh = a->head_dim;
    double s = 0.0;
    for (size_t i = 0; i < Dh; i++) s += (double)q[i] * (double)k[i];
    s *= (double)a->scale;
    if (a->softcap > 0.0f) s = (double)a->softcap * tanh(s / (double)a->softcap);

    double *m = state + Dh;
    double *l = state + Dh + 1;
    if (s > *m) {
        double shrink = exp(*m - s);
        for (size_t i = 0; i < Dh; i++) state[i] *= shrink;
        *l *= shrink;
        *m = s;
    }
    double p = exp(s - *m);
    for (size_t i = 0; i < Dh; i++) state[i] += p * (double)v[i];
    *l += p;
}

/* The softmax states of token j over the rows in [row0, row1) that it sees. */
static void run_rows(const skv_attention *a, size_t j, size_t row0, size_t row1, void *scratch)
{
    size_t Dh = a->head_dim;
    const float *q = a->q + (a->rows ? a->rows[j] : j) * a->ld_q;
    float *k = scratch;
    float *v = k + Dh;
    double *states = (double *)(v + Dh);
    size_t end = a->n_past + j + 1;
    size_t begin = a->window != 0 && end > a->window ? end - a->window : 0;
    if (row0 < begin) row0 = begin;
    if (row1 > end) row1 = end;

    for (size_t g = 0; g < a->n_group; g++) {
        double *state = states + g * (Dh + 2);
        for (size_t i = 0; i < Dh; i++) state[i] = 0.0;
        state[Dh] = -HUGE_VAL;
        state[Dh + 1] = 0.0;
    }
    for (size_t r = row0; r < row1; r++) {
        skv_kv_load_ref(a->pages[r / SKV_PAGE_ROWS], a->type, r % SKV_PAGE_ROWS, k, v, Dh);
        for (size_t g = 0; g < a->n_group; g++) {
            take_row(a, q + g * Dh, k, v, states + g * (Dh + 2));
        }
    }
}

static void attention_ref(const skv_attention *a, void *scratch)
{
    size_t Dh = a->head_dim;
    const double *states = (const double *)((const float *)scratch + 2 * Dh);
    for (size_t j = 0; j < a->n_q; j++) {
        run_rows(a, j, 0, a->n_past + j + 1, scratch);
        for (size_t g = 0; g < a->n_group; g++) {
            const double *state = states + g * (Dh + 2);
            float *out = a->out + j * a->ld_out + g * Dh;
            double l = state[Dh + 1] + (a->sinks ? exp((double)a->sinks[g] - state[Dh]) : 0.0);
            for (size_t i = 0; i < Dh; i++) out[i] = (float)(state[i] / l);
        }
    }
}

static void attention_part_ref(const skv_attention *a, size_t row0, size_t row1, float *partial,
                               void *scratch)
{
    const double *states = (const double *)((const float *)scratch + 2 * a->head_dim);
    for (size_t j = 0; j < a->n_q; j++, partial += a->ld_out) {
        run_rows(a, j, row0, row1, scratch);
        for (size_t i = 0; i < a->n_group * (a->head_dim + 2); i++) partial[i] = (float)states[i];
    }
}

void skv_attention_join_ref(const skv_attention *a, const float *partials, size_t ld,
                            size_t n_parts)
{
    size_t Dh = a->head_dim;
    for (size_t g = 0; g < a->n_group; g++) {
        const float *first = partials + g * (Dh + 2);
        float *out = a->out + g * Dh;
        float m = -HUGE_VALF;
        for (size_t i = 0; i < n_parts; i++) m = fmaxf(m, first[i * ld + Dh]);

        double l = a->sinks ? exp((double)a->sinks[g] - (double)m) : 0.0;
        for (size_t d = 0; d < Dh; d++) out[d] = 0.0f;
        for (size_t i = 0; i < n_parts; i++) {
            const float *part = first + i * ld;
            if (part[Dh + 1] <= 0.0f) continue; /* a portion that the token does not see */
            double w = exp((double)part[Dh] - (double)m);
            l += w * (double)part[Dh + 1];
            for (size_t d = 0; d < Dh; d++) out[d] += (float)(w * (double)part[d]);
        }
        for (size_t d = 0; d < Dh; d++) out[d] = (float)((double)out[d] / l);
    }
}

const skv_attention_kernels skv_attention_kernels_ref = {
    .kv_store = skv_kv_store_ref,
    .kv_load = skv_kv_load_ref,
    .tokens = tokens_ref,
    .scratch = scratch_ref,
    .attention = attention_ref,
    .part = attention_part_ref,
};
