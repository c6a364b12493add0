/*
 * Which layer of an auxiliary model predicts which of the base, and models without some of their
 * layers, alone or as an auxiliary (KV Prediction, arXiv:2410.08391, Tables 1 and 4).
 */
#ifndef SKV_PREFILL_LAYER_MAPS_H
#define SKV_PREFILL_LAYER_MAPS_H

#include "format/config.h"

/* ---- which layer predicts which (Table 1) ---- */

/** KVP-C: layers [n_base] get the auxiliary's n_auxiliary in turn; where these do not divide
 * n_base, the first ones serve one layer more. 1 <= n_auxiliary <= n_base. */
void skv_kvpred_map_canonical(size_t n_base, size_t n_auxiliary, uint16_t *layers);
/** KVP-LP: each layer gets the last kept one that does not come after it. kept [n_kept] ascends
 * from 0. */
void skv_kvpred_map_pruned(size_t n_base, const uint16_t *kept, size_t n_kept, uint16_t *layers);
/** The layers that a pruned copy keeps (Table 4): one, two or three `quarters` of them. Returns how
 * many. */
size_t skv_kvpred_kept(size_t n_base, size_t quarters, uint16_t *kept);
/** Returns how many quarters of the layers "lp-0.25", "lp-0.50" or "lp-0.75" keeps; 0 for other
 * names. */
size_t skv_kvpred_quarters(const char *name);

/* ---- a model without some of its layers ---- */

/* Layers that stay, ascending. */
typedef struct skv_kept_layers {
    uint16_t at[SKV_LAYERS_MAX];
    size_t n;
} skv_kept_layers;

/** "0,2,3,7", or the paper's "lp-0.25", "lp-0.50", "lp-0.75". */
SKV_MUST_CHECK skv_status skv_kept_layers_parse(const char *text, size_t n_layers,
                                                skv_kept_layers *out, skv_error *err);
/** The configuration of the remaining model: an ordinary model, whose `layers` are its own. */
SKV_MUST_CHECK skv_status skv_kept_layers_config(const skv_config *from, const uint16_t *kept,
                                                 size_t n, skv_config *out, skv_error *err);
/** The name of a tensor in the remaining model: the same, but for the layer's number. False: it
 * goes with its layer. */
bool skv_kept_layers_name(const skv_kept_layers *kept, const char *name, char *out, size_t n_out);

#endif
