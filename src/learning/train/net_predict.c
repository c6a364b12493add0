/*
 * Training of KV Prediction (arXiv:2410.08391, sections 4.1 and 4.3). The auxiliary model is the
 * net in training, and the predictor's maps are parameters of it; the base is a second, frozen net.
 *
 *     a, k_j, v_j   = A(ids)                                   raw keys and values of every layer
 *     Khat_i, Vhat_i = W^K_i k_{j(i)} + b^K_i, W^V_i v_{j(i)} + b^V_i
 *     b             = B(ids) with Khat, Vhat in place of its own
 *     K_i, V_i      = those of B(ids), left alone
 *     loss = lambda_B CE(b) + lambda_A CE(a)
 *          + lambda_C sum_i (mean |norm(Khat_i) - norm(K_i)| + mean |Vhat_i - V_i|)
 *
 * where norm is the base's own norm of heads, if it has one, and rotation is left out. The means of
 * the last sum are over all tokens: those without a target are read as a prompt is, too. Gradients
 * pass through the frozen base to the maps and to the auxiliary.
 *
 * In use the base runs the last token of a prompt and the answer, which see their own keys and
 * values beside the predicted ones of the prompt. The loss above does not train this case. With
 * own_answers (beyond the paper) CE(b) is computed with B as it is used; net_impl.h describes which
 * rows each query sees.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "format/safetensors.h"
#include "train/net_impl.h"

enum { ROWS_A_TASK = 16 };

/* Of one layer of the base. */
typedef struct predict_layer {
    skv_net_linear key, value;
    size_t width; /* d_i = Hk Dh */
    float *k, *v; /* [T, d_i]: the base's own, k after the norm of heads */
    float *raw;   /* [T, d_i]: predicted keys, before norm and rotation */
} predict_layer;

/* Of one layer of the auxiliary: gradients by way of the base. */
typedef struct reader_layer {
    size_t width;
    float *dk, *dv; /* [T, d'_j] */
} reader_layer;

struct skv_net_predict {
    skv_net_prediction of;
    skv_net *net, *base; /* the auxiliary that it belongs to; owned */
    predict_layer *layers;
    reader_layer *readers;
    skv_net_foreign foreign;
    float *memory; /* mapped */
    size_t n_memory;
    float *spare;     /* [T, widest d_i] */
    double *row_loss; /* owned, [T] */
    double consistency;
    const skv_train_batch *batch; /* of the step */
    double tokens;
};

skv_net *skv_net_base(const skv_net *net)
{
    return net->predict ? net->predict->base : skv_net_mtp_base(net);
}

size_t skv_net_predict_bytes(const skv_net *net)
{
    return net->predict ? net->predict->n_memory * sizeof(float) : 0;
}

/* ---- opening ---- */

static skv_net_linear add_map(skv_net *net, const char *what, size_t i, size_t n_rows,
                              size_t n_columns)
{
    char name[SKV_PARAM_NAME_MAX];
    skv_net_linear l = {0};
    (void)snprintf(name, sizeof name, "predictor.%s.%zu.weight", what, i);
    l.w = skv_net_add(net, 0, SKV_ROLE_PREDICTOR, name, n_rows, n_columns);
    (void)snprintf(name, sizeof name, "predictor.%s.%zu.bias", what, i);
    l.bias = skv_net_add(net, 0, SKV_ROLE_PREDICTOR, name, 0, n_rows);
    return l;
}

static size_t width_of(const skv_config *c, size_t i)
{
    return c->layers[i].n_kv_heads * c->head_dim;
}

static skv_status check_shapes(const skv_net *net, const skv_net_prediction *of, skv_error *err)
{
    const skv_config *base = of->base, *own = net->config;
    SKV_REQUIRE(!base->swiftkv && !own->swiftkv, err, SKV_UNSUPPORTED,
                "training: KV Prediction with a SwiftKV %s", base->swiftkv ? "base" : "auxiliary");
    SKV_REQUIRE(base->vocab == own->vocab, err, SKV_FORMAT,
                "training: auxiliary: vocab_size %zu, the base's is %zu", own->vocab, base->vocab);
    for (size_t i = 0; i < base->n_layers; i++) {
        SKV_REQUIRE(of->layers[i] < own->n_layers, err, SKV_ARGUMENT,
                    "training: layers[%zu]: %u, the auxiliary has %zu layers", i, of->layers[i],
                    own->n_layers);
    }
    return SKV_OK;
}

