/* Sequences: token ids, their cache, and prompts that extend them. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "ranks/ranks_tell.h"
#include "skv/inspect.h"

static void release(skv_sequence *s)
{
    skv_kv_cache_release(&s->cache);
    skv_state_pool_give(&s->engine->states, s->state);
    skv_kv_votes_release(&s->votes);
    if (s->ids) skv_unmap(s->ids, s->max_tokens * sizeof *s->ids);
    skv_pruned_free(s->pruned, s->max_tokens);
    skv_reader_free(s->reader);
    skv_drafter_free(s->drafter);
    skv_free(s);
}

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
    s->max_tokens = max_tokens;
    s->state = SKV_NO_STATE;
    s->ids = skv_map_zero(max_tokens * sizeof *s->ids);
    skv_status status =
        s->ids ? skv_kv_cache_init(&s->cache, &s->plan->layout, err)
               : skv_fail(err, SKV_MEMORY, "sequence: no memory for %zu ids", max_tokens);
    if (status == SKV_OK) status = skv_state_pool_take(&engine->states, &s->state, err);
    const bool predicts = engine->kvpred.on && (asks || prefill == SKV_PREFILL_AUTO);
    if (status == SKV_OK && engine->options.pruning.kind != SKV_PRUNE_NONE) {
        status = skv_pruned_create(s, err);
    }
    if (status == SKV_OK && predicts) status = skv_reader_create(s, err);
    if (engine->adapters.n > 0) {
        s->adapters.at[s->adapters.n].adapter = engine->adapters.items;
        s->adapters.at[s->adapters.n++].scale = 1;
    }
    s->eviction = engine->options.eviction;
    const bool own = prefill == SKV_PREFILL_AUTO || prefill == engine->options.prefill;
    if (status == SKV_OK) {
        status = skv_sequence_set_speculation(s, &engine->options.speculation, err);
        /* Another method may have no exit head, or no auxiliary: then nothing drafts. */
        if (status == SKV_UNSUPPORTED && !own) status = SKV_OK;
    }
    if (status != SKV_OK) {
        release(s);
        return status;
    }
    skv_tell_create(s, prefill);
    *out = s;
    return SKV_OK;
}

void skv_sequence_free(skv_sequence *s)
{
    if (!s) return;
    skv_tell_free(s);
    release(s);
}

skv_status skv_sequence_set_adapters(skv_sequence *s, const skv_adapter_use *uses, size_t n,
                                     skv_error *err)
{
    skv_adapter_mix adapters;
    SKV_TRY(skv_adapters_mix(&s->engine->adapters, uses, n, &adapters, err));
    SKV_REQUIRE(s->n_seen == 0 || skv_adapter_mix_equal(&adapters, &s->adapters), err, SKV_ARGUMENT,
                "adapters: the sequence has tokens that were read with others");
    s->adapters = adapters;
    return SKV_OK;
}

size_t skv_sequence_length(const skv_sequence *s)
{
    return s->n_seen;
}

const int32_t *skv_sequence_ids(const skv_sequence *s)
{
    return s->ids;
}

/* How many of the first n tokens of a sequence can be continued from. Its state has all tokens, and
 * gives back those of the last draft alone. */
static size_t reach(const skv_sequence *s, size_t n)
{
    if (s->state != SKV_NO_STATE && n != s->n_seen && n < s->n_sure) return 0;
    return skv_kv_cache_reach(&s->cache, n);
}

bool skv_sequence_reaches(const skv_sequence *s, size_t n)
{
    return n > 0 && reach(s, n) == n;
}

