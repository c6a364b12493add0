/*
 * Merge-all-Layers (arXiv:2410.03960, section 5.1): the memory of one layer for the keys and values
 * of all, and the arithmetic of the unmodified model. It is there to be timed: an ideal compression
 * that costs nothing. Every layer writes its keys and values over those of the layer before, so a
 * token finds its own layer's rows of the tokens of its step, and the last layer's of all earlier
 * ones. What is generated means nothing.
 */
#include "prefill/methods.h"

skv_status skv_plan_merged(skv_plan *plan, const skv_config *config, bool skip, skv_error *err)
{
    SKV_TRY(skv_plan_init(plan, config->n_layers, skip, err));
    for (size_t i = 0; i < config->n_layers; i++) {
        plan->layers[i] = (skv_plan_layer){.kv_boundary = i, .owns_slot = true};
    }
    return skv_plan_finish(plan, config, err);
}
