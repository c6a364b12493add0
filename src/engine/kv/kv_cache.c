/* The cache of one sequence: see kv_cache.h. */
#include "kv/kv_cache.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

static size_t pages_for(size_t n_rows)
{
    return skv_ceil_div(n_rows, SKV_PAGE_ROWS);
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
    cache->dropped = skv_alloc_zero(skv_max_size(1, n_tracks), sizeof *cache->dropped);
    if (cache->pages && cache->dropped) return SKV_OK;
    skv_kv_cache_release(cache);
    return skv_fail(err, SKV_MEMORY, "kv cache: no memory for %zu page entries", n_entries);
}

void skv_kv_cache_release(skv_kv_cache *cache)
{
    if (cache->pages) {
        skv_kv_cache_truncate(cache, 0);
        skv_unmap(cache->pages, table_bytes(cache));
    }
    skv_free(cache->dropped);
    *cache = (skv_kv_cache){0};
}

/* ---- what a track has ---- */

size_t skv_kv_cache_track_rows(const skv_kv_cache *cache, size_t track)
{
    return cache->n_rows - (cache->dropped ? cache->dropped[track] : 0);
}

size_t skv_kv_cache_most_rows(const skv_kv_cache *cache)
{
    if (!cache->kept) return cache->n_rows;
    size_t most = 0;
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        most = skv_max_size(most, skv_kv_cache_track_rows(cache, t));
    }
    return most;
}

/* Rows of the track of a bundle that has most of them, and of the one that has least: only where
 * rows were evicted they differ. */
typedef struct bundle_rows {
    size_t most, least;
} bundle_rows;

static bundle_rows rows_of(const skv_kv_cache *cache, size_t bundle)
{
    bundle_rows n = {0, SIZE_MAX};
    for (size_t t = cache->layout->first[bundle]; t != SKV_KV_NO_TRACK;
         t = cache->layout->tracks[t].next) {
        const size_t n_rows = skv_kv_cache_track_rows(cache, t);
        n.most = skv_max_size(n.most, n_rows);
        n.least = skv_min_size(n.least, n_rows);
    }
    return n;
}

/* The largest of a number that the tracks of a bundle have. */
static size_t most_of(const skv_kv_layout *layout, size_t bundle, const size_t *of_tracks)
{
    size_t most = 0;
    for (size_t t = layout->first[bundle]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
        most = skv_max_size(most, of_tracks[t]);
    }
    return most;
}

/* Where the rows of a track begin in a page, in bytes. */
static size_t offset_of(const skv_kv_cache *cache, size_t track)
{
    const skv_kv_track *t = &cache->layout->tracks[track];
    return t->place * skv_kv_page_bytes(skv_kv_store_type(cache->store), t->head_dim);
}

/* Page i of those that a bundle has. */
static void *page_at(const skv_kv_cache *cache, size_t bundle, size_t i)
{
    return cache->pages[cache->layout->first[bundle] * cache->max_pages + i];
}

static void set_page(skv_kv_cache *cache, size_t bundle, size_t p, void *page)
{
    const skv_kv_layout *layout = cache->layout;
    for (size_t t = layout->first[bundle]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
        cache->pages[t * cache->max_pages + p] = (unsigned char *)page + offset_of(cache, t);
    }
}

static void take_page(skv_kv_cache *cache, size_t bundle, size_t p)
{
    void *page = skv_kv_page_take(cache->store);
    assert(page);
    set_page(cache, bundle, p, page);
}

static bool is_shared(const skv_kv_cache *cache, size_t bundle, size_t p)
{
    return skv_kv_page_references(cache->store, page_at(cache, bundle, p)) > 1;
}

/* Pages [first, end) of a bundle that others use too. */
static size_t shared_pages(const skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    size_t n_shared = 0;
    for (size_t p = first; p < end; p++) n_shared += is_shared(cache, bundle, p);
    return n_shared;
}

