/* Generation: the prompt, then one step for a token and the draft after it. */
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "engine/engine.h"

typedef struct chooser {
    skv_sampler *sampler;
    size_t vocab;
    skv_matcher *matcher; /* borrowed; NULL: every token may come */
    uint32_t *bits;       /* owned, a bit for each token that the matcher allows; NULL likewise */
} chooser;

static bool any_bit(const uint32_t *bits, size_t n_bits)
{
    for (size_t i = 0; i < n_bits; i += 32) {
        if (bits[i / 32] != 0) return true;
    }
    return false;
}

/* c->bits for the next token; *ended: the grammar allows none. */
static skv_status mask(const chooser *c, bool *ended, skv_error *err)
{
    *ended = c->matcher && skv_matcher_is_finished(c->matcher);
    if (!c->matcher || *ended) return SKV_OK;
    SKV_TRY(skv_matcher_mask(c->matcher, c->bits, c->vocab, err));
    *ended = !any_bit(c->bits, c->vocab);
    return SKV_OK;
}

/* Whether a token that is taken changes more than the number by which the next one is drawn. */
static bool depends(const chooser *c)
{
    return c->matcher || skv_sampler_has_penalties(c->sampler);
}

static bool ends(const skv_engine *engine, const chooser *c, const skv_generation *g, int32_t id)
{
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
    /* The span of a step: the token chosen last, and the draft after it. */
    int32_t ids[1 + SKV_DRAFT_MAX];
    size_t n_drafted, n_right; /* the first n_right of them were chosen */
    int32_t next;              /* the token chosen last */
    size_t n_wished;           /* tokens that the back end still has to pick */
    bool judged;               /* the draft has ended */
    bool over;                 /* the answer has ended */
    skv_status status;         /* of choosing, while the step runs */
    skv_error *err;
} generating;

/* The wish for the token after a row. Where it depends on the tokens before it, they come first.
 */
static bool wish(void *user, skv_wishes *to)
{
    generating *r = user;
    bool ended;
    if (r->judged) return true;
    if (r->n_wished > 0 && depends(r->c)) return false;
    r->status = mask(r->c, &ended, r->err);
    if (r->status != SKV_OK || ended) {
        r->judged = r->over = true;
        r->stats->ended = ended;
        return true;
    }
    skv_pick_row *pick = &to->picks[to->n++];
    *pick = (skv_pick_row){.mask = r->c->bits};
    skv_sampler_wish(r->c->sampler, r->n_wished++, pick);
    return true;
}

/* Takes the token that was picked, unless the answer ends there. */
static skv_status take_token(generating *r, skv_error *err)
{
    chooser *c = r->c;
    skv_sampler_drawn(c->sampler);
    if (c->matcher) SKV_TRY(skv_matcher_accept(c->matcher, r->next, NULL, NULL, err));
    if (ends(r->engine, c, r->g, r->next)) {
        r->stats->ended = r->over = true;
        return SKV_OK;
    }
    skv_sampler_accept(c->sampler, r->next, true);
    r->stats->completion_tokens++;
    const bool go_on = !r->g->on_token || r->g->on_token(r->g->user, r->next);
    r->over = !go_on || r->stats->completion_tokens == r->g->max_tokens;
    return SKV_OK;
}

/* The first token is taken when the prompt's rows have been evicted. */
static void keep_first(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    generating *r = user;
    (void)owner;
    r->next = picked->id;
}

/* The token picked after a row is the next one. The draft goes on as long as it is the same. */
static void judge(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    generating *r = user;
    r->n_wished--;
    if (r->judged) return;
    r->next = picked->id;
    r->status = take_token(r, r->err);
    r->judged = r->status != SKV_OK || r->over || owner->i_row == r->n_drafted ||
                r->next != r->ids[1 + owner->i_row];
    if (!r->judged) r->n_right++;
}

/* Runs the token chosen last and a draft, or that token alone where pages are short. */
static skv_status step(generating *r, skv_error *err)
{
    const size_t n_left = r->g->max_tokens - r->stats->completion_tokens;
    r->ids[0] = r->next;
    r->n_drafted = skv_sequence_draft(r->sequence, r->next, r->ids + 1,
                                      skv_min_size(n_left - 1, SKV_DRAFT_MAX));
    r->n_right = r->n_wished = 0;
    r->judged = false;
    r->err = err;
    const skv_step_sink sink = {.on_wish = wish, .on_picked = judge, .user = r};
    skv_span span = {
        .sequence = r->sequence, .ids = r->ids, .n = 1 + r->n_drafted, .want = SKV_WANT_DRAFTED};
    skv_status status = skv_engine_step(r->engine, &span, 1, &sink, err);
    if (status == SKV_FULL && r->n_drafted > 0) {
        span.n = 1;
        r->n_drafted = 0;
        status = skv_engine_step(r->engine, &span, 1, &sink, err);
    }
    if (status == SKV_OK && r->n_drafted > 0) {
        skv_sequence_settle(r->sequence, r->n_drafted, r->n_right);
    }
    if (status == SKV_OK && r->g->on_draft) r->g->on_draft(r->g->user, r->n_drafted, r->n_right);
    return status == SKV_OK ? r->status : status;
}

static skv_status decode(generating *r, skv_error *err)
{
    SKV_TRY(r->status);
    if (!r->over) SKV_TRY(take_token(r, err));
    while (!r->over) SKV_TRY(step(r, err));
    return SKV_OK;
}

/* Reads the prompt; r->next is the token picked after it. */
static skv_status read_prompt(generating *r, const int32_t *ids, size_t n, skv_error *err)
{
    const skv_prompt_options prompt = {.progress = r->g->on_progress, .user = r->g->user};
    const skv_step_sink sink = {.on_wish = wish, .on_picked = keep_first, .user = r};
    for (size_t i = 0; i < n; i++) skv_sampler_accept(r->c->sampler, ids[i], false);
    r->judged = r->g->max_tokens == 0;
    r->err = err;
    return skv_engine_prompt(r->sequence, ids, n, &prompt, &sink, err);
}

static skv_status run(generating *r, const int32_t *ids, size_t n, skv_error *err)
{
    skv_generation_stats *stats = r->stats;
    uint64_t start = skv_clock_ns();
    const skv_work before = skv_engine_get_work(r->engine);
    SKV_TRY(read_prompt(r, ids, n, err));
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
    if (c.matcher) {
        c.bits = skv_alloc_zero(c.vocab / 32 + 1, sizeof *c.bits);
        SKV_REQUIRE(c.bits, err, SKV_MEMORY, "generate: no memory for a mask of %zu tokens",
                    c.vocab);
    }
    generating r = {
        .engine = engine, .sequence = sequence, .c = &c, .g = generation, .stats = stats};
    const skv_status status = run(&r, ids, n, err);
    skv_free(c.bits);
    return status;
}
