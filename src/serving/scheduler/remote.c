/*
 * Prompts that another server reads (skv_prompt_readers): a lane whose prompt is long waits as one
 * that has no pages, and others run. As the reader reports blocks in the store, they are fetched
 * like those of any other prompt, and the lane begins when all are here. A report is only a hint:
 * any fault there ends the wait, and the lane reads the rest itself.
 */
#include "base/mem.h"
#include "base/system.h"
#include "scheduler/worker.h"

/* Readers know no adapters, and no method but the engine's own. */
static bool may_send(const skv_scheduler *s, const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    return s->readers_link && p->prefill != SKV_PREFILL_TEACHER && p->n_adapters == 0 &&
           !p->stores && skv_spill_responds(s->store);
}

/* Of blocks [n] that the lane's ids begin with; NULL: no memory. */
static skv_spill_name *name_blocks(const skv_scheduler *s, const skv_lane *lane, size_t n)
{
    skv_spill_name *names = skv_alloc(n, sizeof *names);
    for (size_t i = 0; names && i < n; i++) {
        skv_spill_block_name(s->store, lane->job->domain, i > 0 ? &names[i - 1] : NULL,
                             lane->ids + i * SKV_PAGE_ROWS, SKV_PAGE_ROWS, &names[i]);
    }
    return names;
}

static bool send(skv_scheduler *s, skv_lane *lane, size_t n_known)
{
    skv_lane_remote *r = &lane->remote;
    const skv_reading_request request = {.ids = lane->ids,
                                         .n_ids = r->n_blocks * SKV_PAGE_ROWS,
                                         .names = r->names->bytes,
                                         .n_blocks = r->n_blocks,
                                         .n_known = n_known,
                                         .key = lane->job->params.key};
    skv_reading why = SKV_READING_AWAY;
    s->tally.readings++;
    r->reading = s->readers.ask(s->readers_link, &request, &why);
    if (!r->reading) {
        s->tally.reading_ends[why]++;
        return false;
    }
    r->n_fetched = r->n_stored = n_known;
    r->begun_ns = r->moved_ns = skv_clock_ns();
    s->n_reading++;
    return true;
}

bool skv_worker_ask_reader(skv_scheduler *s, skv_lane *lane, size_t n_usable)
{
    skv_lane_remote *r = &lane->remote;
    uint8_t last[SKV_BLOCK_NAME_BYTES];
    if (r->asked || !may_send(s, lane)) return false;
    r->asked = true;
    r->n_blocks = n_usable / SKV_PAGE_ROWS;
    const size_t n_known =
        skv_prefix_index_known(s->prefix, lane->job->domain, lane->ids, n_usable, last);
    const size_t n_left = lane->n_ids - n_known * SKV_PAGE_ROWS;
    if (r->n_blocks <= n_known || n_left <= s->readers.above) return false;
    r->names = name_blocks(s, lane, r->n_blocks);
    if (!r->names) return false;
    skv_worker_expect_told(lane, n_known);
    if (send(s, lane, n_known)) return true;
    skv_free(r->names);
    r->names = NULL;
    return false;
}

void skv_worker_ask_again(skv_lane *lane)
{
    lane->remote.asked = false;
}

void skv_worker_stop_reading(skv_scheduler *s, skv_lane *lane)
{
    skv_lane_remote *r = &lane->remote;
    if (!r->reading) return;
    s->readers.end(r->reading);
    skv_free(r->names);
    r->reading = NULL;
    r->names = NULL;
    r->spent_ns += skv_clock_ns() - r->begun_ns;
    s->n_reading--;
}

/* The lane continues with the blocks that have arrived. */
static void finish(skv_scheduler *s, skv_lane *lane, skv_reading why)
{
    const uint64_t ns = skv_clock_ns() - lane->remote.begun_ns;
    skv_worker_stop_reading(s, lane);
    s->tally.reading_ends[why]++;
    if (why == SKV_READING_DONE) skv_histogram_add(&s->tally.reading_time, ns);
}

static void look_at(skv_scheduler *s, skv_lane *lane)
{
    skv_lane_remote *r = &lane->remote;
    const uint64_t now = skv_clock_ns();
    size_t n_stored = r->n_stored;
    const skv_reading state = s->readers.look(r->reading, &n_stored);
    if (n_stored > r->n_stored && n_stored <= r->n_blocks) {
        r->n_stored = n_stored;
        r->moved_ns = now;
    }
    if (lane->disk.fetch) return;
    const size_t n_here = lane->disk.n_restored / SKV_PAGE_ROWS;
    if (n_here < r->n_fetched || !skv_spill_responds(s->store)) {
        finish(s, lane, SKV_READING_MISSED);
    } else if (n_here < r->n_stored) {
        r->n_fetched = r->n_stored;
        if (skv_worker_fetch_told(s, lane, r->names + n_here, r->n_stored - n_here)) return;
        finish(s, lane, SKV_READING_MISSED);
    } else if (n_here == r->n_blocks) {
        finish(s, lane, SKV_READING_DONE);
    } else if (state != SKV_READING_ON) {
        finish(s, lane, state == SKV_READING_DONE ? SKV_READING_LOST : state);
    } else if ((double)(now - r->moved_ns) * 1e-9 > s->readers.seconds) {
        finish(s, lane, SKV_READING_SLOW);
    }
}

void skv_worker_look_at_readers(skv_scheduler *s)
{
    for (skv_lane *lane = s->oldest; s->n_reading > 0 && lane; lane = lane->queue.next) {
        if (lane->remote.reading) look_at(s, lane);
    }
}

skv_status skv_worker_open_readers(skv_scheduler *s, skv_error *err)
{
    const skv_prompt_readers *readers = s->options.readers;
    s->options.readers = NULL; /* the caller's is not kept */
    if (!readers || !s->store) return SKV_OK;
    s->readers = *readers;
    return readers->open(readers->user, skv_worker_wake, s, &s->readers_link, err);
}

void skv_worker_close_readers(skv_scheduler *s)
{
    if (s->readers_link) s->readers.close(s->readers_link);
    s->readers_link = NULL;
}
