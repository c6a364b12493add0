/*
 * The losses at the head. Positions that have a loss are gathered into tiles of rows, so that the
 * logits of a whole batch never exist at once and positions without a loss cost nothing.
 *
 *     lm:  sum -log softmax(z)[target]                gradient  softmax(z) - onehot
 *     kl:  tau^2 sum p (log p - log q)                gradient  tau (q - p)
 *          p = softmax(z_teacher / tau), q = softmax(z / tau)
 *
 * An early exit (arXiv:2410.03960, B.4) is a second head with the same loss, on norm_swiftkv(x_l):
 * the answer of a model that stops at layer l.
 */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

enum { EXIT_SAMPLE = 16 /* the exit's probability is examined in one of this many rows */ };

/* A head with a loss. */
typedef struct lossy_head {
    const skv_net_linear *linear;
    const float *x;   /* [T, D]: its input */
    float *dx;        /* [T, D] */
    double *row_loss; /* [T] */
    bool exit;
} lossy_head;

typedef struct loss_job {
    const skv_net_pass *p;
    const uint32_t *list; /* positions of the tile */
    size_t n;
    float *to;         /* gathered rows */
    const float *from; /* [T, D] */
    float scale;       /* of gathered rows */
    const lossy_head *head;
    double positions; /* the denominator of the sum */
    bool backward;
} loss_job;

static void gather_row(void *arg, size_t i, size_t i_thread)
{
    const loss_job *j = arg;
    size_t D = j->p->net->config->hidden;
    const float *x = j->from + (size_t)j->list[i] * D;
    (void)i_thread;
    for (size_t d = 0; d < D; d++) j->to[i * D + d] = x[d] * j->scale;
}

static void gather(loss_job *j, float *to, const float *from, float scale)
{
    j->to = to;
    j->from = from;
    j->scale = scale;
    skv_pool_run(j->p->net->pool, j->n, gather_row, j);
}

static void scatter_row(void *arg, size_t i, size_t i_thread)
{
    const loss_job *j = arg;
    size_t D = j->p->net->config->hidden;
    (void)i_thread;
    memcpy(j->head->dx + (size_t)j->list[i] * D, j->to + i * D, D * sizeof(float));
}

/* Does the exit agree with the final logits, and how sure is it? z are logits / tau. */
static void note_exit(const loss_job *j, size_t i, const float *z, size_t top)
{
    const skv_net *net = j->p->net;
    size_t V = net->config->vocab, t = j->list[i];
    if (!net->options.early_exit) return;
    if (!j->head->exit) {
        net->top[t] = (uint32_t)top;
        net->exit_seen[t] = 0;
        return;
    }
    if (i % EXIT_SAMPLE != 0) return;
    float tau = net->options.loss == SKV_LOSS_KL ? (float)net->options.tau : 1.0f, sum = 0.0f;
    for (size_t v = 0; v < V; v++) sum += expf(tau * (z[v] - z[top]));
    size_t bin = (size_t)((double)SKV_TRAIN_EXIT_BINS / (double)sum);
    if (bin >= SKV_TRAIN_EXIT_BINS) bin = SKV_TRAIN_EXIT_BINS - 1;
    net->exit_seen[t] = (uint32_t)(1 + 2 * bin + (top == net->top[t]));
}

static void lm_row(void *arg, size_t i, size_t i_thread)
{
    const loss_job *j = arg;
    const skv_net *net = j->p->net;
    size_t V = net->config->vocab, t = j->list[i];
    float *z = net->logits + i * V;
    int32_t target = j->p->batch->targets[t];
    size_t top;
    float lse = net->kernels.logsumexp(z, V, &top);
    (void)i_thread;
    note_exit(j, i, z, top);
    j->head->row_loss[t] = (double)lse - (double)z[target];
    if (!j->backward) return;
    (void)net->rows.exp(z, 1.0f, lse + (float)log(j->positions), V);
    z[target] -= (float)(1.0 / j->positions);
}

static void kl_row(void *arg, size_t i, size_t i_thread)
{
    const loss_job *j = arg;
    const skv_net *net = j->p->net;
    size_t V = net->config->vocab, top;
    float *z = net->logits + i * V, *zt = net->logits_t + i * V;
    double tau = net->options.tau;
    skv_kl_row row = {.inverse_tau = 1.0f, /* the rows of the tile were divided by tau */
                      .lse_s = net->kernels.logsumexp(z, V, &top),
                      .lse_t = net->kernels.logsumexp(zt, V, NULL),
                      .gradient_scale = (float)(tau / j->positions)};
    (void)i_thread;
    note_exit(j, i, z, top);
    j->head->row_loss[j->list[i]] = tau * tau * net->rows.kl(z, zt, &row, V);
}

