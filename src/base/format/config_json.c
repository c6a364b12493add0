/*
 * config.json -> skv_config: see config.h.
 *
 * The families differ in defaults and in a few rules: config_family.h. Files by transformers 4 and
 * 5 are told apart key by key: keys that are present take precedence over defaults.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/config_family.h"

enum { CONFIG_BYTES_MAX = 16 << 20, LAYER_NAME_MAX = 8 /* digits */ };

/* A size whose class default holds only when the key is absent; an explicit null means `none`. */
static size_t size_or_null(skv_json_reader *r, const char *key, size_t absent, size_t none)
{
    bool is_null = skv_json_has(r, key) && !skv_json_get(r, key);
    return skv_json_size(r, key, is_null ? none : absent, SIZE_MAX / 2);
}

static double double_or_null(skv_json_reader *r, const char *key, double absent)
{
    bool is_null = skv_json_has(r, key) && !skv_json_get(r, key);
    return skv_json_double(r, key, is_null ? 0.0 : absent);
}

/* A file that is not an object. */
static void refuse_root(skv_json_reader *r, const json_t *root)
{
    char shown[SKV_JSON_SHOWN];
    skv_json_show(root, shown);
    skv_json_fail(r, SKV_FORMAT, "%s, expected a JSON object", shown);
    r->object = NULL;
}

/* One id or a list of ids. An absent key leaves `fallback`, an explicit null none. */
static void read_eos(skv_json_reader *r, skv_config *c, int fallback)
{
    const json_t *value = skv_json_get(r, "eos_token_id");
    if (!value) {
        if (!skv_json_has(r, "eos_token_id")) skv_config_add_eos(c, fallback);
    } else if (json_is_integer(value)) {
        skv_config_add_eos(c, json_integer_value(value));
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *id = json_array_get(value, i);
            if (!json_is_integer(id)) skv_json_refuse(r, "eos_token_id", id, "integers");
            skv_config_add_eos(c, json_integer_value(id));
        }
    } else {
        skv_json_refuse(r, "eos_token_id", value, "an integer or a list");
    }
}

static void read_bos(skv_json_reader *r, skv_config *c, int fallback)
{
    const json_t *value = skv_json_get(r, "bos_token_id");
    if (value && !json_is_integer(value)) skv_json_refuse(r, "bos_token_id", value, "an integer");
    if (!value && skv_json_has(r, "bos_token_id")) fallback = -1;
    skv_config_set_bos(c, value ? json_integer_value(value) : fallback);
}

static void read_activation(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    const char *key = f->gemma ? "hidden_activation" : "hidden_act";
    const char *name = skv_json_text(r, key, f->gemma ? "gelu_pytorch_tanh" : "silu");
    if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0) {
        c->activation = SKV_ACT_SILU;
    } else if (strcmp(name, "gelu_pytorch_tanh") == 0 || strcmp(name, "gelu_new") == 0) {
        c->activation = SKV_ACT_GELU_TANH;
    } else {
        skv_json_fail(r, SKV_UNSUPPORTED, "%s: %.60s is not supported", key, name);
    }
}

/* gpt-oss: the activation differs from hidden_act. */
static void read_clamped(skv_json_reader *r, skv_config *c)
{
    c->activation = SKV_ACT_SWIGLU_CLAMPED;
    c->swiglu_limit = skv_json_double(r, "swiglu_limit", 7.0);
    c->swiglu_alpha = skv_json_double(r, "swiglu_alpha", 1.702);
}

