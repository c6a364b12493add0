/*
 * Composes a step: one token of every answer under way, drafts, and as many prompt tokens as the
 * time allows, of one prompt after the other (turns.h).
 */
#include <assert.h>
#include <math.h>

#include "base/size.h"
#include "scheduler/worker.h"

enum {
    CHUNK_MIN = 8, /* prompt tokens of a step, however long it takes */
    PIECE_MIN = 32 /* of a further prompt that are worth a place in it, unless no more are left */
};

static skv_want want_of(const skv_lane *lane, size_t n)
{
    const skv_job_params *p = &lane->job->params;
    if (lane->draft.n > 0) return SKV_WANT_DRAFTED;
    bool last = skv_lane_cached(lane) + n == lane->n_ids;
    if (p->pooling == SKV_POOLING_MEAN) return SKV_WANT_ALL_HIDDEN;
    if (p->pooling == SKV_POOLING_LAST) return last ? SKV_WANT_LAST_HIDDEN : SKV_WANT_NONE;
    if (p->prompt_logprobs && skv_lane_generated(lane) == 0) return SKV_WANT_ALL;
    return last && p->max_tokens > 0 ? SKV_WANT_LAST : SKV_WANT_NONE;
}

static void add_span(skv_scheduler *s, skv_lane *lane, size_t n)
{
    assert(s->n_spans < s->step_tokens && n >= 1);
    s->spans[s->n_spans] = (skv_span){.sequence = lane->sequence,
                                      .ids = lane->ids + skv_lane_cached(lane),
                                      .n = n,
                                      .want = want_of(lane, n)};
    s->span_lanes[s->n_spans++] = lane;
}

static bool is_answering(const skv_lane *lane)
{
    return lane->queue.state == SKV_LANE_DECODE && !skv_worker_wants_mask(lane);
}

/* One token of each, and drafts where the step has room for them; returns how many rows. */
static size_t add_answers(skv_scheduler *s, bool drafts)
{
    size_t n = 0, n_rows = 0;
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        skv_worker_undraft(lane);
        if (is_answering(lane)) s->span_lanes[n++] = lane;
    }
    if (drafts) skv_worker_draft(s, n);
    for (size_t i = 0; i < n; i++) {
        skv_lane *lane = s->span_lanes[i];
        n_rows += 1 + lane->draft.n;
        add_span(s, lane, 1 + lane->draft.n);
    }
    return n_rows;
}

/* How far a lane's ids may go into a step: rows are evicted right after the prompt. */
static size_t end_of(const skv_lane *lane)
{
    return lane->sequence->votes.votes ? lane->n_prompt : lane->n_ids;
}

/* The unread part of a lane's prompt: all but the last token, if a token would be chosen after
 * it and the mask for that is not ready. */
static size_t n_left(const skv_lane *lane)
{
    bool chooses = lane->job->params.max_tokens > 0 && skv_worker_wants_mask(lane);
    return end_of(lane) - skv_lane_cached(lane) - (chooses ? 1 : 0);
}

static bool is_readable(const skv_lane *lane)
{
    return lane->queue.state == SKV_LANE_PROMPT && n_left(lane) > 0;
}

static void look_at_prompts(skv_scheduler *s)
{
    skv_turns_begin(&s->turns);
    for (const skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (is_readable(lane)) skv_turns_see(&s->turns, lane->job->params.tenant);
    }
    skv_turns_settle(&s->turns);
}

/* The prompt whose turn it is among those that the step has no tokens of. */
static skv_lane *next_prompt(const skv_scheduler *s)
{
    skv_lane *best = NULL;
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (!is_readable(lane) || lane->composed == s->n_composed) continue;
        if (!best || skv_turns_overtakes(&s->turns, lane->job->params.tenant, n_left(lane),
                                         best->job->params.tenant, n_left(best))) {
            best = lane;
        }
    }
    return best;
}

/* Tokens that a prompt leaves go to the next one. A small part of a long one is left for another
 * step: in attention and products it costs more than it brings. */
static void add_prompts(skv_scheduler *s, size_t n_rows)
{
    size_t n_free = s->step_tokens - n_rows;
    double ns = skv_step_clock_room(&s->clock, n_rows, (double)s->mask_ns);
    s->n_composed++;
    for (bool first = true; n_free > 0; first = false) {
        skv_lane *lane = next_prompt(s);
        if (!lane) return;
        size_t n_seen = skv_lane_cached(lane), n_fit = skv_step_clock_fit(&s->clock, ns, n_seen);
        if (first) n_fit = skv_max_size(n_fit, CHUNK_MIN);
        size_t n = skv_min_size(n_left(lane), skv_min_size(n_fit, n_free));
        n = skv_worker_until_run(lane, n_seen, skv_worker_until_checkpoint(lane, n_seen, n));
        if (n == 0 || (!first && n < n_left(lane) && n < PIECE_MIN)) return;
        add_span(s, lane, n);
        n_free -= n;
        ns = fmax(0, ns - skv_step_clock_cost(&s->clock, skv_step_work_of(n, n_seen)));
        lane->composed = s->n_composed;
    }
}

static void account_for_prompts(skv_scheduler *s)
{
    for (size_t i = 0; i < s->n_spans; i++) {
        const skv_lane *lane = s->span_lanes[i];
        if (lane->queue.state != SKV_LANE_PROMPT) continue;
        skv_turns_give(&s->turns, lane->job->params.tenant, s->spans[i].n);
    }
}

size_t skv_worker_step_needs(const skv_scheduler *s, size_t first)
{
    size_t n = 0;
    for (size_t i = first; i < s->n_spans; i++) {
        const skv_lane *lane = s->span_lanes[i];
        size_t n_rows = (size_t)(s->spans[i].ids - lane->ids) + s->spans[i].n;
        n += skv_kv_cache_needs(&lane->sequence->cache, n_rows);
        if (n_rows == lane->n_prompt) n += skv_sequence_evict_needs(lane->sequence);
    }
    return n;
}

/* A step runs one method after the other: the student's spans stand before the teacher's. */
static void order_by_method(skv_scheduler *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        if (s->spans[i].sequence->plan != &s->engine->plan) continue;
        skv_span span = s->spans[i];
        skv_lane *lane = s->span_lanes[i];
        for (size_t j = i; j > n; j--) {
            s->spans[j] = s->spans[j - 1];
            s->span_lanes[j] = s->span_lanes[j - 1];
        }
        s->spans[n] = span;
        s->span_lanes[n++] = lane;
    }
}

bool skv_worker_compose(skv_scheduler *s)
{
    skv_worker_take_runs(s);
    look_at_prompts(s);
    for (bool drafts = true;; drafts = false) {
        s->n_spans = 0;
        add_prompts(s, add_answers(s, drafts));
        if (s->n_spans == 0) return false;
        if (skv_worker_make_room(s, skv_worker_step_needs(s, 0))) break;
        if (drafts) continue;
        if (skv_worker_preempt(s)) continue;
        skv_worker_end(s, s->span_lanes[0], SKV_FINISH_FAILED,
                       skv_text_of("the KV memory cannot hold this request"));
    }
    account_for_prompts(s);
    order_by_method(s);
    return true;
}
