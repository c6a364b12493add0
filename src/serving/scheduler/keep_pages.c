/*
 * Moves blocks from the back end's memory to the queue of the disk or the store. A device copies
 * pages while it computes, so an item waits here until all of its pages have arrived.
 * Waiting items count as queued.
 */
#include <string.h>

#include "base/mem.h"
#include "scheduler/worker.h"

static skv_arrivals *arrivals_of(skv_scheduler *s, const skv_spill *to)
{
    return &s->arrivals[to == s->store];
}

static size_t bytes_of(const skv_scheduler *s, const skv_spill_item *item)
{
    return skv_spill_item_bytes(item->n_ids, item->n_pages,
                                skv_kv_store_page_bytes(s->engine->store));
}

/* Whether the pages of an item are there; a copy that failed is no longer wanted. */
static bool has_arrived(const skv_scheduler *s, skv_spill *to, skv_spill_item *item, bool wait)
{
    skv_backend *be = s->engine->be;
    skv_status status = SKV_OK;
    if (!be->pages_done(be, item->ticket, wait, &status)) return false;
    if (status == SKV_OK) {
        skv_spill_put(to, item);
    } else {
        skv_spill_count_drop(to);
        skv_free(item);
    }
    return true;
}

/* They arrive in the order in which they were asked for. */
static void settle(skv_scheduler *s, skv_spill *to, bool wait)
{
    skv_arrivals *a = arrivals_of(s, to);
    for (skv_spill_item *item, *next; (item = a->first); a->first = next) {
        const size_t n_bytes = bytes_of(s, item);
        next = item->next;
        if (!has_arrived(s, to, item, wait)) return;
        a->n_bytes -= n_bytes;
    }
    a->last = NULL;
}

void skv_worker_settle_pages(skv_scheduler *s, bool wait)
{
    if (s->spill) settle(s, s->spill, wait);
    if (s->store) settle(s, s->store, wait);
}

bool skv_worker_block_comes(skv_scheduler *s, skv_spill *to, const skv_spill_name *name)
{
    const skv_spill_item *item = arrivals_of(s, to)->first;
    while (item && memcmp(&item->name, name, sizeof *name) != 0) item = item->next;
    return item;
}

bool skv_worker_wait_room(skv_scheduler *s, skv_spill *to, size_t n_bytes, double seconds)
{
    skv_arrivals *a = arrivals_of(s, to);
    settle(s, to, seconds > 0);
    if (a->n_bytes > 0 && a->n_bytes + n_bytes > s->queue_bytes) return false;
    return skv_spill_wait_room(to, a->n_bytes + n_bytes, seconds);
}

void skv_worker_put_block(skv_scheduler *s, skv_spill *to, skv_spill_item *item,
                          const uint32_t *pages, size_t n)
{
    skv_arrivals *a = arrivals_of(s, to);
    item->ticket = skv_kv_pages_read(s->engine->store, pages, n, item->pages);
    if (item->ticket == 0) {
        skv_spill_put(to, item);
        return;
    }
    item->next = NULL;
    if (a->first) {
        a->last->next = item;
    } else {
        a->first = item;
    }
    a->last = item;
    a->n_bytes += bytes_of(s, item);
}
