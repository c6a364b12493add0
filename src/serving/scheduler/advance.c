/*
 * A step and its consequences: tokens are chosen (choose.c), told (output.c) and appended, and
 * answers end.
 */
#include <assert.h>
#include <math.h>

#include "base/system.h"
#include "scheduler/worker.h"

/* One skv_step: the composed spans [first, first + n). */
typedef struct pass {
    skv_scheduler *s;
    size_t first, n;
    size_t n_taken; /* rows of the step at boundary l */
} pass;

/* ---- wishes, while the logits are there, and picks ---- */

static void fail_answer(skv_scheduler *s, skv_job *job, size_t i_answer, const skv_error *err)
{
    const skv_text_piece text = skv_text_of(err->text);
    s->tally.finished[SKV_FINISH_FAILED]++;
    skv_worker_publish(s);
    skv_job_end(job, &(skv_output){.kind = SKV_OUTPUT_END,
                                   .i_answer = i_answer,
                                   .logprob = (double)NAN,
                                   .finish = SKV_FINISH_FAILED,
                                   .status = SKV_MEMORY,
                                   .text = text.text,
                                   .n_text = text.n});
}

/* The other answers of a job branch off where its prompt ends. They follow the first in the
 * list. Returns whether this lane is there now. */
static bool fork_answers(skv_scheduler *s, skv_lane *lane)
{
    skv_job *job = lane->job;
    if (lane->i_answer > 0 || job->forked || job->params.n_answers == 1) return false;
    job->forked = true;
    skv_lane *before = lane;
    for (size_t i = 1; i < job->params.n_answers; i++) {
        skv_lane *fork = NULL;
        skv_error err;
        skv_status status = skv_lane_create(job, i, s->vocab_size, s->vocab, &fork, &err);
        if (status == SKV_OK) status = skv_lane_constrain(fork, lane, &err);
        if (status != SKV_OK) {
            skv_lane_free(fork);
            fail_answer(s, job, i, &err);
            continue;
        }
        skv_worker_insert(s, fork, before);
        before = fork;
    }
    return true;
}

/* The next branch of a lane's job that has not begun; NULL: there is none. */
static skv_lane *next_fork(const skv_lane *lane)
{
    skv_lane *fork = lane->queue.next;
    while (fork && fork->job == lane->job && fork->queue.begun) fork = fork->queue.next;
    return fork && fork->job == lane->job ? fork : NULL;
}

/* A token that was chosen becomes one of the lane's ids, and its reader gets it. */
static void append_token(skv_scheduler *s, skv_lane *lane, int32_t id, bool at_once)
{
    skv_error err;
    skv_worker_tell_owed(s, lane);
    lane->ids[lane->n_ids++] = id;
    skv_worker_accept_choice(lane, id);
    skv_status told;
    if (at_once) {
        told = skv_worker_tell_token(s, lane, id, &err);
    } else {
        told = skv_worker_tell_soon(s, lane, id, &err);
    }
    if (told == SKV_OK || lane->failure) return;
    lane->failure = "no memory for the text of the answer";
}

/* A drafted token that equals the chosen one is taken at once: the next row of the step
 * continues after it, if its mask is ready. */
static void take_drafted(skv_scheduler *s, skv_lane *lane)
{
    const int32_t id = lane->choice.id;
    if (lane->failure || !skv_worker_drafted(lane, id) || skv_worker_ends_answer(s, lane, id)) {
        return;
    }
    append_token(s, lane, skv_worker_take_choice(lane), true);
    skv_worker_right(lane);
}

/* Tokens that a lane has after row i_token of its span; the step has not counted them yet. */
static size_t seen_by(const skv_lane *lane, size_t i_token)
{
    return skv_lane_cached(lane) + i_token + 1;
}

static bool is_drafted(const skv_lane *lane, size_t i_token)
{
    return i_token > 0 && lane->draft.n > 0;
}

static bool goes_on(const skv_lane *lane)
{
    return lane->job->params.max_tokens > 0 && !lane->failure && !lane->output.stop.stopped;
}

/* Room for a wish; `owner` is the lane that chooses by it, or NULL if the row's own values are
 * told. */
static skv_pick_row *add_wish(skv_wishes *to, void *owner)
{
    static_assert((int)SKV_JOB_ANSWERS_MAX + 1 <= (int)SKV_ROW_PICKS, "a row has room for all");
    to->owners[to->n].owner = owner;
    return &to->picks[to->n++];
}

