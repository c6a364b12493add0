/*
 * The layers, backward: dx holds the gradient of a layer's output and becomes that of its input.
 * Gradients are only formed for trained weights.
 */
#include <string.h>

#include "base/size.h"
#include "train/net_impl.h"

static bool trained(const skv_param *p)
{
    return p && p->grad;
}

/* da = the gradient of the MLP's normed input; gate and up of the layer are used up. */
static void back_dense(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_kept *a = &layer->kept;
    size_t T = p->batch->n_tokens, D = net->config->hidden, F = net->config->layers[i].ffn;
    if (skv_net_linear_trained(&layer->down)) {
        skv_net_silu_glu(net, net->h, a->gate, a->up, T * F);
        skv_net_mul_grad(p, net->dx, net->h, &layer->down);
    }
    skv_net_mul_back(p, net->dh, net->dx, &layer->down, false);
    skv_net_silu_glu_back(net, a->gate, a->up, net->dh, T * F);
    if (skv_net_linear_trained(&layer->gate) || skv_net_linear_trained(&layer->up)) {
        skv_net_norm(net, net->normed, a->mid, layer->ffn_norm->w, T, D);
        skv_net_mul_grad(p, a->gate, net->normed, &layer->gate);
        skv_net_mul_grad(p, a->up, net->normed, &layer->up);
    }
    skv_net_mul_back(p, net->da, a->gate, &layer->gate, false);
    skv_net_mul_back(p, net->da, a->up, &layer->up, true);
}

/* dx += the gradient through the feed-forward block. */
static void back_mlp(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    if (layer->experts) {
        skv_net_back_experts(p, i);
    } else {
        back_dense(p, i);
    }
    skv_net_norm_back(net, net->dx, net->da, layer->kept.mid, layer->ffn_norm, p->batch->n_tokens,
                      net->config->hidden);
}

/* Turns the gradient after rotation and norm into that of the projection's output. The result is in
 * the returned array. */
static float *back_heads(const skv_net_pass *p, size_t i, float *d, float *spare, const float *raw,
                         const skv_param *norm, size_t n_heads)
{
    skv_net *net = p->net;
    size_t T = p->batch->n_tokens, Dh = net->config->head_dim;
    skv_net_rotate(net, d, T, n_heads, net->config->layers[i].i_rope, true);
    if (!norm) return d;
    memset(spare, 0, T * n_heads * Dh * sizeof *spare);
    skv_net_norm_back(net, spare, d, raw, norm, T * n_heads, Dh);
    return spare;
}

/* dsource (+)= the gradient through k and v, of the sums in dk and dv. */
static void back_kv(const skv_net_pass *p, size_t i, const skv_net_projections *from,
                    const float *source, float *dsource)
{
    skv_net *net = p->net;
    const skv_net_kept *a = &net->layers[i].kept;
    size_t Hk = net->config->layers[i].n_kv_heads;
    float *dk = back_heads(p, i, net->dk, net->dk_heads, a->k_raw, from->k_norm, Hk);
    if (p->watch && p->watch->add) p->watch->add(p->watch->user, p, i, dk, net->dv);
    skv_net_mul_grad(p, dk, source, &from->k);
    skv_net_mul_grad(p, net->dv, source, &from->v);
    skv_net_mul_back(p, dsource, dk, &from->k, true);
    skv_net_mul_back(p, dsource, net->dv, &from->v, true);
}

static void clear_kv(const skv_net_pass *p, size_t i)
{
    size_t n = p->batch->n_tokens * p->net->config->layers[i].n_kv_heads * p->net->config->head_dim;
    memset(p->net->dk, 0, n * sizeof(float));
    memset(p->net->dv, 0, n * sizeof(float));
}

/* The last layer of those that share a pair of keys and values is the first to add to it. */
static bool is_last_reader(const skv_net_pass *p, size_t i)
{
    const skv_net *net = p->net;
    if (!p->student || i < net->kv_from) return true;
    return (i + 1 - net->kv_from) % net->config->kv_group == 0;
}

/* net->d_o = the gradient of attention's output; z, where it has a gate, becomes its gradient. */
static void back_output(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_kept *a = &layer->kept;
    if (!layer->z.w) {
        skv_net_mul_grad(p, net->dx, a->o, &layer->o);
        skv_net_mul_back(p, net->d_o, net->dx, &layer->o, false);
        return;
    }
    const size_t n = p->batch->n_tokens * layer->z.w->n_rows;
    if (skv_net_linear_trained(&layer->o)) skv_net_gate(net, net->gated, a->o, a->z, n);
    skv_net_mul_grad(p, net->dx, net->gated, &layer->o);
    skv_net_mul_back(p, net->d_gated, net->dx, &layer->o, false);
    skv_net_gate_back(net, net->d_o, a->z, net->d_gated, a->o, n);
}

