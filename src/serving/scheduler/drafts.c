/*
 * Drafts of answers: the rows that a lane gets after its next token, and their fate. They follow
 * the lane's ids, so a right one becomes an id in place. Drafts never put a lane back, and get only
 * rows that cost little beside the answers of the step.
 */
#include <assert.h>

#include "base/size.h"
#include "scheduler/worker.h"

/* Rows of a step's answers, drafts included, up to which a source drafts that was chosen by
 * name: beyond them arithmetic binds, not reading weights, about. AUTO has measured their cost. */
enum { ROWS_CHEAP = 16, ROWS_MOST = 64 };

/* As many tokens as the answer may still have, or the step has cheap rows for. */
static skv_draft_request request_of(const skv_lane *lane, size_t n_rows)
{
    const size_t n_left = lane->job->params.max_tokens - skv_lane_generated(lane);
    const bool cancelled = skv_lane_cached(lane) + 1 != lane->n_ids; /* a step of it was */
    return (skv_draft_request){.sequence = lane->sequence,
                               .next = lane->ids[lane->n_ids - 1],
                               .out = lane->ids + lane->n_ids,
                               .most =
                                   cancelled || n_left < 2 ? 0 : skv_min_size(n_left - 1, n_rows)};
}

/* The texts that a lane's drafts may follow. A domain that was idle may have made way for
 * others, so it is looked up each time. */
static void enter_domain(skv_scheduler *s, const skv_lane *lane)
{
    skv_draft_domain *domain = skv_draft_domains_of(&s->drafts, lane->job->domain);
    skv_sequence_set_learnt(lane->sequence, &domain->learnt);
    skv_sequence_set_history(lane->sequence, domain->history);
}

void skv_worker_draft(skv_scheduler *s, size_t n)
{
    static_assert((int)ROWS_MOST <= (int)SKV_DRAFT_DOMAINS, "their domains stand together");
    skv_draft_request requests[ROWS_MOST];
    const skv_lane *drafting[ROWS_MOST];
    size_t n_drafting = 0, n_cheap = ROWS_CHEAP;
    for (size_t i = 0; i < n && n_drafting < ROWS_MOST; i++) {
        const skv_drafter *drafter = s->span_lanes[i]->sequence->drafter;
        if (!drafter) continue;
        if (drafter->measures) n_cheap = ROWS_MOST;
        enter_domain(s, s->span_lanes[i]);
        drafting[n_drafting++] = s->span_lanes[i];
    }
    n_cheap = skv_min_size(n_cheap, s->step_tokens);
    if (n_drafting == 0 || n >= n_cheap) return;
    for (size_t i = 0; i < n_drafting; i++) requests[i] = request_of(drafting[i], n_cheap - n);
    const skv_draft_step step = {.n_sequences = n, .n_rows = n_cheap - n};
    skv_sequences_draft_for(requests, n_drafting, &step);
    for (size_t i = 0, k = 0; i < n && k < n_drafting; i++) {
        if (s->span_lanes[i] == drafting[k]) s->span_lanes[i]->draft.n = requests[k++].n;
    }
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

void skv_worker_keep_answer(skv_scheduler *s, const skv_lane *lane)
{
    const skv_drafter *drafter = lane->sequence ? lane->sequence->drafter : NULL;
    if (!drafter || !drafter->text) return;
    skv_draft_domains_add(&s->drafts, lane->job->domain, lane->ids + lane->n_prompt,
                          skv_lane_generated(lane));
}

void skv_worker_settle(skv_scheduler *s, skv_lane *lane)
{
    const skv_lane_draft d = lane->draft;
    if (d.n == 0) return;
    assert(d.n_right <= d.n);
    enter_domain(s, lane);
    skv_sequence_settle(lane->sequence, d.n, d.n_right);
    /* Without a choice after it, the last id is read again when its mask is ready. */
    if (!lane->choice.pending) skv_sequence_truncate(lane->sequence, lane->n_ids - 1);
    lane->draft = (skv_lane_draft){.n = 0};
    const skv_drafting source = lane->sequence->drafter->last;
    skv_draft_counts *all = &s->tally.drafts[source], *own = &lane->job->stats.drafts[source];
    s->tally.settled_drafts++;
    all->drafted += d.n;
    all->accepted += d.n_right;
    pthread_mutex_lock(&lane->job->lock);
    own->drafted += d.n;
    own->accepted += d.n_right;
    pthread_mutex_unlock(&lane->job->lock);
}
