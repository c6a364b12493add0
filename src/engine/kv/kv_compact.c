/*
 * Rows of a cache that stay move together: after evictions, and where prompts are read slot by
 * slot. See kv_cache.h.
 */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "kv/kv_cache_pages.h"

/* Those that it gets by compaction. */
static uint32_t *next_pages_of(const skv_kv_cache *cache, size_t bundle)
{
    return skv_kv_cache_pages(cache, cache->layout->n_bundles + bundle);
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
    const size_t n_pages = skv_kv_pages_for(skv_kv_cache_bundle_rows(cache, bundle).most),
                 n_after = skv_kv_pages_for(n);
    needs->taken += skv_kv_cache_shared_pages(cache, bundle, 0, n_after);
    needs->most = skv_max_size(needs->most, needs->taken - skv_min_size(needs->taken, needs->back));
    needs->back += n_pages - n_after - skv_kv_cache_shared_pages(cache, bundle, n_after, n_pages);
}

size_t skv_kv_cache_evict_needs(const skv_kv_cache *cache, size_t n)
{
    evict_needs needs[SKV_PAGE_RANGES] = {{0}};
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        add_evict_needs(cache, b, skv_min_size(n, skv_kv_cache_bundle_rows(cache, b).most),
                        &needs[skv_kv_layout_range(cache->layout, b)]);
    }
    return needs[SKV_PAGES_FIRST].most + needs[SKV_PAGES_BOTH].most + needs[SKV_PAGES_SECOND].most;
}

enum { JOBS = 64 }; /* at a time */

/* Heads whose rows move together. */
typedef struct compaction {
    skv_kv_cache *cache;
    const skv_kv_choice *choice;
    skv_compact_job jobs[JOBS];
    size_t n_jobs;
} compaction;

static void run_jobs(compaction *c)
{
    if (c->n_jobs > 0) skv_kv_pages_compact(c->cache->store, c->jobs, c->n_jobs);
    c->n_jobs = 0;
}

/* Track t gets in pages `to` the rows that the choice keeps for it of a track of `from`. */
static void add_job(compaction *c, size_t t, const uint32_t *to, const skv_kv_cache *from,
                    size_t track)
{
    const skv_kv_choice *choice = c->choice;
    if (choice->n[t] == 0) return;
    if (c->n_jobs == JOBS) run_jobs(c);
    c->jobs[c->n_jobs++] =
        (skv_compact_job){.to = to,
                          .from = skv_kv_cache_pages(from, from->layout->tracks[track].bundle),
                          .to_offset = skv_kv_layout_offset(c->cache->layout, t),
                          .from_offset = skv_kv_layout_offset(from->layout, track),
                          .head_dim = from->layout->tracks[track].head_dim,
                          .rows = choice->rows + t * choice->stride,
                          .n = choice->n[t]};
}

/* Pages that are left to a bundle. */
static size_t pages_after(const compaction *c, size_t bundle)
{
    return skv_kv_pages_for(skv_kv_layout_most(c->cache->layout, bundle, c->choice->n));
}

/* A bundle keeps only the rows of its tracks' choice: in place, since rows ascend, so that the
 * new page p comes from page p or later ones. Pages that others use stay as they are, and new
 * ones take their places. */
static void list_bundle(compaction *c, size_t bundle)
{
    skv_kv_cache *cache = c->cache;
    const skv_kv_layout *layout = cache->layout;
    uint32_t *to = next_pages_of(cache, bundle);
    for (size_t p = 0; p < pages_after(c, bundle); p++) {
        const bool shared = skv_kv_cache_is_shared(cache, bundle, p);
        to[p] = shared ? skv_kv_page_take(cache->store, skv_kv_layout_node(layout, bundle, p))
                       : skv_kv_cache_pages(cache, bundle)[p];
        assert(to[p] != SKV_KV_NO_PAGE);
    }
    for (size_t t = layout->first[bundle]; t != SKV_KV_NO_TRACK; t = layout->tracks[t].next) {
        add_job(c, t, to, cache, t);
    }
}