size_t skv_sequence_truncate(skv_sequence *s, size_t n)
{
    if (n < s->n_seen || s->votes.votes) skv_tell_truncate(s, n);
    skv_kv_votes_release(&s->votes);
    skv_sequence_keep_ready(s, 0);
    if (n >= s->n_seen) return s->n_seen;
    if (!s->pruned) n = reach(s, n);
    if (s->pruned) {
        skv_pruned_truncate(s, n);
    } else {
        skv_kv_cache_truncate(&s->cache, n);
    }
    if (s->reader) {
        skv_kv_cache_truncate(&s->reader->cache, n);
        s->reader->n_read = skv_min_size(s->reader->n_read, n);
    }
    s->n_seen = n;
    s->n_sure = skv_min_size(s->n_sure, n);
    skv_sequence_keep_ready(s, 0);
    return n;
}

skv_status skv_sequence_share(skv_sequence *s, const skv_sequence *from, size_t n, skv_error *err)
{
    bool alike = s->plan == from->plan && skv_adapter_mix_equal(&s->adapters, &from->adapters) &&
                 (!!s->reader) == (!!from->reader);
    SKV_REQUIRE(s->engine == from->engine && alike && s->n_seen == 0, err, SKV_ARGUMENT,
                "sequence: only an empty one of the same engine and method can share another's "
                "beginning");
    SKV_REQUIRE(n <= from->n_seen && n <= s->max_tokens, err, SKV_RANGE,
                "sequence: %zu tokens to share, the other has %zu and this one room for %zu", n,
                from->n_seen, s->max_tokens);
    if (!s->pruned) n = reach(from, n);
    size_t n_rows = s->pruned ? skv_pruned_share(s, from, n) : n;
    SKV_TRY(skv_kv_cache_share(&s->cache, &from->cache, n_rows, err));
    if (s->reader && from->reader) {
        const size_t n_read = skv_min_size(n, from->reader->n_read);
        SKV_TRY(skv_kv_cache_share(&s->reader->cache, &from->reader->cache, n_read, err));
        s->reader->n_read = n_read;
    }
    if (n > 0 && s->state != SKV_NO_STATE) {
        skv_state_pool *states = &s->engine->states;
        skv_state_pool_copy(states, s->state, states->states, from->state);
    }
    if (n) memcpy(s->ids, from->ids, n * sizeof *s->ids);
    s->n_seen = n;
    s->n_sure = skv_min_size(from->n_sure, n);
    skv_tell_share(s, from, n);
    return SKV_OK;
}

void skv_sequence_adopt(skv_sequence *s, const int32_t *ids, size_t n, size_t checkpoint)
{
    skv_engine *e = s->engine;
    assert(s->n_seen == 0 && s->cache.n_rows == n && n <= s->max_tokens);
    if (n > 0 && s->state != SKV_NO_STATE) {
        assert(checkpoint != SKV_NO_STATE);
        skv_state_pool_copy(&e->states, s->state, e->checkpoints.states, checkpoint);
    }
    if (n) memcpy(s->ids, ids, n * sizeof *s->ids);
    s->n_seen = s->n_sure = n;
}

size_t skv_sequence_kv_bytes(const skv_sequence *s)
{
    const size_t n_read = s->reader ? skv_kv_cache_bytes(&s->reader->cache) : 0;
    const size_t n_state = s->state != SKV_NO_STATE ? s->engine->states.state_bytes : 0;
    return skv_kv_cache_bytes(&s->cache) + n_read + n_state;
}

bool skv_sequence_kv_shape(const skv_sequence *s, size_t i_layer, skv_kv_shape *out)
{
    if (i_layer >= s->plan->n_layers) return false;
    const skv_kv_layout *layout = s->cache.layout;
    const size_t slot = s->plan->layers[i_layer].slot;
    if (slot == SKV_NO_SLOT) return false;
    const size_t track = layout->track0[slot];
    const skv_layer_shape *shape = &s->engine->config->layers[i_layer];
    *out = (skv_kv_shape){.n_heads = layout->track0[slot + 1] - track,
                          .n_query_heads = shape->n_heads,
                          .head_dim = layout->tracks[track].head_dim,
                          .slot = slot,
                          .window = shape->window};
    return true;
}
