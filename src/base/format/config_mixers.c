/* Layers without attention in a configuration: see config.h and config_build.h. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/config_build.h"

enum { MIXER_HEADS_MAX = 1 << 12, MIXER_DIM_MAX = 512, CONV_ROWS_MAX = 8 };

bool skv_config_is_hybrid(const skv_config *c)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        if (skv_config_keeps_state(c, i)) return true;
    }
    return false;
}

bool skv_config_may_predict(const skv_config *c)
{
    return skv_config_is(c, "qwen3_next") || skv_config_is(c, "qwen3_5_text") ||
           skv_config_is(c, "qwen3_5_moe_text");
}

bool skv_config_feeds_states(const skv_config *c)
{
    for (size_t i = c->kv_layers; c->swiftkv && i < c->n_layers; i++) {
        if (skv_config_keeps_state(c, i)) return true;
    }
    return false;
}

uint64_t skv_config_mixer_weights(const skv_config *c, size_t i)
{
    const uint64_t D = c->hidden, q = skv_config_q_columns(c, i);
    const uint64_t q_and_o = c->attention_gate ? 3 * q : 2 * q;
    return D * (q_and_o + skv_config_kv_columns(c, i)) + skv_config_state_weights(c, i);
}

uint64_t skv_config_state_weights(const skv_config *c, size_t i)
{
    const uint64_t D = c->hidden;
    if (!skv_config_keeps_state(c, i)) return 0;
    if (c->layers[i].mixer == SKV_MIXER_CONV) return 4 * D * D;
    /* q, k, v; z and out_proj; b and a */
    return D * (skv_mixer_conv_columns(&c->mixer) + 2 * skv_mixer_value_columns(&c->mixer) +
                skv_config_gate_columns(c, i));
}

size_t skv_config_mixer_numbers(const skv_config *c, size_t i)
{
    const skv_mixer_shape *m = &c->mixer;
    const size_t C = skv_config_conv_columns(c, i), n = C * m->conv_rows;
    switch (c->layers[i].mixer) {
    case SKV_MIXER_DELTA: return n + 2 * m->n_value_heads + m->value_dim;
    case SKV_MIXER_MAMBA:
    case SKV_MIXER_BOTH:
        return n + (m->conv_bias ? C : 0) + 3 * m->n_value_heads +
               (m->no_norm ? 0 : skv_mixer_value_columns(m));
    case SKV_MIXER_CONV: return n;
    case SKV_MIXER_ATTENTION:
    case SKV_MIXER_NONE:
    default: return 0;
    }
}

/* As the recurrence is written down: 5 for an element of a state, 3 without the delta rule's
 * correction, and 2 more where it is read. */
double skv_config_state_work(const skv_config *c, size_t i, bool comes_out)
{
    const skv_mixer_shape *m = &c->mixer;
    const double state = (double)skv_mixer_value_columns(m) * (double)m->key_dim;
    if (!skv_config_keeps_state(c, i)) return 0;
    const double written = c->layers[i].mixer == SKV_MIXER_DELTA ? 5 : 3;
    return (comes_out ? written + 2 : written) * state +
           2 * (double)m->conv_rows * (double)skv_config_conv_columns(c, i);
}

static void read_shape(skv_json_reader *r, skv_mixer_shape *m)
{
    const size_t most = SIZE_MAX / 2;
    m->n_key_heads = skv_json_size(r, "linear_num_key_heads", 16, most);
    m->n_value_heads = skv_json_size(r, "linear_num_value_heads", 32, most);
    m->key_dim = skv_json_size(r, "linear_key_head_dim", 128, most);
    m->value_dim = skv_json_size(r, "linear_value_head_dim", 128, most);
    m->conv_rows = skv_json_size(r, "linear_conv_kernel_dim", 4, most);
    m->write_max = 1;
}