/* da = the gradient of the layer's normed input, which is in net->normed. */
static void back_attention(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_kept *a = &layer->kept;
    bool deep = p->student && i >= net->kv_from;
    const skv_net_projections *from = deep ? &layer->swiftkv : &layer->own;
    back_output(p, i);
    if (is_last_reader(p, i)) clear_kv(p, i);
    skv_net_attend_back(p, i, a);
    size_t H = net->config->layers[i].n_heads;
    float *dq = back_heads(p, i, net->dq, net->d_o, a->q_raw, from->q_norm, H);
    skv_net_mul_grad(p, dq, net->normed, &from->q);
    skv_net_mul_back(p, net->da, dq, &from->q, false);
    if (from->k.w && deep) {
        back_kv(p, i, from, net->swift, net->dswift);
    } else if (from->k.w && (!p->foreign || p->foreign->answers)) {
        back_kv(p, i, from, net->normed, net->da);
    }
    if (!layer->z.w) return;
    skv_net_mul_grad(p, a->z, net->normed, &layer->z);
    skv_net_mul_back(p, net->da, a->z, &layer->z, true);
}

/* The same for a layer that keeps a state. */
static void back_state(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    if (skv_net_linear_trained(&layer->o)) {
        skv_net_gate_state(p, i, &layer->kept);
        skv_net_mul_grad(p, net->dx, net->gated, &layer->o);
    }
    skv_net_mul_back(p, net->d_gated, net->dx, &layer->o, false);
    skv_net_back_state(p, i, &layer->kept);
}

/* dx += the gradient through the mixer. */
static void back_mixer(const skv_net_pass *p, size_t i)
{
    skv_net *net = p->net;
    const skv_net_layer *layer = &net->layers[i];
    const skv_net_kept *a = &layer->kept;
    const size_t T = p->batch->n_tokens, D = net->config->hidden;
    skv_net_norm(net, net->normed, a->x, layer->attn_norm->w, T, D);
    if (skv_config_keeps_state(net->config, i)) {
        back_state(p, i);
    } else {
        back_attention(p, i);
    }
    skv_net_norm_back(net, net->dx, net->da, a->x, layer->attn_norm, T, D);
    if (p->student && i == net->kv_from) {
        skv_net_norm_back(net, net->dx, net->dswift, a->x, net->norm_swiftkv, T, D);
    }
}

/* The hidden loss: dx += mult * 2 (x - x of the teacher) / elements. */
static void back_hidden(const skv_net_pass *p, const float *x, const skv_net_scale *scale)
{
    skv_net *net = p->net;
    size_t n = p->batch->n_tokens * net->config->hidden;
    float factor = (float)(2.0 * net->options.hidden_mult / scale->hidden);
    net->kernels.axpy(net->dx, factor, x, n);
    net->kernels.axpy(net->dx, -factor, net->hidden_t, n);
}

typedef struct embed_job {
    const skv_net_pass *p;
} embed_job;

enum { EMBED_COLUMNS = 64 };

/* Columns are dealt out, so that tokens of the same id are added in order. */
static void embed_columns(void *arg, size_t i_task, size_t i_thread)
{
    const embed_job *j = arg;
    const skv_net *net = j->p->net;
    size_t D = net->config->hidden, column = i_task * EMBED_COLUMNS;
    size_t n = skv_min_size(EMBED_COLUMNS, D - column);
    (void)i_thread;
    for (size_t t = 0; t < j->p->batch->n_tokens; t++) {
        float *grad = net->embedding->grad + (size_t)j->p->batch->ids[t] * D + column;
        net->kernels.axpy(grad, 1.0f, net->dx + t * D + column, n);
    }
}

void skv_net_backward(const skv_net_pass *p, const skv_net_scale *scale)
{
    skv_net *net = p->net;
    size_t L = net->config->n_layers, T = p->batch->n_tokens, D = net->config->hidden;
    skv_net_copy(net, net->da, net->dx, T * D);
    memset(net->dx, 0, T * D * sizeof(float));
    skv_net_norm_back(net, net->dx, net->da, net->x_last, net->final_norm, T, D);
    size_t i = L;
    while (i > 0 && net->layers[i - 1].keep) {
        i--;
        back_mlp(p, i);
        back_mixer(p, i);
        if (i == L - 1 && net->options.hidden_mult > 0) {
            back_hidden(p, net->layers[i].kept.x, scale);
        }
    }
    if (i > 0 || !trained(net->embedding)) return;
    embed_job j = {p};
    skv_pool_run(net->pool, skv_ceil_div(D, EMBED_COLUMNS), embed_columns, &j);
}
