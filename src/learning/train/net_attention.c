/*
 * Attention over packed documents, forward and backward, never holding more than a tile of scores
 * (the scheme of FlashAttention, arXiv:2205.14135): forward keeps the logarithm of each row's sum
 * of exponentials, backward recomputes the tiles from it.
 *
 *     P = exp(scale Q K^T - lse)        O = P V            delta = rowsum(dO * O)
 *     dV = P^T dO     dP = dO V^T       dS = P * (dP - delta) * scale
 *     dQ = dS K       dK = dS^T Q
 *
 * Keys come from one or two origins: the pass's own rows, preceded by predicted rows
 * (skv_net_foreign). One softmax spans both; each step below handles the origins in turn.
 *
 * A forward task is one head and one tile of queries. A backward task is one head and one run of
 * whole documents, so that no two tasks add to the same row of dK or dV; the heads of a group are
 * summed afterwards in order.
 */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

enum {
    TILE_Q = 64,      /* queries of a tile */
    TILE_K = 128,     /* keys of a tile */
    SEGMENT_MIN = 128 /* tokens of a run of documents, at least */
};

size_t skv_net_attention_tile_floats(void)
{
    return 2 * TILE_Q * TILE_K + 2 * TILE_Q;
}

void skv_net_segments(skv_net *net, const skv_train_batch *batch)
{
    size_t n = 0, T = batch->n_tokens;
    for (size_t t = 0; t < T; t++) {
        if (batch->doc_start[t] != t) continue;
        if (n == 0 || t - net->segments[n - 1] >= SEGMENT_MIN) net->segments[n++] = (uint32_t)t;
    }
    net->segments[n] = (uint32_t)T;
    net->n_segments = n;
}

/* Keys and values of one origin, and their gradients for each query head. */
typedef struct key_rows {
    const float *k, *v;         /* [n, Hk Dh] */
    float *dk, *dv;             /* [n, Hk Dh] */
    float *dk_heads, *dv_heads; /* [n, H Dh] */
    size_t n;
    const skv_net_foreign *foreign; /* they are its predicted rows; NULL: the pass's own */
} key_rows;

typedef struct attention {
    const skv_net_pass *p;
    const skv_net_kept *a;
    key_rows rows[2];
    size_t n_origins;
    size_t Dh, n_heads, n_group, ldq, ldkv, window;
    float scale;
    size_t n_tiles; /* of queries, forward */
} attention;

static attention describe(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    const skv_config *c = p->net->config;
    const skv_layer_shape *shape = &c->layers[i];
    skv_net *net = p->net;
    const skv_net_foreign *f = p->foreign;
    attention s = {.p = p,
                   .a = a,
                   .Dh = c->head_dim,
                   .n_heads = shape->n_heads,
                   .n_group = shape->n_heads / shape->n_kv_heads,
                   .ldq = shape->n_heads * c->head_dim,
                   .ldkv = shape->n_kv_heads * c->head_dim,
                   .window = shape->window,
                   .scale = (float)c->attention_scale,
                   .n_tiles = skv_ceil_div(p->batch->n_tokens, TILE_Q)};
    if (f) {
        const skv_net_foreign_kv *l = &f->layers[i];
        s.rows[s.n_origins++] =
            (key_rows){l->k, l->v, l->dk, l->dv, f->dk_heads, f->dv_heads, f->all->n_tokens, f};
    }
    if (!f || f->answers) {
        s.rows[s.n_origins++] = (key_rows){
            a->k, a->v, net->dk, net->dv, net->dk_heads, net->dv_heads, p->batch->n_tokens, NULL};
    }
    return s;
}

/* Token t sees keys [first, end) of an origin, or none where end <= first; both grow with t. */
static size_t first_key(const attention *s, const key_rows *r, size_t t)
{
    const skv_net_foreign *f = s->p->foreign;
    size_t at = r->foreign ? f->row[t] : t;
    size_t first = r->foreign ? f->all->doc_start[at] : f ? f->own[t] : s->p->batch->doc_start[t];
    if (s->window > 0 && at + 1 > s->window) first = skv_max_size(first, at + 1 - s->window);
    return first;
}

