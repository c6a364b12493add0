/*
 * SwiftKV and AcrossKV (arXiv:2410.03960, sections 3.2 and 3.3).
 *
 * Equation 2: KV_j = W_KV^j x_{l+1} for all j > l. In our zero-based count: layers l..L-1 take
 * their keys and values from the hidden state that enters layer l, so prompt rows stop there.
 * AcrossKV: groups of g of those layers share the keys and values of the group's first layer,
 * and with them one KV slot: l + (L - l) / g slots in all.
 */
#include "prefill/methods.h"

skv_status skv_plan_swiftkv(skv_plan *plan, const skv_config *config, bool skip, skv_error *err)
{
    size_t l = config->kv_layers, g = config->kv_group;
    SKV_TRY(skv_plan_init(plan, config->n_layers, skip, err));
    for (size_t i = 0; i < config->n_layers; i++) {
        if (i < l) {
            plan->layers[i] = (skv_plan_layer){.kv_boundary = i, .slot = i, .owns_slot = true};
            continue;
        }
        plan->layers[i] = (skv_plan_layer){
            .kv_boundary = l,
            .slot = l + (i - l) / g,
            .owns_slot = (i - l) % g == 0,
            .swiftkv = true,
        };
    }
    return skv_plan_finish(plan, config, err);
}
