/*
 * The rows of a sequence and its attention, for the host to read: see skv/inspect.h.
 *
 * Pages are read through the store, and weights are votes of one token by query head: the back end
 * adds each token's softmax to sums that were 0.
 */
#include "skv/inspect.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "kernels/kv_page.h"
#include "model/pass.h"

/* Whether every layer runs for every token of the sequence. */
static skv_status check_every_layer(const skv_sequence *s, skv_error *err)
{
    static const skv_eviction none = {.method = SKV_EVICT_NONE};
    skv_prefill how = SKV_PREFILL_AUTO;
    if (s->unskipped || s->engine->kvpred.on) how = SKV_PREFILL_FULL;
    if (s->reader) how = SKV_PREFILL_KVPRED;
    return skv_engine_check(s->engine, SKV_WHERE_SIMILARITY, how, &none, err);
}

static skv_status check_ranks(const skv_sequence *s, skv_error *err)
{
    SKV_REQUIRE(!s->engine->ranks, err, SKV_UNSUPPORTED,
                "several ranks: a process has only its own heads");
    return SKV_OK;
}

/* ---- keys and values ---- */

skv_status skv_sequence_read_kv(const skv_sequence *s, size_t i_layer, size_t i_head, float *k,
                                float *v, skv_error *err)
{
    skv_kv_shape shape;
    SKV_TRY(check_ranks(s, err));
    if (s->pruned) SKV_TRY(check_every_layer(s, err));
    SKV_REQUIRE(skv_sequence_kv_shape(s, i_layer, &shape) && i_head < shape.n_heads, err,
                SKV_ARGUMENT, "keys and values: layer %zu has no head %zu", i_layer, i_head);
    const skv_kv_cache *cache = &s->cache;
    const size_t track = cache->layout->track0[shape.slot] + i_head, Dh = shape.head_dim;
    const size_t n = skv_kv_cache_track_rows(cache, track);
    const skv_kv_type type = skv_kv_store_type(cache->store);
    const size_t offset = skv_kv_layout_offset(cache->layout, track);
    for (size_t first = 0; first < n; first += SKV_PAGE_ROWS) {
        const unsigned char *page =
            skv_kv_page_map(cache->store, skv_kv_cache_page(cache, track, first / SKV_PAGE_ROWS));
        for (size_t r = first; r < skv_min_size(n, first + SKV_PAGE_ROWS); r++) {
            skv_kv_load_ref(page + offset, type, r % SKV_PAGE_ROWS, k ? k + r * Dh : NULL,
                            v ? v + r * Dh : NULL, Dh);
        }
        skv_kv_page_unmap(cache->store, page);
    }
    return SKV_OK;
}

/* ---- attention ---- */

typedef struct attention_tap {
    const skv_sequence *sequence;
    skv_pass *pass;  /* of the step that runs */
    size_t n_past;   /* tokens before it */
    skv_area *votes; /* [heads, stride], owned: by row of the head */
    float *weights;  /* [heads][stride], owned: by position */
    size_t n_floats; /* of each */
    skv_weights_fn *on_weights;
    void *user;
} attention_tap;

static void take_pass(void *user, skv_pass *p)
{
    ((attention_tap *)user)->pass = p;
}

/* The softmax of token j of the step; q are the rotated queries of all of them. */
static void vote(const attention_tap *tap, size_t i, skv_rows q, size_t j)
{
    const skv_pass *p = tap->pass;
    const skv_layer_shape *shape = &p->c->layers[i];
    const size_t n_rows = tap->n_past + j + 1;
    const skv_rows votes = {tap->votes, 0, n_rows};
    const skv_mapped none = p->be->map(p->be, votes, shape->n_heads, n_rows, SKV_MAP_WRITE);
    for (size_t h = 0; h < shape->n_heads; h++) {
        memset(none.at + h * none.ld, 0, n_rows * sizeof *none.at);
    }
    p->be->unmap(p->be, none);
    p->be->votes(p->be, &(skv_votes_args){
                            .step = p->ws->step,
                            .set = p->set,
                            .first = j,
                            .n = 1,
                            .q = q,
                            .slot = p->plan->layers[i].slot,
                            .n_heads = shape->n_heads,
                            .head_dim = skv_config_head_dim(p->c, i),
                            .window = shape->window,
                            .scale = (float)p->c->attention_scale,
                            .softcap = (float)p->c->attention_softcap,
                            .sinks = p->m->layers[i].sinks,
                            .votes = votes,
                            .by_query_head = true,
                        });
    p->work->attention +=
        2 * (double)skv_config_q_columns(p->c, i) * (double)n_rows; /* scores once more */
}

