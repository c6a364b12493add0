/*
 * Choosing a token from logits: penalties, then temperature, top-k, min-p, top-p, and a draw.
 *
 * The order is that of the common servers: penalties on logits, then temperature, then top-k and
 * min-p, then top-p on what they leave (logit_look.c). One uniform number is drawn for every token
 * that is not greedy, so a seed gives the same tokens again.
 */
#include "backend/cpu/logit_look.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "common/sampling_fields.h"
#include "engine/engine.h"

typedef struct recent_token {
    int32_t id;
    bool generated;
} recent_token;

struct skv_sampler {
    skv_sampling s;
    size_t vocab;
    skv_rng rng;
    skv_look *look;    /* owned; NULL: it only makes wishes */
    skv_penalty *seen; /* owned, [n_seen], room for most_seen; NULL: no penalties */
    size_t n_seen;
    uint32_t *places; /* owned, [vocab]: a token's place in `seen` + 1; 0: it was not; NULL likewise
                       */
    /* The tokens of a penalty window, the oldest at i_recent once it is full. */
    recent_token *recent; /* owned, [s.penalty_window]; NULL: penalties look at all tokens */
    size_t n_recent, i_recent;
};

static bool has_penalties(const skv_sampling *s)
{
    return s->penalty_window != 0 &&
           (s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0);
}

/* Tokens of the window; 0: there is none. */
static size_t window_of(const skv_sampling *s)
{
    return has_penalties(s) && s->penalty_window > 0 ? (size_t)s->penalty_window : 0;
}

/* Different tokens that penalties may look at. */
static size_t most_seen(const skv_sampling *s, size_t vocab)
{
    const size_t window = window_of(s);
    return window > 0 ? skv_min_size(window, vocab) : vocab;
}

size_t skv_sampler_bytes(const skv_sampling *s, size_t vocab)
{
    if (!has_penalties(s)) return sizeof(skv_sampler);
    return sizeof(skv_sampler) + vocab * sizeof(uint32_t) +
           most_seen(s, vocab) * sizeof(skv_penalty) + window_of(s) * sizeof(recent_token);
}

static bool take_penalties(skv_sampler *sampler)
{
    const skv_sampling *s = &sampler->s;
    if (!has_penalties(s)) return true;
    sampler->places = skv_alloc_zero(sampler->vocab, sizeof *sampler->places);
    sampler->seen = skv_alloc(most_seen(s, sampler->vocab), sizeof *sampler->seen);
    if (window_of(s) > 0) sampler->recent = skv_alloc(window_of(s), sizeof *sampler->recent);
    return sampler->places && sampler->seen && (window_of(s) == 0 || sampler->recent);
}

skv_status skv_sampler_create_bare(const skv_sampling *sampling, size_t vocab, skv_sampler **out,
                                   skv_error *err)
{
    SKV_TRY(skv_sampling_check(sampling, err));
    skv_sampler *sampler = skv_alloc_zero(1, sizeof *sampler);
    SKV_REQUIRE(sampler, err, SKV_MEMORY, "sampler: no memory");
    sampler->s = *sampling;
    sampler->vocab = vocab;
    skv_rng_init(&sampler->rng, sampling->seed);
    if (!take_penalties(sampler)) {
        skv_sampler_free(sampler);
        return skv_fail(err, SKV_MEMORY, "sampler: no memory for a vocabulary of %zu", vocab);
    }
    *out = sampler;
    return SKV_OK;
}

skv_status skv_sampler_create(const skv_sampling *sampling, size_t vocab, skv_sampler **out,
                              skv_error *err)
{
    skv_sampler *sampler = NULL;
    SKV_TRY(skv_sampler_create_bare(sampling, vocab, &sampler, err));
    sampler->look = skv_alloc_zero(1, sizeof *sampler->look);
    skv_status status = sampler->look ? skv_look_init(sampler->look, vocab, SKV_CPU_LEVEL_BEST, err)
                                      : skv_fail(err, SKV_MEMORY, "sampler: no memory");
    if (status != SKV_OK) {
        skv_sampler_free(sampler);
        return status;
    }
    *out = sampler;
    return SKV_OK;
}

void skv_sampler_free(skv_sampler *sampler)
{
    if (!sampler) return;
    if (sampler->look) skv_look_release(sampler->look);
    skv_free(sampler->look);
    skv_free(sampler->seen);
    skv_free(sampler->places);
    skv_free(sampler->recent);
    skv_free(sampler);
}

/* ---- penalties ---- */

static void add_seen(skv_sampler *sampler, recent_token token)
{
    uint32_t *place = &sampler->places[token.id];
    if (*place == 0) {
        sampler->seen[sampler->n_seen] = (skv_penalty){.id = token.id};
        *place = (uint32_t)++sampler->n_seen;
    }
    skv_penalty *seen = &sampler->seen[*place - 1];
    seen->n_seen++;
    if (token.generated) seen->n_generated++;
}

/* The last of the list takes the place of one that is seen no more. */
static void remove_seen(skv_sampler *sampler, recent_token token)
{
    const uint32_t place = sampler->places[token.id];
    skv_penalty *seen = &sampler->seen[place - 1];
    if (token.generated) seen->n_generated--;
    if (--seen->n_seen > 0) return;
    *seen = sampler->seen[--sampler->n_seen];
    sampler->places[seen->id] = place;
    sampler->places[token.id] = 0;
}

/* Tokens that leave the window no longer count. */
static void push_recent(skv_sampler *sampler, recent_token token)
{
    const size_t window = (size_t)sampler->s.penalty_window;
    recent_token *slot = &sampler->recent[sampler->i_recent];
    if (sampler->n_recent < window) {
        sampler->n_recent++;
    } else {
        remove_seen(sampler, *slot);
    }
    *slot = token;
    sampler->i_recent = (sampler->i_recent + 1) % window;
}

void skv_sampler_accept(skv_sampler *sampler, int32_t id, bool generated)
{
    if (!sampler->seen || id < 0 || (size_t)id >= sampler->vocab) return;
    const recent_token token = {id, generated};
    if (sampler->recent) push_recent(sampler, token);
    add_seen(sampler, token);
}

/* ---- choosing ---- */

bool skv_sampler_has_penalties(const skv_sampler *sampler)
{
    return sampler->seen;
}

void skv_sampler_wish(const skv_sampler *sampler, size_t n_ahead, skv_pick_row *pick)
{
    pick->sampling = &sampler->s;
    pick->penalties = sampler->seen;
    pick->n_penalties = sampler->n_seen;
    if (skv_sampling_is_greedy(&sampler->s)) return;
    skv_rng rng = sampler->rng;
    for (size_t i = 0; i <= n_ahead; i++) pick->u = skv_rng_uniform(&rng);
}

void skv_sampler_drawn(skv_sampler *sampler)
{
    if (!skv_sampling_is_greedy(&sampler->s)) (void)skv_rng_uniform(&sampler->rng);
}

int32_t skv_sampler_choose(skv_sampler *sampler, float *logits)
{
    const skv_sampling *s = &sampler->s;
    for (size_t i = 0; i < sampler->n_seen; i++) {
        float *x = &logits[sampler->seen[i].id];
        *x = skv_look_penalised(s, &sampler->seen[i], *x);
    }
    skv_look_at(sampler->look, logits);
    if (skv_sampling_is_greedy(s)) return (int32_t)sampler->look->best;
    return skv_look_draw(sampler->look, s, skv_rng_uniform(&sampler->rng));
}
