/* Do the files hold what the configuration calls for: see skv_source_check_shapes. */
#include <stdio.h>
#include <string.h>

#include "format/source.h"

typedef struct checker {
    const skv_source *source;
    const skv_config *config;
    skv_error *err;
} checker;

/* Checks one tensor; n_dims 1 ignores `columns`. */
static skv_status check(const checker *k, const char *name, size_t n_dims, size_t rows,
                        size_t columns)
{
    const skv_tensor *t = skv_source_find(k->source, name);
    const char *path = skv_source_path(k->source);
    if (!t) {
        const char *why = skv_source_unusable(k->source, name);
        if (why) {
            return skv_fail(k->err, SKV_UNSUPPORTED, "%s: %s: %s is not supported", path, name,
                            why);
        }
        return skv_fail(k->err, SKV_FORMAT, "%s: %s: missing", path, name);
    }
    size_t want[2] = {rows, columns};
    bool same = t->n_dims == n_dims;
    for (size_t i = 0; same && i < n_dims; i++) same = t->dims[i] == want[i];
    if (same) return SKV_OK;
    char have_text[96], want_text[96];
    (void)skv_tensor_shape_text(t->dims, t->n_dims, have_text, sizeof have_text);
    (void)skv_tensor_shape_text(want, n_dims, want_text, sizeof want_text);
    return skv_fail(k->err, SKV_FORMAT, "%s: %s: shape %s, expected %s", path, name, have_text,
                    want_text);
}

static const char *layer_name(char out[128], size_t i, const char *part, const char *kind)
{
    (void)snprintf(out, 128, "model.layers.%zu.%s.%s", i, part, kind);
    return out;
}

static skv_status check_norm(const checker *k, size_t i, const char *part, size_t n)
{
    char name[128];
    return check(k, layer_name(name, i, part, "weight"), 1, n, 0);
}

/* A projection's weight [rows, columns] and, where it has one, its bias [rows]. */
static skv_status check_linear(const checker *k, size_t i, const char *part, size_t rows,
                               size_t columns, bool bias)
{
    char name[128];
    SKV_TRY(check(k, layer_name(name, i, part, "weight"), 2, rows, columns));
    return bias ? check(k, layer_name(name, i, part, "bias"), 1, rows, 0) : SKV_OK;
}

static bool has(const checker *k, size_t i, const char *part)
{
    char name[128];
    return skv_source_find(k->source, layer_name(name, i, part, "weight")) != NULL;
}

/* The ordinary q, k and v of a layer. A SwiftKV file may leave them out where it replaces them. */
static skv_status check_teacher(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    const skv_layer_shape *l = &c->layers[i];
    bool replaced = c->swiftkv && i >= c->kv_layers;
    if (replaced && !has(k, i, "self_attn.q_proj") && !has(k, i, "self_attn.k_proj") &&
        !has(k, i, "self_attn.v_proj")) {
        return SKV_OK;
    }
    size_t q = l->n_heads * c->head_dim, kv = l->n_kv_heads * c->head_dim;
    SKV_TRY(check_linear(k, i, "self_attn.q_proj", q, c->hidden, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.k_proj", kv, c->hidden, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.v_proj", kv, c->hidden, c->qkv_bias));
    if (!c->qk_norm) return SKV_OK;
    SKV_TRY(check_norm(k, i, "self_attn.q_norm", c->head_dim));
    return check_norm(k, i, "self_attn.k_norm", c->head_dim);
}

/* The projections that SwiftKV adds: q in every layer above, k and v in the first of a group. */
static skv_status check_swiftkv(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    const skv_layer_shape *l = &c->layers[i];
    size_t q = l->n_heads * c->head_dim, kv = l->n_kv_heads * c->head_dim;
    SKV_TRY(check_linear(k, i, "self_attn.q_proj_swiftkv", q, c->hidden, c->qkv_bias));
    if (c->qk_norm) SKV_TRY(check_norm(k, i, "self_attn.q_norm_swiftkv", c->head_dim));
    if ((i - c->kv_layers) % c->kv_group != 0) return SKV_OK;
    SKV_TRY(check_linear(k, i, "self_attn.k_proj_swiftkv", kv, c->hidden, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.v_proj_swiftkv", kv, c->hidden, c->qkv_bias));
    return c->qk_norm ? check_norm(k, i, "self_attn.k_norm_swiftkv", c->head_dim) : SKV_OK;
}

static skv_status check_layer(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    const skv_layer_shape *l = &c->layers[i];
    SKV_TRY(check_norm(k, i, "input_layernorm", c->hidden));
    SKV_TRY(check_norm(k, i, "post_attention_layernorm", c->hidden));
    if (c->post_norms) {
        SKV_TRY(check_norm(k, i, "pre_feedforward_layernorm", c->hidden));
        SKV_TRY(check_norm(k, i, "post_feedforward_layernorm", c->hidden));
    }
    SKV_TRY(check_teacher(k, i));
    if (c->swiftkv && i >= c->kv_layers) SKV_TRY(check_swiftkv(k, i));
    size_t q = l->n_heads * c->head_dim;
    SKV_TRY(check_linear(k, i, "self_attn.o_proj", c->hidden, q, c->o_bias));
    SKV_TRY(check_linear(k, i, "mlp.gate_proj", l->ffn, c->hidden, c->mlp_bias));
    SKV_TRY(check_linear(k, i, "mlp.up_proj", l->ffn, c->hidden, c->mlp_bias));
    return check_linear(k, i, "mlp.down_proj", c->hidden, l->ffn, c->mlp_bias);
}

skv_status skv_source_check_shapes(const skv_source *source, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    checker k = {source, c, err};
    SKV_TRY(check(&k, "model.embed_tokens.weight", 2, c->vocab, c->hidden));
    SKV_TRY(check(&k, "model.norm.weight", 1, c->hidden, 0));
    if (!c->tied) SKV_TRY(check(&k, "lm_head.weight", 2, c->vocab, c->hidden));
    if (c->swiftkv && c->kv_layers < c->n_layers) {
        SKV_TRY(check(&k, "model.norm_swiftkv.weight", 1, c->hidden, 0));
    }
    for (size_t i = 0; i < c->n_layers; i++) SKV_TRY(check_layer(&k, i));
    return SKV_OK;
}