static size_t end_key(const key_rows *r, size_t t)
{
    return r->foreign ? r->foreign->end[t] : t + 1;
}

/* Keys [k0, k1) that token t sees, as columns of the tile; false when it sees none of them. */
static bool visible(const attention *s, const key_rows *r, size_t t, size_t k0, size_t k1,
                    size_t *from, size_t *to)
{
    size_t first = skv_max_size(first_key(s, r, t), k0), end = skv_min_size(end_key(r, t), k1);
    if (first >= end) return false;
    *from = first - k0;
    *to = end - k0;
    return true;
}

static float *tiles_of(const attention *s, size_t i_thread)
{
    return s->p->net->attention_tiles + i_thread * skv_net_attention_tile_floats();
}

/* c [m, n] (+)= a [m, Dh] b [n, Dh]^T. */
static void scores(const attention *s, float *c, const float *q, const float *k, size_t m, size_t n,
                   size_t i_thread)
{
    skv_gemm_serial(s->p->net->gemm,
                    &(skv_gemm_args){.c = c,
                                     .ldc = TILE_K,
                                     .a = q,
                                     .lda = s->ldq,
                                     .b = k,
                                     .ldb = s->ldkv,
                                     .M = m,
                                     .N = n,
                                     .K = s->Dh,
                                     .b_t = true},
                    i_thread);
}

/* ---- forward ---- */

/* Turns one row of scores into weights, and rescales the row's sums so far. */
static void softmax_row(const attention *s, float *row, size_t n, size_t from, size_t to,
                        float *max, float *sum, float *o)
{
    const skv_train_rows *rows = &s->p->net->rows;
    float most = s->scale * rows->max(row + from, to - from);
    if (most > *max) {
        float factor = expf(*max - most);
        for (size_t d = 0; d < s->Dh; d++) o[d] *= factor;
        *sum *= factor;
        *max = most;
    }
    *sum += rows->exp(row + from, s->scale, *max, to - from);
    memset(row, 0, from * sizeof *row);
    memset(row + to, 0, (n - to) * sizeof *row);
}

/* For a tile of queries and one of keys: adds the weighted values to o, not yet divided. */
static void attend_keys(const attention *s, const key_rows *r, size_t head, size_t q0, size_t k0,
                        size_t i_thread)
{
    size_t m = skv_min_size(s->p->batch->n_tokens - q0, TILE_Q), from, to;
    size_t n = skv_min_size(TILE_K, end_key(r, q0 + m - 1) - k0);
    size_t at_q = q0 * s->ldq + head * s->Dh, at_kv = k0 * s->ldkv + head / s->n_group * s->Dh;
    float *tile = tiles_of(s, i_thread), *max = tile + 2 * TILE_Q * TILE_K, *sum = max + TILE_Q;
    float *o = s->a->o + at_q;
    scores(s, tile, s->a->q + at_q, r->k + at_kv, m, n, i_thread);
    for (size_t j = 0; j < m; j++) {
        float *row = tile + j * TILE_K;
        if (visible(s, r, q0 + j, k0, k0 + n, &from, &to)) {
            softmax_row(s, row, n, from, to, &max[j], &sum[j], o + j * s->ldq);
        } else {
            memset(row, 0, n * sizeof *row);
        }
    }
    skv_gemm_serial(s->p->net->gemm,
                    &(skv_gemm_args){.c = o,
                                     .ldc = s->ldq,
                                     .a = tile,
                                     .lda = TILE_K,
                                     .b = r->v + at_kv,
                                     .ldb = s->ldkv,
                                     .M = m,
                                     .N = s->Dh,
                                     .K = n,
                                     .add = true},
                    i_thread);
}

