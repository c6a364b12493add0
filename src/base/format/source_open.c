/* Opens a model: reads its configuration and lists its tensors, and checks that they match. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/config_build.h"
#include "format/source_impl.h"

enum { CONFIG_FILE_MAX = 16 << 20 };

/* ---- checking the files against the configuration ---- */

typedef struct checker {
    const skv_source *source;
    const skv_config *config;
    skv_error *err;
} checker;

/* The configuration values that determine a dimension. Q and KV are heads of the layer, each of
 * head_dim. */
typedef enum dim {
    NONE,
    ONE,
    VOCAB,
    HIDDEN,
    HIDDEN_TWICE,
    Q,
    KV,
    FFN,
    HEAD_DIM,
    EXPERTS,
    HEADS,
    PER_LAYER,
    ALL_PER_LAYER, /* L times as much */
    DENSE_FFN,     /* of the block that is dense */
    SHARED_FFN,    /* of the expert that every token meets */
    KEYS,          /* from here on: of layers that keep a state. nk dk */
    VALUES,        /* nv dv */
    VALUE_HEADS,
    VALUE_DIM,
    CONV,      /* channels of the convolution */
    CONV_IN,   /* three times as many */
    CONV_ROWS, /* up to here */
    LATENT,
    EXIT /* rows of the exit head */
} dim;

/* The dimension that the norms of q and of k extend over. */
static dim q_norm_dim(const skv_config *c)
{
    return c->qk_norm_joined ? Q : HEAD_DIM;
}

static dim k_norm_dim(const skv_config *c)
{
    return c->qk_norm_joined ? KV : HEAD_DIM;
}

static const skv_config_field dim_fields[] = {[VOCAB] = SKV_CONFIG_FIELD_VOCAB,
                                              [HIDDEN] = SKV_CONFIG_FIELD_HIDDEN,
                                              [HIDDEN_TWICE] = SKV_CONFIG_FIELD_HIDDEN,
                                              [Q] = SKV_CONFIG_FIELD_HEADS,
                                              [KV] = SKV_CONFIG_FIELD_KV_HEADS,
                                              [FFN] = SKV_CONFIG_FIELD_EXPERT_FFN,
                                              [HEAD_DIM] = SKV_CONFIG_FIELD_HEAD_DIM,
                                              [PER_LAYER] = SKV_CONFIG_FIELD_PER_LAYER,
                                              [ALL_PER_LAYER] = SKV_CONFIG_FIELD_PER_LAYER,
                                              [EXPERTS] = SKV_CONFIG_FIELD_EXPERTS,
                                              [HEADS] = SKV_CONFIG_FIELD_HEADS,
                                              [DENSE_FFN] = SKV_CONFIG_FIELD_FFN,
                                              [SHARED_FFN] = SKV_CONFIG_FIELD_SHARED_FFN,
                                              [KEYS] = SKV_CONFIG_FIELD_KEY_HEADS,
                                              [VALUES] = SKV_CONFIG_FIELD_VALUE_HEADS,
                                              [VALUE_HEADS] = SKV_CONFIG_FIELD_VALUE_HEADS,
                                              [VALUE_DIM] = SKV_CONFIG_FIELD_VALUE_DIM,
                                              [CONV] = SKV_CONFIG_FIELD_VALUE_HEADS,
                                              [CONV_IN] = SKV_CONFIG_FIELD_HIDDEN,
                                              [CONV_ROWS] = SKV_CONFIG_FIELD_CONV_ROWS,
                                              [LATENT] = SKV_CONFIG_FIELD_LATENT,
                                              [EXIT] = SKV_CONFIG_FIELD_VOCAB,
                                              [ONE] = SKV_CONFIG_FIELD_COUNT};

