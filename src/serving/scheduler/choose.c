/*
 * Chooses the tokens that lanes continue with. A lane's parameters, its constraint and its sampler
 * make a wish for a row of logits. The back end picks from the rows of a step by these wishes, and
 * the pick becomes the lane's choice, which is taken when the whole step has run. It depends on the
 * lane and its row alone.
 */
#include <math.h>

#include "base/mem.h"
#include "base/size.h"
#include "scheduler/worker.h"

/* ---- masks of constraints that have no bits ---- */

static size_t mask_words(const skv_scheduler *s)
{
    return skv_ceil_div(s->vocab_size, 32);
}

skv_status skv_worker_open_choices(skv_scheduler *s, skv_error *err)
{
    s->plain_mask = skv_alloc(s->vocab_size, sizeof *s->plain_mask);
    s->mask_bits = skv_alloc(SKV_JOB_ANSWERS_MAX * mask_words(s), sizeof *s->mask_bits);
    SKV_REQUIRE(s->plain_mask && s->mask_bits, err, SKV_MEMORY, "scheduler: no memory");
    return SKV_OK;
}

void skv_worker_close_choices(skv_scheduler *s)
{
    skv_free(s->plain_mask);
    skv_free(s->mask_bits);
}

/* The bits of a mask that sets logits: each answer of a job has room for its own. */
static const uint32_t *bits_of_mask(skv_scheduler *s, const skv_lane *lane)
{
    uint32_t *bits = s->mask_bits + lane->i_answer * mask_words(s);
    float *x = s->plain_mask;
    memset(x, 0, s->vocab_size * sizeof *x);
    memset(bits, 0, mask_words(s) * sizeof *bits);
    if (!lane->job->params.constraint.mask(lane->mask.constraint, x, s->vocab_size)) return bits;
    for (size_t i = 0; i < s->vocab_size; i++) {
        bits[i / 32] |= (uint32_t)(x[i] > -HUGE_VALF) << i % 32;
    }
    return bits;
}

/* NULL: the constraint has none, or none for all of the vocabulary. */
static const uint32_t *own_bits(const skv_scheduler *s, const skv_lane *lane)
{
    const skv_constraint *c = &lane->job->params.constraint;
    return c->bits ? c->bits(lane->mask.constraint, s->vocab_size) : NULL;
}

bool skv_worker_lacks_bits(const skv_scheduler *s, const skv_lane *lane)
{
    return lane->mask.constraint && !own_bits(s, lane);
}

/* ---- how an answer ends ---- */

bool skv_worker_ends_answer(const skv_scheduler *s, const skv_lane *lane, int32_t id)
{
    const skv_job_params *p = &lane->job->params;
    if (lane->choice.ended) return true;
    if (!lane->choice.may_end) return false;
    for (size_t i = 0; i < p->n_stop_ids; i++) {
        if (p->stop_ids[i] == id) return true;
    }
    return (!p->ignore_eos || lane->choice.complete) && skv_engine_is_eos(s->engine, id);
}

/* Tokens that may not end the answer, and so may not come. */
typedef struct held_ends {
    bool eos, stop_ids;
} held_ends;

/* The ends that are held back as long as another token is left, n_ahead tokens from now. ignore_eos
 * lets an answer continue after such a token, but a constraint that is complete allows nothing
 * after it. */
static held_ends ends_held(const skv_lane *lane, size_t n_ahead)
{
    const skv_job_params *p = &lane->job->params;
    const bool too_early = skv_lane_generated(lane) + n_ahead < p->min_tokens;
    const bool ignored = p->ignore_eos && lane->mask.constraint && p->constraint.complete;
    return (held_ends){.eos = too_early || ignored, .stop_ids = too_early};
}

/* Nothing may follow the text so far: the end, if it is complete. */
static void end_here(skv_lane *lane)
{
    const skv_constraint *c = &lane->job->params.constraint;
    lane->choice.ended = c->complete && c->complete(lane->mask.constraint);
    if (lane->choice.ended) return;
    lane->failure = "the grammar allows no further token";
    lane->failure_status = SKV_RANGE;
}

/* ---- one choice ---- */

bool skv_worker_depends(const skv_lane *lane)
{
    return lane->mask.constraint || skv_sampler_has_penalties(lane->choice.sampler);
}

void skv_worker_wish(skv_scheduler *s, skv_lane *lane, size_t n_ahead, skv_pick_row *out)
{
    const skv_job_params *p = &lane->job->params;
    const skv_config *c = s->engine->config;
    const held_ends held = ends_held(lane, n_ahead);
    lane->choice.n_wished++;
    *out = (skv_pick_row){.norm = p->logprobs, .biases = p->biases, .n_biases = p->n_biases};
    skv_sampler_wish(lane->choice.sampler, n_ahead, out);
    if (p->logprobs && p->top_ids) {
        out->ids = p->top_ids;
        out->n_ids = skv_min_size(p->n_top, s->vocab_size);
    } else if (p->logprobs) {
        out->n_top = p->n_top;
    }
    if (lane->mask.constraint) {
        out->mask = own_bits(s, lane);
        if (!out->mask) out->mask = bits_of_mask(s, lane);
    }
    if (held.stop_ids) {
        out->held[0] = p->stop_ids;
        out->n_held[0] = p->n_stop_ids;
    }
    if (held.eos) {
        out->held[1] = c->eos;
        out->n_held[1] = c->n_eos;
    }
}

void skv_worker_forget_wishes(skv_lane *lane)
{
    lane->choice.n_wished = 0;
}

/* A constraint that leaves nothing but ends that are held back is complete: it ends the answer,
 * even if it is shorter than requested. */
void skv_worker_take_pick(const skv_scheduler *s, skv_lane *lane, const skv_picked *picked)
{
    skv_lane_choice *c = &lane->choice;
    const skv_job_params *p = &lane->job->params;
    c->n_wished--;
    if (!picked) return;
    c->ended = false;
    c->complete = lane->mask.constraint && picked->released;
    c->may_end = !ends_held(lane, 0).stop_ids || c->complete;
    if (lane->mask.constraint && !(picked->best.logit > -HUGE_VALF)) end_here(lane);
    skv_sampler_drawn(c->sampler);
    c->id = picked->id;
    c->pending = true;
    /* The log-probabilities told are the model's own. */
    c->logprob = (double)picked->logit - picked->norm;
    c->n_top = picked->n_top;
    for (size_t i = 0; i < picked->n_top; i++) c->top[i] = skv_row_top(picked, i);
    if (!p->logprobs || !p->top_ids) return;
    c->n_top = skv_min_size(p->n_top, s->vocab_size);
    for (size_t i = 0; i < c->n_top; i++) {
        c->top[i] = (skv_token_prob){p->top_ids[i], (double)picked->at[i] - picked->norm};
    }
}

int32_t skv_worker_take_choice(skv_lane *lane)
{
    lane->choice.pending = false;
    return lane->choice.id;
}

void skv_worker_accept_choice(skv_lane *lane, int32_t id)
{
    skv_sampler_accept(lane->choice.sampler, id, true);
    skv_worker_accept_masked(lane, id);
}
