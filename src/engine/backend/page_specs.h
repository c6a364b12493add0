/* How the heads of KV slots lie in pages, and which of their rows move: lists that backend.h's
 * functions of pages and tables take. */
#ifndef SKV_PAGE_SPECS_H
#define SKV_PAGE_SPECS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kv_page.h"

typedef struct skv_page_pool skv_page_pool;

/* A head of a slot: it has a place of its own in the pages of a bundle. */
typedef struct skv_track_spec {
    size_t bundle;
    size_t offset; /* bytes from the beginning of a page to the head's rows (kernels/kv_page.h) */
    size_t head_dim;
} skv_track_spec;

typedef struct skv_slots_spec {
    skv_page_pool *pool; /* borrowed until slots_free */
    skv_kv_type type;
    size_t n_slots, n_bundles;
    const size_t *track0;         /* [n_slots + 1]: slot s has tracks [track0[s], track0[s + 1]) */
    const skv_track_spec *tracks; /* [track0[n_slots]] */
    size_t max_pages;             /* of a bundle, in every table of these slots */
    /* [n_slots]: skv_backend.first_layers; NULL: no back end of two, or all of them are in both */
    const unsigned char *sides;
} skv_slots_spec;

/* Pages of a back end of two: those whose heads the first computes, those that both read, and those
 * of the second, in this order. Of another back end all are BOTH. */
typedef enum skv_page_range {
    SKV_PAGES_FIRST,
    SKV_PAGES_BOTH,
    SKV_PAGES_SECOND,
    SKV_PAGE_RANGES
} skv_page_range;

/* A head's rows in pages `to` become some of those in pages `from`: row i is row rows[i]. Rows
 * ascend, so none moves to a later place, and to[p] may be from[q] for q <= p where pages are
 * filled in order. */
typedef struct skv_compact_job {
    const uint32_t *to, *from;     /* [ceil(n / 64)], [rows[n - 1] / 64 + 1] */
    size_t to_offset, from_offset; /* as in skv_track_spec */
    size_t head_dim;
    const uint32_t *rows; /* [n] */
    size_t n;             /* at least 1 */
} skv_compact_job;

#endif
