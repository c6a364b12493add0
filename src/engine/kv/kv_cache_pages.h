/*
 * Functions that kv_cache.c and kv_compact.c share: the pages of a cache's bundles, and telling the
 * back end of them.
 */
#ifndef SKV_KV_CACHE_PAGES_H
#define SKV_KV_CACHE_PAGES_H

#include "base/size.h"
#include "kv/kv_cache.h"

static inline size_t skv_kv_pages_for(size_t n_rows)
{
    return skv_ceil_div(n_rows, SKV_PAGE_ROWS);
}

/* The pages of a bundle, [max_pages]. */
static inline uint32_t *skv_kv_cache_pages(const skv_kv_cache *cache, size_t bundle)
{
    return cache->pages + bundle * cache->layout->max_pages;
}

static inline bool skv_kv_cache_is_shared(const skv_kv_cache *cache, size_t bundle, size_t p)
{
    return skv_kv_page_references(cache->store, skv_kv_cache_pages(cache, bundle)[p]) > 1;
}

/* Rows of the track of a bundle that has most of them, and of the one that has least: only where
 * rows were evicted they differ. */
typedef struct skv_kv_bundle_rows {
    size_t most, least;
} skv_kv_bundle_rows;

skv_kv_bundle_rows skv_kv_cache_bundle_rows(const skv_kv_cache *cache, size_t bundle);
/** The largest of a number that the tracks of a bundle have. */
size_t skv_kv_layout_most(const skv_kv_layout *layout, size_t bundle, const size_t *of_tracks);

/* Of a bundle's pages [first, end): */

/** How many others use too. */
size_t skv_kv_cache_shared_pages(const skv_kv_cache *cache, size_t bundle, size_t first,
                                 size_t end);
/** They come from the store, which has as many. */
void skv_kv_cache_take_pages(skv_kv_cache *cache, size_t bundle, size_t first, size_t end);
/** They go back. */
void skv_kv_cache_drop_pages(skv_kv_cache *cache, size_t bundle, size_t first, size_t end);
/** They have become others, as the back end is to know. */
void skv_kv_cache_tell_pages(const skv_kv_cache *cache, size_t bundle, size_t first, size_t end);

/** Tells the back end how many rows all tracks have lost. */
void skv_kv_cache_tell_dropped(const skv_kv_cache *cache);

#endif
