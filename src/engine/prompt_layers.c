/* Prompts layer by layer: see prompt_layers.h. */
#include "engine/prompt_layers.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

typedef struct reading {
    skv_sequence *s;
    const int32_t *ids;
    size_t n;      /* tokens of the prompt */
    size_t chunk;  /* of a step */
    float *x;      /* owned, [n, D], mapped: the residual stream between two layers */
    float *logits; /* [V] or NULL */
    skv_kv_choice choice;
    size_t i_layer; /* that is being read */
    bool open;      /* its slot has pages for all rows */
} reading;

bool skv_prompt_wants_layers(const skv_sequence *s, size_t n)
{
    const skv_plan *plan = s->plan;
    if (!s->votes.votes || s->n_seen > 0 || s->predicts || s->row_of) return false;
    if (s->votes.by_query_head || plan->by_query_head) return false;
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_plan_layer *layer = &plan->layers[i];
        if (layer->swiftkv || layer->foreign || layer->slot != i) return false;
    }
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

/* Tokens [at, at + n) through the layer. */
static skv_status run_chunk(reading *r, size_t at, size_t n, skv_error *err)
{
    skv_sequence *s = r->s;
    skv_engine *e = s->engine;
    bool last_layer = r->i_layer + 1 == e->config->n_layers;
    bool wanted = last_layer && at + n == r->n && r->logits;
    size_t first = s->eviction.last_only ? r->n : s->votes.from; /* that runs every layer */
    skv_forward_span span = {.ids = r->ids + at,
                             .n = n,
                             .n_past = at,
                             .position0 = at,
                             .context = s->max_tokens,
                             .cache = &s->cache,
                             .wanted = wanted ? SKV_ROWS_LAST : SKV_ROWS_NONE,
                             .unskipped = s->unskipped,
                             .votes = &s->votes,
                             .deep_from = first > at ? skv_min_size(first - at, n) : 0};
    skv_forward f = {.model = &e->model,
                     .plan = s->plan,
                     .ws = &e->ws,
                     .spans = &span,
                     .n_spans = 1,
                     .on_row = take_logits,
                     .user = r,
                     .first_layer = r->i_layer,
                     .end_layer = last_layer ? 0 : r->i_layer + 1,
                     .rows = r->x + at * e->config->hidden,
                     .cancelled = ask_cancelled};
    return skv_forward_run(&f, err);
}

static skv_status run_layer(reading *r, skv_error *err)
{
    SKV_TRY(skv_kv_cache_open_slot(&r->s->cache, r->i_layer, r->n, err));
    r->open = true;
    for (size_t at = 0; at < r->n; at += r->chunk) {
        SKV_TRY(run_chunk(r, at, skv_min_size(r->chunk, r->n - at), err));
    }
    SKV_TRY(skv_sequence_choose_slot(r->s, r->i_layer, r->n, &r->choice, err));
    skv_kv_cache_close_slot(&r->s->cache, r->i_layer, r->n, &r->choice);
    r->open = false;
    return SKV_OK;
}

static skv_status run_layers(reading *r, void (*progress)(void *user, size_t done, size_t total),
                             void *user, skv_error *err)
{
    size_t n_layers = r->s->plan->n_layers;
    for (; r->i_layer < n_layers; r->i_layer++) {
        SKV_TRY(run_layer(r, err));
        if (progress) progress(user, r->n * (r->i_layer + 1) / n_layers, r->n);
    }
    return skv_kv_cache_end_slots(&r->s->cache, r->n, &r->choice, err);
}

static skv_status take_memory(reading *r, size_t *n_bytes, skv_error *err)
{
    size_t D = r->s->engine->config->hidden;
    bool fits = skv_size_mul(r->n, D * sizeof *r->x, n_bytes);
    SKV_REQUIRE(fits && *n_bytes <= skv_memory_available(), err, SKV_MEMORY,
                "prompt: no memory for the residual stream of %zu tokens", r->n);
    r->x = skv_map_zero(*n_bytes);
    SKV_REQUIRE(r->x, err, SKV_MEMORY, "prompt: no memory for the residual stream of %zu tokens",
                r->n);
    skv_status status = skv_kv_choice_init(&r->choice, &r->s->votes, err);
    if (status != SKV_OK) skv_unmap(r->x, *n_bytes);
    return status;
}

skv_status skv_prompt_by_layers(skv_sequence *s, const int32_t *ids, size_t n, float *logits,
                                void (*progress)(void *user, size_t done, size_t total), void *user,
                                skv_error *err)
{
    reading r = {
        .s = s, .ids = ids, .n = n, .chunk = s->engine->options.step_tokens, .logits = logits};
    size_t n_bytes = 0, n_tracks = s->votes.track0[s->votes.n_slots];
    for (size_t t = 0; t < n; t++) {
        SKV_REQUIRE(ids[t] >= 0 && (size_t)ids[t] < s->engine->config->vocab, err, SKV_RANGE,
                    "ids[%zu]: %d, the vocabulary has %zu", t, ids[t], s->engine->config->vocab);
    }
    SKV_TRY(take_memory(&r, &n_bytes, err));
    skv_status status = run_layers(&r, progress, user, err);
    if (status == SKV_OK) {
        memcpy(s->ids, ids, n * sizeof *s->ids);
        s->n_seen = n;
        skv_kv_votes_release(&s->votes);
    } else {
        skv_kv_cache_drop_slots(&s->cache, r.i_layer, r.open ? n : 0, &r.choice);
        if (status == SKV_CANCELLED) atomic_store(&s->engine->cancel, false);
    }
    skv_kv_choice_release(&r.choice, n_tracks);
    skv_unmap(r.x, n_bytes);
    return status;
}