/* Rows that are left to a track of those that were there when some were evicted. */
static size_t rows_left(const skv_kv_cache *cache, size_t track)
{
    return cache->n_from - skv_min_size(cache->n_from, cache->dropped[track]);
}

size_t skv_kv_cache_position(const skv_kv_cache *cache, size_t track, size_t i)
{
    if (!cache->dropped) return i;
    if (i < rows_left(cache, track)) return cache->kept[track * cache->kept_stride + i];
    return i + cache->dropped[track];
}

static void forget_evictions(skv_kv_cache *cache)
{
    skv_free(cache->kept);
    cache->kept = NULL;
    cache->n_from = cache->kept_stride = 0;
}

/* An empty cache has lost nothing. */
static void forget_losses(skv_kv_cache *cache)
{
    const size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    forget_evictions(cache);
    if (cache->dropped) memset(cache->dropped, 0, n_tracks * sizeof *cache->dropped);
    cache->front = 0;
}

/* ---- growing and shrinking ---- */

/* The first of n_rows rows that the one behind them sees through the windows. */
static size_t first_seen(const skv_kv_layout *layout, size_t n_rows)
{
    return n_rows >= layout->window ? n_rows - layout->window + 1 : 0;
}

size_t skv_kv_layout_first_seen(const skv_kv_layout *layout, size_t n_rows)
{
    if (layout->window == 0 || layout->step_rows == 0) return 0;
    return first_seen(layout, n_rows) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
}

/* Pages at the front of a bundle that go back before the next rows are written. The row i of an
 * evicted track is not behind row i + dropped of the sequence, so it is never in too early. */
static size_t front_pages(const skv_kv_cache *cache, size_t bundle)
{
    const skv_kv_layout *layout = cache->layout;
    if (bundle < layout->n_full || layout->step_rows == 0) return 0;
    const size_t shortest = cache->n_rows - skv_min_size(cache->n_rows, SKV_KV_SLACK);
    const size_t gone = most_of(layout, bundle, cache->dropped);
    const size_t first = first_seen(layout, shortest);
    return first > gone ? (first - gone) / SKV_PAGE_ROWS : 0;
}

/* Pages that a bundle takes when the cache grows by n rows. A page that rows will be written to
 * and that others use too is replaced by a copy. */
static size_t bundle_needs(const skv_kv_cache *cache, size_t bundle, size_t n)
{
    const bundle_rows have = rows_of(cache, bundle);
    const size_t n_pages = pages_for(have.most);
    return pages_for(have.most + n) - n_pages +
           shared_pages(cache, bundle, have.least / SKV_PAGE_ROWS, n_pages);
}

size_t skv_kv_cache_needs(const skv_kv_cache *cache, size_t n_rows)
{
    const skv_kv_layout *layout = cache->layout;
    size_t needs = 0, n_back = 0;
    if (n_rows <= cache->n_rows) return 0;
    size_t more = n_rows - cache->n_rows;
    /* Bundles are alike until rows are evicted. */
    if (!cache->kept && layout->window == 0) {
        return layout->n_bundles * bundle_needs(cache, 0, more);
    }
    for (size_t b = 0; b < layout->n_bundles; b++) {
        const size_t n_front = front_pages(cache, b);
        needs += bundle_needs(cache, b, more);
        n_back += n_front - shared_pages(cache, b, 0, n_front);
    }
    return needs - skv_min_size(needs, n_back);
}

static void drop_pages(skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    for (size_t p = first; p < end; p++) {
        skv_kv_page_drop(cache->store, page_at(cache, bundle, p));
    }
}

