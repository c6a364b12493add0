/* The layers, forward. */
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

static bool keeps(const skv_net_pass *p, size_t i)
{
    return p->keep && i < p->net->config->n_layers && p->net->layers[i].keep;
}

static bool has_state(const skv_net *net, size_t i)
{
    return skv_config_keeps_state(net->config, i);
}

static skv_net_kept *kept_of(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    if (keeps(p, i)) return &net->layers[i].kept;
    return has_state(net, i) ? &net->scratch_state : &net->scratch;
}

float *skv_net_boundary(const skv_net_pass *p, size_t i)
{
    if (i == p->net->config->n_layers) return p->net->x_last;
    return kept_of(p, i)->x;
}

enum { EMBED_ROWS = 64 };

typedef struct embed_job {
    const skv_net_pass *p;
    float *x;
} embed_job;

static void embed_rows(void *arg, size_t i_task, size_t i_thread)
{
    const embed_job *j = arg;
    const skv_net_pass *p = j->p;
    size_t D = p->net->config->hidden, T = p->batch->n_tokens;
    const float *table = skv_net_values(p, p->net->embedding);
    (void)i_thread;
    for (size_t t = i_task * EMBED_ROWS; t < skv_min_size(T, (i_task + 1) * EMBED_ROWS); t++) {
        memcpy(j->x + t * D, table + (size_t)p->batch->ids[t] * D, D * sizeof(float));
    }
}

skv_status skv_net_embed(const skv_net_pass *p, float *x, skv_error *err)
{
    embed_job j = {p, x};
    const skv_param *table = p->net->embedding;
    if (!table->file) {
        skv_pool_run(p->net->pool, skv_ceil_div(p->batch->n_tokens, EMBED_ROWS), embed_rows, &j);
        return SKV_OK;
    }
    for (size_t t = 0; t < p->batch->n_tokens; t++) { /* a thousandth of a step's time */
        size_t row = (size_t)p->batch->ids[t];
        SKV_TRY(skv_tensor_fetch_row(table->file, row, x + t * table->n_columns, err));
    }
    return SKV_OK;
}

/* Head-wise norm and rotation: raw may be the same as out. */
static void finish_heads(const skv_net_pass *p, float *out, float *raw, const skv_param *norm,
                         size_t n_heads, size_t i_rope)
{
    size_t T = p->batch->n_tokens, Dh = p->net->config->head_dim;
    if (norm) {
        skv_net_norm(p->net, out, raw, skv_net_values(p, norm), T * n_heads, Dh);
    } else if (raw != out) {
        skv_net_copy(p->net, out, raw, T * n_heads * Dh);
    }
    skv_net_rotate(p->net, out, T, n_heads, i_rope, false);
}

/* If all visible rows are predicted, a layer's own keys and values are not needed. */
static bool makes_kv(const skv_net_pass *p)
{
    return !p->foreign || p->foreign->answers;
}

static void run_attention(const skv_net_pass *p, size_t i, skv_net_kept *a)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_layer_shape *shape = &net->config->layers[i];
    bool deep = p->student && i >= net->kv_from;
    const skv_net_projections *from = deep ? &layer->swiftkv : &layer->own;
    if (deep) {
        skv_net_mul(p, a->q_raw, net->normed, &from->q, false);
        if (from->k.w) {
            skv_net_mul_all(p, (float *const[3]){a->k_raw, a->v}, net->swift,
                            (const skv_net_linear *const[3]){&from->k, &from->v});
        }
    } else if (!makes_kv(p)) {
        skv_net_mul(p, a->q_raw, net->normed, &from->q, false);
    } else {
        skv_net_mul_all(p, (float *const[3]){a->q_raw, a->k_raw, a->v}, net->normed,
                        (const skv_net_linear *const[3]){&from->q, &from->k, &from->v});
    }
    if (p->watch && p->watch->read) p->watch->read(p->watch->user, p, i, a);
    finish_heads(p, a->q, a->q_raw, from->q_norm, shape->n_heads, shape->i_rope);
    if (from->k.w && makes_kv(p)) {
        finish_heads(p, a->k, a->k_raw, from->k_norm, shape->n_kv_heads, shape->i_rope);
    }
    skv_net_attend(p, i, a);
}

/* Returns the mixer's output before its last product; net->normed is its input. */
static const float *mix(const skv_net_pass *p, size_t i, skv_net_kept *a)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    if (has_state(net, i)) {
        skv_net_run_state(p, i, a);
        skv_net_gate_state(p, i, a);
        return net->gated;
    }
    run_attention(p, i, a);
    if (!layer->z.w) return a->o;
    skv_net_mul(p, a->z, net->normed, &layer->z, false);
    skv_net_gate(net, net->gated, a->o, a->z, p->batch->n_tokens * layer->z.w->n_rows);
    return net->gated;
}

static void run_mixer(const skv_net_pass *p, size_t i, skv_net_kept *a)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const size_t T = p->batch->n_tokens, D = net->config->hidden;
    skv_net_norm(net, net->normed, a->x, skv_net_values(p, layer->attn_norm), T, D);
    const float *o = mix(p, i, a);
    skv_net_copy(net, a->mid, a->x, T * D);
    skv_net_mul(p, a->mid, o, &layer->o, true);
}

static void run_mlp(const skv_net_pass *p, size_t i, skv_net_kept *a, float *out)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    size_t T = p->batch->n_tokens, D = net->config->hidden, F = net->config->layers[i].ffn;
    skv_net_norm(net, net->normed, a->mid, skv_net_values(p, layer->ffn_norm), T, D);
    if (layer->experts) {
        skv_net_run_experts(p, i, a, out);
        return;
    }
    skv_net_mul_all(p, (float *const[3]){a->gate, a->up}, net->normed,
                    (const skv_net_linear *const[3]){&layer->gate, &layer->up});
    skv_net_silu_glu(net, net->h, a->gate, a->up, T * F);
    skv_net_copy(net, out, a->mid, T * D);
    skv_net_mul(p, out, net->h, &layer->down, true);
}

void skv_net_forward(const skv_net_pass *p, size_t first, size_t end)
{
    skv_net *net = p->net;
    size_t T = p->batch->n_tokens, D = net->config->hidden;
    for (size_t i = first; i < end; i++) {
        skv_net_kept *a = kept_of(p, i);
        if (p->student && i == net->kv_from) {
            skv_net_norm(net, net->swift, a->x, skv_net_values(p, net->norm_swiftkv), T, D);
        }
        run_mixer(p, i, a);
        run_mlp(p, i, a, skv_net_boundary(p, i + 1));
    }
}
