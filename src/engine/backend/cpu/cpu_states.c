/* States of linear attention of the CPU back end: their layout, life and bytes. */
#include "backend/cpu/cpu_states.h"

#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/mem.h"
#include "base/size.h"

/* Adds the product of factors [n] in floats to *at, in whole cache lines; false: beyond a size. */
static bool take(size_t *at, const size_t *factors, size_t n)
{
    size_t floats = 1;
    for (size_t i = 0; i < n; i++) {
        if (!skv_size_mul(floats, factors[i], &floats)) return false;
    }
    return floats < SIZE_MAX / 8 && skv_size_add(*at, skv_round_up(floats, 16), at);
}

static bool layer_is_valid(const skv_state_layer *l)
{
    if (l->conv_taps > SKV_CONV_TAPS_MAX) return false;
    if (l->kind == SKV_SCAN_NONE) return true;
    return l->n_key_heads > 0 && l->n_value_heads > 0 && l->n_value_heads % l->n_key_heads == 0 &&
           l->key_dim > 0 && l->key_dim <= SKV_STATE_DIM_MAX && l->value_dim > 0 &&
           l->value_dim <= SKV_STATE_DIM_MAX;
}

static size_t blocks_of(size_t max_undo)
{
    return skv_ceil_div(SKV_SCAN_BLOCK - 1 + max_undo, SKV_SCAN_BLOCK);
}

/* Places the part of layer i at float *at. */
static bool place_layer(skv_state_place *p, const skv_states_spec *spec, size_t i, size_t *at)
{
    const size_t B = SKV_SCAN_BLOCK, n_blocks = blocks_of(spec->max_undo);
    const skv_state_layer *layer = &spec->layers[i];
    if (!layer_is_valid(layer)) return false;
    *p = (skv_state_place){.layer = *layer};
    if (layer->kind != SKV_SCAN_NONE) {
        const size_t nk = layer->n_key_heads, nv = layer->n_value_heads, dk = layer->key_dim;
        p->n_panels = skv_ceil_div(layer->value_dim, B);
        p->panel_floats = dk * (spec->bf16 ? B / 2 : B);
        p->s = *at;
        if (!take(at, (size_t[]){nv, p->n_panels, p->panel_floats}, 3)) return false;
        p->keys = *at;
        if (!take(at, (size_t[]){n_blocks, nk, dk, B}, 4)) return false;
        p->u = *at;
        if (!take(at, (size_t[]){n_blocks, nv, p->n_panels, SKV_PANEL}, 4)) return false;
        p->alpha = *at;
        if (!take(at, (size_t[]){n_blocks, nv, B}, 3)) return false;
    }
    if (layer->conv_taps == 0 || layer->conv_columns > SIZE_MAX / 8) return layer->conv_taps == 0;
    p->conv = *at;
    p->conv_rows = layer->conv_taps - 1 + spec->max_undo;
    p->conv_ld = skv_round_up(layer->conv_columns, B);
    return take(at, (size_t[]){p->conv_rows, p->conv_ld}, 2);
}

/* Lays out a state; places (may be NULL) gets the layers. Returns its bytes; 0: there is a size
 * that cannot be, in layer *i_layer (n_layers: max_undo). */
static size_t place_all(const skv_states_spec *spec, skv_state_place *places, size_t *i_layer)
{
    size_t at = 0;
    *i_layer = spec->n_layers;
    if (spec->max_undo > SKV_STATE_UNDO_MAX) return 0;
    if (!take(&at, (size_t[]){spec->n_layers, sizeof(uint64_t) / sizeof(float)}, 2)) return 0;
    for (size_t i = 0; i < spec->n_layers; i++) {
        skv_state_place place;
        *i_layer = i;
        if (!place_layer(&place, spec, i, &at)) return 0;
        if (places) places[i] = place;
    }
    return at < SIZE_MAX / 8 ? at * sizeof(float) : 0;
}

skv_bytes skv_cpu_states_bytes(const skv_backend *base, const skv_states_spec *spec)
{
    size_t i_layer, n_bytes = place_all(spec, NULL, &i_layer);
    (void)base;
    if (n_bytes == 0 || !skv_size_mul(n_bytes, spec->n_states, &n_bytes)) n_bytes = SIZE_MAX;
    return (skv_bytes){.host = n_bytes};
}

skv_status skv_cpu_states_create(skv_backend *base, const skv_states_spec *spec, skv_states **out,
                                 skv_error *err)
{
    size_t i_layer, n_bytes = place_all(spec, NULL, &i_layer), all;
    (void)base;
    SKV_REQUIRE(n_bytes > 0, err, SKV_RANGE, "states: layer %zu of %zu has a size that cannot be",
                i_layer, spec->n_layers);
    SKV_REQUIRE(spec->n_states > 0 && skv_size_mul(n_bytes, spec->n_states, &all), err, SKV_RANGE,
                "states: %zu states of %zu bytes", spec->n_states, n_bytes);
    skv_states *states = skv_alloc_zero(1, sizeof *states);
    if (states) {
        *states = (skv_states){.places = skv_alloc_zero(spec->n_layers, sizeof *states->places),
                               .n_layers = spec->n_layers,
                               .n_states = spec->n_states,
                               .max_undo = spec->max_undo,
                               .bf16 = spec->bf16,
                               .n_blocks = blocks_of(spec->max_undo),
                               .n_bytes = n_bytes,
                               .memory = skv_map_zero(all)};
    }
    if (!states || !states->places || !states->memory) {
        skv_cpu_states_free(base, states);
        return skv_fail(err, SKV_MEMORY, "states: no memory for %zu bytes", all);
    }
    (void)place_all(spec, states->places, &i_layer);
    *out = states;
    return SKV_OK;
}

void skv_cpu_states_free(skv_backend *base, skv_states *states)
{
    (void)base;
    if (!states) return;
    skv_unmap(states->memory, states->n_states * states->n_bytes);
    skv_free(states->places);
    skv_free(states);
}

void skv_cpu_state_copy(skv_backend *base, skv_states *to, size_t i, const skv_states *from,
                        size_t j)
{
    (void)base;
    memmove(skv_state_at(to, i), skv_state_at(from, j), to->n_bytes);
}

void skv_cpu_state_clear(skv_backend *base, skv_states *states, size_t i)
{
    (void)base;
    memset(skv_state_at(states, i), 0, states->n_bytes);
}

void skv_cpu_state_read(skv_backend *base, unsigned char *host, const skv_states *states, size_t i)
{
    (void)base;
    memcpy(host, skv_state_at(states, i), states->n_bytes);
}

bool skv_cpu_state_write(skv_backend *base, skv_states *states, size_t i, const unsigned char *host,
                         size_t n_past)
{
    const uint64_t *settled = skv_state_settled(states, i);
    memcpy(skv_state_at(states, i), host, states->n_bytes);
    for (size_t layer = 0; layer < states->n_layers; layer++) {
        if (states->places[layer].layer.kind == SKV_SCAN_NONE) continue;
        if (settled[layer] % SKV_SCAN_BLOCK != 0 || settled[layer] > n_past ||
            n_past - settled[layer] > states->n_blocks * SKV_SCAN_BLOCK) {
            skv_cpu_state_clear(base, states, i);
            return false;
        }
    }
    return true;
}
