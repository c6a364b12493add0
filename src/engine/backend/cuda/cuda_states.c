/*
 * States of linear attention, and the operations on them. A state is one block of the device:
 *
 *     settled [n_layers]                  u32: rows that S has, of each layer
 *     of each layer, f32:
 *     S [value head][key_dim][value_dim]  as of row `settled`
 *     kept [max_undo][k | v | a | b]      inputs of the rows since then: row r at r modulo max_undo
 *     conv [row][channel]                 inputs of the newest rows: a ring by r
 */
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

/* Where a layer's part lies, in floats from the beginning of the state. */
typedef struct state_place {
    skv_state_layer layer;
    size_t s, kept, conv;
    size_t kept_ld, conv_rows, conv_ld;
} state_place;

struct skv_states {
    state_place *places; /* [n_layers], owned */
    size_t n_layers, n_states, max_undo;
    size_t n_bytes;    /* of a state */
    unsigned char *at; /* of the device: owned, [n_states][n_bytes] */
};

/* ---- layout ---- */

/* Adds a * b * c floats to *at, in whole groups of 64; false: beyond a size. */
static bool take(size_t *at, size_t a, size_t b, size_t c)
{
    size_t n;
    if (!skv_size_mul(a, b, &n) || !skv_size_mul(n, c, &n) || n > SIZE_MAX / 8) return false;
    return skv_size_add(*at, skv_round_up(n, 64), at) && *at <= UINT32_MAX;
}

static bool layer_is_valid(const skv_state_layer *l)
{
    if (l->conv_taps > SKV_CONV_TAPS_MAX || l->conv_columns > UINT32_MAX) return false;
    if (l->kind == SKV_SCAN_NONE) return true;
    return l->n_key_heads > 0 && l->n_value_heads > 0 && l->n_value_heads <= UINT16_MAX &&
           l->n_value_heads % l->n_key_heads == 0 && l->key_dim > 0 &&
           l->key_dim <= SKV_STATE_DIM_MAX && l->value_dim > 0 && l->value_dim <= SKV_STATE_DIM_MAX;
}

static bool place_layer(state_place *p, const skv_state_layer *l, size_t max_undo, size_t *at)
{
    if (!layer_is_valid(l)) return false;
    *p = (state_place){.layer = *l};
    if (l->kind != SKV_SCAN_NONE) {
        p->kept_ld = l->n_key_heads * l->key_dim + l->n_value_heads * (l->value_dim + 2);
        p->s = *at;
        if (!take(at, l->n_value_heads, l->key_dim, l->value_dim)) return false;
        p->kept = *at;
        if (!take(at, max_undo, p->kept_ld, 1)) return false;
    }
    if (l->conv_taps == 0) return true;
    p->conv = *at;
    p->conv_rows = l->conv_taps - 1 + max_undo;
    p->conv_ld = l->conv_columns;
    return take(at, p->conv_rows, p->conv_ld, 1);
}

/* Lays out a state; places (may be NULL) gets the layers. Returns its bytes; 0: there is a size
 * that cannot be, in layer *i_layer (n_layers: max_undo). */
static size_t place_all(const skv_states_spec *spec, state_place *places, size_t *i_layer)
{
    size_t at = 0;
    *i_layer = spec->n_layers;
    if (spec->max_undo > SKV_STATE_UNDO_MAX || !take(&at, spec->n_layers, 1, 1)) return 0;
    for (size_t i = 0; i < spec->n_layers; i++) {
        state_place place;
        *i_layer = i;
        if (!place_layer(&place, &spec->layers[i], spec->max_undo, &at)) return 0;
        if (places) places[i] = place;
    }
    return at * sizeof(float);
}

static skv_bytes states_bytes(const skv_backend *base, const skv_states_spec *spec)
{
    size_t i_layer, n_bytes = place_all(spec, NULL, &i_layer);
    (void)base;
    if (n_bytes == 0 || !skv_size_mul(n_bytes, spec->n_states, &n_bytes)) n_bytes = SIZE_MAX;
    return (skv_bytes){.device = n_bytes};
}

/* ---- life ---- */

static void states_free(skv_backend *base, skv_states *states)
{
    if (!states) return;
    skv_cuda_delete(&skv_cuda_of(base)->device, states->at);
    skv_free(states->places);
    skv_free(states);
}

