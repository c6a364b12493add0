/* The back end of two: its life and its memory. See split.h. */
#include "backend/split/split_backend.h"

#include <assert.h>

#include "base/mem.h"

static skv_status fits(const skv_backend *base, const skv_backend_shape *shape, skv_error *err)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        SKV_TRY(be->of[s]->fits(be->of[s], shape, err));
    }
    return SKV_OK;
}

/* The first's own memory, and the host's. */
static skv_bytes available(const skv_backend *base)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    return be->of[SKV_SPLIT_FIRST]->available(be->of[SKV_SPLIT_FIRST]);
}

static skv_status reserve(skv_backend *base, const skv_backend_limits *limits, skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        SKV_TRY(be->of[s]->reserve(be->of[s], limits, err));
    }
    return SKV_OK;
}

static skv_bytes reserve_bytes(const skv_backend *base, const skv_backend_limits *limits)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    skv_bytes sum = {0};
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        sum = skv_bytes_add(sum, be->of[s]->reserve_bytes(be->of[s], limits));
    }
    return sum;
}

static void split_free(skv_backend *base)
{
    skv_split_backend *be = skv_split_of(base);
    if (!be) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) be->of[s]->free(be->of[s]);
    skv_free(be);
}

void skv_split_move(skv_backend *be, size_t n_layers)
{
    assert(!skv_split_of(be)->areas && n_layers > 0);
    skv_split_of(be)->n_layers = be->first_layers = n_layers;
}

skv_split_counts skv_split_counts_of(const skv_backend *be)
{
    return ((const skv_split_backend *)be)->counts;
}

skv_status skv_backend_split_create(skv_backend *first, skv_backend *second, size_t n_layers,
                                    skv_backend **out, skv_error *err)
{
    assert(n_layers > 0);
    skv_split_backend *be = skv_alloc_zero(1, sizeof *be);
    if (!be) {
        first->free(first);
        second->free(second);
        return skv_fail(err, SKV_MEMORY, "device %s: out of memory", first->name);
    }
    *be = (skv_split_backend){.of = {first, second}, .n_layers = n_layers};
    be->base = (skv_backend){.name = first->name,
                             .level = second->level,
                             .form = second->form,
                             .promises = first->promises & second->promises,
                             .first_layers = n_layers,
                             .free = split_free,
                             .fits = fits,
                             .available = available,
                             .reserve = reserve,
                             .reserve_bytes = reserve_bytes};
    skv_split_fill_areas(&be->base);
    skv_split_fill_weights(&be->base);
    skv_split_fill_pages(&be->base);
    skv_split_fill_steps(&be->base);
    skv_split_fill_rows(&be->base);
    skv_split_fill_attention(&be->base);
    skv_split_fill_states(&be->base);
    *out = &be->base;
    return SKV_OK;
}
