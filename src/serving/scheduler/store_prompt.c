/*
 * Prompts that are read for other servers (skv_job_params.stores): their blocks go to the store,
 * and are reported one by one as they arrive there. They have no answer, so they end when the last
 * block is stored, or when the store does not take it.
 */

#include "base/size.h"
#include "base/system.h"
#include "scheduler/worker.h"

static const uint64_t PATIENCE_NS = 5000000000u; /* with a store that takes nothing */

skv_status skv_scheduler_first_block(const skv_scheduler *s, const skv_job_params *p,
                                     uint8_t name[SKV_CACHE_NAME_BYTES], skv_error *err)
{
    skv_spill_name out;
    SKV_REQUIRE(s->store && s->prefix && p->n_ids >= SKV_PAGE_ROWS, err, SKV_RANGE,
                "%zu tokens: no store, or not a block of %d tokens", p->n_ids, SKV_PAGE_ROWS);
    skv_spill_block_name(s->store, skv_worker_domain(s, p), NULL, p->ids, SKV_PAGE_ROWS, &out);
    memcpy(name, out.bytes, sizeof out);
    return SKV_OK;
}

/* The name of the block that is to be told next. */
static const skv_spill_name *next_name(const skv_scheduler *s, skv_lane *lane)
{
    skv_lane_stored *stored = &lane->stored;
    while (stored->n_named <= stored->n) {
        const skv_spill_name parent = stored->name;
        const size_t i = stored->n_named++;
        skv_spill_block_name(s->store, lane->job->domain, i > 0 ? &parent : NULL,
                             lane->ids + i * SKV_PAGE_ROWS, SKV_PAGE_ROWS, &stored->name);
    }
    return &stored->name;
}

/* Blocks of the first n that have reached the store since the last look. */
static void tell_new(const skv_scheduler *s, skv_lane *lane, size_t n)
{
    skv_lane_stored *stored = &lane->stored;
    while (stored->n < n && skv_spill_stored(s->store, next_name(s, lane))) {
        skv_worker_tell_stored_block(s, lane, stored->name.bytes);
        stored->n++;
        stored->moved_ns = skv_clock_ns();
    }
}

static void look_at(skv_scheduler *s, skv_lane *lane)
{
    skv_lane_stored *stored = &lane->stored;
    const size_t n_all = lane->n_prompt / SKV_PAGE_ROWS;
    const bool is_read = skv_lane_cached(lane) == lane->n_ids;
    if (is_read) skv_worker_share(s, lane); /* blocks that found no room in the queue */
    if (is_read && stored->moved_ns == 0) stored->moved_ns = skv_clock_ns();
    tell_new(s, lane, skv_min_size(skv_lane_cached(lane) / SKV_PAGE_ROWS, n_all));
    const bool waits = is_read && skv_clock_ns() - stored->moved_ns > PATIENCE_NS;
    if (lane->failure) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
    } else if (stored->n == n_all) {
        skv_worker_end(s, lane, SKV_FINISH_LENGTH, (skv_text_piece){"", 0});
    } else if (waits || !skv_spill_responds(s->store)) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED,
                       skv_text_of("the store does not take the prompt's blocks"));
    }
}

void skv_worker_tell_stored(skv_scheduler *s)
{
    skv_lane *next;
    for (skv_lane *lane = s->oldest; s->n_storing > 0 && lane; lane = next) {
        next = lane->queue.next;
        if (lane->job->params.stores && lane->sequence) look_at(s, lane);
    }
}
