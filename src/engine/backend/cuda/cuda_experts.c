/*
 * Mixtures of experts: which rows meet which experts is chosen on the device and stays there, so no
 * layer waits. Products of experts are one launch over all of them, of as many tiles as there can
 * be (kernels/experts.inc).
 */
#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

enum { ALIGNMENT = 256, EXPERTS_MAX = 8192 };

/* ---- matrices ---- */

static void experts_free(skv_backend *be, skv_experts *experts)
{
    if (!experts) return;
    skv_cuda_delete(&skv_cuda_of(be)->device, experts->at);
    skv_free(experts);
}

static skv_status fill(skv_cuda_device *device, skv_experts *experts, const skv_linear *const *w,
                       skv_error *err)
{
    void *at = NULL;
    const size_t n_bytes = experts->n * sizeof *experts->at;
    skv_cuda_expert *list = skv_alloc_zero(experts->n, sizeof *list);
    SKV_REQUIRE(list, err, SKV_MEMORY, "weights: no memory for %zu experts", experts->n);
    const skv_status status = skv_cuda_new(device, n_bytes, &at, err);
    experts->at = at;
    for (size_t i = 0; i < experts->n; i++) {
        list[i] = (skv_cuda_expert){w[i]->at, w[i]->has_bias ? w[i]->bias : NULL};
    }
    if (status == SKV_OK) skv_cuda_put(device, at, list, n_bytes);
    skv_free(list);
    return status;
}

static skv_status experts_create(skv_backend *base, const skv_linear *const *w, size_t n,
                                 skv_experts **out, skv_error *err)
{
    SKV_REQUIRE(n <= EXPERTS_MAX, err, SKV_UNSUPPORTED,
                "device cuda: %zu experts of a layer, expected at most %d", n, (int)EXPERTS_MAX);
    for (size_t i = 0; i < n; i++) {
        SKV_REQUIRE(w[i]->at && w[i]->type == SKV_CUDA_BF16, err, SKV_UNSUPPORTED,
                    "device cuda: weights of expert %zu are %s, expected bf16", i,
                    w[i]->at ? "f32" : "codes");
    }
    skv_experts *experts = skv_alloc_zero(1, sizeof *experts);
    SKV_REQUIRE(experts, err, SKV_MEMORY, "weights: no memory for %zu experts", n);
    experts->w = w[0];
    experts->n = n;
    const skv_status status = fill(&skv_cuda_of(base)->device, experts, w, err);
    if (status != SKV_OK) {
        experts_free(base, experts);
        return status;
    }
    *out = experts;
    return SKV_OK;
}

/* ---- the choice ---- */

#define TAKE(field, count)                                                                         \
    do {                                                                                           \
        if (base) (field) = (void *)(base + used);                                                 \
        used += skv_round_up((count) * sizeof *(field), ALIGNMENT);                                \
    } while (0)

size_t skv_cuda_lay_out_routes(skv_cuda_routes *r, const skv_backend_limits *limits,
                               unsigned char *base)
{
    const size_t T = limits->max_rows;
    size_t used = 0;
    if (limits->max_experts == 0) return 0;
    TAKE(r->chosen, T * limits->max_active);
    TAKE(r->rows, T * limits->max_active);
    TAKE(r->places, T * (limits->max_active + 1));
    TAKE(r->weights, T * (limits->max_active + 1));
    TAKE(r->first, limits->max_experts + 1);
    return used;
}
#undef TAKE

static void route(skv_backend *base, const skv_route_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_cuda_rows logits = skv_cuda_rows_of(a->logits);
    skv_cuda_routes *r = &be->routes;
    const size_t k = a->how.n_active;
    r->n_pairs = a->n_rows * k;
    r->n_rows = a->n_rows;
    r->n_terms = k + a->shared;
    const skv_cuda_route_args choice = {
        .logits = logits.at,
        .bias = skv_cuda_floats_of(a->bias),
        .expert_scale = skv_cuda_floats_of(a->expert_scale),
        .chosen = r->chosen,
        .places = r->places,
        .weights = r->weights,
        .ld = logits.ld,
        .n_experts = (uint32_t)a->how.n_experts,
        .n_active = (uint32_t)k,
        .n_terms = (uint32_t)r->n_terms,
        .sigmoid = a->how.sigmoid,
        .renormalise = a->how.renormalise,
        .shared_gate = a->shared_gate,
        .eps = a->how.eps,
        .scale = a->how.sigmoid && a->how.scale != 0 ? a->how.scale : 1,
    };
    const skv_cuda_sort_args sort = {.chosen = r->chosen,
                                     .first = r->first,
                                     .rows = r->rows,
                                     .places = r->places,
                                     .n_pairs = (uint32_t)r->n_pairs,
                                     .n_active = (uint32_t)k,
                                     .n_terms = (uint32_t)r->n_terms};
    if (a->n_rows == 0) return;
    skv_cuda_launch(&be->device, SKV_CUDA_skv_route_rows,
                    (skv_cuda_grid){.x = (uint32_t)a->n_rows,
                                    .shared = (uint32_t)(a->how.n_experts * sizeof(uint32_t))},
                    &choice);
    skv_cuda_launch(&be->device, SKV_CUDA_skv_sort_pairs,
                    (skv_cuda_grid){.x = choice.n_experts, .shared = SKV_CUDA_ROWS_SHARED}, &sort);
}

