/* Linear attention of the guarded back end: see guarded_backend.h. */
#include <stdlib.h>
#include <string.h>

#include "guarded_state.h"

static skv_status guarded_states_create(skv_backend *base, const skv_states_spec *spec,
                                        skv_states **out, skv_error *err)
{
    guarded *g LEAVES = guarded_inside(base);
    skv_states *inner;
    SKV_TRY(g->cpu->states_create(g->cpu, spec, &inner, err));
    const size_t n_bytes = spec->n_layers * sizeof *spec->layers;
    *out = guarded_take(sizeof **out + n_bytes);
    **out = (skv_states){g, inner, spec->n_states};
    memcpy((*out)->layers, spec->layers, n_bytes);
    g->n_states++;
    return SKV_OK;
}

static void guarded_states_free(skv_backend *base, skv_states *states)
{
    guarded *g LEAVES = guarded_inside(base);
    if (!states) return;
    guarded_run(g);
    g->cpu->states_free(g->cpu, states->inner);
    g->n_states--;
    free(states);
}

static skv_bytes guarded_states_bytes(const skv_backend *base, const skv_states_spec *spec)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return cpu->states_bytes(cpu, spec);
}

static skv_states *states_of(const guarded *g, const skv_states *states, size_t i)
{
    if (states->of != g) guarded_die("states of another back end");
    if (i >= states->n_states) guarded_die("a state beyond the last one");
    return states->inner;
}

typedef struct copied {
    skv_states *to, *from; /* from NULL: zeros */
    size_t i, j;
} copied;

static void replay_copy(guarded *g, void *args)
{
    const copied *c = args;
    if (c->from) {
        g->cpu->state_copy(g->cpu, c->to, c->i, c->from, c->j);
    } else {
        g->cpu->state_clear(g->cpu, c->to, c->i);
    }
}

static void guarded_state_copy(skv_backend *base, skv_states *to, size_t i, const skv_states *from,
                               size_t j)
{
    guarded *g LEAVES = guarded_begin(base);
    const copied c = {states_of(g, to, i), states_of(g, from, j), i, j};
    guarded_later(g, replay_copy, &c, sizeof c);
}

static void guarded_state_clear(skv_backend *base, skv_states *states, size_t i)
{
    guarded *g LEAVES = guarded_begin(base);
    const copied c = {states_of(g, states, i), NULL, i, 0};
    guarded_later(g, replay_copy, &c, sizeof c);
}

static void guarded_state_read(skv_backend *base, unsigned char *host, const skv_states *states,
                               size_t i)
{
    guarded *g LEAVES = guarded_begin(base);
    guarded_wait(g);
    g->cpu->state_read(g->cpu, host, states_of(g, states, i), i);
}

static bool guarded_state_write(skv_backend *base, skv_states *states, size_t i,
                                const unsigned char *host, size_t n_past)
{
    guarded *g LEAVES = guarded_inside(base);
    guarded_run(g);
    return g->cpu->state_write(g->cpu, states_of(g, states, i), i, host, n_past);
}

/* Spans of a step are in states of their own, of the ones that an operation names. */
static void check_states(const guarded *g, const skv_states *states, const skv_backend_step *step)
{
    for (size_t i = 0; i < step->n_spans; i++) {
        (void)states_of(g, states, step->spans[i].state);
        for (size_t j = 0; j < i; j++) {
            if (step->spans[i].state == step->spans[j].state) guarded_die("a state of two spans");
        }
    }
}

REPLAYS(conv)

static void guarded_conv(skv_backend *base, const skv_conv_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_conv_args a = *args;
    const skv_set_spec *set = guarded_set(g, a.step, a.set);
    const size_t n_given = guarded_set(g, a.step, a.given)->n_rows;
    const skv_state_layer *l = &a.states->layers[a.layer];
    check_states(g, a.states, a.step);
    if (a.column0 + a.n > l->conv_columns) guarded_die("channels that a layer does not have");
    if (a.x.area != a.y.area || a.x.at != a.y.at || a.x.ld != a.y.ld) {
        guarded_check_apart(a.x, n_given, a.n, a.y, set->n_rows, a.n);
    }
    a.step = a.step->inner;
    a.states = a.states->inner;
    a.x = guarded_rows(g, a.x, n_given, a.n);
    a.gate_in = guarded_rows_or_none(g, a.gate_in, n_given, a.n);
    a.newest = guarded_rows_or_none(g, a.newest, set->n_rows, a.n);
    a.y = guarded_rows_or_none(g, a.y, set->n_rows, a.n);
    a.gate_out = guarded_rows_or_none(g, a.gate_out, set->n_rows, a.n);
    a.weight = guarded_vec(g, a.weight, l->conv_taps * a.n);
    a.bias = guarded_vec(g, a.bias, a.n);
    LATER(g, conv, a);
}

REPLAYS(scan)

static void guarded_scan(skv_backend *base, const skv_scan_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_scan_args a = *args;
    const skv_set_spec *set = guarded_set(g, a.step, a.set);
    const size_t T = a.step->n_rows;
    const skv_state_layer *l = &a.states->layers[a.layer];
    const size_t nv = l->n_value_heads, keys = l->n_key_heads * l->key_dim;
    check_states(g, a.states, a.step);
    guarded_check_apart(a.v, T, nv * l->value_dim, a.out, set->n_rows, nv * l->value_dim);
    a.step = a.step->inner;
    a.states = a.states->inner;
    a.q = guarded_rows_or_none(g, a.q, set->n_rows, keys);
    a.k = guarded_rows(g, a.k, T, keys);
    a.v = guarded_rows(g, a.v, T, nv * l->value_dim);
    a.out = guarded_rows_or_none(g, a.out, set->n_rows, nv * l->value_dim);
    a.decay = guarded_floats(g, a.decay, T, nv);
    if (l->kind == SKV_SCAN_GATED_DELTA) a.write = guarded_floats(g, a.write, T, nv);
    a.rate = guarded_vec(g, a.rate, nv);
    a.dt_bias = guarded_vec(g, a.dt_bias, nv);
    a.skip = guarded_vec(g, a.skip, nv);
    LATER(g, scan, a);
}

REPLAYS(gated_norm)

static void guarded_gated_norm(skv_backend *base, const skv_gated_norm_args *args)
{
    guarded *g LEAVES = guarded_begin(base);
    skv_gated_norm_args a = *args;
    const size_t n = a.n_groups * a.n;
    guarded_check_apart(a.z, a.n_rows, n, a.x, a.n_rows, n);
    a.x = guarded_rows(g, a.x, a.n_rows, n);
    a.z = guarded_rows(g, a.z, a.n_rows, n);
    a.norm = guarded_norm_of(g, a.norm, a.weight_per_group ? n : a.n);
    LATER(g, gated_norm, a);
}

void guarded_add_states(skv_backend *base)
{
    base->states_create = guarded_states_create;
    base->states_free = guarded_states_free;
    base->states_bytes = guarded_states_bytes;
    base->state_copy = guarded_state_copy;
    base->state_clear = guarded_state_clear;
    base->state_read = guarded_state_read;
    base->state_write = guarded_state_write;
    base->conv = guarded_conv;
    base->scan = guarded_scan;
    base->gated_norm = guarded_gated_norm;
}
