/*
 * A prompt that will lose rows, layer by layer: all of it through one layer, whose slot then keeps
 * the chosen rows, and on to the next. Keys and values of one layer alone are there whole, and the
 * residual stream of all tokens; so prompts fit that are much longer than the store has room for.
 * SwiftKV's deep layers take their rows from the residual stream as it stood before the first of
 * them, one slot at a time, and the tokens that vote or are wanted have another one for themselves.
 */
#include <string.h>

#include "base/size.h"
#include "engine/engine.h"
#include "model/pass.h"

typedef struct reading {
    skv_sequence *s;
    const int32_t *ids;
    size_t n;                  /* tokens of the prompt */
    size_t chunk;              /* of a step */
    size_t deep_from;          /* the first that runs SwiftKV's deep layers */
    skv_area *area;            /* owned: the memory of the next two */
    skv_rows x;                /* [n, D]: the residual stream between two layers; then x_l */
    skv_rows deep;             /* [n - deep_from, D], after x: between two deep layers */
    const skv_step_sink *sink; /* of the last token's logits; NULL: not wanted */
    skv_kv_choice choice;
    size_t i_slot; /* that is being filled */
    bool open;     /* it has pages for all rows */
} reading;

static bool in_stack(const skv_plan *plan, size_t i)
{
    return plan->layers[i].source == SKV_KV_SOURCE_STACK;
}

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
    size_t n_slots = 0;
    for (size_t i = 0; i < plan->n_layers; i++) {
        const skv_plan_layer *layer = &plan->layers[i];
        if (layer->kept == SKV_KEPT_STATE) continue;
        n_slots += layer->writes;
        if (layer->slot + 1 != n_slots || !(layer->writes || in_stack(plan, i))) return false;
    }
    return true;
}

bool skv_prompt_wants_layers(const skv_sequence *s, size_t n)
{
    const skv_plan *plan = s->plan;
    const skv_engine_options *o = &s->engine->options;
    if (s->engine->ranks) return false;                    /* they follow steps */
    if (o->ffn_skip.on || o->early_exit > 0) return false; /* skipped blocks are not kept */
    if (!s->votes.votes || s->n_seen > 0 || s->reader || s->pruned) return false;
    if (s->votes.by_query_head || plan->by_query_head) return false;
    if (skv_plan_next_fed(plan, 0) < plan->n_layers) return false; /* by all rows of the boundary */
    if (!slots_ascend(plan) || !skv_kv_layout_slots_apart(&plan->layout)) return false;
    return skv_kv_layout_pages(&plan->layout, n) > skv_kv_store_free_pages(s->cache.store);
}

/* Layer i alone for the tokens of `span`; x: their residual stream. */
static skv_pass pass_of(const reading *r, size_t i, skv_pass_span *span, skv_rows x,
                        const skv_step_sink *sink)
{
    skv_pass pass = skv_step_pass(r->s->engine, r->s, sink, NULL);
    pass.spans = span;
    pass.n_spans = 1;
    pass.first_layer = i;
    pass.end_layer = i + 1;
    pass.rows = x;
    return pass;
}

/* Tokens of `span` through layer i; x: their residual stream. */
static skv_status run_span(const reading *r, size_t i, skv_pass_span *span, skv_rows x,
                           skv_error *err)
{
    const bool last_layer = i + 1 == r->s->plan->n_layers;
    if (last_layer && span->at.n_past + span->at.n == r->n && r->sink) {
        skv_step_want(span, SKV_WANT_LAST, 0);
    }
    skv_pass pass = pass_of(r, i, span, x, r->sink);
    if (last_layer) pass.end_layer = 0;
    return skv_pass_run(&pass, err);
}

/* Layer i of those that have keys and values of their own. */
static skv_status run_chunk(const reading *r, size_t i, size_t at, size_t n, skv_error *err)
{
    size_t first = r->s->eviction.last_only ? r->n : r->s->votes.from; /* that votes everywhere */
    skv_pass_span span = skv_step_span(r->s, r->ids + at, n, at);
    span.deep_from = first > at ? skv_min_size(first - at, n) : 0;
    return run_span(r, i, &span, skv_rows_from(r->x, at, 0), err);
}

/* Runs deep layer i, whose keys and values are computed, for the tokens that need it. */
static skv_status run_deep_chunk(const reading *r, size_t i, size_t at, size_t n, skv_error *err)
{
    size_t first = skv_max_size(at, r->deep_from);
    if (first >= at + n) return SKV_OK;
    skv_pass_span span = skv_step_span(r->s, r->ids + first, at + n - first, first);
    span.deep_from = 0;
    return run_span(r, i, &span, skv_rows_from(r->deep, first - r->deep_from, 0), err);
}

static skv_status run_layer(const reading *r, size_t i, skv_error *err)
{
    skv_engine *e = r->s->engine;
    bool deep = in_stack(r->s->plan, i);
    for (size_t at = 0; at < r->n; at += r->chunk) {
        size_t n = skv_min_size(r->chunk, r->n - at);
        /* Within a step that changes states nothing is cancelled. */
        SKV_REQUIRE(!e->states.states || !atomic_exchange(&e->cancel, false), err, SKV_CANCELLED,
                    "cancelled before layer %zu", i);
        SKV_TRY((deep ? run_deep_chunk : run_chunk)(r, i, at, n, err));
    }
    return SKV_OK;
}

