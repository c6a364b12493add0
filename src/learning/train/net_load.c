/*
 * The parameters of a model, by their published names, and the source of their first values: a
 * file, a file without SwiftKV weights (initialised as their authors do, see skv_transform), or a
 * random draw.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "train/net_impl.h"

enum {
    PARAMS_A_LAYER = 32,
    PARAMS_AN_EXPERT = 6,
    PARAMS_OUTSIDE = 5,
    PARAMS_A_MAP = 4,
    PART_NAME_MAX = 64
};

/* A_log and dt_bias of a SwiftKV student: few numbers, and every state depends on them. */
#define RATES_SHARE 0.1f

/* ---- which there are ---- */

skv_param *skv_net_add(skv_net *net, size_t layer, skv_param_role role, const char *name,
                       size_t n_rows, size_t n_columns)
{
    const skv_net_options *o = &net->options;
    skv_param *p = skv_params_add(&net->params, name, n_rows, n_columns);
    p->layer = layer;
    p->role = role;
    p->trainable = o->trainable && o->trainable(o->user, p);
    return p;
}

static skv_param *add_in_layer(skv_net *net, size_t i, skv_param_role role, const char *what,
                               size_t n_rows, size_t n_columns)
{
    char name[SKV_PARAM_NAME_MAX];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%.80s", i, what);
    return skv_net_add(net, i, role, name, n_rows, n_columns);
}

static skv_net_linear add_linear(skv_net *net, size_t i, skv_param_role role, const char *what,
                                 size_t n_rows, size_t n_columns, bool bias)
{
    char name[PART_NAME_MAX];
    skv_net_linear l = {0};
    (void)snprintf(name, sizeof name, "%s.weight", what);
    l.w = add_in_layer(net, i, role, name, n_rows, n_columns);
    if (!bias) return l;
    (void)snprintf(name, sizeof name, "%s.bias", what);
    l.bias = add_in_layer(net, i, role, name, 0, n_rows);
    return l;
}

static float norm_offset(const skv_config *c)
{
    return c->norm_offset_one ? 1.0f : 0.0f;
}

static skv_param *add_norm(skv_net *net, size_t i, skv_param_role role, const char *what, size_t n)
{
    skv_param *p = add_in_layer(net, i, role, what, 0, n);
    p->offset = norm_offset(net->config);
    return p;
}

static skv_net_projections add_projections(skv_net *net, size_t i, skv_param_role role,
                                           bool with_kv)
{
    const skv_config *c = net->config;
    const char *suffix = role == SKV_ROLE_SWIFTKV ? "_swiftkv" : "";
    size_t D = c->hidden, Dh = c->head_dim;
    size_t n_q = c->layers[i].n_heads * Dh, n_kv = c->layers[i].n_kv_heads * Dh;
    char name[PART_NAME_MAX];
    skv_net_projections out = {0};
    (void)snprintf(name, sizeof name, "self_attn.q_proj%s", suffix);
    out.q = add_linear(net, i, role, name, n_q, D, c->qkv_bias);
    if (c->qk_norm) {
        (void)snprintf(name, sizeof name, "self_attn.q_norm%s.weight", suffix);
        out.q_norm = add_norm(net, i, role, name, Dh);
    }
    if (!with_kv) return out;
    (void)snprintf(name, sizeof name, "self_attn.k_proj%s", suffix);
    out.k = add_linear(net, i, role, name, n_kv, D, c->qkv_bias);
    (void)snprintf(name, sizeof name, "self_attn.v_proj%s", suffix);
    out.v = add_linear(net, i, role, name, n_kv, D, c->qkv_bias);
    if (c->qk_norm) {
        (void)snprintf(name, sizeof name, "self_attn.k_norm%s.weight", suffix);
        out.k_norm = add_norm(net, i, role, name, Dh);
    }
    return out;
}

