/* The cache of one sequence: see kv_cache.h. */
#include "kv/kv_cache.h"

#include <assert.h>

#include "base/mem.h"
#include "base/size.h"

skv_status skv_kv_layout_init(skv_kv_layout *layout, const size_t *n_heads, size_t n_slots,
                              skv_error *err)
{
    layout->n_slots = n_slots;
    layout->track0 = skv_alloc(n_slots + 1, sizeof *layout->track0);
    SKV_REQUIRE(layout->track0, err, SKV_MEMORY, "kv cache: no memory for %zu slots", n_slots);
    layout->track0[0] = 0;
    for (size_t s = 0; s < n_slots; s++) layout->track0[s + 1] = layout->track0[s] + n_heads[s];
    return SKV_OK;
}

void skv_kv_layout_release(skv_kv_layout *layout)
{
    skv_free(layout->track0);
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

skv_status skv_kv_cache_init(skv_kv_cache *cache, skv_kv_pool *pool, const skv_kv_layout *layout,
                             size_t max_rows, skv_error *err)
{
    size_t n_tracks = skv_kv_layout_tracks(layout), n_entries;
    size_t max_pages = skv_max_size(1, pages_for(max_rows));
    SKV_REQUIRE(skv_size_mul(n_tracks, max_pages, &n_entries) &&
                    n_entries < SIZE_MAX / sizeof(void *),
                err, SKV_RANGE, "kv cache: %zu rows are too many", max_rows);
    *cache = (skv_kv_cache){.pool = pool, .layout = layout, .max_pages = max_pages};
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

/* True when the page that row n_rows will be written to is half full and shared. */
static bool last_page_is_shared(const skv_kv_cache *cache)
{
    if (cache->n_rows % SKV_PAGE_ROWS == 0) return false;
    return skv_kv_page_references(cache->pool, cache->pages[cache->n_rows / SKV_PAGE_ROWS]) > 1;
}

size_t skv_kv_cache_needs(const skv_kv_cache *cache, size_t n_rows)
{
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    size_t have = pages_for(cache->n_rows), want = pages_for(n_rows);
    size_t fresh = want > have ? want - have : 0;
    if (n_rows > cache->n_rows && last_page_is_shared(cache)) fresh++;
    return n_tracks * fresh;
}

static void unshare_last_page(skv_kv_cache *cache)
{
    size_t n_tracks = skv_kv_layout_tracks(cache->layout), p = cache->n_rows / SKV_PAGE_ROWS;
    for (size_t t = 0; t < n_tracks; t++) {
        void **entry = &cache->pages[t * cache->max_pages + p];
        void *copy = skv_kv_page_take(cache->pool);
        assert(copy);
        skv_kv_page_copy(cache->pool, copy, *entry);
        skv_kv_page_drop(cache->pool, *entry);
        *entry = copy;
    }
}

skv_status skv_kv_cache_grow(skv_kv_cache *cache, size_t n_rows, skv_error *err)
{
    if (n_rows <= cache->n_rows) return SKV_OK;
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    size_t have = pages_for(cache->n_rows), want = pages_for(n_rows);
    SKV_REQUIRE(want <= cache->max_pages, err, SKV_FULL,
                "kv cache: %zu rows, this sequence was made for %zu", n_rows,
                cache->max_pages * SKV_PAGE_ROWS);
    size_t needs = skv_kv_cache_needs(cache, n_rows);
    SKV_REQUIRE(needs <= skv_kv_pool_free_pages(cache->pool), err, SKV_FULL,
                "kv cache: %zu pages are needed, %zu of %zu are free", needs,
                skv_kv_pool_free_pages(cache->pool), skv_kv_pool_pages(cache->pool));
    if (last_page_is_shared(cache)) unshare_last_page(cache);
    for (size_t t = 0; t < n_tracks; t++) {
        for (size_t p = have; p < want; p++) {
            cache->pages[t * cache->max_pages + p] = skv_kv_page_take(cache->pool);
        }
    }
    cache->n_rows = n_rows;
    return SKV_OK;
}

void skv_kv_cache_truncate(skv_kv_cache *cache, size_t n_rows)
{
    if (n_rows >= cache->n_rows) return;
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    for (size_t t = 0; t < n_tracks; t++) {
        for (size_t p = pages_for(n_rows); p < pages_for(cache->n_rows); p++) {
            skv_kv_page_drop(cache->pool, cache->pages[t * cache->max_pages + p]);
        }
    }
    cache->n_rows = n_rows;
}

void skv_kv_cache_share(skv_kv_cache *cache, const skv_kv_cache *from, size_t n_rows)
{
    assert(cache->n_rows == 0 && cache->layout == from->layout && n_rows <= from->n_rows);
    assert(pages_for(n_rows) <= cache->max_pages);
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    for (size_t t = 0; t < n_tracks; t++) {
        for (size_t p = 0; p < pages_for(n_rows); p++) {
            void *page = from->pages[t * from->max_pages + p];
            skv_kv_page_share(cache->pool, page);
            cache->pages[t * cache->max_pages + p] = page;
        }
    }
    cache->n_rows = n_rows;
}

void skv_kv_cache_put_page(skv_kv_cache *cache, size_t i, void *const *pages)
{
    size_t n_tracks = skv_kv_layout_tracks(cache->layout);
    assert(cache->n_rows == 0 && i < cache->max_pages);
    for (size_t t = 0; t < n_tracks; t++) {
        skv_kv_page_share(cache->pool, pages[t]);
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
    return skv_kv_layout_pages(cache->layout, cache->n_rows) * skv_kv_pool_page_bytes(cache->pool);
}