static bool is_windowed(skv_json_reader *r, const skv_family *f, const skv_config *c, size_t i)
{
    size_t pattern, upper;
    switch (f->windows) {
    case SKV_WINDOW_EVERY:
    case SKV_WINDOW_SWITCHED: return true;
    case SKV_WINDOW_UPPER:
        upper = skv_json_size(r, "max_window_layers", 28, SIZE_MAX / 2);
        return i >= upper;
    case SKV_WINDOW_PATTERN:
        pattern = f->window_period;
        if (strcmp(f->model_type, "gemma3_text") == 0) {
            pattern = skv_json_size(r, "_sliding_window_pattern", pattern, SIZE_MAX / 2);
            pattern = skv_json_size(r, "sliding_window_pattern", pattern, SIZE_MAX / 2);
        }
        if (!pattern) skv_json_fail(r, SKV_RANGE, "sliding_window_pattern: 0, expected 1 or more");
        return pattern && (i + 1) % pattern != 0;
    case SKV_WINDOW_STILL: return c->layers[i].i_rope > 0;
    case SKV_WINDOW_NEVER:
    default: return false;
    }
}

/* layer_types, where a file lists them, goes before the rule. */
static bool listed_window(skv_json_reader *r, const json_t *types, size_t i)
{
    const char *type = json_string_value(json_array_get(types, i));
    if (type && strcmp(type, "sliding_attention") == 0) return true;
    if (!type || strcmp(type, "full_attention") != 0) {
        char shown[SKV_JSON_SHOWN];
        skv_json_show(json_array_get(types, i), shown);
        skv_json_fail(r, SKV_UNSUPPORTED, "layer_types: not supported: %.80s", shown);
    }
    return false;
}

static void read_windows(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    size_t window = size_or_null(r, "sliding_window", f->window, 0);
    bool by_list = f->windows == SKV_WINDOW_UPPER || f->windows == SKV_WINDOW_STILL;
    bool switched = by_list || f->windows == SKV_WINDOW_SWITCHED;
    if (switched && !skv_json_bool(r, "use_sliding_window", false)) window = 0;
    const json_t *types = NULL;
    if (by_list || f->windows == SKV_WINDOW_PATTERN) {
        types = skv_json_get(r, "layer_types");
    }
    if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers)) {
        skv_json_refuse(r, "layer_types", types, "one entry a layer");
        return;
    }
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        bool windowed = types ? listed_window(r, types, i) : is_windowed(r, f, c, i);
        if (f->gemma4 && i + 1 == c->n_layers) windowed = false; /* regardless of the file */
        if (f->gemma4 && windowed && !window)
            skv_json_fail(r, SKV_RANGE, "sliding_window: 0, expected 1 or more");
        c->layers[i].window = windowed ? window : 0;
        if (f->two_ropes) c->layers[i].i_rope = windowed;
    }
}

/* no_rope_layers: 0 where a layer does not rotate. */
static void read_still_layers(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    if (!f->still_period) return;
    size_t period = skv_json_size(r, "no_rope_layer_interval", f->still_period, SIZE_MAX / 2);
    const json_t *list = skv_json_get(r, "no_rope_layers");
    if (list && (!json_is_array(list) || json_array_size(list) < c->n_layers)) {
        skv_json_refuse(r, "no_rope_layers", list, "one entry a layer");
        return;
    }
    if (!list && !period)
        skv_json_fail(r, SKV_RANGE, "no_rope_layer_interval: 0, expected 1 or more");
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        bool still = list ? !skv_json_size_of(r, json_array_get(list, i), "no_rope_layers", 1)
                          : (i + 1) % period == 0;
        c->layers[i].i_rope = still;
    }
}

/* Queries turn by a rope of their own, which grows with the position. */
static void read_growth(skv_json_reader *r, skv_json_reader rope, skv_config *c)
{
    if (!rope.object) {
        skv_json_fail(r, SKV_FORMAT, "rope_parameters: missing");
        return;
    }
    rope.status = r->status;
    c->ropes[1].position_growth = skv_json_double(&rope, "llama_4_scaling_beta", 0.0);
    r->status = rope.status;
    for (size_t i = 0; i < c->n_layers && c->ropes[1].position_growth != 0.0; i++) {
        c->layers[i].i_rope_q = 1;
    }
}

/* Returns the head dimension of layers with a window, or without; the default if there are none. */
static size_t head_of(const skv_config *c, bool windowed)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        if ((c->layers[i].window > 0) == windowed) return skv_config_head_dim(c, i);
    }
    return c->head_dim;
}

