/* The cache of one sequence: see kv_cache.h. */
#include "kv/kv_cache.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

skv_status skv_kv_layout_init(skv_kv_layout *layout, const skv_kv_slot *slots, size_t n_slots,
                              skv_error *err)
{
    size_t n_tracks = 0;
    for (size_t s = 0; s < n_slots; s++) n_tracks += slots[s].n_heads;
    *layout = (skv_kv_layout){.n_slots = n_slots};
    layout->track0 = skv_alloc_zero(n_slots + 1, sizeof *layout->track0);
    layout->head_dims = skv_alloc(skv_max_size(1, n_tracks), sizeof *layout->head_dims);
    if (!layout->track0 || !layout->head_dims) {
        skv_kv_layout_release(layout);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu slots", n_slots);
    }
    for (size_t s = 0; s < n_slots; s++) {
        const size_t first = layout->track0[s], end = first + slots[s].n_heads;
        for (size_t t = first; t < end; t++) layout->head_dims[t] = slots[s].head_dim;
        layout->track0[s + 1] = end;
    }
    return SKV_OK;
}

void skv_kv_layout_release(skv_kv_layout *layout)
{
    skv_free(layout->track0);
    skv_free(layout->head_dims);
    *layout = (skv_kv_layout){0};
}

size_t skv_kv_layout_tracks(const skv_kv_layout *layout)
{
    return layout->track0[layout->n_slots];
}

static size_t pages_for(size_t n_rows)
{
    return skv_ceil_div(n_rows, SKV_PAGE_ROWS);
}

size_t skv_kv_layout_pages(const skv_kv_layout *layout, size_t n_rows)
{
    return skv_kv_layout_tracks(layout) * pages_for(n_rows);
}

static size_t table_bytes(const skv_kv_cache *cache)
{
    return skv_kv_layout_tracks(cache->layout) * cache->max_pages * sizeof *cache->pages;
}

skv_status skv_kv_cache_init(skv_kv_cache *cache, skv_kv_store *store, const skv_kv_layout *layout,
                             size_t max_rows, skv_error *err)
{
    size_t n_tracks = skv_kv_layout_tracks(layout), n_entries;
    size_t max_pages = skv_max_size(1, pages_for(max_rows));
    SKV_REQUIRE(skv_size_mul(n_tracks, max_pages, &n_entries) &&
                    n_entries < SIZE_MAX / sizeof(void *),
                err, SKV_RANGE, "kv cache: %zu rows are too many", max_rows);
    *cache = (skv_kv_cache){.store = store, .layout = layout, .max_pages = max_pages};
    cache->pages = skv_map_zero(table_bytes(cache));
    SKV_REQUIRE(cache->pages, err, SKV_MEMORY, "kv cache: no memory for %zu page entries",
                n_entries);
    return SKV_OK;
}

void skv_kv_cache_release(skv_kv_cache *cache)
{
    if (!cache->pages) return;
    skv_kv_cache_truncate(cache, 0);
    skv_unmap(cache->pages, table_bytes(cache));
    *cache = (skv_kv_cache){0};
}

/* ---- what a track has ---- */

size_t skv_kv_cache_track_rows(const skv_kv_cache *cache, size_t track)
{
    return cache->n_rows - (cache->dropped ? cache->dropped[track] : 0);
}

size_t skv_kv_cache_most_rows(const skv_kv_cache *cache)
{
    if (!cache->dropped) return cache->n_rows;
    size_t most = 0;
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        most = skv_max_size(most, skv_kv_cache_track_rows(cache, t));
    }
    return most;
}

/* Rows that are left to a track of those that were there when some were evicted. */
static size_t rows_left(const skv_kv_cache *cache, size_t track)
{
    return cache->n_from - cache->dropped[track];
}

size_t skv_kv_cache_position(const skv_kv_cache *cache, size_t track, size_t i)
{
    if (!cache->dropped) return i;
    if (i < rows_left(cache, track)) return cache->kept[track * cache->kept_stride + i];
    return i + cache->dropped[track];
}

static void forget_evictions(skv_kv_cache *cache)
{
    skv_free(cache->dropped);
    skv_free(cache->kept);
    cache->dropped = NULL;
    cache->kept = NULL;
    cache->n_from = cache->kept_stride = 0;
}

/* ---- growing and shrinking ---- */

/* True when the page that a track's next row will be written to is half full and shared. */
static bool last_page_is_shared(const skv_kv_cache *cache, size_t track)
{
    size_t n = skv_kv_cache_track_rows(cache, track);
    if (n % SKV_PAGE_ROWS == 0) return false;
    void *page = cache->pages[track * cache->max_pages + n / SKV_PAGE_ROWS];
    return skv_kv_page_references(cache->store, page) > 1;
}

