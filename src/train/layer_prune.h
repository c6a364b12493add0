/*
 * A model without some of its layers: the layer-pruned models of KV Prediction (arXiv:2410.08391,
 * Table 4), alone or as an auxiliary.
 */
#ifndef SKV_TRAIN_LAYER_PRUNE_H
#define SKV_TRAIN_LAYER_PRUNE_H

#include "format/config.h"

/* Layers that stay, ascending. */
typedef struct skv_kept_layers {
    uint16_t at[SKV_LAYERS_MAX];
    size_t n;
} skv_kept_layers;

/** "0,2,3,7", or the paper's "lp-0.25", "lp-0.50", "lp-0.75". */
SKV_MUST_CHECK skv_status skv_kept_layers_parse(const char *text, size_t n_layers,
                                                skv_kept_layers *out, skv_error *err);
/** The configuration of what is left: an ordinary model, whose `layers` are its own. */
SKV_MUST_CHECK skv_status skv_kept_layers_config(const skv_config *from, const uint16_t *kept,
                                                 size_t n, skv_config *out, skv_error *err);
/** The name in what is left of a tensor: the same, but for the layer's number. False: it goes with
 * its layer. */
bool skv_kept_layers_name(const skv_kept_layers *kept, const char *name, char *out, size_t n_out);

#endif
