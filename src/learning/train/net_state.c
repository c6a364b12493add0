/*
 * Layers that keep a state, in training: the gated delta rule after a short convolution (Yang et
 * al., Gated Delta Networks, arXiv:2412.06464). With n = a of an ordinary layer, and n =
 * norm_swiftkv(x_l) in a deep layer of a SwiftKV student (model/mixer.c has the same walk):
 *
 *     k|v = silu(conv(Wk n | Wv n))    a', b = Wa n, Wb n    z = Wz a          a = NORM(x)
 *     q_t = silu(w_K-1 Wq a_t + sum_j<K-1 w_j Wq n_t-K+1+j)
 *     o = rule(q, k, v, a', b)         x += Wo (NORM(o) * silu(z))
 *
 * The convolution and the rule begin anew with each document of a batch.
 */
#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

enum { CHANNELS = 64 /* of a task */, TAPS_MAX = 8 };

/* One layer in one pass. */
typedef struct state {
    const skv_net_pass *p;
    skv_net *net;
    const skv_net_layer *layer;
    const skv_net_projections *from;
    const skv_net_kept *a;
    bool deep;
    const float *source;  /* [T, D]: the input of k, v, a and b */
    const float *q_older; /* [T, nk dk] */
    size_t n_keys, n_values;
} state;

/* Gradients by inputs and outputs of the convolution, in net->dstate. */
typedef struct gradients {
    skv_delta_tensors out;      /* of the convolution: q, k, v; and a, b, A_log, dt_bias */
    float *q, *q_older, *k, *v; /* that enter it; q_older is q in a layer that is not deep */
} gradients;

static state state_of(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    skv_net *net = p->net;
    const bool deep = p->student && i >= net->kv_from;
    const skv_net_layer *layer = &net->layers[i];
    return (state){.p = p,
                   .net = net,
                   .layer = layer,
                   .from = deep ? &layer->swiftkv : &layer->own,
                   .a = a,
                   .deep = deep,
                   .source = deep ? net->swift : net->normed,
                   .q_older = deep ? a->q_older : a->q_raw,
                   .n_keys = skv_mixer_key_columns(&net->config->mixer),
                   .n_values = skv_mixer_value_columns(&net->config->mixer)};
}

size_t skv_net_state_columns(const skv_config *c)
{
    const skv_mixer_shape *m = &c->mixer;
    return 2 * skv_mixer_conv_columns(m) + skv_mixer_key_columns(m) + 2 * m->n_value_heads;
}

skv_delta_shape skv_net_delta_shape(const skv_config *c)
{
    const skv_mixer_shape *m = &c->mixer;
    return (skv_delta_shape){.n_key_heads = m->n_key_heads,
                             .n_value_heads = m->n_value_heads,
                             .key_dim = m->key_dim,
                             .value_dim = m->value_dim,
                             .tiled = m->tiled,
                             .write_max = (float)m->write_max};
}

/* ---- the convolution ---- */

/* Channels of one part: of q, of k or of v. */
typedef struct conv {
    const skv_net *net;
    const skv_train_batch *batch;
    size_t n, K;
    const float *taps;           /* [n, K], the newest last */
    const float *older, *newest; /* [T, n] */
    float *y;                    /* [T, n] */
    const float *dy;             /* of the backward pass, and the next */
    float *d_older, *d_newest;   /* added to */
    float *d_taps;               /* added to; NULL: frozen */
} conv;

/* A block of channels, and its taps. */
typedef struct block {
    const conv *of;
    size_t first, n;
    float taps[TAPS_MAX][CHANNELS], ones[CHANNELS];
    double d_taps[TAPS_MAX][CHANNELS];
} block;

static void begin_block(block *b, const conv *c, size_t i_task)
{
    memset(b, 0, sizeof *b);
    b->of = c;
    b->first = i_task * CHANNELS;
    b->n = skv_min_size(CHANNELS, c->n - b->first);
    for (size_t j = 0; j < c->K; j++) {
        for (size_t k = 0; k < b->n; k++) b->taps[j][k] = c->taps[(b->first + k) * c->K + j];
    }
    for (size_t k = 0; k < b->n; k++) b->ones[k] = 1.0f;
}

/* Earlier rows of row t's document that a tap reaches, at most K - 1. */
static size_t reach(const conv *c, size_t t)
{
    return skv_min_size(c->K - 1, t - c->batch->doc_start[t]);
}

