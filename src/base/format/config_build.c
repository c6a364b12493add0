/* Building configurations: see config_build.h. */
#include "format/config_build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

skv_status skv_config_set_layers(skv_config *c, size_t n_layers, skv_layer_shape shape,
                                 const char *name, skv_error *err)
{
    SKV_REQUIRE(n_layers >= 1 && n_layers <= SKV_LAYERS_MAX, err, SKV_RANGE,
                "%s: %s %zu, expected 1 to %d", name,
                skv_config_field_name(c, SKV_CONFIG_FIELD_LAYERS).text, n_layers, SKV_LAYERS_MAX);
    skv_layer_shape *layers = skv_alloc(n_layers, sizeof *layers);
    SKV_REQUIRE(layers, err, SKV_MEMORY, "%s: no memory for %zu layers", name, n_layers);
    for (size_t i = 0; i < n_layers; i++) layers[i] = shape;
    skv_free(c->layers);
    c->layers = layers;
    c->n_layers = n_layers;
    return SKV_OK;
}

static bool in_vocabulary(const skv_config *c, int64_t id)
{
    return id >= 0 && id < INT32_MAX && (uint64_t)id < c->vocab;
}

void skv_config_add_eos(skv_config *c, int64_t id)
{
    if (!in_vocabulary(c, id) || c->n_eos == SKV_EOS_MAX) return;
    for (size_t i = 0; i < c->n_eos; i++) {
        if (c->eos[i] == (int32_t)id) return;
    }
    c->eos[c->n_eos++] = (int32_t)id;
}

void skv_config_set_bos(skv_config *c, int64_t id)
{
    c->bos = in_vocabulary(c, id) ? (int32_t)id : -1;
}

/* Rounds to the nearest number with this many significant bits, ties to even. */
static double round_to_bits(double x, int n_bits)
{
    int exponent;
    double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, n_bits)), exponent - n_bits);
}

double skv_gemma_embedding_scale(size_t hidden, const char *dtype)
{
    double scale = (double)(float)sqrt((double)hidden);
    if (strcmp(dtype, "bfloat16") == 0) return round_to_bits(scale, 8);
    if (strcmp(dtype, "float16") == 0) return round_to_bits(scale, 11);
    return scale;
}

void skv_config_set_multipliers(skv_config *c, double embedding, double residual, double logits)
{
    c->embedding_scale = embedding / residual;
    c->norm_eps /= residual * residual;
    c->residual_scale = residual;
    c->logit_divisor = logits;
}

const char *skv_config_text_part(const char *model_type)
{
    static const char *const types[][2] = {
        {"gemma3", "gemma3_text"},   {"mistral3", "mistral"},
        {"gemma4", "gemma4_text"},   {"gemma4_unified", "gemma4_text"},
        {"qwen3_5", "qwen3_5_text"}, {"qwen3_5_moe", "qwen3_5_moe_text"},
        {"lfm2_vl", "lfm2"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i][0], model_type) == 0) return types[i][1];
    }
    return NULL;
}

bool skv_config_is(const skv_config *c, const char *model_type)
{
    size_t n = strlen(model_type);
    if (strncmp(c->architecture, model_type, n) != 0) return false;
    return !c->architecture[n] || strcmp(c->architecture + n, "_swiftkv") == 0;
}

/* The name of a field in config.json of some families; NULL: the common one. */
static const char *own_name(const skv_config *c, skv_config_field field)
{
    static const struct {
        const char *model_type;
        skv_config_field field;
        const char *name;
    } names[] = {
        {"granitemoehybrid", SKV_CONFIG_FIELD_KEY_HEADS, "mamba_n_groups"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_VALUE_HEADS, "mamba_n_heads"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_KEY_DIM, "mamba_d_state"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_VALUE_DIM, "mamba_d_head"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_CONV_ROWS, "mamba_d_conv"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_EXPERTS, "num_local_experts"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_EXPERT_FFN, "intermediate_size"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_FFN, "shared_intermediate_size"},
        {"granitemoehybrid", SKV_CONFIG_FIELD_SHARED_FFN, "shared_intermediate_size"},
        {"falcon_h1", SKV_CONFIG_FIELD_KEY_HEADS, "mamba_n_groups"},
        {"falcon_h1", SKV_CONFIG_FIELD_VALUE_HEADS, "mamba_n_heads"},
        {"falcon_h1", SKV_CONFIG_FIELD_KEY_DIM, "mamba_d_state"},
        {"falcon_h1", SKV_CONFIG_FIELD_VALUE_DIM, "mamba_d_head"},
        {"falcon_h1", SKV_CONFIG_FIELD_CONV_ROWS, "mamba_d_conv"},
        {"nemotron_h", SKV_CONFIG_FIELD_KEY_HEADS, "n_groups"},
        {"nemotron_h", SKV_CONFIG_FIELD_VALUE_HEADS, "mamba_num_heads"},
        {"nemotron_h", SKV_CONFIG_FIELD_KEY_DIM, "ssm_state_size"},
        {"nemotron_h", SKV_CONFIG_FIELD_VALUE_DIM, "mamba_head_dim"},
        {"nemotron_h", SKV_CONFIG_FIELD_CONV_ROWS, "conv_kernel"},
        {"nemotron_h", SKV_CONFIG_FIELD_EPS, "layer_norm_epsilon"},
        {"nemotron_h", SKV_CONFIG_FIELD_EXPERTS, "n_routed_experts"},
        {"nemotron_h", SKV_CONFIG_FIELD_SHARED_FFN, "moe_shared_expert_intermediate_size"},
        {"lfm2_moe", SKV_CONFIG_FIELD_EPS, "norm_eps"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].field == field && skv_config_is(c, names[i].model_type)) return names[i].name;
    }
    return NULL;
}

skv_field_name skv_config_field_name(const skv_config *c, skv_config_field field)
{
    static const char *const names[SKV_CONFIG_FIELD_COUNT][3] = {
#define SKV_CONFIG_FIELD_NAMES(name, json, openelm, gguf) {json, openelm, gguf},
        SKV_CONFIG_FIELD_LIST(SKV_CONFIG_FIELD_NAMES)
#undef SKV_CONFIG_FIELD_NAMES
    };
    skv_field_name out;
    const bool local = skv_config_is(c, "mixtral") || skv_config_is(c, "gpt_oss");
    if (local && field == SKV_CONFIG_FIELD_EXPERT_FFN) field = SKV_CONFIG_FIELD_FFN;
    const char *name = names[field][c->gguf ? 2 : skv_config_is(c, "openelm") ? 1 : 0];
    if (local && field == SKV_CONFIG_FIELD_EXPERTS && !c->gguf) name = "num_local_experts";
    const char *own = c->gguf ? NULL : own_name(c, field);
    if (own) name = own;
    const bool short_conv = skv_config_is(c, "lfm2") || skv_config_is(c, "lfm2_moe");
    if (field == SKV_CONFIG_FIELD_CONV_ROWS && short_conv)
        name = names[SKV_CONFIG_FIELD_SHORT_ROWS][c->gguf ? 2 : 0];
    if (field == SKV_CONFIG_FIELD_ACTIVE && skv_config_is(c, "gemma4_text") && !c->gguf)
        name = "top_k_experts";
    if (*name == '/') { /* whole */
        (void)snprintf(out.text, sizeof out.text, "%s", name + 1);
    } else {
        (void)snprintf(out.text, sizeof out.text, "%.30s%s%s", c->gguf ? c->gguf : "",
                       c->gguf ? "." : "", name);
    }
    return out;
}