/* Tells the new places of a bundle whose rows have moved. */
static void settle_bundle(const compaction *c, size_t bundle, size_t n_pages)
{
    skv_kv_cache *cache = c->cache;
    uint32_t *pages = skv_kv_cache_pages(cache, bundle);
    const uint32_t *to = next_pages_of(cache, bundle);
    const size_t n_after = pages_after(c, bundle);
    skv_kv_cache_drop_pages(cache, bundle, n_after, n_pages);
    for (size_t p = 0; p < n_after; p++) {
        if (to[p] == pages[p]) continue;
        skv_kv_page_drop(cache->store, pages[p]);
        pages[p] = to[p];
        skv_kv_cache_tell_pages(cache, bundle, p, p + 1);
    }
}

/* Bundles [first, end) keep the rows that the choice names of n_rows rows; 0: of those that
 * their tracks have. As many of them at a time as there are free pages for. */
static void compact_bundles(skv_kv_cache *cache, size_t first, size_t end,
                            const skv_kv_choice *choice, size_t n_rows)
{
    compaction c;
    c.cache = cache;
    c.choice = choice;
    c.n_jobs = 0;
    for (size_t b = first, settled = first; b < end;) {
        for (; b < end; b++) {
            const skv_page_range range = skv_kv_layout_range(cache->layout, b);
            if (b > settled && skv_kv_cache_shared_pages(cache, b, 0, pages_after(&c, b)) >
                                   skv_kv_store_free_in(cache->store, range))
                break;
            list_bundle(&c, b);
        }
        run_jobs(&c);
        for (; settled < b; settled++) {
            const size_t n = n_rows > 0 ? n_rows : skv_kv_cache_bundle_rows(cache, settled).most;
            settle_bundle(&c, settled, skv_kv_pages_for(n));
        }
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

/* The lists of kept rows, before they belong to a cache. */
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

/* The rows that track t of the choice keeps of track `track` of `from`. */
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
    skv_free(cache->kept);
    memcpy(cache->dropped, lists->dropped, lists->n_tracks * sizeof *cache->dropped);
    skv_kv_cache_tell_dropped(cache);
    skv_free(lists->dropped);
    cache->kept = lists->kept;
    cache->kept_stride = lists->stride;
    cache->n_from = cache->n_rows;
}

skv_status skv_kv_cache_evict(skv_kv_cache *cache, const skv_kv_choice *choice, skv_error *err)
{
    const size_t n_bundles = cache->layout->n_bundles;
    evict_needs needs[SKV_PAGE_RANGES] = {{0}};
    if (keeps_all(cache, choice)) return SKV_OK;
    for (size_t b = 0; b < n_bundles; b++) {
        add_evict_needs(cache, b, skv_kv_layout_most(cache->layout, b, choice->n),
                        &needs[skv_kv_layout_range(cache->layout, b)]);
    }
    const size_t most[SKV_PAGE_RANGES] = {needs[0].most, needs[1].most, needs[2].most};
    SKV_REQUIRE(skv_kv_store_has(cache->store, most), err, SKV_FULL,
                "kv cache: %zu pages are needed to keep rows apart from others', %zu are free",
                most[0] + most[1] + most[2], skv_kv_store_free_pages(cache->store));
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    for (size_t t = 0; t < lists.n_tracks; t++) note_kept(&lists, t, cache, t, choice);
    compact_bundles(cache, 0, n_bundles, choice, 0);
    take_lists(cache, &lists);
    return SKV_OK;
}

/* A cache gets the chosen rows of the tracks of another one, `times` times each. */
static void fill_tracks(skv_kv_cache *cache, const skv_kv_cache *from, const size_t *times,
                        const skv_kv_choice *choice)
{
    const skv_kv_layout *layout = from->layout;
    compaction c;
    c.cache = cache;
    c.choice = choice;
    c.n_jobs = 0;
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        skv_kv_cache_take_pages(cache, b, 0, pages_after(&c, b));
    }
    for (size_t s = 0, t = 0; s < layout->n_slots; s++) {
        for (size_t track = layout->track0[s]; track < layout->track0[s + 1]; track++) {
            for (size_t i = 0; i < times[s]; i++, t++) {
                add_job(&c, t, skv_kv_cache_pages(cache, cache->layout->tracks[t].bundle), from,
                        track);
            }
        }
    }
    run_jobs(&c);
}

