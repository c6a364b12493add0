/* Generation: the prompt, then one step a token. */
#include "base/mem.h"
#include "base/system.h"
#include "engine/engine.h"

typedef struct chooser {
    skv_sampler *sampler;
    float *logits; /* owned, [V]: the sampler changes them */
    size_t vocab;
    skv_matcher *matcher; /* borrowed; NULL: every token may come */
    uint32_t *bits;       /* owned, a bit for each token that the matcher allows */
} chooser;

static void take_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    chooser *c = user;
    (void)i_span;
    (void)i_token;
    for (size_t i = 0; i < c->vocab; i++) c->logits[i] = logits[i];
}

static bool any_bit(const uint32_t *bits, size_t n_bits)
{
    for (size_t i = 0; i < n_bits; i += 32) {
        if (bits[i / 32] != 0) return true;
    }
    return false;
}

/* The next token; -1 when the grammar has ended. */
static skv_status choose(chooser *c, int32_t *id, skv_error *err)
{
    *id = -1;
    if (c->matcher) {
        if (skv_matcher_is_finished(c->matcher)) return SKV_OK;
        SKV_TRY(skv_matcher_mask(c->matcher, c->bits, c->vocab, err));
        if (!any_bit(c->bits, c->vocab)) return SKV_OK;
        skv_mask_logits(c->bits, c->logits, c->vocab);
    }
    *id = skv_sampler_choose(c->sampler, c->logits);
    return c->matcher ? skv_matcher_accept(c->matcher, *id, NULL, NULL, err) : SKV_OK;
}

static bool ends(const skv_engine *engine, const chooser *c, const skv_generation *g, int32_t id)
{
    if (id < 0) return true;
    if (!skv_engine_is_eos(engine, id)) return false;
    return !g->ignore_eos || (c->matcher && skv_matcher_is_finished(c->matcher));
}

/* A prompt and its answer on their way. */
typedef struct generating {
    skv_engine *engine;
    skv_sequence *sequence;
    chooser *c;
    const skv_generation *g;
    skv_generation_stats *stats;
} generating;

static skv_status decode(const generating *r, skv_error *err)
{
    for (;;) {
        int32_t id;
        SKV_TRY(choose(r->c, &id, err));
        if (ends(r->engine, r->c, r->g, id)) {
            r->stats->ended = true;
            return SKV_OK;
        }
        skv_sampler_accept(r->c->sampler, id, true);
        r->stats->completion_tokens++;
        bool go_on = !r->g->on_token || r->g->on_token(r->g->user, id);
        if (!go_on || r->stats->completion_tokens == r->g->max_tokens) return SKV_OK;
        skv_span span = {r->sequence, &id, 1, SKV_WANT_LAST};
        SKV_TRY(skv_step(r->engine, &span, 1, take_logits, r->c, err));
    }
}

static skv_status run(const generating *r, const int32_t *ids, size_t n, skv_error *err)
{
    skv_generation_stats *stats = r->stats;
    uint64_t start = skv_clock_ns();
    const skv_work before = skv_engine_get_work(r->engine);
    for (size_t i = 0; i < n; i++) skv_sampler_accept(r->c->sampler, ids[i], false);
    const skv_prompt_options prompt = {
        .logits = r->c->logits, .progress = r->g->on_progress, .user = r->g->user};
    SKV_TRY(skv_prompt(r->engine, r->sequence, ids, n, &prompt, err));
    stats->prompt_tokens = n;
    uint64_t first = skv_clock_ns();
    stats->ttft_ns = first - start;
    skv_work now = skv_engine_get_work(r->engine);
    stats->prompt_work = stats->work = skv_work_since(&now, &before);
    if (r->g->max_tokens == 0) return SKV_OK;
    skv_status status = decode(r, err);
    now = skv_engine_get_work(r->engine);
    stats->work = skv_work_since(&now, &before);
    stats->decode_ns = skv_clock_ns() - first;
    return status;
}

skv_status skv_generate(skv_engine *engine, skv_sequence *sequence, const int32_t *ids, size_t n,
                        const skv_generation *generation, skv_error *err)
{
    skv_generation_stats unused, *stats = generation->stats ? generation->stats : &unused;
    *stats = (skv_generation_stats){0};
    chooser c = {.sampler = generation->sampler,
                 .vocab = engine->config->vocab,
                 .matcher = generation->matcher};
    c.logits = skv_alloc(c.vocab, sizeof *c.logits);
    c.bits = skv_alloc_zero(c.vocab / 32 + 1, sizeof *c.bits);
    skv_status status =
        c.logits && c.bits
            ? run(&(generating){engine, sequence, &c, generation, stats}, ids, n, err)
            : skv_fail(err, SKV_MEMORY, "generate: no memory for %zu logits", c.vocab);
    skv_free(c.logits);
    skv_free(c.bits);
    return status;
}