/* Votes by row become weights by position, n of each head. */
static void spread_rows(const attention_tap *tap, size_t i, size_t n)
{
    const skv_kv_cache *cache = &tap->sequence->cache;
    const size_t slot = tap->pass->plan->layers[i].slot;
    const size_t *dropped = skv_kv_cache_dropped(cache, slot);
    const size_t n_heads = tap->pass->c->layers[i].n_heads;
    const size_t n_group = n_heads / skv_pass_tracks(tap->pass, i);
    skv_backend *be = tap->pass->be;
    const skv_mapped votes = be->map(be, (skv_rows){tap->votes, 0, n}, n_heads, n, SKV_MAP_READ);
    memset(tap->weights, 0, tap->n_floats * sizeof *tap->weights);
    for (size_t h = 0; h < n_heads; h++) {
        const size_t head = h / n_group, track = cache->layout->track0[slot] + head;
        const size_t n_rows = n - (dropped ? dropped[head] : 0);
        for (size_t r = 0; r < n_rows; r++) {
            const size_t position = skv_kv_cache_position(cache, track, r);
            tap->weights[h * n + position] = votes.at[h * votes.ld + r];
        }
    }
    be->unmap(be, votes);
}

static void tell_weights(void *user, size_t i, skv_rows q, size_t n_rows)
{
    const attention_tap *tap = user;
    const size_t n_heads = tap->pass->c->layers[i].n_heads;
    for (size_t j = 0; j < n_rows; j++) {
        const size_t n = tap->n_past + j + 1;
        vote(tap, i, q, j);
        spread_rows(tap, i, n);
        tap->on_weights(tap->user, i, j, tap->weights, n_heads, n);
    }
}

static size_t most_heads(const skv_config *c)
{
    size_t most = 0;
    for (size_t i = 0; i < c->n_layers; i++) most = skv_max_size(most, c->layers[i].n_heads);
    return most;
}

skv_status skv_step_attention(skv_sequence *s, const int32_t *ids, size_t n,
                              skv_weights_fn *on_weights, void *user, skv_error *err)
{
    skv_engine *e = s->engine;
    attention_tap tap = {.sequence = s, .on_weights = on_weights, .user = user};
    const skv_hook hook = {.user = &tap, .start = take_pass, .on_query = tell_weights};
    const skv_span span = {s, ids, n, SKV_WANT_ALL_HIDDEN};
    SKV_TRY(check_ranks(s, err));
    SKV_TRY(check_every_layer(s, err));
    SKV_REQUIRE(n <= s->max_tokens - s->n_seen, err, SKV_FULL,
                "attention: %zu tokens and %zu new ones, but the context is %zu", s->n_seen, n,
                s->max_tokens);
    skv_sequence_keep_ready(s, 0);
    tap.n_past = s->n_seen;
    tap.n_floats = most_heads(e->config) * (s->n_seen + n);
    const skv_area_spec spec = {.kind = SKV_AREA_F32, .n_rows = 1, .n_columns = tap.n_floats};
    SKV_TRY(e->be->areas_create(e->be, &spec, 1, &tap.votes, err));
    tap.weights = skv_alloc(tap.n_floats, sizeof *tap.weights);
    const skv_status status =
        tap.weights ? skv_engine_step(e, &span, 1, &(skv_step_sink){.tap = &hook}, err)
                    : skv_fail(err, SKV_MEMORY, "attention: no memory for %zu rows", s->n_seen + n);
    e->be->areas_free(e->be, &tap.votes, 1);
    skv_free(tap.weights);
    return status;
}
