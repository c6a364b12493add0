/* Families with Mamba-2 layers in a configuration: see config.h and config_build.h. */
#include <stdio.h>
#include <string.h>

#include "format/config_build.h"

/* The keys of a family's config.json. */
typedef struct mamba_keys {
    const char *heads, *groups, *state, *head_dim, *conv, *conv_bias;
    size_t default_heads, default_groups, default_state, default_head_dim;
} mamba_keys;

static const mamba_keys granite_keys = {"mamba_n_heads",
                                        "mamba_n_groups",
                                        "mamba_d_state",
                                        "mamba_d_head",
                                        "mamba_d_conv",
                                        "mamba_conv_bias",
                                        128,
                                        1,
                                        256,
                                        0};

static const mamba_keys nemotron_keys = {"mamba_num_heads",
                                         "n_groups",
                                         "ssm_state_size",
                                         "mamba_head_dim",
                                         "conv_kernel",
                                         "use_conv_bias",
                                         128,
                                         8,
                                         128,
                                         64};

/* Keys that are false in all published files. */
static void refuse_true(skv_json_reader *r, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n && r->status == SKV_OK; i++) {
        if (!skv_json_bool(r, keys[i], false)) continue;
        skv_json_fail(r, SKV_UNSUPPORTED, "%s: true is not supported", keys[i]);
    }
}

/* A limit that is infinite is none: null, or an object that names it. */
static double limit_of(skv_json_reader *r, const json_t *value)
{
    static const char key[] = "time_step_limit";
    const bool infinite = json_is_null(value) || json_is_object(value);
    return infinite ? 0 : skv_json_double_of(r, value, key);
}

static void read_limits(skv_json_reader *r, skv_mixer_shape *m)
{
    static const char key[] = "time_step_limit";
    const json_t *limits = skv_json_get(r, key);
    if (!limits) return;
    if (!json_is_array(limits) || json_array_size(limits) != 2) {
        skv_json_refuse(r, key, limits, "two numbers");
        return;
    }
    m->dt_min = limit_of(r, json_array_get(limits, 0));
    m->dt_max = limit_of(r, json_array_get(limits, 1));
}

static void read_shape(skv_json_reader *r, const mamba_keys *keys, double norm_eps,
                       skv_mixer_shape *m)
{
    const size_t most = SIZE_MAX / 2;
    *m = (skv_mixer_shape){.norm_eps = norm_eps, .write_max = 1, .gate_first = true};
    m->n_key_heads = skv_json_size(r, keys->groups, keys->default_groups, most);
    m->n_value_heads = skv_json_size(r, keys->heads, keys->default_heads, most);
    m->key_dim = skv_json_size(r, keys->state, keys->default_state, most);
    m->value_dim = keys->default_head_dim;
    if (!json_is_string(skv_json_get(r, keys->head_dim))) { /* "auto" */
        m->value_dim = skv_json_size(r, keys->head_dim, m->value_dim, most);
    }
    m->conv_rows = skv_json_size(r, keys->conv, 4, most);
    m->conv_bias = skv_json_bool(r, keys->conv_bias, true);
    read_limits(r, m);
    static const char *const biases[] = {"mamba_proj_bias"};
    refuse_true(r, biases, 1);
}

/* d_head where a file leaves it to d_inner. */
static void settle_head(skv_mixer_shape *m, size_t inner)
{
    if (m->value_dim == 0 && m->n_value_heads > 0) m->value_dim = inner / m->n_value_heads;
}

/* layer_types or layers_block_type, as published and as transformers 5 saves them. */
static void read_kinds(skv_json_reader *r, skv_config *c)
{
    const json_t *types = skv_json_get(r, "layer_types");
    if (!types) types = skv_json_get(r, "layers_block_type");
    if (!json_is_array(types) || json_array_size(types) != c->n_layers) {
        skv_json_refuse(r, "layer_types", types, "one entry a layer");
    }
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        const json_t *value = json_array_get(types, i);
        const char *type = json_is_string(value) ? json_string_value(value) : "";
        if (strcmp(type, "mamba") == 0 || strcmp(type, "linear_attention") == 0) {
            c->layers[i].mixer = SKV_MIXER_MAMBA;
        } else if (strcmp(type, "attention") != 0 && strcmp(type, "full_attention") != 0) {
            skv_json_refuse(r, "layer_types", value, "attention or mamba");
        }
    }
}

/* Finds the kind of a layer by its letter in a pattern or by its word in a list; 4: neither. */
static size_t find_kind(const char *text, size_t n)
{
    static const char *const kinds[][3] = {{"M", "mamba", "linear_attention"},
                                           {"*", "attention", "full_attention"},
                                           {"-", "mlp", "mlp"},
                                           {"E", "moe", "moe"}};
    for (size_t k = 0; k < 4; k++) {
        for (size_t j = 0; j < 3; j++) {
            if (strlen(kinds[k][j]) == n && memcmp(kinds[k][j], text, n) == 0) return k;
        }
    }
    return 4;
}

