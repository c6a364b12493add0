/*
 * SwiftKV, AcrossKV and Merge-all-Layers (arXiv:2410.03960, sections 3.2, 3.3 and 5.1).
 *
 * Equation 2: KV_j = W_KV^j x_{l+1} for all j > l. In our zero-based count: layers l..L-1 take
 * their keys and values from the hidden state that enters layer l, so prompt rows stop there.
 * AcrossKV: groups of g of those layers share the keys and values of the group's first layer,
 * and with them one KV slot: l + (L - l) / g slots in all.
 *
 * In hybrid models x_{l+1} feeds the states of layers above l too: what a row writes there is made
 * of it (model/mixer.c), so rows stop at l all the same. Groups count the layers with attention.
 */
#include "prefill/method.h"

static void fill_swiftkv(const skv_config *config, skv_plan_layer *layers)
{
    const size_t l = config->kv_layers, g = config->kv_group;
    size_t n_below = 0, n = 0; /* layers with attention, below l and above */
    skv_fill_full(config, layers);
    for (size_t i = 0; i < l; i++) n_below += skv_config_attends(config, i);
    for (size_t i = l; i < config->n_layers; i++) {
        layers[i].source = SKV_KV_SOURCE_STACK;
        layers[i].kv_boundary = l;
        layers[i].writes = false;
        if (!skv_config_attends(config, i)) continue;
        layers[i].slot = n_below + n / g;
        layers[i].writes = n % g == 0;
        layers[i].group = n++ / g;
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