/* Of a layer that keeps a state: all that makes it. */
static skv_net_projections add_state(skv_net *net, size_t i, skv_param_role role)
{
    const skv_config *c = net->config;
    const skv_mixer_shape *m = &c->mixer;
    const char *suffix = role == SKV_ROLE_SWIFTKV ? "_swiftkv" : "";
    const size_t D = c->hidden, n_keys = skv_mixer_key_columns(m), nv = m->n_value_heads;
    char name[PART_NAME_MAX];
    skv_net_projections out = {0};
    const struct {
        skv_net_linear *l;
        const char *what;
        size_t n;
    } parts[] = {{&out.q, "q", n_keys},
                 {&out.k, "k", n_keys},
                 {&out.v, "v", skv_mixer_value_columns(m)},
                 {&out.a, "a", nv},
                 {&out.b, "b", nv}};
    for (size_t j = 0; j < sizeof parts / sizeof parts[0]; j++) {
        (void)snprintf(name, sizeof name, "linear_attn.in_proj_%s%s", parts[j].what, suffix);
        *parts[j].l = add_linear(net, i, role, name, parts[j].n, D, false);
    }
    out.a.exact = out.b.exact = true; /* the decay is an exponential of an exponential */
    (void)snprintf(name, sizeof name, "linear_attn.conv1d%s.weight", suffix);
    out.conv = add_in_layer(net, i, role, name, skv_mixer_conv_columns(m), m->conv_rows);
    (void)snprintf(name, sizeof name, "linear_attn.A_log%s", suffix);
    out.a_log = add_in_layer(net, i, role, name, 0, nv);
    (void)snprintf(name, sizeof name, "linear_attn.dt_bias%s", suffix);
    out.dt_bias = add_in_layer(net, i, role, name, 0, nv);
    if (role == SKV_ROLE_SWIFTKV) out.a_log->rate_share = out.dt_bias->rate_share = RATES_SHARE;
    return out;
}

/* Describes the feed-forward block; its experts start at *experts. */
static void describe_block(skv_net *net, size_t i, skv_net_expert **experts)
{
    const skv_config *c = net->config;
    skv_net_layer *layer = &net->layers[i];
    size_t D = c->hidden, F = c->layers[i].ffn, E = c->layers[i].n_experts;
    if (E == 0) {
        layer->gate = add_linear(net, i, SKV_ROLE_LAYER, "mlp.gate_proj", F, D, c->mlp_bias);
        layer->up = add_linear(net, i, SKV_ROLE_LAYER, "mlp.up_proj", F, D, c->mlp_bias);
        layer->down = add_linear(net, i, SKV_ROLE_LAYER, "mlp.down_proj", D, F, c->mlp_bias);
        return;
    }
    layer->experts = *experts;
    layer->n_experts = E;
    *experts += E;
    layer->router = add_linear(net, i, SKV_ROLE_LAYER, "mlp.gate", E, D, c->router_bias);
    layer->router.exact = true;
    for (size_t e = 0; e < E; e++) {
        skv_net_expert *expert = &layer->experts[e];
        char name[PART_NAME_MAX - 8];
        (void)snprintf(name, sizeof name, "mlp.experts.%zu.gate_proj", e);
        expert->gate = add_linear(net, i, SKV_ROLE_EXPERT, name, F, D, c->expert_bias);
        (void)snprintf(name, sizeof name, "mlp.experts.%zu.up_proj", e);
        expert->up = add_linear(net, i, SKV_ROLE_EXPERT, name, F, D, c->expert_bias);
        (void)snprintf(name, sizeof name, "mlp.experts.%zu.down_proj", e);
        expert->down = add_linear(net, i, SKV_ROLE_EXPERT, name, D, F, c->expert_bias);
    }
}

static void describe_attention(skv_net *net, size_t i)
{
    const skv_config *c = net->config;
    skv_net_layer *layer = &net->layers[i];
    const size_t D = c->hidden, n_q = c->layers[i].n_heads * c->head_dim;
    layer->own = add_projections(net, i, SKV_ROLE_QKV, true);
    if (c->swiftkv && i >= c->kv_layers) {
        bool first = (i - c->kv_layers) % c->kv_group == 0;
        layer->swiftkv = add_projections(net, i, SKV_ROLE_SWIFTKV, first);
    }
    if (c->attention_gate) {
        layer->z = add_linear(net, i, SKV_ROLE_LAYER, "self_attn.gate_proj", n_q, D, c->qkv_bias);
    }
    layer->o = add_linear(net, i, SKV_ROLE_LAYER, "self_attn.o_proj", D, n_q, c->o_bias);
}

static void describe_state(skv_net *net, size_t i)
{
    const skv_config *c = net->config;
    skv_net_layer *layer = &net->layers[i];
    const size_t D = c->hidden, n = skv_mixer_value_columns(&c->mixer);
    layer->own = add_state(net, i, SKV_ROLE_QKV);
    if (c->swiftkv && i >= c->kv_layers) layer->swiftkv = add_state(net, i, SKV_ROLE_SWIFTKV);
    layer->z = add_linear(net, i, SKV_ROLE_LAYER, "linear_attn.in_proj_z", n, D, false);
    layer->state_norm =
        add_in_layer(net, i, SKV_ROLE_LAYER, "linear_attn.norm.weight", 0, c->mixer.value_dim);
    layer->o = add_linear(net, i, SKV_ROLE_LAYER, "linear_attn.out_proj", D, n, false);
}

