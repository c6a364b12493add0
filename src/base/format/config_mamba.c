/* Families with Mamba-2 layers in a configuration: see config.h and config_build.h. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "format/config_build.h"

/* What a family's config.json calls a thing. */
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

static void refuse(skv_json_reader *r, const char *key)
{
    if (r->status != SKV_OK) return;
    r->status = skv_fail(r->err, SKV_UNSUPPORTED, "%s: %s: true is not supported", r->name, key);
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
    *m = (skv_mixer_shape){.norm_eps = norm_eps, .write_max = 1};
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
    if (skv_json_bool(r, "mamba_proj_bias", false)) refuse(r, "mamba_proj_bias");
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