static void lay_out(skv_net_predict *p)
{
    size_t T = p->net->options.max_tokens, widest = 0, n_heads = 0, n = 0;
#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (p->memory) (field) = p->memory + n;                                                    \
        n += skv_round_up(count, SKV_ALIGN / sizeof(float));                                       \
    } while (0)
    for (size_t i = 0; i < p->of.base->n_layers; i++) {
        predict_layer *l = &p->layers[i];
        skv_net_foreign_kv *to = &p->foreign.layers[i];
        TAKE(l->k, T * l->width);
        TAKE(l->v, T * l->width);
        TAKE(l->raw, T * l->width);
        TAKE(to->k, T * l->width);
        TAKE(to->v, T * l->width);
        TAKE(to->dk, T * l->width);
        TAKE(to->dv, T * l->width);
        n_heads = skv_max_size(n_heads, p->of.base->layers[i].n_heads);
        widest = skv_max_size(widest, l->width);
    }
    for (size_t j = 0; j < p->net->config->n_layers; j++) {
        TAKE(p->readers[j].dk, T * p->readers[j].width);
        TAKE(p->readers[j].dv, T * p->readers[j].width);
    }
    TAKE(p->spare, T * widest);
    TAKE(p->foreign.dk_heads, T * n_heads * p->of.base->head_dim);
    TAKE(p->foreign.dv_heads, T * n_heads * p->of.base->head_dim);
#undef TAKE
    p->n_memory = n;
}

static skv_status take_memory(skv_net_predict *p, skv_error *err)
{
    lay_out(p);
    if (p->net->options.plan) return SKV_OK;
    p->memory = skv_map_zero(p->n_memory * sizeof(float));
    p->row_loss = skv_alloc_zero(p->net->options.max_tokens, sizeof *p->row_loss);
    SKV_REQUIRE(p->memory && p->row_loss, err, SKV_MEMORY,
                "training: no memory for %zu bytes of keys and values",
                p->n_memory * sizeof(float));
    lay_out(p);
    return SKV_OK;
}

static skv_status open_base(skv_net_predict *p, skv_error *err)
{
    const skv_net_options *own = &p->net->options;
    const skv_net_options options = {.pool = p->net->pool,
                                     .cpu = own->cpu,
                                     .max_tokens = own->max_tokens,
                                     .bf16 = own->bf16,
                                     .loss = SKV_LOSS_LM,
                                     .foreign_kv = true,
                                     .plan = own->plan};
    SKV_TRY(skv_net_open(p->of.base, &options, &p->base, err));
    SKV_TRY(skv_net_fill(p->base, p->of.source, err));
    return skv_net_finish(p->base, err);
}

skv_status skv_net_predict_create(skv_net *net, skv_error *err)
{
    const skv_net_prediction *of = net->options.prediction;
    SKV_TRY(check_shapes(net, of, err));
    skv_net_predict *p = skv_alloc_zero(1, sizeof *p);
    SKV_REQUIRE(p, err, SKV_MEMORY, "training: no memory");
    net->predict = p;
    *p = (skv_net_predict){.of = *of, .net = net};
    size_t L = of->base->n_layers;
    p->layers = skv_alloc_zero(L, sizeof *p->layers);
    p->readers = skv_alloc_zero(net->config->n_layers, sizeof *p->readers);
    SKV_REQUIRE(p->layers && p->readers, err, SKV_MEMORY, "training: no memory for %zu layers", L);
    for (size_t j = 0; j < net->config->n_layers; j++) {
        p->readers[j].width = width_of(net->config, j);
    }
    for (size_t i = 0; i < L; i++) {
        predict_layer *l = &p->layers[i];
        size_t K = p->readers[of->layers[i]].width;
        l->width = width_of(of->base, i);
        l->key = add_map(net, "key", i, l->width, K);
        l->value = add_map(net, "value", i, l->width, K);
    }
    p->foreign.answers = of->own_answers;
    SKV_TRY(skv_net_foreign_create(&p->foreign, net->options.max_tokens, L, err));
    SKV_TRY(take_memory(p, err));
    return open_base(p, err);
}

void skv_net_predict_free(skv_net_predict *p)
{
    if (!p) return;
    skv_net_close(p->base);
    if (p->memory) skv_unmap(p->memory, p->n_memory * sizeof(float));
    skv_net_foreign_release(&p->foreign);
    skv_free(p->row_loss);
    skv_free(p->layers);
    skv_free(p->readers);
    skv_free(p);
}