static size_t dim_size(const skv_config *c, dim d, size_t i)
{
    switch (d) {
    case VOCAB: return c->vocab;
    case EXIT: return c->exit_words > 0 ? c->exit_words : c->vocab;
    case HIDDEN: return c->hidden;
    case HIDDEN_TWICE: return 2 * c->hidden;
    case Q: return skv_config_q_columns(c, i);
    case KV: return c->layers[i].n_kv_heads * skv_config_head_dim(c, i);
    case FFN: return c->layers[i].ffn;
    case DENSE_FFN: return skv_config_dense_ffn(c, i);
    case HEAD_DIM: return skv_config_head_dim(c, i);
    case ONE: return 1;
    case PER_LAYER: return c->per_layer;
    case ALL_PER_LAYER: return c->n_layers * c->per_layer;
    case EXPERTS: return c->layers[i].n_experts;
    case HEADS: return c->layers[i].n_heads;
    case SHARED_FFN: return c->layers[i].ffn_shared;
    case KEYS: return skv_mixer_key_columns(&c->mixer);
    case VALUES: return skv_mixer_value_columns(&c->mixer);
    case VALUE_HEADS: return c->mixer.n_value_heads;
    case VALUE_DIM: return c->mixer.value_dim;
    case CONV: return skv_config_conv_columns(c, i);
    case CONV_IN: return 3 * skv_config_conv_columns(c, i);
    case CONV_ROWS: return c->mixer.conv_rows;
    case LATENT: return c->moe_latent;
    case NONE:
    default: return 0;
    }
}

/* Returns the factor of a number of heads, or a longer suffix, for messages. */
static const char *dim_factor(dim d)
{
    switch (d) {
    case KEYS: return " * key dims";
    case VALUES: return " * value dims";
    case CONV: return ": channels";
    case CONV_IN: return " * 3:";
    case HIDDEN_TWICE: return " * 2:";
    default: return "";
    }
}

/* "num_attention_heads * head_dim 4096" */
static void dim_text(const skv_config *c, dim d, size_t i, char *out, size_t size)
{
    if (d == ONE) {
        (void)snprintf(out, size, "1");
        return;
    }
    if (d == EXIT && c->exit_words > 0) {
        (void)snprintf(out, size, "swiftkv_exit_words %zu", c->exit_words);
        return;
    }
    skv_field_name head_dim = skv_config_field_name(c, SKV_CONFIG_FIELD_HEAD_DIM);
    bool is_heads = d == Q || d == KV;
    (void)snprintf(out, size, "%s%s%s %zu", skv_config_field_name(c, dim_fields[d]).text,
                   is_heads ? " * " : dim_factor(d), is_heads ? head_dim.text : "",
                   dim_size(c, d, i));
}

static skv_status refuse_missing(const checker *k, const char *name)
{
    const char *why = skv_source_unusable(k->source, name);
    const char *path = skv_source_path(k->source);
    if (why) {
        return skv_fail(k->err, SKV_UNSUPPORTED, "%s: %s: %s is not supported", path, name, why);
    }
    return skv_fail(k->err, SKV_FORMAT, "%s: %s: missing, %s is %zu", path, name,
                    skv_config_field_name(k->config, SKV_CONFIG_FIELD_LAYERS).text,
                    k->config->n_layers);
}

/* Checks one tensor; i is its layer, if it belongs to one. A vector has NONE columns. */
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

/* Checks a list of ids. Their values are checked when the model is loaded. */
static skv_status check_ids(const checker *k, const char *name, dim n)
{
    SKV_TRY(check(k, name, 0, n, NONE));
    const skv_tensor *t = skv_source_find(k->source, name);
    SKV_REQUIRE(
        t->type == SKV_DTYPE_I32, k->err, SKV_FORMAT, "%s: %s: element type %s, expected I32",
        t->file ? t->file->path : skv_source_path(k->source), name, skv_dtype_name(t->type));
    return SKV_OK;
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

/* Checks a projection's weight [rows, columns] and, if it has one, its bias [rows]. */
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
    return skv_source_find(k->source, layer_name(name, i, part, "weight"));
}

