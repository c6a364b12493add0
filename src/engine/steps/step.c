/* The step of an engine: see step.h. */
#include "steps/step.h"

#include <assert.h>
#include <string.h>

#include "base/size.h"
#include "base/system.h"
#include "engine/engine.h"
#include "model/pass.h"
#include "ranks/ranks_tell.h"
#include "skv/tools.h"

static skv_status check_span(const skv_engine *e, const skv_span *spans, size_t i, skv_error *err)
{
    const skv_span *span = &spans[i];
    const skv_sequence *s = span->sequence;
    SKV_REQUIRE(s->i_span == i, err, SKV_ARGUMENT, "step: spans %zu and %zu are of one sequence", i,
                s->i_span);
    SKV_REQUIRE(!e->options.prompt_only ||
                    (span->want == SKV_WANT_NONE && !s->unskipped && !s->votes.votes),
                err, SKV_UNSUPPORTED,
                "step: this engine only makes keys and values of prompts (prompt_only): the layers "
                "and the head behind them are not loaded");
    SKV_REQUIRE(span->n <= s->max_tokens - s->n_seen, err, SKV_FULL,
                "step: %zu tokens and %zu new ones, but the context is %zu", s->n_seen, span->n,
                s->max_tokens);
    return skv_engine_check_ids(e, span->ids, span->n, err);
}

static skv_status check_spans(const skv_engine *e, const skv_span *spans, size_t n_spans,
                              skv_error *err)
{
    size_t n_tokens = 0;
    SKV_REQUIRE(n_spans >= 1 && n_spans <= e->options.step_tokens, err, SKV_ARGUMENT,
                "step: %zu spans, 1 to %zu", n_spans, e->options.step_tokens);
    for (size_t i = 0; i < n_spans; i++) { /* of two spans of a sequence it knows the last */
        skv_sequence *s = spans[i].sequence;
        SKV_REQUIRE(s && s->engine == e && spans[i].n >= 1 && spans[i].ids, err, SKV_ARGUMENT,
                    "step: span %zu has no sequence of this engine or no tokens", i);
        s->i_span = i;
    }
    for (size_t i = 0; i < n_spans; i++) {
        SKV_TRY(check_span(e, spans, i, err));
        SKV_REQUIRE(skv_size_add(n_tokens, spans[i].n, &n_tokens) &&
                        n_tokens <= e->options.step_tokens,
                    err, SKV_RANGE, "step: more than %zu tokens", e->options.step_tokens);
    }
    return SKV_OK;
}

/* Whether a draft's tokens are taken as if each came in a step of its own. Batch invariance gives
 * these bits to any chunk; a device that does not promise them takes drafts as they are. */
static bool takes_singly(const skv_engine *e)
{
    return !e->options.batch_invariant && (e->be->promises & SKV_PROMISE_SINGLY);
}

/* The tokens come after those that their sequences have seen, until the step ends. */
static void describe_spans(skv_engine *e, const skv_span *spans, size_t n_spans)
{
    size_t row = 0;
    for (size_t i = 0; i < n_spans; row += spans[i++].n) {
        skv_sequence *s = spans[i].sequence;
        int32_t *ids = s->ids + s->n_seen;
        const size_t n_ready = skv_sequence_ready(s, spans[i].ids, spans[i].n);
        if (s->reader) skv_reader_begin(s, spans[i].ids, spans[i].n);
        skv_sequence_keep_ready(s, n_ready);
        memmove(ids, spans[i].ids, spans[i].n * sizeof *ids);
        e->spans[i] = skv_step_span(s, ids, spans[i].n, s->n_seen);
        e->spans[i].deep_from = skv_sequence_deep_from(s, spans[i].n);
        if (spans[i].want == SKV_WANT_DRAFTED) {
            e->spans[i].at.n_undo = skv_min_size(spans[i].n - 1, e->states.max_undo);
        }
        if (n_ready > 0) e->spans[i].x = skv_ready_rows_from(&s->drafter->ready, 0);
        skv_step_want(&e->spans[i], spans[i].want, i);
        e->spans[i].singly = spans[i].want == SKV_WANT_DRAFTED && takes_singly(e);
        if (s->pruned) skv_pruned_mark(s);
        if (!skv_sequence_predicts(s)) continue;
        /* The head reads the result of the last layer, also of a prompt's rows. */
        if (s->plan->stack_boundary == s->plan->n_layers) e->spans[i].deep_from = 0;
        skv_mtp_begin(s, row);
    }
}

