/* Pages of the device, and tables that are changed by difference. */
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"

/* ---- pools ---- */

static skv_bytes pool_bytes(const skv_backend *be, size_t page_bytes, size_t n_pages)
{
    size_t n;
    (void)be;
    return (skv_bytes){.device = skv_size_mul(page_bytes, n_pages, &n) ? n : SIZE_MAX,
                       .host = page_bytes};
}

static void pool_free(skv_backend *be, skv_page_pool *pool)
{
    if (!pool) return;
    skv_cuda_delete(&skv_cuda_of(be)->device, pool->at);
    skv_free(pool->host);
    skv_free(pool);
}

static skv_status pool_create(skv_backend *be, size_t page_bytes, size_t n_pages,
                              skv_page_pool **out, skv_error *err)
{
    const size_t n_bytes = pool_bytes(be, page_bytes, n_pages).device;
    SKV_REQUIRE(n_bytes < SIZE_MAX && page_bytes % 16 == 0, err, SKV_RANGE,
                "pages: %zu of %zu bytes", n_pages, page_bytes);
    skv_page_pool *pool = skv_alloc_zero(1, sizeof *pool);
    SKV_REQUIRE(pool, err, SKV_MEMORY, "pages: out of memory");
    void *at = NULL;
    skv_status status = skv_cuda_new(&skv_cuda_of(be)->device, n_bytes, &at, err);
    *pool = (skv_page_pool){.at = at,
                            .page_bytes = page_bytes,
                            .n_pages = n_pages,
                            .host = skv_alloc_zero(1, page_bytes)};
    if (status == SKV_OK && !pool->host) {
        status = skv_fail(err, SKV_MEMORY, "pages: out of memory");
    }
    if (status != SKV_OK) {
        pool_free(be, pool);
        return status;
    }
    *out = pool;
    return SKV_OK;
}

static unsigned char *page_of(const skv_page_pool *pool, uint32_t page)
{
    return pool->at + page * pool->page_bytes;
}

static void pages_copy(skv_backend *be, skv_page_pool *pool, const uint32_t *to,
                       const uint32_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        skv_cuda_copy(&skv_cuda_of(be)->device, page_of(pool, to[i]), page_of(pool, from[i]),
                      pool->page_bytes);
    }
}

/* It waits: a copy that goes on meanwhile needs pinned memory and a stream of its own. */
static skv_ticket pages_read(skv_backend *be, skv_page_pool *pool, const uint32_t *pages, size_t n,
                             void *host)
{
    for (size_t i = 0; i < n; i++) {
        skv_cuda_begin_get(&skv_cuda_of(be)->device, (unsigned char *)host + i * pool->page_bytes,
                           page_of(pool, pages[i]), pool->page_bytes);
    }
    skv_cuda_settle(&skv_cuda_of(be)->device);
    return ++skv_cuda_of(be)->tickets;
}

static bool pages_done(skv_backend *be, skv_ticket ticket, bool wait, skv_status *status)
{
    (void)ticket, (void)wait;
    *status = skv_cuda_of(be)->device.failed;
    return true;
}

static void pages_write(skv_backend *be, skv_page_pool *pool, const uint32_t *pages, size_t n,
                        const void *host)
{
    for (size_t i = 0; i < n; i++) {
        skv_cuda_put(&skv_cuda_of(be)->device, page_of(pool, pages[i]),
                     (const unsigned char *)host + i * pool->page_bytes, pool->page_bytes);
    }
}

static const void *page_map(skv_backend *be, skv_page_pool *pool, uint32_t page)
{
    skv_cuda_get(&skv_cuda_of(be)->device, pool->host, page_of(pool, page), pool->page_bytes);
    return pool->host;
}

static void page_unmap(skv_backend *be, const void *host)
{
    (void)be, (void)host;
}

/* ---- slots and tables ---- */

/* Where the pages of a bundle begin in a table. */
static uint32_t pages_at(const skv_slots *slots, size_t bundle)
{
    return (uint32_t)(slots->n_tracks + bundle * slots->spec.max_pages);
}