/* sum [n]: the convolution's output of row t before its activation. */
static void sum_taps(const block *b, size_t t, float *sum)
{
    const conv *c = b->of;
    const float *newest = c->newest + t * c->n + b->first;
    for (size_t k = 0; k < b->n; k++) sum[k] = b->taps[c->K - 1][k] * newest[k];
    for (size_t j = 1; j <= reach(c, t); j++) {
        const float *x = c->older + (t - j) * c->n + b->first;
        for (size_t k = 0; k < b->n; k++) sum[k] += b->taps[c->K - 1 - j][k] * x[k];
    }
}

static void convolve_block(void *arg, size_t i_task, size_t i_thread)
{
    const conv *c = arg;
    block b;
    float sum[CHANNELS];
    (void)i_thread;
    begin_block(&b, c, i_task);
    for (size_t t = 0; t < c->batch->n_tokens; t++) {
        sum_taps(&b, t, sum);
        c->net->kernels.silu_glu(c->y + t * c->n + b.first, sum, b.ones, b.n);
    }
}

/* The gradients of one tap that read row x, given that of the sum. */
static void back_tap(block *b, size_t tap, const float *x, const float *d_sum, float *dx)
{
    for (size_t k = 0; k < b->n; k++) {
        dx[k] += b->taps[tap][k] * d_sum[k];
        b->d_taps[tap][k] += (double)x[k] * (double)d_sum[k];
    }
}

static void back_block(void *arg, size_t i_task, size_t i_thread)
{
    const conv *c = arg;
    block b;
    float sum[CHANNELS], one[CHANNELS]; /* the sum becomes its gradient */
    (void)i_thread;
    begin_block(&b, c, i_task);
    for (size_t t = 0; t < c->batch->n_tokens; t++) {
        const size_t at = t * c->n + b.first;
        sum_taps(&b, t, sum);
        memcpy(one, b.ones, sizeof one);
        c->net->rows.silu_glu_back(sum, one, c->dy + at, b.n);
        back_tap(&b, c->K - 1, c->newest + at, sum, c->d_newest + at);
        for (size_t j = 1; j <= reach(c, t); j++) {
            back_tap(&b, c->K - 1 - j, c->older + at - j * c->n, sum, c->d_older + at - j * c->n);
        }
    }
    for (size_t k = 0; c->d_taps && k < b.n; k++) {
        float *d_taps = c->d_taps + (b.first + k) * c->K;
        for (size_t j = 0; j < c->K; j++) d_taps[j] += (float)b.d_taps[j][k];
    }
}

/* Parts 0 to 2: q, k, v. */
static conv conv_of(const state *s, size_t part)
{
    const skv_net_kept *a = s->a;
    const skv_param *taps = s->from->conv;
    const size_t K = s->net->config->mixer.conv_rows, first = part * s->n_keys;
    const float *const newest[3] = {a->q_raw, a->k_raw, a->v_raw};
    float *const y[3] = {a->q, a->k, a->v};
    assert(K <= TAPS_MAX);
    return (conv){.net = s->net,
                  .batch = s->p->batch,
                  .n = part < 2 ? s->n_keys : s->n_values,
                  .K = K,
                  .taps = skv_net_values(s->p, taps) + first * K,
                  .older = part == 0 ? s->q_older : newest[part],
                  .newest = newest[part],
                  .y = y[part],
                  .d_taps = taps->grad ? taps->grad + first * K : NULL};
}

static void run_conv(const state *s, conv *c, skv_task_fn *fn)
{
    skv_pool_run(s->net->pool, skv_ceil_div(c->n, CHANNELS), fn, c);
}

/* ---- the rule ---- */

/* net->rates: A_log and dt_bias as the pass has them; gradients of frozen ones go after them. */
static skv_delta_rule rule_of(const state *s)
{
    skv_net *net = s->net;
    const size_t nv = net->config->mixer.n_value_heads;
    memcpy(net->rates, skv_net_values(s->p, s->from->a_log), nv * sizeof(float));
    memcpy(net->rates + nv, skv_net_values(s->p, s->from->dt_bias), nv * sizeof(float));
    return (skv_delta_rule){.shape = skv_net_delta_shape(net->config),
                            .n_rows = s->p->batch->n_tokens,
                            .doc_start = s->p->batch->doc_start,
                            .in = {.q = s->a->q,
                                   .k = s->a->k,
                                   .v = s->a->v,
                                   .a = s->a->a,
                                   .b = s->a->b,
                                   .a_log = net->rates,
                                   .dt_bias = net->rates + nv},
                            .kept = s->a->states,
                            .scratch = net->delta_scratch};
}

/* ---- forward ---- */

