/* Operations of a training step over rows, dealt out to the threads in fixed portions. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

enum { CHUNK = 1 << 14 /* floats of a portion, about */ };

/* The arguments of whichever operation runs. */
typedef struct job {
    skv_net *net;
    float *y, *z;
    const float *x, *u, *w;
    const skv_param *param;
    size_t n_rows, n, rows_a_task;
    size_t i_rope, n_heads;
    bool back;
} job;

static void run(job *j, skv_task_fn *fn)
{
    j->rows_a_task = skv_max_size(1, CHUNK / skv_max_size(1, j->n));
    skv_pool_run(j->net->pool, skv_ceil_div(j->n_rows, j->rows_a_task), fn, j);
}

static size_t last_row(const job *j, size_t i_task)
{
    return skv_min_size(j->n_rows, (i_task + 1) * j->rows_a_task);
}

/* ---- elementwise ---- */

static void copy_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    size_t row = i_task * j->rows_a_task, n = last_row(j, i_task) - row;
    (void)i_thread;
    memcpy(j->y + row * j->n, j->x + row * j->n, n * j->n * sizeof *j->y);
}

void skv_net_copy(skv_net *net, float *y, const float *x, size_t n)
{
    job j = {.net = net, .y = y, .x = x, .n_rows = skv_ceil_div(n, CHUNK), .n = CHUNK};
    if (n % CHUNK != 0) j.n_rows--;
    run(&j, copy_rows);
    memcpy(y + j.n_rows * CHUNK, x + j.n_rows * CHUNK, (n - j.n_rows * CHUNK) * sizeof *y);
}

static void glu_chunk(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    size_t at = i_task * CHUNK, n = skv_min_size(CHUNK, j->n - at);
    (void)i_thread;
    j->net->kernels.silu_glu(j->y + at, j->x + at, j->u + at, n);
}

void skv_net_silu_glu(skv_net *net, float *h, const float *gate, const float *up, size_t n)
{
    job j = {.net = net, .y = h, .x = gate, .u = up, .n = n};
    skv_pool_run(net->pool, skv_ceil_div(n, CHUNK), glu_chunk, &j);
}

static void glu_back_chunk(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    size_t at = i_task * CHUNK, n = skv_min_size(CHUNK, j->n - at);
    (void)i_thread;
    j->net->rows.silu_glu_back(j->y + at, j->z + at, j->x + at, n);
}

void skv_net_silu_glu_back(skv_net *net, float *gate, float *up, const float *dh, size_t n)
{
    job j = {.net = net, .y = gate, .z = up, .x = dh, .n = n};
    skv_pool_run(net->pool, skv_ceil_div(n, CHUNK), glu_back_chunk, &j);
}

/* ---- the gate of attention's output ---- */

static void gate_chunk(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const size_t at = i_task * CHUNK, n = skv_min_size(CHUNK, j->n - at);
    (void)i_thread;
    j->net->kernels.sigmoid_glu(j->y + at, j->x + at, j->u + at, n);
}

void skv_net_gate(skv_net *net, float *y, const float *o, const float *z, size_t n)
{
    job j = {.net = net, .y = y, .x = z, .u = o, .n = n};
    skv_pool_run(net->pool, skv_ceil_div(n, CHUNK), gate_chunk, &j);
}

static void gate_back_chunk(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const size_t at = i_task * CHUNK, end = skv_min_size(j->n, at + CHUNK);
    (void)i_thread;
    for (size_t i = at; i < end; i++) {
        const float open = 1.0f / (1.0f + expf(-j->z[i]));
        j->y[i] = j->x[i] * open;
        j->z[i] = j->x[i] * j->u[i] * open * (1.0f - open);
    }
}

void skv_net_gate_back(skv_net *net, float *d_o, float *z, const float *dy, const float *o,
                       size_t n)
{
    job j = {.net = net, .y = d_o, .z = z, .x = dy, .u = o, .n = n};
    skv_pool_run(net->pool, skv_ceil_div(n, CHUNK), gate_back_chunk, &j);
}

/* ---- norms ---- */

static void norm_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    float eps = (float)j->net->config->norm_eps;
    (void)i_thread;
    for (size_t i = i_task * j->rows_a_task; i < last_row(j, i_task); i++) {
        j->net->kernels.rmsnorm(j->y + i * j->n, j->x + i * j->n, j->w, 0.0f, eps, j->n);
    }
}