/* Log-probabilities of the prompt. */
static void wish_values(skv_scheduler *s, skv_lane *lane, size_t n_seen, skv_wishes *to)
{
    const skv_job_params *params = &lane->job->params;
    if (!params->prompt_logprobs || skv_lane_generated(lane) > 0) return;
    skv_worker_tell_first(s, lane);
    if (!skv_worker_tells_prompt(lane, n_seen)) return;
    *add_wish(to, NULL) =
        (skv_pick_row){.norm = true, .n_top = params->n_top, .ids = &lane->ids[n_seen], .n_ids = 1};
}

/* Lists the wishes for the row after a lane's last id, or after a drafted one. By a constraint or
 * by penalties a right draft changes the wish for the next row, which then waits for it. */
static bool wish(void *user, skv_wishes *to)
{
    const pass *p = user;
    skv_scheduler *s = p->s;
    skv_lane *lane = s->span_lanes[p->first + to->i_span];
    const size_t n_seen = seen_by(lane, to->i_row);
    const size_t n_ahead = n_seen < lane->n_ids ? 0 : n_seen - lane->n_ids;
    wish_values(s, lane, n_seen, to);
    if (n_seen < lane->n_ids || !goes_on(lane)) return true;
    if (lane->choice.pending) {
        if (n_ahead == 0) take_drafted(s, lane);
        return true;
    }
    if (n_ahead > 0 && lane->choice.n_wished == 0) return true; /* the draft has ended */
    if (n_ahead > 0 && skv_worker_depends(lane)) return false;
    if (is_drafted(lane, to->i_row) && !skv_worker_mask_draft(s, lane)) return true;
    const bool lacks_bits = skv_worker_lacks_bits(s, lane);
    if (lacks_bits && s->mask_owner) return false;
    if (lacks_bits) s->mask_owner = lane;
    skv_worker_wish(s, lane, n_ahead, add_wish(to, lane));
    if (!fork_answers(s, lane)) return true;
    for (skv_lane *fork = next_fork(lane); fork; fork = next_fork(fork)) {
        skv_worker_wish(s, fork, 0, add_wish(to, fork));
    }
    return true;
}

/* The tokens of the step before are told while the device computes this one. */
static void tell_meanwhile(void *user)
{
    const pass *p = user;
    skv_worker_tell_all_owed(p->s);
}

/* Rows after the last id are those of a draft that has ended. */
static void take_picked(void *user, const skv_wish_owner *of, const skv_picked *picked)
{
    const pass *p = user;
    skv_scheduler *s = p->s;
    skv_lane *lane = s->span_lanes[p->first + of->i_span], *chooser = of->owner;
    const size_t n_seen = seen_by(lane, of->i_row);
    skv_worker_tell_all_owed(s); /* before their log-probabilities are overwritten */
    if (!chooser) {
        skv_worker_tell_prompt(s, lane, n_seen, picked);
        return;
    }
    if (chooser != lane) {
        skv_worker_take_pick(s, chooser, picked);
        return;
    }
    if (s->mask_owner == lane) s->mask_owner = NULL;
    const bool comes = n_seen == lane->n_ids && !lane->choice.pending && goes_on(lane);
    skv_worker_take_pick(s, lane, comes ? picked : NULL);
    if (comes) take_drafted(s, lane);
}

static void take_hidden_row(void *user, size_t i_span, size_t i_row, const float *hidden)
{
    const pass *p = user;
    skv_lane *lane = p->s->span_lanes[p->first + i_span];
    skv_worker_add_hidden(lane, seen_by(lane, i_row), hidden);
}

/* ---- appending, after the step ---- */

/* After a token: the answer ends, or its next one is wanted. */
static void go_on(skv_scheduler *s, skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    if (lane->failure) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
    } else if (lane->output.stop.stopped) {
        skv_worker_end(s, lane, SKV_FINISH_STOP, skv_worker_last_text(lane));
    } else if (skv_lane_generated(lane) == p->max_tokens) {
        skv_worker_end(s, lane, SKV_FINISH_LENGTH, skv_worker_last_text(lane));
    } else {
        skv_worker_begin_answer(lane);
    }
}

