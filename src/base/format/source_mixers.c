/*
 * Splits fused rows of layers that keep a state, and of attention with a gate, into parts that
 * share the mapped bytes: see skv_name_action. If a file stores them head after head, each part is
 * periodic (skv_tensor_periodic).
 */
#include <stdio.h>
#include <string.h>

#include "format/dtype.h"
#include "format/source_impl.h"

enum { CUTS_MAX = 5 };

typedef struct cut {
    const char *to; /* after "model.layers.{i}.", before ".weight" */
    size_t n;       /* rows of a period */
} cut;

typedef struct cut_list {
    cut cuts[CUTS_MAX];
    size_t n_periods;
} cut_list;

static cut_list cuts_of(const skv_config *c, size_t i_layer, skv_name_action action)
{
    const skv_mixer_shape *m = &c->mixer;
    const size_t Dh = skv_config_head_dim(c, i_layer);
    /* A model may have gated attention and no other mixer: an MTP head is one. */
    const size_t n_values = m->n_key_heads > 0 ? m->n_value_heads / m->n_key_heads : 0;
    const size_t n_v = n_values * m->value_dim;
    switch (action) {
    case SKV_NAME_GATED:
        return (cut_list){{{"self_attn.q_proj", Dh}, {"self_attn.gate_proj", Dh}},
                          c->layers[i_layer].n_heads};
    case SKV_NAME_DELTA_QKV:
        return (cut_list){{{"linear_attn.in_proj_q", skv_mixer_key_columns(m)},
                           {"linear_attn.in_proj_k", skv_mixer_key_columns(m)},
                           {"linear_attn.in_proj_v", skv_mixer_value_columns(m)}},
                          1};
    case SKV_NAME_DELTA_QKVZ:
        return (cut_list){{{"linear_attn.in_proj_q", m->key_dim},
                           {"linear_attn.in_proj_k", m->key_dim},
                           {"linear_attn.in_proj_v", n_v},
                           {"linear_attn.in_proj_z", n_v}},
                          m->n_key_heads};
    case SKV_NAME_MAMBA_IN:
        return (cut_list){{{"linear_attn.in_proj_z", skv_mixer_value_columns(m)},
                           {"linear_attn.in_proj_v", skv_mixer_value_columns(m)},
                           {"linear_attn.in_proj_k", skv_mixer_key_columns(m)},
                           {"linear_attn.in_proj_q", skv_mixer_key_columns(m)},
                           {"linear_attn.in_proj_a", m->n_value_heads}},
                          1};
    default:
        return (cut_list){
            {{"linear_attn.in_proj_b", n_values}, {"linear_attn.in_proj_a", n_values}},
            m->n_key_heads};
    }
}

static skv_status add_as(skv_source *source, size_t i_layer, const char *to, const char *kind,
                         const skv_tensor *t, skv_error *err)
{
    char name[128];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s%s%s", i_layer, to, *kind ? "." : "",
                   kind);
    return skv_source_add(source, name, t, err);
}

static skv_status add_conv(skv_source *source, size_t i_layer, const char *to, const skv_tensor *t,
                           skv_error *err)
{
    skv_tensor flat = *t;
    if (t->n_dims == 3 && t->dims[1] == 1) {
        flat.n_dims = 2;
        flat.dims[1] = t->dims[2];
    }
    return add_as(source, i_layer, to, "", &flat, err);
}

/* Vectors as some converters of GGUF shape them: [n, 1], or a row for each group. */
static skv_status add_flat(skv_source *source, size_t i_layer, const char *to, const skv_tensor *t,
                           skv_error *err)
{
    skv_tensor flat = *t;
    if (t->n_dims == 2 && skv_dtype_block_elements(t->type) == 1 && !t->coded.layout) {
        flat.n_dims = 1;
        flat.dims[0] = t->dims[0] * t->dims[1]; /* the parser has checked the product */
        flat.dims[1] = 0;
    }
    return add_as(source, i_layer, to, "", &flat, err);
}

skv_status skv_source_add_mixer(skv_source *source, size_t i_layer, const skv_name_rule *rule,
                                const skv_tensor *t, skv_error *err)
{
    const skv_config *c = skv_source_config(source);
    const bool gated = rule->action == SKV_NAME_GATED;
    const bool used = gated ? skv_config_attends(c, i_layer) : skv_config_keeps_state(c, i_layer);
    if (!used) return SKV_OK; /* the model does not use it */
    if (rule->action == SKV_NAME_FLAT) return add_flat(source, i_layer, rule->to, t, err);
    if (rule->action == SKV_NAME_CONV) return add_conv(source, i_layer, rule->to, t, err);
    const bool apart = gated && skv_tensor_rows(t) == skv_config_q_columns(c, i_layer);
    if (gated && (!c->attention_gate || apart)) { /* apart: written by skv_transform */
        return add_as(source, i_layer, "self_attn.q_proj", rule->to, t, err);
    }
    const cut_list list = cuts_of(c, i_layer, rule->action);
    size_t period = 0, at = 0;
    for (size_t i = 0; i < CUTS_MAX; i++) period += list.cuts[i].n;
    const bool is_bias = strcmp(rule->to, "bias") == 0;
    SKV_TRY(
        skv_source_check_fused(source, t, list.n_periods * period, is_bias ? 0 : c->hidden, err));
    for (size_t i = 0; i < CUTS_MAX && list.cuts[i].to; i++) {
        const size_t n = list.cuts[i].n;
        const skv_tensor part =
            list.n_periods > 1 ? skv_tensor_periodic(t, period, at, n) : skv_tensor_slice(t, at, n);
        SKV_TRY(add_as(source, i_layer, list.cuts[i].to, rule->to, &part, err));
        at += n;
    }
    return SKV_OK;
}
