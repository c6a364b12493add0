/*
 * Runs of a prompt that an earlier one of its domain has at another place (cache_shift): their rows
 * are taken over, with keys that are turned to the new positions. They have seen another text
 * before them, so the prompt is approximate from there on, and its blocks stay in memory: neither
 * the disk nor a store gets them.
 *
 * A run is looked for where the lane stands; a step of the prompt ends where the next one begins,
 * and there it is looked for again, since its blocks may have gone.
 */
#include "base/mem.h"
#include "base/size.h"
#include "scheduler/worker.h"

enum { RUN_TOKENS = 256 };

skv_status skv_worker_open_shift(skv_scheduler *s, skv_error *err)
{
    if (!s->options.cache_shift) return SKV_OK;
    const skv_engine *e = s->engine;
    const skv_model_traits model = skv_model_traits_of(e->config, e->source);
    const skv_combination c = skv_combination_of(&model, &e->options, SKV_WHERE_SHIFT);
    SKV_TRY(skv_combination_check(&c, err));
    SKV_REQUIRE(!s->options.readers, err, SKV_UNSUPPORTED,
                "cache-shift: not with readers, whose blocks continue exact prompts alone");
    SKV_REQUIRE(!e->options.prompt_only, err, SKV_UNSUPPORTED,
                "cache-shift: not where prompts are read for others, whose blocks are exact");
    SKV_REQUIRE(!e->ranks, err, SKV_UNSUPPORTED,
                "cache-shift: not with several ranks, which know the beginnings of prompts alone");
    return s->prefix ? skv_prefix_index_find_runs(s->prefix, err) : SKV_OK;
}

/* Of n_found tokens, n_taken stand in blocks with rows from elsewhere. A lane that was put back
 * counts no more, but tells that it is approximate. */
static void count_taken(skv_scheduler *s, skv_lane *lane, size_t n_found, size_t n_taken)
{
    skv_job_stats *stats = &lane->job->stats;
    lane->shift.n_taken += n_taken;
    if (lane->shift.counts) {
        s->tally.prefix_hits_tokens += n_found;
        s->tally.prefix_shift_tokens += n_found;
    }
    pthread_mutex_lock(&lane->job->lock);
    if (lane->shift.counts) stats->cached_tokens += n_found;
    stats->shifted_tokens = skv_max_size(stats->shifted_tokens, lane->shift.n_taken);
    stats->cached_tokens = skv_max_size(stats->cached_tokens, stats->shifted_tokens);
    pthread_mutex_unlock(&lane->job->lock);
}

void skv_worker_begin_shift(skv_scheduler *s, skv_lane *lane, size_t n_usable, bool counts)
{
    lane->shift = (skv_lane_shift){.counts = counts};
    if (!s->options.cache_shift || !s->prefix) return;
    const size_t n_taken =
        skv_prefix_index_taken(s->prefix, lane->job->domain, lane->ids, skv_lane_cached(lane));
    lane->shift.end = n_usable;
    lane->shift.approximate = n_taken > 0;
    count_taken(s, lane, 0, n_taken);
}

void skv_worker_share_shift(const skv_lane *from, skv_lane *fork)
{
    fork->shift = from->shift;
    fork->shift.end = 0;
}

bool skv_worker_is_approximate(const skv_lane *lane)
{
    return lane->shift.approximate || lane->shift.n_parts > 0;
}

size_t skv_worker_until_run(const skv_lane *lane, size_t n_seen, size_t n)
{
    const size_t next = lane->shift.next;
    return lane->shift.end > 0 && next > n_seen ? skv_min_size(n, next - n_seen) : n;
}

/* The lane's sequence goes on with the run; false: there is no room for it. */
static bool take(skv_scheduler *s, skv_lane *lane, const skv_prefix_run *run)
{
    skv_sequence *sequence = lane->sequence;
    const size_t n_bundles = sequence->cache.layout->n_bundles, n_pages = run->n / SKV_PAGE_ROWS;
    uint32_t *pages = skv_alloc(n_bundles * n_pages, sizeof *pages);
    if (!pages) return false;
    skv_prefix_index_hold_run(s->prefix, run, pages);
    const size_t n_needed = skv_kv_cache_needs(&sequence->cache, run->at + run->n);
    const bool taken = skv_worker_make_room(s, n_needed) &&
                       skv_sequence_take_run(sequence, lane->ids + run->at, run->n, pages, n_pages,
                                             run->from, NULL) == SKV_OK;
    for (size_t i = 0; i < n_bundles * n_pages; i++) {
        skv_kv_page_drop(s->engine->store, pages[i]);
    }
    skv_free(pages);
    return taken;
}

/* Whether the lane stood at a run and goes on after it. */
static bool take_next(skv_scheduler *s, skv_lane *lane)
{
    skv_lane_shift *shift = &lane->shift;
    const size_t n_seen = skv_lane_cached(lane);
    skv_prefix_run run;
    if (shift->end == 0 || n_seen < shift->next || shift->n_parts == SKV_LANE_PARTS) return false;
    if (!skv_prefix_index_run(s->prefix, lane->job->domain, lane->ids, n_seen, shift->end,
                              RUN_TOKENS, &run)) {
        shift->end = 0;
        return false;
    }
    shift->next = run.at;
    if (run.at > n_seen) return false;
    if (!take(s, lane, &run)) {
        shift->end = 0;
        return false;
    }
    shift->parts[shift->n_parts++] = (skv_prefix_part){run.at, run.n};
    count_taken(s, lane, run.n, run.n);
    return true;
}

void skv_worker_take_runs(skv_scheduler *s)
{
    if (!s->options.cache_shift) return;
    for (skv_lane *lane = s->oldest; lane; lane = lane->queue.next) {
        if (lane->queue.state != SKV_LANE_PROMPT) continue;
        while (take_next(s, lane)) continue;
    }
}
