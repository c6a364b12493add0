/*
 * What goes into a step: one token of every answer that is under way, and as many prompt tokens as
 * the time allows, dealt out among the prompts in turns, tenant by tenant.
 */
#include <assert.h>

#include "base/size.h"
#include "serve/worker.h"

enum { SHARE_MIN = 64 }; /* prompt tokens of one lane that are worth a place in a step */

static skv_want want_of(const skv_lane *lane, size_t n)
{
    const skv_job_params *p = &lane->job->params;
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

static void add_answers(skv_scheduler *s)
{
    for (skv_lane *lane = s->oldest; lane; lane = lane->next) {
        if (lane->state == SKV_LANE_DECODE) add_span(s, lane, 1);
    }
}

/* Whether a prompt's turn comes before another's. */
static bool goes_before(const skv_scheduler *s, const skv_lane *a, const skv_lane *b)
{
    uint64_t turn_a = s->tenant_turns[a->job->params.tenant % SKV_TENANT_TURNS];
    uint64_t turn_b = s->tenant_turns[b->job->params.tenant % SKV_TENANT_TURNS];
    return turn_a < turn_b || (turn_a == turn_b && a->turn < b->turn);
}

/* The prompt whose turn it is among those without a turn since `since`. */
static skv_lane *next_prompt(const skv_scheduler *s, uint64_t since)
{
    skv_lane *best = NULL;
    for (skv_lane *lane = s->oldest; lane; lane = lane->next) {
        if (lane->state != SKV_LANE_PROMPT || lane->turn > since) continue;
        if (!best || goes_before(s, lane, best)) best = lane;
    }
    return best;
}

static size_t count_prompts(const skv_scheduler *s)
{
    size_t n = 0;
    for (const skv_lane *lane = s->oldest; lane; lane = lane->next) {
        n += lane->state == SKV_LANE_PROMPT;
    }
    return n;
}

/* How far a lane's ids may go into a step: rows are evicted right behind the prompt. */
static size_t end_of(const skv_lane *lane)
{
    return lane->sequence->votes.votes ? lane->n_prompt : lane->n_ids;
}

static void add_prompts(skv_scheduler *s, size_t budget)
{
    uint64_t since = s->turn;
    size_t n_lanes = skv_min_size(count_prompts(s), skv_max_size(1, budget / SHARE_MIN));
    for (; n_lanes > 0 && budget > 0; n_lanes--) {
        skv_lane *lane = next_prompt(s, since);
        size_t n_left = end_of(lane) - skv_lane_cached(lane);
        size_t n = skv_min_size(n_left, skv_max_size(1, budget / n_lanes));
        add_span(s, lane, n);
        budget -= n;
        lane->turn = ++s->turn;
        s->tenant_turns[lane->job->params.tenant % SKV_TENANT_TURNS] = s->turn;
    }
}

static size_t needed_pages(const skv_scheduler *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        const skv_lane *lane = s->span_lanes[i];
        size_t n_rows = skv_lane_cached(lane) + s->spans[i].n;
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
    for (;;) {
        s->n_spans = 0;
        add_answers(s);
        add_prompts(s, skv_step_clock_budget(&s->clock, s->n_spans));
        if (s->n_spans == 0) return false;
        if (skv_worker_make_room(s, needed_pages(s))) break;
        if (skv_worker_preempt(s)) continue;
        skv_worker_end(s, s->span_lanes[0], SKV_FINISH_FAILED,
                       skv_text_of("the KV memory cannot hold this request"));
    }
    order_by_method(s);
    return true;
}
