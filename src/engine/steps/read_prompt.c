/* Reading a prompt, in chunks or layer by layer. */
#include <string.h>

#include "base/size.h"
#include "engine/engine.h"

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
    keep_logits keep = {o.logits, engine->config->vocab};
    const skv_step_sink sink = {.on_row = keep_last, .user = &keep};
    return skv_engine_prompt(sequence, ids, n, &o, o.logits ? &sink : NULL, err);
}

skv_status skv_engine_prompt(skv_sequence *sequence, const int32_t *ids, size_t n,
                             const skv_prompt_options *o, const skv_step_sink *sink, skv_error *err)
{
    SKV_REQUIRE(n >= 1, err, SKV_ARGUMENT, "prompt: empty");
    size_t start = sequence->n_seen, done = 0;
    SKV_REQUIRE(start > 0 || n <= sequence->max_tokens, err, SKV_FULL,
                "prompt: %zu tokens, but the context is %zu", n, sequence->max_tokens);
    SKV_REQUIRE(n <= sequence->max_tokens - start, err, SKV_FULL,
                "prompt: %zu tokens after %zu, but the context is %zu", n, start,
                sequence->max_tokens);
    skv_engine *engine = sequence->engine;
    skv_status status = skv_sequence_expect(sequence, n, err);
    if (status == SKV_OK && skv_prompt_wants_layers(sequence, n)) {
        status = skv_prompt_by_layers(sequence, ids, n, sink, o, err);
        done = n;
    }
    while (done < n && status == SKV_OK) {
        size_t chunk = skv_min_size(n - done, engine->options.step_tokens);
        bool last = done + chunk == n;
        skv_span span = {sequence, ids + done, chunk, last && sink ? SKV_WANT_LAST : SKV_WANT_NONE};
        status = skv_engine_step(engine, &span, 1, sink, err);
        done += chunk;
        if (o->progress && status == SKV_OK) o->progress(o->user, done, n);
    }
    if (status == SKV_OK) status = skv_sequence_evict(sequence, err);
    if (status != SKV_OK) (void)skv_sequence_truncate(sequence, start);
    return status;
}