/* A track loses its first n pages. */
static void shift_track(skv_kv_cache *cache, size_t track, size_t n, size_t n_pages)
{
    const size_t n_rows = n * SKV_PAGE_ROWS;
    const size_t n_left = rows_left(cache, track);
    void **pages = cache->pages + track * cache->max_pages;
    memmove(pages, pages + n, (n_pages - n) * sizeof *pages);
    if (n_left > n_rows) {
        uint32_t *kept = cache->kept + track * cache->kept_stride;
        memmove(kept, kept + n_rows, (n_left - n_rows) * sizeof *kept);
    }
    cache->dropped[track] += n_rows;
    cache->front = skv_max_size(cache->front, cache->dropped[track]);
}

static void drop_front(skv_kv_cache *cache)
{
    const skv_kv_layout *layout = cache->layout;
    for (size_t b = layout->n_full; b < layout->n_bundles; b++) {
        const size_t n = front_pages(cache, b), n_pages = pages_for(rows_of(cache, b).most);
        if (n == 0) continue;
        drop_pages(cache, b, 0, n);
        for (size_t t = layout->first[b]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
            shift_track(cache, t, n, n_pages);
        }
    }
}

static void unshare_page(skv_kv_cache *cache, size_t bundle, size_t p)
{
    void *page = page_at(cache, bundle, p);
    take_page(cache, bundle, p);
    skv_kv_page_copy(cache->store, page_at(cache, bundle, p), page);
    skv_kv_page_drop(cache->store, page);
}

static void grow_bundle(skv_kv_cache *cache, size_t bundle, size_t more)
{
    const bundle_rows have = rows_of(cache, bundle);
    const size_t n_pages = pages_for(have.most);
    for (size_t p = have.least / SKV_PAGE_ROWS; p < n_pages; p++) {
        if (is_shared(cache, bundle, p)) unshare_page(cache, bundle, p);
    }
    for (size_t p = n_pages; p < pages_for(have.most + more); p++) take_page(cache, bundle, p);
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
    drop_front(cache);
    for (size_t b = 0; b < cache->layout->n_bundles; b++) grow_bundle(cache, b, more);
    cache->n_rows = n_rows;
    return SKV_OK;
}

/* How many rows of a track are among the sequence's first n. */
static size_t rows_before(const skv_kv_cache *cache, size_t track, size_t n)
{
    if (!cache->dropped) return n;
    if (n >= cache->n_from) return n - skv_min_size(n, cache->dropped[track]);
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

/* Of a bundle's rows, how many are among the sequence's first n, in the track that has most. */
static size_t most_before(const skv_kv_cache *cache, size_t bundle, size_t n)
{
    const skv_kv_layout *layout = cache->layout;
    size_t most = 0;
    for (size_t t = layout->first[bundle]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
        most = skv_max_size(most, rows_before(cache, t, n));
    }
    return most;
}

size_t skv_kv_cache_reach(const skv_kv_cache *cache, size_t n_rows)
{
    return cache->front <= first_seen(cache->layout, n_rows) ? n_rows : 0;
}

void skv_kv_cache_truncate(skv_kv_cache *cache, size_t n_rows)
{
    if (n_rows >= cache->n_rows) return;
    n_rows = skv_kv_cache_reach(cache, n_rows);
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        drop_pages(cache, b, pages_for(most_before(cache, b, n_rows)),
                   pages_for(rows_of(cache, b).most));
    }
    for (size_t t = 0; cache->dropped && t < skv_kv_layout_tracks(cache->layout); t++) {
        cache->dropped[t] = n_rows - rows_before(cache, t, n_rows);
    }
    cache->n_from = skv_min_size(cache->n_from, n_rows);
    cache->n_rows = n_rows;
    if (n_rows == 0) forget_losses(cache);
}

/* The other's evictions, for a cache that takes over its pages. */
static skv_status copy_evictions(skv_kv_cache *cache, const skv_kv_cache *from, skv_error *err)
{
    if (!from->kept) return SKV_OK;
    size_t n_kept = skv_kv_layout_tracks(cache->layout) * from->kept_stride;
    cache->kept = skv_alloc(n_kept, sizeof *cache->kept);
    SKV_REQUIRE(cache->kept, err, SKV_MEMORY, "kv cache: no memory for %zu rows", n_kept);
    memcpy(cache->kept, from->kept, n_kept * sizeof *cache->kept);
    cache->n_from = from->n_from;
    cache->kept_stride = from->kept_stride;
    return SKV_OK;
}

