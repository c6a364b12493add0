/*
 * The ordinary transformer. Even here the last layer's output is wanted for few rows: rows whose
 * logits nobody asks for leave only their keys and values there, which saves 1/L exactly.
 */
#include "prefill/methods.h"

skv_status skv_plan_full(skv_plan *plan, const skv_config *config, bool skip, skv_error *err)
{
    SKV_TRY(skv_plan_init(plan, config->n_layers, skip, err));
    for (size_t i = 0; i < config->n_layers; i++) {
        plan->layers[i] = (skv_plan_layer){.kv_boundary = i, .slot = i, .owns_slot = true};
    }
    return skv_plan_finish(plan, config, err);
}
