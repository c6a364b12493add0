/*
 * The smaller form of a block on disk: the K,V below layer l and the rows of boundary l, which the
 * deep K,V are a product of (engine/steps/boundary_rows.c). Those rows exist only while a step
 * runs, and keeping them for as long as a block is in memory would cost memory. So a block in this
 * form is queued for the disk as soon as its last token has been computed, where the other form
 * waits until the block is about to leave memory. Only the page that is not full yet keeps its
 * rows, by lane.
 */
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "scheduler/worker.h"

/* Rows stand in an item's last pages. */
static size_t row_pages(const skv_scheduler *s)
{
    size_t n_bytes = SKV_PAGE_ROWS * skv_boundary_row_bytes(s->engine);
    return skv_ceil_div(n_bytes, skv_kv_store_page_bytes(s->engine->store));
}

skv_status skv_worker_open_rows(skv_scheduler *s, skv_error *err)
{
    size_t row_bytes = skv_boundary_row_bytes(s->engine);
    if (!s->options.cache_disk_rows || row_bytes == 0) return SKV_OK;
    s->step_rows = skv_alloc(s->step_tokens, row_bytes);
    SKV_REQUIRE(s->step_rows, err, SKV_MEMORY, "cache-disk-form: no memory for %zu rows of %zu",
                s->step_tokens, row_bytes);
    return SKV_OK;
}

size_t skv_worker_take_rows(skv_scheduler *s, size_t i_layer, skv_rows x, size_t at, size_t n)
{
    if (i_layer != skv_boundary_layer(s->engine)) return 0;
    const size_t n_bytes = skv_boundary_row_bytes(s->engine);
    skv_boundary_take(s->engine, x, n, s->step_rows + at * n_bytes);
    return n;
}

/* ---- out ---- */

/* The name of a lane's block i, and that of the block before. */
static void name_block(const skv_scheduler *s, skv_lane *lane, size_t i, skv_spill_name *parent)
{
    while (lane->rows.n_named <= i) {
        size_t k = lane->rows.n_named++;
        *parent = lane->rows.name;
        skv_spill_block_name(skv_worker_names(s), lane->job->domain, k > 0 ? parent : NULL,
                             lane->ids + k * SKV_PAGE_ROWS, SKV_PAGE_ROWS, &lane->rows.name);
    }
}

/* The item of a lane's block i, without its pages [skv_boundary_tracks]. */
static skv_spill_item *make_item(const skv_scheduler *s, const skv_lane *lane, size_t i)
{
    const size_t page_bytes = skv_kv_store_page_bytes(s->engine->store);
    const size_t n_tracks = skv_boundary_tracks(s->engine);
    size_t n_bytes = SKV_PAGE_ROWS * skv_boundary_row_bytes(s->engine), n_row_pages = row_pages(s);
    skv_spill_item *item = skv_spill_item_create(SKV_PAGE_ROWS, n_tracks + n_row_pages, page_bytes);
    if (!item) return NULL;
    item->kind = SKV_SPILL_ROWS;
    memcpy(item->ids, lane->ids + i * SKV_PAGE_ROWS, SKV_PAGE_ROWS * sizeof *item->ids);
    unsigned char *rows = item->pages + n_tracks * page_bytes;
    memcpy(rows, lane->rows.bytes, n_bytes);
    memset(rows + n_bytes, 0, n_row_pages * page_bytes - n_bytes);
    return item;
}

