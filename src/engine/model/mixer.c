/*
 * Layers that keep a state in place of keys and values: the gated delta rule after a short
 * convolution (Yang et al., Gated Delta Networks, arXiv:2412.06464; as in Qwen3-Next and Qwen3.5).
 *
 *     q|k|v = silu(conv(Wqkv a))    z = Wz a    b, a' = Wb a, Wa a        a = NORM(x, attn_norm)
 *     o = scan(q, k, v, b, a')      x += Wo (NORM(o) * silu(z))
 *
 * Mamba-2 (Dao and Gu, arXiv:2405.21060) is the same walk with another scan: C, B and x stand for
 * q, k and v, the time step for a', and the gate comes before the norm.
 *
 * Or a short convolution between two gates alone, of which only inputs are kept (LFM2):
 *
 *     B|C|x = Win a      x += Wout (C * conv(B * x))
 *
 * Every row changes the state, so every row that enters the layer is scanned, in order. Only rows
 * that go on need z, o and the later products.
 *
 * SwiftKV on such layers: everything that a row writes is made of x_l, the hidden state at the
 * stack's boundary, so rows that stop there write all the same. With n = NORM(x_l, norm_swiftkv):
 *
 *     k|v = silu(conv(Wkv n))    b, a' = Wb n, Wa n
 *     q_t = silu(w_K-1 Wq a_t + sum_j<K-1 w_j Wq n_t-K+1+j)                z = Wz a
 *
 * The newest input of q's convolution is that of the layer itself, and the older ones are of n:
 * they are there, whether those rows have gone on or not.
 */
#include <assert.h>

#include "model/pass.h"

typedef struct delta {
    const skv_pass *p;
    const skv_layer *layer;
    const skv_delta *w;
    const skv_mixer_shape *m;
    size_t i;
    bool mamba;
    bool fed;                                 /* by the stack's boundary */
    size_t n_keys, n_values, n_conv, n_gates; /* columns: of q, of v, of q|k|v, of b|a */
} delta;

static delta delta_of(const skv_pass *p, size_t i)
{
    const skv_mixer_shape *m = &p->c->mixer;
    const skv_layer *layer = &p->m->layers[i];
    const bool fed = p->plan->layers[i].source == SKV_KV_SOURCE_STACK;
    return (delta){.p = p,
                   .layer = layer,
                   .w = fed ? &layer->fed : &layer->delta,
                   .fed = fed,
                   .m = m,
                   .i = i,
                   .mamba = skv_config_is_mamba(p->c, i),
                   .n_gates = skv_config_gate_columns(p->c, i),
                   .n_keys = skv_mixer_key_columns(m),
                   .n_values = skv_mixer_value_columns(m),
                   .n_conv = skv_mixer_conv_columns(m)};
}

/* Parts [part0, part1) of the rows that are left: y has ldy columns. */
static void run_parts(const delta *d, size_t part0, size_t part1, skv_rows y)
{
    const skv_pass *p = d->p;
    p->be->linear(p->be, &(skv_linear_args){.w = d->w->in,
                                            .part0 = part0,
                                            .part1 = part1,
                                            .y = y,
                                            .x = p->ws->x,
                                            .n_rows = p->n_alive,
                                            .norm = skv_pass_norm(p, d->layer->attn_norm)});
}

/* b|a, or dt, of all rows, from the input of the state. */
static void run_gates(const delta *d, skv_rows x, skv_vec norm)
{
    const skv_pass *p = d->p;
    p->be->linear(p->be, &(skv_linear_args){.w = d->w->gates,
                                            .y = skv_rows_as(p->ws->gates, d->n_gates),
                                            .x = x,
                                            .n_rows = p->n_rows,
                                            .norm = skv_pass_norm(p, norm)});
}

/* The convolution of k|v or of q, which begins at channel 0: of args->x, and so on. */
static void convolve(const delta *d, skv_conv_args args)
{
    const skv_pass *p = d->p;
    args.step = p->ws->step;
    args.states = p->states;
    args.layer = p->plan->layers[d->i].state;
    args.weight = args.column0 ? d->w->conv_kv : d->w->conv_q;
    args.bias = args.column0 ? d->w->conv_kv_bias : d->w->conv_q_bias;
    args.silu = true;
    p->be->conv(p->be, &args);
}

/* Of q, for the rows that are left. */
static void convolve_q(const delta *d, skv_rows x, skv_rows y)
{
    convolve(d, (skv_conv_args){.set = d->p->set, .n = d->n_keys, .x = x, .y = y});
}

/* Of k|v, in place, for all rows. */
static void convolve_kv(const delta *d, skv_rows kv)
{
    convolve(d, (skv_conv_args){.set = SKV_SET_ALL,
                                .column0 = d->n_keys,
                                .n = d->n_conv - d->n_keys,
                                .x = kv,
                                .y = kv});
}

