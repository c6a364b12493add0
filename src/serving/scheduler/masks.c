/*
 * Computes the tokens that a constrained answer may continue with, before the step that needs them,
 * in pieces: all masks of a step together take a quarter of its time, and an answer whose mask is
 * not ready sits the step out while others go on. First comes the tenant that was given the least
 * time; of its answers the one whose mask has had the least, so that a mask of microseconds never
 * waits for one of seconds. A tenant's time for masks also counts where prompts take turns.
 *
 * Memory: if the account has no room for a mask, the answer that holds most of it gives up the
 * parts that only save time. If that is not enough the answer waits, and fails where waiting cannot
 * help.
 */
#include "base/size.h"
#include "base/system.h"
#include "scheduler/worker.h"

enum {
    STEP_SHARE = 4,      /* the part of a step's time that is for masks: one of so many, */
    PIECES = 8,          /* dealt out in so many pieces */
    LARGE_SHARE = 32,    /* of the account: an answer that holds more than one of so many is
                          * looked at first */
    KEEP_BYTES = 1 << 20 /* a constraint that holds no more has nothing worth dropping */
};

static const uint64_t SLICE_NS_MIN = 1000000, PIECE_NS_MIN = 200000;
static const uint64_t MEMORY_WAIT_NS = UINT64_C(10000000000);

/* ---- whose turn it is ---- */

bool skv_worker_wants_mask(const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    return lane->mask.constraint && p->constraint.prepare && p->max_tokens > 0 && !lane->mask.ready;
}

static bool runs(const skv_lane *lane)
{
    return lane->queue.state == SKV_LANE_DECODE || lane->queue.state == SKV_LANE_PROMPT;
}

/* Whether there is something to be done for a lane now. */
static bool is_workable(const skv_lane *lane)
{
    return runs(lane) && skv_worker_wants_mask(lane) && lane->mask.starved_ns == 0;
}

static bool look_at_lanes(skv_scheduler *s)
{
    bool any = false;
    skv_turns_begin(&s->mask_turns);
    for (const skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (!is_workable(lane)) continue;
        skv_turns_see(&s->mask_turns, lane->job->params.tenant);
        any = true;
    }
    if (any) skv_turns_settle(&s->mask_turns);
    return any;
}

static bool comes_before(const skv_scheduler *s, const skv_lane *a, const skv_lane *b)
{
    uint64_t given = skv_turns_given(&s->mask_turns, a->job->params.tenant);
    uint64_t other = skv_turns_given(&s->mask_turns, b->job->params.tenant);
    return given != other ? given < other : a->mask.ns < b->mask.ns;
}

static skv_lane *next_mask(const skv_scheduler *s)
{
    skv_lane *best = NULL;
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (is_workable(lane) && (!best || comes_before(s, lane, best))) best = lane;
    }
    return best;
}

/* ---- memory ---- */

/* The lane that holds most gives up the parts that only save time, if they take more than
 * n_bytes. For the job of `poor`, which has done so itself, only one whose account is the same;
 * NULL: any. False: nothing has become free. */
static bool shrink_largest(skv_scheduler *s, size_t n_bytes, const skv_job *poor)
{
    skv_lane *largest = NULL;
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        size_t n = skv_worker_held_bytes(lane);
        if (n <= n_bytes || (poor && lane->job->account != poor->account)) continue;
        largest = lane;
        n_bytes = n;
    }
    if (!largest || largest->job == poor || !largest->job->params.constraint.shrink) return false;
    largest->job->params.constraint.shrink(largest->mask.constraint);
    return skv_worker_held_bytes(largest) < n_bytes;
}

/* Makes room for new answers, before they have to wait for it. */
static void keep_room(skv_scheduler *s)
{
    size_t max = skv_account_max(s->options.account), used = skv_account_used(s->options.account);
    if (max > 0 && used > max - max / 4) (void)shrink_largest(s, max / LARGE_SHARE, NULL);
}

static void fail(skv_scheduler *s, skv_lane *lane, const skv_error *err)
{
    s->tally.masks_refused++;
    lane->failure_status = err->status;
    skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(err->text));
}

static const char *name_of(const skv_lane *lane)
{
    const char *name = lane->job->params.constraint.name;
    return name ? name : "grammar";
}

static void fail_starved(skv_scheduler *s, skv_lane *lane)
{
    skv_error err;
    size_t max = skv_account_max(lane->job->account);
    if (skv_worker_held_bytes(lane) > max / 2) {
        (void)skv_fail(&err, SKV_RANGE, "%s: needs more than its part of %zu bytes of memory",
                       name_of(lane), max);
    } else {
        (void)skv_fail(&err, SKV_MEMORY, "%s: the memory is in use by other requests",
                       name_of(lane));
    }
    fail(s, lane, &err);
}

static void wait_for_memory(skv_lane *lane)
{
    lane->mask.starved_ns = skv_clock_ns();
    lane->mask.starved_left = skv_account_left(lane->job->account);
    if (lane->mask.waits_ns == 0) lane->mask.waits_ns = lane->mask.starved_ns;
}

/* Lanes that wait for memory try again when there is more of it. If they all wait for each
 * other, the youngest gives up; so does one that has waited for too long. */