static void attend_tile(void *arg, size_t i_task, size_t i_thread)
{
    const attention *s = arg;
    size_t head = i_task % s->n_heads, T = s->p->batch->n_tokens;
    size_t q0 = i_task / s->n_heads * TILE_Q, q1 = skv_min_size(T, q0 + TILE_Q);
    float *max = tiles_of(s, i_thread) + 2 * TILE_Q * TILE_K, *sum = max + TILE_Q;
    float *o = s->a->o + q0 * s->ldq + head * s->Dh;
    for (size_t j = 0; j < q1 - q0; j++) {
        max[j] = -HUGE_VALF;
        sum[j] = 0;
        memset(o + j * s->ldq, 0, s->Dh * sizeof *o);
    }
    for (size_t i = 0; i < s->n_origins; i++) {
        const key_rows *r = &s->rows[i];
        for (size_t k0 = first_key(s, r, q0); k0 < end_key(r, q1 - 1); k0 += TILE_K) {
            attend_keys(s, r, head, q0, k0, i_thread);
        }
    }
    for (size_t j = 0; j < q1 - q0; j++) {
        float inverse = 1.0f / sum[j];
        for (size_t d = 0; d < s->Dh; d++) o[j * s->ldq + d] *= inverse;
        s->a->lse[(q0 + j) * s->n_heads + head] = max[j] + logf(sum[j]);
    }
}

void skv_net_attend(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    attention s = describe(p, i, a);
    skv_pool_run(p->net->pool, s.n_tiles * s.n_heads, attend_tile, &s);
}

/* ---- backward ---- */

/* A tile of queries [q0, q0 + m) and one of keys [k0, k0 + n). */
typedef struct tile_pair {
    const key_rows *keys;
    size_t head, q0, m, k0, n;
} tile_pair;

/* P and dS of one tile from the scores in p and dO V^T in ds. */
static void back_rows(const attention *s, const tile_pair *at, float *p, float *ds)
{
    const skv_net *net = s->p->net;
    size_t n = at->n;
    for (size_t j = 0; j < at->m; j++) {
        float *row = p + j * TILE_K, *drow = ds + j * TILE_K;
        size_t from, to, i = (at->q0 + j) * s->n_heads + at->head;
        if (!visible(s, at->keys, at->q0 + j, at->k0, at->k0 + n, &from, &to)) {
            memset(row, 0, n * sizeof *row);
            memset(drow, 0, n * sizeof *row);
            continue;
        }
        (void)net->rows.exp(row + from, s->scale, s->a->lse[i], to - from);
        net->rows.softmax_back(drow + from, row + from, net->delta[i], s->scale, to - from);
        memset(row, 0, from * sizeof *row);
        memset(row + to, 0, (n - to) * sizeof *row);
        memset(drow, 0, from * sizeof *row);
        memset(drow + to, 0, (n - to) * sizeof *row);
    }
}

static void back_tile(const attention *s, const tile_pair *at, size_t i_thread)
{
    skv_net *net = s->p->net;
    const key_rows *r = at->keys;
    float *p = tiles_of(s, i_thread), *ds = p + TILE_Q * TILE_K;
    size_t at_q = at->q0 * s->ldq + at->head * s->Dh, at_k = at->k0 * s->ldq + at->head * s->Dh;
    size_t at_kv = at->k0 * s->ldkv + at->head / s->n_group * s->Dh;
    scores(s, p, s->a->q + at_q, r->k + at_kv, at->m, at->n, i_thread);
    scores(s, ds, net->d_o + at_q, r->v + at_kv, at->m, at->n, i_thread);
    back_rows(s, at, p, ds);
    skv_gemm_args g = {.ldc = s->ldq, .lda = TILE_K, .N = s->Dh, .add = true};
    g.c = net->dq + at_q;
    g.a = ds;
    g.b = r->k + at_kv;
    g.ldb = s->ldkv;
    g.M = at->m;
    g.K = at->n;
    skv_gemm_serial(net->gemm, &g, i_thread);
    g.a_t = true;
    g.M = at->n;
    g.K = at->m;
    g.ldb = s->ldq;
    g.c = r->dk_heads + at_k;
    g.b = s->a->q + at_q;
    skv_gemm_serial(net->gemm, &g, i_thread);
    g.c = r->dv_heads + at_k;
    g.a = p;
    g.b = net->d_o + at_q;
    skv_gemm_serial(net->gemm, &g, i_thread);
}

