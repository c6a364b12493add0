/* The traits of a model that decide which methods fit it: see skv/combine.h. */
#include <stdio.h>

#include "engine/engine.h"

skv_prefill skv_prefill_resolve(skv_prefill prefill, skv_model_kind kind)
{
    if (prefill != SKV_PREFILL_AUTO) return prefill;
    if (kind == SKV_MODEL_KVPRED) return SKV_PREFILL_KVPRED;
    const bool ordinary =
        kind == SKV_MODEL_ORDINARY || kind == SKV_MODEL_SHARED || kind == SKV_MODEL_HYBRID;
    return ordinary ? SKV_PREFILL_FULL : SKV_PREFILL_SWIFTKV;
}

/* Whether a SwiftKV model was saved without the projections that its boundary replaces. */
static bool lacks_teacher(const skv_config *c, const skv_source *source)
{
    size_t i = c->kv_layers;
    while (i < c->n_layers && c->layers[i].mixer == SKV_MIXER_NONE) i++;
    if (i == c->n_layers) return false;
    char name[96];
    (void)snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i,
                   skv_config_attends(c, i) ? "self_attn.q_proj" : "linear_attn.in_proj_q");
    return !skv_source_find(source, name);
}

static skv_model_kind kind_of(const skv_config *c, const skv_source *source)
{
    if (c->kv_prediction) return SKV_MODEL_KVPRED;
    const bool hybrid = skv_config_is_hybrid(c);
    if (!c->swiftkv && hybrid) return SKV_MODEL_HYBRID;
    if (!c->swiftkv) return c->n_shared > 0 ? SKV_MODEL_SHARED : SKV_MODEL_ORDINARY;
    if (source && lacks_teacher(c, source)) {
        return hybrid ? SKV_MODEL_HYBRID_STUDENT : SKV_MODEL_STUDENT;
    }
    if (hybrid) return SKV_MODEL_HYBRID_SWIFTKV;
    return c->kv_group > 1 ? SKV_MODEL_ACROSSKV : SKV_MODEL_SWIFTKV;
}

skv_model_traits skv_model_traits_of(const skv_config *c, const skv_source *source)
{
    const bool exits = c->early_exit && c->kv_layers < c->n_layers;
    skv_model_traits out = {.kind = kind_of(c, source), .exit_head = exits};
    out.exit_cut = exits && c->exit_words > 0;
    for (size_t i = 0; i < c->n_layers; i++) {
        out.windows = out.windows || c->layers[i].window > 0;
        out.kv_heads_differ = out.kv_heads_differ ||
                              c->layers[i].n_kv_heads != c->layers[0].n_kv_heads ||
                              skv_config_head_dim(c, i) != skv_config_head_dim(c, 0);
    }
    return out;
}