/* SKV_MIXER_ATTENTION, or SKV_MIXER_DELTA for any layer of the `other` type. */
static skv_mixer listed_mixer(skv_json_reader *r, const json_t *types, const char *other, size_t i)
{
    const json_t *value = json_array_get(types, i);
    const char *type = json_string_value(value);
    if (type && strcmp(type, "full_attention") == 0) return SKV_MIXER_ATTENTION;
    if (!type || strcmp(type, other) != 0) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "full_attention or %s", other);
        skv_json_refuse(r, "layer_types", value, expected);
    }
    return SKV_MIXER_DELTA;
}

void skv_config_read_mixers(skv_json_reader *r, size_t period, skv_config *c)
{
    if (period == 0) return;
    const json_t *types = skv_json_get(r, "layer_types");
    period = skv_json_size(r, "full_attention_interval", period, SIZE_MAX / 2);
    if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers)) {
        skv_json_refuse(r, "layer_types", types, "one entry a layer");
    }
    if (!types && period == 0) {
        skv_json_fail(r, SKV_RANGE, "full_attention_interval: 0, expected 1 or more");
    }
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        const bool attends = !types && (i + 1) % period == 0;
        c->layers[i].mixer = types     ? listed_mixer(r, types, "linear_attention", i)
                             : attends ? SKV_MIXER_ATTENTION
                                       : SKV_MIXER_DELTA;
    }
    read_shape(r, &c->mixer);
    c->mixer.norm_eps = c->norm_eps;
    c->norm_offset_one = true;
    c->attention_gate = skv_json_bool(r, "attn_output_gate", true);
}

/* Layers that full_attn_idxs lists have attention; without a list all have. */
static bool is_listed(skv_json_reader *r, const json_t *list, size_t i)
{
    bool found = !list;
    for (size_t j = 0; j < json_array_size(list); j++) {
        const json_t *value = json_array_get(list, j);
        if (!json_is_integer(value)) skv_json_refuse(r, "full_attn_idxs", value, "integers");
        found = found || json_integer_value(value) == (json_int_t)i;
    }
    return found;
}

/* The width of the blocks, which some files state before it is adjusted. */
static size_t conv_ffn(skv_json_reader *r, size_t ffn)
{
    const size_t most = (size_t)1 << 30;
    ffn = skv_json_size(r, "block_ff_dim", ffn, most);
    if (!skv_json_bool(r, "block_auto_adjust_ff_dim", true)) return ffn;
    ffn = 2 * skv_min_size(ffn, most) / 3;
    const double multiplier = skv_json_double(r, "block_ffn_dim_multiplier", 1.0);
    const size_t step = skv_json_size(r, "block_multiple_of", 256, most);
    if (!(multiplier > 0.0 && multiplier < 1024.0) || step == 0) {
        skv_json_fail(
            r, SKV_RANGE,
            "block_ffn_dim_multiplier %g, block_multiple_of %zu: expected positive numbers",
            multiplier, step);
        return ffn;
    }
    return skv_ceil_div((size_t)(multiplier * (double)ffn), step) * step;
}

/* Reads which layers have attention, and the values that all files of LFM2 have. */
static void read_conv_layers(skv_json_reader *r, skv_config *c)
{
    const json_t *types = skv_json_get(r, "layer_types");
    const json_t *list = types ? NULL : skv_json_get(r, "full_attn_idxs");
    c->norm_eps = skv_json_double(r, "norm_eps", c->norm_eps);
    c->tied = skv_json_bool(r, "tie_embedding", c->tied);
    c->mixer.conv_rows = skv_json_size(r, "conv_L_cache", 3, SIZE_MAX / 2);
    if (types && (!json_is_array(types) || json_array_size(types) != c->n_layers)) {
        skv_json_refuse(r, "layer_types", types, "one entry a layer");
    }
    if (list && !json_is_array(list)) skv_json_refuse(r, "full_attn_idxs", list, "a list");
    if (skv_json_bool(r, "conv_bias", false)) {
        skv_json_fail(r, SKV_UNSUPPORTED, "conv_bias: true is not supported");
    }
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        const bool attends = types ? listed_mixer(r, types, "conv", i) == SKV_MIXER_ATTENTION
                                   : is_listed(r, list, i);
        c->layers[i].mixer = attends ? SKV_MIXER_ATTENTION : SKV_MIXER_CONV;
    }
}

