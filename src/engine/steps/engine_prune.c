/* Token pruning in an engine: see step.h. */
#include "steps/step.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "model/pass.h"

skv_status skv_engine_prune_init(skv_engine *e, skv_error *err)
{
    skv_engine_prune *p = &e->prune;
    size_t n = e->options.context;
    p->kept = skv_alloc_zero(n, sizeof *p->kept);
    p->scores = skv_alloc_zero(n, sizeof *p->scores);
    p->weights = skv_alloc_zero(n, sizeof *p->weights);
    p->ids = skv_alloc_zero(n, sizeof *p->ids);
    SKV_REQUIRE(p->kept && p->scores && p->weights && p->ids, err, SKV_MEMORY,
                "prune: no memory for %zu tokens", n);
    return SKV_OK;
}

void skv_engine_prune_release(skv_engine *e)
{
    skv_engine_prune *p = &e->prune;
    skv_free(p->kept);
    skv_free(p->scores);
    skv_free(p->weights);
    skv_free(p->ids);
    *p = (skv_engine_prune){0};
}

/* ---- the state of a sequence ---- */

skv_status skv_pruned_create(skv_sequence *s, skv_error *err)
{
    const bool lazy = s->engine->options.pruning.kind == SKV_PRUNE_LAZY;
    skv_pruned *p = s->pruned = skv_alloc_zero(1, sizeof *p);
    SKV_REQUIRE(p, err, SKV_MEMORY, "sequence: no memory");
    p->row_of = skv_map_zero(s->max_tokens * sizeof *p->row_of);
    if (lazy) p->slot_rows = skv_alloc_zero(s->plan->layout.n_slots, sizeof *p->slot_rows);
    SKV_REQUIRE(p->row_of && (!lazy || p->slot_rows), err, SKV_MEMORY, "sequence: no memory");
    return SKV_OK;
}

void skv_pruned_free(skv_pruned *p, size_t max_tokens)
{
    if (!p) return;
    if (p->row_of) skv_unmap(p->row_of, max_tokens * sizeof *p->row_of);
    skv_free(p->slot_rows);
    skv_free(p);
}

void skv_pruned_mark(skv_sequence *s)
{
    s->pruned->rows_mark = s->cache.n_rows;
}

/* All tokens wait again: the tokens of a slot's rows are not known. */
static void start_over(skv_sequence *s)
{
    skv_kv_cache_truncate(&s->cache, 0);
    memset(s->pruned->slot_rows, 0, s->plan->layout.n_slots * sizeof *s->pruned->slot_rows);
    s->pruned->n_run = 0;
}

void skv_pruned_undo(skv_sequence *s)
{
    if (s->pruned->slot_rows) { /* they may have got rows of some layers */
        start_over(s);
    } else {
        skv_kv_cache_truncate(&s->cache, s->pruned->rows_mark);
    }
}

size_t skv_pruned_share(skv_sequence *s, const skv_sequence *from, size_t n)
{
    skv_pruned *p = s->pruned;
    const skv_pruned *other = from->pruned;
    p->n_run = skv_min_size(n, other->n_run);
    memcpy(p->row_of, other->row_of, p->n_run * sizeof *p->row_of);
    if (!p->slot_rows) return n < other->n_run ? other->row_of[n] : from->cache.n_rows;
    if (n < other->n_run) p->n_run = 0;
    if (p->n_run == 0) return 0;
    memcpy(p->slot_rows, other->slot_rows, s->plan->layout.n_slots * sizeof *p->slot_rows);
    return from->cache.n_rows;
}

void skv_pruned_truncate(skv_sequence *s, size_t n)
{
    if (n >= s->pruned->n_run) return;
    if (s->pruned->slot_rows) {
        start_over(s);
        return;
    }
    skv_kv_cache_truncate(&s->cache, s->pruned->row_of[n]);
    s->pruned->n_run = n;
}

/* ---- steps ---- */

/* A span on its way. */
typedef struct prune_step {
    skv_engine *e;
    skv_sequence *s;
    const skv_pass_span *span; /* as it was given */
    const skv_step_sink *sink;
} prune_step;

/* Tokens after those that the cache has, of which the last n_wanted are wanted. */
static skv_pass_span span_of(const prune_step *p, const int32_t *ids, size_t n, size_t n_wanted)
{
    skv_pass_span span = skv_step_span(p->s, ids, n, p->s->cache.n_rows);
    span.unskipped = false;
    span.n_wanted = n_wanted;
    span.hidden = p->span->hidden;
    span.told_span = p->span->told_span;
    span.told_row = p->span->told_row;
    return span;
}

/* Runs a span through all layers, or up to end_layer. */
static skv_status run(const prune_step *p, skv_pass_span *span, const skv_hook *hook,
                      size_t end_layer, skv_error *err)
{
    SKV_TRY(skv_kv_cache_grow(&p->s->cache, span->at.n_past + span->at.n, err));
    skv_pass pass = skv_step_pass(p->e, p->s, p->sink, hook);
    pass.spans = span;
    pass.n_spans = 1;
    pass.end_layer = end_layer;
    return skv_pass_run(&pass, err);
}

