/* A configuration as one line of text, for tests that compare whole configurations. */
#ifndef SKV_TESTS_DESCRIBE_CONFIG_H
#define SKV_TESTS_DESCRIBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/buf.h"
#include "format/config.h"

static inline void describe_rope(const skv_rope *r, skv_buf *out)
{
    static const char *const kinds[] = {"plain",   "linear", "llama3", "longrope",
                                        "factors", "yarn",   "none"};
    skv_buf_printf(out, "%s theta=%.9g rot=%zu", kinds[r->scaling], r->theta, r->n_rot);
    if (r->factor != 1.0) skv_buf_printf(out, " factor=%.9g", r->factor);
    if (r->scaling == SKV_ROPE_LLAMA3) {
        skv_buf_printf(out, " low=%.9g high=%.9g", r->low_freq_factor, r->high_freq_factor);
    }
    if (r->scaling == SKV_ROPE_LLAMA3 || r->scaling == SKV_ROPE_LONGROPE) {
        skv_buf_printf(out, " from=%zu", r->original_context);
    }
    if (r->scaling == SKV_ROPE_YARN) {
        skv_buf_printf(out, " from=%zu fast=%.9g slow=%.9g%s", r->original_context, r->beta_fast,
                       r->beta_slow, r->ramp_exact ? " exact" : "");
    }
    if (r->position_growth != 0.0) skv_buf_printf(out, " growth=%.9g", r->position_growth);
    if (r->attention_factor != 1.0) skv_buf_printf(out, " attention=%.6g", r->attention_factor);
    for (size_t i = 0; r->scaling == SKV_ROPE_LONGROPE && i < r->n_factors; i++) {
        skv_buf_printf(out, " %.9g/%.9g", (double)r->short_factor[i], (double)r->long_factor[i]);
    }
    for (size_t i = 0; r->scaling == SKV_ROPE_FACTORS && i < r->n_factors; i++) {
        skv_buf_printf(out, " %.9g", (double)r->long_factor[i]);
    }
}

static inline bool same_layer(const skv_layer_shape *a, const skv_layer_shape *b)
{
    return a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads && a->ffn == b->ffn &&
           a->window == b->window && a->i_rope == b->i_rope && a->i_rope_q == b->i_rope_q &&
           a->n_experts == b->n_experts && a->mixer == b->mixer && a->ffn_shared == b->ffn_shared;
}

static inline void describe_layers(const skv_config *c, skv_buf *out)
{
    for (size_t i = 0, n; i < c->n_layers; i += n) {
        const skv_layer_shape *l = &c->layers[i];
        for (n = 1; i + n < c->n_layers && same_layer(l, l + n); n++) {}
        skv_buf_printf(out, " %zux(%zu/%zu %zu", n, l->n_heads, l->n_kv_heads, l->ffn);
        if (l->window) skv_buf_printf(out, " window=%zu", l->window);
        if (l->i_rope) skv_buf_text(out, " local");
        if (l->i_rope_q) skv_buf_text(out, " growing");
        if (l->n_experts) skv_buf_printf(out, " %zu of %zu", c->n_active, l->n_experts);
        if (l->ffn_shared) skv_buf_printf(out, " and %zu", l->ffn_shared);
        if (l->mixer == SKV_MIXER_DELTA) skv_buf_text(out, " delta");
        if (l->mixer == SKV_MIXER_CONV) skv_buf_text(out, " conv");
        if (l->mixer == SKV_MIXER_MAMBA) skv_buf_text(out, " mamba");
        if (l->mixer == SKV_MIXER_BOTH) skv_buf_text(out, " both");
        if (l->mixer == SKV_MIXER_NONE) skv_buf_text(out, " none");
        skv_buf_byte(out, ')');
    }
}

