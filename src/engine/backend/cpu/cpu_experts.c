/*
 * Mixtures of experts on the CPU: which rows go where.
 *
 * Pairs of row and expert are sorted by expert, so that each expert is one product over its rows,
 * and all of them run at once: one decoded token keeps every thread busy, and only experts that
 * were chosen are read. A row's sum has an order of its own, so it does not depend on the rows
 * beside it. The products are in cpu_linear.c, the sums in cpu_rows.c.
 */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/mem.h"
#include "base/size.h"

skv_status skv_cpu_experts_create(skv_backend *base, const skv_linear *const *w, size_t n,
                                  skv_experts **out, skv_error *err)
{
    (void)base;
    skv_experts *experts = skv_alloc(1, sizeof *experts + n * sizeof *experts->w);
    SKV_REQUIRE(experts, err, SKV_MEMORY, "weights: no memory for %zu experts", n);
    experts->n = n;
    for (size_t e = 0; e < n; e++) experts->w[e] = w[e];
    *out = experts;
    return SKV_OK;
}

void skv_cpu_experts_free(skv_backend *base, skv_experts *experts)
{
    (void)base;
    skv_free(experts);
}

/* ---- room for a choice ---- */

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (base) (field) = (void *)(base + used);                                                 \
        used += skv_round_up((count) * sizeof *(field), SKV_ALIGN);                                \
    } while (0)

/* Lays the lists out from `base` (NULL: only counts) and returns the bytes they take. */
static size_t lay_out(skv_cpu_routes *routes, const skv_backend_limits *limits, unsigned char *base)
{
    const size_t T = limits->max_rows;
    size_t used = 0;
    if (limits->max_experts == 0) return 0;
    TAKE(routes->places, T * (limits->max_active + 1));
    TAKE(routes->weights, T * (limits->max_active + 1));
    TAKE(routes->rows, T * limits->max_active);
    TAKE(routes->first, limits->max_experts + 1);
    return used;
}
#undef TAKE

size_t skv_cpu_routes_bytes(const skv_backend_limits *limits)
{
    skv_cpu_routes counted = {0};
    return lay_out(&counted, limits, NULL);
}

bool skv_cpu_routes_init(skv_cpu_routes *routes, const skv_backend_limits *limits)
{
    *routes = (skv_cpu_routes){.list_bytes = skv_cpu_routes_bytes(limits)};
    if (routes->list_bytes == 0) return true;
    routes->lists = skv_map_zero(routes->list_bytes);
    if (!routes->lists) return false;
    (void)lay_out(routes, limits, routes->lists);
    return true;
}

void skv_cpu_routes_release(skv_cpu_routes *routes)
{
    skv_unmap(routes->lists, routes->list_bytes);
    *routes = (skv_cpu_routes){0};
}

/* ---- choosing ---- */

typedef struct route_job {
    const skv_route_args *args;
    const skv_cpu_routes *routes;
    const float *logits;       /* [n_rows, ld] */
    const float *scale, *bias; /* [n_experts] or NULL */
} route_job;

static void route_row(void *arg, size_t i, size_t i_thread)
{
    const route_job *job = arg;
    (void)i_thread;
    const skv_route_args *a = job->args;
    const size_t k = a->how.n_active, n_terms = job->routes->n_terms;
    const float *logits = job->logits + i * a->logits.ld;
    uint32_t *chosen = job->routes->places + i * n_terms;
    float *weights = job->routes->weights + i * n_terms;
    skv_experts_choose(&a->how, logits, job->bias, chosen, weights);
    for (size_t j = 0; job->scale && j < k; j++) weights[j] *= job->scale[chosen[j]];
    if (!a->shared) return;
    weights[k] = a->shared_gate ? skv_experts_sigmoid(logits[a->how.n_experts]) : 1;
    chosen[k] = (uint32_t)(a->n_rows * k + i); /* its place already: after the others */
}

/* Sorts the pairs of row and expert by expert, then by row: an expert that was chosen becomes the
 * place of its pair. */
static void sort_pairs(const skv_cpu_routes *routes, size_t n_pairs, size_t k, size_t n_experts)
{
    size_t *first = routes->first;
    memset(first, 0, (n_experts + 1) * sizeof *first);
    for (size_t j = 0; j < n_pairs; j++) {
        first[routes->places[j / k * routes->n_terms + j % k] + 1]++;
    }
    for (size_t e = 0; e < n_experts; e++) first[e + 1] += first[e];
    for (size_t j = 0; j < n_pairs; j++) {
        uint32_t *chosen = &routes->places[j / k * routes->n_terms + j % k];
        const size_t place = first[*chosen]++;
        routes->rows[place] = (uint32_t)(j / k);
        *chosen = (uint32_t)place;
    }
    memmove(first + 1, first, n_experts * sizeof *first); /* each stood where the next begins */
    first[0] = 0;
}

void skv_cpu_route(skv_backend *base, const skv_route_args *args)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    const size_t k = args->how.n_active;
    be->routes.n_rows = args->n_rows;
    be->routes.n_terms = k + args->shared;
    route_job job = {.args = args,
                     .routes = &be->routes,
                     .logits = skv_cpu_at(args->logits),
                     .scale = skv_cpu_vec(args->expert_scale),
                     .bias = skv_cpu_vec(args->bias)};
    skv_pool_run(be->pool, args->n_rows, route_row, &job);
    sort_pairs(&be->routes, args->n_rows * k, k, args->how.n_experts);
}