/* Sets a layer of Nemotron-H: Mamba-2, attention, a block or experts. */
static void set_single(skv_json_reader *r, skv_layer_shape *l, const char *text, size_t n,
                       const skv_layer_shape *moe)
{
    switch (find_kind(text, n)) {
    case 0:
        l->mixer = SKV_MIXER_MAMBA;
        l->ffn = 0;
        break;
    case 1: l->ffn = 0; break;
    case 2: l->mixer = SKV_MIXER_NONE; break;
    case 3:
        l->mixer = SKV_MIXER_NONE;
        l->ffn = moe->ffn;
        l->ffn_shared = moe->ffn_shared;
        l->n_experts = moe->n_experts;
        break;
    default:
        skv_json_fail(r, SKV_FORMAT,
                      "layers_block_type: %.*s, expected M, *, -, E or mamba, attention, mlp, moe",
                      (int)(n < 40 ? n : 40), text);
    }
}

/* hybrid_override_pattern, or a list that says the same. */
static void read_pattern(skv_json_reader *r, const skv_layer_shape *moe, skv_config *c)
{
    const char *pattern = skv_json_text(r, "hybrid_override_pattern", NULL);
    const json_t *types = skv_json_get(r, "layers_block_type");
    if (!types) types = skv_json_get(r, "layer_types");
    if (types && !json_is_array(types)) skv_json_refuse(r, "layers_block_type", types, "a list");
    if (!types && !pattern) {
        skv_json_refuse(r, "layers_block_type", types, "a list, or hybrid_override_pattern");
    }
    if (r->status != SKV_OK) return;
    if (!pattern) pattern = "";
    const size_t n = types ? json_array_size(types) : strlen(pattern);
    r->status = skv_config_set_layers(c, n, c->layers[0], r->name, r->err);
    for (size_t i = 0; i < n && r->status == SKV_OK; i++) {
        const json_t *value = types ? json_array_get(types, i) : NULL;
        const char *text = !types                  ? pattern + i
                           : json_is_string(value) ? json_string_value(value)
                                                   : "";
        set_single(r, &c->layers[i], text, types ? strlen(text) : 1, moe);
    }
}

static void keep_still(skv_config *c)
{
    c->ropes[0].scaling = c->ropes[1].scaling = SKV_ROPE_NONE;
}

/* Every token meets the shared block, and some experts where there are any. */
void skv_config_read_granite_h(skv_json_reader *r, skv_config *c)
{
    static const skv_moe_defaults moe = {.n_experts = 8, .n_active = 2};
    const size_t most = SIZE_MAX / 2;
    const double residual = c->residual_scale;
    read_shape(r, &granite_keys, c->norm_eps * residual * residual, &c->mixer);
    settle_head(&c->mixer, skv_json_size(r, "mamba_expand", 2, 1024) * c->hidden);
    read_kinds(r, c);
    if (strcmp(skv_json_text(r, "position_embedding_type", "nope"), "rope") != 0) keep_still(c);
    const size_t shared = skv_json_size(r, "shared_intermediate_size", 1024, most);
    const bool mixture = skv_json_size(r, "num_local_experts", 8, most) > 0;
    if (mixture) skv_config_read_moe(r, &moe, c);
    for (size_t i = 0; i < c->n_layers && r->status == SKV_OK; i++) {
        *(mixture ? &c->layers[i].ffn_shared : &c->layers[i].ffn) = shared;
    }
    c->shared_plain = true;
}

static void read_nemotron_experts(skv_json_reader *r, skv_layer_shape *moe, skv_config *c)
{
    const size_t most = SIZE_MAX / 2;
    moe->n_experts = skv_json_size(r, "n_routed_experts", 8, most);
    moe->ffn = skv_json_size(r, "moe_intermediate_size", 7688, most);
    moe->ffn_shared = skv_json_size(r, "moe_shared_expert_intermediate_size", 7688, most);
    c->n_active = skv_json_size(r, "num_experts_per_tok", 2, most);
    c->moe_latent = skv_json_size(r, "moe_latent_size", 0, most);
    c->norm_topk = skv_json_bool(r, "norm_topk_prob", true);
    c->router_sigmoid = c->choice_bias = c->shared_plain = true;
    c->router_eps = 1e-20;
    c->router_scale = skv_json_double(r, "routed_scaling_factor", 1.0);
    const size_t n_groups = skv_json_size(r, "n_group", 1, most);
    if (n_groups > 1) {
        skv_json_fail(r, SKV_UNSUPPORTED, "n_group: %zu: experts in groups are not supported",
                      n_groups);
    }
}

