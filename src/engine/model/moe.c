/*
 * Mixtures of experts: the feed-forward block of which a token meets a few parts, chosen by a
 * router (Shazeer et al., arXiv:1701.06538; the variant without noise or capacity).
 *
 *     r = Wr NORM(x, router_norm) [+ br]       r [E]; b = NORM(x, expert_norm)
 *     p = softmax(r)                     chosen: the n_active largest, the lower number of equals
 *     x += sum over the chosen, the most likely first, of w_e expert_e(b)
 *     w_e = p_e, or p_e divided by the sum of the chosen [* s_e]
 *
 * Where there is an expert that every token meets, sigmoid(w b) of it is added, or all of it, which
 * is one term more: w is the router's last row.
 *
 * Routers of LFM2 and Nemotron-H give each expert a sigmoid of its own in place of p, and choose by
 * it plus a number of the expert (DeepSeek-V3, arXiv:2412.19437, section 2.1.2). Experts may work
 * in fewer columns, between two products that lead there and back: x += Wout sum over the chosen
 * w_e expert_e(Win b)
 *
 * Both norms are ffn_norm, but in Gemma 4, whose dense block goes beside the experts:
 *     x += NORM(NORM(dense) + NORM(sum over the chosen))
 *
 * Rows are sorted by expert, so that each expert is one product over its rows, and all of them run
 * at once: one decoded token keeps every thread busy, and only experts that were chosen are read. A
 * row's sum has an order of its own, so it does not depend on the rows beside it.
 */
#include <assert.h>
#include <math.h>

#include "base/size.h"
#include "model/pass.h"

typedef struct route_job {
    const skv_pass *p;
    const float *logits; /* [n, n_logits], mapped: E, or E + 1 */
    size_t n_experts, n_logits, n_rows;
    const float *scale, *choice_bias; /* [E] or NULL */
    bool shared;
} route_job;

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The n_active experts with the largest scores of a row, in falling order: chosen[j], scores[j]. */
static void choose(const skv_config *c, const float *logits, const float *bias, size_t n_experts,
                   uint32_t *chosen, float *scores)
{
    size_t n = 0;
    for (size_t e = 0; e < n_experts; e++) {
        const float score =
            c->router_sigmoid ? sigmoid(logits[e]) + (bias ? bias[e] : 0) : logits[e];
        if (n == c->n_active && !(score > scores[n - 1])) continue;
        size_t j = n < c->n_active ? n++ : n - 1;
        for (; j > 0 && score > scores[j - 1]; j--) {
            chosen[j] = chosen[j - 1];
            scores[j] = scores[j - 1];
        }
        chosen[j] = (uint32_t)e;
        scores[j] = score;
    }
}

/* What the chosen experts count by their sigmoids. */
static void weigh_sigmoids(const skv_config *c, const float *logits, const uint32_t *chosen,
                           float *weights)
{
    float sum = (float)c->router_eps;
    for (size_t j = 0; j < c->n_active; j++) sum += weights[j] = sigmoid(logits[chosen[j]]);
    const float scale = c->router_scale != 0 ? (float)c->router_scale : 1;
    for (size_t j = 0; j < c->n_active; j++) {
        weights[j] = weights[j] / (c->norm_topk ? sum : 1) * scale;
    }
}

void skv_experts_choose(const skv_config *c, const float *logits, const float *choice_bias,
                        size_t n_experts, uint32_t *chosen, float *weights)
{
    const size_t k = c->n_active;
    float sum = 0;
    choose(c, logits, choice_bias, n_experts, chosen, weights);
    if (c->router_sigmoid) {
        weigh_sigmoids(c, logits, chosen, weights);
        return;
    }
    for (size_t j = 0; j < k; j++) {
        weights[j] = expf(logits[chosen[j]] - logits[chosen[0]]);
        sum += weights[j];
    }
    if (!c->norm_topk) {
        sum = 0;
        for (size_t e = 0; e < n_experts; e++) sum += expf(logits[e] - logits[chosen[0]]);
    }
    for (size_t j = 0; j < k; j++) weights[j] /= sum;
}

