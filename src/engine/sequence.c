/* Sequences: token ids, their cache, and the steps that extend them. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "engine/prompt_layers.h"
#include "skv/tools.h"

skv_status skv_sequence_create(skv_engine *engine, size_t max_tokens, skv_sequence **out,
                               skv_error *err)
{
    return skv_sequence_create_as(engine, SKV_PREFILL_AUTO, max_tokens, out, err);
}

skv_status skv_sequence_create_as(skv_engine *engine, skv_prefill prefill, size_t max_tokens,
                                  skv_sequence **out, skv_error *err)
{
    SKV_TRY(skv_engine_check(engine, SKV_WHERE_SEQUENCE, prefill, NULL, err));
    bool teacher = prefill == SKV_PREFILL_TEACHER && engine->options.prefill != prefill;
    bool asks = prefill == SKV_PREFILL_KVPRED;
    size_t context = engine->options.context;
    if (max_tokens == 0) max_tokens = context;
    SKV_REQUIRE(max_tokens <= context, err, SKV_RANGE, "sequence: %zu tokens, the context is %zu",
                max_tokens, context);
    skv_sequence *s = skv_alloc_zero(1, sizeof *s);
    SKV_REQUIRE(s, err, SKV_MEMORY, "sequence: no memory");
    s->engine = engine;
    s->plan = teacher ? &engine->teacher_plan : &engine->plan;
    s->unskipped = prefill == SKV_PREFILL_FULL || prefill == SKV_PREFILL_SWIFTKV_FULL;
    s->predicts = engine->kvpred.on && (asks || prefill == SKV_PREFILL_AUTO);
    s->max_tokens = max_tokens;
    s->ids = skv_map_zero(max_tokens * sizeof *s->ids);
    /* Page tables of all sequences have one width, which a step relies on. */
    skv_status status =
        s->ids ? skv_kv_cache_init(&s->cache, engine->pool, &s->plan->layout, context, err)
               : skv_fail(err, SKV_MEMORY, "sequence: no memory for %zu ids", max_tokens);
    if (status == SKV_OK && engine->options.pruning.kind != SKV_PRUNE_NONE) {
        s->row_of = skv_map_zero(max_tokens * sizeof *s->row_of);
        const bool lazy = engine->options.pruning.kind == SKV_PRUNE_LAZY;
        if (lazy) s->slot_rows = skv_alloc_zero(s->plan->layout.n_slots, sizeof *s->slot_rows);
        if (!s->row_of || (lazy && !s->slot_rows)) {
            status = skv_fail(err, SKV_MEMORY, "sequence: no memory");
        }
    }
    if (status == SKV_OK && s->predicts) {
        const skv_engine_kvpred *k = &engine->kvpred;
        status = skv_kv_cache_init(&s->read, k->pool, &k->plan.layout, context, err);
    }
    if (status != SKV_OK) {
        skv_sequence_free(s);
        return status;
    }
    s->eviction = engine->options.eviction;
    *out = s;
    return SKV_OK;
}

void skv_sequence_free(skv_sequence *s)
{
    if (!s) return;
    skv_kv_cache_release(&s->cache);
    skv_kv_cache_release(&s->read);
    skv_kv_votes_release(&s->votes);
    if (s->ids) skv_unmap(s->ids, s->max_tokens * sizeof *s->ids);
    skv_free(s->slot_rows);
    if (s->row_of) skv_unmap(s->row_of, s->max_tokens * sizeof *s->row_of);
    skv_free(s);
}

size_t skv_sequence_length(const skv_sequence *s)
{
    return s->n_seen;
}

const int32_t *skv_sequence_ids(const skv_sequence *s)
{
    return s->ids;
}

void skv_sequence_truncate(skv_sequence *s, size_t n)
{
    skv_kv_votes_release(&s->votes);
    if (n >= s->n_seen) return;
    if (s->row_of) {
        skv_engine_prune_truncate(s, n);
        return;
    }
    skv_kv_cache_truncate(&s->cache, n);
    if (s->predicts) skv_kv_cache_truncate(&s->read, n);
    s->n_seen = n;
}