/* The chosen token becomes one of the lane's ids, or ends it. */
static void accept_token(skv_scheduler *s, skv_lane *lane)
{
    int32_t id = skv_worker_take_choice(lane);
    if (lane->failure) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
        return;
    }
    if (skv_worker_ends_answer(s, lane, id)) {
        skv_worker_end(s, lane, SKV_FINISH_STOP, skv_worker_last_text(lane));
        return;
    }
    append_token(s, lane, id, false);
    go_on(s, lane);
}

/* Branches follow the lane that they come from; new ones have not begun. */
static void accept_forks(skv_scheduler *s, const skv_lane *lane)
{
    skv_lane *next;
    for (skv_lane *fork = lane->queue.next; fork && fork->job == lane->job; fork = next) {
        next = fork->queue.next;
        if (fork->queue.begun) continue;
        skv_worker_share_prompt(s, lane, fork);
        accept_token(s, fork);
    }
}

static void finish_prompt(skv_scheduler *s, skv_lane *lane)
{
    if (skv_lane_generated(lane) == 0) skv_worker_remember(s, lane);
    if (lane->choice.pending || lane->job->params.stores) return; /* store_prompt.c ends it */
    if (lane->job->params.pooling != SKV_POOLING_NONE) {
        skv_worker_tell_vector(s, lane);
        skv_worker_end(s, lane, lane->failure ? SKV_FINISH_FAILED : SKV_FINISH_STOP,
                       skv_text_of(lane->failure ? lane->failure : ""));
        return;
    }
    skv_worker_end(s, lane, SKV_FINISH_LENGTH, (skv_text_piece){"", 0});
}

static void count_prompt(skv_scheduler *s, const skv_lane *lane, const skv_span *span)
{
    skv_job *job = lane->job;
    size_t n_cached = skv_lane_cached(lane);
    pthread_mutex_lock(&job->lock);
    if (n_cached > lane->n_prompt) n_cached = lane->n_prompt;
    if (n_cached > job->stats.prefilled_tokens) job->stats.prefilled_tokens = n_cached;
    if (!job->first_token_ns) job->stats.prefill_ns += skv_clock_ns() - s->step_ns;
    pthread_mutex_unlock(&job->lock);
    bool skips = s->engine->runs_swiftkv && !lane->sequence->unskipped &&
                 lane->sequence->plan == &s->engine->plan && span->want != SKV_WANT_ALL &&
                 span->want != SKV_WANT_ALL_HIDDEN;
    *(skips ? &s->tally.prefill_skipped_tokens : &s->tally.prefill_full_tokens) += span->n;
}

static void follow_up(skv_scheduler *s, skv_lane *lane, const skv_span *span)
{
    if (lane->queue.state == SKV_LANE_PROMPT) count_prompt(s, lane, span);
    if (lane->failure) {
        if (lane->i_answer == 0 && lane->choice.pending) accept_forks(s, lane);
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
        return;
    }
    bool evicts = lane->sequence->votes.votes && skv_lane_cached(lane) == lane->n_prompt;
    size_t i_next = (size_t)(span - s->spans) + 1;
    if (evicts && !skv_worker_evict(s, lane, skv_worker_step_needs(s, i_next))) {
        if (lane->i_answer == 0 && lane->choice.pending) accept_forks(s, lane);
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
        return;
    }
    if (lane->output.stop.stopped) { /* within a draft */
        go_on(s, lane);
        return;
    }
    if (skv_lane_cached(lane) < lane->n_ids) {
        /* Rows in front of the windows are gone when the prompt ends, and servers that share the
         * store need not wait for the end. */
        const bool now = lane->sequence->cache.layout->window > 0 || s->store;
        if (now && !lane->sequence->votes.votes) skv_worker_remember(s, lane);
        return;
    }
    bool has_chosen = lane->choice.pending;
    if (lane->queue.state == SKV_LANE_PROMPT) finish_prompt(s, lane);
    if (!has_chosen) return;
    if (lane->i_answer == 0) accept_forks(s, lane);
    accept_token(s, lane);
}

/* ---- the step ---- */

static const skv_job *only_job(const pass *p)
{
    const skv_job *job = p->s->span_lanes[p->first]->job;
    for (size_t i = 1; i < p->n; i++) {
        if (p->s->span_lanes[p->first + i]->job != job) return NULL;
    }
    return job;
}

