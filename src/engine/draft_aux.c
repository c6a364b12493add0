/*
 * The auxiliary of a KV Prediction model drafts. It has read the prompt, and its cache is there: it
 * reads the tokens that the base has read alone, then one drafted token after another, as long as
 * it is sure. Its rows of right drafts stay until the next prompt comes.
 */
#include <assert.h>

#include "base/size.h"
#include "engine/engine.h"

/* Where a request is on its way. */
typedef struct drafted_row {
    skv_draft_request *request;
    size_t n_rows; /* of the auxiliary's cache before the pass */
    bool goes_on;
} drafted_row;

typedef struct drafting {
    drafted_row rows[SKV_LOGIT_ROWS];
    skv_forward_span spans[SKV_LOGIT_ROWS];
    size_t n_rows;
} drafting;

static void take_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    drafting *d = user;
    skv_draft_request *r = d->rows[i_span].request;
    skv_sequence *s = r->sequence;
    const size_t V = s->engine->config->vocab, best = skv_logits_best(logits, V);
    (void)i_token;
    if (!skv_draft_is_sure(logits, V, best, s->drafter->sure)) return;
    if (skv_engine_is_eos(s->engine, (int32_t)best)) return; /* nothing follows it */
    r->out[r->n] = (int32_t)best;
    s->ids[s->n_seen + 1 + r->n++] = (int32_t)best;
    d->rows[i_span].goes_on = r->n < r->most;
}

static skv_status run_spans(skv_engine *e, const skv_forward_span *spans, size_t n,
                            const skv_step_sink *sink)
{
    const skv_step_pass pass = {.engine = e,
                                .spans = spans,
                                .n_spans = n,
                                .sink = sink,
                                .plan = &e->kvpred.plan,
                                .model = &e->kvpred.model,
                                .ws = &e->kvpred.ws};
    const skv_status status = skv_step_run(&pass, NULL);
    /* Whoever cancels means the step that comes next. */
    if (status == SKV_CANCELLED) atomic_store(&e->cancel, true);
    return status;
}

/* The next n tokens that the auxiliary has not read. False: pages are short. */
static bool next_span(skv_sequence *s, size_t n, skv_forward_span *out)
{
    skv_kv_cache *cache = &s->reader->cache;
    const size_t at = cache->n_rows;
    if (skv_kv_cache_grow(cache, at + n, NULL) != SKV_OK) return false;
    *out = skv_reader_span(s, s->ids + at, n, at);
    return true;
}

/* All tokens of a request that the auxiliary has not read, up to `next` or the one drafted last, in
 * a span of at most `room`. False: pages are short, or a step failed. */
static bool add_row(drafting *d, skv_draft_request *r, size_t room)
{
    skv_sequence *s = r->sequence;
    const size_t end = s->n_seen + 1 + r->n;
    skv_forward_span *span = &d->spans[d->n_rows];
    assert(s->reader->cache.n_rows < end);
    for (size_t at; (at = s->reader->cache.n_rows) + room < end;) {
        if (!next_span(s, room, span)) return false;
        if (run_spans(s->engine, span, 1, NULL) == SKV_OK) continue;
        skv_kv_cache_truncate(&s->reader->cache, at);
        return false;
    }
    const size_t at = s->reader->cache.n_rows;
    if (!next_span(s, end - at, span)) return false;
    skv_step_want(span, SKV_WANT_LAST, d->n_rows);
    d->rows[d->n_rows++] = (drafted_row){.request = r, .n_rows = at};
    return true;
}

/* What fails here ends the drafts; the step that comes next will say why. */
static void run(skv_draft_request *requests, size_t n)
{
    skv_engine *e = requests[0].sequence->engine;
    bool goes_on[SKV_LOGIT_ROWS];
    assert(n <= SKV_LOGIT_ROWS);
    for (size_t i = 0; i < n; i++) goes_on[i] = true;
    for (;;) {
        drafting d = {.n_rows = 0};
        const skv_step_sink sink = {.on_row = take_logits, .user = &d};
        for (size_t i = 0; i < n; i++) {
            if (goes_on[i]) {
                goes_on[i] = add_row(&d, &requests[i], skv_max_size(1, e->options.step_tokens / n));
            }
        }
        if (d.n_rows == 0) return;
        const skv_status status = run_spans(e, d.spans, d.n_rows, &sink);
        for (size_t i = 0; i < d.n_rows; i++) {
            const drafted_row *row = &d.rows[i];
            goes_on[row->request - requests] = status == SKV_OK && row->goes_on;
            if (status == SKV_OK) continue;
            skv_kv_cache_truncate(&row->request->sequence->reader->cache, row->n_rows);
        }
    }
}

const skv_draft_method skv_draft_aux = {
    .name = "aux",
    .form = "[K,P]",
    .about = "what the auxiliary of a KV Prediction model says, as long as it is sure by P",
    .id = SKV_DRAFT_AUX,
    .most = 8,
    .sure = 0.4,
    .run = run,
};
