/* Rows of activations, plainly, in double precision: the specification. */
#include <math.h>
#include <stddef.h>

#include "kernels/bf16.h"
#include "kernels/rows.h"

static void rmsnorm_ref(float *y, const float *x, const float *w, float w_offset, float eps,
                        size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double inverse = 1.0 / sqrt(sum / (double)n + (double)eps);
    for (size_t i = 0; i < n; i++) {
        double weight = w ? (double)w[i] + (double)w_offset : 1.0;
        y[i] = (float)((double)x[i] * inverse * weight);
    }
}

static void rope_ref(float *x, const float *cos, const float *sin, size_t n_rot)
{
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i++) {
        double a = (double)x[i];
        double b = (double)x[i + half];
        x[i] = (float)(a * (double)cos[i] - b * (double)sin[i]);
        x[i + half] = (float)(b * (double)cos[i] + a * (double)sin[i]);
    }
}

static void silu_glu_ref(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = (double)gate[i];
        h[i] = (float)(x / (1.0 + exp(-x)) * (double)up[i]);
    }
}

/* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u): the right side keeps its digits where tanh is near -1. */
static void gelu_tanh_glu_ref(float *h, const float *gate, const float *up, size_t n)
{
    const double sqrt_2_over_pi = 0.79788456080286535588;
    for (size_t i = 0; i < n; i++) {
        double x = (double)gate[i];
        double u = sqrt_2_over_pi * (x + 0.044715 * x * x * x);
        h[i] = (float)(x / (1.0 + exp(-2.0 * u)) * (double)up[i]);
    }
}

static void sigmoid_glu_ref(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) h[i] = (float)((double)up[i] / (1.0 + exp(-(double)gate[i])));
}

static void axpy_ref(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
}

static void softcap_ref(float *x, float cap, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)cap * tanh((double)x[i] / (double)cap));
}

static float logsumexp_ref(const float *x, size_t n, size_t *i_max)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[best]) best = i;
    }
    if (i_max) *i_max = best;
    if (isinf(x[best])) return x[best]; /* all minus infinity, or an infinity that drowns all */
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)x[best]);
    return (float)((double)x[best] + log(sum));
}

static void add_exp_ref(float *y, const float *x, float shift, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (float)((double)y[i] + exp((double)x[i] - (double)shift));
    }
}

static void from_bf16_ref(float *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = skv_bf16_to_f32(x[i]);
}

static void to_bf16_ref(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = skv_f32_to_bf16(x[i]);
}

static float dot_ref(const float *x, const float *y, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return (float)sum;
}

const skv_row_kernels skv_rows_ref = {
    .rmsnorm = rmsnorm_ref,
    .rope = rope_ref,
    .silu_glu = silu_glu_ref,
    .gelu_tanh_glu = gelu_tanh_glu_ref,
    .sigmoid_glu = sigmoid_glu_ref,
    .axpy = axpy_ref,
    .softcap = softcap_ref,
    .logsumexp = logsumexp_ref,
    .add_exp = add_exp_ref,
    .from_bf16 = from_bf16_ref,
    .to_bf16 = to_bf16_ref,
    .dot = dot_ref,
};
