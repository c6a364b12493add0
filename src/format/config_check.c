/* The checks that every source of a configuration ends with: see config.h. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/config.h"

/* Far beyond any published model, and small enough that products of two never overflow. */
enum {
    HIDDEN_MAX = 1 << 20,
    HEAD_DIM_MAX = 1024,
    HEADS_MAX = 1 << 14,
    FFN_MAX = 1 << 24,
    VOCAB_MAX = 1 << 24,
    CONTEXT_MAX = 1 << 30
};

void skv_config_release(skv_config *c)
{
    skv_free(c->layers);
    *c = (skv_config){0};
}

static skv_status check_size(size_t value, size_t max, const char *what, const char *name,
                             skv_error *err)
{
    SKV_REQUIRE(value >= 1 && value <= max, err, SKV_RANGE, "%s: %s %zu, expected 1 to %zu", name,
                what, value, max);
    return SKV_OK;
}

static skv_status check_positive(double value, const char *what, const char *name, skv_error *err)
{
    SKV_REQUIRE(isfinite(value) && value > 0.0 && value < 1e30, err, SKV_RANGE,
                "%s: %s %g, expected a positive number", name, what, value);
    return SKV_OK;
}

static skv_status check_factors(const float *factors, size_t n, const char *name, skv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        double value = (double)factors[i];
        SKV_REQUIRE(isfinite(value) && value > 0.0, err, SKV_RANGE,
                    "%s: rope factor %zu is %g, expected a positive number", name, i, value);
    }
    return SKV_OK;
}

static skv_status check_rope(const skv_rope *rope, size_t head_dim, const char *name,
                             skv_error *err)
{
    SKV_TRY(check_positive(rope->theta, "rope_theta", name, err));
    SKV_TRY(check_positive(rope->factor, "rope factor", name, err));
    SKV_TRY(check_positive(rope->attention_factor, "rope attention_factor", name, err));
    SKV_REQUIRE(rope->n_rot >= 2 && rope->n_rot % 2 == 0 && rope->n_rot <= head_dim, err, SKV_RANGE,
                "%s: %zu rotated dimensions of %zu, expected an even number", name, rope->n_rot,
                head_dim);
    if (rope->scaling == SKV_ROPE_LLAMA3) {
        SKV_TRY(check_positive(rope->low_freq_factor, "rope low_freq_factor", name, err));
        SKV_TRY(check_positive(rope->high_freq_factor, "rope high_freq_factor", name, err));
        SKV_REQUIRE(rope->high_freq_factor > rope->low_freq_factor, err, SKV_RANGE,
                    "%s: rope high_freq_factor %g, expected above low_freq_factor %g", name,
                    rope->high_freq_factor, rope->low_freq_factor);
    }
    if (rope->scaling == SKV_ROPE_LLAMA3 || rope->scaling == SKV_ROPE_LONGROPE) {
        SKV_TRY(check_size(rope->original_context, CONTEXT_MAX, "original_max_position_embeddings",
                           name, err));
    }
    if (rope->scaling == SKV_ROPE_LONGROPE || rope->scaling == SKV_ROPE_FACTORS) {
        SKV_REQUIRE(rope->n_factors == rope->n_rot / 2 && rope->n_factors <= SKV_ROPE_FACTORS_MAX,
                    err, SKV_RANGE, "%s: %zu rope factors, expected %zu (at most %d)", name,
                    rope->n_factors, rope->n_rot / 2, SKV_ROPE_FACTORS_MAX);
        SKV_TRY(check_factors(rope->long_factor, rope->n_factors, name, err));
    }
    if (rope->scaling == SKV_ROPE_LONGROPE) {
        SKV_TRY(check_factors(rope->short_factor, rope->n_factors, name, err));
    }
    return SKV_OK;
}

static skv_status check_layers(const skv_config *c, const char *name, skv_error *err)
{
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *l = &c->layers[i];
        SKV_REQUIRE(l->n_heads >= 1 && l->n_heads <= HEADS_MAX, err, SKV_RANGE,
                    "%s: layer %zu: %zu heads, expected 1 to %d", name, i, l->n_heads, HEADS_MAX);
        SKV_REQUIRE(l->n_kv_heads >= 1 && l->n_heads % l->n_kv_heads == 0, err, SKV_RANGE,
                    "%s: layer %zu: %zu key-value heads do not divide %zu heads", name, i,
                    l->n_kv_heads, l->n_heads);
        SKV_REQUIRE(l->ffn >= 1 && l->ffn <= FFN_MAX, err, SKV_RANGE,
                    "%s: layer %zu: intermediate size %zu, expected 1 to %d", name, i, l->ffn,
                    FFN_MAX);
        SKV_REQUIRE(l->i_rope < 2, err, SKV_RANGE, "%s: layer %zu: rope %zu", name, i, l->i_rope);
    }
    return SKV_OK;
}

static skv_status check_swiftkv(const skv_config *c, const char *name, skv_error *err)
{
    SKV_REQUIRE(c->kv_layers >= 1 && c->kv_layers <= c->n_layers, err, SKV_RANGE,
                "%s: num_key_value_layers %zu, expected 1 to %zu", name, c->kv_layers, c->n_layers);
    SKV_REQUIRE(c->kv_group >= 1 && (c->n_layers - c->kv_layers) % c->kv_group == 0, err, SKV_RANGE,
                "%s: key_value_group_size %zu does not divide the %zu layers above "
                "num_key_value_layers",
                name, c->kv_group, c->n_layers - c->kv_layers);
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

skv_status skv_config_check(const skv_config *c, const char *name, skv_error *err)
{
    SKV_TRY(check_size(c->n_layers, SKV_LAYERS_MAX, "number of layers", name, err));
    SKV_TRY(check_size(c->hidden, HIDDEN_MAX, "hidden_size", name, err));
    SKV_TRY(check_size(c->head_dim, HEAD_DIM_MAX, "head_dim", name, err));
    SKV_TRY(check_size(c->vocab, VOCAB_MAX, "vocab_size", name, err));
    SKV_TRY(check_size(c->context, CONTEXT_MAX, "max_position_embeddings", name, err));
    SKV_REQUIRE(c->layers, err, SKV_ARGUMENT, "%s: no layers", name);
    SKV_TRY(check_layers(c, name, err));
    SKV_TRY(check_rope(&c->ropes[0], c->head_dim, name, err));
    SKV_TRY(check_rope(&c->ropes[1], c->head_dim, name, err));
    SKV_TRY(check_positive(c->norm_eps, "norm epsilon", name, err));
    SKV_TRY(check_positive(c->attention_scale, "attention scale", name, err));
    SKV_TRY(check_positive(c->embedding_scale, "embedding scale", name, err));
    SKV_REQUIRE(isfinite(c->attention_softcap) && c->attention_softcap >= 0.0, err, SKV_RANGE,
                "%s: attn_logit_softcapping %g, expected 0 or more", name, c->attention_softcap);
    SKV_REQUIRE(isfinite(c->final_softcap) && c->final_softcap >= 0.0, err, SKV_RANGE,
                "%s: final_logit_softcapping %g, expected 0 or more", name, c->final_softcap);
    SKV_REQUIRE(c->n_eos <= SKV_EOS_MAX && c->bos >= -1 && c->bos < (int32_t)c->vocab, err,
                SKV_RANGE, "%s: bos_token_id %d, expected below %zu", name, (int)c->bos, c->vocab);
    return check_swiftkv(c, name, err);
}
