/* Weights of two back ends: each part of a matrix lies where its layer is, and its products run
 * there. */
#include <assert.h>

#include "backend/split/split_backend.h"
#include "base/mem.h"

/* ---- matrices ---- */

/* Parts of the first's layers stand in front. */
static size_t count_first(const skv_split_backend *be, const skv_linear_spec *spec)
{
    size_t n = 0;
    while (n < spec->n_parts && skv_split_side(be, spec->parts[n].layer) == SKV_SPLIT_FIRST) n++;
    return n;
}

/* Those of `side`. */
static skv_linear_spec part_of(const skv_split_backend *be, const skv_linear_spec *spec,
                               unsigned side)
{
    const size_t n_first = count_first(be, spec);
    skv_linear_spec part = *spec;
    part.parts += side == SKV_SPLIT_FIRST ? 0 : n_first;
    part.n_parts = side == SKV_SPLIT_FIRST ? n_first : spec->n_parts - n_first;
    return part;
}

static skv_bytes linear_bytes(const skv_backend *base, const skv_linear_spec *spec)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    skv_bytes sum = {0};
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        const skv_linear_spec part = part_of(be, spec, s);
        if (part.n_parts == 0) continue;
        sum = skv_bytes_add(sum, be->of[s]->linear_bytes(be->of[s], &part));
    }
    return sum;
}

static void linear_free(skv_backend *base, skv_linear *w)
{
    skv_split_backend *be = skv_split_of(base);
    if (!w) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) be->of[s]->linear_free(be->of[s], w->of[s]);
    skv_free(w);
}

static skv_status linear_create(skv_backend *base, const skv_linear_spec *spec, skv_linear **out,
                                skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    const size_t n = spec->n_parts;
    skv_linear *w = skv_alloc_zero(1, sizeof *w + (n + 1) * sizeof *w->column0);
    SKV_REQUIRE(w, err, SKV_MEMORY, "weights: no memory for %zu parts", n);
    *w = (skv_linear){.n_parts = n, .n_first = count_first(be, spec), .paired = spec->paired};
    assert(!w->paired || w->n_first == 0 || w->n_first == n);
    for (size_t i = 0; i < n; i++) w->column0[i + 1] = w->column0[i] + spec->parts[i].n_rows;
    skv_status status = SKV_OK;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        const skv_linear_spec part = part_of(be, spec, s);
        if (part.n_parts == 0) continue;
        status = be->of[s]->linear_create(be->of[s], &part, &w->of[s], err);
    }
    if (status != SKV_OK) {
        linear_free(base, w);
        return status;
    }
    *out = w;
    return SKV_OK;
}

/* ---- products ---- */

static size_t columns_of(const skv_linear *w, size_t part0, size_t part1, skv_epilogue epilogue)
{
    if (w->paired && epilogue != SKV_EPILOGUE_STORE) return w->column0[1];
    return w->column0[part1] - w->column0[part0];
}

/* The results are all that their area has from now on. */
static bool begins_anew(const skv_linear_args *args)
{
    return args->y.at == 0 && !args->y.area->lasts && args->x.area != args->y.area;
}

/* Parts [part0, part1), which are all of one side; y begins with their columns. */
static void run_side(skv_split_backend *be, unsigned side, const skv_linear_args *args,
                     size_t part0, size_t part1)
{
    const skv_linear *w = args->w;
    const size_t first = side == SKV_SPLIT_FIRST ? 0 : w->n_first;
    const bool adds = args->epilogue == SKV_EPILOGUE_ADD;
    skv_linear_args a = *args;
    a.w = w->of[side];
    a.part0 = part0 - first;
    a.part1 = part1 - first;
    skv_split_use(be, side, &a.x, 0, 0, SKV_MAP_READ);
    if (!adds && begins_anew(args)) a.y.area->end = 0;
    skv_split_use(be, side, &a.y, a.n_rows, columns_of(w, part0, part1, a.epilogue),
                  adds ? SKV_MAP_BOTH : SKV_MAP_WRITE);
    skv_split_use_vec(be, side, &a.norm.weight);
    if (a.step) a.step = a.step->of[side];
    be->current = side;
    be->of[side]->linear(be->of[side], &a);
}