static void look_at_starved(skv_scheduler *s)
{
    size_t n_starved = 0, n_others = 0;
    uint64_t now = skv_clock_ns();
    skv_lane *youngest = NULL, *next;
    for (skv_lane *lane = s->oldest; lane; lane = next) {
        next = lane->queue.next;
        bool starved = lane->mask.starved_ns > 0;
        n_others += runs(lane) && !starved;
        if (!starved) continue;
        if (now - lane->mask.waits_ns > MEMORY_WAIT_NS) {
            fail_starved(s, lane);
        } else if (skv_account_left(lane->job->account) >= lane->mask.starved_left + KEEP_BYTES) {
            lane->mask.starved_ns = 0;
        } else {
            n_starved++;
            youngest = lane;
        }
    }
    if (n_others == 0 && n_starved > 1) {
        fail_starved(s, youngest);
        n_starved--;
    }
    s->n_starved = n_starved;
}

/* ---- one piece ---- */

/* A mask that is ready, or given up. */
static void finish(skv_scheduler *s, skv_lane *lane)
{
    skv_histogram_add(&s->tally.mask_time, lane->mask.ns);
    lane->mask = (skv_lane_mask){.constraint = lane->mask.constraint, .ready = true};
}

/* The limits of one mask as a whole. */
static skv_status check_limits(const skv_scheduler *s, const skv_lane *lane, skv_error *err)
{
    const skv_scheduler_options *o = &s->options;
    SKV_REQUIRE(lane->mask.work <= o->mask_work_max, err, SKV_RANGE,
                "%s: finding the tokens that may follow token %zu of the answer needs more than "
                "%llu units of work",
                name_of(lane), skv_lane_generated(lane), (unsigned long long)o->mask_work_max);
    SKV_REQUIRE(
        (double)lane->mask.ns <= o->mask_seconds_max * 1e9, err, SKV_RANGE,
        "%s: finding the tokens that may follow token %zu of the answer takes longer than %g s",
        name_of(lane), skv_lane_generated(lane), o->mask_seconds_max);
    return SKV_OK;
}

/* The time spent counts for the mask, for the tenant, and where prompts take turns. */
static void count(skv_scheduler *s, skv_lane *lane, uint64_t ns, uint64_t work)
{
    uint64_t tenant = lane->job->params.tenant;
    lane->mask.ns += ns;
    lane->mask.work += skv_min_size(work, SIZE_MAX / 2 - lane->mask.work);
    skv_turns_give(&s->mask_turns, tenant, ns / 1000 + 1);
    skv_turns_give(&s->turns, tenant, skv_step_clock_tokens(&s->clock, (double)ns));
}

static skv_status prepare(skv_scheduler *s, skv_lane *lane, skv_budget *budget, skv_error *err)
{
    const skv_constraint *c = &lane->job->params.constraint;
    skv_status status = c->prepare(lane->mask.constraint, budget, &lane->mask.ready, err);
    if (status != SKV_MEMORY || !shrink_largest(s, KEEP_BYTES, lane->job)) return status;
    return c->prepare(lane->mask.constraint, budget, &lane->mask.ready, err);
}

/* Works on a lane's mask for about so long; returns the time when it stopped. */
static uint64_t work_on(skv_scheduler *s, skv_lane *lane, uint64_t start, uint64_t ns)
{
    const skv_limits limits = {.work = s->options.mask_work_max, .max_ns = ns};
    skv_budget budget;
    skv_error err;
    skv_budget_init(&budget, &limits);
    skv_status status = prepare(s, lane, &budget, &err);
    uint64_t now = skv_clock_ns();
    count(s, lane, now - start, budget.work);
    if (status == SKV_OK && !lane->mask.ready) status = check_limits(s, lane, &err);
    if (status == SKV_OK) {
        if (lane->mask.ready) finish(s, lane);
    } else if (status == SKV_MEMORY && lane->job->account) {
        wait_for_memory(lane);
    } else {
        if (status == SKV_FULL) err.status = SKV_RANGE; /* of the grammar: it never fits */
        fail(s, lane, &err);
    }
    return now;
}

void skv_worker_accept_masked(skv_lane *lane, int32_t id)
{
    const skv_constraint *c = &lane->job->params.constraint;
    if (lane->mask.constraint) c->accept(lane->mask.constraint, id);
    lane->mask.ready = false;
}

bool skv_worker_mask_draft(skv_scheduler *s, skv_lane *lane)
{
    if (!skv_worker_wants_mask(lane)) return true;
    const skv_limits limits = {.work = s->options.mask_work_max, .max_ns = PIECE_NS_MIN};
    skv_budget budget;
    skv_error err;
    skv_budget_init(&budget, &limits);
    const uint64_t start = skv_clock_ns();
    if (prepare(s, lane, &budget, &err) != SKV_OK) lane->mask.ready = false;
    count(s, lane, skv_clock_ns() - start, budget.work);
    if (lane->mask.ready) finish(s, lane);
    return lane->mask.ready;
}

bool skv_worker_prepare_masks(skv_scheduler *s)
{
    uint64_t slice = (uint64_t)(s->options.step_ms * 1e6) / STEP_SHARE;
    if (slice < SLICE_NS_MIN) slice = SLICE_NS_MIN;
    uint64_t piece = slice / PIECES > PIECE_NS_MIN ? slice / PIECES : PIECE_NS_MIN;
    s->mask_ns = 0;
    look_at_starved(s);
    if (!look_at_lanes(s)) return false;
    uint64_t start = skv_clock_ns(), now = start;
    keep_room(s);
    skv_lane *lane = next_mask(s);
    while (lane && now - start < slice) {
        uint64_t left = slice - (now - start);
        now = work_on(s, lane, now, left < piece ? left : piece);
        lane = next_mask(s);
    }
    s->mask_ns = now - start;
    s->masks_ns += s->mask_ns;
    return lane;
}
