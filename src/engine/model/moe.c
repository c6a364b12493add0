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
 * The choice, and which rows go to which expert, are the back end's.
 */
#include <assert.h>

#include "model/pass.h"

skv_experts_choice skv_config_experts_choice(const skv_config *c, size_t n_experts)
{
    return (skv_experts_choice){.n_experts = n_experts,
                                .n_active = c->n_active,
                                .sigmoid = c->router_sigmoid,
                                .renormalise = c->norm_topk,
                                .eps = (float)c->router_eps,
                                .scale = (float)c->router_scale};
}

/* Whether an expert that every token meets is one more term of the sum. */
static bool has_shared(const skv_pass *p, size_t i)
{
    return p->c->layers[i].ffn_shared > 0 && p->c->moe_latent == 0;
}

/* Chooses the experts of rows x [n, D]. */
static void route(const skv_pass *p, size_t i, skv_rows x, size_t n)
{
    const skv_layer *layer = &p->m->layers[i];
    const size_t E = p->c->layers[i].n_experts;
    const bool shared = has_shared(p, i), gated = shared && !p->c->shared_plain;
    const skv_rows logits = skv_rows_as(p->ws->router, E + gated);
    p->be->linear(p->be, &(skv_linear_args){.w = layer->router,
                                            .y = logits,
                                            .x = x,
                                            .n_rows = n,
                                            .norm = skv_pass_norm(p, layer->router_norm)});
    p->be->route(p->be, &(skv_route_args){.logits = logits,
                                          .n_rows = n,
                                          .how = skv_config_experts_choice(p->c, E),
                                          .bias = layer->choice_bias,
                                          .expert_scale = layer->expert_scale,
                                          .shared = shared,
                                          .shared_gate = gated});
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
static void run_chosen(const skv_pass *p, size_t i, skv_rows x, skv_norm norm)
{
    const skv_config *c = p->c;
    const skv_layer *layer = &p->m->layers[i];
    const skv_rows h = skv_rows_as(p->ws->h, c->layers[i].ffn);
    const skv_rows out = skv_rows_as(p->ws->expert_out, skv_config_expert_columns(c));
    p->be->experts_linear(p->be, &(skv_experts_args){.w = layer->experts,
                                                     .y = h,
                                                     .x = x,
                                                     .by_row = true,
                                                     .norm = norm,
                                                     .epilogue = skv_pass_activation(c),
                                                     .limit = (float)c->swiglu_limit,
                                                     .alpha = (float)c->swiglu_alpha});
    p->be->experts_linear(p->be, &(skv_experts_args){.w = layer->experts_down, .y = out, .x = h});
}

static void mix_terms(const skv_pass *p, skv_rows x, size_t n_columns, bool store)
{
    const skv_rows y = skv_rows_as(p->ws->expert_out, n_columns);
    p->be->mix(p->be, &(skv_mix_args){.x = x, .y = y, .n = n_columns, .store = store});
}

/* Experts that work in fewer columns, in ws->qkv: their input, and after it their sum. All that
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
    run_chosen(p, i, in, none);
    mix_terms(p, sum, columns, true);
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
    run_chosen(p, i, x, skv_pass_norm(p, layer->expert_norm));
    if (has_shared(p, i)) {
        run_shared(p, i, x, n, skv_rows_from(p->ws->expert_out, n * c->n_active, 0),
                   SKV_EPILOGUE_STORE);
    }
    const skv_vec post_norm = layer->gate_up ? layer->post_expert_norm : layer->post_ffn_norm;
    const bool normed = post_norm.area;
    const skv_rows sum = normed ? skv_rows_as(p->ws->qkv, D) : x;
    mix_terms(p, sum, D, normed || !skv_ranks_lead(p->m->ranks));
    skv_pass_sum(p, sum, n);
    if (!normed) return;
    const skv_norm norm = skv_pass_norm(p, post_norm);
    if (layer->gate_up) {
        p->be->norm(p->be, &(skv_norm_args){p->ws->ffn_sum, sum, n, D, norm});
    } else {
        p->be->norm_add(p->be, &(skv_norm_add_args){x, sum, n, D, norm, 0});
    }
}