/* Pages that a track takes when the cache grows by n rows. */
static size_t track_needs(const skv_kv_cache *cache, size_t track, size_t n)
{
    size_t have = skv_kv_cache_track_rows(cache, track);
    return pages_for(have + n) - pages_for(have) + (n > 0 && last_page_is_shared(cache, track));
}

size_t skv_kv_cache_needs(const skv_kv_cache *cache, size_t n_rows)
{
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    if (n_rows <= cache->n_rows) return 0;
    size_t more = n_rows - cache->n_rows, needs = 0;
    /* Tracks are alike until rows are evicted. */
    if (!cache->dropped) return n_tracks * track_needs(cache, 0, more);
    for (size_t t = 0; t < n_tracks; t++) needs += track_needs(cache, t, more);
    return needs;
}

static void unshare_last_page(skv_kv_cache *cache, size_t track)
{
    size_t p = skv_kv_cache_track_rows(cache, track) / SKV_PAGE_ROWS;
    void **entry = &cache->pages[track * cache->max_pages + p];
    void *copy = skv_kv_page_take(cache->store);
    assert(copy);
    skv_kv_page_copy(cache->store, copy, *entry);
    skv_kv_page_drop(cache->store, *entry);
    *entry = copy;
}

static void grow_track(skv_kv_cache *cache, size_t track, size_t more)
{
    size_t have = skv_kv_cache_track_rows(cache, track);
    if (last_page_is_shared(cache, track)) unshare_last_page(cache, track);
    for (size_t p = pages_for(have); p < pages_for(have + more); p++) {
        cache->pages[track * cache->max_pages + p] = skv_kv_page_take(cache->store);
    }
}

skv_status skv_kv_cache_grow(skv_kv_cache *cache, size_t n_rows, skv_error *err)
{
    if (n_rows <= cache->n_rows) return SKV_OK;
    size_t more = n_rows - cache->n_rows;
    SKV_REQUIRE(pages_for(skv_kv_cache_most_rows(cache) + more) <= cache->max_pages, err, SKV_FULL,
                "kv cache: %zu rows, this sequence was made for %zu", n_rows,
                cache->max_pages * SKV_PAGE_ROWS);
    size_t needs = skv_kv_cache_needs(cache, n_rows);
    SKV_REQUIRE(needs <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed, %zu of %zu are free", needs,
                skv_kv_store_free_pages(cache->store), skv_kv_store_pages(cache->store));
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) grow_track(cache, t, more);
    cache->n_rows = n_rows;
    return SKV_OK;
}

static void drop_pages(skv_kv_cache *cache, size_t track, size_t first, size_t end)
{
    for (size_t p = first; p < end; p++) {
        skv_kv_page_drop(cache->store, cache->pages[track * cache->max_pages + p]);
    }
}

/* How many rows of a track are among the sequence's first n. */
static size_t rows_before(const skv_kv_cache *cache, size_t track, size_t n)
{
    if (!cache->dropped) return n;
    if (n >= cache->n_from) return n - cache->dropped[track];
    const uint32_t *kept = cache->kept + track * cache->kept_stride;
    size_t low = 0, high = rows_left(cache, track);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (kept[middle] < n) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void skv_kv_cache_truncate(skv_kv_cache *cache, size_t n_rows)
{
    if (n_rows >= cache->n_rows) return;
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        size_t left = rows_before(cache, t, n_rows);
        drop_pages(cache, t, pages_for(left), pages_for(skv_kv_cache_track_rows(cache, t)));
        if (cache->dropped) cache->dropped[t] = n_rows - left;
    }
    cache->n_from = skv_min_size(cache->n_from, n_rows);
    cache->n_rows = n_rows;
    if (n_rows == 0) forget_evictions(cache);
}

/* The other's evictions, for a cache that takes over its pages. */
static skv_status copy_evictions(skv_kv_cache *cache, const skv_kv_cache *from, skv_error *err)
{
    if (!from->dropped) return SKV_OK;
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    size_t n_kept = n_tracks * from->kept_stride;
    cache->dropped = skv_alloc(n_tracks, sizeof *cache->dropped);
    cache->kept = skv_alloc(n_kept, sizeof *cache->kept);
    if (!cache->dropped || !cache->kept) {
        forget_evictions(cache);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu rows", n_kept);
    }
    memcpy(cache->dropped, from->dropped, n_tracks * sizeof *cache->dropped);
    memcpy(cache->kept, from->kept, n_kept * sizeof *cache->kept);
    cache->n_from = from->n_from;
    cache->kept_stride = from->kept_stride;
    return SKV_OK;
}

