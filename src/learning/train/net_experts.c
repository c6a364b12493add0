/*
 * Mixtures of experts in training (the block of model/moe.c). With the weights w and experts f_e
 * that a row b = NORM(x) chooses:
 *
 *     y = sum over the chosen of w_e f_e(b),    f_e(b) = Wdown_e h,   h = silu(Wgate_e b) * Wup_e b
 *
 *     dh = Wdown_e^T dy;   dw_e = <f_e(b), dy> = <h, dh>, so that no expert's output is kept
 *     db = sum over the chosen of the gradient through gate and up, of w_e dh, + Wr^T dr
 *     dr_e = w_e (dw_e - sum over the chosen of w dw)      for all e, w_e = 0 of those not chosen
 *     dr_e = p_e ([e chosen] dw_e - sum over the chosen of p dw)   with w = p = softmax(r) of all
 *
 * The choice itself has no gradient, as in torch. Rows are sorted by expert, and each expert is one
 * product over its rows. A row adds its experts in the order of their weight.
 */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

enum { ROWS = 16 /* rows, or pairs, of a task */ };

typedef struct job {
    const skv_net_pass *p;
    const skv_net_routes *r;
    const skv_net_kept *a;
    const float *x;
    float *y;
    size_t n_rows, n_experts, F;
    float balance_scale; /* of skv_net; 0 where the router is frozen */
} job;

static void run(const job *j, skv_task_fn *fn)
{
    skv_pool_run(j->p->net->pool, skv_ceil_div(j->n_rows, ROWS), fn, (void *)(uintptr_t)j);
}

static size_t last_row(const job *j, size_t i_task)
{
    return skv_min_size(j->n_rows, (i_task + 1) * ROWS);
}

size_t skv_net_inner(const skv_net *net, size_t i)
{
    const skv_layer_shape *shape = &net->config->layers[i];
    return shape->ffn * (shape->n_experts > 0 ? net->config->n_active : 1);
}

/* ---- rows to pairs and back ---- */

static void route_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const skv_experts_choice how = skv_config_experts_choice(j->p->net->config, j->n_experts);
    const size_t k = how.n_active;
    (void)i_thread;
    for (size_t t = i_task * ROWS; t < last_row(j, i_task); t++) {
        skv_experts_choose(&how, j->r->logits + t * j->n_experts, NULL, j->r->chosen + t * k,
                           j->r->weights + t * k);
    }
}

/* From chosen: place, row and first. */
static void sort_pairs(const skv_net_routes *r, size_t n_pairs, size_t n_experts, size_t k)
{
    memset(r->first, 0, (n_experts + 1) * sizeof *r->first);
    for (size_t j = 0; j < n_pairs; j++) r->first[r->chosen[j] + 1]++;
    for (size_t e = 0; e < n_experts; e++) r->first[e + 1] += r->first[e];
    for (size_t j = 0; j < n_pairs; j++) {
        const uint32_t place = r->first[r->chosen[j]]++;
        r->place[j] = place;
        r->row[place] = (uint32_t)(j / k);
    }
    memmove(r->first + 1, r->first, n_experts * sizeof *r->first); /* they stood at their ends */
    r->first[0] = 0;
}

/* y [T k, D]: x [T, D] in the order of the sorted pairs. */
static void gather_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const size_t D = j->p->net->config->hidden;
    (void)i_thread;
    for (size_t i = i_task * ROWS; i < last_row(j, i_task); i++) {
        memcpy(j->y + i * D, j->x + j->r->row[i] * D, D * sizeof(float));
    }
}

static void gather(const skv_net_pass *p, const skv_net_routes *r, const float *x)
{
    run(&(job){.p = p,
               .r = r,
               .x = x,
               .y = p->net->expert_x,
               .n_rows = p->batch->n_tokens * p->net->config->n_active},
        gather_rows);
}

/* y [T, D] += expert_y by the weights. */
static void mix_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const skv_net *net = j->p->net;
    const size_t D = net->config->hidden, k = net->config->n_active;
    (void)i_thread;
    for (size_t i = i_task * ROWS * k; i < last_row(j, i_task) * k; i++) {
        net->kernels.axpy(j->y + i / k * D, j->r->weights[i],
                          net->expert_y + (size_t)j->r->place[i] * D, D);
    }
}

/* The same without weights, and y is set. */
static void sum_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const skv_net *net = j->p->net;
    const size_t D = net->config->hidden, k = net->config->n_active;
    (void)i_thread;
    for (size_t t = i_task * ROWS; t < last_row(j, i_task); t++) {
        memset(j->y + t * D, 0, D * sizeof(float));
        for (size_t i = t * k; i < (t + 1) * k; i++) {
            net->kernels.axpy(j->y + t * D, 1.0f, net->expert_y + (size_t)j->r->place[i] * D, D);
        }
    }
}