static void describe_layer(skv_net *net, size_t i, skv_net_expert **experts)
{
    const skv_config *c = net->config;
    skv_net_layer *layer = &net->layers[i];
    layer->attn_norm = add_norm(net, i, SKV_ROLE_LAYER, "input_layernorm.weight", c->hidden);
    if (skv_config_keeps_state(c, i)) {
        describe_state(net, i);
    } else {
        describe_attention(net, i);
    }
    layer->ffn_norm =
        add_norm(net, i, SKV_ROLE_LAYER, "post_attention_layernorm.weight", c->hidden);
    describe_block(net, i, experts);
}

skv_status skv_net_describe(skv_net *net, skv_error *err)
{
    const skv_config *c = net->config;
    size_t L = c->n_layers, n_experts = 0;
    for (size_t i = 0; i < L; i++) n_experts += c->layers[i].n_experts;
    net->layers = skv_alloc_zero(L, sizeof *net->layers);
    if (n_experts > 0) net->experts = skv_alloc_zero(n_experts, sizeof *net->experts);
    SKV_REQUIRE(net->layers && (net->experts || n_experts == 0), err, SKV_MEMORY,
                "training: no memory for %zu layers and %zu experts", L, n_experts);
    size_t n_more =
        net->options.prediction ? PARAMS_A_MAP * net->options.prediction->base->n_layers : 0;
    n_more += L * PARAMS_A_LAYER + n_experts * PARAMS_AN_EXPERT + PARAMS_OUTSIDE;
    SKV_TRY(skv_params_init(&net->params, n_more, err));
    skv_net_expert *experts = net->experts;
    net->embedding =
        skv_net_add(net, 0, SKV_ROLE_OUTSIDE, "model.embed_tokens.weight", c->vocab, c->hidden);
    for (size_t i = 0; i < L; i++) describe_layer(net, i, &experts);
    if (c->swiftkv && c->kv_layers < L) {
        net->norm_swiftkv = skv_net_add(net, c->kv_layers, SKV_ROLE_SWIFTKV,
                                        "model.norm_swiftkv.weight", 0, c->hidden);
        net->norm_swiftkv->offset = norm_offset(c);
    }
    net->final_norm = skv_net_add(net, L, SKV_ROLE_OUTSIDE, "model.norm.weight", 0, c->hidden);
    net->final_norm->offset = norm_offset(c);
    net->head.w =
        c->tied ? net->embedding
                : skv_net_add(net, L, SKV_ROLE_OUTSIDE, "lm_head.weight", c->vocab, c->hidden);
    if (c->early_exit && net->norm_swiftkv) {
        net->exit.w = skv_net_add(net, c->kv_layers, SKV_ROLE_EXIT_HEAD, "lm_head_swiftkv.weight",
                                  c->vocab, c->hidden);
    }
    return SKV_OK;
}

/* ---- values ---- */

static skv_status copy_tensor(skv_param *p, const skv_tensor *t, const char *path, skv_error *err)
{
    SKV_REQUIRE(skv_tensor_columns(t) == p->n_columns && skv_tensor_rows(t) == p->n_rows, err,
                SKV_FORMAT, "%s: tensor %s is [%zu,%zu], expected [%zu,%zu]", path, p->name,
                skv_tensor_rows(t), skv_tensor_columns(t), p->n_rows, p->n_columns);
    if (p->file) return SKV_OK;
    SKV_TRY(skv_tensor_read_checked(t, 0, p->n_rows, p->w, err));
    for (size_t i = 0; i < skv_param_size(p) && p->offset > 0; i++) p->w[i] += p->offset;
    if (t->file) skv_file_map_forget(t->data, t->n_bytes);
    return SKV_OK;
}

/* w += the values of another parameter / n_shares. */
static skv_status add_share(skv_param *p, const skv_param *from, size_t n_shares, float *row,
                            skv_error *err)
{
    for (size_t i = 0; i < p->n_rows; i++) {
        float *to = p->w + i * p->n_columns;
        const float *values = from->w ? from->w + i * p->n_columns : row;
        if (!from->w) SKV_TRY(skv_tensor_read_checked(from->file, i, 1, row, err));
        for (size_t j = 0; j < p->n_columns; j++) to[j] += values[j] / (float)n_shares;
    }
    return SKV_OK;
}

/* The model's own head is where an exit head begins. */
static skv_status initialise_exit(const skv_net *net, skv_param *p, float *row, skv_error *err)
{
    memset(p->w, 0, skv_param_size(p) * sizeof *p->w);
    return add_share(p, net->head.w, 1, row, err);
}

/* A *_swiftkv parameter of a model that has none yet: the mean of the layers' own over the layers
 * that will share it. */