/* rope_scaling (transformers 4) goes before rope_parameters (5), which may be nested by the kind
 * of layer. */
static void read_ropes(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    skv_json_reader old = skv_json_child(r, "rope_scaling");
    skv_json_reader new = skv_json_child(r, "rope_parameters");
    if (r->status == SKV_OK) r->status = old.status != SKV_OK ? old.status : new.status;
    bool has_old = old.object && json_object_size(old.object) > 0;
    skv_rope_context in = {.head_dim = c->head_dim,
                           .context = c->context,
                           .theta = f->theta > 0.0 ? f->theta : 1e4,
                           .theta_key = "rope_theta",
                           .partial = f->partial > 0.0 ? f->partial : 1.0};
    if (strcmp(f->model_type, "phi3") == 0) {
        in.original_context = 4096;
        in.yarn_is_longrope = true;
    }
    if (!f->two_ropes) {
        skv_rope_from_json(r, has_old ? old : new, &in, &c->ropes[0]);
        const bool has_new = new.object &&json_object_size(new.object) > 0;
        if (f->sinks && !has_old && !has_new && r->status == SKV_OK)
            skv_rope_default_yarn(&c->ropes[0]);
        c->ropes[1] = c->ropes[0];
        if (f->still_period) c->ropes[1].scaling = SKV_ROPE_NONE;
        if (f->growing_queries) read_growth(r, has_old ? old : new, c);
        return;
    }
    if (f->gemma4) in.head_dim = head_of(c, false);
    if (f->gemma4 && !new.object) {
        in.kind = "proportional";
        in.partial = 0.25;
    }
    skv_json_reader full = skv_json_child(&new, "full_attention");
    skv_json_reader local = skv_json_child(&new, "sliding_attention");
    if (r->status == SKV_OK) r->status = new.status;
    skv_rope_from_json(r, has_old ? old : full, &in, &c->ropes[0]);
    if (f->local_theta > 0.0) in.theta = f->local_theta;
    in.theta_key = f->local_theta_key;
    if (f->gemma4) in.head_dim = head_of(c, true);
    in.kind = NULL;
    in.partial = f->gemma4 ? 1.0 : in.partial;
    skv_rope_from_json(r, local, &in, &c->ropes[1]);
}

/* Reads per_layer_config's entry for layer i, which may have leading zeros in its name:
 * transformers' newer spelling of the two keys. */
static void read_layer_override(skv_json_reader *r, size_t i, skv_layer_shape *l)
{
    char key[32] = "";
    skv_json_reader all = skv_json_child(r, "per_layer_config");
    for (int width = 1; width <= LAYER_NAME_MAX && !skv_json_get(&all, key); width++) {
        (void)snprintf(key, sizeof key, "%0*zu", width, i);
    }
    skv_json_reader one = skv_json_child(&all, key);
    one.status = r->status;
    l->head_dim = skv_json_size(&one, "head_dim", l->head_dim, SIZE_MAX / 2);
    l->n_kv_heads = skv_json_size(&one, "num_key_value_heads", l->n_kv_heads, SIZE_MAX / 2);
    if (one.object) r->status = one.status;
}

/* Layers without a window have larger heads, and perhaps fewer for K and no V; those that share
 * keys and values may have a wider block. Before windows are known by size, they are by kind. */
static void read_gemma4_layers(skv_json_reader *r, skv_config *c)
{
    const size_t small = c->head_dim;
    const bool k_is_v = skv_json_bool(r, "attention_k_eq_v", false);
    const bool wide = skv_json_bool(r, "use_double_wide_mlp", false);
    const bool listed = skv_json_get(r, "per_layer_config");
    const size_t large = listed ? small : size_or_null(r, "global_head_dim", 512, small);
    const size_t few = k_is_v ? size_or_null(r, "num_global_key_value_heads", 0, 0) : 0;
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        skv_layer_shape *l = &c->layers[i];
        l->head_dim = l->i_rope ? small : large;
        l->k_is_v = !l->i_rope && k_is_v;
        if (!l->i_rope && few) l->n_kv_heads = few;
        if (listed) read_layer_override(r, i, l);
        if (wide && i + c->n_shared >= c->n_layers && l->ffn < SIZE_MAX / 4) l->ffn *= 2;
        c->head_dim = i == 0 ? l->head_dim : skv_max_size(c->head_dim, l->head_dim);
    }
}

