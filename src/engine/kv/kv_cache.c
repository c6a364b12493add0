/* The cache of one sequence: see kv_cache.h. */
#include "kv/kv_cache.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/kv_cache_pages.h"

static skv_backend *backend_of(const skv_kv_cache *cache)
{
    return skv_kv_store_backend(cache->store);
}

/* Of the list of pages, and of as long a list for compaction. */
static size_t list_bytes(const skv_kv_layout *layout)
{
    return 2 * skv_max_size(1, layout->n_bundles) * layout->max_pages * sizeof(uint32_t);
}

skv_status skv_kv_cache_init(skv_kv_cache *cache, const skv_kv_layout *layout, skv_error *err)
{
    size_t n_tracks = skv_kv_layout_tracks(layout);
    *cache = (skv_kv_cache){.store = layout->store, .layout = layout};
    skv_backend *be = backend_of(cache);
    skv_table *table = NULL;
    skv_status status = be->table_create(be, layout->slots, &table, err);
    if (status == SKV_OK) cache->table = table;
    cache->pages = skv_map_zero(list_bytes(layout));
    cache->dropped = skv_alloc_zero(skv_max_size(1, n_tracks), sizeof *cache->dropped);
    if (status == SKV_OK && !(cache->pages && cache->dropped)) {
        status = skv_fail(err, SKV_MEMORY, "no memory for the pages of %zu heads", n_tracks);
    }
    if (status == SKV_OK) return SKV_OK;
    skv_kv_cache_release(cache);
    return skv_fail_within(err, status, "kv cache");
}

void skv_kv_cache_release(skv_kv_cache *cache)
{
    if (cache->dropped && cache->n_rows > 0) skv_kv_cache_truncate(cache, 0);
    if (cache->pages) skv_unmap(cache->pages, list_bytes(cache->layout));
    if (cache->table) backend_of(cache)->table_free(backend_of(cache), cache->table);
    skv_free(cache->dropped);
    *cache = (skv_kv_cache){0};
}

/* ---- the pages of a track ---- */

