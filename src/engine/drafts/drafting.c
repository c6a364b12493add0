/* Drafts for the sequences of a step, and their fate: see draft.h. */
#include <assert.h>

#include "base/size.h"
#include "base/system.h"
#include "drafts/draft.h"
#include "engine/engine.h"

/* Tokens that may be drafted; a step has the next token and the draft, and the sequence has room
 * for both. */
static size_t prepare(const skv_draft_request *r)
{
    skv_sequence *s = r->sequence;
    const skv_drafter *d = s->drafter;
    const size_t room = skv_min_size(s->max_tokens - s->n_seen, s->engine->options.step_tokens);
    if (!d || room < 2) return 0;
    skv_sequence_keep_ready(s, 0);
    s->ids[s->n_seen] = r->next;
    return skv_min_size(skv_min_size(r->most, room - 1), d->most);
}

/* The requests from i on that a model drafts for in the same steps as for that one. */
static size_t together(const skv_draft_request *r, size_t i, size_t n)
{
    const skv_sequence *first = r[i].sequence;
    size_t end = i + 1;
    for (; end < n && end - i < SKV_LOGIT_ROWS; end++) {
        const skv_sequence *s = r[end].sequence;
        const skv_drafter *d = s->drafter;
        if (!d || !d->asks || s->plan != first->plan) break;
        if (d->model != first->drafter->model) break;
    }
    return end - i;
}

static void propose_text(skv_draft_request *r)
{
    const skv_sequence *s = r->sequence;
    skv_drafter *d = s->drafter;
    r->n = 0;
    r->most = prepare(r);
    if (r->most == 0) return;
    d->last = d->text ? d->text->id : d->model->id;
    if (!d->text) return;
    r->n = d->text->propose(d->state, s->ids, s->n_seen + 1, r->out, r->most, &d->n_match);
}

/* Tokens that a model apart has read for these requests. */
static size_t tokens_read(const skv_draft_request *r, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        const skv_drafter *d = r[i].sequence->drafter;
        sum += d->model->is_apart ? d->cache.n_rows : 0;
    }
    return sum;
}

/* A model drafts for n requests, in the same steps. */
static void run_model(skv_draft_request *r, size_t n, const skv_draft_step *step)
{
    skv_engine *e = r->sequence->engine;
    const skv_draft_method *model = r->sequence->drafter->model;
    size_t longest = 0;
    const size_t before = tokens_read(r, n);
    const uint64_t start = skv_clock_ns();
    const bool counts = model->run(r, n, step);
    const double ns = (double)(skv_clock_ns() - start);
    for (size_t i = 0; i < n; i++) {
        r[i].sequence->drafter->last = model->id;
        longest = skv_max_size(longest, r[i].n);
        /* Sequences without drafts are not settled. */
        if (r[i].n == 0) skv_draft_plan_learn(r[i].sequence, 0, 0);
    }
    skv_draft_cost *cost = skv_draft_cost_of(&e->draft_costs, step->n_sequences);
    /* It has run the token before the draft as well. */
    if (cost && counts) skv_draft_cost_learn_model(cost, model->id, 1 + longest, ns);
    const size_t n_tokens = tokens_read(r, n) - before;
    if (!counts && n_tokens > 0) skv_draft_cost_learn_read(&e->draft_costs, n_tokens, ns);
}

/* Tokens that a model drafts for AUTO: some more than were right of late, so that drafts that are
 * not right stay short. */
static size_t longest_of(const skv_drafter *d)
{
    return d->measures ? 2 + (size_t)(2 * d->gain.right) : SKV_DRAFT_MAX;
}

/* The sequences that a model drafts for; the remaining rows are divided among them. */
static void divide_rows(skv_draft_request *requests, size_t n, const skv_draft_step *step,
                        size_t n_rows)
{
    size_t n_asking = 0;
    for (size_t i = 0; i < n; i++) {
        skv_draft_request *r = &requests[i];
        skv_drafter *d = r->sequence->drafter;
        if (!d) continue;
        d->asks = r->most > 0 && d->model && skv_draft_plan_asks(r, step);
        n_asking += d->asks;
    }
    const size_t share = n_rows / skv_max_size(1, n_asking);
    for (size_t i = 0; i < n; i++) {
        skv_drafter *d = requests[i].sequence->drafter;
        if (!d || !d->asks) continue;
        requests[i].most = skv_min_size(requests[i].most, skv_min_size(share, longest_of(d)));
        d->asks = share > 0;
    }
}

void skv_sequences_draft_for(skv_draft_request *requests, size_t n, const skv_draft_step *step)
{
    for (size_t i = 0; i < n; i++) propose_text(&requests[i]);
    const size_t n_rows = skv_draft_plan_texts(requests, n, step);
    divide_rows(requests, n, step, step->n_rows - n_rows);
    for (size_t i = 0, n_same; i < n; i += n_same) {
        const skv_drafter *d = requests[i].sequence->drafter;
        n_same = d && d->asks ? together(requests, i, n) : 1;
        if (d && d->asks) run_model(&requests[i], n_same, step);
    }
}

void skv_sequences_draft(skv_draft_request *requests, size_t n)
{
    const skv_draft_step step = {.n_sequences = n, .n_rows = SIZE_MAX};
    skv_sequences_draft_for(requests, n, &step);
}

size_t skv_sequence_draft(skv_sequence *s, int32_t next, int32_t *out, size_t most)
{
    skv_draft_request request = {.sequence = s, .next = next, .out = out, .most = most};
    skv_sequences_draft(&request, 1);
    return request.n;
}

void skv_sequence_settle(skv_sequence *s, size_t n_drafted, size_t n_right)
{
    skv_drafter *d = s->drafter;
    assert(d && n_right <= n_drafted && n_drafted < s->n_seen);
    skv_sequence_truncate(s, s->n_seen - (n_drafted - n_right));
    d->counts[d->last].drafted += n_drafted;
    d->counts[d->last].accepted += n_right;
    skv_draft_plan_learn(s, n_drafted, n_right);
}

skv_draft_counts skv_sequence_drafts(const skv_sequence *s, skv_drafting source)
{
    const skv_drafter *d = s->drafter;
    return d ? d->counts[source] : (skv_draft_counts){0};
}
