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
    const float *scale; /* [E] or NULL */
    bool shared;
} route_job;

/* The n_active largest logits of a row, in falling order: chosen[j] is the expert. */
static void choose(const float *logits, size_t n_experts, size_t n_active, uint32_t *chosen)
{
    size_t n = 0;
    for (size_t e = 0; e < n_experts; e++) {
        if (n == n_active && !(logits[e] > logits[chosen[n - 1]])) continue;
        size_t j = n < n_active ? n++ : n - 1;
        for (; j > 0 && logits[e] > logits[chosen[j - 1]]; j--) chosen[j] = chosen[j - 1];
        chosen[j] = (uint32_t)e;
    }
}

void skv_experts_choose(const skv_config *c, const float *logits, size_t n_experts,
                        uint32_t *chosen, float *weights)
{
    const size_t k = c->n_active;
    float sum = 0;
    choose(logits, n_experts, k, chosen);
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
    skv_experts_choose(job->p->c, logits, job->n_experts, chosen, weights);
    for (size_t j = 0; job->scale && j < k; j++) weights[j] *= job->scale[chosen[j]];
    if (!job->shared) return;
    weights[k] = job->n_logits > job->n_experts ? 1 / (1 + expf(-logits[job->n_experts])) : 1;
    chosen[k] = (uint32_t)(job->n_rows * k + i); /* its place already: behind those of the others */
}

/* Whether every token also meets an expert that is not chosen. */
static bool has_shared(const skv_pass *p, size_t i)
{
    return p->c->layers[i].ffn_shared > 0;
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
    route_job job = {p, logits.at, E, n_logits, n, layer->expert_scale, has_shared(p, i)};
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

static skv_epilogue activation(const skv_config *c)
{
    switch (c->activation) {
    case SKV_ACT_GELU_TANH: return SKV_EPILOGUE_GELU_GLU;
    case SKV_ACT_SWIGLU_CLAMPED: return SKV_EPILOGUE_CLAMPED;
    case SKV_ACT_SILU:
    default: return SKV_EPILOGUE_SILU_GLU;
    }
}

/* The expert that every row meets, behind the results of the others. */
static void run_shared(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_layer *layer = &p->m->layers[i];
    const skv_rows h = skv_rows_as(p->ws->h, p->c->layers[i].ffn_shared);
    p->be->linear(p->be, &(skv_linear_args){.w = layer->shared.gate_up,
                                            .y = h,
                                            .x = x,
                                            .n_rows = n,
                                            .norm = skv_pass_norm(p, layer->expert_norm),
                                            .epilogue = activation(p->c)});
    p->be->linear(p->be,
                  &(skv_linear_args){.w = layer->shared.down,
                                     .y = skv_rows_from(p->ws->expert_out, n * p->c->n_active, 0),
                                     .x = h,
                                     .n_rows = n});
}

void skv_pass_run_experts(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_config *c = p->c;
    const skv_layer *layer = &p->m->layers[i];
    const size_t E = c->layers[i].n_experts, F = c->layers[i].ffn, D = c->hidden;
    const skv_rows h = skv_rows_as(p->ws->h, F);
    assert(n <= p->ws->max_rows && c->n_active <= E);
    route(p, i, x, n);
    const size_t n_groups = group_rows(p, i, n);
    p->be->linear_groups(p->be,
                         &(skv_linear_args){.y = h,
                                            .x = x,
                                            .rows = p->ws->expert_rows,
                                            .norm = skv_pass_norm(p, layer->expert_norm),
                                            .epilogue = activation(c),
                                            .limit = (float)c->swiglu_limit,
                                            .alpha = (float)c->swiglu_alpha},
                         p->ws->groups, n_groups);
    for (size_t e = 0; e < E; e++) p->ws->groups[e].w = layer->experts[e].down;
    p->be->linear_groups(p->be, &(skv_linear_args){.y = p->ws->expert_out, .x = h}, p->ws->groups,
                         n_groups);
    if (has_shared(p, i)) run_shared(p, i, x, n);
    const skv_vec post_norm = layer->gate_up ? layer->post_expert_norm : layer->post_ffn_norm;
    const bool normed = post_norm.area;
    const skv_rows sum = normed ? skv_rows_as(p->ws->qkv, D) : x;
    p->be->mix(p->be, &(skv_mix_args){.x = sum,
                                      .y = p->ws->expert_out,
                                      .n_rows = n,
                                      .n = D,
                                      .n_terms = c->n_active + has_shared(p, i),
                                      .weights = p->ws->expert_weights,
                                      .places = p->ws->chosen,
                                      .store = normed || !skv_ranks_lead(p->m->ranks)});
    skv_pass_sum(p, sum, n);
    if (!normed) return;
    const skv_norm norm = skv_pass_norm(p, post_norm);
    if (layer->gate_up) {
        p->be->norm(p->be, &(skv_norm_args){p->ws->ffn_sum, sum, n, D, norm});
    } else {
        p->be->norm_add(p->be, &(skv_norm_add_args){x, sum, n, D, norm, 0});
    }
}
