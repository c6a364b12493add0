/*
 * The page store: all KV memory of an engine, in pages of one size.
 *
 * A page holds SKV_PAGE_ROWS rows of one KV head of one KV slot (kv_page.h has its layout), or of
 * several smaller heads (kv_cache.h), so slots with different heads, and heads with different row
 * counts, share one memory.
 * The memory is a pool of the back end, where pages have numbers. The store counts references to
 * them: sequences with a common beginning share its full pages. Memory is reserved at once and
 * becomes resident when a page is first used.
 */
#ifndef SKV_KV_STORE_H
#define SKV_KV_STORE_H

#include "backend/backend.h"

typedef struct skv_kv_store skv_kv_store;

#define SKV_KV_NO_PAGE UINT32_MAX

SKV_MUST_CHECK skv_status skv_kv_store_create(skv_backend *be, skv_kv_type type, size_t page_bytes,
                                              size_t n_pages, skv_kv_store **out, skv_error *err);
/** The same for a back end of two: page numbers of a range follow those of the range before. */
SKV_MUST_CHECK skv_status skv_kv_store_create_in(skv_backend *be, skv_kv_type type,
                                                 size_t page_bytes,
                                                 const size_t n_pages[SKV_PAGE_RANGES],
                                                 skv_kv_store **out, skv_error *err);
void skv_kv_store_free(skv_kv_store *store);
/** Bytes of a store's pages. */
skv_bytes skv_kv_store_bytes(const skv_backend *be, size_t page_bytes,
                             const size_t n_pages[SKV_PAGE_RANGES]);

/** A page with one reference, or SKV_KV_NO_PAGE when none is free: the first one in memory that was
 * used before, else the first that never was. It is of those on memory node `node`, or of another's
 * where that has none; of a back end of two, `node` is a skv_page_range, and it is of no other. */
uint32_t skv_kv_page_take(skv_kv_store *store, size_t node);
void skv_kv_page_share(skv_kv_store *store, uint32_t page);
/** Drops one reference; the page is free again when it was the last. */
void skv_kv_page_drop(skv_kv_store *store, uint32_t page);
size_t skv_kv_page_references(const skv_kv_store *store, uint32_t page);
/** From here on this page's weight counts while it has one reference; 0 ends that, which must come
 * before its last reference is dropped. */
void skv_kv_page_watch(skv_kv_store *store, uint32_t page, size_t weight);
/** The weights of watched pages that have one reference. */
size_t skv_kv_store_idle_weight(const skv_kv_store *store);

/* The format of pages: as in backend.h. */
void skv_kv_pages_copy(skv_kv_store *store, const uint32_t *to, const uint32_t *from, size_t n);
void skv_kv_pages_compact(skv_kv_store *store, const skv_compact_job *jobs, size_t n);
void skv_kv_pages_turn(skv_kv_store *store, const skv_turn_job *jobs, size_t n);
skv_ticket skv_kv_pages_read(skv_kv_store *store, const uint32_t *pages, size_t n, void *host);
void skv_kv_pages_write(skv_kv_store *store, const uint32_t *pages, size_t n, const void *host);
const void *skv_kv_page_map(skv_kv_store *store, uint32_t page);
void skv_kv_page_unmap(skv_kv_store *store, const void *host);

skv_backend *skv_kv_store_backend(const skv_kv_store *store);
skv_page_pool *skv_kv_store_pool(const skv_kv_store *store);
skv_kv_type skv_kv_store_type(const skv_kv_store *store);
size_t skv_kv_store_page_bytes(const skv_kv_store *store);
size_t skv_kv_store_pages(const skv_kv_store *store);
/** Of several ranges, the share of all pages that is free in the range that has least: as many as
 * caches can take that grow in all their bundles alike. */
size_t skv_kv_store_free_pages(const skv_kv_store *store);
/** Pages are in ranges; else the next two functions look at all of them. */
bool skv_kv_store_is_apart(const skv_kv_store *store);
size_t skv_kv_store_free_in(const skv_kv_store *store, skv_page_range range);
/** Whether each range has so many. */
bool skv_kv_store_has(const skv_kv_store *store, const size_t n_pages[SKV_PAGE_RANGES]);
/** Memory nodes that its pages are divided among; at least 1. */
size_t skv_kv_store_nodes(const skv_kv_store *store);

#endif