/* Attention of the first wanted token to the n before it that wait, from the first layers. */
static skv_status probe_tokens(const prune_step *p, size_t n, skv_error *err)
{
    skv_engine *e = p->e;
    const int32_t *ids = p->s->ids + p->s->pruned->n_run;
    size_t row0 = p->s->cache.n_rows, end_layer = skv_prune_probe_layers(e->config->n_layers);
    memset(e->prune.scores, 0, n * sizeof *e->prune.scores);
    skv_prune_probe probe = {.model = &e->model,
                             .plan = &e->plan,
                             .cache = &p->s->cache,
                             .n_rows = row0 + n + 1,
                             .row0 = row0,
                             .n = n,
                             .scores = e->prune.scores,
                             .weights = e->prune.weights,
                             .work = &e->work};
    const skv_hook look = {.user = &probe, .on_query = skv_prune_look};
    skv_status status = SKV_OK;
    for (size_t at = 0, chunk; at < n + 1 && status == SKV_OK; at += chunk) {
        chunk = skv_min_size(n + 1 - at, e->options.step_tokens);
        skv_pass_span span = span_of(p, ids + at, chunk, 0);
        status = run(p, &span, at + chunk == n + 1 ? &look : NULL, end_layer, err);
    }
    skv_kv_cache_truncate(&p->s->cache, row0);
    return status;
}

/* Which of the n tokens that wait are read. */
static skv_status choose(const prune_step *p, size_t n, skv_error *err)
{
    skv_engine *e = p->e;
    size_t n_keep = (size_t)(e->options.pruning.keep * (double)n + 0.5);
    if (e->options.pruning.kind == SKV_PRUNE_STATIC && n_keep < n) {
        SKV_TRY(probe_tokens(p, n, err));
    } else {
        skv_prune_random(e->options.random_seed, p->s->pruned->n_run, n, e->prune.scores);
    }
    skv_prune_by_score(e->prune.scores, n, n_keep, e->prune.kept);
    return SKV_OK;
}

/* The kept tokens with the wanted ones after them; where each token's row is. */
static size_t list_ids(const prune_step *p, size_t n_waiting)
{
    const skv_sequence *s = p->s;
    const size_t row = s->cache.n_rows, n_run = s->pruned->n_run;
    size_t n = 0;
    for (size_t i = 0; i < n_waiting + p->span->n_wanted; i++) {
        s->pruned->row_of[n_run + i] = (uint32_t)(row + n);
        if (i >= n_waiting || p->e->prune.kept[i]) p->e->prune.ids[n++] = s->ids[n_run + i];
    }
    return n;
}

static skv_status read_kept(const prune_step *p, size_t n, skv_error *err)
{
    size_t most = p->e->options.step_tokens, n_wanted = p->span->n_wanted;
    for (size_t at = 0; at < n;) {
        size_t left = n - at, chunk = skv_min_size(left, most);
        bool last = chunk == left;
        if (n_wanted > 1 && left > n_wanted) { /* those have a step of their own */
            chunk = skv_min_size(left - n_wanted, most);
            last = false;
        }
        skv_pass_span span = span_of(p, p->e->prune.ids + at, chunk, last ? n_wanted : 0);
        SKV_TRY(run(p, &span, NULL, 0, err));
        at += chunk;
    }
    return SKV_OK;
}

/* LazyLLM: the tokens that wait with the first wanted one in one step, from which rows drop out;
 * then the other wanted ones. Positions stay true, and every slot has rows of its own. */
static skv_status run_lazily(const prune_step *p, size_t n_waiting, skv_error *err)
{
    skv_engine *e = p->e;
    const int32_t *ids = p->s->ids + p->s->pruned->n_run;
    size_t most = e->options.step_tokens, n_wanted = p->span->n_wanted;
    SKV_REQUIRE(n_waiting + 1 <= most, err, SKV_RANGE,
                "prune: lazy: a prompt of %zu tokens, and a step has at most %zu (--chunk)",
                n_waiting + 1, most);
    skv_lazy lazy = {.probe = {.model = &e->model,
                               .plan = &e->plan,
                               .cache = &p->s->cache,
                               .scores = e->prune.scores,
                               .weights = e->prune.weights,
                               .work = &e->work},
                     .slot_rows = p->s->pruned->slot_rows,
                     .keep = e->options.pruning.keep,
                     .end = e->options.pruning.end,
                     .n_all = n_waiting,
                     .n_left = n_waiting,
                     .kept = e->prune.kept};
    const skv_hook hook = skv_lazy_hook(&lazy);
    skv_pass_span span = span_of(p, ids, n_waiting + 1, 1);
    SKV_TRY(run(p, &span, &hook, 0, err));
    if (n_wanted == 1) return SKV_OK;
    lazy.n_all = lazy.n_left = 0;
    span = span_of(p, ids + n_waiting + 1, n_wanted - 1, n_wanted - 1);
    span.told_row++;
    return run(p, &span, &hook, 0, err);
}

skv_status skv_pruned_run(skv_sequence *s, const skv_pass_span *span, const skv_step_sink *sink,
                          skv_error *err)
{
    const prune_step p = {s->engine, s, span, sink};
    if (span->n_wanted == 0) return SKV_OK;
    size_t n_waiting = s->n_seen + span->at.n - s->pruned->n_run - span->n_wanted;
    if (s->pruned->slot_rows) return run_lazily(&p, n_waiting, err);
    if (n_waiting > 0) SKV_TRY(choose(&p, n_waiting, err));
    return read_kept(&p, list_ids(&p, n_waiting), err);
}