static skv_status states_create(skv_backend *base, const skv_states_spec *spec, skv_states **out,
                                skv_error *err)
{
    size_t i_layer, n_bytes = place_all(spec, NULL, &i_layer), all;
    void *at = NULL;
    SKV_REQUIRE(!spec->bf16, err, SKV_UNSUPPORTED, "device cuda: no states of bf16 (--state f32)");
    SKV_REQUIRE(n_bytes > 0, err, SKV_RANGE, "states: layer %zu of %zu has a size that cannot be",
                i_layer, spec->n_layers);
    SKV_REQUIRE(spec->n_states > 0 && skv_size_mul(n_bytes, spec->n_states, &all), err, SKV_RANGE,
                "states: %zu states of %zu bytes", spec->n_states, n_bytes);
    skv_states *states = skv_alloc_zero(1, sizeof *states);
    SKV_REQUIRE(states, err, SKV_MEMORY, "states: out of memory");
    *states = (skv_states){.places = skv_alloc_zero(spec->n_layers, sizeof *states->places),
                           .n_layers = spec->n_layers,
                           .n_states = spec->n_states,
                           .max_undo = spec->max_undo,
                           .n_bytes = n_bytes};
    skv_status status = SKV_OK;
    if (!states->places) status = skv_fail(err, SKV_MEMORY, "states: out of memory");
    if (status == SKV_OK) status = skv_cuda_new(&skv_cuda_of(base)->device, all, &at, err);
    states->at = at;
    if (status != SKV_OK) {
        states_free(base, states);
        return status;
    }
    (void)place_all(spec, states->places, &i_layer);
    *out = states;
    return SKV_OK;
}

static unsigned char *state_at(const skv_states *states, size_t i)
{
    return states->at + i * states->n_bytes;
}

static void state_copy(skv_backend *base, skv_states *to, size_t i, const skv_states *from,
                       size_t j)
{
    if (state_at(to, i) == state_at(from, j)) return;
    skv_cuda_copy(&skv_cuda_of(base)->device, state_at(to, i), state_at(from, j), to->n_bytes);
}

static void state_clear(skv_backend *base, skv_states *states, size_t i)
{
    skv_cuda_clear(&skv_cuda_of(base)->device, state_at(states, i), states->n_bytes);
}

static void state_read(skv_backend *base, unsigned char *host, const skv_states *states, size_t i)
{
    skv_cuda_get(&skv_cuda_of(base)->device, host, state_at(states, i), states->n_bytes);
}

static bool state_write(skv_backend *base, skv_states *states, size_t i, const unsigned char *host,
                        size_t n_past)
{
    for (size_t layer = 0; layer < states->n_layers; layer++) {
        uint32_t settled;
        if (states->places[layer].layer.kind == SKV_SCAN_NONE) continue;
        memcpy(&settled, host + layer * sizeof settled, sizeof settled);
        if (settled > n_past || n_past - settled > states->max_undo) {
            state_clear(base, states, i);
            return false;
        }
    }
    skv_cuda_put(&skv_cuda_of(base)->device, state_at(states, i), host, states->n_bytes);
    return true;
}

/* ---- operations ---- */

static skv_cuda_rows rows_or_none(skv_rows rows)
{
    return rows.area ? skv_cuda_rows_of(rows) : (skv_cuda_rows){0};
}

static void conv(skv_backend *base, const skv_conv_args *a)
{
    const state_place *p = &a->states->places[a->layer];
    const skv_cuda_set *set = &a->step->sets[a->set], *given = &a->step->sets[a->given];
    const skv_cuda_conv_args args = {.x = skv_cuda_rows_of(a->x),
                                     .gate_in = rows_or_none(a->gate_in),
                                     .newest = rows_or_none(a->newest),
                                     .y = rows_or_none(a->y),
                                     .gate_out = rows_or_none(a->gate_out),
                                     .weight = skv_cuda_floats_of(a->weight),
                                     .bias = skv_cuda_floats_of(a->bias),
                                     .spans = a->step->spans,
                                     .given = given->rows,
                                     .rows = set->rows,
                                     .states = a->states->at,
                                     .state_bytes = a->states->n_bytes,
                                     .ring = p->conv + a->column0,
                                     .ring_rows = (uint32_t)p->conv_rows,
                                     .ring_ld = (uint32_t)p->conv_ld,
                                     .n_given = (uint32_t)given->n_rows,
                                     .n_rows = (uint32_t)set->n_rows,
                                     .n = (uint32_t)a->n,
                                     .n_taps = (uint32_t)p->layer.conv_taps,
                                     .silu = a->silu};
    const skv_cuda_grid grid = {.x = (uint32_t)a->step->n_spans,
                                .y = (uint32_t)skv_ceil_div(a->n, 128)};
    skv_cuda_launch(&skv_cuda_of(base)->device, SKV_CUDA_skv_conv_rows, grid, &args);
}

