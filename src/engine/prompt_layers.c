/* Prompts layer by layer: see prompt_layers.h. */
#include "engine/prompt_layers.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

typedef struct reading {
    skv_sequence *s;
    const int32_t *ids;
    size_t n;         /* tokens of the prompt */
    size_t chunk;     /* of a step */
    size_t deep_from; /* the first that runs SwiftKV's deep layers */
    size_t n_bytes;   /* of x */
    float *x;         /* owned, [n, D], mapped: the residual stream between two layers; then x_l */
    float *deep;      /* [n - deep_from, D], behind x: between two deep layers */
    float *logits;    /* [V] or NULL */
    skv_kv_choice choice;
    size_t i_slot; /* that is being filled */
    bool open;     /* it has pages for all rows */
} reading;

/* The first layer that reads a slot: the one that makes its rows, or has them made. */
static size_t first_layer_of(const skv_plan *plan, size_t slot)
{
    size_t i = 0;
    while (plan->layers[i].slot != slot) i++;
    return i;
}

/* Slots are filled in the order of layers, each for layers that follow one another. */
static bool slots_ascend(const skv_plan *plan)
{
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_plan_layer *layer = &plan->layers[i];
        size_t before = i > 0 ? plan->layers[i - 1].slot : 0;
        bool shares = layer->swiftkv && layer->slot == before;
        if (layer->foreign || !(shares || layer->slot == (i > 0 ? before + 1 : 0))) return false;
    }
    return true;
}

bool skv_prompt_wants_layers(const skv_sequence *s, size_t n)
{
    const skv_plan *plan = s->plan;
    const skv_engine_options *o = &s->engine->options;
    if (o->ffn_skip.on || o->early_exit > 0) return false; /* what a row left out is not kept */
    if (!s->votes.votes || s->n_seen > 0 || s->predicts || s->row_of) return false;
    if (s->votes.by_query_head || plan->by_query_head || !slots_ascend(plan)) return false;
    return skv_kv_cache_needs(&s->cache, n) > skv_kv_pool_free_pages(s->cache.pool);
}

static void take_logits(void *user, size_t i_span, size_t i_row, const float *logits)
{
    const reading *r = user;
    (void)i_span;
    (void)i_row;
    memcpy(r->logits, logits, r->s->engine->config->vocab * sizeof *logits);
}

static bool ask_cancelled(void *user)
{
    return atomic_load(&((const reading *)user)->s->engine->cancel);
}

/* A step of tokens [at, at + n) through one layer, or those of its slot. */
static skv_forward step_of(reading *r, skv_forward_span *span, size_t at, size_t n)
{
    skv_sequence *s = r->s;
    skv_engine *e = s->engine;
    *span = (skv_forward_span){.ids = r->ids + at,
                               .n = n,
                               .n_past = at,
                               .position0 = at,
                               .context = s->max_tokens,
                               .cache = &s->cache,
                               .wanted = SKV_ROWS_NONE,
                               .unskipped = s->unskipped,
                               .votes = &s->votes,
                               .deep_from = n};
    return (skv_forward){.model = &e->model,
                         .plan = s->plan,
                         .ws = &e->ws,
                         .spans = span,
                         .n_spans = 1,
                         .on_row = take_logits,
                         .user = r,
                         .rows = r->x + at * e->config->hidden,
                         .work = &e->work,
                         .cancelled = ask_cancelled};
}

/* Layer i of those that have keys and values of their own. */
static skv_status run_chunk(reading *r, size_t i, size_t at, size_t n, skv_error *err)
{
    size_t first = r->s->eviction.last_only ? r->n : r->s->votes.from; /* that votes everywhere */
    bool last_layer = i + 1 == r->s->plan->n_layers;
    skv_forward_span span;
    skv_forward f = step_of(r, &span, at, n);
    f.first_layer = i;
    f.end_layer = last_layer ? 0 : i + 1;
    span.deep_from = first > at ? skv_min_size(first - at, n) : 0;
    if (last_layer && at + n == r->n && r->logits) span.wanted = SKV_ROWS_LAST;
    return skv_forward_run(&f, err);
}

/* Deep layer i, whose rows of keys and values are there, for those of the tokens that run it. */
static skv_status run_deep_chunk(reading *r, size_t i, size_t at, size_t n, skv_error *err)
{
    size_t first = skv_max_size(at, r->deep_from), D = r->s->engine->config->hidden;
    bool last_layer = i + 1 == r->s->plan->n_layers;
    if (first >= at + n) return SKV_OK;
    skv_forward_span span;
    skv_forward f = step_of(r, &span, first, at + n - first);
    f.rows = r->deep + (first - r->deep_from) * D;
    f.first_layer = i;
    f.end_layer = last_layer ? 0 : i + 1;
    span.deep_from = 0;
    if (last_layer && at + n == r->n && r->logits) span.wanted = SKV_ROWS_LAST;
    return skv_forward_run(&f, err);
}

static skv_status run_layer(reading *r, size_t i, skv_error *err)
{
    bool deep = r->s->plan->layers[i].swiftkv;
    for (size_t at = 0; at < r->n; at += r->chunk) {
        size_t n = skv_min_size(r->chunk, r->n - at);
        SKV_TRY((deep ? run_deep_chunk : run_chunk)(r, i, at, n, err));
    }
    return SKV_OK;
}