/* The ordinary q, k and v of a layer. A SwiftKV file may leave them out where it replaces them. */
static skv_status check_teacher(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    bool replaced = c->swiftkv && i >= c->kv_layers;
    if (replaced && !has(k, i, "self_attn.q_proj") && !has(k, i, "self_attn.k_proj") &&
        !has(k, i, "self_attn.v_proj")) {
        return c->attention_gate ? check_linear(k, i, "self_attn.gate_proj", Q, HIDDEN, c->qkv_bias)
                                 : SKV_OK;
    }
    SKV_TRY(check_linear(k, i, "self_attn.q_proj", Q, HIDDEN, c->qkv_bias));
    if (c->attention_gate) {
        SKV_TRY(check_linear(k, i, "self_attn.gate_proj", Q, HIDDEN, c->qkv_bias));
    }
    if (c->qk_norm) SKV_TRY(check_norm(k, i, "self_attn.q_norm", q_norm_dim(c)));
    if (skv_config_donor(c, i) != i) return SKV_OK; /* some files still have k and v: not read */
    SKV_TRY(check_linear(k, i, "self_attn.k_proj", KV, HIDDEN, c->qkv_bias));
    if (!c->layers[i].k_is_v) {
        SKV_TRY(check_linear(k, i, "self_attn.v_proj", KV, HIDDEN, c->qkv_bias));
    }
    return c->qk_norm ? check_norm(k, i, "self_attn.k_norm", k_norm_dim(c)) : SKV_OK;
}

/* A part that the configuration denies: a model without it would be another one. */
static skv_status check_absent(const checker *k, size_t i, const char *part, dim n)
{
    char name[128];
    SKV_REQUIRE(!has(k, i, part), k->err, SKV_FORMAT, "%s: %s: there, but %s is 0",
                skv_source_path(k->source), layer_name(name, i, part, "weight"),
                skv_config_field_name(k->config, dim_fields[n]).text);
    return SKV_OK;
}

/* Numbers of value heads. */
static skv_status check_heads(const checker *k, size_t i, const char *what, const char *end)
{
    char name[128];
    (void)snprintf(name, sizeof name, "model.layers.%zu.linear_attn.%s%s", i, what, end);
    return check(k, name, i, VALUE_HEADS, NONE);
}

/* The convolution's weights: one tensor, or those of q, k and v. */
static skv_status check_taps(const checker *k, size_t i)
{
    if (has(k, i, "linear_attn.conv1d") || !has(k, i, "linear_attn.q_conv1d")) {
        return check_linear(k, i, "linear_attn.conv1d", CONV, CONV_ROWS,
                            k->config->mixer.conv_bias);
    }
    SKV_TRY(check_linear(k, i, "linear_attn.q_conv1d", KEYS, CONV_ROWS, false));
    SKV_TRY(check_linear(k, i, "linear_attn.k_conv1d", KEYS, CONV_ROWS, false));
    return check_linear(k, i, "linear_attn.v_conv1d", VALUES, CONV_ROWS, false);
}

/* The projections that make a state; `end` is "_swiftkv" for those of SwiftKV. */
static skv_status check_state_parts(const checker *k, size_t i, const char *end)
{
    static const struct {
        const char *part;
        dim rows;
    } parts[] = {{"q", KEYS}, {"k", KEYS}, {"v", VALUES}, {"a", VALUE_HEADS}, {"b", VALUE_HEADS}};
    const size_t n = skv_config_is_mamba(k->config, i) ? 4 : 5;
    for (size_t j = 0; j < n; j++) {
        char part[64];
        (void)snprintf(part, sizeof part, "linear_attn.in_proj_%s%s", parts[j].part, end);
        SKV_TRY(check_linear(k, i, part, parts[j].rows, HIDDEN, false));
    }
    return check_heads(k, i, "dt_bias", end);
}

/* What the model itself makes a state by, which a SwiftKV file may leave out where it replaces it.
 * Folders hold A_log, GGUF -exp(A_log). */
static skv_status check_own_state(const checker *k, size_t i)
{
    const bool replaced = k->config->swiftkv && i >= k->config->kv_layers;
    if (replaced && !has(k, i, "linear_attn.in_proj_q") && !has(k, i, "linear_attn.in_proj_k") &&
        !has(k, i, "linear_attn.in_proj_v")) {
        return SKV_OK;
    }
    SKV_TRY(check_state_parts(k, i, ""));
    SKV_TRY(check_taps(k, i));
    return check_heads(k, i, skv_source_gguf(k->source) ? "rate" : "A_log", "");
}