skv_status skv_sequence_share(skv_sequence *s, const skv_sequence *from, size_t n, skv_error *err)
{
    bool alike = s->plan == from->plan && s->predicts == from->predicts;
    SKV_REQUIRE(s->engine == from->engine && alike && s->n_seen == 0, err, SKV_ARGUMENT,
                "sequence: only an empty one of the same engine and method can share another's "
                "beginning");
    SKV_REQUIRE(n <= from->n_seen && n <= s->max_tokens, err, SKV_RANGE,
                "sequence: %zu tokens to share, the other has %zu and this one room for %zu", n,
                from->n_seen, s->max_tokens);
    size_t n_rows = n;
    if (s->row_of) {
        s->n_run = skv_min_size(n, from->n_run);
        memcpy(s->row_of, from->row_of, s->n_run * sizeof *s->row_of);
        n_rows = n < from->n_run ? from->row_of[n] : from->cache.n_rows;
        if (s->slot_rows) n_rows = skv_engine_prune_share(s, from, n);
    }
    SKV_TRY(skv_kv_cache_share(&s->cache, &from->cache, n_rows, err));
    if (s->predicts) {
        size_t n_read = skv_min_size(n, from->read.n_rows);
        SKV_TRY(skv_kv_cache_share(&s->read, &from->read, n_read, err));
    }
    if (n) memcpy(s->ids, from->ids, n * sizeof *s->ids);
    s->n_seen = n;
    return SKV_OK;
}

void skv_sequence_adopt(skv_sequence *s, const int32_t *ids, size_t n)
{
    assert(s->n_seen == 0 && s->cache.n_rows == n && n <= s->max_tokens);
    if (n) memcpy(s->ids, ids, n * sizeof *s->ids);
    s->n_seen = n;
}

size_t skv_sequence_kv_bytes(const skv_sequence *s)
{
    return skv_kv_cache_bytes(&s->cache) + (s->predicts ? skv_kv_cache_bytes(&s->read) : 0);
}

/* ---- steps ---- */

static skv_status check_span(const skv_engine *e, const skv_span *spans, size_t i, skv_error *err)
{
    const skv_span *span = &spans[i];
    const skv_sequence *s = span->sequence;
    SKV_REQUIRE(s && s->engine == e && span->n >= 1 && span->ids, err, SKV_ARGUMENT,
                "step: span %zu has no sequence of this engine or no tokens", i);
    for (size_t j = 0; j < i; j++) {
        SKV_REQUIRE(spans[j].sequence != s, err, SKV_ARGUMENT,
                    "step: spans %zu and %zu are of one sequence", j, i);
    }
    SKV_REQUIRE(span->n <= s->max_tokens - s->n_seen, err, SKV_FULL,
                "step: %zu tokens and %zu new ones, this sequence was made for %zu", s->n_seen,
                span->n, s->max_tokens);
    for (size_t t = 0; t < span->n; t++) {
        SKV_REQUIRE(span->ids[t] >= 0 && (size_t)span->ids[t] < e->config->vocab, err, SKV_RANGE,
                    "ids[%zu]: %d, the vocabulary has %zu", t, span->ids[t], e->config->vocab);
    }
    return SKV_OK;
}

static skv_status check_spans(const skv_engine *e, const skv_span *spans, size_t n_spans,
                              skv_error *err)
{
    size_t n_tokens = 0;
    SKV_REQUIRE(n_spans >= 1 && n_spans <= e->options.step_tokens, err, SKV_ARGUMENT,
                "step: %zu spans, 1 to %zu", n_spans, e->options.step_tokens);
    for (size_t i = 0; i < n_spans; i++) {
        SKV_TRY(check_span(e, spans, i, err));
        SKV_REQUIRE(skv_size_add(n_tokens, spans[i].n, &n_tokens) &&
                        n_tokens <= e->options.step_tokens,
                    err, SKV_RANGE, "step: more than %zu tokens", e->options.step_tokens);
    }
    return SKV_OK;
}