static skv_status initialise(const skv_net *net, skv_param *p, float *row, skv_error *err)
{
    const char *mark = strstr(p->name, "_swiftkv");
    size_t n_layers = strstr(p->name, ".q_") ? 1 : net->config->kv_group;
    size_t i0 = p->layer, n = skv_param_size(p);
    bool is_norm = p == net->norm_swiftkv;
    if (is_norm) n_layers = 1;
    memset(p->w, 0, n * sizeof *p->w);
    for (size_t i = i0; i < i0 + n_layers; i++) {
        char name[SKV_PARAM_NAME_MAX];
        if (is_norm) {
            (void)snprintf(name, sizeof name, "model.layers.%zu.input_layernorm.weight", i);
        } else {
            const char *what = strstr(p->name, "self_attn.");
            if (!what) what = strstr(p->name, "linear_attn.");
            (void)snprintf(name, sizeof name, "model.layers.%zu.%.*s%s", i, (int)(mark - what),
                           what, mark + strlen("_swiftkv"));
        }
        const skv_param *from = skv_params_find(&net->params, name);
        SKV_REQUIRE(from && from->n_rows == p->n_rows && from->n_columns == p->n_columns, err,
                    SKV_FORMAT, "%s: cannot be initialised from %s", p->name, name);
        SKV_TRY(add_share(p, from, n_layers, row, err));
    }
    return SKV_OK;
}

/* A parameter of SwiftKV that the source has not got and needs not have. */
static bool is_new(const skv_param *p, const skv_config *from)
{
    if (p->role == SKV_ROLE_EXIT_HEAD) return !from->early_exit;
    return p->role == SKV_ROLE_SWIFTKV && !from->swiftkv;
}

static skv_status initialise_new(skv_net *net, const skv_config *source, skv_error *err)
{
    size_t widest = 0;
    for (size_t i = 0; i < net->params.n; i++) {
        widest = skv_max_size(widest, net->params.at[i].n_columns);
    }
    float *row = skv_alloc(widest, sizeof *row);
    skv_status status =
        row ? SKV_OK : skv_fail(err, SKV_MEMORY, "training: no memory for a row of %zu", widest);
    for (size_t i = 0; status == SKV_OK && i < net->params.n; i++) {
        skv_param *p = &net->params.at[i];
        if (!is_new(p, source)) continue;
        bool exit_head = p == net->exit.w;
        status = exit_head ? initialise_exit(net, p, row, err) : initialise(net, p, row, err);
    }
    skv_free(row);
    return status;
}

/* A student runs without the teacher's projections in its deep layers; a teacher cannot. */
static bool may_be_absent(const skv_net *net, const skv_param *p)
{
    return net->kv_from < net->config->n_layers && p->layer >= net->kv_from &&
           net->options.loss == SKV_LOSS_LM && net->options.hidden_mult <= 0 &&
           p->role == SKV_ROLE_QKV;
}

/* The tensor that a parameter starts from: a pruned copy numbers its layers anew. */
static const skv_tensor *find_in(const skv_net *net, const skv_source *source, const skv_param *p)
{
    unsigned long i;
    char *rest, name[SKV_PARAM_NAME_MAX];
    static const char prefix[] = "model.layers.";
    const size_t n = sizeof prefix - 1;
    if (!net->options.layer_from || strncmp(p->name, prefix, n) != 0) {
        return skv_source_find(source, p->name);
    }
    i = strtoul(p->name + n, &rest, 10);
    (void)snprintf(name, sizeof name, "%s%u%s", prefix, net->options.layer_from[i], rest);
    return skv_source_find(source, name);
}

skv_status skv_net_load(skv_net *net, const skv_source *source, skv_error *err)
{
    const skv_config *from = source ? skv_source_config(source) : NULL;
    for (size_t i = 0; i < net->params.n; i++) {
        skv_param *p = &net->params.at[i];
        if (p->role == SKV_ROLE_PREDICTOR) continue; /* net_predict.c fills it */
        const char *path = source ? skv_source_path(source) : "";
        bool has = source && !is_new(p, from);
        const skv_tensor *t = has ? find_in(net, source, p) : NULL;
        if (t) {
            SKV_TRY(copy_tensor(p, t, path, err));
        } else if (!source) {
            skv_net_draw(net, p, i);
        } else if (has) {
            SKV_REQUIRE(may_be_absent(net, p), err, SKV_FORMAT, "%s: tensor %s is missing", path,
                        p->name);
        }
    }
    if (source) {
        SKV_TRY(initialise_new(net, from, err));
    } else {
        skv_net_shape_attention(net);
    }
    skv_params_keep_teacher(&net->params);
    return SKV_OK;
}
