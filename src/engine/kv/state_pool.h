/*
 * The states of sequences in layers that keep one instead of keys and values: numbered places of
 * one size in the back end's memory, which a sequence takes when it is made and gives back when it
 * is freed. The contents of a place before a sequence's first row are ignored.
 */
#ifndef SKV_KV_STATE_POOL_H
#define SKV_KV_STATE_POOL_H

#include "backend/backend.h"

#define SKV_NO_STATE SIZE_MAX

typedef struct skv_state_pool {
    skv_backend *be;    /* borrowed */
    skv_states *states; /* owned; NULL: no layer keeps any, and all sequences have SKV_NO_STATE */
    size_t state_bytes; /* of one of them */
    size_t max_undo;    /* the last rows of a span that may be taken back */
    size_t n, n_free;
    uint32_t *free; /* [n], owned: the first n_free are the free ones' numbers */
} skv_state_pool;

/** Bytes of these states; without states or layers none. */
skv_bytes skv_state_pool_bytes(const skv_backend *be, const skv_states_spec *spec);
/** As many states as the specification says, whose layers are not kept; there may be none. */
SKV_MUST_CHECK skv_status skv_state_pool_init(skv_state_pool *pool, skv_backend *be,
                                              const skv_states_spec *spec, skv_error *err);
void skv_state_pool_release(skv_state_pool *pool);
/** A free state; SKV_FULL when there is none. Without states *out is SKV_NO_STATE. */
SKV_MUST_CHECK skv_status skv_state_pool_take(skv_state_pool *pool, size_t *out, skv_error *err);
/** Gives a state back; SKV_NO_STATE is nothing. */
void skv_state_pool_give(skv_state_pool *pool, size_t state);
/** Copies state i of `from`, which has the same layers, to a state. */
void skv_state_pool_copy(skv_state_pool *pool, size_t state, const skv_states *from, size_t i);

#endif
