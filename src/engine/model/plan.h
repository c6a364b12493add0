/*
 * The table that a prefill method is: where the keys and values of each layer come from and go to.
 *
 * Boundary i is the hidden state that enters layer i. A layer that makes keys and values makes them
 * from the hidden state at boundary kv_boundary <= i. The one rule of a step follows: every new row
 * must reach the last boundary that keys and values are made from, and beyond it only those rows
 * go on whose output is wanted. src/engine/prefill/ fills the table; forward.c walks it and knows
 * nothing else about methods.
 */
#ifndef SKV_MODEL_PLAN_H
#define SKV_MODEL_PLAN_H

#include "format/config.h"
#include "kv/kv_cache.h"

/* Where the keys and values that a layer reads come from. */
typedef enum skv_kv_source {
    SKV_KV_SOURCE_OWN,   /* the hidden state that enters the layer, by its own projections */
    SKV_KV_SOURCE_STACK, /* an earlier hidden state, by a norm and one product that makes the keys
                          * and values of all such layers; a state by a norm and products of its
                          * own */
    SKV_KV_SOURCE_MODEL, /* another model, which has written them before the step */
    SKV_KV_SOURCE_DONOR  /* a layer before it: the layer makes none, and reads the donor's slot */
} skv_kv_source;

/* The part of earlier tokens that a layer keeps. */
typedef enum skv_kept {
    SKV_KEPT_NOTHING = 0, /* the layer looks at one row alone */
    SKV_KEPT_PAGES = 1,   /* keys and values of each row */
    SKV_KEPT_STATE = 2,   /* a state of one size, which every row changes, and the last inputs of
                           * its convolution */
    SKV_KEPT_BOTH = SKV_KEPT_PAGES | SKV_KEPT_STATE
} skv_kept;

typedef struct skv_plan_layer {
    skv_kept kept;
    skv_kv_source source; /* STATE: OWN or STACK; BOTH: OWN; NOTHING: not read */
    size_t kv_boundary;   /* the source of keys, values and the state. OWN: i. STACK: the same
                           * boundary in all such layers. Else: not read */
    size_t slot;          /* KV slot it reads; without pages: SKV_NO_SLOT */
    size_t state;         /* STATE, BOTH: which of the plan's states is its own */
    bool writes;          /* it writes the slot; OWN: always. STACK: the first layer of a group,
                           * and none without pages */
    size_t group;         /* STACK: its keys and values are parts 2 group and 2 group + 1 */
} skv_plan_layer;

#define SKV_NO_SLOT SIZE_MAX

typedef struct skv_plan {
    size_t n_layers;
    size_t n_states;        /* layers with STATE or BOTH */
    skv_plan_layer *layers; /* [n_layers], owned */
    skv_kv_layout layout;
    size_t last_boundary;  /* of all kv_boundary: rows that are not wanted stop before this layer */
    size_t stack_boundary; /* kv_boundary of the layers with STACK; n_layers: there are none */
    bool by_query_head;    /* the cache has a track for each query head, not for each KV head */
    bool skip;             /* false: every row runs every layer (likelihoods; the proof) */
    size_t first_layers;   /* skv_backend.first_layers, by which slots have their sides */
} skv_plan;

/* Fills layers [L], zeroed, for a model. */
typedef void skv_plan_fill(const skv_config *config, skv_plan_layer *layers);

/** The ordinary transformer: layer i makes K,V from the hidden state that enters it, and has a
 * slot of its own, or its state. Even here rows whose logits are not wanted leave only their
 * keys and values in the last layer, which saves 1/L exactly. */
void skv_fill_full(const skv_config *config, skv_plan_layer *layers);
/** The plan that `fill` describes, with its boundaries and the layout of its slots. */
SKV_MUST_CHECK skv_status skv_plan_init(skv_plan *plan, const skv_config *config,
                                        skv_plan_fill *fill, bool skip, skv_error *err);
/** The same plan for caches with a track for each query head. */
SKV_MUST_CHECK skv_status skv_plan_spread(skv_plan *plan, const skv_plan *from,
                                          const skv_config *config, skv_error *err);
/** The slots of a back end of two, before the layout is bound; 0: of another. */
SKV_MUST_CHECK skv_status skv_plan_divide(skv_plan *plan, const skv_config *config,
                                          size_t first_layers, skv_error *err);
void skv_plan_release(skv_plan *plan);
/** Bytes of a page for the plans of a model: rows of its largest heads, or of as many smaller ones
 * as a layout puts beside each other. */
size_t skv_plan_page_bytes(const skv_config *config, skv_kv_type type);
/** The states of a sequence in the layers that keep one: layers [n_states]. */
void skv_plan_state_layers(const skv_plan *plan, const skv_config *config, skv_state_layer *layers);
/** The first layer from i on that writes its part of the stack; n_layers: there is none. */
size_t skv_plan_next_in_stack(const skv_plan *plan, size_t i);
/** The first layer from i on whose state the stack's boundary feeds; n_layers: there is none. */
size_t skv_plan_next_fed(const skv_plan *plan, size_t i);

#endif