/* ---- forward ---- */

/* A pass over the rows of expert e alone: products read their number. */
typedef struct expert_pass {
    skv_net_pass pass;
    skv_train_batch batch;
    size_t at; /* the first of its pairs */
} expert_pass;

static bool begin_expert(expert_pass *x, const skv_net_pass *p, const skv_net_routes *r, size_t e)
{
    x->at = r->first[e];
    x->batch = (skv_train_batch){.n_tokens = r->first[e + 1] - r->first[e]};
    x->pass = *p;
    x->pass.batch = &x->batch;
    return x->batch.n_tokens > 0;
}

static void route(const skv_net_pass *p, size_t i, const skv_net_routes *r)
{
    const skv_net_layer *layer = &p->net->layers[i];
    const size_t T = p->batch->n_tokens, E = layer->n_experts, k = p->net->config->n_active;
    skv_net_mul(p, r->logits, p->net->normed, &layer->router, false);
    run(&(job){.p = p, .r = r, .n_rows = T, .n_experts = E}, route_rows);
    sort_pairs(r, T * k, E, k);
}

void skv_net_run_experts(const skv_net_pass *p, size_t i, const skv_net_kept *a, float *out)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_routes *r = &a->routes;
    const size_t T = p->batch->n_tokens, D = net->config->hidden, F = net->config->layers[i].ffn;
    expert_pass x;
    route(p, i, r);
    gather(p, r, net->normed);
    for (size_t e = 0; e < layer->n_experts; e++) {
        const skv_net_expert *expert = &layer->experts[e];
        if (!begin_expert(&x, p, r, e)) continue;
        skv_net_mul_all(&x.pass, (float *const[3]){a->gate + x.at * F, a->up + x.at * F},
                        net->expert_x + x.at * D,
                        (const skv_net_linear *const[3]){&expert->gate, &expert->up});
    }
    skv_net_silu_glu(net, net->h, a->gate, a->up, T * skv_net_inner(net, i));
    for (size_t e = 0; e < layer->n_experts; e++) {
        if (!begin_expert(&x, p, r, e)) continue;
        skv_net_mul(&x.pass, net->expert_y + x.at * D, net->h + x.at * F, &layer->experts[e].down,
                    false);
    }
    skv_net_copy(net, out, a->mid, T * D);
    run(&(job){.p = p, .r = r, .y = out, .n_rows = T}, mix_rows);
}

/* ---- backward ---- */

/* dweights; then dh and dy (expert_x) by the weight of their pair. */
static void weigh_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const skv_net *net = j->p->net;
    const size_t D = net->config->hidden, k = net->config->n_active, F = j->F;
    (void)i_thread;
    for (size_t i = i_task * ROWS * k; i < last_row(j, i_task) * k; i++) {
        const size_t place = j->r->place[i];
        float *dh = net->dh + place * F, *dy = net->expert_x + place * D; /* [F], [D] */
        net->dweights[place] = net->kernels.dot(net->h + place * F, dh, F);
        for (size_t f = 0; f < F; f++) dh[f] *= j->r->weights[i];
        for (size_t d = 0; d < D; d++) dy[d] *= j->r->weights[i];
    }
}

/* Where softmax(r) of all counts: logits [E] become -mean p_e + the balancing loss's gradient. */
static void back_softmax(const job *j, float *logits, float largest, float mean)
{
    const float *balance = j->p->net->balance; /* [E] */
    float sum = 0, even = 0;
    for (size_t e = 0; e < j->n_experts; e++) {
        logits[e] = expf(logits[e] - largest);
        sum += logits[e];
        even += logits[e] * balance[e];
    }
    for (size_t e = 0; e < j->n_experts; e++) {
        logits[e] *= (j->balance_scale * (balance[e] - even / sum) - mean) / sum;
    }
}

