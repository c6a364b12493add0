/*
 * OpenELM's config.json (arXiv:2404.14619): the head count and FFN width of every layer are
 * listed, or follow from multipliers that grow linearly with depth.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/config_build.h"

/* Python's round(x, 2): the decimal nearest to the binary value. */
static double round_to_cents(double x)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%.2f", x);
    return strtod(text, NULL);
}

/* The multiplier of layer i: one number for all, [first, last] to interpolate, or all listed. */
static double multiplier(skv_json_reader *r, const char *key, size_t i, size_t n_layers)
{
    const json_t *value = skv_json_get(r, key);
    if (!value) {
        skv_json_fail(r, SKV_FORMAT, "%s: missing", key);
        return 1.0;
    }
    if (!json_is_array(value)) return skv_json_double_of(r, value, key);
    size_t n = json_array_size(value);
    if (n == 2) {
        double first = skv_json_double_of(r, json_array_get(value, 0), key);
        double last = skv_json_double_of(r, json_array_get(value, 1), key);
        if (n_layers == 1) return round_to_cents(first);
        if (i + 1 == n_layers) return round_to_cents(last);
        return round_to_cents(first + (double)i * ((last - first) / (double)(n_layers - 1)));
    }
    if (n != n_layers) {
        skv_json_refuse(r, key, value, "one value, two, or one a layer");
        return 1.0;
    }
    return skv_json_double_of(r, json_array_get(value, i), key);
}

/* The multiple of `divisor` nearest to x, at least one, and not below 0.9 x. */
static size_t make_divisible(double x, size_t divisor)
{
    if (!(x > 0.0 && x < 1e9)) return divisor;
    size_t value = (size_t)(x + (double)divisor / 2.0) / divisor * divisor;
    if (value < divisor) value = divisor;
    return (double)value < 0.9 * x ? value + divisor : value;
}

void skv_openelm_shape(const skv_config *c, size_t i, skv_layer_shape *out)
{
    enum { GROUP = 4, FFN_DIVISOR = 256 };
    double share = c->n_layers > 1 ? (double)i / (double)(c->n_layers - 1) : 0.0;
    double heads = round_to_cents(0.5 + 0.5 * share), ffn = round_to_cents(0.5 + 3.5 * share);
    double hidden = (double)c->hidden;
    out->n_heads = make_divisible(hidden * heads, c->head_dim * GROUP) / c->head_dim;
    out->n_kv_heads = out->n_heads / GROUP;
    out->ffn = make_divisible(hidden * ffn, FFN_DIVISOR);
}

/* Element i of a list with one value a layer; 0 when the key is absent. */
static size_t listed(skv_json_reader *r, const char *key, size_t i, size_t n_layers)
{
    const json_t *list = skv_json_get(r, key);
    if (!list) return 0;
    if (!json_is_array(list) || json_array_size(list) != n_layers) {
        skv_json_refuse(r, key, list, "one value a layer");
        return 0;
    }
    return skv_json_size_of(r, json_array_get(list, i), key, 1 << 20);
}

static void read_layer(skv_json_reader *r, skv_config *c, size_t i, size_t n_groups)
{
    skv_layer_shape *l = &c->layers[i];
    double hidden = (double)c->hidden;
    l->n_heads = listed(r, "num_query_heads", i, c->n_layers);
    if (!l->n_heads) {
        double x = hidden * multiplier(r, "qkv_multipliers", i, c->n_layers);
        l->n_heads = make_divisible(x, c->head_dim * n_groups) / c->head_dim;
    }
    l->n_kv_heads = listed(r, "num_kv_heads", i, c->n_layers);
    if (!l->n_kv_heads) l->n_kv_heads = l->n_heads / n_groups;
    size_t divisor = skv_json_size(r, "ffn_dim_divisor", 256, 1 << 20);
    if (!divisor) {
        skv_json_fail(r, SKV_RANGE, "ffn_dim_divisor: 0, expected 1 or more");
        return;
    }
    l->ffn = make_divisible(hidden * multiplier(r, "ffn_multipliers", i, c->n_layers), divisor);
}

/* The published models make these choices; others exist in the family's code only. */
static void refuse_variants(skv_json_reader *r)
{
    if (!skv_json_bool(r, "ffn_with_glu", true)) {
        skv_json_fail(r, SKV_UNSUPPORTED, "ffn_with_glu: false is not supported");
    }
    const char *act = skv_json_text(r, "activation_fn_name", "swish");
    if (strcmp(act, "swish") != 0 && strcmp(act, "silu") != 0) {
        skv_json_refuse(r, "activation_fn_name", skv_json_get(r, "activation_fn_name"), "swish");
    }
    const char *norm = "normalization_layer_name";
    if (strcmp(skv_json_text(r, norm, "rms_norm"), "rms_norm") != 0) {
        skv_json_refuse(r, norm, skv_json_get(r, norm), "rms_norm");
    }
}

void skv_config_from_openelm(skv_json_reader *r, skv_config *c)
{
    refuse_variants(r);
    c->vocab = skv_json_size(r, "vocab_size", 32000, SIZE_MAX / 2);
    c->context = skv_json_size(r, "max_context_length", 2048, SIZE_MAX / 2);
    c->hidden = skv_json_size(r, "model_dim", 2048, 1 << 20);
    c->head_dim = skv_json_size(r, "head_dim", 128, 1 << 20);
    size_t n_layers = skv_json_size(r, "num_transformer_layers", 12, SIZE_MAX / 2);
    size_t n_groups = skv_json_size(r, "num_gqa_groups", 1, 1 << 20);
    c->qk_norm = skv_json_bool(r, "normalize_qk_projections", false);
    c->tied = skv_json_bool(r, "share_input_output_layers", false);
    c->norm_eps = 1e-6;
    c->ropes[0] = (skv_rope){
        .theta = skv_json_double(r, "rope_freq_constant", 10000.0),
        .n_rot = c->head_dim,
        .factor = 1.0,
        .attention_factor = 1.0,
    };
    if (!n_groups) skv_json_fail(r, SKV_RANGE, "num_gqa_groups: 0, expected 1 or more");
    if (!c->head_dim) skv_json_fail(r, SKV_RANGE, "head_dim: 0, expected 1 or more");
    if (r->status != SKV_OK) return;
    r->status = skv_config_set_layers(c, n_layers, (skv_layer_shape){0}, r->name, r->err);
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) read_layer(r, c, i, n_groups);
}
