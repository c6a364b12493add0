/*
 * Checkpoints of hybrid models on disk and in a store. A state is as large as the pages of many
 * blocks, so it is an item of its own, named after the block that it follows: a chain of blocks is
 * read without the states on the way, and then the last one that is there. Its bytes are the back
 * end's, which refuses bytes that cannot be a state.
 */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "scheduler/worker.h"

size_t skv_worker_state_pages(const skv_scheduler *s)
{
    const skv_engine *e = s->engine;
    if (e->checkpoints.n == 0) return 0;
    return skv_ceil_div(e->checkpoints.state_bytes, skv_kv_store_page_bytes(e->store));
}

/* ---- out ---- */

static skv_spill_item *make_item(const skv_scheduler *s, const skv_prefix_block *b)
{
    const skv_state_pool *pool = &s->engine->checkpoints;
    const size_t page_bytes = skv_kv_store_page_bytes(s->engine->store);
    const size_t n_pages = skv_worker_state_pages(s);
    skv_spill_item *item = skv_spill_item_create(SKV_PAGE_ROWS, n_pages, page_bytes);
    if (!item) return NULL;
    item->kind = SKV_SPILL_STATE;
    memcpy(item->parent.bytes, b->name, sizeof item->parent);
    memcpy(item->ids, b->ids, SKV_PAGE_ROWS * sizeof *b->ids);
    pool->be->state_read(pool->be, item->pages, pool->states, b->state);
    memset(item->pages + pool->state_bytes, 0, n_pages * page_bytes - pool->state_bytes);
    return item;
}

bool skv_worker_write_state(skv_scheduler *s, skv_spill *to, const skv_prefix_block *b,
                            double seconds)
{
    const size_t page_bytes = skv_kv_store_page_bytes(s->engine->store);
    skv_spill_name block, name;
    if (b->state == SKV_NO_STATE) return true;
    memcpy(block.bytes, b->name, sizeof block);
    skv_spill_state_name(to, &block, &name);
    if (skv_spill_has(to, &name)) {
        if (to == s->spill) skv_spill_note_use(to, &name);
        return true;
    }
    const size_t n_bytes =
        skv_spill_item_bytes(SKV_PAGE_ROWS, skv_worker_state_pages(s), page_bytes);
    if (!skv_worker_wait_room(s, to, n_bytes, seconds)) return false;
    skv_spill_item *item = make_item(s, b);
    if (!item) return true;
    item->name = name;
    skv_spill_put(to, item);
    return true;
}

/* ---- and back ---- */

/* The names of the first n blocks of a lane's ids. */
static void name_blocks(const skv_lane *lane, const skv_spill *from, skv_spill_name *names,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        skv_spill_block_name(from, lane->job->domain, i > 0 ? &names[i - 1] : NULL,
                             lane->ids + i * SKV_PAGE_ROWS, SKV_PAGE_ROWS, &names[i]);
    }
}

size_t skv_worker_state_names(const skv_scheduler *s, const skv_lane *lane, skv_spill *from,
                              size_t first, size_t end, skv_spill_name *names)
{
    size_t n = 0;
    skv_spill_name *blocks = end > first ? skv_alloc(end, sizeof *blocks) : NULL;
    if (!blocks) return 0;
    name_blocks(lane, from, blocks, end);
    for (size_t i = end; i > first; i--) {
        skv_spill_state_name(from, &blocks[i - 1], &names[n]);
        n += from != s->spill || skv_spill_has(from, &names[n]);
    }
    skv_free(blocks);
    return n;
}

/* How many blocks of a lane's ids end where an item's state stands; 0: none of the first n. */
static size_t find_block(const skv_lane *lane, const skv_spill *from, const skv_spill_item *item,
                         size_t n)
{
    skv_spill_name *blocks = n > 0 ? skv_alloc(n, sizeof *blocks) : NULL, name;
    if (!blocks) return 0;
    name_blocks(lane, from, blocks, n);
    for (; n > 0; n--) {
        skv_spill_state_name(from, &blocks[n - 1], &name);
        if (memcmp(&name, &item->name, sizeof name) == 0) break;
    }
    skv_free(blocks);
    return n;
}

bool skv_worker_restore_state(skv_scheduler *s, const skv_lane *lane, const skv_spill *from,
                              const skv_spill_item *item)
{
    const uint64_t domain = lane->job->domain;
    const size_t n_rows =
        skv_prefix_index_rows(s->prefix, domain, lane->ids, lane->n_ids - 1, NULL);
    if (item->kind != SKV_SPILL_STATE || item->n_pages != skv_worker_state_pages(s)) return false;
    const size_t n = find_block(lane, from, item, n_rows / SKV_PAGE_ROWS) * SKV_PAGE_ROWS;
    if (n == 0 || item->n_ids != SKV_PAGE_ROWS ||
        memcmp(item->ids, lane->ids + n - SKV_PAGE_ROWS, SKV_PAGE_ROWS * sizeof *item->ids) != 0) {
        return false;
    }
    return skv_prefix_index_restore_state(s->prefix, domain, lane->ids, n, item->pages);
}