skv_status skv_kv_cache_share(skv_kv_cache *cache, const skv_kv_cache *from, size_t n_rows,
                              skv_error *err)
{
    assert(cache->n_rows == 0 && cache->layout == from->layout && n_rows <= from->n_rows);
    assert(pages_for(n_rows) <= cache->max_pages || from->kept);
    assert(skv_kv_cache_reach(from, n_rows) == n_rows);
    if (n_rows == 0) return SKV_OK;
    SKV_TRY(copy_evictions(cache, from, err));
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        for (size_t p = 0; p < pages_for(most_before(from, b, n_rows)); p++) {
            void *page = page_at(from, b, p);
            skv_kv_page_share(cache->store, page);
            set_page(cache, b, p, page);
        }
    }
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        cache->dropped[t] = n_rows - rows_before(from, t, n_rows);
    }
    cache->front = from->front;
    cache->n_from = skv_min_size(cache->n_from, n_rows);
    cache->n_rows = n_rows;
    return SKV_OK;
}

/* ---- evicting ---- */

/* Pages that an eviction takes: some of them go back, bundle by bundle. */
typedef struct evict_needs {
    size_t taken, back;
    size_t most; /* at one time */
} evict_needs;

/* A bundle keeps n rows: where rows move within a page that others use, a page takes its place. */
static void add_evict_needs(const skv_kv_cache *cache, size_t bundle, size_t n, evict_needs *needs)
{
    const size_t n_pages = pages_for(rows_of(cache, bundle).most), n_after = pages_for(n);
    needs->taken += shared_pages(cache, bundle, 0, n_after);
    needs->most = skv_max_size(needs->most, needs->taken - skv_min_size(needs->taken, needs->back));
    needs->back += n_pages - n_after - shared_pages(cache, bundle, n_after, n_pages);
}

size_t skv_kv_cache_evict_needs(const skv_kv_cache *cache, size_t n)
{
    evict_needs needs = {0};
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        add_evict_needs(cache, b, skv_min_size(n, rows_of(cache, b).most), &needs);
    }
    return needs.most;
}

/* Page p of `to` gets rows [64 p, 64 p + 64) of those that a track keeps; `to` is where the rows of
 * the track begin. */
static void gather_page(skv_kv_cache *cache, size_t track, void *const *from,
                        const skv_kv_choice *choice, size_t p, void *to)
{
    const uint32_t *rows = choice->rows + track * choice->stride;
    size_t first = p * SKV_PAGE_ROWS;
    skv_kv_page_gather(cache->store, to, from, cache->layout->tracks[track].head_dim, rows + first,
                       skv_min_size(choice->n[track] - first, SKV_PAGE_ROWS));
}

/* The n_pages pages of a bundle become those of the rows that its tracks keep, page by page: rows
 * ascend, so what page p gets comes from p or later pages, which are still as they were. Pages that
 * others use stay as they are, and new ones take their places. */
static void compact_bundle(skv_kv_cache *cache, size_t bundle, const skv_kv_choice *choice,
                           size_t n_pages)
{
    const skv_kv_layout *layout = cache->layout;
    const size_t n_after = pages_for(most_of(layout, bundle, choice->n));
    for (size_t p = 0; p < n_after; p++) {
        void *old = page_at(cache, bundle, p);
        unsigned char *to = is_shared(cache, bundle, p) ? skv_kv_page_take(cache->store) : old;
        assert(to);
        for (size_t t = layout->first[bundle]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
            if (p >= pages_for(choice->n[t])) continue;
            gather_page(cache, t, cache->pages + t * cache->max_pages, choice, p,
                        to + offset_of(cache, t));
        }
        if (to == old) continue;
        skv_kv_page_drop(cache->store, old);
        set_page(cache, bundle, p, to);
    }
    drop_pages(cache, bundle, n_after, n_pages);
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
    memcpy(cache->dropped, lists->dropped, lists->n_tracks * sizeof *cache->dropped);
    skv_free(lists->dropped);
    cache->kept = lists->kept;
    cache->kept_stride = lists->stride;
    cache->n_from = cache->n_rows;
}