/* Logits become their gradient. */
static void back_route_rows(void *arg, size_t i_task, size_t i_thread)
{
    const job *j = arg;
    const skv_net *net = j->p->net;
    const size_t k = net->config->n_active, E = j->n_experts;
    (void)i_thread;
    for (size_t t = i_task * ROWS; t < last_row(j, i_task); t++) {
        const float *w = j->r->weights + t * k;         /* [k] */
        const uint32_t *chosen = j->r->chosen + t * k;  /* [k] */
        const uint32_t *place = j->r->place + t * k;    /* [k] */
        float *logits = j->r->logits + t * E, mean = 0; /* [E] */
        for (size_t i = 0; i < k; i++) mean += w[i] * net->dweights[place[i]];
        const float rest = net->config->norm_topk ? mean : 0.0f;
        if (!net->config->norm_topk || j->balance_scale > 0) {
            back_softmax(j, logits, logits[chosen[0]], mean - rest);
        } else {
            memset(logits, 0, E * sizeof *logits);
        }
        for (size_t i = 0; i < k; i++) {
            logits[chosen[i]] += w[i] * (net->dweights[place[i]] - rest);
        }
    }
}

/* Gradients of the experts' weights, if trained: down, before its activation's gradient is
 * formed. */
static void grad_down(const skv_net_pass *p, size_t i, const skv_net_routes *r)
{
    const skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const size_t D = net->config->hidden, F = net->config->layers[i].ffn;
    expert_pass x;
    for (size_t e = 0; e < layer->n_experts; e++) {
        if (!begin_expert(&x, p, r, e)) continue;
        skv_net_mul_grad(&x.pass, net->expert_x + x.at * D, net->h + x.at * F,
                         &layer->experts[e].down);
    }
}

static void grad_gate_up(const skv_net_pass *p, size_t i, const skv_net_kept *a)
{
    const skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const size_t D = net->config->hidden, F = net->config->layers[i].ffn;
    expert_pass x;
    gather(p, &a->routes, net->normed);
    for (size_t e = 0; e < layer->n_experts; e++) {
        const skv_net_expert *expert = &layer->experts[e];
        if (!begin_expert(&x, p, &a->routes, e)) continue;
        skv_net_mul_grad(&x.pass, a->gate + x.at * F, net->expert_x + x.at * D, &expert->gate);
        skv_net_mul_grad(&x.pass, a->up + x.at * F, net->expert_x + x.at * D, &expert->up);
    }
}

/* dh = Wdown^T dy; da = the gradient through gate and up. */
static void back_products(const skv_net_pass *p, size_t i, const skv_net_kept *a, bool is_down)
{
    const skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const size_t D = net->config->hidden, F = net->config->layers[i].ffn;
    expert_pass x;
    for (size_t e = 0; e < layer->n_experts; e++) {
        const skv_net_expert *expert = &layer->experts[e];
        if (!begin_expert(&x, p, &a->routes, e)) continue;
        const size_t h = x.at * F, y = x.at * D;
        if (is_down) {
            skv_net_mul_back(&x.pass, net->dh + h, net->expert_x + y, &expert->down, false);
        } else {
            skv_net_mul_back(&x.pass, net->expert_y + y, a->gate + h, &expert->gate, false);
            skv_net_mul_back(&x.pass, net->expert_y + y, a->up + h, &expert->up, true);
        }
    }
}

static bool trains_experts(const skv_net_layer *layer)
{
    for (size_t e = 0; e < layer->n_experts; e++) {
        const skv_net_expert *expert = &layer->experts[e];
        if (skv_net_linear_trained(&expert->gate) || skv_net_linear_trained(&expert->up) ||
            skv_net_linear_trained(&expert->down)) {
            return true;
        }
    }
    return false;
}

void skv_net_back_experts(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_kept *a = &layer->kept;
    const skv_net_routes *r = &a->routes;
    const size_t T = p->batch->n_tokens, D = net->config->hidden, E = layer->n_experts;
    const size_t n_inner = T * skv_net_inner(net, i);
    job j = {.p = p, .r = r, .n_rows = T, .n_experts = E, .F = net->config->layers[i].ffn};
    gather(p, r, net->dx);
    back_products(p, i, a, true);
    skv_net_silu_glu(net, net->h, a->gate, a->up, n_inner);
    run(&j, weigh_rows);
    const bool trains = trains_experts(layer);
    if (skv_net_linear_trained(&layer->router)) j.balance_scale = net->balance_scale;
    if (trains) grad_down(p, i, r);
    skv_net_silu_glu_back(net, a->gate, a->up, net->dh, n_inner);
    if (trains || skv_net_linear_trained(&layer->router)) {
        skv_net_norm(net, net->normed, a->mid, layer->ffn_norm->w, T, D);
    }
    if (trains) grad_gate_up(p, i, a);
    back_products(p, i, a, false);
    j.y = net->da;
    run(&j, sum_rows);
    run(&j, back_route_rows);
    skv_net_mul_grad(p, r->logits, net->normed, &layer->router);
    skv_net_mul_back(p, net->da, r->logits, &layer->router, true);
}