static skv_rows_wanted wanted_rows(skv_want want)
{
    switch (want) {
    case SKV_WANT_NONE: return SKV_ROWS_NONE;
    case SKV_WANT_LAST:
    case SKV_WANT_LAST_HIDDEN: return SKV_ROWS_LAST;
    case SKV_WANT_ALL:
    case SKV_WANT_ALL_HIDDEN: break;
    }
    return SKV_ROWS_ALL;
}

static bool wants_hidden(skv_want want)
{
    return want == SKV_WANT_LAST_HIDDEN || want == SKV_WANT_ALL_HIDDEN;
}

typedef struct step_sinks {
    skv_engine *engine;
    size_t span0; /* spans before those of this pass */
    skv_logits_fn *on_logits;
    skv_hidden_sink *on_hidden;
    void *user;
} step_sinks;

static void pass_row(void *user, size_t i_span, size_t i_row, const float *row)
{
    const step_sinks *sinks = user;
    if (sinks->on_logits) sinks->on_logits(sinks->user, sinks->span0 + i_span, i_row, row);
}

static void pass_hidden(void *user, size_t i_layer, const float *x, size_t n_rows)
{
    const step_sinks *sinks = user;
    if (sinks->on_hidden) sinks->on_hidden(sinks->user, i_layer, x, n_rows);
}

static bool ask_cancelled(void *user)
{
    return atomic_load(&((const step_sinks *)user)->engine->cancel);
}

/* Takes back the rows that grow_caches made. */
static void undo(const skv_engine *e, const skv_span *spans, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        skv_kv_cache_truncate(&spans[i].sequence->cache, e->spans[i].n_past);
    }
}

/* Room in every cache, or in none. */
static skv_status grow_caches(skv_engine *e, const skv_span *spans, size_t n_spans, skv_error *err)
{
    for (size_t i = 0; i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        size_t n_past = s->cache.n_rows;
        skv_status status = skv_kv_cache_grow(&s->cache, n_past + spans[i].n, err);
        if (status != SKV_OK) {
            undo(e, spans, i);
            return status;
        }
        e->spans[i] = (skv_forward_span){.ids = spans[i].ids,
                                         .n = spans[i].n,
                                         .n_past = n_past,
                                         .position0 = s->n_seen,
                                         .context = s->max_tokens,
                                         .cache = &s->cache,
                                         .wanted = wanted_rows(spans[i].want),
                                         .hidden = wants_hidden(spans[i].want),
                                         .unskipped = s->unskipped,
                                         .votes = s->votes.votes ? &s->votes : NULL,
                                         .deep_from = skv_sequence_deep_from(s, spans[i].n)};
    }
    return SKV_OK;
}

static bool runs_with(const skv_sequence *a, const skv_sequence *b)
{
    const skv_engine_options *o = &a->engine->options;
    const bool gated = o->ffn_skip.on || o->early_exit > 0; /* for some, not for FULL */
    return a->plan == b->plan && a->predicts == b->predicts && a->predicts_all == b->predicts_all &&
           (a->unskipped == b->unskipped || !gated);
}

/* A pass for every run of spans that share a plan: one, but where a teacher runs beside its
 * student. */
static skv_status run_passes(skv_engine *e, const skv_span *spans, size_t n_spans,
                             step_sinks *sinks, skv_error *err)
{
    size_t end;
    for (size_t i = 0; i < n_spans; i = end) {
        const skv_sequence *first = spans[i].sequence;
        const skv_plan *plan = first->plan;
        for (end = i + 1; end < n_spans && runs_with(first, spans[end].sequence); end++) {}
        sinks->span0 = i;
        skv_forward f = {.model = &e->model,
                         .plan = plan,
                         .ws = &e->ws,
                         .spans = e->spans + i,
                         .n_spans = end - i,
                         .on_row = pass_row,
                         .on_hidden = sinks->on_hidden ? pass_hidden : NULL,
                         .user = sinks,
                         .cancelled = ask_cancelled};
        skv_engine_add_gates(e, first, &f);
        SKV_TRY(first->predicts ? skv_engine_kvpred_run(e, spans + i, i, end - i, &f, err)
                                : skv_forward_run(&f, err));
    }
    return SKV_OK;
}

