/*
 * A hash table that also keeps its entries in order of use, for caches of bounded size.
 *
 * It is intrusive: an entry begins with a skv_lru_node and stays owned by the caller, so only the
 * buckets are allocated, and the caller frees the entries that it removes. The table compares only
 * hashes; among entries with equal hashes the caller picks its own:
 *
 *     entry *e = (entry *)skv_lru_first(&table, hash);
 *     while (e && !is_mine(e)) e = (entry *)skv_lru_next(&e->node);
 *
 * Every operation takes constant time as long as there are not many more entries than buckets,
 * whose number is fixed. Invariants: a node is in one bucket and once in the order of use, or in
 * neither; within a bucket, nodes stand in reverse order of insertion, regardless of use. Not
 * thread-safe.
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
