/*
 * Plans how many tokens are drafted for a step, and from which sources: see draft.h, and
 * draft_cost.h for the arithmetic.
 *
 * Rows of texts go one by one to the text whose next token is most likely right, all tokens before
 * it included. A source that was chosen by name drafts as long as that is not unlikely, one token
 * at least; AUTO as long as it pays.
 */
#include <math.h>

#include "drafts/draft.h"
#include "engine/engine.h"

/* A text that was asked for by name ends before a token that is less likely right. */
#define LIKELY 0.25
/* The factor that allows for errors of measurement: AUTO drafts if it pays by this much. */
#define MARGIN 1.05
/* Part of AUTO's time that may go into prompts for models of which nothing good is known. */
#define SPARE_PART 0.01
/* The share of a step that a token of such a prompt takes, before one was read. */
#define READ_GUESS 0.0625

/* A step as it is planned. */
typedef struct plan {
    const skv_draft_cost *cost; /* NULL: too many sequences */
    size_t n_sequences;
    double row;    /* the cost of a drafted row, as a part of a step */
    double tokens; /* that are expected of the step */
    size_t n_rows; /* drafted ones */
} plan;

static plan begin_plan(skv_engine *e, const skv_draft_step *step)
{
    plan p = {.cost = skv_draft_cost_of(&e->draft_costs, step->n_sequences),
              .n_sequences = step->n_sequences,
              .tokens = (double)step->n_sequences};
    if (p.cost) p.row = skv_draft_cost_row(p.cost);
    return p;
}

/* The probability that the token after n_match tokens of a text is right. */
static double chance_of(const skv_drafter *d, size_t n_match)
{
    return skv_draft_chance(&d->chances, &d->learnt->chances, n_match);
}

/* Of the domain, in steps like this one; needs p->cost. */
static skv_draft_wait *wait_of(const plan *p, const skv_drafter *d)
{
    return &d->learnt->waits[p->n_sequences - 1];
}

static bool pays(const plan *p, double chance)
{
    return chance * (1 + p->row * (double)p->n_rows) > MARGIN * p->row * p->tokens;
}

static bool may_have_more(const plan *p, const skv_draft_request *r)
{
    const skv_drafter *d = r->sequence->drafter;
    if (!d || d->n_kept == r->n) return false;
    if (!d->measures) return d->n_kept == 0 || d->chance >= LIKELY;
    return p->cost && skv_draft_cost_is_fresh(p->cost) && pays(p, d->chance);
}

/* The text that gets the next row, or NULL. */
static skv_draft_request *next_row(const plan *p, skv_draft_request *requests, size_t n)
{
    skv_draft_request *best = NULL;
    for (size_t i = 0; i < n; i++) {
        skv_draft_request *r = &requests[i];
        if (r->n == 0 || !may_have_more(p, r)) continue;
        if (!best || r->sequence->drafter->chance > best->sequence->drafter->chance) best = r;
    }
    return best;
}

static void add_row(plan *p, const skv_draft_request *r)
{
    skv_drafter *d = r->sequence->drafter;
    p->tokens += d->chance;
    p->n_rows++;
    d->n_kept++;
    d->chance *= chance_of(d, d->n_match + d->n_kept);
}

static bool may_try(const skv_draft_request *r)
{
    const skv_drafter *d = r->sequence->drafter;
    return d && r->n > 0 && d->measures;
}

/* Whether one of the first n requests may try for this domain. */
static bool may_try_before(const skv_draft_request *requests, size_t n, const skv_draft_learnt *of)
{
    for (size_t i = 0; i < n; i++) {
        if (may_try(&requests[i]) && requests[i].sequence->drafter->learnt == of) return true;
    }
    return false;
}

/* Nothing seems to pay. One row now and then, for a domain, tells whether that has changed. */
static void try_one(plan *p, const skv_draft_request *requests, size_t n)
{
    if (!p->cost || p->cost->step_ns == 0) return;
    for (size_t i = 0; i < n; i++) {
        const skv_drafter *d = requests[i].sequence->drafter;
        if (!may_try(&requests[i]) || may_try_before(requests, i, d->learnt)) continue;
        if (!skv_draft_wait_is_over(wait_of(p, d))) continue;
        add_row(p, &requests[i]);
        return;
    }
}

size_t skv_draft_plan_texts(skv_draft_request *requests, size_t n, const skv_draft_step *step)
{
    if (n == 0) return 0;
    plan p = begin_plan(requests[0].sequence->engine, step);
    for (size_t i = 0; i < n; i++) {
        skv_drafter *d = requests[i].sequence->drafter;
        if (!d || requests[i].n == 0) continue;
        d->n_kept = 0;
        d->chance = chance_of(d, d->n_match);
    }
    for (skv_draft_request *r; p.n_rows < step->n_rows && (r = next_row(&p, requests, n));) {
        add_row(&p, r);
        if (p.cost) skv_draft_wait_reset(wait_of(&p, r->sequence->drafter));
    }
    if (p.n_rows == 0 && step->n_rows > 0) try_one(&p, requests, n);
    for (size_t i = 0; i < n; i++) {
        const skv_drafter *d = requests[i].sequence->drafter;
        if (d && requests[i].n > 0) requests[i].n = d->n_kept;
    }
    return p.n_rows;
}

