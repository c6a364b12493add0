/*
 * Rotary settings: see config_build.h. LongRoPE is arXiv:2402.13753, YaRN arXiv:2309.00071;
 * "llama3" is the frequency scaling that Llama 3.1 introduced.
 */
#include "format/config_build.h"

#include <math.h>
#include <string.h>

static const float STILL = 1e30f; /* divisor of frequencies that do not turn */

double skv_longrope_attention(double factor, size_t original_context)
{
    if (factor <= 1.0 || original_context < 2) return 1.0;
    return sqrt(1.0 + log(factor) / log((double)original_context));
}

/* YaRN, section 3.4: attention sharpens with the logarithm of the factor. */
static double yarn_sharpening(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

double skv_yarn_attention(double factor)
{
    return yarn_sharpening(factor, 1.0);
}

void skv_rope_default_yarn(skv_rope *rope)
{
    rope->scaling = SKV_ROPE_YARN;
    rope->factor = 32.0;
    rope->original_context = 4096;
    rope->attention_factor = skv_yarn_attention(rope->factor);
    rope->beta_fast = 32.0;
    rope->beta_slow = 1.0;
    rope->ramp_exact = true;
}

static void read_yarn(skv_json_reader *r, const skv_rope_context *in, skv_rope *out)
{
    out->scaling = SKV_ROPE_YARN;
    if (!out->original_context) out->original_context = in->context;
    out->factor = skv_json_double(r, "factor", (double)in->context / (double)out->original_context);
    const double mscale = skv_json_double(r, "mscale", 0.0);
    const double mscale_all = skv_json_double(r, "mscale_all_dim", 0.0);
    double sharpening = skv_yarn_attention(out->factor);
    if (mscale != 0.0 && mscale_all != 0.0) {
        sharpening =
            yarn_sharpening(out->factor, mscale) / yarn_sharpening(out->factor, mscale_all);
    }
    out->attention_factor = skv_json_double(r, "attention_factor", sharpening);
    out->beta_fast = skv_json_double(r, "beta_fast", 32.0);
    out->beta_slow = skv_json_double(r, "beta_slow", 1.0);
    out->ramp_exact = !skv_json_bool(r, "truncate", true);
}

static void read_factors(skv_json_reader *r, const char *key, size_t n, float *out)
{
    const json_t *list = skv_json_get(r, key);
    if (!json_is_array(list) || json_array_size(list) != n) {
        skv_json_fail(r, SKV_FORMAT, "%s: %zu values, expected %zu", key, json_array_size(list), n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)skv_json_double_of(r, json_array_get(list, i), key);
    }
}

static void read_longrope(skv_json_reader *r, const skv_rope_context *in, skv_rope *out)
{
    out->scaling = SKV_ROPE_LONGROPE;
    if (!out->original_context) out->original_context = in->context;
    double ratio = (double)in->context / (double)out->original_context;
    out->factor = skv_json_double(r, "factor", ratio);
    out->attention_factor = skv_json_double(
        r, "attention_factor", skv_longrope_attention(out->factor, out->original_context));
    out->n_factors = out->n_rot / 2;
    if (out->n_factors > SKV_ROPE_FACTORS_MAX) {
        skv_json_fail(r, SKV_RANGE, "rope_scaling: too many frequencies");
        return;
    }
    read_factors(r, "short_factor", out->n_factors, out->short_factor);
    read_factors(r, "long_factor", out->n_factors, out->long_factor);
}

/* As GGUF writes it: the others are divided by so much that no position moves them. */
void skv_rope_set_proportional(skv_rope *rope, size_t n_turn, double factor)
{
    rope->scaling = SKV_ROPE_FACTORS;
    rope->n_factors = rope->n_rot / 2;
    for (size_t i = 0; i < rope->n_factors; i++) {
        rope->long_factor[i] = i < n_turn ? (float)factor : STILL;
    }
}

static void read_proportional(skv_json_reader *r, const skv_rope_context *in, skv_rope *out)
{
    const size_t n_turn = out->n_rot / 2;
    if (in->head_dim / 2 > SKV_ROPE_FACTORS_MAX || in->head_dim % 2) {
        skv_json_fail(r, SKV_RANGE,
                      "rope_type: proportional: heads of %zu, expected an even number up to %d",
                      in->head_dim, 2 * SKV_ROPE_FACTORS_MAX);
        return;
    }
    out->n_rot = in->head_dim;
    skv_rope_set_proportional(out, n_turn, skv_json_double(r, "factor", 1.0));
}

static void read_kind(skv_json_reader *r, const skv_rope_context *in, skv_rope *out)
{
    const char *kind =
        skv_json_text(r, "rope_type", skv_json_text(r, "type", in->kind ? in->kind : "default"));
    out->within_context = strcmp(kind, "dynamic") == 0;
    if (strcmp(kind, "default") == 0 || out->within_context) {
        out->scaling = SKV_ROPE_PLAIN;
    } else if (strcmp(kind, "proportional") == 0) {
        read_proportional(r, in, out);
    } else if (strcmp(kind, "linear") == 0) {
        out->scaling = SKV_ROPE_LINEAR;
        out->factor = skv_json_double(r, "factor", 0);
    } else if (strcmp(kind, "llama3") == 0) {
        out->scaling = SKV_ROPE_LLAMA3;
        out->factor = skv_json_double(r, "factor", 0);
        out->low_freq_factor = skv_json_double(r, "low_freq_factor", 0);
        out->high_freq_factor = skv_json_double(r, "high_freq_factor", 0);
        if (!out->original_context) out->original_context = in->context;
    } else if (strcmp(kind, "longrope") == 0 || strcmp(kind, "su") == 0 ||
               (in->yarn_is_longrope && strcmp(kind, "yarn") == 0)) {
        read_longrope(r, in, out);
    } else if (strcmp(kind, "yarn") == 0) {
        read_yarn(r, in, out);
    } else {
        skv_json_fail(r, SKV_UNSUPPORTED, "rope_scaling: rope_type: not supported: %.60s", kind);
    }
}

void skv_rope_from_json(skv_json_reader *top, skv_json_reader scaling, const skv_rope_context *in,
                        skv_rope *out)
{
    *out = (skv_rope){.factor = 1.0, .attention_factor = 1.0};
    scaling.status = top->status;
    out->theta =
        skv_json_double(&scaling, "rope_theta", skv_json_double(top, in->theta_key, in->theta));
    double partial = skv_json_double(&scaling, "partial_rotary_factor",
                                     skv_json_double(top, "partial_rotary_factor", in->partial));
    if (!(partial > 0.0 && partial <= 1.0)) {
        skv_json_fail(top, SKV_RANGE, "partial_rotary_factor: %g, expected above 0, at most 1",
                      partial);
        partial = 1.0;
    }
    out->n_rot = (size_t)((double)in->head_dim * partial);

    /* A value beside rope_scaling goes before one inside it: Phi-3 writes it there. */
    const char *key = "original_max_position_embeddings";
    size_t original = skv_json_size(top, key, in->original_context, SIZE_MAX / 2);
    if (!original) original = skv_json_size(&scaling, key, 0, SIZE_MAX / 2);
    out->original_context = original;
    if (top->status != SKV_OK) return;
    read_kind(&scaling, in, out);
    top->status = scaling.status;
}

double skv_rope_llama3(const skv_rope *rope, double frequency)
{
    static const double TWO_PI = 6.283185307179586;
    double wavelength = TWO_PI / frequency;
    double context = (double)rope->original_context;
    if (wavelength < context / rope->high_freq_factor) return frequency;
    if (wavelength > context / rope->low_freq_factor) return frequency / rope->factor;
    double smooth = (context / wavelength - rope->low_freq_factor) /
                    (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}