static inline void describe_choices(const skv_config *c, skv_buf *out)
{
    const struct {
        bool on;
        const char *text;
    } flags[] = {{c->norm_offset_one, " norm+1"},
                 {c->qkv_bias, " qkv_bias"},
                 {c->o_bias, " o_bias"},
                 {c->mlp_bias, " mlp_bias"},
                 {c->qk_norm, " qk_norm"},
                 {c->post_norms, " post_norms"},
                 {c->tied, " tied"},
                 {c->norm_topk, " norm_topk"},
                 {c->router_bias, " router_bias"},
                 {c->expert_bias, " expert_bias"},
                 {c->shared_plain, " shared_plain"},
                 {c->router_sigmoid, " sigmoid"},
                 {c->choice_bias, " choice_bias"},
                 {c->single_blocks, " single"},
                 {c->state_pre_norms, " state_pre_norms"},
                 {c->mixer.no_norm, " no_norm"},
                 {c->mixer.gate_first, " gate_first"},
                 {c->activation == SKV_ACT_RELU2, " relu2"},
                 {c->activation == SKV_ACT_GELU_TANH, " gelu"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (flags[i].on) skv_buf_text(out, flags[i].text);
    }
    if (c->attention_softcap > 0) skv_buf_printf(out, " cap=%g", c->attention_softcap);
    if (c->final_softcap > 0) skv_buf_printf(out, " final_cap=%g", c->final_softcap);
    if (c->embedding_scale != 1.0) skv_buf_printf(out, " embed*%.9g", c->embedding_scale);
    if (c->n_shared > 0) skv_buf_printf(out, " shared=%zu", c->n_shared);
    if (c->router_scale != 0.0) skv_buf_printf(out, " routed*%g", c->router_scale);
    if (c->moe_latent > 0) skv_buf_printf(out, " latent=%zu", c->moe_latent);
    if (c->logit_divisor != 0.0 && c->logit_divisor != 1.0)
        skv_buf_printf(out, " logits/%.6g", c->logit_divisor);
    for (size_t i = 0; i < SKV_SCALE_COUNT; i++) {
        if (c->part_scales[i] != 0.0) skv_buf_printf(out, " part%zu*%g", i, c->part_scales[i]);
    }
    if (c->mixer.write_max > 1) skv_buf_printf(out, " write=%g", c->mixer.write_max);
    if (skv_config_is_hybrid(c)) {
        const skv_mixer_shape *m = &c->mixer;
        skv_buf_printf(out, " state=%zu/%zu %zux%zu conv=%zu%s%s", m->n_value_heads, m->n_key_heads,
                       m->key_dim, m->value_dim, m->conv_rows, m->tiled ? " tiled" : "",
                       c->attention_gate ? " gate" : "");
        if (m->conv_bias) skv_buf_text(out, " conv_bias");
        if (m->dt_min != 0.0 || m->dt_max != 0.0)
            skv_buf_printf(out, " dt=%g..%g", m->dt_min, m->dt_max);
        if (m->norm_eps != 0.0 && m->norm_eps != c->norm_eps)
            skv_buf_printf(out, " norm_eps=%g", m->norm_eps);
    }
    if (c->swiftkv) skv_buf_printf(out, " swiftkv=%zu/%zu", c->kv_layers, c->kv_group);
}

/** Every field that does not have its neutral value, in one line. */
static inline void describe_config(const skv_config *c, skv_buf *out)
{
    skv_buf_clear(out);
    skv_buf_printf(out, "%s D=%zu Dh=%zu V=%zu ctx=%zu eps=%g scale=%.6g", c->architecture,
                   c->hidden, c->head_dim, c->vocab, c->context, c->norm_eps, c->attention_scale);
    describe_choices(c, out);
    describe_layers(c, out);
    skv_buf_text(out, " rope ");
    describe_rope(&c->ropes[0], out);
    bool same = memcmp(&c->ropes[0], &c->ropes[1], sizeof c->ropes[0]) == 0;
    if (!same) skv_buf_text(out, ", local ");
    if (!same) describe_rope(&c->ropes[1], out);
    skv_buf_printf(out, " bos=%d eos=", (int)c->bos);
    for (size_t i = 0; i < c->n_eos; i++) {
        skv_buf_printf(out, i ? ",%d" : "%d", (int)c->eos[i]);
    }
}

#endif
