/*
 * Which single tokens of a step read the same pages: sequences that share a beginning share its
 * pages, so the rows in them can be read once for all of their tokens.
 */
#ifndef SKV_CPU_PREFIX_H
#define SKV_CPU_PREFIX_H

#include "backend/cpu/cpu_state.h"

enum {
    SKV_PREFIXES_MAX = 32, /* of one track in one step */
    SKV_PREFIX_NONE = 255  /* an item that shares nothing */
};

/* Rows [row0, row1) of the caches of n_items items, which all of them see, in the same pages. */
typedef struct skv_cpu_prefix {
    size_t leader; /* the first of its items */
    size_t n_items;
    size_t row0, row1;
} skv_cpu_prefix;

/** The first row and the number of rows that the item's one token sees in a track. */
size_t skv_cpu_first_row(const skv_cpu_item *item, size_t window, size_t track);
size_t skv_cpu_end_row(const skv_cpu_item *item, size_t track);

/** Finds prefixes of a track; of [n_items]: each item's prefix, or SKV_PREFIX_NONE. A prefix of
 * one item stands for nothing. Returns their number. */
size_t skv_cpu_find_prefixes(const skv_cpu_set *set, size_t window, size_t track,
                             skv_cpu_prefix prefixes[SKV_PREFIXES_MAX], uint8_t *of);

#endif