/* A layer is one of Mamba-2, attention, a block without a gate, or experts of that kind. The time
 * step has time_step_limit alone: time_step_min and time_step_max are about its beginning. */
void skv_config_read_nemotron_h(skv_json_reader *r, skv_config *c)
{
    static const char *const biases[] = {"use_bias", "mlp_bias", "attention_bias"};
    skv_layer_shape moe = {.n_experts = 0};
    c->norm_eps = skv_json_double(r, "layer_norm_epsilon", 1e-5);
    c->single_blocks = true;
    c->activation = SKV_ACT_RELU2;
    read_shape(r, &nemotron_keys, c->norm_eps, &c->mixer);
    refuse_true(r, biases, sizeof biases / sizeof *biases);
    const char *act = skv_json_text(r, "mlp_hidden_act", "relu2");
    if (strcmp(act, "relu2") != 0) {
        skv_json_fail(r, SKV_UNSUPPORTED, "mlp_hidden_act: %.60s is not supported", act);
    }
    read_nemotron_experts(r, &moe, c);
    read_pattern(r, &moe, c);
    keep_still(c);
}

/* A multiplier, which is not 0. */
static double multiplier_of(skv_json_reader *r, const json_t *value, const char *key)
{
    const double times = value ? skv_json_double_of(r, value, key) : 1.0;
    if (times == 0.0) skv_json_fail(r, SKV_RANGE, "%s: 0, expected a number other than 0", key);
    return times;
}

static double multiplier(skv_json_reader *r, const char *key)
{
    return multiplier_of(r, skv_json_get(r, key), key);
}

/* A list of n of them, which may be left out. */
static void multipliers(skv_json_reader *r, const char *key, size_t n, double *out)
{
    const json_t *list = skv_json_get(r, key);
    if (list && (!json_is_array(list) || json_array_size(list) != n)) {
        char expected[32];
        (void)snprintf(expected, sizeof expected, "%zu numbers", n);
        skv_json_refuse(r, key, list, expected);
    }
    for (size_t i = 0; i < n; i++) out[i] = multiplier_of(r, json_array_get(list, i), key);
}

static void set_scale(skv_config *c, skv_part_scale which, double times)
{
    c->part_scales[which] = times == 1.0 ? 0.0 : times;
}

/* The multipliers of muP. Those of queries and keys go into the scale of attention, and that of its
 * input, which values bear too, into its output. */
static void read_mup(skv_json_reader *r, skv_config *c)
{
    static const skv_part_scale parts[] = {SKV_SCALE_Z, SKV_SCALE_V, SKV_SCALE_K, SKV_SCALE_Q,
                                           SKV_SCALE_DT};
    enum { N_PARTS = sizeof parts / sizeof *parts };
    double of_parts[N_PARTS], block[2];
    multipliers(r, "ssm_multipliers", N_PARTS, of_parts);
    multipliers(r, "mlp_multipliers", 2, block);
    const double ssm_in = multiplier(r, "ssm_in_multiplier");
    const double in = multiplier(r, "attention_in_multiplier");
    for (size_t i = 0; i < N_PARTS; i++) set_scale(c, parts[i], ssm_in * of_parts[i]);
    set_scale(c, SKV_SCALE_STATE_OUT, multiplier(r, "ssm_out_multiplier"));
    set_scale(c, SKV_SCALE_ATTENTION_OUT, in * multiplier(r, "attention_out_multiplier"));
    set_scale(c, SKV_SCALE_GATE, block[0]);
    set_scale(c, SKV_SCALE_DOWN, block[1]);
    c->attention_scale *= in * in * multiplier(r, "key_multiplier");
    c->embedding_scale = multiplier(r, "embedding_multiplier");
    const double head = multiplier(r, "lm_head_multiplier");
    if (head != 1.0 && head != 0.0) c->logit_divisor = 1.0 / head;
}

void skv_config_read_falcon_h1(skv_json_reader *r, skv_config *c)
{
    static const char *const biases[] = {"projectors_bias", "mlp_bias", "attention_bias"};
    read_shape(r, &granite_keys, c->norm_eps, &c->mixer);
    refuse_true(r, biases, sizeof biases / sizeof *biases);
    const bool expands = skv_json_has(r, "mamba_d_ssm") && !skv_json_get(r, "mamba_d_ssm");
    const size_t expanded = skv_json_size(r, "mamba_expand", 2, 1024) * c->hidden;
    settle_head(&c->mixer,
                expands ? expanded : skv_json_size(r, "mamba_d_ssm", 1024, SIZE_MAX / 2));
    c->mixer.no_norm = !skv_json_bool(r, "mamba_rms_norm", false);
    c->mixer.gate_first = !skv_json_bool(r, "mamba_norm_before_gate", true);
    for (size_t i = 0; i < c->n_layers; i++) c->layers[i].mixer = SKV_MIXER_BOTH;
    read_mup(r, c);
}
