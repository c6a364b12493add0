/*
 * The table that a prefill method is: where each layer's keys and values come from and go to.
 *
 * Boundary i is the hidden state that enters layer i. Layer j's keys and values are made from
 * the hidden state at boundary layers[j].kv_boundary <= j. The one rule of a step follows: every
 * new row must reach the last boundary that anybody makes keys and values from, and only rows
 * whose output is wanted go on. (src/prefill/ fills the table, forward.c walks it.)
 */
#ifndef SKV_MODEL_PLAN_H
#define SKV_MODEL_PLAN_H

#include "format/config.h"
#include "kv/kv_cache.h"

typedef struct skv_plan_layer {
    size_t kv_boundary; /* s(i): the hidden state its K and V are made from */
    size_t slot;        /* KV slot it reads */
    bool owns_slot;     /* it is the one that writes the slot */
    bool swiftkv;       /* it runs with the *_swiftkv projections */
    bool foreign;       /* another model has written its K and V before the step */
} skv_plan_layer;

typedef struct skv_plan {
    size_t n_layers;
    skv_plan_layer *layers; /* [n_layers], owned */
    skv_kv_layout layout;
    size_t last_boundary; /* max of kv_boundary: rows nobody wants stop before this layer */
    bool by_query_head;   /* the cache has a track for each query head, not for each KV head */
    bool skip;            /* false: every row runs every layer (likelihoods; the proof) */
} skv_plan;

/** Takes memory for n_layers entries, zeroed. */
SKV_MUST_CHECK skv_status skv_plan_init(skv_plan *plan, size_t n_layers, bool skip, skv_error *err);
/** After `layers` is filled: finds the last boundary and lays out the slots. */
SKV_MUST_CHECK skv_status skv_plan_finish(skv_plan *plan, const skv_config *config, skv_error *err);
/** The same plan for caches with a track for each query head. */
SKV_MUST_CHECK skv_status skv_plan_spread(skv_plan *plan, const skv_plan *from,
                                          const skv_config *config, skv_error *err);
void skv_plan_release(skv_plan *plan);

#endif