static void route_row(void *arg, size_t i, size_t i_thread)
{
    const route_job *job = arg;
    (void)i_thread;
    const size_t k = job->p->c->n_active, n_terms = k + job->shared;
    const float *logits = job->logits + i * job->n_logits;
    uint32_t *chosen = job->p->ws->chosen + i * n_terms;
    float *weights = job->p->ws->expert_weights + i * n_terms;
    skv_experts_choose(job->p->c, logits, job->choice_bias, job->n_experts, chosen, weights);
    for (size_t j = 0; job->scale && j < k; j++) weights[j] *= job->scale[chosen[j]];
    if (!job->shared) return;
    weights[k] = job->n_logits > job->n_experts ? sigmoid(logits[job->n_experts]) : 1;
    chosen[k] = (uint32_t)(job->n_rows * k + i); /* its place already: behind those of the others */
}

/* Whether an expert that every token meets is one more term of the sum. */
static bool has_shared(const skv_pass *p, size_t i)
{
    return p->c->layers[i].ffn_shared > 0 && p->c->moe_latent == 0;
}

/* ws->chosen and ws->expert_weights of rows x [n, D]. */
static void route(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_layer *layer = &p->m->layers[i];
    const size_t E = p->c->layers[i].n_experts;
    const size_t n_logits = E + (has_shared(p, i) && !p->c->shared_plain);
    const skv_rows router = skv_rows_as(p->ws->router, n_logits);
    p->be->linear(p->be, &(skv_linear_args){.w = layer->router,
                                            .y = router,
                                            .x = x,
                                            .n_rows = n,
                                            .norm = skv_pass_norm(p, layer->router_norm)});
    const skv_mapped logits = p->be->map(p->be, router, n, n_logits, SKV_MAP_READ);
    route_job job = {.p = p,
                     .logits = logits.at,
                     .n_experts = E,
                     .n_logits = n_logits,
                     .n_rows = n,
                     .scale = layer->expert_scale,
                     .choice_bias = layer->choice_bias,
                     .shared = has_shared(p, i)};
    skv_pool_run(p->pool, n, route_row, &job);
    p->be->unmap(p->be, logits);
}

/* Sorts the n * n_active pairs of row and expert by expert, then by row: ws->groups and
 * ws->expert_rows; ws->chosen becomes the place of each pair. Returns the number of groups. */
static size_t group_rows(const skv_pass *p, size_t i, size_t n)
{
    const skv_expert *experts = p->m->layers[i].experts;
    const size_t k = p->c->n_active, n_terms = k + has_shared(p, i);
    const size_t E = p->c->layers[i].n_experts;
    skv_linear_group *groups = p->ws->groups;
    for (size_t e = 0; e < E; e++) groups[e] = (skv_linear_group){.w = experts[e].gate_up};
    for (size_t j = 0; j < n * k; j++) groups[p->ws->chosen[j / k * n_terms + j % k]].n_rows++;
    size_t row0 = 0;
    for (size_t e = 0; e < E; e++) {
        groups[e].row0 = row0;
        row0 += groups[e].n_rows;
        groups[e].n_rows = 0;
    }
    for (size_t j = 0; j < n * k; j++) {
        uint32_t *chosen = &p->ws->chosen[j / k * n_terms + j % k];
        skv_linear_group *group = &groups[*chosen];
        const size_t place = group->row0 + group->n_rows++;
        p->ws->expert_rows[place] = (uint32_t)(j / k);
        *chosen = (uint32_t)place;
    }
    return E;
}

skv_epilogue skv_pass_activation(const skv_config *c)
{
    switch (c->activation) {
    case SKV_ACT_GELU_TANH: return SKV_EPILOGUE_GELU_GLU;
    case SKV_ACT_SWIGLU_CLAMPED: return SKV_EPILOGUE_CLAMPED;
    case SKV_ACT_RELU2: return SKV_EPILOGUE_RELU2;
    case SKV_ACT_SILU:
    default: return SKV_EPILOGUE_SILU_GLU;
    }
}

/* The expert that every row meets: its result is y [n, D], or added to it. */
static void run_shared(const skv_pass *p, size_t i, skv_rows x, size_t n, skv_rows y,
                       skv_epilogue last)
{
    const skv_layer *layer = &p->m->layers[i];
    const skv_rows h = skv_rows_as(p->ws->h, p->c->layers[i].ffn_shared);
    p->be->linear(p->be, &(skv_linear_args){.w = layer->shared.gate_up,
                                            .y = h,
                                            .x = x,
                                            .n_rows = n,
                                            .norm = skv_pass_norm(p, layer->expert_norm),
                                            .epilogue = skv_pass_activation(p->c)});
    p->be->linear(
        p->be,
        &(skv_linear_args){.w = layer->shared.down, .y = y, .x = h, .n_rows = n, .epilogue = last});
}