/* Everything is as before the step. */
static void undo(const skv_span *spans, size_t n_spans)
{
    for (size_t i = 0; i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        if (s->pruned) {
            skv_pruned_undo(s);
        } else {
            skv_kv_cache_truncate(&s->cache, s->n_seen);
            skv_sequence_keep_ready(s, 0);
        }
        if (s->reader) skv_reader_undo(s);
    }
}

static bool runs_with(const skv_sequence *a, const skv_sequence *b)
{
    const skv_engine_options *o = &a->engine->options;
    const bool leaves_out = o->ffn_skip.on || o->early_exit > 0; /* some do, but not FULL */
    const bool alike = a->reader ? b->reader && a->reader->all == b->reader->all : !b->reader;
    return a->plan == b->plan && alike && (a->unskipped == b->unskipped || !leaves_out);
}

static skv_status grow_caches(const skv_span *spans, size_t n_spans, skv_error *err)
{
    for (size_t i = 0; i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        SKV_TRY(skv_kv_cache_grow(&s->cache, s->n_seen + spans[i].n, err));
    }
    return SKV_OK;
}

/* Ranks that have begun a step finish it together: only before it may it be cancelled. */
static skv_status begin_together(skv_engine *e, const skv_span *spans, size_t n_spans,
                                 skv_error *err)
{
    const skv_status grown = grow_caches(spans, n_spans, err);
    if (!e->ranks) return grown;
    SKV_TRY(skv_tell_step(e, spans, n_spans, grown == SKV_OK, grown == SKV_OK ? err : NULL));
    return grown;
}

static bool some_predict(const skv_span *spans, size_t n_spans)
{
    bool some = false;
    for (size_t i = 0; i < n_spans; i++) some = some || skv_sequence_predicts(spans[i].sequence);
    return some;
}

/* A pass for every run of spans that share a plan and a first layer: one, but where a teacher runs
 * beside its student, or drafts that stand before layer l beside other spans. */
static skv_status run_passes(skv_engine *e, const skv_span *spans, size_t n_spans,
                             const skv_step_sink *sink, skv_error *err)
{
    SKV_TRY(begin_together(e, spans, n_spans, err));
    for (size_t i = 0, end; i < n_spans; i = end) {
        const skv_sequence *first = spans[i].sequence;
        const bool ready = e->spans[i].x.area;
        for (end = i + 1; end < n_spans && runs_with(first, spans[end].sequence); end++) {
            if (!e->spans[end].x.area == ready) break;
        }
        const skv_hook hook = skv_mtp_hook(spans + i);
        skv_pass pass =
            skv_step_pass(e, first, sink, some_predict(spans + i, end - i) ? &hook : NULL);
        pass.spans = e->spans + i;
        pass.n_spans = end - i;
        pass.first_layer = ready ? first->plan->stack_boundary : 0;
        SKV_TRY(first->reader ? skv_engine_kvpred_run(&pass, spans + i, err)
                              : skv_pass_run(&pass, err));
    }
    return SKV_OK;
}

static skv_status run_pruned(skv_engine *e, const skv_span *spans, size_t n_spans,
                             const skv_step_sink *sink, skv_error *err)
{
    for (size_t i = 0; i < n_spans; i++) {
        SKV_TRY(skv_pruned_run(spans[i].sequence, &e->spans[i], sink, err));
    }
    return SKV_OK;
}