/* o of the rows of a set; q is theirs, k|v are all rows'. */
static void scan(const delta *d, skv_rows q, skv_rows k, skv_row_set set)
{
    const skv_pass *p = d->p;
    const size_t nv = d->m->n_value_heads;
    const skv_rows gates = skv_rows_as(p->ws->gates, d->n_gates);
    p->be->scan(p->be, &(skv_scan_args){.step = p->ws->step,
                                        .set = set,
                                        .states = p->states,
                                        .layer = p->plan->layers[d->i].state,
                                        .q = q,
                                        .k = k,
                                        .v = skv_rows_from(k, 0, d->n_keys),
                                        .decay = skv_rows_from(gates, 0, d->mamba ? 0 : nv),
                                        .write = d->mamba ? (skv_rows){0} : gates,
                                        .out = skv_rows_as(p->ws->o, d->n_values),
                                        .rate = d->w->rate,
                                        .dt_bias = d->w->dt_bias,
                                        .skip = d->w->skip,
                                        .dt_min = (float)d->m->dt_min,
                                        .dt_max = (float)d->m->dt_max,
                                        .write_max = (float)d->m->write_max});
}

static void gate(const delta *d, skv_rows z)
{
    const skv_pass *p = d->p;
    const skv_norm norm = {d->w->norm, 0, (float)d->m->norm_eps, false};
    const size_t n_groups = d->mamba ? d->m->n_key_heads : d->m->n_value_heads;
    p->be->gated_norm(p->be, &(skv_gated_norm_args){.x = skv_rows_as(p->ws->o, d->n_values),
                                                    .z = z,
                                                    .n_rows = p->n_alive,
                                                    .n_groups = n_groups,
                                                    .n = d->n_values / n_groups,
                                                    .norm = norm,
                                                    .weight_per_group = d->mamba,
                                                    .gate_first = d->m->gate_first});
}

/* Operations of n_rows rows of which n_out come out, and of n_q rows of q. */
static void count(const delta *d, size_t n_rows, size_t n_out, size_t n_q)
{
    skv_work *work = d->p->work;
    const size_t D = d->p->c->hidden;
    work->q += skv_work_product(n_q, D, d->n_keys) + skv_work_product(n_out, D, d->n_values);
    work->kv += skv_work_product(n_rows, D, d->n_keys + d->n_values + d->n_gates);
    work->attention += (double)n_out * skv_config_state_work(d->p->c, d->i, true) +
                       (double)(n_rows - n_out) * skv_config_state_work(d->p->c, d->i, false);
}

static void mix_all(const delta *d)
{
    const skv_pass *p = d->p;
    const skv_rows in = skv_rows_as(p->ws->qkv, d->n_conv + d->n_values);
    const skv_rows k = skv_rows_from(in, 0, d->n_keys);
    run_gates(d, p->ws->x, d->layer->attn_norm);
    run_parts(d, SKV_DELTA_Q, SKV_DELTA_END, in);
    convolve_q(d, in, in);
    convolve_kv(d, k);
    scan(d, in, k, p->set);
    gate(d, skv_rows_from(in, 0, d->n_conv));
}

/* All rows change the state and the convolution's inputs, and only wanted ones come out. */
static void mix_wanted(const delta *d, skv_pass *p)
{
    const skv_rows in = skv_rows_as(p->ws->qkv, d->n_conv), q = skv_rows_as(p->ws->h, d->n_keys);
    const skv_rows k = skv_rows_from(in, 0, d->n_keys), z = skv_rows_as(p->ws->h, d->n_values);
    run_gates(d, p->ws->x, d->layer->attn_norm);
    run_parts(d, SKV_DELTA_Q, SKV_DELTA_Z, in);
    convolve_kv(d, k);
    skv_pass_keep_wanted(p);
    convolve_q(d, in, q);
    scan(d, q, k, p->set);
    if (p->n_alive == 0) return;
    run_parts(d, SKV_DELTA_Z, SKV_DELTA_END, z);
    gate(d, z);
}

/* ---- fed by the stack's boundary ---- */

/* Parts [part0, part1) of the boundary's rows of a set. */
static void run_fed(const delta *d, size_t part0, size_t part1, skv_row_set set, skv_rows y)
{
    const skv_pass *p = d->p;
    p->be->linear(p->be, &(skv_linear_args){.w = d->w->in,
                                            .part0 = part0,
                                            .part1 = part1,
                                            .y = y,
                                            .x = p->ws->boundary,
                                            .n_rows = p->spec.sets[set].n_rows,
                                            .step = p->ws->step,
                                            .set = set,
                                            .norm = skv_pass_norm(p, p->m->stack.norm)});
}

/* All rows change the state. Rows of TAPS leave their inputs of q's convolution, and the rows that
 * are left, n_alive of `set`, come out: none, where there are none. */
