/*
 * The prefill methods: one file a paper or a kind of model, each method a row of the table in
 * method.c, which fills a plan (model/plan.h).
 */
#ifndef SKV_PREFILL_METHOD_H
#define SKV_PREFILL_METHOD_H

#include "model/plan.h"
#include "skv/skv.h"

typedef struct skv_method {
    unsigned prefills; /* SKV_PREFILL_BIT of each value of --prefill that it serves */
    bool (*fits)(const skv_config *config); /* the models that it is for; NULL: all */
    skv_plan_fill *fill;
} skv_method;

#define SKV_PREFILL_BIT(prefill) (1U << (prefill))
#define SKV_PREFILL_ORDINARY                                                                       \
    (SKV_PREFILL_BIT(SKV_PREFILL_FULL) | SKV_PREFILL_BIT(SKV_PREFILL_TEACHER) |                    \
     SKV_PREFILL_BIT(SKV_PREFILL_KVPRED)) /* KV Prediction: of the rows that the base runs */

extern const skv_method skv_method_shared, skv_method_swiftkv, skv_method_merged;

/** The plan of a model by the first method of the table that fits. `prefill` is resolved, and the
 * model is one that it goes with (skv/combine.h). */
SKV_MUST_CHECK skv_status skv_plan_method(skv_plan *plan, skv_prefill prefill,
                                          const skv_config *config, bool skip, skv_error *err);

/** skv_fill_full, but for the last layers of a model that shares keys and values: they have donors.
 */
void skv_fill_shared(const skv_config *config, skv_plan_layer *layers);
/** Another model has written all keys and values, those of the rows themselves included. */
void skv_fill_predicted(const skv_config *config, skv_plan_layer *layers);

#endif
