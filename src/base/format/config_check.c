/* The checks that every source of a configuration ends with: see config.h. */
#include <math.h>

#include "base/mem.h"
#include "format/config_build.h"

/* Far beyond any published model, and small enough that products of two never overflow. */
enum {
    HIDDEN_MAX = 1 << 20,
    HEAD_DIM_MAX = 512, /* as the kernels have it */
    HEADS_MAX = 1 << 14,
    FFN_MAX = 1 << 24,
    PER_LAYER_MAX = 1 << 16,
    VOCAB_MAX = 1 << 24,
    CONTEXT_MAX = 1 << 30
};

void skv_config_release(skv_config *c)
{
    skv_free(c->layers);
    *c = (skv_config){0};
}

typedef struct checker {
    const skv_config *c;
    const char *name; /* of the file */
    skv_error *err;
} checker;

static skv_status check_size(const checker *k, skv_config_field field, size_t value, size_t max)
{
    SKV_REQUIRE(value >= 1 && value <= max, k->err, SKV_RANGE, "%s: %s %zu, expected 1 to %zu",
                k->name, skv_config_field_name(k->c, field).text, value, max);
    return SKV_OK;
}

static skv_status check_positive(const checker *k, const char *what, double value)
{
    SKV_REQUIRE(isfinite(value) && value > 0.0 && value < 1e30, k->err, SKV_RANGE,
                "%s: %s %g, expected a positive number", k->name, what, value);
    return SKV_OK;
}

static skv_status check_field(const checker *k, skv_config_field field, double value)
{
    return check_positive(k, skv_config_field_name(k->c, field).text, value);
}

static skv_status check_softcap(const checker *k, skv_config_field field, double value)
{
    SKV_REQUIRE(isfinite(value) && value >= 0.0, k->err, SKV_RANGE, "%s: %s %g, expected 0 or more",
                k->name, skv_config_field_name(k->c, field).text, value);
    return SKV_OK;
}

static skv_status check_factors(const checker *k, const char *what, const float *factors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double value = (double)factors[i];
        SKV_REQUIRE(isfinite(value) && value > 0.0, k->err, SKV_RANGE,
                    "%s: %s[%zu] %g, expected a positive number", k->name, what, i, value);
    }
    return SKV_OK;
}

static skv_status check_llama3(const checker *k, const skv_rope *rope)
{
    SKV_TRY(check_positive(k, "low_freq_factor", rope->low_freq_factor));
    SKV_TRY(check_positive(k, "high_freq_factor", rope->high_freq_factor));
    SKV_REQUIRE(rope->high_freq_factor > rope->low_freq_factor, k->err, SKV_RANGE,
                "%s: high_freq_factor %g, expected above low_freq_factor %g", k->name,
                rope->high_freq_factor, rope->low_freq_factor);
    return SKV_OK;
}

static skv_status check_yarn(const checker *k, const skv_rope *rope)
{
    SKV_TRY(check_positive(k, "beta_fast", rope->beta_fast));
    SKV_TRY(check_positive(k, "beta_slow", rope->beta_slow));
    SKV_REQUIRE(rope->beta_fast >= rope->beta_slow, k->err, SKV_RANGE,
                "%s: beta_fast %g, expected beta_slow %g or more", k->name, rope->beta_fast,
                rope->beta_slow);
    SKV_REQUIRE(rope->theta > 1.0, k->err, SKV_RANGE, "%s: %s %g, expected above 1", k->name,
                skv_config_field_name(k->c, SKV_CONFIG_FIELD_THETA).text, rope->theta);
    return SKV_OK;
}

/* Queries scaled by position use a rope of their own, whose cos and sin carry the scale: all
 * dimensions of a head must rotate. */
static skv_status check_growth(const checker *k, const skv_rope *rope)
{
    if (rope->position_growth == 0.0) return SKV_OK;
    SKV_TRY(check_positive(k, "llama_4_scaling_beta", rope->position_growth));
    SKV_REQUIRE(rope->n_rot == k->c->head_dim, k->err, SKV_UNSUPPORTED,
                "%s: llama_4_scaling_beta %g: %zu rotated dimensions of %zu are not supported",
                k->name, rope->position_growth, rope->n_rot, k->c->head_dim);
    return SKV_OK;
}