static void put_block_into(skv_spill *spill, skv_scheduler *s, const skv_lane *lane, size_t i,
                           const skv_spill_name *parent)
{
    size_t page_bytes = skv_kv_store_page_bytes(s->engine->store);
    const size_t n_tracks = skv_boundary_tracks(s->engine), n_pages = n_tracks + row_pages(s);
    size_t n_bytes = skv_spill_item_bytes(SKV_PAGE_ROWS, n_pages, page_bytes);
    const skv_spill_name *name = &lane->rows.name;
    if (skv_spill_has(spill, name) || skv_worker_block_comes(s, spill, name) ||
        !skv_worker_wait_room(s, spill, n_bytes, 0)) {
        return;
    }
    uint32_t *pages = skv_alloc(skv_max_size(1, n_tracks), sizeof *pages);
    skv_spill_item *item = pages ? make_item(s, lane, i) : NULL;
    for (size_t t = 0; item && t < n_tracks; t++) {
        pages[t] = skv_kv_cache_block(&lane->sequence->cache, t, i);
    }
    if (item) {
        item->name = *name;
        if (i > 0) item->parent = *parent;
        skv_worker_put_block(s, spill, item, pages, n_tracks);
    }
    skv_free(pages);
}

/* Block i of a lane has all its rows. Where the queue is full it will be written in the other form
 * when it leaves memory; a store that is away gets nothing. */
static void put_block(skv_scheduler *s, skv_lane *lane, size_t i)
{
    skv_spill_name parent = {{0}};
    if (lane->rows.n_named > i) return; /* it was put back since, and computes this again */
    name_block(s, lane, i, &parent);
    if (s->spill) put_block_into(s->spill, s, lane, i, &parent);
    if (s->store && skv_spill_responds(s->store)) put_block_into(s->store, s, lane, i, &parent);
}

void skv_worker_keep_rows(skv_scheduler *s, skv_lane *lane, size_t step_row, size_t n)
{
    size_t row_bytes = skv_boundary_row_bytes(s->engine), end = skv_lane_cached(lane);
    if (lane->job->params.no_prefix_cache || skv_worker_is_approximate(lane)) return;
    if (!lane->rows.bytes) lane->rows.bytes = skv_alloc(SKV_PAGE_ROWS, row_bytes);
    if (!lane->rows.bytes) return;
    const unsigned char *from = s->step_rows + step_row * row_bytes;
    for (size_t at = end - n, m; at < end; at += m, from += m * row_bytes) {
        size_t first = at % SKV_PAGE_ROWS;
        m = skv_min_size(SKV_PAGE_ROWS - first, end - at);
        if (first == 0) lane->rows.n = 0;
        if (lane->rows.n != first) continue; /* the page began in another lane */
        memcpy(lane->rows.bytes + first * row_bytes, from, m * row_bytes);
        lane->rows.n += m;
        if (lane->rows.n == SKV_PAGE_ROWS) put_block(s, lane, at / SKV_PAGE_ROWS);
    }
}

/* ---- and back ---- */

bool skv_worker_item_fits(const skv_scheduler *s, const skv_lane *lane, const skv_spill_item *item)
{
    const skv_kv_layout *layout = skv_worker_layout(s, lane->job);
    if (item->n_ids != SKV_PAGE_ROWS ||
        memcmp(item->ids, lane->ids + lane->disk.n_restored, sizeof(int32_t) * item->n_ids) != 0) {
        return false;
    }
    if (item->kind == SKV_SPILL_BLOCK) return item->n_pages == layout->n_bundles;
    return item->kind == SKV_SPILL_ROWS && layout == &s->engine->plan.layout &&
           skv_boundary_row_bytes(s->engine) > 0 &&
           item->n_pages == skv_boundary_tracks(s->engine) + row_pages(s);
}

void skv_worker_fill_pages(skv_scheduler *s, const skv_lane *lane, const skv_spill_item *item,
                           const uint32_t *pages)
{
    skv_kv_store *store = s->engine->store;
    size_t page_bytes = skv_kv_store_page_bytes(store);
    bool rows = item->kind == SKV_SPILL_ROWS;
    size_t n = rows ? skv_boundary_tracks(s->engine) : item->n_pages;
    skv_kv_pages_write(store, pages, n, item->pages);
    if (!rows) return;
    skv_boundary_restore(s->engine, item->pages + n * page_bytes, lane->disk.n_restored, s->context,
                         pages);
}