/* Experts beside the dense block, in every layer; nothing of theirs has a default. */
static void read_gemma4_experts(skv_json_reader *r, skv_config *c)
{
    const size_t n_experts = size_or_null(r, "num_experts", 0, 0);
    const size_t ffn = size_or_null(r, "moe_intermediate_size", 0, 0);
    c->n_active = size_or_null(r, "top_k_experts", 0, 0);
    c->norm_topk = true;
    const char *zero = !n_experts ? "num_experts" : !ffn ? "moe_intermediate_size" : NULL;
    if (zero) skv_json_fail(r, SKV_RANGE, "%s: 0, expected 1 or more", zero);
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        skv_layer_shape *l = &c->layers[i];
        l->ffn_beside = l->ffn;
        l->ffn = ffn;
        l->n_experts = n_experts;
    }
}

static void read_gemma4(skv_json_reader *r, skv_config *c)
{
    c->norm_offset_one = false;
    c->attention_scale = 1.0;
    c->v_norm = true;
    c->layer_scalar = true;
    read_gemma4_layers(r, c);
    c->per_layer = size_or_null(r, "hidden_size_per_layer_input", 256, 0);
    c->per_layer_scale = skv_gemma_embedding_scale(c->per_layer, c->dtype);
    const size_t vocab = skv_json_size(r, "vocab_size_per_layer_input", 262144, SIZE_MAX / 2);
    if (c->per_layer && vocab != c->vocab) {
        skv_json_fail(r, SKV_UNSUPPORTED, "vocab_size_per_layer_input %zu, expected vocab_size %zu",
                      vocab, c->vocab);
    }
    if (skv_json_bool(r, "enable_moe_block", false)) read_gemma4_experts(r, c);
}

static void read_gemma(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    c->norm_offset_one = true;
    c->post_norms = true;
    c->attention_softcap = double_or_null(r, "attn_logit_softcapping", f->attention_softcap);
    c->final_softcap = double_or_null(r, "final_logit_softcapping", f->final_softcap);
    double scalar = skv_json_double(r, "query_pre_attn_scalar", 256.0);
    if (!(scalar > 0.0)) {
        skv_json_fail(r, SKV_RANGE, "query_pre_attn_scalar: %g, expected a positive number",
                      scalar);
    }
    c->attention_scale = scalar > 0.0 ? 1.0 / sqrt(scalar) : 0.0;
    c->embedding_scale = skv_gemma_embedding_scale(c->hidden, c->dtype);
    if (f->gemma4) { /* "vision" is about images; "all" about every token */
        if (strcmp(skv_json_text(r, "use_bidirectional_attention", ""), "all") == 0) {
            skv_json_fail(r, SKV_UNSUPPORTED, "use_bidirectional_attention: all is not supported");
        }
    } else if (skv_json_bool(r, "use_bidirectional_attention", false)) {
        skv_json_fail(r, SKV_UNSUPPORTED, "use_bidirectional_attention: true is not supported");
    }
}

/* A multiplier of Granite's, by which something is divided here. */
static double positive(skv_json_reader *r, const char *key)
{
    double value = skv_json_double(r, key, 1.0);
    if (!(value > 0.0)) {
        skv_json_fail(r, SKV_RANGE, "%s: %g, expected a positive number", key, value);
    }
    return value > 0.0 ? value : 1.0;
}

