/*
 * A hash table whose entries also stand in order of use: what a cache of bounded size is made of.
 *
 * It is intrusive: an entry begins with a skv_lru_node and belongs to whoever put it in, so nothing
 * is allocated but the buckets, and whoever removes an entry frees it. The table compares hashes
 * only; of the entries with one hash the caller picks his own:
 *
 *     entry *e = (entry *)skv_lru_first(&table, hash);
 *     while (e && !is_mine(e)) e = (entry *)skv_lru_next(&e->node);
 *
 * Every operation takes a time that does not depend on the number of entries as long as there are
 * not many more than buckets, which never grow. Invariants: a node is in one bucket and once in the
 * order of use, or in neither; in a bucket, what was added later stands before what was added
 * earlier, however they were used since. Not safe for threads.
 */
#ifndef SKV_BASE_LRU_H
#define SKV_BASE_LRU_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

typedef struct skv_lru_node {
    struct skv_lru_node *next_in_bucket;
    struct skv_lru_node *newer, *older; /* in order of use; NULL at its ends */
    uint64_t hash;                      /* its low bits choose the bucket: all must be well mixed */
} skv_lru_node;

typedef struct skv_lru {
    skv_lru_node **buckets; /* owned, [n_buckets] */
    size_t n_buckets;       /* a power of two */
    size_t n;               /* entries */
    skv_lru_node *newest, *oldest;
} skv_lru;

/** Buckets for about n_entries entries. */
SKV_MUST_CHECK skv_status skv_lru_init(skv_lru *lru, size_t n_entries, skv_error *err);
/** Frees the buckets; entries that are still in it are their owners' to free. A zeroed table is
 * fine. */
void skv_lru_release(skv_lru *lru);

/** The entry with this hash that was added last, and the one that was added before it; NULL: none.
 * Between the two calls other entries may be removed, and any be used. */
skv_lru_node *skv_lru_first(const skv_lru *lru, uint64_t hash);
skv_lru_node *skv_lru_next(const skv_lru_node *node);

/** As the newest. `node` is in no table. */
void skv_lru_add(skv_lru *lru, skv_lru_node *node, uint64_t hash);
/** Makes an entry of the table its newest. */
void skv_lru_touch(skv_lru *lru, skv_lru_node *node);
void skv_lru_remove(skv_lru *lru, skv_lru_node *node);

#endif
