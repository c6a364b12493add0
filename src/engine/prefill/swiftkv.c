/*
 * SwiftKV, AcrossKV and Merge-all-Layers (arXiv:2410.03960, sections 3.2, 3.3 and 5.1).
 *
 * Equation 2: KV_j = W_KV^j x_{l+1} for all j > l. In our zero-based count: layers l..L-1 take
 * their keys and values from the hidden state that enters layer l, so prompt rows stop there.
 * AcrossKV: groups of g of those layers share the keys and values of the group's first layer,
 * and with them one KV slot: l + (L - l) / g slots in all.
 */
#include "prefill/method.h"

static void fill_swiftkv(const skv_config *config, skv_plan_layer *layers)
{
    size_t l = config->kv_layers, g = config->kv_group;
    skv_fill_full(config, layers);
    for (size_t i = l; i < config->n_layers; i++) {
        layers[i] = (skv_plan_layer){.kept = SKV_KEPT_PAGES,
                                     .source = SKV_KV_SOURCE_STACK,
                                     .kv_boundary = l,
                                     .slot = l + (i - l) / g,
                                     .writes = (i - l) % g == 0,
                                     .group = (i - l) / g};
    }
}

const skv_method skv_method_swiftkv = {.prefills = SKV_PREFILL_BIT(SKV_PREFILL_SWIFTKV) |
                                                   SKV_PREFILL_BIT(SKV_PREFILL_SWIFTKV_FULL),
                                       .fill = fill_swiftkv};

/*
 * Merge-all-Layers (section 5.1): the memory of one layer for the keys and values of all, and the
 * arithmetic of the unmodified model. It is there to be timed: an ideal compression that costs
 * nothing. Every layer writes its keys and values over those of the layer before, so a token finds
 * its own layer's rows of the tokens of its step, and the last layer's of all earlier ones. The
 * generated text means nothing.
 */
static void fill_merged(const skv_config *config, skv_plan_layer *layers)
{
    skv_fill_shared(config, layers);
    for (size_t i = 0; i < config->n_layers; i++) layers[i].slot = 0;
}

const skv_method skv_method_merged = {.prefills = SKV_PREFILL_BIT(SKV_PREFILL_MERGED),
                                      .fill = fill_merged};