static skv_status check_rope(const checker *k, const skv_rope *rope)
{
    size_t head_dim = k->c->head_dim;
    SKV_TRY(check_field(k, SKV_CONFIG_FIELD_THETA, rope->theta));
    SKV_TRY(check_field(k, SKV_CONFIG_FIELD_FACTOR, rope->factor));
    SKV_TRY(check_field(k, SKV_CONFIG_FIELD_ATTENTION_FACTOR, rope->attention_factor));
    SKV_REQUIRE(rope->n_rot >= 2 && rope->n_rot % 2 == 0 && rope->n_rot <= head_dim, k->err,
                SKV_RANGE, "%s: %s: %zu rotated dimensions of %zu, expected an even number",
                k->name, skv_config_field_name(k->c, SKV_CONFIG_FIELD_ROTATED).text, rope->n_rot,
                head_dim);
    if (rope->scaling == SKV_ROPE_LLAMA3) SKV_TRY(check_llama3(k, rope));
    if (rope->scaling == SKV_ROPE_YARN) SKV_TRY(check_yarn(k, rope));
    SKV_TRY(check_growth(k, rope));
    if (rope->scaling == SKV_ROPE_LLAMA3 || rope->scaling == SKV_ROPE_LONGROPE ||
        rope->scaling == SKV_ROPE_YARN || rope->position_growth != 0.0) {
        SKV_TRY(
            check_size(k, SKV_CONFIG_FIELD_ORIGINAL_CONTEXT, rope->original_context, CONTEXT_MAX));
    }
    if (rope->scaling == SKV_ROPE_LONGROPE || rope->scaling == SKV_ROPE_FACTORS) {
        SKV_REQUIRE(rope->n_factors == rope->n_rot / 2 && rope->n_factors <= SKV_ROPE_FACTORS_MAX,
                    k->err, SKV_RANGE, "%s: %zu rope factors, expected %zu (at most %d)", k->name,
                    rope->n_factors, rope->n_rot / 2, SKV_ROPE_FACTORS_MAX);
        SKV_TRY(check_factors(k, "long_factor", rope->long_factor, rope->n_factors));
    }
    if (rope->scaling != SKV_ROPE_LONGROPE) return SKV_OK;
    return check_factors(k, "short_factor", rope->short_factor, rope->n_factors);
}

/* A size of one layer; in most files one field speaks for all of them. */
static skv_status check_layer_size(const checker *k, size_t i, skv_config_field field, size_t value,
                                   size_t max)
{
    SKV_REQUIRE(value >= 1 && value <= max, k->err, SKV_RANGE,
                "%s: %s %zu (layer %zu), expected 1 to %zu", k->name,
                skv_config_field_name(k->c, field).text, value, i, max);
    return SKV_OK;
}

static skv_status check_head(const checker *k, size_t i)
{
    const skv_config *c = k->c;
    const size_t head_dim = skv_config_head_dim(c, i), n_rot = c->ropes[c->layers[i].i_rope].n_rot;
    SKV_REQUIRE(head_dim >= 1 && head_dim <= c->head_dim && n_rot <= head_dim, k->err, SKV_RANGE,
                "%s: %s %zu (layer %zu), expected %zu to %zu", k->name,
                skv_config_field_name(c, SKV_CONFIG_FIELD_HEAD_DIM).text, head_dim, i, n_rot,
                c->head_dim);
    return SKV_OK;
}

static skv_status check_layers(const checker *k)
{
    for (size_t i = 0; i < k->c->n_layers; i++) {
        const skv_layer_shape *l = &k->c->layers[i];
        SKV_TRY(check_layer_size(k, i, SKV_CONFIG_FIELD_HEADS, l->n_heads, HEADS_MAX));
        SKV_REQUIRE(l->n_kv_heads >= 1 && l->n_heads % l->n_kv_heads == 0, k->err, SKV_RANGE,
                    "%s: %s %zu (layer %zu), expected a divisor of %s %zu", k->name,
                    skv_config_field_name(k->c, SKV_CONFIG_FIELD_KV_HEADS).text, l->n_kv_heads, i,
                    skv_config_field_name(k->c, SKV_CONFIG_FIELD_HEADS).text, l->n_heads);
        const skv_config_field ffn =
            l->n_experts > 0 ? SKV_CONFIG_FIELD_EXPERT_FFN : SKV_CONFIG_FIELD_FFN;
        if (l->ffn > 0 || l->n_experts > 0 || !k->c->single_blocks) {
            SKV_TRY(check_layer_size(k, i, ffn, l->ffn, FFN_MAX));
        }
        if (l->ffn_shared > 0) {
            SKV_TRY(check_layer_size(k, i, SKV_CONFIG_FIELD_SHARED_FFN, l->ffn_shared, FFN_MAX));
        }
        if (l->ffn_beside > 0) {
            SKV_TRY(check_layer_size(k, i, SKV_CONFIG_FIELD_FFN, l->ffn_beside, FFN_MAX));
        }
        SKV_REQUIRE(l->i_rope < 2 && l->i_rope_q < 2 - l->i_rope, k->err, SKV_RANGE,
                    "%s: layer %zu: rope %zu", k->name, i, l->i_rope + l->i_rope_q);
        SKV_TRY(check_head(k, i));
    }
    return SKV_OK;
}

