/*
 * The page store: all KV memory of an engine, in pages of one size.
 *
 * A page holds SKV_PAGE_ROWS rows of one KV head of one KV slot (kernels.h has its layout), or of
 * several smaller heads (kv_cache.h), so slots with different heads, and later heads with different
 * row counts, share one memory.
 * Pages are reference counted: sequences with a common beginning share its full pages. Memory is
 * reserved at once and becomes resident when a page is first used.
 */
#ifndef SKV_KV_STORE_H
#define SKV_KV_STORE_H

#include "backend/backend.h"

typedef struct skv_kv_store skv_kv_store;

SKV_MUST_CHECK skv_status skv_kv_store_create(skv_backend *be, skv_kv_type type, size_t page_bytes,
                                              size_t n_pages, skv_kv_store **out, skv_error *err);
void skv_kv_store_free(skv_kv_store *store);

/** A page with one reference, or NULL when none is free: the first one in memory that was used
 * before, else the first that never was. */
void *skv_kv_page_take(skv_kv_store *store);
void skv_kv_page_share(skv_kv_store *store, void *page);
/** Drops one reference; the page is free again when it was the last. */
void skv_kv_page_drop(skv_kv_store *store, void *page);
size_t skv_kv_page_references(const skv_kv_store *store, const void *page);
/** From here on this page's weight counts while it has one reference; 0 ends that, which must come
 * before its last reference is dropped. */
void skv_kv_page_watch(skv_kv_store *store, const void *page, size_t weight);
/** The weights of watched pages that have one reference. */
size_t skv_kv_store_idle_weight(const skv_kv_store *store);
/** Copies the content of one page to another. */
void skv_kv_page_copy(skv_kv_store *store, void *to, const void *from);
/** Row i of `to` becomes row rows[i] of the pages `from`, i < n <= SKV_PAGE_ROWS: row r is row
 * r % SKV_PAGE_ROWS of from[r / SKV_PAGE_ROWS], all of head_dim. rows ascend; `to` may be one of
 * `from` where no row moves to a later place. */
void skv_kv_page_gather(skv_kv_store *store, void *to, void *const *from, size_t head_dim,
                        const uint32_t *rows, size_t n);
/** Copies the content of a page out of, or into, the back end's memory; page_bytes bytes. */
void skv_kv_page_read(skv_kv_store *store, const void *page, void *host);
/** The part of a page that begins at `rows` and holds the rows of one head. */
void skv_kv_page_read_head(skv_kv_store *store, const void *rows, size_t head_dim, void *host);
void skv_kv_page_write(skv_kv_store *store, void *page, const void *host);

skv_kv_type skv_kv_store_type(const skv_kv_store *store);
size_t skv_kv_store_page_bytes(const skv_kv_store *store);
size_t skv_kv_store_pages(const skv_kv_store *store);
size_t skv_kv_store_free_pages(const skv_kv_store *store);

#endif