/* A layer of the gated delta rule or of Mamba-2. */
static skv_status check_delta(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    const bool mamba = skv_config_is_mamba(c, i);
    SKV_TRY(check_own_state(k, i));
    SKV_TRY(check_linear(k, i, "linear_attn.in_proj_z", VALUES, HIDDEN, false));
    SKV_TRY(check_linear(k, i, "linear_attn.out_proj", HIDDEN, VALUES, false));
    if (!c->mixer.no_norm) {
        SKV_TRY(check_norm(k, i, "linear_attn.norm", mamba ? VALUES : VALUE_DIM));
    }
    if (mamba) SKV_TRY(check_heads(k, i, "D", ""));
    if (!c->swiftkv || i < c->kv_layers) return SKV_OK;
    SKV_TRY(check_state_parts(k, i, "_swiftkv"));
    SKV_TRY(check_linear(k, i, "linear_attn.conv1d_swiftkv", CONV, CONV_ROWS, c->mixer.conv_bias));
    return check_heads(k, i, "A_log", "_swiftkv");
}

/* A layer of a short convolution alone. */
static skv_status check_conv(const checker *k, size_t i)
{
    SKV_TRY(check_linear(k, i, "conv.in_proj", CONV_IN, HIDDEN, false));
    SKV_TRY(check_linear(k, i, "conv.conv", CONV, CONV_ROWS, false));
    return check_linear(k, i, "conv.out_proj", HIDDEN, CONV, false);
}

/* Checks Gemma 4's additions to a layer. A missing scalar means 1. */
static skv_status check_gemma4(const checker *k, size_t i)
{
    if (k->config->layer_scalar && has(k, i, "layer_scalar")) {
        SKV_TRY(check_norm(k, i, "layer_scalar", ONE));
    }
    if (k->config->layers[i].ffn_beside > 0) {
        SKV_TRY(check_norm(k, i, "pre_feedforward_layernorm_2", HIDDEN));
        SKV_TRY(check_norm(k, i, "post_feedforward_layernorm_1", HIDDEN));
        SKV_TRY(check_norm(k, i, "post_feedforward_layernorm_2", HIDDEN));
        SKV_TRY(check_norm(k, i, "router.norm", HIDDEN));
        SKV_TRY(check_norm(k, i, "router.expert_scale", EXPERTS));
    }
    if (!k->config->per_layer) return check_absent(k, i, "per_layer_input_gate", PER_LAYER);
    SKV_TRY(check_linear(k, i, "per_layer_input_gate", PER_LAYER, HIDDEN, false));
    SKV_TRY(check_linear(k, i, "per_layer_projection", HIDDEN, PER_LAYER, false));
    return check_norm(k, i, "post_per_layer_input_norm", HIDDEN);
}

/* The projections that SwiftKV adds: q in every layer above, k and v in the first of a group. */
static skv_status check_swiftkv(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    SKV_TRY(check_linear(k, i, "self_attn.q_proj_swiftkv", Q, HIDDEN, c->qkv_bias));
    if (c->qk_norm) SKV_TRY(check_norm(k, i, "self_attn.q_norm_swiftkv", q_norm_dim(c)));
    if ((i - c->kv_layers) % c->kv_group != 0) return SKV_OK;
    SKV_TRY(check_linear(k, i, "self_attn.k_proj_swiftkv", KV, HIDDEN, c->qkv_bias));
    SKV_TRY(check_linear(k, i, "self_attn.v_proj_swiftkv", KV, HIDDEN, c->qkv_bias));
    return c->qk_norm ? check_norm(k, i, "self_attn.k_norm_swiftkv", k_norm_dim(c)) : SKV_OK;
}

