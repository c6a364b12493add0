/*
 * The cache of one sequence: for every KV slot and head a list of pages.
 *
 * A layout lists the slots and the number of heads of each; AcrossKV gives several layers
 * one slot, so a model has l + (L - l) / g slots, and that much memory is really taken. A head of
 * a slot is a `track`: tracks are numbered slot by slot.
 *
 * All pages have one size. Where heads have different sizes (Gemma 4), a page holds 64 rows of one
 * of the largest heads or of several smaller ones, side by side. The tracks of such a page are a
 * `bundle`, whose pages come and go together:
 *
 *     | K, V of the first track | K, V of the next | .. |
 *
 * Tracks hold the same rows until some are evicted; then each has rows of its own, in order and
 * without gaps. Row r of the sequence is row r - dropped[t] of track t from there on.
 *
 * Tracks that only windowed layers read lose their first pages as the sequence grows: before a step
 * writes rows, pages go back that neither these rows nor those of a sequence that is up to
 * SKV_KV_SLACK rows shorter can see.
 */
#ifndef SKV_KV_CACHE_H
#define SKV_KV_CACHE_H

#include "kv/kv_store.h"

/* A slot of a layout. */
typedef struct skv_kv_slot {
    size_t n_heads;
    size_t head_dim;
    size_t window;       /* rows that a query sees, its own included; 0: all */
    unsigned char sides; /* skv_slots_spec.sides */
} skv_kv_slot;

/* A track of a layout. */
typedef struct skv_kv_track {
    size_t head_dim;
    bool windowed;
    unsigned char sides;
    size_t i_head, n_heads; /* in its slot, of as many */
    size_t bundle;
    size_t place; /* tracks before it in a page */
    size_t next;  /* of its bundle; SKV_KV_NO_TRACK: it is the last */
} skv_kv_track;

#define SKV_KV_NO_TRACK SIZE_MAX

enum { SKV_KV_SLACK = SKV_PAGE_ROWS };

typedef struct skv_kv_layout {
    size_t n_slots, n_bundles;
    size_t n_full;    /* the first bundles, whose rows all stay; the others are windowed */
    size_t window;    /* the longest of the windowed slots; 0: there are none */
    size_t step_rows; /* most that a cache grows by at once; 0: windowed tracks keep their rows */
    size_t *track0;   /* [n_slots + 1], owned: slot s has tracks [track0[s], track0[s + 1]) */
    skv_kv_track *tracks; /* [n_tracks], owned */
    size_t *first;        /* [n_bundles], owned: the first track of each */
    /* Added by skv_kv_layout_bind. */
    skv_kv_store *store; /* borrowed: of all caches with this layout */
    skv_slots *slots;    /* owned: the same for the back end */
    size_t max_pages;    /* of a bundle, in each of these caches */
} skv_kv_layout;

SKV_MUST_CHECK skv_status skv_kv_layout_init(skv_kv_layout *layout, const skv_kv_slot *slots,
                                             size_t n_slots, skv_error *err);
/** Before the store is freed. */
void skv_kv_layout_release(skv_kv_layout *layout);
/** Caches with this layout have their pages from `store`, and room for max_rows rows. */
SKV_MUST_CHECK skv_status skv_kv_layout_bind(skv_kv_layout *layout, skv_kv_store *store,
                                             size_t max_rows, skv_error *err);
size_t skv_kv_layout_tracks(const skv_kv_layout *layout);
/** The range that the pages of a bundle come from; always SKV_PAGES_BOTH where a back end is one.
 */
skv_page_range skv_kv_layout_range(const skv_kv_layout *layout, size_t bundle);
/** The memory node for the page of a bundle with rows [64 i, 64 i + 64): that of its first head. Of
 * a store that is apart, the range. */
size_t skv_kv_layout_node(const skv_kv_layout *layout, size_t bundle, size_t i);
/** No bundle has tracks of two slots. */
bool skv_kv_layout_slots_apart(const skv_kv_layout *layout);
/** Pages that a cache takes for n_rows rows, at most. */
size_t skv_kv_layout_pages(const skv_kv_layout *layout, size_t n_rows);
/** Adds the pages for n_rows rows of at most n_caches caches together (0: of any number) to a
 * number for each range. */
void skv_kv_layout_add_pages(const skv_kv_layout *layout, size_t n_rows, size_t n_caches,
                             size_t n_pages[SKV_PAGE_RANGES]);

typedef struct skv_kv_cache {
    skv_kv_store *store;         /* borrowed */
    const skv_kv_layout *layout; /* borrowed */
    size_t n_rows;               /* rows that it was given, evicted ones included */
    skv_table *table;            /* owned: pages and dropped, as the back end has them */
    uint32_t *pages;    /* [2][n_bundles][max_pages], owned: of the store. The second half is where
                         * compaction lists new ones */
    size_t *dropped;    /* [n_tracks], owned: rows that each has lost */
    size_t front;       /* windowed tracks may have lost all rows before this one, and no others */
    size_t n_from;      /* of the first n_from rows some were evicted, of the others none */
    uint32_t *kept;     /* [n_tracks][kept_stride], owned: those of the first n_from that are left;
                         * NULL: none were evicted */
    size_t kept_stride; /* the longest list of them */
} skv_kv_cache;

/* Which rows each track is to keep: rows[t * stride + i], i < n[t], ascending, counted within the
 * track. */
typedef struct skv_kv_choice {
    size_t *n;      /* [n_tracks] */
    uint32_t *rows; /* [n_tracks][stride] */
    size_t stride;
} skv_kv_choice;