skv_status skv_kv_cache_evict(skv_kv_cache *cache, const skv_kv_choice *choice, skv_error *err)
{
    const size_t n_bundles = cache->layout->n_bundles;
    evict_needs needs = {0};
    if (keeps_all(cache, choice)) return SKV_OK;
    for (size_t b = 0; b < n_bundles; b++) {
        add_evict_needs(cache, b, most_of(cache->layout, b, choice->n), &needs);
    }
    SKV_REQUIRE(needs.most <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed to keep rows apart from others', %zu are free",
                needs.most, skv_kv_store_free_pages(cache->store));
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    for (size_t t = 0; t < lists.n_tracks; t++) note_kept(&lists, t, cache, t, choice);
    for (size_t b = 0; b < n_bundles; b++) {
        compact_bundle(cache, b, choice, pages_for(rows_of(cache, b).most));
    }
    take_lists(cache, &lists);
    return SKV_OK;
}

/* A track's pages get what it keeps of another cache's track. */
static void fill_track(skv_kv_cache *cache, size_t t, const skv_kv_cache *from, size_t track,
                       const skv_kv_choice *choice)
{
    for (size_t p = 0; p < pages_for(choice->n[t]); p++) {
        gather_page(cache, t, from->pages + track * from->max_pages, choice, p,
                    cache->pages[t * cache->max_pages + p]);
    }
}

static void take_bundles(skv_kv_cache *cache, const skv_kv_choice *choice)
{
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        const size_t n_pages = pages_for(most_of(cache->layout, b, choice->n));
        for (size_t p = 0; p < n_pages; p++) take_page(cache, b, p);
    }
}

skv_status skv_kv_cache_spread(skv_kv_cache *cache, const skv_kv_cache *from, const size_t *times,
                               const skv_kv_choice *choice, skv_error *err)
{
    const skv_kv_layout *layout = from->layout;
    size_t needs = 0, t = 0;
    assert(cache->n_rows == 0 && cache->max_pages == from->max_pages);
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        needs += pages_for(most_of(cache->layout, b, choice->n));
    }
    SKV_REQUIRE(needs <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed for rows of each query head, %zu are free", needs,
                skv_kv_store_free_pages(cache->store));
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    take_bundles(cache, choice);
    for (size_t s = 0; s < layout->n_slots; s++) {
        for (size_t track = layout->track0[s]; track < layout->track0[s + 1]; track++) {
            for (size_t i = 0; i < times[s]; i++, t++) {
                note_kept(&lists, t, from, track, choice);
                fill_track(cache, t, from, track, choice);
            }
        }
    }
    assert(t == lists.n_tracks);
    cache->n_rows = from->n_rows;
    cache->front = from->front;
    take_lists(cache, &lists);
    return SKV_OK;
}

/* ---- slot by slot ---- */

/* The bundles of a slot are [first, end). */
typedef struct bundle_range {
    size_t first, end;
} bundle_range;

static bundle_range bundles_of(const skv_kv_layout *layout, size_t slot)
{
    const size_t t0 = layout->track0[slot], t1 = layout->track0[slot + 1];
    return (bundle_range){t0 == t1 ? 0 : layout->tracks[t0].bundle,
                          t0 == t1 ? 0 : layout->tracks[t1 - 1].bundle + 1};
}

