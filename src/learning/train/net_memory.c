/* The memory of a training step: laid out twice by the same code, to count it and to take it. */
#include "base/mem.h"
#include "base/size.h"
#include "train/net_impl.h"

enum { LOGIT_FLOATS = 16 << 20 /* of one tile of logits, about */ };

static float *take(skv_net *net, size_t n)
{
    float *at = net->memory ? net->memory + net->n_memory : NULL;
    net->n_memory += skv_round_up(n, SKV_ALIGN / sizeof(float));
    return at;
}

/* Whether unrotated keys are needed beside the rotated ones. */
static bool keeps_raw_keys(const skv_net *net)
{
    return net->config->qk_norm || net->predict;
}

static uint32_t *take_numbers(skv_net *net, size_t n)
{
    return (uint32_t *)(void *)take(net, n);
}

static void lay_out_routes(skv_net *net, skv_net_routes *r, size_t n_experts)
{
    size_t T = net->options.max_tokens, k = net->config->n_active;
    if (n_experts == 0) return;
    r->logits = take(net, T * n_experts);
    r->weights = take(net, T * k);
    r->chosen = take_numbers(net, T * k);
    r->place = take_numbers(net, T * k);
    r->row = take_numbers(net, T * k);
    r->first = take_numbers(net, n_experts + 1);
}

/* Lays out the activations of a layer with a state, apart from those of lay_out_block. */
static void lay_out_state(skv_net *net, skv_net_kept *a, bool deep)
{
    const skv_config *c = net->config;
    const size_t T = net->options.max_tokens, nv = c->mixer.n_value_heads;
    const size_t n_keys = skv_mixer_key_columns(&c->mixer);
    const size_t n_values = skv_mixer_value_columns(&c->mixer);
    const skv_delta_shape shape = skv_net_delta_shape(c);
    a->q = take(net, T * n_keys);
    a->q_raw = take(net, T * n_keys);
    a->q_older = deep ? take(net, T * n_keys) : a->q_raw;
    a->k = take(net, T * n_keys);
    a->k_raw = take(net, T * n_keys);
    a->v = take(net, T * n_values);
    a->v_raw = take(net, T * n_values);
    a->a = take(net, T * nv);
    a->b = take(net, T * nv);
    a->states = take(net, skv_delta_rule_kept(&shape, T));
    a->z = take(net, T * n_values);
    a->o = take(net, T * n_values);
}

/* Lays out the activations around a layer's mixer. */
static void lay_out_block(skv_net *net, skv_net_kept *a, const skv_layer_shape *shape)
{
    const size_t T = net->options.max_tokens, D = net->config->hidden;
    a->x = take(net, T * D);
    a->mid = take(net, T * D);
    a->gate = take(net, T * shape->ffn);
    a->up = take(net, T * shape->ffn);
    lay_out_routes(net, &a->routes, shape->n_experts);
}

/* Lays out the activations of one layer; shape.ffn is that of skv_net_inner. An AcrossKV reader
 * shares the first layer's keys and values. */
static void lay_out_layer(skv_net *net, skv_net_kept *a, skv_layer_shape shape,
                          const skv_net_kept *kv)
{
    size_t T = net->options.max_tokens;
    size_t n_q = shape.n_heads * net->config->head_dim;
    size_t n_kv = shape.n_kv_heads * net->config->head_dim;
    lay_out_block(net, a, &shape);
    a->q = take(net, T * n_q);
    a->q_raw = net->config->qk_norm ? take(net, T * n_q) : a->q;
    a->o = take(net, T * n_q);
    a->lse = take(net, T * shape.n_heads);
    a->z = take(net, net->config->attention_gate ? T * n_q : 0);
    if (kv) {
        a->k = kv->k;
        a->k_raw = kv->k_raw;
        a->v = kv->v;
        return;
    }
    a->k = take(net, T * n_kv);
    a->k_raw = keeps_raw_keys(net) ? take(net, T * n_kv) : a->k;
    a->v = take(net, T * n_kv);
}

static void lay_out_kept(skv_net *net)
{
    const skv_net_kept *kv = NULL;
    for (size_t i = 0; i < net->config->n_layers; i++) {
        skv_net_layer *layer = &net->layers[i];
        if (!layer->keep) continue;
        bool reads = i >= net->kv_from && !layer->swiftkv.k.w;
        skv_layer_shape shape = net->config->layers[i];
        shape.ffn = skv_net_inner(net, i);
        if (skv_config_keeps_state(net->config, i)) {
            lay_out_block(net, &layer->kept, &shape);
            lay_out_state(net, &layer->kept, i >= net->kv_from);
            continue;
        }
        lay_out_layer(net, &layer->kept, shape, reads ? kv : NULL);
        if (!reads) kv = &layer->kept;
    }
}

/* Columns of the widest output that has a gate. */
static size_t gated_columns(const skv_net *net)
{
    const skv_config *c = net->config;
    const size_t n_q = c->attention_gate ? net->max_heads * c->head_dim : 0;
    return skv_max_size(n_q, skv_mixer_value_columns(&c->mixer));
}