/* ws->expert_out [n n_active, columns of an expert] of rows x, as `norm` makes them. */
static void run_chosen(const skv_pass *p, size_t i, skv_rows x, skv_norm norm, size_t n)
{
    const skv_config *c = p->c;
    const skv_layer *layer = &p->m->layers[i];
    const skv_rows h = skv_rows_as(p->ws->h, c->layers[i].ffn);
    const skv_rows out = skv_rows_as(p->ws->expert_out, skv_config_expert_columns(c));
    const size_t n_groups = group_rows(p, i, n);
    p->be->linear_groups(p->be,
                         &(skv_linear_args){.y = h,
                                            .x = x,
                                            .rows = p->ws->expert_rows,
                                            .norm = norm,
                                            .epilogue = skv_pass_activation(c),
                                            .limit = (float)c->swiglu_limit,
                                            .alpha = (float)c->swiglu_alpha},
                         p->ws->groups, n_groups);
    for (size_t e = 0; e < n_groups; e++) p->ws->groups[e].w = layer->experts[e].down;
    p->be->linear_groups(p->be, &(skv_linear_args){.y = out, .x = h}, p->ws->groups, n_groups);
}

static void mix_terms(const skv_pass *p, skv_rows x, size_t n, size_t n_columns, size_t n_terms,
                      bool store)
{
    p->be->mix(p->be, &(skv_mix_args){.x = x,
                                      .y = skv_rows_as(p->ws->expert_out, n_columns),
                                      .n_rows = n,
                                      .n = n_columns,
                                      .n_terms = n_terms,
                                      .weights = p->ws->expert_weights,
                                      .places = p->ws->chosen,
                                      .store = store});
}

/* Experts that work in fewer columns, in ws->qkv: their input, and behind it their sum. All that
 * reads x has done so when the first is added to it. */
static void run_latent(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_layer *layer = &p->m->layers[i];
    const size_t columns = p->c->moe_latent;
    const skv_rows in = skv_rows_as(p->ws->qkv, columns), sum = skv_rows_from(in, n, 0);
    const skv_norm none = {0};
    p->be->linear(p->be, &(skv_linear_args){.w = layer->latent_in,
                                            .y = in,
                                            .x = x,
                                            .n_rows = n,
                                            .norm = skv_pass_norm(p, layer->expert_norm)});
    run_chosen(p, i, in, none, n);
    mix_terms(p, sum, n, columns, p->c->n_active, true);
    if (p->c->layers[i].ffn_shared > 0) run_shared(p, i, x, n, x, SKV_EPILOGUE_ADD);
    p->be->linear(
        p->be,
        &(skv_linear_args){
            .w = layer->latent_out, .y = x, .x = sum, .n_rows = n, .epilogue = SKV_EPILOGUE_ADD});
}

void skv_pass_run_experts(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_config *c = p->c;
    const skv_layer *layer = &p->m->layers[i];
    const size_t D = c->hidden;
    assert(n <= p->ws->max_rows && c->n_active <= c->layers[i].n_experts);
    route(p, i, x, n);
    if (c->moe_latent > 0) {
        run_latent(p, i, x, n);
        return;
    }
    run_chosen(p, i, x, skv_pass_norm(p, layer->expert_norm), n);
    if (has_shared(p, i)) {
        run_shared(p, i, x, n, skv_rows_from(p->ws->expert_out, n * c->n_active, 0),
                   SKV_EPILOGUE_STORE);
    }
    const skv_vec post_norm = layer->gate_up ? layer->post_expert_norm : layer->post_ffn_norm;
    const bool normed = post_norm.area;
    const skv_rows sum = normed ? skv_rows_as(p->ws->qkv, D) : x;
    mix_terms(p, sum, n, D, c->n_active + has_shared(p, i), normed || !skv_ranks_lead(p->m->ranks));
    skv_pass_sum(p, sum, n);
    if (!normed) return;
    const skv_norm norm = skv_pass_norm(p, post_norm);
    if (layer->gate_up) {
        p->be->norm(p->be, &(skv_norm_args){p->ws->ffn_sum, sum, n, D, norm});
    } else {
        p->be->norm_add(p->be, &(skv_norm_add_args){x, sum, n, D, norm, 0});
    }
}