static void linear(skv_backend *base, const skv_linear_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const skv_linear *w = args->w;
    const size_t end = args->part1 ? args->part1 : w->n_parts;
    const size_t cut = w->n_first < args->part0 ? args->part0 : w->n_first > end ? end : w->n_first;
    skv_linear_args second = *args;
    second.y.at += w->column0[cut] - w->column0[args->part0];
    if (cut > args->part0) run_side(be, SKV_SPLIT_FIRST, args, args->part0, cut);
    if (end > cut) run_side(be, SKV_SPLIT_SECOND, &second, cut, end);
}

/* ---- experts ---- */

static skv_status experts_create(skv_backend *base, const skv_linear *const *w, size_t n,
                                 skv_experts **out, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    const unsigned side = w[0]->n_first > 0 ? SKV_SPLIT_FIRST : SKV_SPLIT_SECOND;
    skv_experts *experts = skv_alloc_zero(1, sizeof *experts);
    const skv_linear **inner = skv_alloc_zero(n, sizeof *inner);
    skv_status status = SKV_OK;
    if (!experts || !inner) status = skv_fail(err, SKV_MEMORY, "experts: out of memory");
    if (status == SKV_OK) {
        for (size_t i = 0; i < n; i++) inner[i] = w[i]->of[side];
        experts->side = side;
        experts->n_columns = w[0]->column0[w[0]->n_parts];
        experts->paired = w[0]->paired;
        status = be->of[side]->experts_create(be->of[side], inner, n, &experts->of, err);
    }
    skv_free(inner);
    if (status != SKV_OK) {
        skv_free(experts);
        return status;
    }
    *out = experts;
    return SKV_OK;
}

static void experts_free(skv_backend *base, skv_experts *experts)
{
    skv_split_backend *be = skv_split_of(base);
    if (!experts) return;
    be->of[experts->side]->experts_free(be->of[experts->side], experts->of);
    skv_free(experts);
}

/* Where the scores are: the experts of their layer are there. */
static void route(skv_backend *base, const skv_route_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    be->routed = args->logits.area->valid;
    be->n_routed = args->n_rows;
    be->n_pairs = args->n_rows * args->how.n_active;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        skv_route_args a = *args;
        if (!(be->routed & skv_split_bit(s))) continue;
        skv_split_use(be, s, &a.logits, 0, 0, SKV_MAP_READ);
        skv_split_use_vec(be, s, &a.bias);
        skv_split_use_vec(be, s, &a.expert_scale);
        be->of[s]->route(be->of[s], &a);
    }
}

static void experts_linear(skv_backend *base, const skv_experts_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const skv_experts *w = args->w;
    const bool halves = w->paired && args->epilogue != SKV_EPILOGUE_STORE;
    skv_experts_args a = *args;
    assert(be->routed & skv_split_bit(w->side));
    be->current = w->side;
    a.w = w->of;
    skv_split_use(be, w->side, &a.x, 0, 0, SKV_MAP_READ);
    skv_split_use(be, w->side, &a.y, be->n_pairs, halves ? w->n_columns / 2 : w->n_columns,
                  SKV_MAP_WRITE);
    skv_split_use_vec(be, w->side, &a.norm.weight);
    be->of[w->side]->experts_linear(be->of[w->side], &a);
}

static void mix(skv_backend *base, const skv_mix_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const skv_rows none = {0};
    const unsigned side = skv_split_choose(be, args->y, none);
    skv_mix_args a = *args;
    assert(be->routed & skv_split_bit(side));
    skv_split_use(be, side, &a.y, 0, 0, SKV_MAP_READ);
    skv_split_use(be, side, &a.x, be->n_routed, a.n, a.store ? SKV_MAP_WRITE : SKV_MAP_BOTH);
    be->of[side]->mix(be->of[side], &a);
}

void skv_split_fill_weights(skv_backend *table)
{
    table->linear_bytes = linear_bytes;
    table->linear_create = linear_create;
    table->linear_free = linear_free;
    table->linear = linear;
    table->experts_create = experts_create;
    table->experts_free = experts_free;
    table->route = route;
    table->experts_linear = experts_linear;
    table->mix = mix;
}