static void multiply(const skv_net_pass *p, float *logits, const float *tile,
                     const skv_net_linear *head, size_t n)
{
    size_t V = p->net->config->vocab, D = p->net->config->hidden;
    skv_gemm_run(p->net->gemm,
                 &(skv_gemm_args){.c = logits,
                                  .ldc = V,
                                  .a = tile,
                                  .lda = D,
                                  .b = logits == p->net->logits_t ? head->w->teacher : head->w->w,
                                  .ldb = D,
                                  .M = n,
                                  .N = V,
                                  .K = D,
                                  .b_t = true,
                                  .packed = head->forward.panels ? &head->forward : NULL});
}

/* From the gradient of the logits, computes that of the rows and, if it is trained, of the head. */
static void back_tile(loss_job *j)
{
    skv_net *net = j->p->net;
    const skv_net_linear *head = j->head->linear;
    size_t V = net->config->vocab, D = net->config->hidden;
    skv_gemm_args g = {.c = net->tile_t,
                       .ldc = D,
                       .a = net->logits,
                       .lda = V,
                       .b = head->w->w,
                       .ldb = D,
                       .M = j->n,
                       .N = D,
                       .K = V,
                       .packed = head->back.panels ? &head->back : NULL};
    skv_gemm_run(net->gemm, &g);
    j->to = net->tile_t;
    skv_pool_run(net->pool, j->n, scatter_row, j);
    if (!head->w->grad) return;
    gather(j, net->tile, j->head->x, 1.0f);
    g = (skv_gemm_args){.c = head->w->grad,
                        .ldc = D,
                        .a = net->logits,
                        .lda = V,
                        .b = net->tile,
                        .ldb = D,
                        .M = V,
                        .N = D,
                        .K = j->n,
                        .a_t = true,
                        .add = true};
    skv_gemm_run(net->gemm, &g);
}

/* The tile at each of the heads, against one tile of the teacher's logits. */
static void run_tile(loss_job *j, const lossy_head *heads, size_t n_heads)
{
    skv_net *net = j->p->net;
    bool kl = net->options.loss == SKV_LOSS_KL;
    float scale = kl ? (float)(1.0 / net->options.tau) : 1.0f;
    if (kl) {
        gather(j, net->tile_t, net->final_t, scale);
        multiply(j->p, net->logits_t, net->tile_t, &net->head, j->n);
    }
    for (size_t i = 0; i < n_heads; i++) {
        j->head = &heads[i];
        gather(j, net->tile, heads[i].x, scale);
        multiply(j->p, net->logits, net->tile, heads[i].linear, j->n);
        skv_pool_run(net->pool, j->n, kl ? kl_row : lm_row, j);
        if (j->backward) back_tile(j);
    }
}

static void add_exits(const skv_net *net, size_t n, skv_net_sums *sums)
{
    for (size_t i = 0; net->options.early_exit && i < n; i++) {
        size_t t = net->loss_list[i], seen = net->exit_seen[t];
        sums->exit += net->exit_loss[t];
        if (seen == 0) continue;
        sums->exit_seen[(seen - 1) / 2] += 1;
        sums->exit_agreed[(seen - 1) / 2] += (double)((seen - 1) % 2);
    }
}

static double squared_distance(const float *x, const float *y, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)y[i];
        sum += d * d;
    }
    return sum;
}

void skv_net_loss(const skv_net_pass *p, const skv_net_scale *scale, bool backward,
                  skv_net_sums *sums)
{
    skv_net *net = p->net;
    size_t T = p->batch->n_tokens, D = net->config->hidden, n = 0;
    for (size_t t = 0; t < T; t++) {
        if (p->batch->targets[t] >= 0) net->loss_list[n++] = (uint32_t)t;
    }
    *sums = (skv_net_sums){.n_loss = n};
    if (backward) memset(net->dx, 0, T * D * sizeof(float));
    if (backward) memset(net->dswift, 0, T * D * sizeof(float));
    const lossy_head heads[] = {{&net->head, net->final, net->dx, net->row_loss, false},
                                {&net->exit, net->swift, net->dswift, net->exit_loss, true}};
    for (size_t at = 0; at < n; at += net->loss_rows) {
        loss_job j = {.p = p,
                      .list = net->loss_list + at,
                      .n = skv_min_size(net->loss_rows, n - at),
                      .positions = scale->positions,
                      .backward = backward};
        run_tile(&j, heads, net->options.early_exit ? 2 : 1);
    }
    add_exits(net, n, sums);
    for (size_t i = 0; i < n; i++) sums->loss += net->row_loss[net->loss_list[i]];
    size_t L = net->config->n_layers;
    if (net->options.hidden_mult > 0 && net->layers[L - 1].keep) {
        sums->hidden = squared_distance(net->layers[L - 1].kept.x, net->hidden_t, T * D);
    }
}