static skv_status read_map(const skv_net_predict *p, skv_param *to, skv_error *err)
{
    const skv_tensor *t = skv_safetensors_find(p->of.file, to->name);
    SKV_REQUIRE(t, err, SKV_FORMAT, "%s: tensor %s is missing", p->of.path, to->name);
    SKV_REQUIRE(skv_tensor_rows(t) == to->n_rows && skv_tensor_columns(t) == to->n_columns, err,
                SKV_FORMAT, "%s: %s: shape [%zu,%zu], expected [%zu,%zu]", p->of.path, to->name,
                skv_tensor_rows(t), skv_tensor_columns(t), to->n_rows, to->n_columns);
    return skv_tensor_read_checked(t, 0, to->n_rows, to->w, err);
}

/* A copy with fewer layers predicts its own layers well from its own keys and values. */
static void set_identity(skv_param *to)
{
    memset(to->w, 0, skv_param_size(to) * sizeof *to->w);
    for (size_t i = 0; !to->vector && i < to->n_rows; i++) to->w[i * to->n_columns + i] = 1.0f;
}

/* Uniform within 1/sqrt(columns), biases too, as the authors' linear layers begin. */
static void draw_map(const skv_net_predict *p, skv_param *to, size_t i_param, size_t n_columns)
{
    skv_rng rng;
    const double bound = 1.0 / sqrt((double)n_columns);
    skv_rng_init(&rng, skv_mix64(p->net->options.seed) + i_param);
    for (size_t i = 0; i < skv_param_size(to); i++) {
        to->w[i] = (float)(bound * (2.0 * skv_rng_uniform(&rng) - 1.0));
    }
}

skv_status skv_net_predict_load(skv_net *net, skv_error *err)
{
    const skv_net_predict *p = net->predict;
    size_t n_columns = 1;
    bool square = false;
    for (size_t i = 0; i < net->params.n; i++) {
        skv_param *to = &net->params.at[i];
        if (to->role != SKV_ROLE_PREDICTOR) continue;
        if (!to->vector) { /* a bias follows its matrix */
            n_columns = to->n_columns;
            square = to->n_rows == to->n_columns;
        }
        if (p->of.file) {
            SKV_TRY(read_map(p, to, err));
        } else if (p->of.identity && square) {
            set_identity(to);
        } else {
            draw_map(p, to, i, n_columns);
        }
    }
    return SKV_OK;
}

/* ---- the base's own keys and values ---- */

static void norm_keys(skv_net *base, float *out, const float *raw, size_t i, size_t n_tokens)
{
    const skv_param *norm = base->layers[i].own.k_norm;
    const skv_config *c = base->config;
    size_t n_heads = c->layers[i].n_kv_heads, Dh = c->head_dim;
    if (norm) {
        skv_net_norm(base, out, raw, norm->w, n_tokens * n_heads, Dh);
    } else {
        skv_net_copy(base, out, raw, n_tokens * n_heads * Dh);
    }
}

static void measure_layer(void *user, const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    const skv_net_predict *predict = user;
    const predict_layer *l = &predict->layers[i];
    size_t T = p->batch->n_tokens;
    norm_keys(p->net, l->k, a->k_raw, i, T);
    skv_net_copy(p->net, l->v, a->v, T * l->width);
}

/* ---- the way back ---- */

typedef struct distance_job {
    const skv_net_predict *p;
    float *d;           /* [T, n]: += step * sign(x - y) */
    const float *x, *y; /* [T, n] */
    size_t n;
    float step;
} distance_job;

static void distance_rows(void *arg, size_t i_task, size_t i_thread)
{
    const distance_job *j = arg;
    size_t T = j->p->batch->n_tokens, end = skv_min_size(T, (i_task + 1) * ROWS_A_TASK);
    (void)i_thread;
    for (size_t t = i_task * ROWS_A_TASK; t < end; t++) {
        double sum = 0.0;
        for (size_t at = t * j->n; at < (t + 1) * j->n; at++) {
            float apart = j->x[at] - j->y[at];
            sum += fabs((double)apart);
            if (apart > 0) j->d[at] += j->step;
            if (apart < 0) j->d[at] -= j->step;
        }
        j->p->row_loss[t] = sum;
    }
}