static void back_queries(const attention *s, tile_pair *at, size_t i_thread)
{
    for (size_t i = 0; i < s->n_origins; i++) {
        at->keys = &s->rows[i];
        size_t end = end_key(at->keys, at->q0 + at->m - 1);
        for (at->k0 = first_key(s, at->keys, at->q0); at->k0 < end; at->k0 += TILE_K) {
            at->n = skv_min_size(TILE_K, end - at->k0);
            back_tile(s, at, i_thread);
        }
    }
}

static void attend_back(void *arg, size_t i_task, size_t i_thread)
{
    const attention *s = arg;
    skv_net *net = s->p->net;
    size_t head = i_task % s->n_heads, segment = i_task / s->n_heads;
    size_t t0 = net->segments[segment], t1 = net->segments[segment + 1];
    for (size_t t = t0; t < t1; t++) {
        size_t at = t * s->ldq + head * s->Dh;
        memset(net->dq + at, 0, s->Dh * sizeof(float));
        net->delta[t * s->n_heads + head] = net->kernels.dot(net->d_o + at, s->a->o + at, s->Dh);
    }
    tile_pair at = {.head = head};
    for (at.q0 = t0; at.q0 < t1; at.q0 += TILE_Q) {
        at.m = skv_min_size(t1 - at.q0, TILE_Q);
        back_queries(s, &at, i_thread);
    }
}

/* One origin's rows. */
typedef struct row_job {
    const attention *s;
    const key_rows *r;
} row_job;

static void clear_heads(void *arg, size_t i_task, size_t i_thread)
{
    const row_job *j = arg;
    size_t t = i_task * TILE_Q, n = (skv_min_size(j->r->n, t + TILE_Q) - t) * j->s->ldq;
    (void)i_thread;
    memset(j->r->dk_heads + t * j->s->ldq, 0, n * sizeof(float));
    memset(j->r->dv_heads + t * j->s->ldq, 0, n * sizeof(float));
}

/* The query heads of a group share their keys and values: gradients add up. */
static void sum_heads(void *arg, size_t i_task, size_t i_thread)
{
    const row_job *j = arg;
    const attention *s = j->s;
    const skv_kernels *kernels = &s->p->net->kernels;
    size_t end = skv_min_size(j->r->n, (i_task + 1) * TILE_Q);
    (void)i_thread;
    for (size_t t = i_task * TILE_Q; t < end; t++) {
        for (size_t head = 0; head < s->n_heads; head++) {
            size_t at = t * s->ldq + head * s->Dh;
            size_t to = t * s->ldkv + head / s->n_group * s->Dh;
            kernels->axpy(j->r->dk + to, 1.0f, j->r->dk_heads + at, s->Dh);
            kernels->axpy(j->r->dv + to, 1.0f, j->r->dv_heads + at, s->Dh);
        }
    }
}

static void over_rows(const attention *s, skv_task_fn *fn)
{
    for (size_t i = 0; i < s->n_origins; i++) {
        row_job j = {s, &s->rows[i]};
        skv_pool_run(s->p->net->pool, skv_ceil_div(j.r->n, TILE_Q), fn, &j);
    }
}

void skv_net_attend_back(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    attention s = describe(p, i, a);
    over_rows(&s, clear_heads);
    skv_pool_run(p->net->pool, s.n_heads * p->net->n_segments, attend_back, &s);
    over_rows(&s, sum_heads);
}
