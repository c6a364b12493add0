/*
 * SwiftKV drafts for itself (arXiv:2410.03960, B.4): a row runs layers 0..l-1, and the exit head
 * says what may follow it. x_l already gives the keys and values of all deep layers (equation 2),
 * so they are written as the row is drafted and the next row can go on. x_l of each row is kept:
 * checking runs the deep layers for all of them at once from there, and nothing is computed twice.
 *
 *     next -> layers 0..l-1 -> x_l -> exit: d1, sure of it
 *     d1   -> layers 0..l-1 -> x_l -> exit: d2, unsure: the draft is d1
 *     next, d1: layers l..L-1 at once, from the x_l that are there
 *
 * The exit's head may have the rows of the frequent words alone (FR-Spec, arXiv:2502.14856): each
 * drafted token reads it whole, and most tokens are frequent ones. Then it is sure of a token among
 * those; where another one comes, the draft is wrong and checking says so.
 */
#include <assert.h>

#include "drafts/draft_walk.h"
#include "engine/engine.h"

/* A row on its way, of one sequence. */
typedef struct drafted_row {
    skv_draft_request *request;
    skv_rows x;   /* [1, D]: where its residual stream is kept */
    int32_t best; /* the exit's most likely token */
    bool sure;    /* of it, as the request wants */
} drafted_row;

typedef struct drafting {
    drafted_row rows[SKV_LOGIT_ROWS];
    size_t n_rows;
    bool asks; /* the exit's head is read */
} drafting;

static void ask_exit(skv_pass *p, drafting *d)
{
    const size_t W = p->m->n_exit_ids;
    const int32_t *ids = p->m->exit_ids;
    skv_pass_exit(p, 0, d->n_rows);
    skv_pass_pick_best(p, W, d->n_rows);
    for (size_t i = 0; i < d->n_rows; i++) {
        const skv_picked picked = skv_pass_picked(p, i);
        const int32_t best = picked.best.id;
        d->rows[i].best = ids ? ids[best] : best;
        d->rows[i].sure = skv_drafter_is_sure(d->rows[i].request->sequence->drafter, &picked);
    }
}

/* The rows are at boundary l, and their keys and values are written. They go no further now. */
static void stop_at_boundary(void *user, skv_pass *p, size_t i_layer)
{
    drafting *d = user;
    const size_t D = p->c->hidden;
    if (i_layer != p->plan->stack_boundary) return;
    assert(p->n_alive == d->n_rows);
    for (size_t i = 0; i < d->n_rows; i++) {
        p->be->copy_rows(p->be, d->rows[i].x, skv_rows_from(p->ws->x, i, 0), 1, D);
    }
    if (d->asks) ask_exit(p, d);
    skv_pass_keep(p, 0);
}

/* A row could not be run: the draft ends with the one before it. */
static void give_up(skv_draft_request *r)
{
    skv_sequence *s = r->sequence;
    skv_kv_cache_truncate(&s->cache, s->n_seen + s->drafter->ready.n);
    if (r->n > 0) r->n--;
}

static void begin(void *user)
{
    *(drafting *)user = (drafting){.n_rows = 0};
}

/* The next row of a request: the token behind its ready rows. False where pages are short. */
static bool add_row(void *user, skv_draft_request *r)
{
    drafting *d = user;
    skv_sequence *s = r->sequence;
    skv_engine *e = s->engine;
    const size_t n_ready = s->drafter->ready.n, at = s->n_seen + n_ready;
    if (skv_kv_cache_grow(&s->cache, at + 1, NULL) != SKV_OK) {
        give_up(r);
        return false;
    }
    e->spans[d->n_rows] = skv_step_span(s, s->ids + at, 1, at);
    d->rows[d->n_rows++] =
        (drafted_row){.request = r, .x = skv_ready_rows_from(&s->drafter->ready, n_ready)};
    d->asks = d->asks || r->n < s->drafter->most;
    return true;
}

/* Runs the rows as far as the exit. */
static skv_status run_rows(void *user)
{
    drafting *d = user;
    const skv_sequence *first = d->rows[0].request->sequence;
    skv_engine *e = first->engine;
    const skv_hook hook = {.user = d, .before_layer = stop_at_boundary};
    skv_pass pass = skv_step_pass(e, first, NULL, &hook);
    pass.spans = e->spans;
    pass.n_spans = d->n_rows;
    return skv_draft_pass_run(e, &pass);
}

/* The row is one of the ready rows now. */
static bool settle(void *user, size_t i, skv_status status)
{
    const drafting *d = user;
    const drafted_row *row = &d->rows[i];
    skv_draft_request *r = row->request;
    if (status != SKV_OK) {
        give_up(r);
        return false;
    }
    r->sequence->drafter->ready.n++;
    return r->n < r->most && row->sure && skv_draft_take(r, row->best);
}

static bool run(skv_draft_request *requests, size_t n, const skv_draft_step *step)
{
    drafting d = {.n_rows = 0};
    const skv_draft_walk walk = {
        .begin = begin, .add = add_row, .run = run_rows, .settle = settle, .user = &d};
    (void)step;
    skv_draft_walk_run(&walk, requests, n);
    return true;
}

const skv_draft_method skv_draft_self = {
    .name = "self",
    .id = SKV_DRAFT_SELF,
    .most = 8,
    .sure = 0.4,
    .run = run,
    .keeps_rows = true,
};