/* Rows of the deep slot that layer i is the first to read; x_l is at hand. */
static void make_deep_slot(reading *r, size_t i)
{
    const skv_config *c = r->s->engine->config;
    if (i == c->kv_layers && r->deep_from < r->n) {
        memcpy(r->deep, r->x + r->deep_from * c->hidden,
               (r->n - r->deep_from) * c->hidden * sizeof *r->x);
    }
    for (size_t at = 0; at < r->n; at += r->chunk) {
        skv_forward_span span;
        skv_forward f = step_of(r, &span, at, skv_min_size(r->chunk, r->n - at));
        skv_forward_deep_slot(&f, (i - c->kv_layers) / c->kv_group);
    }
}

static skv_status fill_slot(reading *r, skv_error *err)
{
    const skv_plan *plan = r->s->plan;
    size_t i = first_layer_of(plan, r->i_slot);
    SKV_TRY(skv_kv_cache_open_slot(&r->s->cache, r->i_slot, r->n, err));
    r->open = true;
    if (plan->layers[i].swiftkv) make_deep_slot(r, i);
    for (; i < plan->n_layers && plan->layers[i].slot == r->i_slot; i++) {
        SKV_TRY(run_layer(r, i, err));
    }
    SKV_TRY(skv_sequence_choose_slot(r->s, r->i_slot, r->n, &r->choice, err));
    skv_kv_cache_close_slot(&r->s->cache, r->i_slot, r->n, &r->choice);
    r->open = false;
    return SKV_OK;
}

static skv_status fill_slots(reading *r, void (*progress)(void *user, size_t done, size_t total),
                             void *user, skv_error *err)
{
    size_t n_slots = r->s->cache.layout->n_slots;
    for (; r->i_slot < n_slots; r->i_slot++) {
        SKV_TRY(fill_slot(r, err));
        if (progress) progress(user, r->n * (r->i_slot + 1) / n_slots, r->n);
    }
    return skv_kv_cache_end_slots(&r->s->cache, r->n, &r->choice, err);
}

/* The first token that runs the deep layers, as skv_sequence_deep_from and what is wanted have it;
 * n: none, and without SwiftKV. */
static size_t find_deep_from(const reading *r)
{
    const skv_sequence *s = r->s;
    size_t wanted = r->logits ? r->n - 1 : r->n;
    if (!s->plan->layers[s->plan->n_layers - 1].swiftkv) return r->n;
    if (s->unskipped || !s->plan->skip) return 0;
    return s->eviction.last_only ? wanted : skv_min_size(wanted, s->votes.from);
}

static skv_status take_memory(reading *r, skv_error *err)
{
    size_t D = r->s->engine->config->hidden, n_rows;
    r->deep_from = find_deep_from(r);
    bool fits = skv_size_add(r->n, r->n - r->deep_from, &n_rows) &&
                skv_size_mul(n_rows, D * sizeof *r->x, &r->n_bytes);
    SKV_REQUIRE(fits && r->n_bytes <= skv_memory_available(), err, SKV_MEMORY,
                "prompt: no memory for the residual stream of %zu tokens", r->n);
    r->x = skv_map_zero(r->n_bytes);
    SKV_REQUIRE(r->x, err, SKV_MEMORY, "prompt: no memory for the residual stream of %zu tokens",
                r->n);
    r->deep = r->x + r->n * D;
    skv_status status = skv_kv_choice_init(&r->choice, &r->s->votes, err);
    if (status != SKV_OK) skv_unmap(r->x, r->n_bytes);
    return status;
}

skv_status skv_prompt_by_layers(skv_sequence *s, const int32_t *ids, size_t n, float *logits,
                                void (*progress)(void *user, size_t done, size_t total), void *user,
                                skv_error *err)
{
    reading r = {
        .s = s, .ids = ids, .n = n, .chunk = s->engine->options.step_tokens, .logits = logits};
    size_t n_tracks = s->votes.track0[s->votes.n_slots];
    for (size_t t = 0; t < n; t++) {
        SKV_REQUIRE(ids[t] >= 0 && (size_t)ids[t] < s->engine->config->vocab, err, SKV_RANGE,
                    "ids[%zu]: %d, the vocabulary has %zu", t, ids[t], s->engine->config->vocab);
    }
    SKV_TRY(take_memory(&r, err));
    skv_status status = fill_slots(&r, progress, user, err);
    if (status == SKV_OK) {
        memcpy(s->ids, ids, n * sizeof *s->ids);
        s->n_seen = n;
        skv_engine_count_model(s->engine, s, n, logits ? SKV_WANT_LAST : SKV_WANT_NONE);
        skv_kv_votes_release(&s->votes);
    } else {
        skv_kv_cache_drop_slots(&s->cache, r.i_slot, r.open ? n : 0, &r.choice);
        if (status == SKV_CANCELLED) atomic_store(&s->engine->cancel, false);
    }
    skv_kv_choice_release(&r.choice, n_tracks);
    skv_unmap(r.x, r.n_bytes);
    return status;
}
