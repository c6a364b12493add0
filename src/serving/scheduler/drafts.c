/*
 * Drafts of answers: the rows that a lane gets behind its next token, and what becomes of them.
 * They stand behind the lane's ids, so a right one becomes an id where it is. Drafts never put a
 * lane back, and get only rows that cost little beside the answers of the step.
 */
#include <assert.h>

#include "base/size.h"
#include "scheduler/worker.h"

/* Rows of a step's answers beyond which arithmetic binds, not reading weights, about. */
enum { ROWS_CHEAP = 16 };

void skv_worker_draft(const skv_scheduler *s, skv_lane *lane, size_t n_rows)
{
    lane->draft = (skv_lane_draft){.n = 0};
    const size_t n_left = lane->job->params.max_tokens - skv_lane_generated(lane);
    const size_t n_cheap = skv_min_size(ROWS_CHEAP, s->step_tokens);
    if (!lane->sequence->drafter || n_left < 2 || n_rows >= n_cheap) return;
    if (skv_lane_cached(lane) + 1 != lane->n_ids) return; /* a step of it was cancelled */
    const size_t most = skv_min_size(n_left - 1, n_cheap - n_rows);
    lane->draft.n = skv_sequence_draft(lane->sequence, lane->ids[lane->n_ids - 1],
                                       lane->ids + lane->n_ids, most);
}

void skv_worker_undraft(skv_lane *lane)
{
    if (lane->sequence) skv_sequence_keep_ready(lane->sequence, 0);
    lane->draft = (skv_lane_draft){.n = 0};
}

bool skv_worker_drafted(const skv_lane *lane, int32_t id)
{
    const skv_lane_draft *d = &lane->draft;
    return d->n_right < d->n && lane->ids[lane->n_ids] == id;
}

void skv_worker_right(skv_lane *lane)
{
    lane->draft.n_right++;
}

void skv_worker_settle(skv_scheduler *s, skv_lane *lane)
{
    const skv_lane_draft d = lane->draft;
    if (d.n == 0) return;
    assert(d.n_right <= d.n);
    skv_sequence_settle(lane->sequence, d.n, d.n_right);
    /* Without a choice behind it, the last id is read again when its mask is ready. */
    if (!lane->choice.pending) skv_sequence_truncate(lane->sequence, lane->n_ids - 1);
    lane->draft = (skv_lane_draft){.n = 0};
    s->tally.drafted += d.n;
    s->tally.drafts_accepted += d.n_right;
    pthread_mutex_lock(&lane->job->lock);
    lane->job->stats.drafted += d.n;
    lane->job->stats.drafts_accepted += d.n_right;
    pthread_mutex_unlock(&lane->job->lock);
}
