/* Generation: the prompt, then one step a token. */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"

typedef struct chooser {
    skv_sampler *sampler;
    float *logits; /* owned, [V]: the sampler changes them */
    size_t vocab;
} chooser;

static void take_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    chooser *c = user;
    (void)i_span;
    (void)i_token;
    for (size_t i = 0; i < c->vocab; i++) c->logits[i] = logits[i];
}

static skv_status decode(skv_engine *engine, skv_sequence *sequence, chooser *c,
                         const skv_generation *g, skv_generation_stats *stats, skv_error *err)
{
    for (;;) {
        int32_t id = skv_sampler_choose(c->sampler, c->logits);
        if (!g->ignore_eos && skv_engine_is_eos(engine, id)) {
            stats->ended = true;
            return SKV_OK;
        }
        skv_sampler_accept(c->sampler, id, true);
        stats->completion_tokens++;
        bool go_on = !g->on_token || g->on_token(g->user, id);
        if (!go_on || stats->completion_tokens == g->max_tokens) return SKV_OK;
        skv_span span = {sequence, &id, 1, SKV_WANT_LAST};
        SKV_TRY(skv_step(engine, &span, 1, take_logits, c, err));
    }
}

static skv_status run(skv_engine *engine, skv_sequence *sequence, const int32_t *ids, size_t n,
                      chooser *c, const skv_generation *g, skv_generation_stats *stats,
                      skv_error *err)
{
    uint64_t start = skv_clock_ns();
    for (size_t i = 0; i < n; i++) skv_sampler_accept(c->sampler, ids[i], false);
    SKV_TRY(skv_prompt(engine, sequence, ids, n, c->logits, g->on_progress, g->user, err));
    stats->prompt_tokens = n;
    uint64_t first = skv_clock_ns();
    stats->ttft_ns = first - start;
    if (g->max_tokens == 0) return SKV_OK;
    skv_status status = decode(engine, sequence, c, g, stats, err);
    stats->decode_ns = skv_clock_ns() - first;
    return status;
}

skv_status skv_generate(skv_engine *engine, skv_sequence *sequence, const int32_t *ids, size_t n,
                        skv_sampler *sampler, const skv_generation *generation,
                        skv_generation_stats *stats, skv_error *err)
{
    skv_generation_stats unused;
    if (!stats) stats = &unused;
    *stats = (skv_generation_stats){0};
    chooser c = {.sampler = sampler, .vocab = engine->config->vocab};
    c.logits = skv_alloc(c.vocab, sizeof *c.logits);
    SKV_REQUIRE(c.logits, err, SKV_MEMORY, "generate: no memory for %zu logits", c.vocab);
    skv_status status = run(engine, sequence, ids, n, &c, generation, stats, err);
    skv_free(c.logits);
    return status;
}