static skv_status check_swiftkv(const skv_config *c, const char *name, skv_error *err)
{
    SKV_REQUIRE(!c->swiftkv || !c->no_pre_norms, err, SKV_UNSUPPORTED,
                "%s: model_type %s: SwiftKV needs a norm before attention", name, c->architecture);
    SKV_REQUIRE(!c->early_exit || c->logit_divisor == 0.0, err, SKV_UNSUPPORTED,
                "%s: swiftkv_early_exit: not supported beside logits_scaling", name);
    SKV_REQUIRE(c->early_exit || c->exit_words == 0, err, SKV_RANGE,
                "%s: swiftkv_exit_words %zu, expected none without swiftkv_early_exit", name,
                c->exit_words);
    SKV_REQUIRE(c->exit_words <= c->vocab, err, SKV_RANGE,
                "%s: swiftkv_exit_words %zu, expected at most vocab_size %zu", name, c->exit_words,
                c->vocab);
    SKV_REQUIRE(c->kv_layers >= 1 && c->kv_layers <= c->n_layers, err, SKV_RANGE,
                "%s: num_key_value_layers %zu, expected 1 to %zu", name, c->kv_layers, c->n_layers);
    SKV_REQUIRE(c->kv_group >= 1 && (c->n_layers - c->kv_layers) % c->kv_group == 0, err, SKV_RANGE,
                "%s: key_value_group_size %zu, expected a divisor of the %zu layers above "
                "num_key_value_layers %zu",
                name, c->kv_group, c->n_layers - c->kv_layers, c->kv_layers);
    /* Layers that share one K,V must agree on its shape and how it is rotated. */
    for (size_t i = c->kv_layers; i < c->n_layers; i++) {
        const skv_layer_shape *l = &c->layers[i];
        const skv_layer_shape *first = l - (i - c->kv_layers) % c->kv_group;
        SKV_REQUIRE(l->n_kv_heads == first->n_kv_heads && l->i_rope == first->i_rope, err,
                    SKV_RANGE, "%s: layer %zu cannot share the keys and values of its group", name,
                    i);
    }
    return SKV_OK;
}

size_t skv_config_donor(const skv_config *c, size_t i)
{
    size_t first = c->n_layers - c->n_shared;
    if (i < first) return i;
    for (size_t j = first; j-- > 0;) {
        if ((c->layers[j].window > 0) == (c->layers[i].window > 0)) return j;
    }
    return i;
}

static skv_status check_shared(const skv_config *c, const char *name, skv_error *err)
{
    SKV_REQUIRE(c->n_shared < c->n_layers, err, SKV_RANGE,
                "%s: num_kv_shared_layers %zu, expected less than the %zu layers", name,
                c->n_shared, c->n_layers);
    SKV_REQUIRE(!c->v_norm || !(c->swiftkv || c->kv_prediction), err, SKV_UNSUPPORTED,
                "%s: %s cannot take keys and values from SwiftKV or KV Prediction", name,
                c->architecture);
    SKV_REQUIRE(c->n_shared == 0 || !(c->swiftkv || c->kv_prediction), err, SKV_UNSUPPORTED,
                "%s: num_kv_shared_layers %zu: layers that share keys and values cannot take them "
                "from SwiftKV or KV Prediction",
                name, c->n_shared);
    for (size_t i = c->n_layers - c->n_shared; i < c->n_layers; i++) {
        size_t i_donor = skv_config_donor(c, i);
        const skv_layer_shape *l = &c->layers[i], *donor = &c->layers[i_donor];
        SKV_REQUIRE(i_donor != i, err, SKV_RANGE,
                    "%s: num_kv_shared_layers %zu: layer %zu %s, no layer before the shared ones "
                    "does",
                    name, c->n_shared, i, l->window > 0 ? "has a window" : "sees every row");
        SKV_REQUIRE(l->n_heads == donor->n_heads && l->n_kv_heads == donor->n_kv_heads &&
                        l->window == donor->window && l->i_rope == donor->i_rope &&
                        skv_config_head_dim(c, i) == skv_config_head_dim(c, i_donor),
                    err, SKV_RANGE,
                    "%s: num_kv_shared_layers %zu: layer %zu cannot read the keys and values of "
                    "layer %zu",
                    name, c->n_shared, i, i_donor);
    }
    return SKV_OK;
}

