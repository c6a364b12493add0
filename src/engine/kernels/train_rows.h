/*
 * Row operations of a training step, which the forward table lacks. Same rules as kernels.h: pure
 * functions on raw pointers, one table, ref/ is the specification.
 */
#ifndef SKV_KERNELS_TRAIN_ROWS_H
#define SKV_KERNELS_TRAIN_ROWS_H

#include "kernels/kernels.h"

/* Kullback-Leibler divergence of one row of logits at a temperature. */
typedef struct skv_kl_row {
    float inverse_tau;    /* 1 / tau */
    float lse_s, lse_t;   /* log sum exp of z / tau, of student and teacher */
    float gradient_scale; /* the gradient is gradient_scale * (q - p) */
} skv_kl_row;

/* One step of AdamW; the corrections of the moments are in `lr` and `eps_scale`. */
typedef struct skv_adamw_row {
    float beta1, beta2;
    float step_size;  /* lr / (1 - beta1^t) */
    float root_scale; /* 1 / sqrt(1 - beta2^t) */
    float eps, decay; /* w *= decay first: 1 - lr * weight_decay */
    float grad_scale; /* of clipping */
} skv_adamw_row;

typedef struct skv_train_rows {
    float (*max)(const float *x, size_t n);
    /* x[i] = exp(scale * x[i] - shift); returns their sum. */
    float (*exp)(float *x, float scale, float shift, size_t n);
    /* ds[i] = p[i] * (ds[i] - d) * scale. */
    void (*softmax_back)(float *ds, const float *p, float d, float scale, size_t n);
    /* h = silu(gate) * up: gate and up become their gradients, given that of h. */
    void (*silu_glu_back)(float *gate, float *up, const float *dh, size_t n);
    /* y = x / rms(x) * w: dx[i] += the gradient of x, dw[i] (NULL: not wanted) += that of w. */
    void (*rmsnorm_back)(float *dx, float *dw, const float *dy, const float *x, const float *w,
                         float eps, size_t n);
    /* Returns sum p (log p - log q) and leaves the gradient in zs. */
    double (*kl)(float *zs, const float *zt, const skv_kl_row *row, size_t n);
    void (*adamw)(float *w, float *m, float *v, const float *g, const skv_adamw_row *row, size_t n);
    double (*square_sum)(const float *x, size_t n);
} skv_train_rows;

/** As skv_kernels_init. */
void skv_train_rows_init(skv_train_rows *k, skv_cpu_level level, unsigned features);

/* The specification, in every build. */
extern const skv_train_rows skv_train_rows_ref;
/* x86-64 builds only; AArch64 builds only. */
extern const skv_train_rows skv_train_rows_avx2, skv_train_rows_avx512;
extern const skv_train_rows skv_train_rows_neon;

#endif
