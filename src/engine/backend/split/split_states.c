/* States of linear attention: each layer's lies where the layer is computed. */
#include <string.h>

#include "backend/split/split_backend.h"
#include "base/mem.h"

/* The layers of `side` into `mine` [n_layers]; `index` (may be NULL) says which one each is. */
static skv_states_spec part_of(const skv_split_backend *be, const skv_states_spec *spec,
                               unsigned side, skv_state_layer *mine, size_t *index)
{
    skv_states_spec part = *spec;
    part.layers = mine;
    part.n_layers = 0;
    for (size_t i = 0; i < spec->n_layers; i++) {
        if (skv_split_side(be, spec->layers[i].layer) != side) continue;
        if (index) index[i] = part.n_layers;
        mine[part.n_layers++] = spec->layers[i];
    }
    return part;
}

static skv_bytes states_bytes(const skv_backend *base, const skv_states_spec *spec)
{
    const skv_split_backend *be = (const skv_split_backend *)base;
    skv_bytes sum = {0};
    skv_state_layer *mine = skv_alloc_zero(spec->n_layers, sizeof *mine);
    if (!mine) return (skv_bytes){SIZE_MAX, SIZE_MAX};
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        const skv_states_spec part = part_of(be, spec, s, mine, NULL);
        if (part.n_layers == 0) continue;
        sum = skv_bytes_add(sum, be->of[s]->states_bytes(be->of[s], &part));
    }
    skv_free(mine);
    return sum;
}

static void states_free(skv_backend *base, skv_states *states)
{
    skv_split_backend *be = skv_split_of(base);
    if (!states) return;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (states->of[s]) be->of[s]->states_free(be->of[s], states->of[s]);
    }
    skv_free(states->layers);
    skv_free(states->index);
    skv_free(states);
}

static skv_status create_side(skv_split_backend *be, skv_states *states,
                              const skv_states_spec *spec, unsigned side, skv_error *err)
{
    skv_states_spec part = part_of(be, spec, side, states->layers, states->index);
    if (part.n_layers == 0) return SKV_OK;
    SKV_TRY(be->of[side]->states_create(be->of[side], &part, &states->of[side], err));
    part.n_states = 1;
    states->state_bytes[side] = skv_bytes_sum(be->of[side]->states_bytes(be->of[side], &part));
    return SKV_OK;
}

static skv_status states_create(skv_backend *base, const skv_states_spec *spec, skv_states **out,
                                skv_error *err)
{
    skv_split_backend *be = skv_split_of(base);
    skv_states *states = skv_alloc_zero(1, sizeof *states);
    SKV_REQUIRE(states, err, SKV_MEMORY, "states: out of memory");
    *states = (skv_states){.n_layers = spec->n_layers,
                           .layers = skv_alloc_zero(spec->n_layers, sizeof *states->layers),
                           .index = skv_alloc_zero(spec->n_layers, sizeof *states->index)};
    skv_status status = SKV_OK;
    if (!states->layers || !states->index) {
        status = skv_fail(err, SKV_MEMORY, "states: out of memory");
    }
    for (unsigned s = 0; s < SKV_SPLIT_SIDES && status == SKV_OK; s++) {
        status = create_side(be, states, spec, s, err);
    }
    if (status != SKV_OK) {
        states_free(base, states);
        return status;
    }
    memcpy(states->layers, spec->layers, spec->n_layers * sizeof *spec->layers);
    *out = states;
    return SKV_OK;
}

static void state_copy(skv_backend *base, skv_states *to, size_t i, const skv_states *from,
                       size_t j)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (to->of[s]) be->of[s]->state_copy(be->of[s], to->of[s], i, from->of[s], j);
    }
}

static void state_clear(skv_backend *base, skv_states *states, size_t i)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (states->of[s]) be->of[s]->state_clear(be->of[s], states->of[s], i);
    }
}

static void state_read(skv_backend *base, unsigned char *host, const skv_states *states, size_t i)
{
    skv_split_backend *be = skv_split_of(base);
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (!states->of[s]) continue;
        be->of[s]->state_read(be->of[s], host, states->of[s], i);
        host += states->state_bytes[s];
    }
}

static bool state_write(skv_backend *base, skv_states *states, size_t i, const unsigned char *host,
                        size_t n_past)
{
    skv_split_backend *be = skv_split_of(base);
    bool taken = true;
    for (unsigned s = 0; s < SKV_SPLIT_SIDES; s++) {
        if (!states->of[s]) continue;
        taken = be->of[s]->state_write(be->of[s], states->of[s], i, host, n_past) && taken;
        host += states->state_bytes[s];
    }
    if (!taken) state_clear(base, states, i);
    return taken;
}

static void conv(skv_backend *base, const skv_conv_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const skv_states *states = args->states;
    const unsigned s = skv_split_side(be, states->layers[args->layer].layer);
    skv_conv_args a = *args;
    be->current = s;
    skv_split_use(be, s, &a.x, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.gate_in, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.newest, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.gate_out, 0, 0, SKV_MAP_READ);
    skv_split_use(be, s, &a.y, a.step->n_rows[a.set], a.n, SKV_MAP_WRITE);
    skv_split_use_vec(be, s, &a.weight);
    skv_split_use_vec(be, s, &a.bias);
    a.step = args->step->of[s];
    a.states = states->of[s];
    a.layer = states->index[args->layer];
    be->of[s]->conv(be->of[s], &a);
}

static void scan(skv_backend *base, const skv_scan_args *args)
{
    skv_split_backend *be = skv_split_of(base);
    const skv_states *states = args->states;
    const skv_state_layer *layer = &states->layers[args->layer];
    const unsigned s = skv_split_side(be, layer->layer);
    skv_scan_args a = *args;
    be->current = s;
    skv_rows *const read[] = {&a.q, &a.k, &a.v, &a.decay, &a.write};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        skv_split_use(be, s, read[i], 0, 0, SKV_MAP_READ);
    }
    skv_split_use(be, s, &a.out, a.step->n_rows[a.set], layer->n_value_heads * layer->value_dim,
                  SKV_MAP_WRITE);
    skv_split_use_vec(be, s, &a.rate);
    skv_split_use_vec(be, s, &a.dt_bias);
    skv_split_use_vec(be, s, &a.skip);
    a.step = args->step->of[s];
    a.states = states->of[s];
    a.layer = states->index[args->layer];
    be->of[s]->scan(be->of[s], &a);
}

void skv_split_fill_states(skv_backend *table)
{
    table->states_create = states_create;
    table->states_free = states_free;
    table->states_bytes = states_bytes;
    table->state_copy = state_copy;
    table->state_clear = state_clear;
    table->state_read = state_read;
    table->state_write = state_write;
    table->conv = conv;
    table->scan = scan;
}
