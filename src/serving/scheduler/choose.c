/*
 * Which token a lane goes on with: what its parameters and its constraint leave of the logits, and
 * the sampler's choice among that. A choice is made while the logits are there and is taken when
 * the whole step has run.
 */
#include <math.h>

#include "scheduler/worker.h"

bool skv_worker_ends_answer(const skv_scheduler *s, const skv_lane *lane, int32_t id)
{
    const skv_job_params *p = &lane->job->params;
    if (!lane->choice.may_end) return false;
    for (size_t i = 0; i < p->n_stop_ids; i++) {
        if (p->stop_ids[i] == id) return true;
    }
    return !p->ignore_eos && skv_engine_is_eos(s->engine, id);
}

static void forbid_ends(const skv_scheduler *s, const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    const skv_config *c = s->engine->config;
    for (size_t i = 0; i < p->n_stop_ids; i++) s->logits[p->stop_ids[i]] = -HUGE_VALF;
    for (size_t i = 0; i < c->n_eos; i++) {
        if (c->eos[i] >= 0 && (size_t)c->eos[i] < s->vocab_size) {
            s->logits[c->eos[i]] = -HUGE_VALF;
        }
    }
}

/* Fills s->logits with what the sampler may choose from; false: no token is left. */
static bool prepare(skv_scheduler *s, const skv_lane *lane, const float *logits, bool may_end)
{
    const skv_job_params *p = &lane->job->params;
    size_t V = s->vocab_size;
    memcpy(s->logits, logits, V * sizeof *logits);
    for (size_t i = 0; i < p->n_biases; i++) s->logits[p->biases[i].id] += p->biases[i].bias;
    if (!may_end) forbid_ends(s, lane);
    if (!lane->mask.constraint) return true;
    bool any = p->constraint.mask(lane->mask.constraint, s->logits, V);
    for (size_t i = 0; any && !may_end; i++) {
        if (i == V) return false;
        if (s->logits[i] > -HUGE_VALF) break;
    }
    return any;
}

/* The log-probabilities told are the model's own. */
void skv_worker_choose(skv_scheduler *s, skv_lane *lane, const float *logits)
{
    const skv_job_params *p = &lane->job->params;
    size_t V = s->vocab_size;
    lane->choice.may_end = skv_lane_generated(lane) >= p->min_tokens;
    bool any = prepare(s, lane, logits, lane->choice.may_end);
    if (!any && !lane->choice.may_end) {
        /* What has to be complete ends, even if it is shorter than was asked for. */
        lane->choice.may_end = true;
        any = prepare(s, lane, logits, true);
    }
    if (!any) {
        lane->failure = "the constraint leaves no token to go on with";
        lane->failure_status = SKV_RANGE;
    }
    lane->choice.id = skv_sampler_choose(lane->choice.sampler, s->logits);
    lane->choice.pending = true;
    lane->choice.logprob = (double)NAN;
    lane->choice.n_top = 0;
    if (!p->logprobs) return;
    double norm = skv_logits_norm(logits, V);
    lane->choice.logprob = (double)logits[lane->choice.id] - norm;
    lane->choice.n_top = p->n_top < V ? p->n_top : V;
    if (!p->top_ids) {
        skv_logits_top(logits, V, norm, lane->choice.n_top, lane->choice.top);
        return;
    }
    for (size_t i = 0; i < lane->choice.n_top; i++) {
        const int32_t id = p->top_ids[i];
        lane->choice.top[i] = (skv_token_prob){id, (double)logits[id] - norm};
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