skv_status skv_engine_step(skv_engine *e, const skv_span *spans, size_t n_spans,
                           const skv_step_sink *sink, skv_error *err)
{
    SKV_TRY(check_spans(e, spans, n_spans, err));
    /* A step that has begun to change states is finished: nothing takes rows back out of them. */
    if ((e->ranks || e->states.states) && atomic_exchange(&e->cancel, false)) {
        return skv_fail(err, SKV_CANCELLED, "cancelled before the step");
    }
    const uint64_t start = skv_clock_ns();
    describe_spans(e, spans, n_spans);
    const bool prunes = e->options.pruning.kind != SKV_PRUNE_NONE;
    skv_status status = (prunes ? run_pruned : run_passes)(e, spans, n_spans, sink, err);
    if (status != SKV_OK) {
        undo(spans, n_spans);
        return status;
    }
    skv_draft_plan_learn_step(e, spans, n_spans, (double)(skv_clock_ns() - start));
    for (size_t i = 0; i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        if (s->drafter) s->drafter->ready.n = 0;
        s->n_seen += spans[i].n;
        s->n_sure = s->n_seen - e->spans[i].at.n_undo;
        if (s->pruned && spans[i].want != SKV_WANT_NONE) s->pruned->n_run = s->n_seen;
        skv_engine_count_model(e, s, spans[i].n, spans[i].want);
        if (skv_sequence_predicts(s)) skv_mtp_end(s);
    }
    return SKV_OK;
}

skv_status skv_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                    skv_logits_fn *on_logits, void *user, skv_error *err)
{
    const skv_step_sink sink = {.on_row = on_logits, .user = user};
    return skv_engine_step(engine, spans, n_spans, &sink, err);
}

/* A caller's function, which reads the host's memory. */
typedef struct host_tap {
    const skv_engine *engine;
    skv_hidden_fn *on_hidden;
    void *user;
} host_tap;

static void tell_host(void *user, size_t i, skv_rows x, size_t n_rows)
{
    const host_tap *tap = user;
    skv_backend *be = tap->engine->be;
    const skv_mapped host = be->map(be, x, n_rows, tap->engine->config->hidden, SKV_MAP_READ);
    tap->on_hidden(tap->user, i, host.at, n_rows);
    be->unmap(be, host);
}

typedef struct product_tap {
    const skv_engine *engine;
    skv_area *normed; /* [ws.max_rows, D] */
    skv_product_fn *on_product;
    void *user;
} product_tap;

static void tell_product(void *user, size_t i, skv_product product, const skv_linear_args *args)
{
    const product_tap *tap = user;
    skv_backend *be = tap->engine->be;
    skv_rows x = args->x;
    if (args->norm.weight.area) {
        assert(x.ld == tap->engine->config->hidden);
        x = (skv_rows){.area = tap->normed, .ld = x.ld};
        be->norm(be, &(skv_norm_args){x, args->x, args->n_rows, x.ld, args->norm});
    }
    const skv_mapped host = be->map(be, x, args->n_rows, x.ld, SKV_MAP_READ);
    tap->on_product(tap->user, i, product, host.at, args->n_rows, x.ld);
    be->unmap(be, host);
}

skv_status skv_step_products(skv_engine *engine, const skv_span *spans, size_t n_spans,
                             skv_product_fn *on_product, void *user, skv_error *err)
{
    SKV_REQUIRE(engine->options.no_skip, err, SKV_ARGUMENT,
                "products: the engine must run every layer (no_skip)");
    product_tap told = {.engine = engine, .on_product = on_product, .user = user};
    const skv_hook tap = {.user = &told, .on_product = tell_product};
    const skv_area_spec spec = {.kind = SKV_AREA_ACTIVATIONS,
                                .n_rows = engine->ws.max_rows,
                                .n_columns = engine->config->hidden};
    SKV_TRY(engine->be->areas_create(engine->be, &spec, 1, &told.normed, err));
    const skv_status status =
        skv_engine_step(engine, spans, n_spans, &(skv_step_sink){.tap = &tap}, err);
    engine->be->areas_free(engine->be, &told.normed, 1);
    return status;
}

skv_status skv_step_hidden(skv_engine *engine, const skv_span *spans, size_t n_spans,
                           skv_hidden_fn *on_hidden, void *user, skv_error *err)
{
    SKV_REQUIRE(engine->options.no_skip, err, SKV_ARGUMENT,
                "hidden states: the engine must run every layer (no_skip)");
    host_tap told = {engine, on_hidden, user};
    const skv_hook tap = {.user = &told, .on_hidden = tell_host};
    return skv_engine_step(engine, spans, n_spans, &(skv_step_sink){.tap = &tap}, err);
}
