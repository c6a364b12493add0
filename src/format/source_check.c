/* Do the files hold what the configuration calls for: see skv_source_check_shapes. */
#include <stdio.h>
#include <string.h>

#include "format/config_field.h"
#include "format/source.h"

typedef struct checker {
    const skv_source *source;
    const skv_config *config;
    skv_error *err;
} checker;

/* What a dimension follows from. Q and KV are heads of the layer, each of head_dim. */
typedef enum dim { NONE, VOCAB, HIDDEN, Q, KV, FFN, HEAD_DIM } dim;

static const skv_config_field dim_fields[] = {
    [VOCAB] = SKV_FIELD_VOCAB, [HIDDEN] = SKV_FIELD_HIDDEN, [Q] = SKV_FIELD_HEADS,
    [KV] = SKV_FIELD_KV_HEADS, [FFN] = SKV_FIELD_FFN,       [HEAD_DIM] = SKV_FIELD_HEAD_DIM};

static size_t dim_size(const skv_config *c, dim d, size_t i)
{
    switch (d) {
    case VOCAB: return c->vocab;
    case HIDDEN: return c->hidden;
    case Q: return c->layers[i].n_heads * c->head_dim;
    case KV: return c->layers[i].n_kv_heads * c->head_dim;
    case FFN: return c->layers[i].ffn;
    case HEAD_DIM: return c->head_dim;
    case NONE:
    default: return 0;
    }
}

/* "num_attention_heads * head_dim 4096" */
static void dim_text(const skv_config *c, dim d, size_t i, char *out, size_t size)
{
    skv_field_name head_dim = skv_config_field_name(c, SKV_FIELD_HEAD_DIM);
    bool is_heads = d == Q || d == KV;
    (void)snprintf(out, size, "%s%s%s %zu", skv_config_field_name(c, dim_fields[d]).text,
                   is_heads ? " * " : "", is_heads ? head_dim.text : "", dim_size(c, d, i));
}

static skv_status refuse_missing(const checker *k, const char *name)
{
    const char *why = skv_source_unusable(k->source, name);
    const char *path = skv_source_path(k->source);
    if (why) {
        return skv_fail(k->err, SKV_UNSUPPORTED, "%s: %s: %s is not supported", path, name, why);
    }
    return skv_fail(k->err, SKV_FORMAT, "%s: %s: missing, %s is %zu", path, name,
                    skv_config_field_name(k->config, SKV_FIELD_LAYERS).text, k->config->n_layers);
}

/* Checks one tensor, of layer i where it belongs to one; a vector has columns NONE. */
static skv_status check(const checker *k, const char *name, size_t i, dim rows, dim columns)
{
    const skv_tensor *t = skv_source_find(k->source, name);
    if (!t) return refuse_missing(k, name);
    size_t n_dims = columns == NONE ? 1 : 2;
    bool same = t->n_dims == n_dims && t->dims[0] == dim_size(k->config, rows, i) &&
                (n_dims == 1 || t->dims[1] == dim_size(k->config, columns, i));
    if (same) return SKV_OK;
    char have[96], want[2][200] = {"", ""};
    (void)skv_tensor_shape_text(t->dims, t->n_dims, have, sizeof have);
    dim_text(k->config, rows, i, want[0], sizeof want[0]);
    if (n_dims == 2) dim_text(k->config, columns, i, want[1], sizeof want[1]);
    return skv_fail(k->err, SKV_FORMAT, "%s: %s: shape %s, expected [%s%s%s]",
                    t->file ? t->file->path : skv_source_path(k->source), name, have, want[0],
                    n_dims == 2 ? ", " : "", want[1]);
}

static const char *layer_name(char out[128], size_t i, const char *part, const char *kind)
{
    (void)snprintf(out, 128, "model.layers.%zu.%s.%s", i, part, kind);
    return out;
}

static skv_status check_norm(const checker *k, size_t i, const char *part, dim n)
{
    char name[128];
    return check(k, layer_name(name, i, part, "weight"), i, n, NONE);
}