/* The matrices of a block or an expert. */
static skv_status check_matrices(const checker *k, size_t i, const char *prefix, dim rows,
                                 dim columns, bool bias)
{
    char part[80];
    if (skv_config_block_matrices(k->config) == 3) {
        (void)snprintf(part, sizeof part, "%s.gate_proj", prefix);
        SKV_TRY(check_linear(k, i, part, rows, columns, bias));
    }
    (void)snprintf(part, sizeof part, "%s.up_proj", prefix);
    SKV_TRY(check_linear(k, i, part, rows, columns, bias));
    (void)snprintf(part, sizeof part, "%s.down_proj", prefix);
    return check_linear(k, i, part, columns, rows, bias);
}

/* The expert that every token meets, and perhaps its gate: a row, which GGUF has as a vector. */
static skv_status check_shared(const checker *k, size_t i)
{
    char name[128];
    SKV_TRY(check_matrices(k, i, "mlp.shared_expert", SHARED_FFN, HIDDEN, false));
    if (k->config->shared_plain) return SKV_OK;
    const skv_tensor *t =
        skv_source_find(k->source, layer_name(name, i, "mlp.shared_expert_gate", "weight"));
    return t && t->n_dims == 1 ? check(k, name, i, HIDDEN, NONE) : check(k, name, i, ONE, HIDDEN);
}

static skv_status check_block(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    char part[80];
    if (skv_config_dense_ffn(c, i) > 0) {
        SKV_TRY(check_matrices(k, i, "mlp", DENSE_FFN, HIDDEN, c->mlp_bias));
    }
    if (c->layers[i].n_experts == 0) return check_absent(k, i, "mlp.gate", EXPERTS);
    SKV_TRY(check_linear(k, i, "mlp.gate", EXPERTS, HIDDEN, c->router_bias));
    if (c->choice_bias) SKV_TRY(check_norm(k, i, "mlp.choice_bias", EXPERTS));
    if (c->layers[i].ffn_shared > 0) SKV_TRY(check_shared(k, i));
    if (c->moe_latent > 0) {
        SKV_TRY(check_linear(k, i, "mlp.latent_in", LATENT, HIDDEN, false));
        SKV_TRY(check_linear(k, i, "mlp.latent_out", HIDDEN, LATENT, false));
    }
    for (size_t e = 0; e < c->layers[i].n_experts; e++) {
        (void)snprintf(part, sizeof part, "mlp.experts.%zu", e);
        SKV_TRY(
            check_matrices(k, i, part, FFN, c->moe_latent > 0 ? LATENT : HIDDEN, c->expert_bias));
    }
    return SKV_OK;
}

static skv_status check_norms(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    const bool pre = skv_config_pre_normed(c, i), post = skv_config_post_normed(c, i);
    if (pre && c->layers[i].mixer != SKV_MIXER_NONE) {
        SKV_TRY(check_norm(k, i, "input_layernorm", HIDDEN));
    }
    if (c->layers[i].ffn > 0) SKV_TRY(check_norm(k, i, "post_attention_layernorm", HIDDEN));
    if (!post) return SKV_OK;
    if (pre) SKV_TRY(check_norm(k, i, "pre_feedforward_layernorm", HIDDEN));
    return check_norm(k, i, "post_feedforward_layernorm", HIDDEN);
}

static skv_status check_layer(const checker *k, size_t i)
{
    const skv_config *c = k->config;
    SKV_TRY(check_norms(k, i));
    if (c->layers[i].mixer == SKV_MIXER_CONV) {
        SKV_TRY(check_conv(k, i));
    } else if (skv_config_keeps_state(c, i)) {
        SKV_TRY(check_delta(k, i));
    }
    if (!skv_config_attends(c, i)) return check_block(k, i);
    SKV_TRY(check_teacher(k, i));
    if (c->swiftkv && i >= c->kv_layers) SKV_TRY(check_swiftkv(k, i));
    SKV_TRY(check_gemma4(k, i));
    SKV_TRY(check_linear(k, i, "self_attn.o_proj", HIDDEN, Q, c->o_bias));
    if (c->sinks) {
        char name[128];
        (void)snprintf(name, sizeof name, "model.layers.%zu.self_attn.sinks", i);
        SKV_TRY(check(k, name, i, HEADS, NONE));
    }
    return check_block(k, i);
}