skv_status skv_kv_cache_share(skv_kv_cache *cache, const skv_kv_cache *from, size_t n_rows,
                              skv_error *err)
{
    assert(cache->n_rows == 0 && cache->layout == from->layout && n_rows <= from->n_rows);
    assert(pages_for(n_rows) <= cache->max_pages || from->dropped);
    if (n_rows == 0) return SKV_OK;
    SKV_TRY(copy_evictions(cache, from, err));
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        size_t left = rows_before(from, t, n_rows);
        for (size_t p = 0; p < pages_for(left); p++) {
            void *page = from->pages[t * from->max_pages + p];
            skv_kv_page_share(cache->store, page);
            cache->pages[t * cache->max_pages + p] = page;
        }
        if (cache->dropped) cache->dropped[t] = n_rows - left;
    }
    cache->n_from = skv_min_size(cache->n_from, n_rows);
    cache->n_rows = n_rows;
    return SKV_OK;
}

/* ---- evicting ---- */

static bool is_shared(const skv_kv_cache *cache, size_t track, size_t p)
{
    return skv_kv_page_references(cache->store, cache->pages[track * cache->max_pages + p]) > 1;
}

/* Pages of a track's first `end` ones that others use too. */
static size_t shared_pages(const skv_kv_cache *cache, size_t track, size_t end)
{
    size_t n_shared = 0;
    for (size_t p = 0; p < end; p++) n_shared += is_shared(cache, track, p);
    return n_shared;
}

/* Pages that a track takes to keep n rows: where rows would have to move within a page that others
 * use, any page of its own serves instead. */
static size_t track_evict_needs(const skv_kv_cache *cache, size_t track, size_t n)
{
    size_t n_pages = pages_for(skv_kv_cache_track_rows(cache, track)), n_after = pages_for(n);
    if (shared_pages(cache, track, n_after) == 0) return 0;
    size_t n_own = n_pages - shared_pages(cache, track, n_pages);
    return n_after > n_own ? n_after - n_own : 0;
}

size_t skv_kv_cache_evict_needs(const skv_kv_cache *cache, size_t n)
{
    size_t needs = 0;
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        needs += track_evict_needs(cache, t, skv_min_size(n, skv_kv_cache_track_rows(cache, t)));
    }
    return needs;
}

/* Page p of `to` gets rows [64 p, 64 p + 64) of those that a track keeps. */
static void gather_page(skv_kv_cache *cache, size_t track, void *const *from, const uint32_t *rows,
                        size_t n, size_t p, void *to)
{
    size_t first = p * SKV_PAGE_ROWS;
    skv_kv_page_gather(cache->store, to, from, cache->layout->head_dims[track], rows + first,
                       skv_min_size(n - first, SKV_PAGE_ROWS));
}

/* Page by page: rows ascend, so what page p gets comes from p or later pages, which are still as
 * they were. */
static void compact_in_place(skv_kv_cache *cache, size_t track, const uint32_t *rows, size_t n)
{
    void **pages = cache->pages + track * cache->max_pages;
    for (size_t p = 0; p < pages_for(n); p++)
        gather_page(cache, track, pages, rows, n, p, pages[p]);
    drop_pages(cache, track, pages_for(n), pages_for(skv_kv_cache_track_rows(cache, track)));
}

/* By way of `scratch`: then into pages of its own, and new ones where these are too few. What is
 * shared is left to the others. */
static void compact_apart(skv_kv_cache *cache, size_t track, const uint32_t *rows, size_t n,
                          unsigned char *scratch)
{
    void **pages = cache->pages + track * cache->max_pages;
    size_t n_pages = pages_for(skv_kv_cache_track_rows(cache, track)), n_after = pages_for(n);
    size_t page_bytes = skv_kv_store_page_bytes(cache->store), n_own = 0;
    for (size_t p = 0; p < n_after; p++) {
        gather_page(cache, track, pages, rows, n, p, scratch + p * page_bytes);
    }
    for (size_t p = 0; p < n_pages; p++) {
        if (is_shared(cache, track, p) || n_own == n_after) {
            skv_kv_page_drop(cache->store, pages[p]);
        } else {
            pages[n_own++] = pages[p];
        }
    }
    for (; n_own < n_after; n_own++) {
        pages[n_own] = skv_kv_page_take(cache->store);
        assert(pages[n_own]);
    }
    for (size_t p = 0; p < n_after; p++) {
        skv_kv_page_copy(cache->store, pages[p], scratch + p * page_bytes);
    }
}