static skv_status put_tracks(skv_backend *be, skv_slots *slots, skv_error *err)
{
    void *at = NULL;
    const size_t n_bytes = slots->n_tracks * sizeof *slots->tracks;
    skv_cuda_track *tracks = skv_alloc_zero(slots->n_tracks, sizeof *tracks);
    SKV_REQUIRE(tracks, err, SKV_MEMORY, "slots: out of memory");
    for (size_t i = 0; i < slots->n_tracks; i++) {
        const skv_track_spec *t = &slots->spec.tracks[i];
        tracks[i] = (skv_cuda_track){.pages = pages_at(slots, t->bundle),
                                     .dropped = (uint32_t)i,
                                     .offset = (uint32_t)t->offset};
    }
    const skv_status status = skv_cuda_new(&skv_cuda_of(be)->device, n_bytes, &at, err);
    slots->tracks = at;
    if (status == SKV_OK) skv_cuda_put(&skv_cuda_of(be)->device, at, tracks, n_bytes);
    skv_free(tracks);
    return status;
}

static void slots_free(skv_backend *be, skv_slots *slots)
{
    if (!slots) return;
    skv_cuda_delete(&skv_cuda_of(be)->device, slots->tracks);
    skv_free(slots->lists);
    skv_free(slots);
}

static skv_status slots_create(skv_backend *be, const skv_slots_spec *spec, skv_slots **out,
                               skv_error *err)
{
    const size_t n_tracks = spec->track0[spec->n_slots];
    const size_t tracks_bytes = n_tracks * sizeof *spec->tracks;
    const size_t firsts_bytes = (spec->n_slots + 1) * sizeof *spec->track0;
    skv_slots *slots = skv_alloc_zero(1, sizeof *slots);
    unsigned char *lists = skv_alloc_zero(1, tracks_bytes + firsts_bytes);
    if (!slots || !lists) {
        skv_free(slots);
        skv_free(lists);
        return skv_fail(err, SKV_MEMORY, "slots: out of memory");
    }
    *slots = (skv_slots){.spec = *spec, .lists = lists, .n_tracks = n_tracks};
    slots->spec.tracks = memcpy(lists, spec->tracks, tracks_bytes);
    slots->spec.track0 = memcpy(lists + tracks_bytes, spec->track0, firsts_bytes);
    const skv_status status = put_tracks(be, slots, err);
    if (status != SKV_OK) {
        slots_free(be, slots);
        return status;
    }
    *out = slots;
    return SKV_OK;
}

static void table_free(skv_backend *be, skv_table *table)
{
    skv_cuda_delete(&skv_cuda_of(be)->device, table->at);
    skv_free(table->dropped);
    skv_free(table);
}

static skv_status table_create(skv_backend *be, const skv_slots *slots, skv_table **out,
                               skv_error *err)
{
    void *at = NULL;
    skv_table *table = skv_alloc_zero(1, sizeof *table);
    SKV_REQUIRE(table, err, SKV_MEMORY, "a table of pages: out of memory");
    table->slots = slots;
    table->dropped = skv_alloc_zero(slots->n_tracks, sizeof *table->dropped);
    skv_status status = SKV_OK;
    if (!table->dropped) status = skv_fail(err, SKV_MEMORY, "a table of pages: out of memory");
    if (status == SKV_OK) {
        const size_t n = pages_at(slots, slots->spec.n_bundles);
        status = skv_cuda_new(&skv_cuda_of(be)->device, n * sizeof *table->at, &at, err);
    }
    table->at = at;
    if (status != SKV_OK) {
        table_free(be, table);
        return status;
    }
    *out = table;
    return SKV_OK;
}

static void table_write(skv_backend *be, skv_table *table, size_t bundle, size_t first,
                        const uint32_t *pages, size_t n)
{
    if (!pages) return; /* entries without a page are not read */
    skv_cuda_put(&skv_cuda_of(be)->device, table->at + pages_at(table->slots, bundle) + first,
                 pages, n * sizeof *pages);
}

static void table_dropped(skv_backend *be, skv_table *table, size_t track0, const size_t *dropped,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) table->dropped[track0 + i] = (uint32_t)dropped[i];
    skv_cuda_put(&skv_cuda_of(be)->device, table->at + track0, table->dropped + track0,
                 n * sizeof *table->dropped);
}

void skv_cuda_fill_pages(skv_backend *table)
{
    table->pool_create = pool_create;
    table->pool_bytes = pool_bytes;
    table->pool_free = pool_free;
    table->pages_copy = pages_copy;
    table->pages_read = pages_read;
    table->pages_done = pages_done;
    table->pages_write = pages_write;
    table->page_map = page_map;
    table->page_unmap = page_unmap;
    table->slots_create = slots_create;
    table->slots_free = slots_free;
    table->table_create = table_create;
    table->table_free = table_free;
    table->table_write = table_write;
    table->table_dropped = table_dropped;
}
