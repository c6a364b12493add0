/* Generation: the prompt, then one step for a token and what is drafted behind it. */
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "engine/engine.h"

typedef struct chooser {
    skv_sampler *sampler;
    float *logits; /* owned, [V]: the sampler changes them */
    size_t vocab;
    skv_matcher *matcher; /* borrowed; NULL: every token may come */
    uint32_t *bits;       /* owned, a bit for each token that the matcher allows */
} chooser;

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
    /* The span of a step: the token chosen last, and what is drafted behind it. */
    int32_t ids[1 + SKV_DRAFT_MAX];
    size_t n_drafted, n_right; /* the first n_right of them are what was chosen */
    int32_t next;              /* the token chosen last */
    bool judged;               /* the draft has ended */
    bool over;                 /* the answer has ended */
    skv_status status;         /* of choosing, while the step runs */
    skv_error *err;
} generating;

/* Chooses a token from c->logits and takes it, unless the answer ends there. */
static skv_status take_token(generating *r, skv_error *err)
{
    SKV_TRY(choose(r->c, &r->next, err));
    if (ends(r->engine, r->c, r->g, r->next)) {
        r->stats->ended = r->over = true;
        return SKV_OK;
    }
    skv_sampler_accept(r->c->sampler, r->next, true);
    r->stats->completion_tokens++;
    const bool go_on = !r->g->on_token || r->g->on_token(r->g->user, r->next);
    r->over = !go_on || r->stats->completion_tokens == r->g->max_tokens;
    return SKV_OK;
}

/* What is chosen behind a row is the next token. The draft goes on as long as it is the same. */
static void judge(void *user, size_t i_span, size_t i_token, const float *logits)
{
    generating *r = user;
    (void)i_span;
    if (r->judged) return;
    for (size_t i = 0; i < r->c->vocab; i++) r->c->logits[i] = logits[i];
    r->status = take_token(r, r->err);
    r->judged =
        r->status != SKV_OK || r->over || i_token == r->n_drafted || r->next != r->ids[1 + i_token];
    if (!r->judged) r->n_right++;
}

/* Runs the token chosen last and a draft, or that token alone where pages are short. */
static skv_status step(generating *r, skv_error *err)
{
    const size_t n_left = r->g->max_tokens - r->stats->completion_tokens;
    r->ids[0] = r->next;
    r->n_drafted = skv_sequence_draft(r->sequence, r->next, r->ids + 1,
                                      skv_min_size(n_left - 1, SKV_DRAFT_MAX));
    r->n_right = 0;
    r->judged = false;
    r->err = err;
    skv_span span = {
        .sequence = r->sequence, .ids = r->ids, .n = 1 + r->n_drafted, .want = SKV_WANT_DRAFTED};
    skv_status status = skv_step(r->engine, &span, 1, judge, r, err);
    if (status == SKV_FULL && r->n_drafted > 0) {
        span.n = 1;
        r->n_drafted = 0;
        status = skv_step(r->engine, &span, 1, judge, r, err);
    }
    if (status == SKV_OK && r->n_drafted > 0) {
        skv_sequence_settle(r->sequence, r->n_drafted, r->n_right);
    }
    if (status == SKV_OK && r->g->on_draft) r->g->on_draft(r->g->user, r->n_drafted, r->n_right);
    return status == SKV_OK ? r->status : status;
}

static skv_status decode(generating *r, skv_error *err)
{
    SKV_TRY(take_token(r, err));
    while (!r->over) SKV_TRY(step(r, err));
    return SKV_OK;
}

static skv_status run(generating *r, const int32_t *ids, size_t n, skv_error *err)
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
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        stats->drafts[i] = skv_sequence_drafts(r->sequence, (skv_drafting)i);
    }
    skv_status status = decode(r, err);
    now = skv_engine_get_work(r->engine);
    stats->work = skv_work_since(&now, &before);
    stats->decode_ns = skv_clock_ns() - first;
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        const skv_draft_counts end = skv_sequence_drafts(r->sequence, (skv_drafting)i);
        stats->drafts[i].drafted = end.drafted - stats->drafts[i].drafted;
        stats->drafts[i].accepted = end.accepted - stats->drafts[i].accepted;
    }
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
            ? run(&(generating){.engine = engine,
                                .sequence = sequence,
                                .c = &c,
                                .g = generation,
                                .stats = stats},
                  ids, n, err)
            : skv_fail(err, SKV_MEMORY, "generate: no memory for %zu logits", c.vocab);
    skv_free(c.logits);
    skv_free(c.bits);
    return status;
}