static void read_multipliers(skv_json_reader *r, skv_config *c)
{
    skv_config_set_multipliers(c, positive(r, "embedding_multiplier"),
                               positive(r, "residual_multiplier"), positive(r, "logits_scaling"));
    c->attention_scale = positive(r, "attention_multiplier");
}

static void read_shape(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    c->vocab = skv_json_size(r, "vocab_size", f->vocab, SIZE_MAX / 2);
    c->hidden = skv_json_size(r, "hidden_size", f->hidden, SIZE_MAX / 2);
    c->context = skv_json_size(r, "max_position_embeddings", f->context, SIZE_MAX / 2);
    size_t n_layers = skv_json_size(r, "num_hidden_layers", f->n_layers, SIZE_MAX / 2);
    skv_layer_shape shape = {0};
    shape.n_heads = skv_json_size(r, "num_attention_heads", f->n_heads, SIZE_MAX / 2);
    shape.n_kv_heads = size_or_null(r, "num_key_value_heads",
                                    f->n_kv_heads ? f->n_kv_heads : shape.n_heads, shape.n_heads);
    shape.ffn = skv_json_size(r, "intermediate_size", f->ffn, SIZE_MAX / 2);
    if (!shape.n_heads) {
        skv_json_fail(r, SKV_RANGE, "num_attention_heads: 0, expected 1 or more");
        return;
    }
    size_t derived = c->hidden / shape.n_heads;
    c->head_dim = size_or_null(r, "head_dim", f->head_dim ? f->head_dim : derived, derived);
    if (r->status != SKV_OK) return;
    r->status = skv_config_set_layers(c, n_layers, shape, r->name, r->err);
}

static void read_family(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    read_shape(r, f, c);
    if (r->status != SKV_OK) return;
    c->norm_eps = skv_json_double(r, "rms_norm_eps", f->norm_eps > 0.0 ? f->norm_eps : 1e-6);
    c->attention_scale = 1.0 / sqrt((double)c->head_dim);
    c->embedding_scale = 1.0;
    c->tied = skv_json_bool(r, "tie_word_embeddings", f->tied);
    bool by_key = f->bias == SKV_BIAS_BY_KEY && skv_json_bool(r, "attention_bias", f->biased);
    bool qkv_by_key = f->bias == SKV_BIAS_QKV_BY_KEY && skv_json_bool(r, "attention_bias", true);
    c->qkv_bias = f->bias == SKV_BIAS_QKV || by_key || qkv_by_key;
    c->o_bias = by_key;
    c->mlp_bias = f->mlp_bias && skv_json_bool(r, "mlp_bias", false);
    c->qk_norm = f->qk_norm;
    c->sinks = f->sinks;
    c->router_bias = c->expert_bias = f->biased;
    c->qk_norm_joined = c->no_pre_norms = f->olmo;
    c->post_norms = f->olmo || f->glm;
    if (f->gemma) read_gemma(r, f, c);
    if (f->multipliers) read_multipliers(r, c);
    read_activation(r, f, c);
    if (f->sinks) read_clamped(r, c);
    read_still_layers(r, f, c);
    read_windows(r, f, c);
    skv_config_read_mixers(r, f->attention_period, c);
    if (f->short_convs && r->status == SKV_OK) skv_config_read_convs(r, c);
    c->n_shared = size_or_null(r, "num_kv_shared_layers", 0, 0);
    if (f->gemma4) read_gemma4(r, c);
    skv_config_read_moe(r, &f->moe, c);
    read_ropes(r, f, c);
    if (f->more && r->status == SKV_OK) f->more(r, c);
    read_bos(r, c, f->bos);
    read_eos(r, c, f->eos);
}

/* The length of the model type without "_swiftkv". */
static size_t base_length(const char *model_type)
{
    static const char suffix[] = "_swiftkv";
    size_t n = strlen(model_type), n_suffix = sizeof suffix - 1;
    bool swiftkv = n > n_suffix && strcmp(model_type + n - n_suffix, suffix) == 0;
    return swiftkv ? n - n_suffix : n;
}