skv_status skv_engine_forward(skv_engine *e, const skv_span *spans, size_t n_spans,
                              skv_logits_fn *on_logits, skv_hidden_sink *on_hidden, void *user,
                              skv_error *err)
{
    SKV_TRY(check_spans(e, spans, n_spans, err));
    if (e->options.pruning.kind != SKV_PRUNE_NONE) {
        return skv_engine_prune_step(e, spans, n_spans, on_logits, user, err);
    }
    SKV_TRY(grow_caches(e, spans, n_spans, err));
    step_sinks sinks = {.engine = e, .on_logits = on_logits, .on_hidden = on_hidden, .user = user};
    skv_status status = run_passes(e, spans, n_spans, &sinks, err);
    if (status == SKV_CANCELLED) atomic_store(&e->cancel, false);
    if (status != SKV_OK) {
        undo(e, spans, n_spans);
        return status;
    }
    for (size_t i = 0; i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        memcpy(s->ids + s->n_seen, spans[i].ids, spans[i].n * sizeof *s->ids);
        s->n_seen += spans[i].n;
        skv_engine_count_model(e, s, spans[i].n, spans[i].want);
    }
    return SKV_OK;
}

skv_status skv_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                    skv_logits_fn *on_logits, void *user, skv_error *err)
{
    return skv_engine_forward(engine, spans, n_spans, on_logits, NULL, user, err);
}

skv_status skv_step_hidden(skv_engine *engine, const skv_span *spans, size_t n_spans,
                           skv_hidden_fn *on_hidden, void *user, skv_error *err)
{
    SKV_REQUIRE(engine->options.no_skip, err, SKV_ARGUMENT,
                "hidden states: the engine must run every layer (no_skip)");
    return skv_engine_forward(engine, spans, n_spans, NULL, on_hidden, user, err);
}

typedef struct keep_logits {
    float *out; /* [V] */
    size_t vocab;
} keep_logits;

static void keep_last(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const keep_logits *keep = user;
    (void)i_span;
    (void)i_token;
    memcpy(keep->out, logits, keep->vocab * sizeof *logits);
}

skv_status skv_prompt(skv_engine *engine, skv_sequence *sequence, const int32_t *ids, size_t n,
                      float *logits, void (*progress)(void *user, size_t done, size_t total),
                      void *user, skv_error *err)
{
    SKV_REQUIRE(n >= 1, err, SKV_ARGUMENT, "prompt: empty");
    size_t start = sequence->n_seen, done = 0;
    SKV_REQUIRE(n <= sequence->max_tokens - start, err, SKV_FULL,
                "prompt: %zu tokens after %zu, this sequence was made for %zu", n, start,
                sequence->max_tokens);
    keep_logits keep = {logits, engine->config->vocab};
    skv_status status = skv_sequence_expect(sequence, n, err);
    if (status == SKV_OK && skv_prompt_wants_layers(sequence, n)) {
        status = skv_prompt_by_layers(sequence, ids, n, logits, progress, user, err);
        done = n;
    }
    while (done < n && status == SKV_OK) {
        size_t chunk = skv_min_size(n - done, engine->options.step_tokens);
        bool last = done + chunk == n;
        skv_span span = {sequence, ids + done, chunk,
                         last && logits ? SKV_WANT_LAST : SKV_WANT_NONE};
        status = skv_step(engine, &span, 1, keep_last, &keep, err);
        done += chunk;
        if (progress && status == SKV_OK) progress(user, done, n);
    }
    if (status == SKV_OK) status = skv_sequence_evict(sequence, err);
    if (status != SKV_OK) skv_sequence_truncate(sequence, start);
    return status;
}
