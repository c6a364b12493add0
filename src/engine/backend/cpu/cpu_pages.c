/*
 * Pages of the CPU back end: pools of the host's memory, and tables of pointers into them.
 *
 * Slots and tables are known by number outside. Here a table has, for each track and page, where
 * the track's rows begin, so that attention and `place` look nothing up.
 */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/nodes.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "kernels/kv_page.h"

/* ---- pools ---- */

static skv_status pool_create(skv_backend *base, size_t page_bytes, size_t n_pages,
                              skv_page_pool **out, skv_error *err)
{
    const skv_nodes *nodes = skv_pool_nodes(((skv_cpu_backend *)base)->pool);
    size_t n_bytes;
    SKV_REQUIRE(skv_size_mul(n_pages, page_bytes, &n_bytes), err, SKV_RANGE,
                "pages: %zu of %zu bytes do not fit", n_pages, page_bytes);
    skv_page_pool *pool = skv_alloc_zero(1, sizeof *pool);
    unsigned char *memory = pool ? skv_map_zero(n_bytes) : NULL;
    if (!memory) {
        skv_free(pool);
        return skv_fail(err, SKV_MEMORY, "pages: no memory for %zu of %zu bytes", n_pages,
                        page_bytes);
    }
    for (size_t i = 0; base->n_nodes > 1 && i < base->n_nodes; i++) {
        const size_t first = skv_node_pages(n_pages, i, base->n_nodes);
        const size_t end = skv_node_pages(n_pages, i + 1, base->n_nodes);
        if (first == end) continue;
        (void)skv_pages_place(memory + first * page_bytes, (end - first) * page_bytes,
                              nodes->number[i]);
    }
    *pool = (skv_page_pool){memory, page_bytes, n_pages};
    *out = pool;
    return SKV_OK;
}

static skv_bytes pool_bytes(const skv_backend *base, size_t page_bytes, size_t n_pages)
{
    size_t n_bytes;
    (void)base;
    return (skv_bytes){.host = skv_size_mul(n_pages, page_bytes, &n_bytes) ? n_bytes : SIZE_MAX};
}

static void pool_free(skv_backend *base, skv_page_pool *pool)
{
    (void)base;
    if (!pool) return;
    skv_unmap(pool->memory, pool->n_pages * pool->page_bytes);
    skv_free(pool);
}

static unsigned char *page_at(const skv_page_pool *pool, uint32_t page)
{
    assert(page < pool->n_pages);
    return pool->memory + page * pool->page_bytes;
}

static void pages_copy(skv_backend *base, skv_page_pool *pool, const uint32_t *to,
                       const uint32_t *from, size_t n)
{
    (void)base;
    for (size_t i = 0; i < n; i++) {
        memcpy(page_at(pool, to[i]), page_at(pool, from[i]), pool->page_bytes);
    }
}

static skv_ticket pages_read(skv_backend *base, skv_page_pool *pool, const uint32_t *pages,
                             size_t n, void *host)
{
    (void)base;
    for (size_t i = 0; i < n; i++) {
        memcpy((unsigned char *)host + i * pool->page_bytes, page_at(pool, pages[i]),
               pool->page_bytes);
    }
    return 0;
}

static bool pages_done(skv_backend *base, skv_ticket ticket, bool wait, skv_status *status)
{
    (void)base;
    (void)wait;
    assert(ticket == 0);
    (void)ticket;
    *status = SKV_OK;
    return true;
}

static void pages_write(skv_backend *base, skv_page_pool *pool, const uint32_t *pages, size_t n,
                        const void *host)
{
    (void)base;
    for (size_t i = 0; i < n; i++) {
        memcpy(page_at(pool, pages[i]), (const unsigned char *)host + i * pool->page_bytes,
               pool->page_bytes);
    }
}

static const void *page_map(skv_backend *base, skv_page_pool *pool, uint32_t page)
{
    (void)base;
    return page_at(pool, page);
}

static void page_unmap(skv_backend *base, const void *host)
{
    (void)base;
    (void)host;
}

/* ---- compaction ---- */

typedef struct compaction {
    const skv_page_pool *pool;
    skv_kv_type type;
    const skv_compact_job *jobs;
} compaction;

void skv_cpu_move_half(unsigned char *to, size_t i, const unsigned char *from, size_t row,
                       size_t which, skv_kv_type type, size_t head_dim)
{
    const size_t n_bytes = head_dim * skv_kv_size(type);
    const size_t rows_at = skv_page_rows_at(type, head_dim, which);
    memcpy(to + rows_at + i * n_bytes, from + rows_at + row * n_bytes, n_bytes);
    if (!skv_kv_has_scales(type)) return;
    const size_t scales_at = skv_page_scales_at(type, head_dim, which);
    to[scales_at + i] = from[scales_at + row];
}

static void compact(void *arg, size_t i_job, size_t i_thread)
{
    const compaction *c = arg;
    const skv_compact_job *job = &c->jobs[i_job];
    (void)i_thread;
    for (size_t i = 0; i < job->n; i++) {
        const size_t row = job->rows[i];
        unsigned char *to = page_at(c->pool, job->to[i / SKV_PAGE_ROWS]) + job->to_offset;
        const unsigned char *from =
            page_at(c->pool, job->from[row / SKV_PAGE_ROWS]) + job->from_offset;
        if (to == from && i % SKV_PAGE_ROWS == row % SKV_PAGE_ROWS) continue;
        for (size_t which = 0; which < 2; which++) {
            skv_cpu_move_half(to, i % SKV_PAGE_ROWS, from, row % SKV_PAGE_ROWS, which, c->type,
                              job->head_dim);
        }
    }
}