static void read_swiftkv(skv_json_reader *r, bool swiftkv, skv_config *c)
{
    c->swiftkv = swiftkv;
    c->kv_layers = c->n_layers;
    c->kv_group = 1;
    if (!swiftkv) return;
    c->kv_layers = skv_json_size(r, "num_key_value_layers", c->n_layers, SIZE_MAX / 2);
    c->kv_group = skv_json_size(r, "key_value_group_size", 1, SIZE_MAX / 2);
    c->early_exit = skv_json_bool(r, "swiftkv_early_exit", false);
    c->exit_words = skv_json_size(r, "swiftkv_exit_words", 0, SIZE_MAX / 2);
}

/* A name alone: a configuration cannot make the program open files elsewhere. */
static void read_base(skv_json_reader *r, skv_config *c)
{
    const char *base = skv_json_text(r, "swiftkv_base", "");
    const bool plain = base[0] != '.' && !strchr(base, '/') && strlen(base) < sizeof c->base;
    if (!plain) {
        skv_json_fail(r, SKV_FORMAT,
                      "swiftkv_base: expected the name of a folder next to this one");
        return;
    }
    (void)snprintf(c->base, sizeof c->base, "%s", base);
}

/* `f` is NULL for a family that is not in the table. */
static void refuse_extras(skv_json_reader *r, const skv_family *f, skv_config *c)
{
    skv_config_read_quantization(r, c);
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    if (f && (f->moe.n_experts || f->gemma4 || f->more)) return; /* they are read, or off */
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        const json_t *value = skv_json_get(r, experts[i]);
        if (json_integer_value(value) > 1) {
            skv_json_fail(r, SKV_UNSUPPORTED, "%s: %lld: mixtures of experts are not supported",
                          experts[i], (long long)json_integer_value(value));
        }
    }
}

/* dtype (transformers 5) or torch_dtype (4); the outer file speaks for a text part inside it. */
static void read_dtype(skv_json_reader *outer, skv_json_reader *r, skv_config *c)
{
    const char *dtype = skv_json_text(outer, "dtype", skv_json_text(outer, "torch_dtype", ""));
    dtype = skv_json_text(r, "dtype", skv_json_text(r, "torch_dtype", dtype));
    (void)snprintf(c->dtype, sizeof c->dtype, "%.15s", dtype);
}

static void refuse_type(skv_json_reader *r, const char *type)
{
    const char *why = skv_family_refusal(type, strlen(type));
    if (r->status != SKV_OK) return;
    r->status = *type
                    ? skv_fail(r->err, SKV_UNSUPPORTED, "%s: model_type %.60s is not supported%s%s",
                               r->name, type, why ? ": " : "", why ? why : "")
                    : skv_fail(r->err, SKV_FORMAT, "%s: model_type: missing", r->name);
}

/* A text part that does not say whether its head is the embedding inherits this from the outer
 * file. */
static void read_tied(skv_json_reader *outer, const skv_json_reader *r, skv_config *c)
{
    static const char key[] = "tie_word_embeddings";
    if (!skv_json_has(r, key)) c->tied = skv_json_bool(outer, key, c->tied);
}