size_t skv_kv_cache_track_rows(const skv_kv_cache *cache, size_t track)
{
    return cache->n_rows - cache->dropped[track];
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

skv_kv_bundle_rows skv_kv_cache_bundle_rows(const skv_kv_cache *cache, size_t bundle)
{
    skv_kv_bundle_rows n = {0, SIZE_MAX};
    for (size_t t = cache->layout->first[bundle]; t != SKV_KV_NO_TRACK;
         t = cache->layout->tracks[t].next) {
        const size_t n_rows = skv_kv_cache_track_rows(cache, t);
        n.most = skv_max_size(n.most, n_rows);
        n.least = skv_min_size(n.least, n_rows);
    }
    return n;
}

/* The largest of a number that the tracks of a bundle have. */
size_t skv_kv_layout_most(const skv_kv_layout *layout, size_t bundle, const size_t *of_tracks)
{
    size_t most = 0;
    for (size_t t = layout->first[bundle]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
        most = skv_max_size(most, of_tracks[t]);
    }
    return most;
}

uint32_t skv_kv_cache_page(const skv_kv_cache *cache, size_t track, size_t i)
{
    return skv_kv_cache_pages(cache, cache->layout->tracks[track].bundle)[i];
}

/* ---- telling the back end ---- */

/* Pages [first, end) of a bundle are others. */
void skv_kv_cache_tell_pages(const skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    skv_backend *be = backend_of(cache);
    if (first >= end) return;
    be->table_write(be, cache->table, bundle, first, skv_kv_cache_pages(cache, bundle) + first,
                    end - first);
}

/* They are not there any longer. */
static void tell_no_pages(const skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    skv_backend *be = backend_of(cache);
    if (first >= end) return;
    be->table_write(be, cache->table, bundle, first, NULL, end - first);
}

/* Tracks [first, end) have lost more or fewer rows. */
static void tell_dropped(const skv_kv_cache *cache, size_t first, size_t end)
{
    skv_backend *be = backend_of(cache);
    be->table_dropped(be, cache->table, first, cache->dropped + first, end - first);
}

void skv_kv_cache_tell_dropped(const skv_kv_cache *cache)
{
    tell_dropped(cache, 0, skv_kv_layout_tracks(cache->layout));
}

/* ---- pages ---- */

/* Pages [first, end) of a bundle come from the store, which has them. */
void skv_kv_cache_take_pages(skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    uint32_t *pages = skv_kv_cache_pages(cache, bundle);
    for (size_t p = first; p < end; p++) {
        pages[p] = skv_kv_page_take(cache->store, skv_kv_layout_node(cache->layout, bundle, p));
        assert(pages[p] != SKV_KV_NO_PAGE);
    }
    skv_kv_cache_tell_pages(cache, bundle, first, end);
}

/* Pages [first, end) of a bundle that others use too. */
size_t skv_kv_cache_shared_pages(const skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    size_t n_shared = 0;
    for (size_t p = first; p < end; p++) n_shared += skv_kv_cache_is_shared(cache, bundle, p);
    return n_shared;
}

/* Rows that are left to a track of those that were there when some were evicted. */
static size_t rows_left(const skv_kv_cache *cache, size_t track)
{
    return cache->n_from - skv_min_size(cache->n_from, cache->dropped[track]);
}

size_t skv_kv_cache_position(const skv_kv_cache *cache, size_t track, size_t i)
{
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
    memset(cache->dropped, 0, n_tracks * sizeof *cache->dropped);
    skv_kv_cache_tell_dropped(cache);
    cache->front = 0;
}

/* ---- growing and shrinking ---- */

/* The first of n_rows rows that the next one sees through the windows. */
static size_t first_seen(const skv_kv_layout *layout, size_t n_rows)
{
    return n_rows >= layout->window ? n_rows - layout->window + 1 : 0;
}

size_t skv_kv_layout_first_seen(const skv_kv_layout *layout, size_t n_rows)
{
    if (layout->window == 0 || layout->step_rows == 0) return 0;
    return first_seen(layout, n_rows) / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
}

/* Pages at the front of a bundle that go back before the next rows are written. Row i of an
 * evicted track is at most row i + dropped of the sequence, so it is never in too early. */
static size_t front_pages(const skv_kv_cache *cache, size_t bundle)
{
    const skv_kv_layout *layout = cache->layout;
    if (bundle < layout->n_full || layout->step_rows == 0) return 0;
    const size_t shortest = cache->n_rows - skv_min_size(cache->n_rows, SKV_KV_SLACK);
    const size_t gone = skv_kv_layout_most(layout, bundle, cache->dropped);
    const size_t first = first_seen(layout, shortest);
    return first > gone ? (first - gone) / SKV_PAGE_ROWS : 0;
}

/* Pages that a bundle takes when the cache grows by n rows. A page that rows will be written to
 * and that others use too is replaced by a copy. */
static size_t bundle_needs(const skv_kv_cache *cache, size_t bundle, size_t n)
{
    const skv_kv_bundle_rows have = skv_kv_cache_bundle_rows(cache, bundle);
    const size_t n_pages = skv_kv_pages_for(have.most);
    return skv_kv_pages_for(have.most + n) - n_pages +
           skv_kv_cache_shared_pages(cache, bundle, have.least / SKV_PAGE_ROWS, n_pages);
}

/* By the range that they come from; n_rows is more than the cache has. */
static void count_needs(const skv_kv_cache *cache, size_t n_rows, size_t needs[SKV_PAGE_RANGES])
{
    const skv_kv_layout *layout = cache->layout;
    const size_t more = n_rows - cache->n_rows;
    size_t n_back[SKV_PAGE_RANGES] = {0};
    /* Bundles are alike until rows are evicted. */
    const bool alike = !cache->kept && layout->window == 0;
    const size_t each = alike && layout->n_bundles > 0 ? bundle_needs(cache, 0, more) : 0;
    for (size_t b = 0; b < layout->n_bundles; b++) {
        const skv_page_range r = skv_kv_layout_range(layout, b);
        needs[r] += alike ? each : bundle_needs(cache, b, more);
        if (alike) continue;
        const size_t n_front = front_pages(cache, b);
        n_back[r] += n_front - skv_kv_cache_shared_pages(cache, b, 0, n_front);
    }
    for (size_t r = 0; r < SKV_PAGE_RANGES; r++) needs[r] -= skv_min_size(needs[r], n_back[r]);
}

size_t skv_kv_cache_needs(const skv_kv_cache *cache, size_t n_rows)
{
    size_t needs[SKV_PAGE_RANGES] = {0};
    if (n_rows > cache->n_rows) count_needs(cache, n_rows, needs);
    return needs[SKV_PAGES_FIRST] + needs[SKV_PAGES_BOTH] + needs[SKV_PAGES_SECOND];
}

void skv_kv_cache_drop_pages(skv_kv_cache *cache, size_t bundle, size_t first, size_t end)
{
    for (size_t p = first; p < end; p++) {
        skv_kv_page_drop(cache->store, skv_kv_cache_pages(cache, bundle)[p]);
    }
    tell_no_pages(cache, bundle, first, end);
}

/* A track loses the rows of its first n pages. */
static void shift_track(skv_kv_cache *cache, size_t track, size_t n)
{
    const size_t n_rows = n * SKV_PAGE_ROWS;
    const size_t n_left = rows_left(cache, track);
    if (n_left > n_rows) {
        uint32_t *kept = cache->kept + track * cache->kept_stride;
        memmove(kept, kept + n_rows, (n_left - n_rows) * sizeof *kept);
    }
    cache->dropped[track] += n_rows;
    cache->front = skv_max_size(cache->front, cache->dropped[track]);
    tell_dropped(cache, track, track + 1);
}

/* A bundle loses its first n pages of n_pages. */
static void shift_pages(skv_kv_cache *cache, size_t bundle, size_t n, size_t n_pages)
{
    uint32_t *pages = skv_kv_cache_pages(cache, bundle);
    skv_kv_cache_drop_pages(cache, bundle, 0, n);
    memmove(pages, pages + n, (n_pages - n) * sizeof *pages);
    tell_no_pages(cache, bundle, n_pages - n, n_pages);
    skv_kv_cache_tell_pages(cache, bundle, 0, n_pages - n);
}

static void drop_front(skv_kv_cache *cache)
{
    const skv_kv_layout *layout = cache->layout;
    for (size_t b = layout->n_full; b < layout->n_bundles; b++) {
        const size_t n = front_pages(cache, b),
                     n_pages = skv_kv_pages_for(skv_kv_cache_bundle_rows(cache, b).most);
        if (n == 0) continue;
        shift_pages(cache, b, n, n_pages);
        for (size_t t = layout->first[b]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
            shift_track(cache, t, n);
        }
    }
}

enum { COPIES = 64 }; /* at a time */

/* Pages that take the places of shared ones, and get their contents. */
typedef struct copies {
    uint32_t to[COPIES], from[COPIES];
    size_t n;
} copies;

static void make_copies(skv_kv_cache *cache, copies *list)
{
    if (list->n > 0) skv_kv_pages_copy(cache->store, list->to, list->from, list->n);
    list->n = 0;
}

/* Others keep the old page. */
static void unshare_page(skv_kv_cache *cache, size_t bundle, size_t p, copies *list)
{
    const uint32_t page = skv_kv_cache_pages(cache, bundle)[p];
    if (list->n == COPIES) make_copies(cache, list);
    skv_kv_cache_take_pages(cache, bundle, p, p + 1);
    list->from[list->n] = page;
    list->to[list->n++] = skv_kv_cache_pages(cache, bundle)[p];
    skv_kv_page_drop(cache->store, page);
}

static void grow_bundle(skv_kv_cache *cache, size_t bundle, size_t more, copies *list)
{
    const skv_kv_bundle_rows have = skv_kv_cache_bundle_rows(cache, bundle);
    const size_t n_pages = skv_kv_pages_for(have.most);
    for (size_t p = have.least / SKV_PAGE_ROWS; p < n_pages; p++) {
        if (skv_kv_cache_is_shared(cache, bundle, p)) unshare_page(cache, bundle, p, list);
    }
    skv_kv_cache_take_pages(cache, bundle, n_pages, skv_kv_pages_for(have.most + more));
}

skv_status skv_kv_cache_grow(skv_kv_cache *cache, size_t n_rows, skv_error *err)
{
    if (n_rows <= cache->n_rows) return SKV_OK;
    size_t more = n_rows - cache->n_rows;
    const size_t max_pages = cache->layout->max_pages;
    SKV_REQUIRE(skv_kv_pages_for(skv_kv_cache_most_rows(cache) + more) <= max_pages, err, SKV_FULL,
                "kv cache: %zu rows, this sequence was made for %zu", n_rows,
                max_pages * SKV_PAGE_ROWS);
    size_t needs[SKV_PAGE_RANGES] = {0};
    count_needs(cache, n_rows, needs);
    SKV_REQUIRE(skv_kv_store_has(cache->store, needs), err, SKV_FULL,
                "kv cache: %zu pages are needed, %zu of %zu are free",
                skv_kv_cache_needs(cache, n_rows), skv_kv_store_free_pages(cache->store),
                skv_kv_store_pages(cache->store));
    copies list;
    list.n = 0;
    drop_front(cache);
    for (size_t b = 0; b < cache->layout->n_bundles; b++) grow_bundle(cache, b, more, &list);
    make_copies(cache, &list);
    cache->n_rows = n_rows;
    return SKV_OK;
}

/* How many rows of a track are among the sequence's first n. */
static size_t rows_before(const skv_kv_cache *cache, size_t track, size_t n)
{
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

/* The rows that tracks lack of the first n_rows rows of `from`, which may be the cache itself. */
static void count_dropped(skv_kv_cache *cache, const skv_kv_cache *from, size_t n_rows)
{
    bool others = false;
    for (size_t t = 0; t < skv_kv_layout_tracks(cache->layout); t++) {
        const size_t n = n_rows - rows_before(from, t, n_rows);
        others = others || n != cache->dropped[t];
        cache->dropped[t] = n;
    }
    if (others) skv_kv_cache_tell_dropped(cache);
}

void skv_kv_cache_truncate(skv_kv_cache *cache, size_t n_rows)
{
    if (n_rows >= cache->n_rows) return;
    n_rows = skv_kv_cache_reach(cache, n_rows);
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        skv_kv_cache_drop_pages(cache, b, skv_kv_pages_for(most_before(cache, b, n_rows)),
                                skv_kv_pages_for(skv_kv_cache_bundle_rows(cache, b).most));
    }
    count_dropped(cache, cache, n_rows);
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
    assert(skv_kv_pages_for(n_rows) <= cache->layout->max_pages || from->kept);
    assert(skv_kv_cache_reach(from, n_rows) == n_rows);
    if (n_rows == 0) return SKV_OK;
    SKV_TRY(copy_evictions(cache, from, err));
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        const size_t n_pages = skv_kv_pages_for(most_before(from, b, n_rows));
        for (size_t p = 0; p < n_pages; p++) {
            skv_kv_cache_pages(cache, b)[p] = skv_kv_cache_pages(from, b)[p];
            skv_kv_page_share(cache->store, skv_kv_cache_pages(from, b)[p]);
        }
        skv_kv_cache_tell_pages(cache, b, 0, n_pages);
    }
    count_dropped(cache, from, n_rows);
    cache->front = from->front;
    cache->n_from = skv_min_size(cache->n_from, n_rows);
    cache->n_rows = n_rows;
    return SKV_OK;
}

