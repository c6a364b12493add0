/* The prefill methods: each fills a plan (model/plan.h). One file a method. */
#ifndef SKV_PREFILL_METHODS_H
#define SKV_PREFILL_METHODS_H

#include "model/plan.h"

/** The ordinary transformer: layer i makes K,V from the hidden state that enters it. */
SKV_MUST_CHECK skv_status skv_plan_full(skv_plan *plan, const skv_config *config, bool skip,
                                        skv_error *err);

/** SwiftKV with AcrossKV (arXiv:2410.03960): config.kv_layers and config.kv_group. */
SKV_MUST_CHECK skv_status skv_plan_swiftkv(skv_plan *plan, const skv_config *config, bool skip,
                                           skv_error *err);

/** The ordinary transformer, whose keys and values another model predicts (prefill/kvpred.h), those
 * of the rows themselves included. */
SKV_MUST_CHECK skv_status skv_plan_foreign(skv_plan *plan, const skv_config *config,
                                           skv_error *err);

/** Merge-all-Layers: the ordinary transformer with one KV slot, which every layer writes over.
 * Refuses layers whose KV heads differ in number. */
SKV_MUST_CHECK skv_status skv_plan_merged(skv_plan *plan, const skv_config *config, bool skip,
                                          skv_error *err);

#endif