void skv_config_read_convs(skv_json_reader *r, skv_config *c)
{
    const size_t ffn = conv_ffn(r, c->layers[0].ffn);
    read_conv_layers(r, c);
    for (size_t i = 0; i < c->n_layers; i++) c->layers[i].ffn = ffn;
}

void skv_config_read_lfm2_moe(skv_json_reader *r, skv_config *c)
{
    static const skv_moe_defaults moe = {
        .n_experts = 32, .n_active = 4, .ffn = 1792, .by_key = true, .normed = true};
    const size_t ffn = c->layers[0].ffn;
    const size_t n_dense = skv_json_size(r, "num_dense_layers", 2, SIZE_MAX / 2);
    if (!skv_json_get(r, "layer_types"))
        skv_json_refuse(r, "layer_types", NULL, "one entry a layer");
    read_conv_layers(r, c);
    if (r->status == SKV_OK) skv_config_read_moe(r, &moe, c);
    for (size_t i = 0; i < n_dense && i < c->n_layers; i++) {
        c->layers[i].n_experts = 0;
        c->layers[i].ffn = ffn;
    }
    c->router_sigmoid = true;
    c->router_eps = 1e-6;
    c->router_scale = skv_json_double(r, "routed_scaling_factor", 1.0);
    c->choice_bias = skv_json_bool(r, "use_expert_bias", true);
}

/* The delta rule with factors up to 2, and norms of another place beside it. */
void skv_config_read_olmo_hybrid(skv_json_reader *r, skv_config *c)
{
    const size_t most = SIZE_MAX / 2, H = c->layers[0].n_heads;
    skv_mixer_shape *m = &c->mixer;
    skv_config_read_mixers(r, 4, c);
    m->n_key_heads = skv_json_size(r, "linear_num_key_heads", H, most);
    m->n_value_heads = skv_json_size(r, "linear_num_value_heads", H, most);
    const size_t nk = m->n_key_heads > 0 ? m->n_key_heads : 1;
    m->key_dim = skv_json_size(r, "linear_key_head_dim", 3 * c->hidden / (4 * nk), most);
    m->value_dim = skv_json_size(r, "linear_value_head_dim", 2 * m->key_dim, most);
    m->norm_eps = 1e-5;
    m->write_max = skv_json_bool(r, "linear_allow_neg_eigval", true) ? 2 : 1;
    c->norm_offset_one = c->attention_gate = false;
    c->state_pre_norms = true;
    const skv_json_reader rope = skv_json_child(r, "rope_parameters");
    if (skv_json_has(&rope, "rope_theta") && !skv_json_get(&rope, "rope_theta")) {
        c->ropes[0].scaling = c->ropes[1].scaling = SKV_ROPE_NONE;
    }
}

static skv_status check_one(const skv_config *c, const char *name, skv_config_field field,
                            size_t value, size_t least, size_t most, skv_error *err)
{
    SKV_REQUIRE(value >= least && value <= most, err, SKV_RANGE, "%s: %s %zu, expected %zu to %zu",
                name, skv_config_field_name(c, field).text, value, least, most);
    return SKV_OK;
}