/* The consistency loss of one layer's keys or values, and its gradient. */
static void add_distance(skv_net_predict *p, float *d, const float *x, const float *y, size_t n)
{
    size_t T = p->batch->n_tokens;
    double step = p->of.consistency_loss / (p->tokens * (double)n), sum = 0.0;
    distance_job j = {.p = p, .d = d, .x = x, .y = y, .n = n, .step = (float)step};
    skv_pool_run(p->net->pool, skv_ceil_div(T, ROWS_A_TASK), distance_rows, &j);
    for (size_t t = 0; t < T; t++) sum += p->row_loss[t];
    p->consistency += sum / (double)n;
}

/* Computes the gradients of one map and of its input, the auxiliary's keys or values. */
static void back_map(const skv_net_pass *own, const skv_net_linear *l, const float *dy,
                     const float *x, float *dx)
{
    skv_net_mul_grad(own, dy, x, l);
    skv_net_mul_back(own, dx, dy, l, true);
}

/* Computes layer i's gradients from the queries that attended to it and from the consistency
 * loss. */
static void back_layer(skv_net_predict *predict, const skv_net_pass *own, size_t i)
{
    skv_net *base = predict->base, *net = predict->net;
    const predict_layer *l = &predict->layers[i];
    const skv_net_foreign_kv *at = &predict->foreign.layers[i];
    const skv_config *c = base->config;
    const skv_param *norm = base->layers[i].own.k_norm;
    size_t T = own->batch->n_tokens, n_heads = c->layers[i].n_kv_heads, Dh = c->head_dim;
    float *dk = at->dk;
    skv_net_rotate(base, dk, T, n_heads, c->layers[i].i_rope, true);
    norm_keys(base, predict->spare, l->raw, i, T);
    add_distance(predict, dk, predict->spare, l->k, l->width);
    add_distance(predict, at->dv, at->v, l->v, l->width);
    if (norm) {
        memset(predict->spare, 0, T * l->width * sizeof(float));
        skv_net_norm_back(base, predict->spare, dk, l->raw, norm, T * n_heads, Dh);
        dk = predict->spare;
    }
    size_t j = predict->of.layers[i];
    const skv_net_kept *from = &net->layers[j].kept;
    back_map(own, &l->key, dk, from->k_raw, predict->readers[j].dk);
    back_map(own, &l->value, at->dv, from->v, predict->readers[j].dv);
}

/* Adds the gradients that came through the base to those of the auxiliary's layer j. */
static void add_readers(void *user, const skv_net_pass *own, size_t j, float *dk, float *dv)
{
    const skv_net_predict *p = user;
    const skv_net *net = own->net;
    size_t n = p->batch->n_tokens * p->readers[j].width;
    net->kernels.axpy(dk, 1.0f, p->readers[j].dk, n);
    net->kernels.axpy(dv, 1.0f, p->readers[j].dv, n);
}

/* ---- a batch ---- */

/* The loss of one of the two models, weighed; dx becomes its gradient. */
static void weigh_loss(const skv_net_pass *p, const skv_net_scale *scale, double weight,
                       bool backward, skv_net_sums *sums)
{
    skv_net *net = p->net;
    skv_net_scale own = *scale;
    bool has = weight > 0;
    if (has) own.positions /= weight;
    skv_net_loss(p, &own, backward && has, sums);
    if (!backward || has) return;
    memset(net->dx, 0, p->batch->n_tokens * net->config->hidden * sizeof(float));
}

static void finish_forward(const skv_net_pass *p)
{
    skv_net *net = p->net;
    skv_net_norm(net, net->final, net->x_last, net->final_norm->w, p->batch->n_tokens,
                 net->config->hidden);
}

static void predict_all(skv_net_predict *predict, const skv_net_pass *own)
{
    const skv_config *c = predict->of.base;
    size_t T = own->batch->n_tokens;
    for (size_t i = 0; i < c->n_layers; i++) {
        const predict_layer *l = &predict->layers[i];
        const skv_net_kept *from = &predict->net->layers[predict->of.layers[i]].kept;
        const skv_net_foreign_kv *to = &predict->foreign.layers[i];
        skv_net_mul(own, l->raw, from->k_raw, &l->key, false);
        skv_net_mul(own, to->v, from->v, &l->value, false);
        norm_keys(predict->base, to->k, l->raw, i, T);
        skv_net_rotate(predict->base, to->k, T, c->layers[i].n_kv_heads, c->layers[i].i_rope,
                       false);
        memset(to->dk, 0, T * l->width * sizeof(float));
        memset(to->dv, 0, T * l->width * sizeof(float));
    }
}