static void pages_compact(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                          const skv_compact_job *jobs, size_t n)
{
    const skv_cpu_backend *be = (const skv_cpu_backend *)base;
    compaction c = {pool, type, jobs};
    skv_pool_run(be->pool, n, compact, &c);
}

/* ---- slots ---- */

/* Joins the tracks of each bundle. */
static void chain_tracks(skv_slots *slots)
{
    for (size_t b = 0; b < slots->spec.n_bundles; b++) slots->first[b] = slots->n_tracks;
    for (size_t t = slots->n_tracks; t-- > 0;) {
        const size_t bundle = slots->spec.tracks[t].bundle;
        assert(bundle < slots->spec.n_bundles);
        slots->next[t] = slots->first[bundle];
        slots->first[bundle] = t;
    }
}

static skv_status slots_create(skv_backend *base, const skv_slots_spec *spec, skv_slots **out,
                               skv_error *err)
{
    (void)base;
    const size_t n_tracks = spec->track0[spec->n_slots], n_slots = spec->n_slots + 1;
    const size_t n_numbers = n_slots + spec->n_bundles + n_tracks;
    const size_t n_bytes = n_numbers * sizeof(size_t) + n_tracks * sizeof *spec->tracks;
    skv_slots *slots = skv_alloc_zero(1, sizeof *slots + n_bytes);
    SKV_REQUIRE(slots, err, SKV_MEMORY, "slots: no memory for %zu heads", n_tracks);
    *slots = (skv_slots){.spec = *spec, .n_tracks = n_tracks};
    size_t *track0 = (size_t *)(slots + 1);
    slots->first = track0 + n_slots;
    slots->next = slots->first + spec->n_bundles;
    skv_track_spec *tracks = (skv_track_spec *)(slots->next + n_tracks);
    memcpy(track0, spec->track0, n_slots * sizeof *track0);
    memcpy(tracks, spec->tracks, n_tracks * sizeof *tracks);
    slots->spec.track0 = track0;
    slots->spec.tracks = tracks;
    chain_tracks(slots);
    *out = slots;
    return SKV_OK;
}

static void slots_free(skv_backend *base, skv_slots *slots)
{
    (void)base;
    skv_free(slots);
}

/* ---- tables ---- */

static size_t entries_bytes(const skv_slots *slots)
{
    return skv_max_size(1, slots->n_tracks) * slots->spec.max_pages * sizeof(void *);
}

static skv_status table_create(skv_backend *base, const skv_slots *slots, skv_table **out,
                               skv_error *err)
{
    (void)base;
    skv_table *table = skv_alloc_zero(1, sizeof *table + slots->n_tracks * sizeof *table->dropped);
    void **pages = table ? skv_map_zero(entries_bytes(slots)) : NULL;
    if (!pages) {
        skv_free(table);
        return skv_fail(err, SKV_MEMORY, "page table: no memory for %zu pages of %zu heads",
                        slots->spec.max_pages, slots->n_tracks);
    }
    table->slots = slots;
    table->pages = pages;
    *out = table;
    return SKV_OK;
}

static void table_free(skv_backend *base, skv_table *table)
{
    (void)base;
    if (!table) return;
    skv_unmap(table->pages, entries_bytes(table->slots));
    skv_free(table);
}

static void table_write(skv_backend *base, skv_table *table, size_t bundle, size_t first,
                        const uint32_t *pages, size_t n)
{
    (void)base;
    const skv_slots *slots = table->slots;
    assert(bundle < slots->spec.n_bundles && first + n <= slots->spec.max_pages);
    if (!pages) return; /* memory that is not read need not be cleared */
    for (size_t t = slots->first[bundle]; t < slots->n_tracks; t = slots->next[t]) {
        void **entries = skv_cpu_track(table, t) + first;
        const size_t offset = slots->spec.tracks[t].offset;
        for (size_t p = 0; p < n; p++) entries[p] = page_at(slots->spec.pool, pages[p]) + offset;
    }
}

static void table_dropped(skv_backend *base, skv_table *table, size_t track0, const size_t *dropped,
                          size_t n)
{
    (void)base;
    assert(track0 + n <= table->slots->n_tracks);
    for (size_t i = 0; i < n; i++) {
        size_t *lost = &table->dropped[track0 + i];
        table->n_lost -= *lost > 0;
        table->n_lost += dropped[i] > 0;
        *lost = dropped[i];
    }
}

void skv_cpu_add_pages(skv_backend *base)
{
    base->pool_create = pool_create;
    base->pool_bytes = pool_bytes;
    base->pool_free = pool_free;
    base->pages_copy = pages_copy;
    base->pages_compact = pages_compact;
    base->pages_read = pages_read;
    base->pages_done = pages_done;
    base->pages_write = pages_write;
    base->page_map = page_map;
    base->page_unmap = page_unmap;
    base->slots_create = slots_create;
    base->slots_free = slots_free;
    base->table_create = table_create;
    base->table_free = table_free;
    base->table_write = table_write;
    base->table_dropped = table_dropped;
}