/* A projection's weight [rows, columns] and, where it has one, its bias [rows]. */
static skv_status check_linear(const checker *k, size_t i, const char *part, dim rows, dim columns,
                               bool bias)
{
    char name[128];
    SKV_TRY(check(k, layer_name(name, i, part, "weight"), i, rows, columns));
    return bias ? check(k, layer_name(name, i, part, "bias"), i, rows, NONE) : SKV_OK;
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
    bool replaced = c->swiftkv && i >= c->kv_layers;
    if (replaced && !has(k, i, "self_attn.q_proj") && !has(k, i, "self_attn.k_proj") &&
        !has(k, i, "self_attn.v_proj")) {
        return SKV_OK;
    }
    SKV_TRY(check_linear(k, i, "self_attn.q_proj", Q, HIDDEN, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.k_proj", KV, HIDDEN, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.v_proj", KV, HIDDEN, c->qkv_bias));
    if (!c->qk_norm) return SKV_OK;
    SKV_TRY(check_norm(k, i, "self_attn.q_norm", HEAD_DIM));
    return check_norm(k, i, "self_attn.k_norm", HEAD_DIM);
}

/* The projections that SwiftKV adds: q in every layer above, k and v in the first of a group. */
static skv_status check_swiftkv(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    SKV_TRY(check_linear(k, i, "self_attn.q_proj_swiftkv", Q, HIDDEN, c->qkv_bias));
    if (c->qk_norm) SKV_TRY(check_norm(k, i, "self_attn.q_norm_swiftkv", HEAD_DIM));
    if ((i - c->kv_layers) % c->kv_group != 0) return SKV_OK;
    SKV_TRY(check_linear(k, i, "self_attn.k_proj_swiftkv", KV, HIDDEN, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.v_proj_swiftkv", KV, HIDDEN, c->qkv_bias));
    return c->qk_norm ? check_norm(k, i, "self_attn.k_norm_swiftkv", HEAD_DIM) : SKV_OK;
}

static skv_status check_layer(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    SKV_TRY(check_norm(k, i, "input_layernorm", HIDDEN));
    SKV_TRY(check_norm(k, i, "post_attention_layernorm", HIDDEN));
    if (c->post_norms) {
        SKV_TRY(check_norm(k, i, "pre_feedforward_layernorm", HIDDEN));
        SKV_TRY(check_norm(k, i, "post_feedforward_layernorm", HIDDEN));
    }
    SKV_TRY(check_teacher(k, i));
    if (c->swiftkv && i >= c->kv_layers) SKV_TRY(check_swiftkv(k, i));
    SKV_TRY(check_linear(k, i, "self_attn.o_proj", HIDDEN, Q, c->o_bias));
    SKV_TRY(check_linear(k, i, "mlp.gate_proj", FFN, HIDDEN, c->mlp_bias));
    SKV_TRY(check_linear(k, i, "mlp.up_proj", FFN, HIDDEN, c->mlp_bias));
    return check_linear(k, i, "mlp.down_proj", HIDDEN, FFN, c->mlp_bias);
}

skv_status skv_source_check_shapes(const skv_source *source, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    checker k = {source, c, err};
    SKV_TRY(check(&k, "model.embed_tokens.weight", 0, VOCAB, HIDDEN));
    SKV_TRY(check(&k, "model.norm.weight", 0, HIDDEN, NONE));
    if (!c->tied) SKV_TRY(check(&k, "lm_head.weight", 0, VOCAB, HIDDEN));
    if (c->swiftkv && c->kv_layers < c->n_layers) {
        SKV_TRY(check(&k, "model.norm_swiftkv.weight", 0, HIDDEN, NONE));
        if (c->early_exit) SKV_TRY(check(&k, "lm_head_swiftkv.weight", 0, VOCAB, HIDDEN));
    }
    for (size_t i = 0; i < c->n_layers; i++) SKV_TRY(check_layer(&k, i));
    return SKV_OK;
}