void skv_net_norm(skv_net *net, float *y, const float *x, const float *w, size_t n_rows, size_t n)
{
    job j = {.net = net, .y = y, .x = x, .w = w, .n_rows = n_rows, .n = n};
    run(&j, norm_rows);
}

static void set_parts(job *j)
{
    size_t parts = skv_min_size(SKV_NET_PARTS, skv_ceil_div(j->n_rows, 16));
    j->rows_a_task = skv_ceil_div(j->n_rows, parts);
}

static void norm_back_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    float eps = (float)j->net->config->norm_eps;
    float *dw = j->param->grad ? j->net->partial + i_task * j->n : NULL;
    (void)i_thread;
    if (dw) memset(dw, 0, j->n * sizeof *dw);
    for (size_t i = i_task * j->rows_a_task; i < last_row(j, i_task); i++) {
        j->net->rows.rmsnorm_back(j->y + i * j->n, dw, j->u + i * j->n, j->x + i * j->n,
                                  j->param->w, eps, j->n);
    }
}

static void add_parts(const job *j, float *grad)
{
    size_t n_parts = skv_ceil_div(j->n_rows, j->rows_a_task);
    for (size_t i = 0; i < n_parts; i++) {
        j->net->kernels.axpy(grad, 1.0f, j->net->partial + i * j->n, j->n);
    }
}

void skv_net_norm_back(skv_net *net, float *dx, const float *dy, const float *x, const skv_param *w,
                       size_t n_rows, size_t n)
{
    job j = {.net = net, .y = dx, .u = dy, .x = x, .param = w, .n_rows = n_rows, .n = n};
    set_parts(&j);
    skv_pool_run(net->pool, skv_ceil_div(n_rows, j.rows_a_task), norm_back_rows, &j);
    if (w->grad) add_parts(&j, w->grad);
}

static void sum_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    float *sum = j->net->partial + i_task * j->n;
    (void)i_thread;
    memset(sum, 0, j->n * sizeof *sum);
    for (size_t i = i_task * j->rows_a_task; i < last_row(j, i_task); i++) {
        j->net->kernels.axpy(sum, 1.0f, j->x + i * j->n, j->n);
    }
}

void skv_net_bias_back(skv_net *net, skv_param *bias, const float *dy, size_t n_rows)
{
    job j = {.net = net, .x = dy, .n_rows = n_rows, .n = bias->n_columns};
    set_parts(&j);
    skv_pool_run(net->pool, skv_ceil_div(n_rows, j.rows_a_task), sum_rows, &j);
    add_parts(&j, bias->grad);
}

/* ---- rotation ---- */

static void rotate_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    skv_net *net = j->net;
    size_t half = net->ropes[j->i_rope].n, Dh = net->config->head_dim;
    float minus[SKV_HEAD_DIM_MAX];
    (void)i_thread;
    for (size_t t = i_task * j->rows_a_task; t < last_row(j, i_task); t++) {
        const float *sin = net->sin[j->i_rope] + t * half;
        if (j->back) { /* the inverse rotation is the one by the negative angle */
            for (size_t i = 0; i < half; i++) minus[i] = -sin[i];
            sin = minus;
        }
        for (size_t h = 0; h < j->n_heads; h++) {
            net->kernels.rope(j->y + t * j->n + h * Dh, net->cos[j->i_rope] + t * half, sin,
                              2 * half);
        }
    }
}

void skv_net_rotate(skv_net *net, float *x, size_t n_tokens, size_t n_heads, size_t i_rope,
                    bool back)
{
    job j = {.net = net,
             .y = x,
             .n_rows = n_tokens,
             .n = n_heads * net->config->head_dim,
             .n_heads = n_heads,
             .i_rope = i_rope,
             .back = back};
    run(&j, rotate_rows);
}

/* ---- before a batch ---- */

static void set_angles(skv_net *net, const skv_train_batch *b)
{
    for (size_t i = 0; i < 2; i++) {
        size_t n = net->ropes[i].n;
        for (size_t t = 0; t < b->n_tokens; t++) {
            skv_rope_angles(&net->ropes[i], b->positions[t], net->config->context,
                            net->cos[i] + t * n, net->sin[i] + t * n);
        }
    }
}

void skv_net_begin(skv_net *net, const skv_train_batch *batch)
{
    set_angles(net, batch);
    skv_net_segments(net, batch);
}