static void compact_track(skv_kv_cache *cache, size_t track, const uint32_t *rows, size_t n,
                          unsigned char *scratch)
{
    if (shared_pages(cache, track, pages_for(n)) == 0) {
        compact_in_place(cache, track, rows, n);
    } else {
        compact_apart(cache, track, rows, n, scratch);
    }
}

/* True when every track keeps all that it has. */
static bool keeps_all(const skv_kv_cache *cache, const skv_kv_choice *choice)
{
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        if (choice->n[t] < skv_kv_cache_track_rows(cache, t)) return false;
    }
    return true;
}

/* The lists of what is kept, before they belong to a cache. */
typedef struct new_lists {
    size_t *dropped;
    uint32_t *kept;
    size_t stride, n_tracks;
} new_lists;

static void drop_lists(new_lists *lists)
{
    skv_free(lists->dropped);
    skv_free(lists->kept);
}

static skv_status make_lists(new_lists *lists, const skv_kv_layout *layout,
                             const skv_kv_choice *choice, skv_error *err)
{
    *lists = (new_lists){.stride = 1, .n_tracks = skv_kv_layout_tracks(layout)};
    for (size_t t = 0; t < lists->n_tracks; t++) {
        lists->stride = skv_max_size(lists->stride, choice->n[t]);
    }
    lists->dropped = skv_alloc(lists->n_tracks, sizeof *lists->dropped);
    lists->kept = skv_alloc(lists->n_tracks * lists->stride, sizeof *lists->kept);
    if (lists->dropped && lists->kept) return SKV_OK;
    drop_lists(lists);
    return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu rows",
                    lists->n_tracks * lists->stride);
}

/* What track t of the choice keeps of track `track` of `from`. */
static void note_kept(new_lists *lists, size_t t, const skv_kv_cache *from, size_t track,
                      const skv_kv_choice *choice)
{
    for (size_t i = 0; i < choice->n[t]; i++) {
        size_t row = choice->rows[t * choice->stride + i];
        lists->kept[t * lists->stride + i] = (uint32_t)skv_kv_cache_position(from, track, row);
    }
    lists->dropped[t] = from->n_rows - choice->n[t];
}

static void take_lists(skv_kv_cache *cache, const new_lists *lists)
{
    forget_evictions(cache);
    cache->dropped = lists->dropped;
    cache->kept = lists->kept;
    cache->kept_stride = lists->stride;
    cache->n_from = cache->n_rows;
}

skv_status skv_kv_cache_evict(skv_kv_cache *cache, const skv_kv_choice *choice, skv_error *err)
{
    size_t n_tracks = skv_kv_layout_tracks(cache->layout), needs = 0;
    if (keeps_all(cache, choice)) return SKV_OK;
    for (size_t t = 0; t < n_tracks; t++) needs += track_evict_needs(cache, t, choice->n[t]);
    SKV_REQUIRE(needs <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed to keep rows apart from others', %zu are free",
                needs, skv_kv_store_free_pages(cache->store));
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    size_t n_scratch = pages_for(lists.stride);
    void *scratch = skv_kv_scratch_take(cache->store, n_scratch);
    if (!scratch) {
        drop_lists(&lists);
        return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu pages", n_scratch);
    }
    for (size_t t = 0; t < n_tracks; t++) {
        note_kept(&lists, t, cache, t, choice);
        compact_track(cache, t, choice->rows + t * choice->stride, choice->n[t], scratch);
    }
    skv_kv_scratch_drop(cache->store, scratch, n_scratch);
    take_lists(cache, &lists);
    return SKV_OK;
}

/* Pages of its own for a track, with what it keeps of another cache's track. */
static void fill_track(skv_kv_cache *cache, size_t t, const skv_kv_cache *from, size_t track,
                       const skv_kv_choice *choice)
{
    for (size_t p = 0; p < pages_for(choice->n[t]); p++) {
        void *page = skv_kv_page_take(cache->store);
        assert(page);
        gather_page(cache, t, from->pages + track * from->max_pages,
                    choice->rows + t * choice->stride, choice->n[t], p, page);
        cache->pages[t * cache->max_pages + p] = page;
    }
}

