/* Mixtures of experts of the guarded back end: see guarded_backend.h. */
#include <stdlib.h>
#include <string.h>

#include "guarded_state.h"

/* ---- weights ---- */

static skv_status guarded_experts_create(skv_backend *base, const skv_linear *const *w, size_t n,
                                         skv_experts **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_experts *experts = guarded_take(sizeof *experts);
    const skv_linear **inner = guarded_take(n * sizeof *inner);
    for (size_t e = 0; e < n; e++) {
        if (w[e]->K != w[0]->K || w[e]->paired != w[0]->paired || w[e]->n_parts != w[0]->n_parts ||
            memcmp(w[e]->n_rows, w[0]->n_rows, w[0]->n_parts * sizeof w[0]->n_rows[0]) != 0) {
            guarded_die("experts of different shapes");
        }
        inner[e] = w[e]->inner;
    }
    *experts = (skv_experts){.first = w[0], .n = n};
    const skv_status status = g->cpu->experts_create(g->cpu, inner, n, &experts->inner, err);
    memset(inner, NONSENSE, n * sizeof *inner); /* whoever has kept the list reads nonsense */
    free(inner);
    if (status != SKV_OK) {
        free(experts);
        return status;
    }
    g->n_experts++;
    *out = experts;
    return SKV_OK;
}

static void guarded_experts_free(skv_backend *base, skv_experts *experts)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!experts) return;
    guarded_run(g);
    g->cpu->experts_free(g->cpu, experts->inner);
    free(experts);
    g->n_experts--;
}

/* ---- operations ---- */

REPLAYS(route)

static void guarded_route(skv_backend *base, const skv_route_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_route_args a = *args;
    const size_t E = a.how.n_experts;
    if (a.how.n_active == 0 || a.how.n_active > E) guarded_die("more experts than there are");
    if (a.shared_gate && !a.shared) guarded_die("a gate of no expert");
    a.logits = guarded_floats(g, a.logits, a.n_rows, E + a.shared_gate);
    a.bias = guarded_vec(g, a.bias, E);
    a.expert_scale = guarded_vec(g, a.expert_scale, E);
    g->routed = (routed){a.n_rows, a.n_rows * a.how.n_active, E, a.shared};
    LATER(g, route, a);
}

REPLAYS_OF(experts_linear, skv_experts_args)

static void guarded_experts_linear(skv_backend *base, const skv_experts_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_experts_args a = *args;
    const skv_linear_args parts = {.epilogue = a.epilogue};
    const size_t n = guarded_columns_of(a.w->first, &parts), K = a.w->first->K;
    const size_t n_pairs = g->routed.n_pairs, x_rows = a.by_row ? g->routed.n_rows : n_pairs;
    if (g->routed.n_experts != a.w->n) guarded_die("not the experts that were chosen from");
    if (a.epilogue == SKV_EPILOGUE_ADD) guarded_die("pairs that are added to nothing");
    guarded_check_apart(a.x, x_rows, K, a.y, n_pairs, n);
    a.x = guarded_rows(g, a.x, x_rows, K);
    a.y = guarded_rows(g, a.y, n_pairs, n);
    a.norm = guarded_norm_of(g, a.norm, K);
    a.w = a.w->inner;
    LATER(g, experts_linear, a);
}

REPLAYS(mix)

static void guarded_mix(skv_backend *base, const skv_mix_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_mix_args a = *args;
    const size_t n_rows = g->routed.n_rows;
    const size_t y_rows = g->routed.n_pairs + (g->routed.shared ? n_rows : 0);
    if (n_rows == 0) guarded_die("a sum of experts that nothing has chosen");
    guarded_check_apart(a.x, n_rows, a.n, a.y, y_rows, a.n);
    a.x = guarded_rows(g, a.x, n_rows, a.n);
    a.y = guarded_rows(g, a.y, y_rows, a.n);
    LATER(g, mix, a);
}

void guarded_add_experts(skv_backend *base)
{
    base->experts_create = guarded_experts_create;
    base->experts_free = guarded_experts_free;
    base->route = guarded_route;
    base->experts_linear = guarded_experts_linear;
    base->mix = guarded_mix;
}