skv_status skv_kv_cache_spread(skv_kv_cache *cache, const skv_kv_cache *from, const size_t *times,
                               const skv_kv_choice *choice, skv_error *err)
{
    const skv_kv_layout *layout = from->layout;
    size_t needs[SKV_PAGE_RANGES] = {0}, t = 0;
    assert(cache->n_rows == 0 && cache->layout->max_pages == from->layout->max_pages);
    for (size_t b = 0; b < cache->layout->n_bundles; b++) {
        needs[skv_kv_layout_range(cache->layout, b)] +=
            skv_kv_pages_for(skv_kv_layout_most(cache->layout, b, choice->n));
    }
    SKV_REQUIRE(skv_kv_store_has(cache->store, needs), err, SKV_FULL,
                "kv cache: %zu pages are needed for rows of each query head, %zu are free",
                needs[0] + needs[1] + needs[2], skv_kv_store_free_pages(cache->store));
    new_lists lists;
    SKV_TRY(make_lists(&lists, cache->layout, choice, err));
    for (size_t s = 0; s < layout->n_slots; s++) {
        for (size_t track = layout->track0[s]; track < layout->track0[s + 1]; track++) {
            for (size_t i = 0; i < times[s]; i++, t++) {
                note_kept(&lists, t, from, track, choice);
            }
        }
    }
    assert(t == lists.n_tracks);
    fill_tracks(cache, from, times, choice);
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
    const size_t needs = (r.end - r.first) * skv_kv_pages_for(n_rows);
    const skv_page_range range =
        needs == 0 ? SKV_PAGES_BOTH : skv_kv_layout_range(cache->layout, r.first);
    const size_t n_free = skv_kv_store_free_in(cache->store, range);
    assert(skv_kv_layout_slots_apart(cache->layout));
    assert(cache->n_rows == 0 && skv_kv_pages_for(n_rows) <= cache->layout->max_pages);
    SKV_REQUIRE(needs <= n_free, err, SKV_FULL,
                "kv cache: %zu pages are needed for %zu rows of one layer, %zu of %zu are free",
                needs, n_rows, n_free, skv_kv_store_pages(cache->store));
    for (size_t b = r.first; b < r.end; b++)
        skv_kv_cache_take_pages(cache, b, 0, skv_kv_pages_for(n_rows));
    return SKV_OK;
}

void skv_kv_cache_close_slot(skv_kv_cache *cache, size_t slot, size_t n_rows,
                             const skv_kv_choice *choice)
{
    const bundle_range r = bundles_of(cache->layout, slot);
    compact_bundles(cache, r.first, r.end, choice, n_rows);
}

void skv_kv_cache_drop_slots(skv_kv_cache *cache, size_t n_closed, size_t n_open_rows,
                             const skv_kv_choice *choice)
{
    const skv_kv_layout *layout = cache->layout;
    for (size_t s = 0; s < n_closed; s++) {
        const bundle_range r = bundles_of(layout, s);
        for (size_t b = r.first; b < r.end; b++) {
            skv_kv_cache_drop_pages(cache, b, 0,
                                    skv_kv_pages_for(skv_kv_layout_most(layout, b, choice->n)));
        }
    }
    if (n_closed == layout->n_slots) return;
    const bundle_range r = bundles_of(layout, n_closed);
    for (size_t b = r.first; b < r.end; b++)
        skv_kv_cache_drop_pages(cache, b, 0, skv_kv_pages_for(n_open_rows));
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