/* The requirements of delta-rule and Mamba-2 layers beyond the convolution. */
static skv_status check_heads(const skv_config *c, const char *name, skv_error *err)
{
    const skv_mixer_shape *m = &c->mixer;
    SKV_REQUIRE(m->norm_eps > 0 && m->norm_eps < 1, err, SKV_RANGE, "%s: %s %g, expected 0 to 1",
                name, skv_config_field_name(c, SKV_CONFIG_FIELD_EPS).text, m->norm_eps);
    SKV_REQUIRE(m->dt_min >= 0 && (m->dt_max == 0 || m->dt_max >= m->dt_min) && m->dt_max < 1e30,
                err, SKV_RANGE, "%s: time_step_limit %g to %g, expected 0 or more, ascending", name,
                m->dt_min, m->dt_max);
    SKV_TRY(
        check_one(c, name, SKV_CONFIG_FIELD_KEY_HEADS, m->n_key_heads, 1, MIXER_HEADS_MAX, err));
    SKV_TRY(check_one(c, name, SKV_CONFIG_FIELD_VALUE_HEADS, m->n_value_heads, 1, MIXER_HEADS_MAX,
                      err));
    SKV_REQUIRE(m->n_value_heads % m->n_key_heads == 0, err, SKV_RANGE,
                "%s: %s %zu, expected a multiple of %s %zu", name,
                skv_config_field_name(c, SKV_CONFIG_FIELD_VALUE_HEADS).text, m->n_value_heads,
                skv_config_field_name(c, SKV_CONFIG_FIELD_KEY_HEADS).text, m->n_key_heads);
    SKV_TRY(check_one(c, name, SKV_CONFIG_FIELD_KEY_DIM, m->key_dim, 1, MIXER_DIM_MAX, err));
    SKV_TRY(check_one(c, name, SKV_CONFIG_FIELD_VALUE_DIM, m->value_dim, 1, MIXER_DIM_MAX, err));
    return SKV_OK;
}

/* The requirements of layers whose state SwiftKV's boundary feeds; n counts mixers. */
static skv_status check_fed(const skv_config *c, const size_t n[], const char *name, skv_error *err)
{
    SKV_REQUIRE(n[SKV_MIXER_CONV] == 0, err, SKV_UNSUPPORTED,
                "%s: %s: SwiftKV does not fit layers that are a short convolution alone", name,
                c->architecture);
    SKV_REQUIRE(n[SKV_MIXER_BOTH] == 0, err, SKV_UNSUPPORTED,
                "%s: %s: SwiftKV does not fit layers with attention beside a state", name,
                c->architecture);
    SKV_REQUIRE(c->kv_group == 1, err, SKV_UNSUPPORTED,
                "%s: key_value_group_size %zu: only 1 fits layers that keep a state", name,
                c->kv_group);
    SKV_REQUIRE(!c->early_exit, err, SKV_UNSUPPORTED,
                "%s: swiftkv_early_exit: does not fit layers that keep a state", name);
    size_t i = c->kv_layers;
    while (i < c->n_layers && c->layers[i].mixer == SKV_MIXER_NONE) i++;
    SKV_REQUIRE(i < c->n_layers || c->kv_layers >= c->n_layers, err, SKV_RANGE,
                "%s: num_key_value_layers %zu: no layer above it keeps anything", name,
                c->kv_layers);
    return SKV_OK;
}

skv_status skv_config_check_mixers(const skv_config *c, const char *name, skv_error *err)
{
    size_t n[SKV_MIXER_NONE + 1] = {0};
    SKV_REQUIRE(!c->single_blocks || skv_config_is_hybrid(c), err, SKV_UNSUPPORTED,
                "%s: no layer keeps a state: %s without any is not supported", name,
                c->architecture);
    if (!skv_config_is_hybrid(c)) return SKV_OK;
    for (size_t i = 0; i < c->n_layers; i++) n[c->layers[i].mixer]++;
    const size_t n_heads = n[SKV_MIXER_DELTA] + n[SKV_MIXER_MAMBA] + n[SKV_MIXER_BOTH];
    SKV_REQUIRE(n[SKV_MIXER_ATTENTION] + n[SKV_MIXER_BOTH] > 0, err, SKV_UNSUPPORTED,
                "%s: no layer has attention: models without any are not supported", name);
    if (n_heads > 0) SKV_TRY(check_heads(c, name, err));
    const size_t K = c->mixer.conv_rows;
    SKV_TRY(check_one(c, name, SKV_CONFIG_FIELD_CONV_ROWS, K, 2, CONV_ROWS_MAX, err));
    SKV_REQUIRE(!c->kv_prediction && c->n_shared == 0, err, SKV_UNSUPPORTED,
                "%s: %s: KV Prediction and shared keys and values do not fit layers that keep a "
                "state",
                name, c->architecture);
    return c->swiftkv ? check_fed(c, n, name, err) : SKV_OK;
}