/** For as many rows as the layout was bound for. Takes no pages yet. */
SKV_MUST_CHECK skv_status skv_kv_cache_init(skv_kv_cache *cache, const skv_kv_layout *layout,
                                            skv_error *err);
void skv_kv_cache_release(skv_kv_cache *cache);

/** Pages that must be free before the cache can grow to n_rows rows. */
size_t skv_kv_cache_needs(const skv_kv_cache *cache, size_t n_rows);
/** Grows to n_rows rows; SKV_FULL and unchanged when the store has too few pages. A last page
 * that is shared is replaced by a copy first, since rows will be written to it. */
SKV_MUST_CHECK skv_status skv_kv_cache_grow(skv_kv_cache *cache, size_t n_rows, skv_error *err);
/** How many of the first n_rows rows can be continued from: all or, where windowed tracks have lost
 * rows that the next one would see, 0. */
size_t skv_kv_cache_reach(const skv_kv_cache *cache, size_t n_rows);
/** Forgets the rows from n_rows on, or all rows if the cache cannot be continued from there;
 * pages go back. Evicted rows stay away. */
void skv_kv_cache_truncate(skv_kv_cache *cache, size_t n_rows);
/** Makes an empty cache begin with the first n_rows rows of another, from which it can continue,
 * and share its pages. It takes memory only if rows were evicted; on SKV_MEMORY the cache is still
 * empty. */
SKV_MUST_CHECK skv_status skv_kv_cache_share(skv_kv_cache *cache, const skv_kv_cache *from,
                                             size_t n_rows, skv_error *err);
/** The page of a bundle with the rows [64 i, 64 i + 64) of a cache that nothing was evicted from;
 * SKV_KV_NO_PAGE: they are in front of the windows and gone. */
uint32_t skv_kv_cache_block(const skv_kv_cache *cache, size_t bundle, size_t i);
/** The first of n_rows rows that the next one sees in windowed tracks, in whole pages. */
size_t skv_kv_layout_first_seen(const skv_kv_layout *layout, size_t n_rows);
/** An empty cache has n_rows rows, full pages, of which skv_kv_cache_put_block then gives it
 * every one; pages before skv_kv_layout_first_seen are not given in windowed bundles. */
void skv_kv_cache_adopt(skv_kv_cache *cache, size_t n_rows);
/** The rows [64 i, 64 i + 64) of each bundle are in pages[bundle], shared. */
void skv_kv_cache_put_block(skv_kv_cache *cache, size_t i, const uint32_t *pages);
/** Rows of a track. */
size_t skv_kv_cache_track_rows(const skv_kv_cache *cache, size_t track);
/** Rows of the track that has most. */
size_t skv_kv_cache_most_rows(const skv_kv_cache *cache);
/** Which of the sequence's rows row i of a track is. */
size_t skv_kv_cache_position(const skv_kv_cache *cache, size_t track, size_t i);
/** Pages that must be free for skv_kv_cache_evict to keep at most n rows of each track: as many as
 * take the place of shared ones, less those of the bundles before that have gone back. */
size_t skv_kv_cache_evict_needs(const skv_kv_cache *cache, size_t n);
/** Keeps the rows of `choice` of every track, moved together; pages that are shared stay as they
 * are, and the others that are no longer needed go back. SKV_FULL or SKV_MEMORY: nothing has
 * changed. */
SKV_MUST_CHECK skv_status skv_kv_cache_evict(skv_kv_cache *cache, const skv_kv_choice *choice,
                                             skv_error *err);
/** An empty cache, whose layout has `times` tracks for each one of `from`, gets the rows of
 * `choice`, which is by its tracks, of each. SKV_FULL or SKV_MEMORY: it is still empty. */
SKV_MUST_CHECK skv_status skv_kv_cache_spread(skv_kv_cache *cache, const skv_kv_cache *from,
                                              const size_t *times, const skv_kv_choice *choice,
                                              skv_error *err);
/*
 * An empty cache whose slots are apart may be filled slot by slot, each one with n_rows rows of
 * which `choice` then keeps some, so that the rows of one slot alone are there whole. Until
 * skv_kv_cache_end_slots the cache is empty to all other functions; skv_kv_cache_drop_slots gives
 * up, when n_closed slots were closed and the next one is open or not.
 */
/** Pages for n_rows rows of a slot; SKV_FULL and unchanged when the store has too few. */
SKV_MUST_CHECK skv_status skv_kv_cache_open_slot(skv_kv_cache *cache, size_t slot, size_t n_rows,
                                                 skv_error *err);
void skv_kv_cache_close_slot(skv_kv_cache *cache, size_t slot, size_t n_rows,
                             const skv_kv_choice *choice);
void skv_kv_cache_drop_slots(skv_kv_cache *cache, size_t n_closed, size_t n_open_rows,
                             const skv_kv_choice *choice);
/** All slots are closed: SKV_MEMORY, and nothing has changed. */
SKV_MUST_CHECK skv_status skv_kv_cache_end_slots(skv_kv_cache *cache, size_t n_rows,
                                                 const skv_kv_choice *choice, skv_error *err);
/** Rows that each head of a slot has lost; NULL: none. */
const size_t *skv_kv_cache_dropped(const skv_kv_cache *cache, size_t slot);
/** The page with the rows [64 i, 64 i + 64) of a track, counted within the track. */
uint32_t skv_kv_cache_page(const skv_kv_cache *cache, size_t track, size_t i);
/** Where the rows of a track begin in its pages, in bytes. */
size_t skv_kv_layout_offset(const skv_kv_layout *layout, size_t track);
/** Bytes of the pages it refers to, shared ones included. */
size_t skv_kv_cache_bytes(const skv_kv_cache *cache);

#endif
