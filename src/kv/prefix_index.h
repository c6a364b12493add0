/*
 * The prefix index: full pages of the cache that a later sequence with the same beginning takes
 * over instead of computing them again.
 *
 * A block is SKV_PAGE_ROWS consecutive tokens and their pages in all tracks. Blocks form trees: a
 * block is found by the hash of its tokens and of its parent, and a hit counts only when domain,
 * parent and all tokens agree, so a collision can never hand out foreign pages. A domain is who
 * may share with whom (an API key) and what the rows mean (the method that made them). Pages are
 * reference counted: the index holds one reference, every sequence that uses them another. Blocks
 * that no sequence uses are given up, least recently used first, leaves before their parents.
 */
#ifndef SKV_KV_PREFIX_INDEX_H
#define SKV_KV_PREFIX_INDEX_H

#include "kv/kv_cache.h"

typedef struct skv_prefix_index skv_prefix_index;

/** At most max_blocks blocks. `seed` keys the hashes, so that clients cannot aim at collisions. */
SKV_MUST_CHECK skv_status skv_prefix_index_create(skv_kv_pool *pool, size_t max_blocks,
                                                  uint64_t seed, skv_prefix_index **out,
                                                  skv_error *err);
void skv_prefix_index_free(skv_prefix_index *index);

/** Gives an empty cache the longest known beginning of ids[0..n) in whole blocks; returns its
 * length in tokens. */
size_t skv_prefix_index_match(skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                              size_t n, skv_kv_cache *cache);
/** Pages of what skv_prefix_index_match would find that sequences are using. */
size_t skv_prefix_index_in_use(const skv_prefix_index *index, uint64_t domain, const int32_t *ids,
                               size_t n);
/** Remembers the full blocks of a cache whose rows are those of ids[0..n). Without memory for it
 * less is remembered. */
void skv_prefix_index_insert(skv_prefix_index *index, uint64_t domain, const int32_t *ids, size_t n,
                             const skv_kv_cache *cache);

/** Pages that would become free if every block that no sequence uses were given up. */
size_t skv_prefix_index_evictable(const skv_prefix_index *index);
/** Gives up blocks until n_pages pages have become free or no block is left; returns how many. */
size_t skv_prefix_index_evict(skv_prefix_index *index, size_t n_pages);
/** Blocks it holds. */
size_t skv_prefix_index_blocks(const skv_prefix_index *index);

#endif
