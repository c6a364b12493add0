/*
 * Choosing which rows of a prompt stay: a table of methods, each a file of this folder, over one
 * way of choosing. Pure arithmetic on votes; the cache does the moving (kv_cache.h).
 *
 * Chosen is slot by slot. Of each head's n rows the last `n_window` stay; of the others, the
 * prefix, those with the highest scores, as many as the method's budget says.
 */
#ifndef SKV_KV_EVICT_H
#define SKV_KV_EVICT_H

#include "kv/evict_method.h"

/** NULL for NONE. */
const skv_evict_method *skv_evict_method_of(skv_evictor id);

/** What every head of a slot keeps: rows + h * rows_stride gets n_kept[h] of them, window
 * included. Overwrites the votes. */
void skv_evict_choose(const skv_evict_slot *slot, uint32_t *rows, size_t rows_stride,
                      size_t *n_kept);

#endif
