/*
 * Mixtures of experts: which rows meet which experts is chosen on the device and stays there, so no
 * layer waits. Products of experts are one launch over all of them, of as many tiles as there can
 * be (kernels/experts.inc). With weights as codes that holds where experts have few rows; for many
 * the codes of as many experts as there is room for become bf16, and each such group is a launch.
 */
#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

enum { ALIGNMENT = 256, EXPERTS_MAX = 8192, RUNS = 2, TILE = 64 };

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
        list[i] = (skv_cuda_expert){.at = w[i]->at,
                                    .bias = w[i]->has_bias ? w[i]->bias : NULL,
                                    .n_first = (uint32_t)w[i]->N};
        for (size_t run = 0; run < w[i]->n_runs; run++) list[i].runs[run] = w[i]->runs[run].codes;
        if (w[i]->n_runs == RUNS) list[i].n_first = (uint32_t)w[i]->runs[1].row0;
    }
    if (status == SKV_OK) skv_cuda_put(device, at, list, n_bytes);
    skv_free(list);
    return status;
}

static const char *form_of(const skv_linear *w)
{
    return !w->at ? "codes" : w->type == SKV_CUDA_F32 ? "f32" : "bf16";
}

static skv_status experts_create(skv_backend *base, const skv_linear *const *w, size_t n,
                                 skv_experts **out, skv_error *err)
{
    SKV_REQUIRE(n <= EXPERTS_MAX, err, SKV_UNSUPPORTED,
                "device cuda: %zu experts of a layer, expected at most %d", n, (int)EXPERTS_MAX);
    for (size_t i = 0; i < n; i++) {
        SKV_REQUIRE(!w[i]->at == !w[0]->at && w[i]->type == w[0]->type, err, SKV_UNSUPPORTED,
                    "device cuda: weights of expert %zu are %s, those of expert 0 %s", i,
                    form_of(w[i]), form_of(w[0]));
        SKV_REQUIRE(w[i]->n_runs <= RUNS, err, SKV_UNSUPPORTED,
                    "device cuda: weights of expert %zu have %zu forms of codes, at most %d", i,
                    w[i]->n_runs, (int)RUNS);
    }
    SKV_REQUIRE(w[0]->at || w[0]->ld * TILE <= skv_cuda_of(base)->n_unpacked, err, SKV_RANGE,
                "weights: rows of %zu codes of an expert, there is room for %zu", w[0]->K,
                skv_cuda_of(base)->n_unpacked / TILE);
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

/* Tiles of m rows that n experts can have: fewer pairs than experts have a tile each at most. */
static uint32_t count_tiles(const skv_cuda_backend *be, skv_cuda_experts_args *args, size_t m)
{
    const size_t n_pairs = be->routes.n_pairs, n = args->end_expert - args->first_expert;
    const size_t n_tiles = skv_min_size(n_pairs, n_pairs / m + n);
    args->by_pair = n_tiles == n_pairs;
    return (uint32_t)n_tiles;
}

static void launch_exact(skv_cuda_backend *be, skv_cuda_experts_args *args)
{
    const bool both = args->paired && args->act != SKV_CUDA_NO_ACT;
    const skv_cuda_grid grid = {.x = count_tiles(be, args, 1),
                                .y = (uint32_t)skv_ceil_div(both ? args->N / 2 : args->N, 4)};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_experts_exact, grid, args);
}

/* Products of bf16, of the tiles of weights [first_tile, first_tile + n_tiles). */
static void launch_tiles(skv_cuda_backend *be, skv_cuda_experts_args *args, bool few)
{
    const size_t m = few ? 16 : 64;
    const skv_cuda_grid grid = {.x = args->n_tiles,
                                .y = count_tiles(be, args, m),
                                .shared = skv_cuda_experts_shared((uint32_t)m)};
    skv_cuda_launch(&be->device, few ? SKV_CUDA_skv_experts_16 : SKV_CUDA_skv_experts_64, grid,
                    args);
}

static void launch_few(skv_cuda_backend *be, skv_cuda_experts_args *args)
{
    const skv_cuda_grid grid = {.x = (uint32_t)skv_ceil_div(args->N, SKV_CUDA_FEW_COLUMNS),
                                .y = count_tiles(be, args, SKV_CUDA_FEW),
                                .shared = SKV_CUDA_EXPERTS_FEW_SHARED};
    skv_cuda_launch(&be->device, SKV_CUDA_skv_experts_few, grid, args);
}

