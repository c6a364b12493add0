/* Rows of a training step, plainly: the specification. */
#include <math.h>

#include "kernels/train_rows.h"

static float max_ref(const float *x, size_t n)
{
    float most = -HUGE_VALF;
    for (size_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float exp_ref(float *x, float scale, float shift, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)exp((double)scale * (double)x[i] - (double)shift);
        sum += (double)x[i];
    }
    return (float)sum;
}

static void softmax_back_ref(float *ds, const float *p, float d, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) ds[i] = p[i] * (ds[i] - d) * scale;
}

static void silu_glu_back_ref(float *gate, float *up, const float *dh, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double x = (double)gate[i], s = 1.0 / (1.0 + exp(-x));
        double slope = s * (1.0 + x * (1.0 - s));
        gate[i] = (float)((double)dh[i] * (double)up[i] * slope);
        up[i] = (float)((double)dh[i] * x * s);
    }
}

static void rmsnorm_back_ref(float *dx, float *dw, const float *dy, const float *x, const float *w,
                             float eps, size_t n)
{
    double square = 0.0, dot = 0.0;
    for (size_t i = 0; i < n; i++) {
        square += (double)x[i] * (double)x[i];
        dot += (double)dy[i] * (double)w[i] * (double)x[i];
    }
    double r = 1.0 / sqrt(square / (double)n + (double)eps);
    double c = dot * r * r * r / (double)n;
    for (size_t i = 0; i < n; i++) {
        if (dw) dw[i] += (float)((double)dy[i] * (double)x[i] * r);
        dx[i] += (float)((double)dy[i] * (double)w[i] * r - (double)x[i] * c);
    }
}

static double kl_ref(float *zs, const float *zt, const skv_kl_row *row, size_t n)
{
    double sum = 0.0, inverse = (double)row->inverse_tau;
    for (size_t i = 0; i < n; i++) {
        double log_q = (double)zs[i] * inverse - (double)row->lse_s;
        double log_p = (double)zt[i] * inverse - (double)row->lse_t;
        double p = exp(log_p);
        sum += p * (log_p - log_q);
        zs[i] = (float)((double)row->gradient_scale * (exp(log_q) - p));
    }
    return sum;
}

static void adamw_ref(float *w, float *m, float *v, const float *g, const skv_adamw_row *row,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float gradient = g[i] * row->grad_scale;
        m[i] = row->beta1 * m[i] + (1.0f - row->beta1) * gradient;
        v[i] = row->beta2 * v[i] + (1.0f - row->beta2) * gradient * gradient;
        w[i] =
            w[i] * row->decay - row->step_size * m[i] / (sqrtf(v[i]) * row->root_scale + row->eps);
    }
}

static double square_sum_ref(const float *x, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

const skv_train_rows skv_train_rows_ref = {.max = max_ref,
                                           .exp = exp_ref,
                                           .softmax_back = softmax_back_ref,
                                           .silu_glu_back = silu_glu_back_ref,
                                           .rmsnorm_back = rmsnorm_back_ref,
                                           .kl = kl_ref,
                                           .adamw = adamw_ref,
                                           .square_sum = square_sum_ref};