static void mix_fed(const delta *d, skv_row_set set, size_t n_alive)
{
    const skv_pass *p = d->p;
    const size_t n_kv = d->n_conv - d->n_keys;
    const skv_rows kv = skv_rows_as(p->ws->qkv, d->n_conv), q = skv_rows_from(kv, 0, n_kv);
    const skv_rows taps = skv_rows_as(p->ws->h, d->n_keys);
    run_gates(d, p->ws->boundary, p->m->stack.norm);
    run_fed(d, SKV_DELTA_K, SKV_DELTA_Z, SKV_SET_ALL, kv);
    convolve_kv(d, kv);
    run_fed(d, SKV_DELTA_Q, SKV_DELTA_K, SKV_SET_TAPS, taps);
    if (n_alive > 0) run_parts(d, SKV_DELTA_Q, SKV_DELTA_K, q);
    convolve(
        d, (skv_conv_args){
               .set = set, .given = SKV_SET_TAPS, .n = d->n_keys, .x = taps, .newest = q, .y = q});
    scan(d, q, kv, set);
    count(d, p->n_rows, n_alive, n_alive + p->spec.sets[SKV_SET_TAPS].n_rows);
    if (n_alive == 0) return;
    const skv_rows z = skv_rows_as(p->ws->h, d->n_values);
    run_parts(d, SKV_DELTA_Z, SKV_DELTA_END, z);
    gate(d, z);
}

void skv_pass_keep_boundary(const skv_pass *p, size_t end)
{
    if (skv_plan_next_fed(p->plan, 0) >= end) return;
    p->be->copy_rows(p->be, p->ws->boundary, p->ws->x, p->n_rows, p->c->hidden);
}

void skv_pass_feed_states(const skv_pass *p, size_t i, size_t end)
{
    const skv_plan *plan = p->plan;
    for (i = skv_plan_next_fed(plan, i); i < end; i = skv_plan_next_fed(plan, i + 1)) {
        const delta d = delta_of(p, i);
        assert(p->n_alive == 0);
        mix_fed(&d, p->set, 0);
    }
}

static size_t mix_delta(skv_pass *p, size_t i, bool wanted_only)
{
    const delta d = delta_of(p, i);
    if (d.fed) {
        if (wanted_only) skv_pass_keep_wanted(p);
        mix_fed(&d, p->set, p->n_alive);
        return d.n_values;
    }
    assert(p->set == SKV_SET_ALL);
    if (wanted_only) {
        mix_wanted(&d, p);
    } else {
        mix_all(&d);
    }
    count(&d, p->n_rows, p->n_alive, p->n_rows);
    return d.n_values;
}

/* ---- a short convolution alone ---- */

/* Parts [part0, part1) of the rows that are left. */
static void run_conv_parts(const skv_pass *p, size_t i, size_t part0, size_t part1, skv_rows y)
{
    const skv_layer *layer = &p->m->layers[i];
    p->be->linear(p->be, &(skv_linear_args){.w = layer->conv.in,
                                            .part0 = part0,
                                            .part1 = part1,
                                            .y = y,
                                            .x = p->ws->x,
                                            .n_rows = p->n_alive,
                                            .norm = skv_pass_norm(p, layer->attn_norm)});
    p->work->kv += skv_work_product(p->n_alive, p->c->hidden, (part1 - part0) * p->c->hidden);
}

/* All rows enter the convolution, with `wanted_only` only wanted ones come out of it. */
static size_t mix_conv(skv_pass *p, size_t i, bool wanted_only)
{
    assert(p->set == SKV_SET_ALL);
    const size_t D = p->c->hidden, n_parts = wanted_only ? SKV_CONV_C : SKV_CONV_END;
    const skv_rows in = skv_rows_as(p->ws->qkv, n_parts * D);
    skv_rows out_gate = skv_rows_from(in, 0, SKV_CONV_C * D);
    run_conv_parts(p, i, SKV_CONV_B, n_parts, in);
    if (wanted_only) {
        skv_pass_keep_wanted(p);
        out_gate = skv_rows_as(p->ws->h, D);
        if (p->n_alive > 0) run_conv_parts(p, i, SKV_CONV_C, SKV_CONV_END, out_gate);
    }
    p->be->conv(p->be, &(skv_conv_args){.step = p->ws->step,
                                        .set = p->set,
                                        .states = p->states,
                                        .layer = p->plan->layers[i].state,
                                        .n = D,
                                        .x = skv_rows_from(in, 0, SKV_CONV_X * D),
                                        .gate_in = in,
                                        .y = skv_rows_as(p->ws->o, D),
                                        .gate_out = out_gate,
                                        .weight = p->m->layers[i].conv.taps});
    p->work->attention += (double)p->n_rows * skv_config_state_work(p->c, i, true);
    return D;
}

size_t skv_pass_mix(skv_pass *p, size_t i, bool wanted_only)
{
    assert(p->states);
    if (p->c->layers[i].mixer == SKV_MIXER_CONV) return mix_conv(p, i, wanted_only);
    return mix_delta(p, i, wanted_only);
}
