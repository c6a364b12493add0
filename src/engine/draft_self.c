/*
 * SwiftKV drafts for itself (arXiv:2410.03960, B.4): a row runs layers 0..l-1, and the exit head
 * says what may follow it. x_l already gives the keys and values of all deep layers (equation 2),
 * so they are written as the row is drafted and the next row can go on. x_l of each row is kept:
 * checking runs the deep layers for all of them at once from there, and nothing is computed twice.
 *
 *     next -> layers 0..l-1 -> x_l -> exit: d1, sure of it
 *     d1   -> layers 0..l-1 -> x_l -> exit: d2, unsure: the draft is d1
 *     next, d1: layers l..L-1 at once, from the x_l that are there
 */
#include <assert.h>
#include <math.h>

#include "engine/engine.h"
#include "model/pass.h"

/* Logits that are further below the best one count as nothing. */
#define FAR_BELOW 20.0f

typedef struct drafting {
    float *x;      /* [D]: of the row */
    bool asks;     /* the exit's head is read */
    size_t best;   /* the exit's most likely token */
    double chance; /* its probability */
} drafting;

/* 1 / sum of exp(logit - best one). */
static double chance_of(const float *logits, size_t n, size_t best)
{
    const float top = logits[best];
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (logits[i] > top - FAR_BELOW) sum += (double)expf(logits[i] - top);
    }
    return 1 / sum;
}

/* The row is at boundary l, and its keys and values are written. It goes no further now. */
static void stop_at_boundary(void *user, skv_pass *p, size_t i_layer)
{
    drafting *d = user;
    const size_t D = p->c->hidden, V = p->c->vocab;
    if (i_layer != p->f->plan->stack_boundary) return;
    assert(p->n_alive == 1);
    p->be->get(p->be, d->x, p->ws->x, D * sizeof *d->x);
    if (d->asks) {
        skv_pass_head(p, p->m->exit_head, p->m->stack.norm, 0, 1);
        const float *logits = p->be->map(p->be, p->ws->logits, V * sizeof *logits, SKV_MAP_READ);
        d->best = skv_logits_best(logits, V);
        d->chance = chance_of(logits, V, d->best);
        p->be->unmap(p->be, logits);
    }
    skv_pass_keep(p, 0);
}

/* Runs the token behind the ready rows, which is then one of them. */
static skv_status run_row(skv_sequence *s, drafting *d)
{
    skv_engine *e = s->engine;
    skv_ready_rows *ready = &s->drafter->ready;
    const size_t at = s->n_seen + ready->n;
    SKV_TRY(skv_kv_cache_grow(&s->cache, at + 1, NULL));
    d->x = ready->x + ready->n * e->config->hidden;
    const skv_forward_span span = skv_step_span(s, s->ids + at, 1, at);
    const skv_hook hook = {.user = d, .before_layer = stop_at_boundary};
    const skv_step_pass pass = {
        .engine = e, .sequence = s, .spans = &span, .n_spans = 1, .hook = &hook};
    const skv_status status = skv_step_run(&pass, NULL);
    if (status == SKV_OK) {
        ready->n++;
    } else {
        skv_kv_cache_truncate(&s->cache, at);
    }
    /* Whoever cancels means the step that comes next. */
    if (status == SKV_CANCELLED) atomic_store(&e->cancel, true);
    return status;
}

/* What fails here ends the draft; the step that comes next will say why. */
static size_t run(skv_sequence *s, int32_t *out, size_t most)
{
    size_t n = 0;
    for (;; n++) {
        drafting d = {.asks = n < most};
        if (run_row(s, &d) != SKV_OK) break;
        if (!d.asks || d.chance < s->drafter->sure) return n;
        out[n] = s->ids[s->n_seen + 1 + n] = (int32_t)d.best;
    }
    return n > 0 ? n - 1 : 0;
}

const skv_draft_method skv_draft_self = {
    .name = "self",
    .form = "[K,P]",
    .about = "what the exit head of a SwiftKV model says, as long as it is sure by P",
    .id = SKV_DRAFT_SELF,
    .most = 8,
    .sure = 0.8,
    .run = run,
};
