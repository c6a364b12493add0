/*
 * Another model drafts: it reads the tokens that the base has read alone, then one drafted token
 * after another, as long as it is sure.
 *
 *     aux     the auxiliary of a KV Prediction model. It has read the prompt, and its cache is
 *             there. Its rows of right drafts stay until the next prompt comes.
 *     model   a model of the same vocabulary (engine_draft.c). It reads the prompt itself: at once
 *             where a sequence is alone, else a part of it in each step, so that others do not
 * wait.
 */
#include <assert.h>

#include "base/size.h"
#include "drafts/draft_walk.h"
#include "engine/engine.h"

enum { CATCH_UP = 128 }; /* tokens of a prompt that are read while others wait */

/* Where a request is on its way. */
typedef struct drafted_row {
    skv_draft_request *request;
    size_t n_rows; /* of the model's cache before the pass */
    bool goes_on;
} drafted_row;

typedef struct drafting {
    drafted_row rows[SKV_LOGIT_ROWS];
    skv_pass_span spans[SKV_LOGIT_ROWS];
    size_t n_rows;
    size_t room; /* tokens of a request in a pass */
    bool alone;  /* no other sequence waits for the step */
} drafting;

static skv_second_model *model_of(const skv_sequence *s)
{
    skv_engine *e = s->engine;
    return s->drafter->model->is_apart ? &e->draft.model : &e->kvpred.auxiliary;
}

static skv_kv_cache *cache_of(skv_sequence *s)
{
    return s->drafter->model->is_apart ? &s->drafter->cache : &s->reader->cache;
}

static void take_picked(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    drafting *d = user;
    skv_draft_request *r = d->rows[owner->i_span].request;
    skv_sequence *s = r->sequence;
    const int32_t best = picked->best.id;
    if ((size_t)best >= s->engine->config->vocab) return; /* a row that no token has */
    if (!skv_drafter_is_sure(s->drafter, picked) || !skv_draft_take(r, best)) return;
    d->rows[owner->i_span].goes_on = r->n < r->most;
}

static skv_status run_spans(const skv_sequence *s, skv_pass_span *spans, size_t n,
                            const skv_step_sink *sink)
{
    skv_engine *e = s->engine;
    skv_pass pass = skv_second_model_pass(e, model_of(s), sink, NULL);
    pass.spans = spans;
    pass.n_spans = n;
    return skv_draft_pass_run(e, &pass);
}

/* The next n tokens that the model has not read. False: pages are short, or it has no such token.
 */
static bool next_span(skv_sequence *s, size_t n, skv_pass_span *out)
{
    skv_kv_cache *cache = cache_of(s);
    const skv_config *c = model_of(s)->config;
    const size_t at = cache->n_rows;
    for (size_t i = at; i < at + n; i++) {
        if ((size_t)s->ids[i] >= c->vocab) return false;
    }
    if (skv_kv_cache_grow(cache, at + n, NULL) != SKV_OK) return false;
    *out = skv_second_model_span(s, cache, s->ids + at, n, at);
    return true;
}

/* Tokens before those that end at `end`, so that at most `room` are left. False: there are more
 * than a step may wait for, pages are short, or a step failed. */
static bool catch_up(skv_sequence *s, size_t end, size_t room, bool alone)
{
    skv_kv_cache *cache = cache_of(s);
    skv_pass_span span;
    for (size_t at; (at = cache->n_rows) + room < end;) {
        if (!next_span(s, room, &span)) return false;
        if (run_spans(s, &span, 1, NULL) != SKV_OK) {
            skv_kv_cache_truncate(cache, at);
            return false;
        }
        if (!alone) return cache->n_rows + room >= end;
    }
    return true;
}

/* All tokens of a request that the model has not read, up to `next` or the one drafted last. False:
 * it cannot read them now. */
static bool add_row(void *user, skv_draft_request *r)
{
    drafting *d = user;
    skv_sequence *s = r->sequence;
    const size_t end = s->n_seen + 1 + r->n;
    skv_pass_span *span = &d->spans[d->n_rows];
    assert(cache_of(s)->n_rows < end);
    if (end > model_of(s)->config->context) return false;
    if (!catch_up(s, end, d->room, d->alone)) return false;
    const size_t at = cache_of(s)->n_rows;
    if (!next_span(s, end - at, span)) return false;
    skv_step_want(span, SKV_WANT_LAST, d->n_rows);
    d->rows[d->n_rows++] = (drafted_row){.request = r, .n_rows = at};
    return true;
}

/* Whether some of them have more to read than the tokens of a step. */
static bool has_read(const skv_draft_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        skv_sequence *s = requests[i].sequence;
        if (s->n_seen > cache_of(s)->n_rows + SKV_DRAFT_MAX) return false;
    }
    return true;
}

static void begin(void *user)
{
    ((drafting *)user)->n_rows = 0;
}

static skv_status run_rows(void *user)
{
    drafting *d = user;
    const skv_step_sink sink = {.on_wish = skv_draft_wish, .on_picked = take_picked, .user = d};
    return run_spans(d->rows[0].request->sequence, d->spans, d->n_rows, &sink);
}

static bool settle(void *user, size_t i, skv_status status)
{
    const drafting *d = user;
    const drafted_row *row = &d->rows[i];
    if (status == SKV_OK) return row->goes_on;
    skv_kv_cache_truncate(cache_of(row->request->sequence), row->n_rows);
    return false;
}

static bool run(skv_draft_request *requests, size_t n, const skv_draft_step *step)
{
    const size_t most = requests[0].sequence->engine->options.step_tokens;
    const size_t share = skv_max_size(1, most / n);
    const bool alone = step->n_sequences == 1, counts = has_read(requests, n);
    drafting d = {.room = alone ? share : skv_min_size(share, CATCH_UP), .alone = alone};
    const skv_draft_walk walk = {
        .begin = begin, .add = add_row, .run = run_rows, .settle = settle, .user = &d};
    skv_draft_walk_run(&walk, requests, n);
    return counts;
}

const skv_draft_method skv_draft_aux = {
    .name = "aux",
    .id = SKV_DRAFT_AUX,
    .most = 8,
    .sure = 0.4,
    .run = run,
};

const skv_draft_method skv_draft_model = {
    .name = "model",
    .id = SKV_DRAFT_MODEL,
    .most = 8,
    .sure = 0.4,
    .run = run,
    .is_apart = true,
};