skv_status skv_kv_cache_spread(skv_kv_cache *cache, const skv_kv_cache *from, const size_t *times,
                               const skv_kv_choice *choice, skv_error *err)
{
    const skv_kv_layout *layout = from->layout;
    size_t n_tracks = skv_kv_layout_tracks(cache->layout), needs = 0, t = 0;
    assert(cache->n_rows == 0 && cache->max_pages == from->max_pages);
    for (size_t i = 0; i < n_tracks; i++) needs += pages_for(choice->n[i]);
    SKV_REQUIRE(needs <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed for rows of each query head, %zu are free", needs,
                skv_kv_store_free_pages(cache->store));
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    for (size_t s = 0; s < layout->n_slots; s++) {
        for (size_t track = layout->track0[s]; track < layout->track0[s + 1]; track++) {
            for (size_t i = 0; i < times[s]; i++, t++) {
                note_kept(&lists, t, from, track, choice);
                fill_track(cache, t, from, track, choice);
            }
        }
    }
    assert(t == n_tracks);
    cache->n_rows = from->n_rows;
    take_lists(cache, &lists);
    return SKV_OK;
}

/* ---- slot by slot ---- */

skv_status skv_kv_cache_open_slot(skv_kv_cache *cache, size_t slot, size_t n_rows, skv_error *err)
{
    size_t track0 = cache->layout->track0[slot], end = cache->layout->track0[slot + 1];
    size_t needs = (end - track0) * pages_for(n_rows);
    assert(cache->n_rows == 0 && pages_for(n_rows) <= cache->max_pages);
    SKV_REQUIRE(needs <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed for %zu rows of one layer, %zu of %zu are free",
                needs, n_rows, skv_kv_store_free_pages(cache->store),
                skv_kv_store_pages(cache->store));
    for (size_t t = track0; t < end; t++) {
        for (size_t p = 0; p < pages_for(n_rows); p++) {
            cache->pages[t * cache->max_pages + p] = skv_kv_page_take(cache->store);
        }
    }
    return SKV_OK;
}

void skv_kv_cache_close_slot(skv_kv_cache *cache, size_t slot, size_t n_rows,
                             const skv_kv_choice *choice)
{
    for (size_t t = cache->layout->track0[slot]; t < cache->layout->track0[slot + 1]; t++) {
        const uint32_t *rows = choice->rows + t * choice->stride;
        void **pages = cache->pages + t * cache->max_pages;
        for (size_t p = 0; p < pages_for(choice->n[t]); p++) {
            gather_page(cache, t, pages, rows, choice->n[t], p, pages[p]);
        }
        drop_pages(cache, t, pages_for(choice->n[t]), pages_for(n_rows));
    }
}

void skv_kv_cache_drop_slots(skv_kv_cache *cache, size_t n_closed, size_t n_open_rows,
                             const skv_kv_choice *choice)
{
    const skv_kv_layout *layout = cache->layout;
    for (size_t t = 0; t < layout->track0[n_closed]; t++) {
        drop_pages(cache, t, 0, pages_for(choice->n[t]));
    }
    if (n_closed == layout->n_slots) return;
    for (size_t t = layout->track0[n_closed]; t < layout->track0[n_closed + 1]; t++) {
        drop_pages(cache, t, 0, pages_for(n_open_rows));
    }
}

skv_status skv_kv_cache_end_slots(skv_kv_cache *cache, size_t n_rows, const skv_kv_choice *choice,
                                  skv_error *err)
{
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    for (size_t t = 0; t < lists.n_tracks; t++) {
        memcpy(lists.kept + t * lists.stride, choice->rows + t * choice->stride,
               choice->n[t] * sizeof *lists.kept);
        lists.dropped[t] = n_rows - choice->n[t];
    }
    cache->n_rows = n_rows;
    take_lists(cache, &lists);
    return SKV_OK;
}

const size_t *skv_kv_cache_dropped(const skv_kv_cache *cache, size_t slot)
{
    return cache->dropped ? cache->dropped + cache->layout->track0[slot] : NULL;
}

/* ---- pages of others ---- */

void skv_kv_cache_put_page(skv_kv_cache *cache, size_t i, void *const *pages)
{
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    assert(cache->n_rows == 0 && i < cache->max_pages);
    for (size_t t = 0; t < n_tracks; t++) {
        skv_kv_page_share(cache->store, pages[t]);
        cache->pages[t * cache->max_pages + i] = pages[t];
    }
}

void skv_kv_cache_adopt(skv_kv_cache *cache, size_t n_rows)
{
    assert(cache->n_rows == 0 && n_rows % SKV_PAGE_ROWS == 0);
    cache->n_rows = n_rows;
}

void *const *skv_kv_cache_slot(const skv_kv_cache *cache, size_t slot)
{
    return cache->pages + cache->layout->track0[slot] * cache->max_pages;
}

size_t skv_kv_cache_bytes(const skv_kv_cache *cache)
{
    size_t n_pages = 0;
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        n_pages += pages_for(skv_kv_cache_track_rows(cache, t));
    }
    return n_pages * skv_kv_store_page_bytes(cache->store);
}