const size_t *skv_kv_cache_dropped(const skv_kv_cache *cache, size_t slot)
{
    const size_t first = cache->layout->track0[slot];
    /* The heads of a slot have lost the same until rows are evicted. */
    if (!cache->kept && cache->dropped[first] == 0) return NULL;
    return cache->dropped + first;
}

/* ---- pages of others ---- */

uint32_t skv_kv_cache_block(const skv_kv_cache *cache, size_t bundle, size_t i)
{
    const size_t first = cache->dropped[cache->layout->first[bundle]] / SKV_PAGE_ROWS;
    assert(!cache->kept);
    return i < first ? SKV_KV_NO_PAGE : skv_kv_cache_pages(cache, bundle)[i - first];
}

void skv_kv_cache_adopt(skv_kv_cache *cache, size_t n_rows)
{
    const skv_kv_layout *layout = cache->layout;
    assert(cache->n_rows == 0 && n_rows % SKV_PAGE_ROWS == 0);
    cache->front = skv_kv_layout_first_seen(layout, n_rows);
    for (size_t t = 0; t < skv_kv_layout_tracks(layout); t++) {
        if (layout->tracks[t].windowed) cache->dropped[t] = cache->front;
    }
    skv_kv_cache_tell_dropped(cache);
    cache->n_rows = n_rows;
}

void skv_kv_cache_put_block(skv_kv_cache *cache, size_t i, const uint32_t *pages)
{
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        const size_t first = cache->dropped[cache->layout->first[b]] / SKV_PAGE_ROWS;
        if (i < first) continue;
        skv_kv_page_share(cache->store, pages[b]);
        skv_kv_cache_pages(cache, b)[i - first] = pages[b];
        skv_kv_cache_tell_pages(cache, b, i - first, i - first + 1);
    }
}

size_t skv_kv_cache_bytes(const skv_kv_cache *cache)
{
    size_t n_pages = 0;
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        n_pages += skv_kv_pages_for(skv_kv_cache_bundle_rows(cache, b).most);
    }
    return n_pages * skv_kv_store_page_bytes(cache->store);
}
