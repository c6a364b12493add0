/* Sequences: token ids, their cache, and prompts that extend them. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "engine/ranks_tell.h"

static void release(skv_sequence *s)
{
    skv_kv_cache_release(&s->cache);
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
    s->ids = skv_map_zero(max_tokens * sizeof *s->ids);
    skv_status status =
        s->ids ? skv_kv_cache_init(&s->cache, &s->plan->layout, err)
               : skv_fail(err, SKV_MEMORY, "sequence: no memory for %zu ids", max_tokens);
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
        /* Another method may have no exit head, or no auxiliary: nobody drafts. */
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

size_t skv_sequence_truncate(skv_sequence *s, size_t n)
{
    if (n < s->n_seen || s->votes.votes) skv_tell_truncate(s, n);
    skv_kv_votes_release(&s->votes);
    skv_sequence_keep_ready(s, 0);
    if (n >= s->n_seen) return s->n_seen;
    if (!s->pruned) n = skv_kv_cache_reach(&s->cache, n);
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
    if (!s->pruned) n = skv_kv_cache_reach(&from->cache, n);
    size_t n_rows = s->pruned ? skv_pruned_share(s, from, n) : n;
    SKV_TRY(skv_kv_cache_share(&s->cache, &from->cache, n_rows, err));
    if (s->reader && from->reader) {
        const size_t n_read = skv_min_size(n, from->reader->n_read);
        SKV_TRY(skv_kv_cache_share(&s->reader->cache, &from->reader->cache, n_read, err));
        s->reader->n_read = n_read;
    }
    if (n) memcpy(s->ids, from->ids, n * sizeof *s->ids);
    s->n_seen = n;
    skv_tell_share(s, from, n);
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
    const size_t n_read = s->reader ? skv_kv_cache_bytes(&s->reader->cache) : 0;
    return skv_kv_cache_bytes(&s->cache) + n_read;
}

/* ---- prompts ---- */

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
                      const skv_prompt_options *options, skv_error *err)
{
    const skv_prompt_options o = options ? *options : (skv_prompt_options){0};
    SKV_REQUIRE(n >= 1, err, SKV_ARGUMENT, "prompt: empty");
    size_t start = sequence->n_seen, done = 0;
    SKV_REQUIRE(start > 0 || n <= sequence->max_tokens, err, SKV_FULL,
                "prompt: %zu tokens, but the context is %zu", n, sequence->max_tokens);
    SKV_REQUIRE(n <= sequence->max_tokens - start, err, SKV_FULL,
                "prompt: %zu tokens after %zu, but the context is %zu", n, start,
                sequence->max_tokens);
    keep_logits keep = {o.logits, engine->config->vocab};
    skv_status status = skv_sequence_expect(sequence, n, err);
    if (status == SKV_OK && skv_prompt_wants_layers(sequence, n)) {
        const skv_step_sink sink = {.on_row = keep_last, .user = &keep};
        status = skv_prompt_by_layers(sequence, ids, n, o.logits ? &sink : NULL, &o, err);
        done = n;
    }
    while (done < n && status == SKV_OK) {
        size_t chunk = skv_min_size(n - done, engine->options.step_tokens);
        bool last = done + chunk == n;
        skv_span span = {sequence, ids + done, chunk,
                         last && o.logits ? SKV_WANT_LAST : SKV_WANT_NONE};
        status = skv_step(engine, &span, 1, keep_last, &keep, err);
        done += chunk;
        if (o.progress && status == SKV_OK) o.progress(o.user, done, n);
    }
    if (status == SKV_OK) status = skv_sequence_evict(sequence, err);
    if (status != SKV_OK) (void)skv_sequence_truncate(sequence, start);
    return status;
}
