/*
 * Models born with shared keys and values (Gemma 3n, Gemma 4): the last layers have no projections
 * for them. Each reads the slot of its donor, the last layer before them of its own kind, with
 * queries of its own. So the plan ends early without any approximation: rows whose logits are not
 * wanted stop at the last layer that owns a slot, where they leave only their keys and values.
 */
#include "prefill/method.h"

static bool shares(const skv_config *config)
{
    return config->n_shared > 0;
}

void skv_fill_shared(const skv_config *config, skv_plan_layer *layers)
{
    skv_fill_full(config, layers);
    for (size_t i = config->n_layers - config->n_shared; i < config->n_layers; i++) {
        layers[i] = (skv_plan_layer){.kept = SKV_KEPT_PAGES,
                                     .source = SKV_KV_SOURCE_DONOR,
                                     .slot = skv_config_donor(config, i)};
    }
}

const skv_method skv_method_shared = {SKV_PREFILL_ORDINARY, shares, skv_fill_shared};