static void take_hidden(void *user, size_t i_layer, skv_rows x, size_t n_rows)
{
    pass *p = user;
    p->n_taken += skv_worker_take_rows(p->s, i_layer, x, p->n_taken, n_rows);
}

static void keep_state(skv_scheduler *s, skv_lane *lane)
{
    if (!skv_worker_wants_state(s, lane)) return;
    skv_worker_remember(s, lane);
    skv_worker_keep_state(s, lane);
    skv_worker_share(s, lane);
}

/* Of a step that was cancelled. */
static void forget_wishes(const pass *p)
{
    for (size_t i = p->first; i < p->first + p->n; i++) {
        skv_worker_forget_wishes(p->s->span_lanes[i]);
    }
    p->s->mask_owner = NULL;
}

static void run_pass(pass *p)
{
    skv_scheduler *s = p->s;
    skv_error err;
    size_t step_row = 0;
    p->n_taken = 0;
    forget_wishes(p);
    bool keeps = s->step_rows && s->spans[p->first].sequence->plan == &s->engine->plan;
    if (!skv_worker_begin_step(s, only_job(p))) return;
    const skv_hook tap = {.user = p, .on_hidden = take_hidden};
    const skv_step_sink sink = {.on_row = take_hidden_row,
                                .on_wish = wish,
                                .on_picked = take_picked,
                                .on_started = tell_meanwhile,
                                .user = p,
                                .tap = keeps ? &tap : NULL};
    skv_status status = skv_engine_step(s->engine, s->spans + p->first, p->n, &sink, &err);
    skv_worker_end_step(s);
    skv_worker_tell_all_owed(s);
    if (status == SKV_CANCELLED) return; /* lanes that it was not meant for run again */
    for (size_t i = p->first; i < p->first + p->n; i++) {
        skv_lane *lane = s->span_lanes[i];
        if (status == SKV_OK) {
            skv_worker_settle(s, lane);
            keep_state(s, lane);
            /* Rows that were taken back are not kept. */
            size_t n_before = (size_t)(s->spans[i].ids - lane->ids);
            size_t n_stay = skv_lane_cached(lane) - n_before;
            if (keeps) skv_worker_keep_rows(s, lane, step_row, n_stay);
            step_row += s->spans[i].n;
            follow_up(s, lane, &s->spans[i]);
        } else {
            skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(err.text));
        }
    }
}

/* Before the step runs. */
static void count_answers(skv_scheduler *s)
{
    s->tally.step_answers += s->n_spans;
    for (size_t i = 0; i < s->n_spans; i++) {
        const size_t n = skv_lane_cached(s->span_lanes[i]) + s->spans[i].n;
        if (n > s->tally.answer_tokens_max) s->tally.answer_tokens_max = n;
    }
}

/* Before the step runs. */
static skv_step_work prompt_work(const skv_scheduler *s, size_t *n_answers)
{
    skv_step_work sum = {0};
    *n_answers = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        const skv_lane *lane = s->span_lanes[i];
        bool is_prompt = lane->queue.state == SKV_LANE_PROMPT;
        *n_answers += is_prompt ? 0 : s->spans[i].n; /* drafts as well */
        if (!is_prompt) continue;
        skv_step_work work = skv_step_work_of(s->spans[i].n, skv_lane_cached(lane));
        sum.n += work.n;
        sum.n_before += work.n_before;
    }
    return sum;
}

void skv_worker_advance(skv_scheduler *s)
{
    size_t n_answers;
    skv_step_work work = prompt_work(s, &n_answers);
    count_answers(s);
    s->step_ns = skv_clock_ns();
    size_t n_own = 0;
    while (n_own < s->n_spans && s->spans[n_own].sequence->plan == &s->engine->plan) n_own++;
    pass own = {.s = s, .n = n_own};
    pass teacher = {.s = s, .first = n_own, .n = s->n_spans - n_own};
    if (own.n > 0) run_pass(&own);
    if (teacher.n > 0) run_pass(&teacher);
    uint64_t now = skv_clock_ns();
    s->tally.steps++;
    skv_histogram_add(&s->tally.step_time, now - s->step_ns);
    skv_step_clock_learn(&s->clock, n_answers, work, now - s->busy_ns - s->masks_ns);
    s->busy_ns = now;
    s->masks_ns = 0;
}