/* The part of a head before its layer. */
static skv_status check_mtp(const checker *k)
{
    SKV_REQUIRE(k->source->has_mtp, k->err, SKV_UNSUPPORTED,
                "%s: the model has no MTP head (mtp.fc, or nextn.eh_proj)",
                skv_source_path(k->source));
    SKV_TRY(check(k, "mtp.fc.weight", 0, HIDDEN, HIDDEN_TWICE));
    SKV_TRY(check(k, "mtp.pre_fc_norm_embedding.weight", 0, HIDDEN, NONE));
    return check(k, "mtp.pre_fc_norm_hidden.weight", 0, HIDDEN, NONE);
}

/*
 * Checks that every tensor of the configuration is present and has the right shape. The SwiftKV
 * tensors are checked too. The teacher's projections in layers that SwiftKV replaces may be absent,
 * all of a layer or none.
 */
static skv_status check_shapes(const skv_source *source, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    checker k = {source, c, err};
    if (c->mtp) SKV_TRY(check_mtp(&k));
    SKV_TRY(check(&k, "model.embed_tokens.weight", 0, VOCAB, HIDDEN));
    SKV_TRY(check(&k, "model.norm.weight", 0, HIDDEN, NONE));
    if (!c->tied) SKV_TRY(check(&k, "lm_head.weight", 0, VOCAB, HIDDEN));
    if (c->swiftkv && c->kv_layers < c->n_layers) {
        SKV_TRY(check(&k, "model.norm_swiftkv.weight", 0, HIDDEN, NONE));
        if (c->early_exit) SKV_TRY(check(&k, "lm_head_swiftkv.weight", 0, EXIT, HIDDEN));
        if (c->exit_words > 0) SKV_TRY(check_ids(&k, "lm_head_swiftkv.ids", EXIT));
    }
    if (c->per_layer) {
        SKV_TRY(check(&k, "model.embed_tokens_per_layer.weight", 0, VOCAB, ALL_PER_LAYER));
        SKV_TRY(check(&k, "model.per_layer_model_projection.weight", 0, ALL_PER_LAYER, HIDDEN));
        SKV_TRY(check(&k, "model.per_layer_projection_norm.weight", 0, PER_LAYER, NONE));
    }
    for (size_t i = 0; i < c->n_layers; i++) SKV_TRY(check_layer(&k, i));
    return SKV_OK;
}

/* ---- opening ---- */

static skv_status build_index(skv_source *s, skv_error *err)
{
    skv_name_entry *entries = skv_alloc(s->n, sizeof *entries);
    SKV_REQUIRE(entries, err, SKV_MEMORY, "%s: no memory for %zu tensors", s->path, s->n);
    for (size_t i = 0; i < s->n; i++) entries[i] = (skv_name_entry){s->names[i], i};
    return skv_name_index_build(&s->index, entries, s->n, s->path, "tensor", err);
}

/* Libraries that drop one of two equal tensors keep either: a tied model may have its embedding
 * under the head's name only. A model without a head of its own is tied, regardless of its
 * configuration. */
static skv_status settle_head(skv_source *s, skv_error *err)
{
    const skv_tensor *embedding = skv_source_find(s, "model.embed_tokens.weight");
    const skv_tensor *head = skv_source_find(s, "lm_head.weight");
    if (!head && !skv_source_unusable(s, "lm_head.weight")) s->config.tied = true;
    if (embedding || !head || !s->config.tied) return SKV_OK;
    skv_tensor copy = *head;
    SKV_TRY(skv_source_add(s, "model.embed_tokens.weight", &copy, err));
    skv_name_index_release(&s->index);
    return build_index(s, err);
}