skv_status skv_kv_cache_open_slot(skv_kv_cache *cache, size_t slot, size_t n_rows, skv_error *err)
{
    const bundle_range r = bundles_of(cache->layout, slot);
    size_t needs = (r.end - r.first) * pages_for(n_rows);
    assert(skv_kv_layout_slots_apart(cache->layout));
    assert(cache->n_rows == 0 && pages_for(n_rows) <= cache->max_pages);
    SKV_REQUIRE(needs <= skv_kv_store_free_pages(cache->store), err, SKV_FULL,
                "kv cache: %zu pages are needed for %zu rows of one layer, %zu of %zu are free",
                needs, n_rows, skv_kv_store_free_pages(cache->store),
                skv_kv_store_pages(cache->store));
    for (size_t b = r.first; b < r.end; b++) {
        for (size_t p = 0; p < pages_for(n_rows); p++) take_page(cache, b, p);
    }
    return SKV_OK;
}

void skv_kv_cache_close_slot(skv_kv_cache *cache, size_t slot, size_t n_rows,
                             const skv_kv_choice *choice)
{
    const bundle_range r = bundles_of(cache->layout, slot);
    for (size_t b = r.first; b < r.end; b++) {
        compact_bundle(cache, b, choice, pages_for(n_rows));
    }
}

void skv_kv_cache_drop_slots(skv_kv_cache *cache, size_t n_closed, size_t n_open_rows,
                             const skv_kv_choice *choice)
{
    const skv_kv_layout *layout = cache->layout;
    for (size_t s = 0; s < n_closed; s++) {
        const bundle_range r = bundles_of(layout, s);
        for (size_t b = r.first; b < r.end; b++) {
            drop_pages(cache, b, 0, pages_for(most_of(layout, b, choice->n)));
        }
    }
    if (n_closed == layout->n_slots) return;
    const bundle_range r = bundles_of(layout, n_closed);
    for (size_t b = r.first; b < r.end; b++) drop_pages(cache, b, 0, pages_for(n_open_rows));
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
    const size_t first = cache->layout->track0[slot];
    /* The heads of a slot have lost the same until rows are evicted. */
    if (!cache->kept && (!cache->dropped || cache->dropped[first] == 0)) return NULL;
    return cache->dropped + first;
}

/* ---- pages of others ---- */

void *skv_kv_cache_block(const skv_kv_cache *cache, size_t bundle, size_t i)
{
    const size_t first = cache->dropped[cache->layout->first[bundle]] / SKV_PAGE_ROWS;
    assert(!cache->kept);
    return i < first ? NULL : page_at(cache, bundle, i - first);
}

void skv_kv_cache_adopt(skv_kv_cache *cache, size_t n_rows)
{
    const skv_kv_layout *layout = cache->layout;
    assert(cache->n_rows == 0 && n_rows % SKV_PAGE_ROWS == 0);
    cache->front = skv_kv_layout_first_seen(layout, n_rows);
    for (size_t t = 0; t < skv_kv_layout_tracks(layout); t++) {
        if (layout->tracks[t].windowed) cache->dropped[t] = cache->front;
    }
    cache->n_rows = n_rows;
}

void skv_kv_cache_put_block(skv_kv_cache *cache, size_t i, void *const *pages)
{
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        const size_t first = cache->dropped[cache->layout->first[b]] / SKV_PAGE_ROWS;
        if (i < first) continue;
        skv_kv_page_share(cache->store, pages[b]);
        set_page(cache, b, i - first, pages[b]);
    }
}

void *const *skv_kv_cache_slot(const skv_kv_cache *cache, size_t slot)
{
    return cache->pages + cache->layout->track0[slot] * cache->max_pages;
}

size_t skv_kv_cache_bytes(const skv_kv_cache *cache)
{
    size_t n_pages = 0;
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        n_pages += pages_for(rows_of(cache, b).most);
    }
    return n_pages * skv_kv_store_page_bytes(cache->store);
}