/* Of products, and of experts. */
static skv_status check_scales(const checker *k)
{
    const skv_config *c = k->c;
    for (size_t i = 0; i < SKV_SCALE_COUNT; i++) {
        SKV_REQUIRE(isfinite(c->part_scales[i]) && fabs(c->part_scales[i]) < 1e6, k->err, SKV_RANGE,
                    "%s: a multiplier %g, expected at most 1e6", k->name, c->part_scales[i]);
    }
    SKV_REQUIRE(c->router_scale >= 0.0 && c->router_scale < 1e6, k->err, SKV_RANGE,
                "%s: routed_scaling_factor %g, expected a positive number", k->name,
                c->router_scale);
    return SKV_OK;
}

skv_status skv_config_check(const skv_config *c, const char *name, skv_error *err)
{
    checker k = {c, name, err};
    SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_LAYERS, c->n_layers, SKV_LAYERS_MAX));
    SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_HIDDEN, c->hidden, HIDDEN_MAX));
    SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_HEAD_DIM, c->head_dim, HEAD_DIM_MAX));
    SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_VOCAB, c->vocab, VOCAB_MAX));
    SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_CONTEXT, c->context, CONTEXT_MAX));
    SKV_REQUIRE(c->layers, err, SKV_ARGUMENT, "%s: no layers", name);
    SKV_TRY(check_layers(&k));
    SKV_TRY(skv_config_check_moe(c, name, err));
    SKV_TRY(skv_config_check_mixers(c, name, err));
    SKV_TRY(check_rope(&k, &c->ropes[0]));
    SKV_TRY(check_rope(&k, &c->ropes[1]));
    SKV_TRY(check_field(&k, SKV_CONFIG_FIELD_EPS, c->norm_eps));
    SKV_TRY(check_field(&k, SKV_CONFIG_FIELD_SCALE, c->attention_scale));
    SKV_TRY(check_positive(&k, "embedding scale", c->embedding_scale));
    SKV_TRY(check_scales(&k));
    if (c->moe_latent > 0) {
        SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_LATENT, c->moe_latent, HIDDEN_MAX));
    }
    if (c->per_layer > 0) {
        SKV_TRY(check_size(&k, SKV_CONFIG_FIELD_PER_LAYER, c->per_layer, PER_LAYER_MAX));
        SKV_TRY(check_positive(&k, "per-layer embedding scale", c->per_layer_scale));
    }
    SKV_TRY(check_softcap(&k, SKV_CONFIG_FIELD_ATTENTION_SOFTCAP, c->attention_softcap));
    SKV_TRY(check_softcap(&k, SKV_CONFIG_FIELD_FINAL_SOFTCAP, c->final_softcap));
    if (c->logit_divisor != 0.0) SKV_TRY(check_positive(&k, "logits_scaling", c->logit_divisor));
    if (c->residual_scale != 0.0) {
        SKV_TRY(check_positive(&k, "residual_multiplier", c->residual_scale));
    }
    SKV_REQUIRE(c->n_eos <= SKV_EOS_MAX && c->bos >= -1 && c->bos < (int32_t)c->vocab, err,
                SKV_RANGE, "%s: %s %d, expected below %zu", name,
                skv_config_field_name(c, SKV_CONFIG_FIELD_BOS).text, (int)c->bos, c->vocab);
    SKV_TRY(check_shared(c, name, err));
    return check_swiftkv(c, name, err);
}