/* If a Gemma file does not state the type it is used in, the type of its embedding counts. */
static void settle_embedding_scale(skv_source *s)
{
    const skv_tensor *embedding = skv_source_find(s, "model.embed_tokens.weight");
    const bool gemma = strncmp(s->config.architecture, "gemma", 5) == 0;
    if (!embedding || !gemma || s->config.dtype[0]) return;
    const char *dtype = embedding->type == SKV_DTYPE_BF16  ? "bfloat16"
                        : embedding->type == SKV_DTYPE_F16 ? "float16"
                                                           : "float32";
    s->config.embedding_scale = skv_gemma_embedding_scale(s->config.hidden, dtype);
    s->config.per_layer_scale = skv_gemma_embedding_scale(s->config.per_layer, dtype);
}

typedef skv_status parse_fn(const char *json, size_t n, const char *name, skv_config *c,
                            skv_error *err);

static skv_status read_json(const char *path, parse_fn *parse, skv_config *c, skv_error *err)
{
    char *text;
    size_t n;
    SKV_TRY(skv_file_read(path, CONFIG_FILE_MAX, &text, &n, err));
    skv_status status = parse(text, n, path, c, err);
    skv_free(text);
    return status;
}

/* generation_config.json may be absent. */
skv_status skv_config_read(const char *folder, skv_config *out, skv_error *err)
{
    char *config = skv_path_join(folder, "config.json");
    char *generation = skv_path_join(folder, "generation_config.json");
    skv_status status = SKV_OK;
    if (!config || !generation) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    }
    if (status == SKV_OK) status = read_json(config, skv_config_parse, out, err);
    if (status == SKV_OK && skv_file_exists(generation)) {
        status = read_json(generation, skv_config_parse_generation, out, err);
        if (status != SKV_OK) skv_config_release(out);
    }
    skv_free(config);
    skv_free(generation);
    return status;
}

static skv_status add_all(skv_source *s, const skv_safetensors *from, skv_error *err)
{
    /* GLM-4's names and ours contradict each other; only folders that we wrote have this one. */
    const bool renamed =
        skv_config_is(&s->config, "glm4") &&
        skv_safetensors_find(from, "model.layers.0.pre_feedforward_layernorm.weight");
    const skv_name_scheme *scheme = skv_folder_scheme(&s->config, renamed);
    const bool has_images = skv_config_has_images(&s->config);
    for (size_t i = 0; i < skv_safetensors_count(from); i++) {
        skv_tensor t = *skv_safetensors_at(from, i);
        skv_status status = skv_coded_settle(&t, &s->config.quant, err);
        if (status != SKV_OK) return skv_fail_within(err, status, s->path);
        char buffer[256];
        char head[256];
        const bool is_head = s->is_mtp && strncmp(t.name, "mtp.", 4) == 0;
        const char *name =
            is_head ? t.name : skv_text_part_name(t.name, has_images, buffer, sizeof buffer);
        if (s->is_mtp && name) name = skv_mtp_folder_name(name, head, sizeof head);
        s->has_mtp = s->has_mtp || skv_mtp_is_fc(t.name, SIZE_MAX);
        if (name) SKV_TRY(skv_source_add_renamed(s, scheme, name, &t, err));
    }
    return SKV_OK;
}

/* Opens the base: the folder beside this one with the tensors that this one leaves out. */
static skv_status open_base(skv_source *s, skv_error *err)
{
    char *beside = skv_path_join(s->path, "..");
    char *base = beside ? skv_path_join(beside, s->config.base) : NULL;
    skv_status status = base ? skv_safetensors_open_folder(base, &s->base, err)
                             : skv_fail(err, SKV_MEMORY, "%s: no memory", s->path);
    skv_free(base);
    skv_free(beside);
    if (status != SKV_OK) return skv_fail_within(err, status, "swiftkv_base");
    s->n_own = s->n;
    return add_all(s, s->base, err);
}

static skv_status open_folder(skv_source *s, skv_error *err)
{
    SKV_TRY(skv_config_read(s->path, &s->config, err));
    if (s->is_mtp) SKV_TRY(skv_config_make_mtp(&s->config, s->path, err));
    const bool elsewhere = s->config.kv_prediction && s->config.base[0];
    if (!elsewhere) {
        SKV_TRY(skv_safetensors_open_folder(s->path, &s->safetensors, err));
        SKV_TRY(add_all(s, s->safetensors, err));
    }
    return s->config.base[0] ? open_base(s, err) : SKV_OK;
}

