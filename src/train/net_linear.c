/* Products with weights, forward and backward. */
#include "train/net_impl.h"

static const float *values(const net_pass *p, const skv_param *param)
{
    return p->teacher ? param->teacher : param->w;
}

bool net_linear_trained(const net_linear *l)
{
    return l->w && (l->w->grad || (l->bias && l->bias->grad));
}

typedef struct bias_job {
    const net_pass *p;
    float *y;
    const float *bias;
    size_t n;
} bias_job;

enum { BIAS_ROWS = 32 };

static void add_bias(void *arg, size_t i_task, size_t i_thread)
{
    const bias_job *j = arg;
    size_t T = j->p->batch->n_tokens, end = (i_task + 1) * BIAS_ROWS;
    (void)i_thread;
    for (size_t t = i_task * BIAS_ROWS; t < T && t < end; t++) {
        j->p->net->kernels.axpy(j->y + t * j->n, 1.0f, j->bias, j->n);
    }
}

void net_mul(const net_pass *p, float *y, const float *x, const net_linear *l, bool add)
{
    size_t T = p->batch->n_tokens, N = l->w->n_rows, K = l->w->n_columns;
    skv_gemm_run(p->net->gemm, &(skv_gemm_args){.c = y,
                                                .ldc = N,
                                                .a = x,
                                                .lda = K,
                                                .b = values(p, l->w),
                                                .ldb = K,
                                                .M = T,
                                                .N = N,
                                                .K = K,
                                                .b_t = true,
                                                .add = add});
    if (!l->bias) return;
    bias_job j = {p, y, values(p, l->bias), N};
    net_parallel(p->net, (T + BIAS_ROWS - 1) / BIAS_ROWS, add_bias, &j);
}

void net_mul_back(const net_pass *p, float *dx, const float *dy, const net_linear *l, bool add)
{
    size_t N = l->w->n_rows, K = l->w->n_columns;
    skv_gemm_run(p->net->gemm, &(skv_gemm_args){.c = dx,
                                                .ldc = K,
                                                .a = dy,
                                                .lda = N,
                                                .b = l->w->w,
                                                .ldb = K,
                                                .M = p->batch->n_tokens,
                                                .N = K,
                                                .K = N,
                                                .add = add});
}

void net_mul_grad(const net_pass *p, const float *dy, const float *x, const net_linear *l)
{
    size_t T = p->batch->n_tokens, N = l->w->n_rows, K = l->w->n_columns;
    if (l->w->grad) {
        skv_gemm_run(p->net->gemm, &(skv_gemm_args){.c = l->w->grad,
                                                    .ldc = K,
                                                    .a = dy,
                                                    .lda = N,
                                                    .b = x,
                                                    .ldb = K,
                                                    .M = N,
                                                    .N = K,
                                                    .K = T,
                                                    .a_t = true,
                                                    .add = true});
    }
    if (l->bias && l->bias->grad) net_bias_back(p->net, l->bias, dy, T);
}