/* All tiles of as many experts as there is room for, or else of one expert some tiles. */
static void launch_unpacked(skv_cuda_backend *be, skv_cuda_experts_args *args, uint32_t n_experts)
{
    const uint32_t room = (uint32_t)(be->n_unpacked / ((size_t)TILE * args->ld_w));
    const uint32_t all = (uint32_t)skv_ceil_div(args->N, TILE);
    const uint32_t most = room < all ? room : all, group = room / most;
    args->unpacked = be->unpacked;
    for (uint32_t e = 0; e < n_experts; e += group) {
        args->first_expert = e;
        args->end_expert = e + group < n_experts ? e + group : n_experts;
        for (uint32_t tile = 0; tile < all; tile += most) {
            args->first_tile = tile;
            args->n_tiles = tile + most < all ? most : all - tile;
            const uint32_t n = (args->end_expert - e) * args->n_tiles * TILE;
            const skv_cuda_grid grid = {.x = n,
                                        .y = (uint32_t)skv_ceil_div(args->ld_w, 128 * 8),
                                        .shared = SKV_CUDA_UNPACK_SHARED};
            skv_cuda_launch(&be->device, SKV_CUDA_skv_unpack_experts, grid, args);
            launch_tiles(be, args, false);
        }
    }
}

/* Where experts have few rows: 16 on average. */
static void launch(skv_cuda_backend *be, const skv_experts *experts, skv_cuda_experts_args *args)
{
    const bool few = be->routes.n_pairs <= 16 * experts->n;
    if (experts->w->type == SKV_CUDA_F32) {
        launch_exact(be, args);
    } else if (experts->w->at) {
        launch_tiles(be, args, few);
    } else if (few) {
        launch_few(be, args);
    } else {
        launch_unpacked(be, args, (uint32_t)experts->n);
    }
}

/* Scratch for rows of w's type: those of f32 need the larger one. */
static skv_cuda_rows operand_for(const skv_cuda_backend *be, const skv_linear *w, size_t *n_rows)
{
    const bool f32 = w->type == SKV_CUDA_F32;
    *n_rows = (f32 ? be->n_product : be->n_operand) / w->ld;
    return f32 ? skv_cuda_scratch(be->product, SKV_CUDA_F32, w->ld)
               : skv_cuda_scratch(be->operand, SKV_CUDA_BF16, w->ld);
}

/* The places that there is room for in scratch, [0, end) of them. */
static void multiply_places(skv_cuda_backend *be, const skv_experts_args *a,
                            skv_cuda_experts_args *args, size_t end)
{
    const skv_linear *w = a->w->w;
    size_t most;
    const skv_cuda_rows to = operand_for(be, w, &most);
    args->x = to.at;
    args->ld_x = to.ld;
    for (size_t i = 0; i < end; i += most) {
        const size_t n = skv_min_size(most, end - i);
        skv_cuda_norm_to(be, to, skv_rows_from(a->x, i, 0), n, w->K, w->ld - w->K, &a->norm, NULL);
        args->begin = args->x_first = (uint32_t)i;
        args->end = (uint32_t)(i + n);
        launch(be, a->w, args);
    }
}

/* Rows that are as products take them are read where they are. */
static void experts_linear(skv_backend *base, const skv_experts_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_linear *w = a->w->w;
    const skv_cuda_routes *r = &be->routes;
    const skv_cuda_rows x = skv_cuda_rows_of(a->x);
    const bool ready = !a->norm.weight.area && x.type == w->type && x.aligned && w->K == w->ld;
    skv_cuda_experts_args args = {.y = skv_cuda_rows_of(a->y),
                                  .x = x.at,
                                  .rows = a->by_row ? r->rows : NULL,
                                  .w = a->w->at,
                                  .first = r->first,
                                  .end_expert = (uint32_t)a->w->n,
                                  .end = (uint32_t)r->n_pairs,
                                  .n_tiles = (uint32_t)skv_ceil_div(w->N, TILE),
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
        size_t most;
        const skv_cuda_rows to = operand_for(be, w, &most);
        skv_cuda_norm_to(be, to, a->x, r->n_rows, w->K, w->ld - w->K, &a->norm, NULL);
        args.x = to.at;
        args.ld_x = to.ld;
    }
    launch(be, a->w, &args);
}

static void mix(skv_backend *base, const skv_mix_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    const skv_cuda_mix_args args = {.x = skv_cuda_rows_of(a->x),
                                    .y = skv_cuda_rows_of(a->y),
                                    .places = be->routes.places,
                                    .weights = be->routes.weights,
                                    .n_terms = (uint32_t)be->routes.n_terms,
                                    .store = a->store};
    skv_cuda_mix(be, args, be->routes.n_rows, a->n);
}

void skv_cuda_fill_experts(skv_backend *table)
{
    table->experts_create = experts_create;
    table->experts_free = experts_free;
    table->route = route;
    table->experts_linear = experts_linear;
    table->mix = mix;
}