/* The configuration and the tensors of s->gguf. */
static skv_status read_gguf(skv_source *s, skv_error *err)
{
    SKV_TRY(skv_config_from_gguf(s->gguf, &s->config, err));
    const skv_name_scheme *scheme = skv_gguf_scheme(s->config.architecture);
    s->mtp_block = s->config.n_layers;
    if (s->is_mtp) SKV_TRY(skv_config_make_mtp(&s->config, s->path, err));
    for (size_t i = 0; i < skv_gguf_tensor_count(s->gguf); i++) {
        const skv_tensor *t = skv_gguf_tensor_at(s->gguf, i);
        s->has_mtp = s->has_mtp || skv_mtp_is_fc(t->name, s->mtp_block);
        if (s->is_mtp) {
            SKV_TRY(skv_mtp_add_block(s, scheme, s->mtp_block, t, err));
            continue;
        }
        SKV_TRY(skv_source_add_renamed(s, scheme, t->name, t, err));
    }
    return SKV_OK;
}

/* Completes the source once all tensors are listed. */
static skv_status settle(skv_source *s, skv_error *err)
{
    SKV_TRY(build_index(s, err));
    SKV_TRY(settle_head(s, err));
    settle_embedding_scale(s);
    return check_shapes(s, err);
}

static skv_status fill_from_path(skv_source *s, skv_error *err)
{
    if (skv_file_is_folder(s->path)) {
        SKV_TRY(open_folder(s, err));
    } else {
        SKV_TRY(skv_gguf_open(s->path, &s->gguf, err));
        SKV_TRY(read_gguf(s, err));
    }
    return settle(s, err);
}

static skv_source *create(const char *path)
{
    skv_source *s = skv_alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    s->path = skv_strndup(path, strlen(path));
    if (s->path) return s;
    skv_free(s);
    return NULL;
}

/* Hands out a finished source or closes it. */
static skv_status finish(skv_source *s, skv_status status, skv_source **out)
{
    if (status == SKV_OK) {
        *out = s;
    } else {
        skv_source_close(s);
    }
    return status;
}

static skv_status open_as(const char *path, bool is_mtp, skv_source **out, skv_error *err)
{
    skv_source *s = create(path);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", path);
    s->is_mtp = is_mtp;
    return finish(s, fill_from_path(s, err), out);
}

skv_status skv_source_open(const char *path, skv_source **out, skv_error *err)
{
    return open_as(path, false, out, err);
}

skv_status skv_source_open_mtp(const char *path, skv_source **out, skv_error *err)
{
    return open_as(path, true, out, err);
}

skv_status skv_source_parse_gguf(const void *data, size_t n, const char *name, skv_source **out,
                                 skv_error *err)
{
    skv_source *s = create(name);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", name);
    skv_status status = skv_gguf_parse(data, n, name, &s->gguf, err);
    if (status == SKV_OK) status = read_gguf(s, err);
    if (status == SKV_OK) status = settle(s, err);
    return finish(s, status, out);
}

void skv_source_close(skv_source *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) skv_free(s->names[i]);
    skv_free(s->names);
    skv_free(s->tensors);
    skv_name_index_release(&s->index);
    skv_config_release(&s->config);
    skv_safetensors_close(s->safetensors);
    skv_safetensors_close(s->base);
    skv_gguf_close(s->gguf);
    skv_free(s->path);
    skv_free(s);
}

size_t skv_source_stored_count(const skv_source *s)
{
    return s->safetensors ? skv_safetensors_count(s->safetensors) : 0;
}

const skv_tensor *skv_source_stored_at(const skv_source *s, size_t i, char *buffer, size_t size,
                                       const char **name)
{
    const skv_tensor *t = skv_safetensors_at(s->safetensors, i);
    const bool has_images = skv_config_has_images(&s->config);
    *name = skv_text_part_name(t->name, has_images, buffer, size);
    return t;
}
