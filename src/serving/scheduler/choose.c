/*
 * Chooses the tokens that lanes continue with: a lane's parameters and its constraint limit a row
 * of logits, and the sampler chooses among the rest. Rows are chosen from while their logits are
 * there, those of a step on the engine's threads, each at a desk of its own; a choice is taken when
 * the whole step has run. It depends on the lane and its row alone.
 */
#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/size.h"
#include "scheduler/worker.h"

/* ---- desks ---- */

skv_status skv_worker_open_desks(skv_scheduler *s, skv_error *err)
{
    const size_t n = skv_min_size(skv_pool_threads(s->engine->pool), SKV_LOGIT_ROWS);
    s->values = skv_alloc(SKV_LOGIT_ROWS, sizeof *s->values);
    s->desks = skv_alloc_zero(n, sizeof *s->desks);
    s->tasks = skv_alloc(SKV_LOGIT_ROWS * SKV_JOB_ANSWERS_MAX, sizeof *s->tasks);
    SKV_REQUIRE(s->values && s->tasks && s->desks, err, SKV_MEMORY, "scheduler: no memory");
    for (; s->n_desks < n; s->n_desks++) {
        skv_desk *desk = &s->desks[s->n_desks];
        SKV_TRY(skv_look_init(&desk->look, s->vocab_size, s->engine->level, err));
        desk->logits = skv_alloc(s->vocab_size, sizeof *desk->logits);
        if (desk->logits) continue;
        skv_look_release(&desk->look);
        return skv_fail(err, SKV_MEMORY, "scheduler: no memory for %zu logits", s->vocab_size);
    }
    return SKV_OK;
}

void skv_worker_close_desks(skv_scheduler *s)
{
    for (size_t i = 0; i < s->n_desks; i++) {
        skv_look_release(&s->desks[i].look);
        skv_free(s->desks[i].logits);
    }
    skv_free(s->desks);
    skv_free(s->values);
    skv_free(s->tasks);
}

/* ---- one choice ---- */

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

/* The ends that are held back as long as another token is left. ignore_eos lets an answer
 * continue after such a token, but a constraint that is complete allows nothing after it. */
static held_ends ends_held(const skv_lane *lane)
{
    const bool too_early = skv_lane_generated(lane) < lane->job->params.min_tokens;
    const bool ignored = lane->job->params.ignore_eos && lane->mask.constraint &&
                         lane->job->params.constraint.complete;
    return (held_ends){.eos = too_early || ignored, .stop_ids = too_early};
}

static void forbid(const skv_scheduler *s, const skv_lane *lane, held_ends held, float *logits)
{
    const skv_job_params *p = &lane->job->params;
    const skv_config *c = s->engine->config;
    for (size_t i = 0; held.stop_ids && i < p->n_stop_ids; i++) {
        logits[p->stop_ids[i]] = -HUGE_VALF;
    }
    for (size_t i = 0; held.eos && i < c->n_eos; i++) {
        if (c->eos[i] >= 0 && (size_t)c->eos[i] < s->vocab_size) logits[c->eos[i]] = -HUGE_VALF;
    }
}

static bool is_changed(const skv_lane *lane, held_ends held)
{
    return lane->job->params.n_biases > 0 || lane->mask.constraint || held.eos ||
           skv_sampler_penalises(lane->choice.sampler);
}

/* The desk looks at the tokens that the sampler may choose from; false: no token is left. */
static bool lay_out(const skv_scheduler *s, skv_desk *desk, const skv_lane *lane,
                    const float *logits, held_ends held)
{
    const skv_job_params *p = &lane->job->params;
    float *left = desk->logits;
    memcpy(left, logits, s->vocab_size * sizeof *left);
    for (size_t i = 0; i < p->n_biases; i++) left[p->biases[i].id] += p->biases[i].bias;
    forbid(s, lane, held, left);
    const bool any =
        !lane->mask.constraint || p->constraint.mask(lane->mask.constraint, left, s->vocab_size);
    skv_sampler_penalise(lane->choice.sampler, left);
    skv_look_at(&desk->look, left);
    return any && (!lane->mask.constraint || desk->look.max > -HUGE_VALF);
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

/* The desk looks at the row already, where nothing changes it. */
static void choose_id(const skv_scheduler *s, skv_desk *desk, skv_lane *lane, const float *logits)
{
    skv_lane_choice *c = &lane->choice;
    const held_ends held = ends_held(lane);
    c->may_end = !held.stop_ids;
    c->complete = c->ended = false;
    bool any = !is_changed(lane, held) || lay_out(s, desk, lane, logits, held);
    if (!any && held.eos) {
        /* A constraint that is complete ends the answer, even if it is shorter than requested. */
        c->may_end = c->complete = true;
        any = lay_out(s, desk, lane, logits, (held_ends){false, false});
    }
    if (!any) end_here(lane);
    c->id = skv_sampler_draw(c->sampler, &desk->look);
}

/* The log-probabilities told are the model's own. */
static void choose(const skv_scheduler *s, skv_desk *desk, skv_lane *lane, const float *logits)
{
    const skv_job_params *p = &lane->job->params;
    skv_lane_choice *c = &lane->choice;
    skv_row_values values = {.norm = (double)NAN};
    if (p->logprobs || !is_changed(lane, ends_held(lane))) skv_look_at(&desk->look, logits);
    if (p->logprobs) skv_row_values_of(&desk->look, p->top_ids ? 0 : p->n_top, &values);
    choose_id(s, desk, lane, logits);
    c->pending = true;
    c->logprob = (double)logits[c->id] - values.norm;
    c->n_top = values.n_top;
    memcpy(c->top, values.top, values.n_top * sizeof *values.top);
    if (!p->logprobs || !p->top_ids) return;
    c->n_top = skv_min_size(p->n_top, s->vocab_size);
    for (size_t i = 0; i < c->n_top; i++) {
        const int32_t id = p->top_ids[i];
        c->top[i] = (skv_token_prob){id, (double)logits[id] - values.norm};
    }
}

void skv_worker_choose(skv_scheduler *s, skv_lane *lane, const float *logits)
{
    choose(s, &s->desks[0], lane, logits);
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

/* ---- the rows of a step ---- */

bool skv_worker_chooses_ahead(const skv_lane *lane)
{
    return !lane->mask.constraint || lane->job->params.constraint.prepare;
}

typedef struct row_work {
    const skv_scheduler *s;
    const skv_row_task *tasks;
    size_t n;
    atomic_size_t next;
} row_work;

static void work_at_desk(void *arg, size_t i_desk, size_t i_thread)
{
    row_work *work = arg;
    (void)i_thread;
    skv_desk *desk = &work->s->desks[i_desk];
    for (size_t i; (i = atomic_fetch_add(&work->next, 1)) < work->n;) {
        const skv_row_task *task = &work->tasks[i];
        if (task->values) {
            skv_look_at(&desk->look, task->logits);
            skv_row_values_of(&desk->look, task->lane->job->params.n_top, task->values);
        } else {
            choose(work->s, desk, task->lane, task->logits);
        }
    }
}

void skv_worker_work_rows(skv_scheduler *s, const skv_row_task *tasks, size_t n)
{
    row_work work = {.s = s, .tasks = tasks, .n = n};
    const size_t n_desks = skv_min_size(n, s->n_desks);
    atomic_init(&work.next, 0);
    if (n_desks > 1) {
        skv_pool_run(s->engine->pool, n_desks, work_at_desk, &work);
    } else if (n_desks == 1) {
        work_at_desk(&work, 0, 0);
    }
}