static void clear_readers(skv_net_predict *p)
{
    for (size_t j = 0; j < p->net->config->n_layers; j++) {
        size_t n = p->batch->n_tokens * p->readers[j].width;
        memset(p->readers[j].dk, 0, n * sizeof(float));
        memset(p->readers[j].dv, 0, n * sizeof(float));
    }
    p->consistency = 0;
}

/* Runs the learnt rows with the predicted keys and values. */
static skv_status run_learnt(skv_net_predict *predict, const skv_net_scale *scale, bool backward,
                             skv_net_sums *sums, skv_error *err)
{
    skv_net *base = predict->base;
    skv_net_foreign_select(&predict->foreign, predict->batch);
    const skv_net_pass p = {
        .net = base, .batch = &predict->foreign.learnt, .keep = true, .foreign = &predict->foreign};
    if (p.batch->n_tokens == 0) return SKV_OK;
    skv_net_begin(base, p.batch);
    SKV_TRY(skv_net_embed(&p, skv_net_boundary(&p, 0), err));
    skv_net_forward(&p, 0, base->config->n_layers);
    finish_forward(&p);
    weigh_loss(&p, scale, predict->of.base_loss, backward, sums);
    if (backward) skv_net_backward(&p, scale);
    skv_net_begin(base, predict->batch);
    return SKV_OK;
}

/* Runs the base unchanged, for measuring, and with the predicted keys and values. */
static skv_status run_base(skv_net_predict *predict, const skv_net_pass *own,
                           const skv_net_scale *scale, bool backward, skv_net_sums *sums,
                           skv_error *err)
{
    skv_net *base = predict->base;
    const skv_net_watch watch = {.read = measure_layer, .user = predict};
    const skv_net_pass measure = {.net = base, .batch = own->batch, .watch = &watch};
    skv_net_begin(base, own->batch);
    SKV_TRY(skv_net_embed(&measure, skv_net_boundary(&measure, 0), err));
    skv_net_forward(&measure, 0, base->config->n_layers);
    predict_all(predict, own);
    SKV_TRY(run_learnt(predict, scale, backward, sums, err));
    for (size_t i = 0; backward && i < base->config->n_layers; i++) back_layer(predict, own, i);
    return SKV_OK;
}

skv_status skv_net_predict_run(skv_net *net, const skv_train_batch *batch,
                               const skv_net_scale *scale, bool backward, skv_net_sums *sums,
                               skv_error *err)
{
    skv_net_predict *predict = net->predict;
    predict->batch = batch;
    predict->tokens = scale->tokens;
    skv_net_begin(net, batch);
    clear_readers(predict);
    const skv_net_watch watch = {.add = add_readers, .user = predict};
    const skv_net_pass own = {.net = net, .batch = batch, .keep = true, .watch = &watch};
    SKV_TRY(skv_net_embed(&own, skv_net_boundary(&own, 0), err));
    skv_net_forward(&own, 0, net->config->n_layers);
    finish_forward(&own);
    *sums = (skv_net_sums){.n_loss = 0};
    if (predict->of.base_loss > 0 || predict->of.consistency_loss > 0) {
        SKV_TRY(run_base(predict, &own, scale, backward, sums, err));
    }
    skv_net_sums auxiliary;
    weigh_loss(&own, scale, predict->of.auxiliary_loss, backward, &auxiliary);
    if (backward) skv_net_backward(&own, scale);
    sums->n_loss = auxiliary.n_loss;
    sums->auxiliary = auxiliary.loss;
    sums->consistency = predict->consistency;
    return SKV_OK;
}

/* The base runs the rows that are learnt, over keys of all, and all rows to be measured; a map is
 * one of the parameters that skv_net_flops counts the gradients of. */
double skv_net_predict_flops(const skv_net *net, size_t n_tokens, size_t n_loss)
{
    const skv_net_predict *p = net->predict;
    double sum = skv_net_own_flops(p->base, n_loss, n_loss);
    double n = (double)n_tokens, learnt = (double)n_loss;
    for (size_t i = 0; i < p->of.base->n_layers; i++) {
        const skv_layer_shape *s = &p->of.base->layers[i];
        double q = (double)(s->n_heads * p->of.base->head_dim), D = (double)p->of.base->hidden;
        double kv = (double)p->layers[i].width;
        sum += learnt * 4 * (n - learnt) * q;
        sum += n * (2 * D * (2 * q + 2 * kv + 3 * (double)s->ffn) + 2 * n * q);
        sum += n * 8 * kv * (double)p->readers[p->of.layers[i]].width;
    }
    return sum;
}