void skv_net_run_state(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    const state s = state_of(p, i, a);
    const skv_net_projections *from = s.from;
    skv_net_mul_all(p, (float *const[3]){s.deep ? a->q_older : a->q_raw, a->k_raw, a->v_raw},
                    s.source, (const skv_net_linear *const[3]){&from->q, &from->k, &from->v});
    if (s.deep) skv_net_mul(p, a->q_raw, s.net->normed, &from->q, false);
    skv_net_mul(p, a->a, s.source, &from->a, false);
    skv_net_mul(p, a->b, s.source, &from->b, false);
    skv_net_mul(p, a->z, s.net->normed, &s.layer->z, false);
    for (size_t part = 0; part < 3; part++) {
        conv c = conv_of(&s, part);
        run_conv(&s, &c, convolve_block);
    }
    const skv_delta_rule rule = rule_of(&s);
    skv_delta_rule_forward(&rule, s.net->pool, a->o);
}

static void norm_output(const state *s)
{
    const skv_mixer_shape *m = &s->net->config->mixer;
    skv_net_norm(s->net, s->net->ungated, s->a->o, skv_net_values(s->p, s->layer->state_norm),
                 s->p->batch->n_tokens * m->n_value_heads, m->value_dim);
}

void skv_net_gate_state(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    const state s = state_of(p, i, a);
    norm_output(&s);
    skv_net_silu_glu(s.net, s.net->gated, a->z, s.net->ungated, p->batch->n_tokens * s.n_values);
}

/* ---- backward ---- */

static gradients clear_gradients(const state *s)
{
    skv_net *net = s->net;
    const size_t T = s->p->batch->n_tokens, nv = net->config->mixer.n_value_heads;
    const size_t n_k = T * s->n_keys, n_v = T * s->n_values;
    float *at = net->dstate;
    memset(at, 0, T * skv_net_state_columns(net->config) * sizeof *at);
    gradients g = {.out = {.q = at, .k = at + n_k, .v = at + 2 * n_k}};
    at += 2 * n_k + n_v;
    g.q = at;
    g.k = at + n_k;
    g.v = at + 2 * n_k;
    at += 2 * n_k + n_v;
    g.q_older = s->deep ? at : g.q;
    g.out.a = at + n_k;
    g.out.b = g.out.a + T * nv;
    g.out.a_log = s->from->a_log->grad ? s->from->a_log->grad : net->rates + 2 * nv;
    g.out.dt_bias = s->from->dt_bias->grad ? s->from->dt_bias->grad : net->rates + 3 * nv;
    return g;
}

/* From net->d_gated: z becomes its gradient, and net->gated that of o. */
static void back_gate(const state *s)
{
    skv_net *net = s->net;
    const skv_mixer_shape *m = &net->config->mixer;
    const size_t n_rows = s->p->batch->n_tokens * m->n_value_heads, n = n_rows * m->value_dim;
    norm_output(s);
    skv_net_silu_glu_back(net, s->a->z, net->ungated, net->d_gated, n);
    memset(net->gated, 0, n * sizeof(float));
    skv_net_norm_back(net, net->gated, net->ungated, s->a->o, s->layer->state_norm, n_rows,
                      m->value_dim);
}

static void back_conv(const state *s, const gradients *g)
{
    const float *const dy[3] = {g->out.q, g->out.k, g->out.v};
    float *const d_newest[3] = {g->q, g->k, g->v};
    for (size_t part = 0; part < 3; part++) {
        conv c = conv_of(s, part);
        c.dy = dy[part];
        c.d_newest = d_newest[part];
        c.d_older = part == 0 ? g->q_older : d_newest[part];
        run_conv(s, &c, back_block);
    }
}

/* One product, from the gradient of its output. */
static void back_product(const state *s, const float *dy, const skv_net_linear *l)
{
    skv_net_mul_grad(s->p, dy, s->source, l);
    skv_net_mul_back(s->p, s->deep ? s->net->dswift : s->net->da, dy, l, true);
}

void skv_net_back_state(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    const state s = state_of(p, i, a);
    const skv_net_projections *from = s.from;
    back_gate(&s);
    skv_net_mul_grad(p, a->z, s.net->normed, &s.layer->z);
    skv_net_mul_back(p, s.net->da, a->z, &s.layer->z, false);
    const skv_delta_rule rule = rule_of(&s);
    const gradients g = clear_gradients(&s);
    skv_delta_rule_backward(&rule, s.net->pool, s.net->gated, &g.out);
    back_conv(&s, &g);
    if (s.deep) {
        skv_net_mul_grad(p, g.q, s.net->normed, &from->q);
        skv_net_mul_back(p, s.net->da, g.q, &from->q, true);
    }
    back_product(&s, g.q_older, &from->q);
    back_product(&s, g.k, &from->k);
    back_product(&s, g.v, &from->v);
    back_product(&s, g.out.a, &from->a);
    back_product(&s, g.out.b, &from->b);
}