static void read_config(skv_json_reader *r, skv_config *c)
{
    const char *type = skv_json_text(r, "model_type", "");
    skv_json_reader outer = *r;
    const char *text_type = skv_config_text_part(type);
    if (text_type) {
        refuse_extras(r, NULL, c);
        if (!skv_json_get(r, "text_config")) skv_json_fail(r, SKV_FORMAT, "text_config: missing");
        skv_json_reader inner = skv_json_child(r, "text_config");
        type = skv_json_text(&inner, "model_type", text_type);
        if (strcmp(type, "gemma4_unified_text") == 0) type = "gemma4_text";
        if (inner.status == SKV_OK) inner.status = r->status;
        *r = inner;
    }
    size_t n_base = base_length(type);
    bool swiftkv = type[n_base] != 0;
    bool is_openelm = n_base == strlen("openelm") && strncmp(type, "openelm", n_base) == 0;
    const skv_family *f = is_openelm ? NULL : skv_family_find(type, n_base);
    if (!f && !is_openelm) {
        refuse_type(r, type);
        return;
    }
    (void)snprintf(c->architecture, sizeof c->architecture, "%s", type);
    refuse_extras(r, f, c);
    read_dtype(&outer, r, c);
    if (f) {
        read_family(r, f, c);
        read_tied(&outer, r, c);
    } else {
        skv_config_from_openelm(r, c);
        c->ropes[1] = c->ropes[0];
        c->attention_scale = c->head_dim ? 1.0 / sqrt((double)c->head_dim) : 0.0;
        c->embedding_scale = 1.0;
        read_bos(r, c, 1);
        read_eos(r, c, 2);
    }
    if (r->status == SKV_OK) read_swiftkv(r, swiftkv, c);
    if (r->status != SKV_OK) return;
    read_base(&outer, c);
    if (outer.status == SKV_OK) skv_config_read_kvp(&outer, c);
    r->status = outer.status;
}

/* Python writes Infinity for a limit that there is not, which no JSON is: null stands for it. */
static void replace_infinities(char *json, size_t n)
{
    static const char word[] = "Infinity", null[] = "null    ";
    const size_t size = sizeof word - 1;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (json[i] == '\\' && in_string) {
            i++;
        } else if (json[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && i + size <= n && memcmp(json + i, word, size) == 0) {
            memcpy(json + i, null, size);
        }
    }
}

static skv_status load_root(const char *json, size_t n, const char *name, json_t **root,
                            skv_error *err)
{
    if (n > CONFIG_BYTES_MAX || n == 0)
        return skv_json_load(json, n, CONFIG_BYTES_MAX, name, root, err);
    char *copy = skv_alloc(n, 1);
    SKV_REQUIRE(copy, err, SKV_MEMORY, "%s: no memory", name);
    memcpy(copy, json, n);
    replace_infinities(copy, n);
    const skv_status status = skv_json_load(copy, n, CONFIG_BYTES_MAX, name, root, err);
    skv_free(copy);
    return status;
}

skv_status skv_config_parse(const char *json, size_t n, const char *name, skv_config *out,
                            skv_error *err)
{
    json_t *root;
    SKV_TRY(load_root(json, n, name, &root, err));
    skv_json_reader r = {root, name, err, SKV_OK};
    skv_config c = {.bos = -1};
    if (json_is_object(root)) {
        read_config(&r, &c);
    } else {
        refuse_root(&r, root);
    }
    json_decref(root);
    skv_status status = r.status == SKV_OK ? skv_config_check(&c, name, err) : r.status;
    if (status != SKV_OK) {
        skv_config_release(&c);
        return status;
    }
    *out = c;
    return SKV_OK;
}

skv_status skv_config_parse_generation(const char *json, size_t n, const char *name, skv_config *c,
                                       skv_error *err)
{
    json_t *root;
    SKV_TRY(skv_json_load(json, n, CONFIG_BYTES_MAX, name, &root, err));
    skv_json_reader r = {root, name, err, SKV_OK};
    if (!json_is_object(root)) refuse_root(&r, root);
    skv_config copy = *c; /* results are set only on success */
    read_eos(&r, &copy, -1);
    static const char *const keys[] = {"temperature", "top_p", "top_k", "repetition_penalty"};
    bool named = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) named |= !!skv_json_get(&r, keys[i]);
    copy.has_sampling = skv_json_bool(&r, "do_sample", named);
    copy.temperature = skv_json_double(&r, "temperature", 1.0);
    copy.top_p = skv_json_double(&r, "top_p", 1.0);
    copy.top_k = skv_json_size(&r, "top_k", 0, SIZE_MAX / 2);
    copy.repetition_penalty = skv_json_double(&r, "repetition_penalty", 1.0);
    json_decref(root);
    if (r.status == SKV_OK) *c = copy;
    return r.status;
}