/* ---- models ---- */

/* Times plain decoding that a text of n tokens is expected to give a sequence. */
static double text_gain(const plan *p, const skv_drafter *d, size_t n)
{
    double tokens = 1, chance = 1;
    for (size_t i = 0; i < n; i++) {
        chance *= chance_of(d, d->n_match + i);
        tokens += chance;
    }
    return tokens / (1 + p->row * (double)n);
}

/* The speed, in times of plain decoding, that drafts of the sequence's model have given it; a
 * value that is not known yet is worth finding out. */
static double model_gain(const plan *p, const skv_drafter *d, size_t n_sequences)
{
    const skv_draft_cost *c = p->cost;
    const double draft_ns = c->draft_ns[d->model->id];
    const bool ready = d->model->keeps_rows;
    if (draft_ns == 0 || (ready && c->ready_ns == 0) || !d->gain.known) return HUGE_VAL;
    const double check_ns = ready ? c->ready_ns : c->step_ns;
    const double n_rows = d->gain.drafted * (double)n_sequences;
    const double ns = (1 + d->gain.drafted) * draft_ns + check_ns * (1 + p->row * n_rows);
    return (1 + d->gain.right) * c->step_ns / ns;
}

/* Whether AUTO lets a model read a prompt that it has not read. Where its drafts are known to pay,
 * it may once the answer is so long that they would have saved as much: answers that are that long
 * go on as long again, about. Else once all answers of the domain took so long that it does not
 * count. */
static bool may_read(const plan *p, skv_sequence *s, size_t n_sequences)
{
    skv_drafter *d = s->drafter;
    const skv_draft_costs *all = &s->engine->draft_costs;
    skv_draft_learnt *learnt = d->learnt;
    if (!d->model->is_apart || d->cache.n_rows + SKV_DRAFT_MAX >= s->n_seen) return true;
    if (d->reads) return true;
    const double share = p->cost->step_ns / (double)n_sequences;
    const double token_ns = all->read_ns > 0 ? all->read_ns : READ_GUESS * p->cost->step_ns;
    const double read_ns = (double)(s->n_seen - d->cache.n_rows) * token_ns;
    const double gain = model_gain(p, d, n_sequences);
    d->spare_ns += share;
    learnt->spare_ns += share;
    if (gain < HUGE_VAL) {
        d->reads = d->spare_ns * (1 - MARGIN / gain) >= read_ns;
    } else if (SPARE_PART * learnt->spare_ns >= read_ns) {
        learnt->spare_ns = 0;
        d->reads = true;
    }
    return d->reads;
}

bool skv_draft_plan_asks(skv_draft_request *r, const skv_draft_step *step)
{
    skv_sequence *s = r->sequence;
    const skv_drafter *d = s->drafter;
    if (!d->measures) return r->n == 0;
    const plan p = begin_plan(s->engine, step);
    if (!p.cost || !skv_draft_cost_is_fresh(p.cost)) return false;
    if (!may_read(&p, s, step->n_sequences)) return false;
    const double gain = model_gain(&p, d, step->n_sequences);
    if (r->n > 0 && gain < MARGIN * text_gain(&p, d, r->n)) return false;
    if (gain > MARGIN) {
        skv_draft_wait_reset(wait_of(&p, d));
    } else if (r->n > 0 || !skv_draft_wait_is_over(wait_of(&p, d))) {
        return false;
    }
    r->n = 0;
    return true;
}

void skv_draft_plan_learn_step(skv_engine *e, const skv_span *spans, size_t n_spans, double ns)
{
    size_t n_rows = 0, n_ready = 0, n_measuring = 0;
    for (size_t i = 0; i < n_spans; i++) {
        const skv_drafter *d = spans[i].sequence->drafter;
        const bool answers = spans[i].want == SKV_WANT_DRAFTED ||
                             (spans[i].want == SKV_WANT_LAST && spans[i].n == 1);
        if (!answers) return;
        n_rows += spans[i].n - 1;
        n_ready += d && d->ready.n > 0;
        n_measuring += d && d->measures;
    }
    skv_draft_cost *cost = skv_draft_cost_of(&e->draft_costs, n_spans);
    if (!cost || n_measuring == 0 || (n_ready > 0 && n_ready < n_spans)) return;
    skv_draft_cost_learn(cost, n_rows, n_ready > 0, ns);
}

void skv_draft_plan_learn(skv_sequence *s, size_t n_drafted, size_t n_right)
{
    skv_drafter *d = s->drafter;
    skv_draft_learnt *all = d->learnt;
    if (d->last == SKV_DRAFT_TEXT) {
        skv_draft_chances_learn(&d->chances, d->n_match, n_drafted, n_right);
        skv_draft_chances_learn(&all->chances, d->n_match, n_drafted, n_right);
    } else {
        skv_draft_gain_learn(&d->gain, n_drafted, n_right);
        skv_draft_gain_learn(&all->gains[d->last], n_drafted, n_right);
    }
}