static skv_cuda_scan_args scan_args_of(const skv_scan_args *a)
{
    const state_place *p = &a->states->places[a->layer];
    const skv_state_layer *l = &p->layer;
    const skv_cuda_set *set = &a->step->sets[a->set];
    const skv_cuda_rows decay = skv_cuda_rows_of(a->decay), write = rows_or_none(a->write);
    const bool mamba2 = l->kind == SKV_SCAN_MAMBA2;
    return (skv_cuda_scan_args){.q = rows_or_none(a->q),
                                .out = rows_or_none(a->out),
                                .k = skv_cuda_rows_of(a->k),
                                .v = skv_cuda_rows_of(a->v),
                                .decay = decay.at,
                                .write = mamba2 ? NULL : write.at,
                                .rate = skv_cuda_floats_of(a->rate),
                                .dt_bias = skv_cuda_floats_of(a->dt_bias),
                                .skip = skv_cuda_floats_of(a->skip),
                                .spans = a->step->spans,
                                .rows = set->rows,
                                .states = a->states->at,
                                .state_bytes = a->states->n_bytes,
                                .s = p->s,
                                .kept = p->kept,
                                .kept_ld = (uint32_t)p->kept_ld,
                                .max_undo = (uint32_t)a->states->max_undo,
                                .layer = (uint32_t)a->layer,
                                .n_rows = (uint32_t)set->n_rows,
                                .decay_ld = decay.ld,
                                .write_ld = write.ld,
                                .n_key_heads = (uint32_t)l->n_key_heads,
                                .n_value_heads = (uint32_t)l->n_value_heads,
                                .key_dim = (uint32_t)l->key_dim,
                                .value_dim = (uint32_t)l->value_dim,
                                .tiled = l->tiled,
                                .mamba2 = mamba2,
                                .dt_min = a->dt_min,
                                .dt_max = a->dt_max,
                                .write_max = a->write_max};
}

/* Rows before chunks of some span, and chunks. Products of f32 would not be exact. */
static void scan_chunks(skv_cuda_backend *be, const skv_backend_step *step,
                        const skv_cuda_grid *rows, skv_cuda_scan_args *args)
{
    const bool is_exact =
        args->k.type == SKV_CUDA_BF16 && (!args->q.at || args->q.type == SKV_CUDA_BF16);
    const uint32_t key_most = args->key_dim <= 128 ? 128 : SKV_CUDA_SCAN_KEYS;
    const skv_cuda_kernel kernel =
        key_most == 128 ? SKV_CUDA_skv_scan_chunks_128 : SKV_CUDA_skv_scan_chunks_256;
    const skv_cuda_grid grid = {.x = rows->x,
                                .y = rows->y,
                                .z = (uint32_t)skv_ceil_div(args->value_dim, SKV_CUDA_SCAN_COLUMNS),
                                .shared = skv_cuda_chunks_shared(key_most)};
    if (step->longest_span < SKV_CUDA_SCAN_FEW || args->key_dim > key_most || !is_exact) return;
    args->chunks = SKV_CUDA_SCAN_BEFORE;
    skv_cuda_launch(&be->device, SKV_CUDA_skv_scan_rows, *rows, args);
    args->chunks = SKV_CUDA_SCAN_BEHIND;
    skv_cuda_launch(&be->device, kernel, grid, args);
}

static void scan(skv_backend *base, const skv_scan_args *a)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    skv_cuda_scan_args args = scan_args_of(a);
    const skv_cuda_grid rows = {.x = (uint32_t)a->step->n_spans,
                                .y = args.n_value_heads,
                                .z = (uint32_t)skv_ceil_div(args.value_dim, 32),
                                .shared = skv_cuda_scan_shared(args.key_dim)};
    const skv_cuda_grid keep = {.x = rows.x, .y = (uint32_t)skv_max_size(args.max_undo, 1)};
    scan_chunks(be, a->step, &rows, &args);
    skv_cuda_launch(&be->device, SKV_CUDA_skv_scan_rows, rows, &args);
    skv_cuda_launch(&be->device, SKV_CUDA_skv_scan_keep, keep, &args);
}

static void gated_norm(skv_backend *base, const skv_gated_norm_args *a)
{
    const skv_cuda_gated_norm_args args = {.x = skv_cuda_rows_of(a->x),
                                           .z = skv_cuda_rows_of(a->z),
                                           .weight = skv_cuda_floats_of(a->norm.weight),
                                           .n = (uint32_t)a->n,
                                           .per_group = a->weight_per_group,
                                           .sigmoid = a->sigmoid,
                                           .gate_first = a->gate_first,
                                           .eps = a->norm.eps,
                                           .offset = a->norm.offset};
    const skv_cuda_grid grid = {
        .x = (uint32_t)a->n_rows, .y = (uint32_t)a->n_groups, .shared = SKV_CUDA_ROWS_SHARED};
    if (a->n_rows == 0) return;
    skv_cuda_launch(&skv_cuda_of(base)->device, SKV_CUDA_skv_gated_norm_rows, grid, &args);
}

void skv_cuda_fill_states(skv_backend *table)
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
    table->gated_norm = gated_norm;
}