/* ---- products ---- */

static uint32_t act_of(skv_epilogue epilogue)
{
    switch (epilogue) {
    case SKV_EPILOGUE_RELU2: return SKV_CUDA_RELU2;
    case SKV_EPILOGUE_SILU_GLU: return SKV_CUDA_SILU;
    case SKV_EPILOGUE_GELU_GLU: return SKV_CUDA_GELU;
    case SKV_EPILOGUE_CLAMPED: return SKV_CUDA_CLAMPED;
    case SKV_EPILOGUE_STORE:
    case SKV_EPILOGUE_ADD:
    default: return SKV_CUDA_NO_ACT;
    }
}

/* Tiles of 16 rows where experts have few, else of 64. Fewer pairs than experts have a tile each at
 * most. */
static void launch(skv_cuda_backend *be, skv_cuda_experts_args *args)
{
    const size_t n_pairs = be->routes.n_pairs, n = args->n_experts;
    const bool few = n_pairs <= 16 * n;
    const size_t m = few ? 16 : 64;
    const size_t n_tiles = skv_min_size(n_pairs, n_pairs / m + n);
    args->by_pair = n_tiles == n_pairs;
    const skv_cuda_grid grid = {.x = (uint32_t)skv_ceil_div(args->N, 64),
                                .y = (uint32_t)n_tiles,
                                .shared = skv_cuda_experts_shared((uint32_t)m)};
    skv_cuda_launch(&be->device, few ? SKV_CUDA_skv_experts_16 : SKV_CUDA_skv_experts_64, grid,
                    args);
}

/* The places that there is room for in `operand`, [first, end) of them. */
static void multiply_places(skv_cuda_backend *be, const skv_experts_args *a,
                            skv_cuda_experts_args *args, size_t end)
{
    const skv_linear *w = a->w->w;
    const skv_cuda_rows to = skv_cuda_scratch(be->operand, SKV_CUDA_BF16, w->ld);
    args->x = be->operand;
    args->ld_x = (uint32_t)w->ld;
    for (size_t i = args->begin; i < end; i += be->n_operand / w->ld) {
        const size_t n = skv_min_size(be->n_operand / w->ld, end - i);
        skv_cuda_norm_to(be, to, skv_rows_from(a->x, i, 0), n, w->K, w->ld - w->K, &a->norm, NULL);
        args->begin = args->x_first = (uint32_t)i;
        args->end = (uint32_t)(i + n);
        launch(be, args);
    }
}

/* Rows that are as products take them are read where they are. */
static void experts_linear(skv_backend *base, const skv_experts_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_linear *w = a->w->w;
    const skv_cuda_routes *r = &be->routes;
    const skv_cuda_rows x = skv_cuda_rows_of(a->x);
    const bool ready =
        !a->norm.weight.area && x.type == SKV_CUDA_BF16 && x.aligned && w->K == w->ld;
    skv_cuda_experts_args args = {.y = skv_cuda_rows_of(a->y),
                                  .x = x.at,
                                  .rows = a->by_row ? r->rows : NULL,
                                  .w = a->w->at,
                                  .first = r->first,
                                  .n_experts = (uint32_t)a->w->n,
                                  .end = (uint32_t)r->n_pairs,
                                  .ld_x = x.ld,
                                  .ld_w = (uint32_t)w->ld,
                                  .N = (uint32_t)w->N,
                                  .K = (uint32_t)w->ld,
                                  .paired = w->paired,
                                  .act = act_of(a->epilogue),
                                  .limit = a->limit,
                                  .alpha = a->alpha};
    if (r->n_pairs == 0) return;
    if (!ready && !a->by_row) {
        multiply_places(be, a, &args, r->n_pairs);
        return;
    }
    if (!ready) {
        const skv_cuda_rows to = skv_cuda_scratch(be->operand, SKV_CUDA_BF16, w->ld);
        skv_cuda_norm_to(be, to, a->x, r->n_rows, w->K, w->ld - w->K, &a->norm, NULL);
        args.x = be->operand;
        args.ld_x = (uint32_t)w->ld;
    }
    launch(be, &args);
}

static void mix(skv_backend *base, const skv_mix_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_cuda_mix_args args = {.x = skv_cuda_rows_of(a->x),
                                    .y = skv_cuda_rows_of(a->y),
                                    .places = be->routes.places,
                                    .weights = be->routes.weights,
                                    .n = (uint32_t)a->n,
                                    .n_terms = (uint32_t)be->routes.n_terms,
                                    .store = a->store};
    const skv_cuda_grid grid = {.x = (uint32_t)be->routes.n_rows,
                                .y = (uint32_t)skv_ceil_div(a->n, 128 * 8)};
    if (grid.x > 0) skv_cuda_launch(&be->device, SKV_CUDA_skv_mix_rows, grid, &args);
}

void skv_cuda_fill_experts(skv_backend *table)
{
    table->experts_create = experts_create;
    table->experts_free = experts_free;
    table->route = route;
    table->experts_linear = experts_linear;
    table->mix = mix;
}