/* Rows of the deep slot that layer i is the first to read; x_l is at hand. */
static skv_status make_deep_slot(const reading *r, size_t i, skv_error *err)
{
    skv_backend *be = r->s->engine->be;
    if (i == r->s->plan->stack_boundary && r->deep_from < r->n) {
        be->copy_rows(be, r->deep, skv_rows_from(r->x, r->deep_from, 0), r->n - r->deep_from,
                      r->x.ld);
    }
    for (size_t at = 0; at < r->n; at += r->chunk) {
        skv_pass_span span =
            skv_step_span(r->s, r->ids + at, skv_min_size(r->chunk, r->n - at), at);
        skv_pass pass = pass_of(r, i, &span, skv_rows_from(r->x, at, 0), NULL);
        pass.stack_only = true;
        SKV_TRY(skv_pass_run(&pass, err));
    }
    return SKV_OK;
}

/* Layers that keep a state, from i on. Each takes the prompt's tokens in order, whatever the others
 * have taken. */
static skv_status run_states(const reading *r, size_t i, skv_error *err)
{
    const skv_plan *plan = r->s->plan;
    for (; i < plan->n_layers && plan->layers[i].kept == SKV_KEPT_STATE; i++) {
        SKV_TRY(run_layer(r, i, err));
    }
    return SKV_OK;
}

static skv_status fill_slot(reading *r, skv_error *err)
{
    const skv_plan *plan = r->s->plan;
    size_t i = first_layer_of(plan, r->i_slot);
    if (r->i_slot == 0) SKV_TRY(run_states(r, 0, err));
    SKV_TRY(skv_kv_cache_open_slot(&r->s->cache, r->i_slot, r->n, err));
    r->open = true;
    if (in_stack(plan, i)) SKV_TRY(make_deep_slot(r, i, err));
    for (; i < plan->n_layers && plan->layers[i].slot == r->i_slot; i++) {
        SKV_TRY(run_layer(r, i, err));
    }
    SKV_TRY(skv_sequence_choose_slot(r->s, r->i_slot, r->n, &r->choice, err));
    skv_kv_cache_close_slot(&r->s->cache, r->i_slot, r->n, &r->choice);
    r->open = false;
    r->i_slot++;
    return run_states(r, i, err);
}

static skv_status fill_slots(reading *r, const skv_prompt_options *options, skv_error *err)
{
    size_t n_slots = r->s->cache.layout->n_slots;
    while (r->i_slot < n_slots) {
        SKV_TRY(fill_slot(r, err));
        if (options->progress) options->progress(options->user, r->n * r->i_slot / n_slots, r->n);
    }
    return skv_kv_cache_end_slots(&r->s->cache, r->n, &r->choice, err);
}

/* The first token that runs the deep layers, by skv_sequence_deep_from and the wanted rows; n:
 * none, and without SwiftKV. */
static size_t find_deep_from(const reading *r)
{
    const skv_sequence *s = r->s;
    size_t wanted = r->sink ? r->n - 1 : r->n;
    if (s->plan->stack_boundary == s->plan->n_layers) return r->n;
    if (s->unskipped || !s->plan->skip) return 0;
    return s->eviction.last_only ? wanted : skv_min_size(wanted, s->votes.from);
}

static skv_status take_memory(reading *r, skv_error *err)
{
    const size_t D = r->s->engine->config->hidden;
    skv_backend *be = r->s->engine->be;
    skv_area_spec spec = {.kind = SKV_AREA_F32, .n_columns = D, .lasts = true};
    size_t n_bytes;
    r->deep_from = find_deep_from(r);
    const bool counts = skv_size_add(r->n, r->n - r->deep_from, &spec.n_rows) &&
                        skv_size_mul(spec.n_rows, D * sizeof(float), &n_bytes);
    const skv_bytes all = counts ? be->areas_bytes(be, &spec, 1) : (skv_bytes){SIZE_MAX, SIZE_MAX};
    const skv_bytes room = be->available(be);
    SKV_REQUIRE(all.device <= room.device && all.host <= room.host &&
                    be->areas_create(be, &spec, 1, &r->area, NULL) == SKV_OK,
                err, SKV_MEMORY, "prompt: no memory for the residual stream of %zu tokens", r->n);
    r->x = (skv_rows){r->area, 0, D};
    r->deep = skv_rows_from(r->x, r->n, 0);
    skv_status status = skv_kv_choice_init(&r->choice, &r->s->votes, err);
    if (status != SKV_OK) be->areas_free(be, &r->area, 1);
    return status;
}

skv_status skv_prompt_by_layers(skv_sequence *s, const int32_t *ids, size_t n,
                                const skv_step_sink *sink, const skv_prompt_options *options,
                                skv_error *err)
{
    reading r = {.s = s, .ids = ids, .n = n, .chunk = s->engine->options.step_tokens, .sink = sink};
    size_t n_tracks = s->votes.track0[s->votes.n_slots];
    SKV_TRY(skv_engine_check_ids(s->engine, ids, n, err));
    SKV_TRY(take_memory(&r, err));
    skv_status status = fill_slots(&r, options, err);
    if (status == SKV_OK) {
        memcpy(s->ids, ids, n * sizeof *s->ids);
        s->n_seen = s->n_sure = n;
        skv_engine_count_model(s->engine, s, n, sink ? SKV_WANT_LAST : SKV_WANT_NONE);
        skv_kv_votes_release(&s->votes);
    } else {
        skv_kv_cache_drop_slots(&s->cache, r.i_slot, r.open ? n : 0, &r.choice);
    }
    skv_kv_choice_release(&r.choice, n_tracks);
    s->engine->be->areas_free(s->engine->be, &r.area, 1);
    return status;
}