/* Lays out the memory that all layers with a state, or with a gate, share. */
static void lay_out_mixing(skv_net *net)
{
    const skv_config *c = net->config;
    const size_t T = net->options.max_tokens, n_threads = skv_pool_threads(net->pool);
    net->gated = take(net, T * gated_columns(net));
    if (!skv_config_is_hybrid(c)) return;
    const skv_delta_shape shape = skv_net_delta_shape(c);
    net->ungated = take(net, T * skv_mixer_value_columns(&c->mixer));
    net->rates = take(net, 4 * c->mixer.n_value_heads);
    net->delta_scratch = take(net, n_threads * skv_delta_rule_scratch(&shape));
    net->scratch_state = net->scratch;
    lay_out_state(net, &net->scratch_state, true);
}

static void lay_out_backward(skv_net *net)
{
    size_t T = net->options.max_tokens, D = net->config->hidden, Dh = net->config->head_dim;
    size_t n_q = net->max_heads * Dh, n_kv = net->max_kv_heads * Dh;
    const bool hybrid = skv_config_is_hybrid(net->config);
    net->dstate = take(net, hybrid ? T * skv_net_state_columns(net->config) : 0);
    net->d_gated = take(net, T * gated_columns(net));
    net->dh = take(net, T * net->max_ffn);
    net->dx = take(net, T * D);
    net->da = take(net, T * D);
    net->dswift = take(net, T * D);
    net->dq = take(net, T * n_q);
    net->d_o = take(net, T * n_q);
    net->dk = take(net, T * n_kv);
    net->dv = take(net, T * n_kv);
    net->dk_heads = take(net, T * n_q);
    net->dv_heads = take(net, T * n_q);
    net->delta = take(net, T * net->max_heads);
    size_t widest = skv_max_size(skv_max_size(D, n_q), net->max_ffn);
    widest = skv_max_size(widest, net->config->mixer.value_dim);
    net->partial = take(net, SKV_NET_PARTS * widest);
}

static void lay_out_loss(skv_net *net)
{
    size_t T = net->options.max_tokens, D = net->config->hidden, V = net->config->vocab;
    bool kl = net->options.loss == SKV_LOSS_KL;
    net->loss_rows = skv_min_size(T, skv_max_size(32, LOGIT_FLOATS / V));
    net->logits = take(net, net->loss_rows * V);
    net->logits_t = kl ? take(net, net->loss_rows * V) : NULL;
    net->tile = take(net, net->loss_rows * D);
    net->tile_t = take(net, net->loss_rows * D);
    net->final = take(net, T * D);
    net->final_t = kl ? take(net, T * D) : NULL;
    net->hidden_t = take(net, T * D);
    net->row_loss = (double *)(void *)take(net, 2 * T);
    bool exits = net->options.early_exit;
    net->exit_loss = exits ? (double *)(void *)take(net, 2 * T) : NULL;
    net->top = exits ? take_numbers(net, T) : NULL;
    net->exit_seen = exits ? take_numbers(net, T) : NULL;
    net->loss_list = take_numbers(net, T);
    net->segments = take_numbers(net, T + 1);
}

static void lay_out(skv_net *net)
{
    size_t T = net->options.max_tokens, D = net->config->hidden;
    size_t n_pairs = net->max_experts > 0 ? T * net->config->n_active : 0;
    skv_layer_shape largest = {.n_heads = net->max_heads,
                               .n_kv_heads = net->max_kv_heads,
                               .ffn = net->max_ffn,
                               .n_experts = net->max_experts};
    net->n_memory = 0;
    lay_out_kept(net);
    net->n_kept = net->n_memory;
    lay_out_layer(net, &net->scratch, largest, NULL);
    lay_out_mixing(net);
    net->x_last = take(net, T * D);
    net->x_shared = take(net, T * D);
    net->swift = take(net, T * D);
    net->normed = take(net, T * D);
    net->h = take(net, T * net->max_ffn);
    net->expert_x = take(net, n_pairs * D);
    net->expert_y = take(net, n_pairs * D);
    net->dweights = take(net, n_pairs);
    net->balance = take(net, net->max_experts);
    net->attention_tiles = take(net, skv_pool_threads(net->pool) * skv_net_attention_tile_floats());
    for (size_t i = 0; i < 2; i++) {
        net->cos[i] = take(net, T * net->ropes[i].n);
        net->sin[i] = take(net, T * net->ropes[i].n);
    }
    net->wide = take(net, net->widest);
    net->wide_codes = (uint8_t *)take_numbers(
        net, skv_ceil_div(skv_pool_threads(net->pool) * net->widest_row, sizeof(uint32_t)));
    lay_out_backward(net);
    lay_out_loss(net);
}

skv_status skv_net_memory_take(skv_net *net, skv_error *err)
{
    for (size_t i = 0; i < net->config->n_layers; i++) {
        const skv_layer_shape *shape = &net->config->layers[i];
        net->max_heads = skv_max_size(net->max_heads, shape->n_heads);
        net->max_kv_heads = skv_max_size(net->max_kv_heads, shape->n_kv_heads);
        net->max_ffn = skv_max_size(net->max_ffn, skv_net_inner(net, i));
        net->max_experts = skv_max_size(net->max_experts, shape->n_experts);
    }
    lay_out(net);
    if (net->options.plan) return SKV_OK;
    net->memory = skv_map_zero(net->n_memory * sizeof(float));
    SKV_REQUIRE(net->memory, err, SKV_MEMORY, "training: no memory for %zu bytes of activations",
                net->n_memory * sizeof(float));
    lay_out(net);
    return SKV_OK;
}
