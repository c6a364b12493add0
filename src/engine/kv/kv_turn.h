/*
 * Rows that a cache takes in from another place: a text that was read before stands at other
 * positions in a new one. Values stay as they are, and keys are turned to the new positions. The
 * rows have seen what stood before them at the old place, so they are no longer exact.
 */
#ifndef SKV_KV_TURN_H
#define SKV_KV_TURN_H

#include "kv/kv_cache.h"

/* Rows of a text, in whole pages. */
typedef struct skv_kv_run {
    const uint32_t *pages;           /* [n_bundles][n_pages] */
    size_t n_pages;                  /* they have at least n rows */
    size_t n;                        /* rows to take, the first ones */
    size_t position;                 /* of the first */
    size_t context;                  /* the length that both texts' sequences were made for */
    const skv_angles *const *angles; /* [n_slots]: of the keys of each slot */
} skv_kv_run;

/** Replaces rows [row0, row0 + run->n) of a cache by those of the run. The cache must have these
 * rows and must not have evicted any. */
void skv_kv_cache_take_run(skv_kv_cache *cache, size_t row0, const skv_kv_run *run);

#endif
