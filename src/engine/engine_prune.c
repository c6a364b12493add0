/* Token pruning in an engine: see engine_prune.h. */
#include "engine/engine_prune.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

skv_status skv_engine_prune_init(skv_engine *e, skv_error *err)
{
    skv_engine_prune *p = &e->prune;
    size_t n = e->options.context;
    p->kept = skv_alloc_zero(n, sizeof *p->kept);
    p->scores = skv_alloc_zero(n, sizeof *p->scores);
    p->weights = skv_alloc_zero(n, sizeof *p->weights);
    p->ids = skv_alloc_zero(n, sizeof *p->ids);
    p->page = skv_alloc_zero(1, skv_kv_pool_page_bytes(e->pool));
    SKV_REQUIRE(p->kept && p->scores && p->weights && p->ids && p->page, err, SKV_MEMORY,
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
    skv_free(p->page);
    *p = (skv_engine_prune){0};
}

/* All tokens wait again: which rows of a slot are whose is not known. */
static void start_over(skv_sequence *s)
{
    skv_kv_cache_truncate(&s->cache, 0);
    memset(s->slot_rows, 0, s->plan->layout.n_slots * sizeof *s->slot_rows);
    s->n_run = 0;
}

size_t skv_engine_prune_share(skv_sequence *s, const skv_sequence *from, size_t n)
{
    s->n_run = n < from->n_run ? 0 : from->n_run;
    if (s->n_run == 0) return 0;
    memcpy(s->slot_rows, from->slot_rows, s->plan->layout.n_slots * sizeof *s->slot_rows);
    return from->cache.n_rows;
}

void skv_engine_prune_truncate(skv_sequence *s, size_t n)
{
    if (n < s->n_run && s->slot_rows) {
        start_over(s);
    } else if (n < s->n_run) {
        skv_kv_cache_truncate(&s->cache, s->row_of[n]);
        s->n_run = n;
    }
    if (n < s->n_seen) s->n_seen = n;
}

/* A span on its way. */
typedef struct prune_pass {
    skv_engine *e;
    const skv_span *span;
    skv_sequence *s;
    size_t i_span;
    size_t n_wanted; /* its last tokens */
    skv_logits_fn *on_logits;
    void *user;
    size_t row0;      /* the wanted row that is told next, in the span */
    size_t end_layer; /* of a probe; 0: all layers run */
    bool drops;       /* LAZY: rows are dropped between layers, as `lazy` says */
    skv_lazy lazy;
} prune_pass;

static void pass_row(void *user, size_t i_span, size_t i_row, const float *row)
{
    prune_pass *p = user;
    size_t i = p->row0++;
    (void)i_span;
    (void)i_row;
    if (p->on_logits) p->on_logits(p->user, p->i_span, i, row);
}

static bool ask_cancelled(void *user)
{
    return atomic_load(&((const prune_pass *)user)->e->cancel);
}

/* Tokens behind what the cache has, all layers of them or the first few. */
static skv_status run(prune_pass *p, const int32_t *ids, size_t n, skv_rows_wanted wanted,
                      skv_prune_probe *probe, skv_error *err)
{
    skv_engine *e = p->e;
    size_t n_past = p->s->cache.n_rows;
    const skv_row_drop drop = {p->s->slot_rows, skv_lazy_choose, &p->lazy};
    SKV_TRY(skv_kv_cache_grow(&p->s->cache, n_past + n, err));
    const bool hidden =
        p->span->want == SKV_WANT_LAST_HIDDEN || p->span->want == SKV_WANT_ALL_HIDDEN;
    const skv_forward_span span = {.ids = ids,
                                   .n = n,
                                   .n_past = n_past,
                                   .position0 = n_past,
                                   .context = p->s->max_tokens,
                                   .cache = &p->s->cache,
                                   .wanted = wanted,
                                   .deep_from = n,
                                   .hidden = hidden};
    skv_forward f = {.model = &e->model,
                     .plan = &e->plan,
                     .ws = &e->ws,
                     .spans = &span,
                     .n_spans = 1,
                     .on_row = pass_row,
                     .user = p,
                     .on_query = p->drops ? skv_lazy_look
                                 : probe  ? skv_prune_look
                                          : NULL,
                     .query_user = p->drops ? (void *)&p->lazy : (void *)probe,
                     .drop = p->drops ? &drop : NULL,
                     .end_layer = p->end_layer,
                     .cancelled = ask_cancelled};
    skv_engine_add_gates(e, p->s, &f);
    return skv_forward_run(&f, err);
}

/* Attention of the first wanted token to the n before it that wait, from the first layers. */
static skv_status probe_tokens(prune_pass *p, size_t n, skv_error *err)
{
    skv_engine *e = p->e;
    const int32_t *ids = p->s->ids + p->s->n_run;
    size_t row0 = p->s->cache.n_rows;
    memset(e->prune.scores, 0, n * sizeof *e->prune.scores);
    skv_prune_probe probe = {.model = &e->model,
                             .plan = &e->plan,
                             .cache = &p->s->cache,
                             .n_rows = row0 + n + 1,
                             .row0 = row0,
                             .n = n,
                             .scores = e->prune.scores,
                             .weights = e->prune.weights,
                             .page = e->prune.page,
                             .work = &e->work};
    skv_status status = SKV_OK;
    p->end_layer = skv_prune_probe_layers(e->config->n_layers);
    for (size_t at = 0; at < n + 1 && status == SKV_OK;) {
        size_t chunk = skv_min_size(n + 1 - at, e->options.step_tokens);
        bool last = at + chunk == n + 1;
        status = run(p, ids + at, chunk, SKV_ROWS_NONE, last ? &probe : NULL, err);
        at += chunk;
    }
    p->end_layer = 0;
    skv_kv_cache_truncate(&p->s->cache, row0);
    return status;
}

/* Which of the n tokens that wait are read. */
static skv_status choose(prune_pass *p, size_t n, skv_error *err)
{
    skv_engine *e = p->e;
    size_t n_keep = (size_t)(e->options.pruning.keep * (double)n + 0.5);
    if (e->options.pruning.kind == SKV_PRUNE_STATIC && n_keep < n) {
        SKV_TRY(probe_tokens(p, n, err));
    } else {
        skv_prune_random(e->options.random_seed, p->s->n_run, n, e->prune.scores);
    }
    skv_prune_by_score(e->prune.scores, n, n_keep, e->prune.kept);
    return SKV_OK;
}

/* The kept tokens with the wanted ones behind them; where each token's row is. */
static size_t list_ids(const prune_pass *p, size_t n_waiting)
{
    skv_sequence *s = p->s;
    size_t row = s->cache.n_rows, n = 0;
    for (size_t i = 0; i < n_waiting + p->n_wanted; i++) {
        s->row_of[s->n_run + i] = (uint32_t)(row + n);
        if (i >= n_waiting || p->e->prune.kept[i]) p->e->prune.ids[n++] = s->ids[s->n_run + i];
    }
    return n;
}

static skv_status read_kept(prune_pass *p, size_t n, skv_error *err)
{
    const int32_t *ids = p->e->prune.ids;
    size_t most = p->e->options.step_tokens, n_wanted = p->n_wanted;
    for (size_t at = 0; at < n;) {
        size_t left = n - at, chunk = skv_min_size(left, most);
        bool last = chunk == left;
        if (n_wanted > 1 && left > n_wanted) { /* those have a step of their own */
            chunk = skv_min_size(left - n_wanted, most);
            last = false;
        }
        const skv_rows_wanted wanted = n_wanted > 1 ? SKV_ROWS_ALL : SKV_ROWS_LAST;
        SKV_TRY(run(p, ids + at, chunk, last ? wanted : SKV_ROWS_NONE, NULL, err));
        at += chunk;
    }
    return SKV_OK;
}

/* LazyLLM: the tokens that wait with the first wanted one in one step, from which rows drop out;
 * then the other wanted ones. Positions stay true, and every slot has rows of its own. */
static skv_status run_lazily(prune_pass *p, size_t n_waiting, skv_error *err)
{
    skv_engine *e = p->e;
    skv_sequence *s = p->s;
    size_t most = e->options.step_tokens;
    SKV_REQUIRE(n_waiting + 1 <= most, err, SKV_RANGE,
                "prune: lazy: a prompt of %zu tokens, and a step has at most %zu (--chunk)",
                n_waiting + 1, most);
    p->drops = true;
    p->lazy = (skv_lazy){.probe = {.model = &e->model,
                                   .plan = &e->plan,
                                   .cache = &s->cache,
                                   .scores = e->prune.scores,
                                   .weights = e->prune.weights,
                                   .page = e->prune.page,
                                   .work = &e->work},
                         .slot_rows = s->slot_rows,
                         .keep = e->options.pruning.keep,
                         .end = e->options.pruning.end,
                         .n_all = n_waiting,
                         .n_left = n_waiting,
                         .kept = e->prune.kept};
    const int32_t *ids = s->ids + s->n_run;
    SKV_TRY(run(p, ids, n_waiting + 1, SKV_ROWS_LAST, NULL, err));
    p->lazy.n_all = p->lazy.n_left = 0;
    if (p->n_wanted == 1) return SKV_OK;
    return run(p, ids + n_waiting + 1, p->n_wanted - 1, SKV_ROWS_ALL, NULL, err);
}

static size_t count_wanted(const skv_span *span)
{
    if (span->want == SKV_WANT_NONE) return 0;
    return span->want == SKV_WANT_LAST || span->want == SKV_WANT_LAST_HIDDEN ? 1 : span->n;
}

static skv_status run_span(prune_pass *p, skv_error *err)
{
    skv_sequence *s = p->s;
    memcpy(s->ids + s->n_seen, p->span->ids, p->span->n * sizeof *s->ids);
    s->n_seen += p->span->n;
    p->n_wanted = count_wanted(p->span);
    if (p->n_wanted == 0) return SKV_OK;
    p->row0 = p->span->n - p->n_wanted;
    size_t n_waiting = s->n_seen - s->n_run - p->n_wanted;
    if (s->slot_rows) {
        SKV_TRY(run_lazily(p, n_waiting, err));
    } else {
        if (n_waiting > 0) SKV_TRY(choose(p, n_waiting, err));
        SKV_TRY(read_kept(p, list_ids(p, n_waiting), err));
    }
    s->n_run = s->n_seen;
    return SKV_OK;
}

skv_status skv_engine_prune_step(skv_engine *e, const skv_span *spans, size_t n_spans,
                                 skv_logits_fn *on_logits, void *user, skv_error *err)
{
    skv_status status = SKV_OK;
    for (size_t i = 0; i < n_spans; i++) {
        skv_sequence *s = spans[i].sequence;
        s->seen_mark = s->n_seen;
        s->run_mark = s->n_run;
        s->rows_mark = s->cache.n_rows;
    }
    for (size_t i = 0; i < n_spans && status == SKV_OK; i++) {
        prune_pass p = {.e = e,
                        .span = &spans[i],
                        .s = spans[i].sequence,
                        .i_span = i,
                        .on_logits = on_logits,
                        .user = user};
        status = run_span(&p, err);
    }
    if (status == SKV_CANCELLED) atomic_store(&e->cancel, false);
    for (size_t i = 0; i < n_spans && status == SKV_OK; i++) {
        skv_engine_count_model(e, spans[i].sequence, spans[i].n, spans[i].want);
    }
    for (size_t i = 0; i < n_spans && status != SKV_OK; i++) {
        skv_sequence *s = spans[i].sequence;
        s->n_seen = s->seen_mark;
        if (s->slot_rows) { /* its slots may have got rows of some layers */
            start_over(s);
            continue;
        }
        skv_kv_cache_truncate(&s->cache, s->rows_mark);
        s->n_run = s->run_mark;
    }
    return status;
}

double skv_pruning_share(const skv_pruning *pruning, size_t i, size_t n)
{
    switch (pruning->kind) {
    case SKV_PRUNE_RANDOM: return pruning->keep;
    case SKV_PRUNE_STATIC: return (i < skv_prune_probe_layers(n) ? 1 : 0) + pruning->keep;
    case SKV_PRUNE_LAZY: return skv_lazy_share(i, n, pruning->keep, pruning->end);
    case SKV_PRUNE_NONE: break;
    }
    return 1;
}
