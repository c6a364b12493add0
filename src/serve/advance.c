/*
 * A step and what follows from it: tokens are chosen from the logits, told with their text, and
 * answers end.
 */
#include <assert.h>
#include <math.h>

#include "base/clock.h"
#include "serve/token_probs.h"
#include "serve/worker.h"

/* One skv_step: the composed spans [first, first + n). */
typedef struct pass {
    skv_scheduler *s;
    size_t first, n;
} pass;

/* ---- choosing, while the logits are there ---- */

static bool ends_answer(const skv_scheduler *s, const skv_lane *lane, int32_t id)
{
    const skv_job_params *p = &lane->job->params;
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
    if (!lane->constraint) return true;
    bool any = p->constraint.mask(lane->constraint, s->logits, V);
    for (size_t i = 0; any && !may_end; i++) {
        if (i == V) return false;
        if (s->logits[i] > -HUGE_VALF) break;
    }
    return any;
}

/* Chooses a lane's next token from logits [V]. The log-probabilities told are the model's own. */
static void choose(skv_scheduler *s, skv_lane *lane, const float *logits)
{
    const skv_job_params *p = &lane->job->params;
    size_t V = s->vocab_size;
    lane->may_end = skv_lane_generated(lane) >= p->min_tokens;
    bool any = prepare(s, lane, logits, lane->may_end);
    if (!any && !lane->may_end) {
        /* What has to be complete ends, even if it is shorter than was asked for. */
        lane->may_end = true;
        any = prepare(s, lane, logits, true);
    }
    if (!any) lane->failure = "the constraint leaves no token to go on with";
    lane->chosen = skv_sampler_choose(lane->sampler, s->logits);
    lane->has_chosen = true;
    lane->logprob = (double)NAN;
    lane->n_top = 0;
    if (!p->logprobs) return;
    double norm = skv_logits_norm(logits, V);
    lane->logprob = (double)logits[lane->chosen] - norm;
    lane->n_top = p->n_top < V ? p->n_top : V;
    skv_logits_top(logits, V, norm, lane->n_top, lane->top);
}

static size_t output_limit(const skv_scheduler *s, const skv_job *job)
{
    const skv_job_params *p = &job->params;
    size_t each = sizeof(skv_output_node) + p->n_top * sizeof(skv_token_prob);
    size_t vector =
        p->pooling == SKV_POOLING_NONE ? 0 : each + skv_engine_hidden(s->engine) * sizeof(float);
    return s->options.output_bytes_max + (p->prompt_logprobs ? p->n_ids * each : 0) + vector;
}

static void tell(const skv_scheduler *s, skv_lane *lane, const skv_output *output)
{
    if (lane->failure || skv_job_put(lane->job, output, output_limit(s, lane->job))) return;
    lane->failure = "the output was not read in time, or memory ran out";
}

/* The logits behind prompt token t - 1 tell token t. */
static void tell_prompt(const skv_scheduler *s, skv_lane *lane, size_t t, const float *logits)
{
    const skv_job_params *p = &lane->job->params;
    skv_output first = {.kind = SKV_OUTPUT_PROMPT, .id = lane->ids[0], .logprob = (double)NAN};
    if (lane->n_told == 0) {
        tell(s, lane, &first);
        lane->n_told = 1;
    }
    if (t >= lane->n_prompt || t < lane->n_told) return;
    skv_token_prob top[SKV_JOB_TOP_MAX];
    size_t n_top = p->n_top < s->vocab_size ? p->n_top : s->vocab_size;
    double norm = skv_logits_norm(logits, s->vocab_size);
    skv_logits_top(logits, s->vocab_size, norm, n_top, top);
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_PROMPT,
                       .id = lane->ids[t],
                       .logprob = (double)logits[lane->ids[t]] - norm,
                       .top = top,
                       .n_top = n_top});
    lane->n_told = t + 1;
}

/* The other answers of a job branch off where its prompt ends. */
static void fork_answers(skv_scheduler *s, skv_lane *lane, const float *logits)
{
    skv_job *job = lane->job;
    if (job->forked || job->params.n_answers == 1) return;
    job->forked = true;
    skv_lane *before = lane;
    for (size_t i = 1; i < job->params.n_answers; i++) {
        skv_lane *fork;
        skv_error err;
        if (skv_lane_create(job, i, s->vocab_size, s->vocab, &fork, &err) != SKV_OK) {
            skv_text_piece text = skv_text_of(err.text);
            s->tally.finished[SKV_FINISH_FAILED]++;
            skv_worker_publish(s);
            skv_job_end(job, &(skv_output){.kind = SKV_OUTPUT_END,
                                           .i_answer = i,
                                           .logprob = (double)NAN,
                                           .finish = SKV_FINISH_FAILED,
                                           .text = text.text,
                                           .n_text = text.n});
            continue;
        }
        skv_worker_insert(s, fork, before);
        choose(s, fork, logits);
        before = fork;
    }
}

/* The hidden state of token n_seen - 1; with MEAN those come again that a lane had when it was put
 * back. */
static void pool_row(skv_lane *lane, size_t n_seen, const float *hidden)
{
    bool mean = lane->job->params.pooling == SKV_POOLING_MEAN;
    if (lane->pooled.n_rows < (mean ? n_seen : 1)) skv_pooled_add(&lane->pooled, hidden);
}

static void take_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const pass *p = user;
    skv_lane *lane = p->s->span_lanes[p->first + i_span];
    const skv_job_params *params = &lane->job->params;
    size_t n_seen = skv_lane_cached(lane) + i_token + 1; /* the step has not counted them yet */
    if (params->pooling != SKV_POOLING_NONE) {
        pool_row(lane, n_seen, logits);
        return;
    }
    if (params->prompt_logprobs && skv_lane_generated(lane) == 0) {
        tell_prompt(p->s, lane, n_seen, logits);
    }
    if (n_seen < lane->n_ids || params->max_tokens == 0) return;
    choose(p->s, lane, logits);
    if (lane->i_answer == 0) fork_answers(p->s, lane, logits);
}

/* ---- telling, after the step ---- */

static void count_token(skv_scheduler *s, skv_lane *lane, uint64_t now)
{
    skv_job *job = lane->job;
    pthread_mutex_lock(&job->lock);
    bool is_first = job->first_token_ns == 0;
    if (is_first) job->first_token_ns = now;
    job->last_token_ns = now;
    job->stats.completion_tokens++;
    pthread_mutex_unlock(&job->lock);
    s->tally.generated_tokens++;
    if (is_first) {
        skv_histogram_add(&s->tally.ttft, now - job->queued_ns);
        skv_histogram_add(&s->tally.prefill_time, now - job->begun_ns);
    }
    if (lane->last_token_ns) skv_histogram_add(&s->tally.inter_token, now - lane->last_token_ns);
    lane->last_token_ns = now;
}

/* The text that id makes certain, up to a stop text. */
static skv_status text_of_token(skv_lane *lane, int32_t id, skv_text_piece *out, skv_error *err)
{
    skv_text_piece text = {"", 0};
    *out = text;
    if (!lane->stream) return SKV_OK;
    SKV_TRY(skv_text_stream_push(lane->stream, id, &text.text, &text.n, err));
    SKV_REQUIRE(skv_stop_text_push(&lane->stop, &text, false, out), err, SKV_MEMORY,
                "answer: no memory for its text");
    return SKV_OK;
}

/* What is left of the text at the end of an answer. */
static skv_text_piece last_text(skv_lane *lane)
{
    skv_text_piece text = {"", 0}, out = {"", 0};
    if (!lane->stream || lane->stop.stopped) return out;
    if (skv_text_stream_finish(lane->stream, &text.text, &text.n, NULL) != SKV_OK) text.n = 0;
    if (!skv_stop_text_push(&lane->stop, &text, true, &out)) out.n = 0;
    return out;
}

/* The chosen token becomes one of the lane's ids, or ends it. */
static void accept_token(skv_scheduler *s, skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    int32_t id = lane->chosen;
    lane->has_chosen = false;
    if (lane->failure) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
        return;
    }
    if (lane->may_end && ends_answer(s, lane, id)) {
        skv_worker_end(s, lane, SKV_FINISH_STOP, last_text(lane));
        return;
    }
    lane->ids[lane->n_ids++] = id;
    skv_sampler_accept(lane->sampler, id, true);
    if (lane->constraint) p->constraint.accept(lane->constraint, id);
    count_token(s, lane, skv_clock_ns());
    skv_text_piece text;
    skv_error err;
    if (text_of_token(lane, id, &text, &err) != SKV_OK) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(err.text));
        return;
    }
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_TOKEN,
                       .i_answer = lane->i_answer,
                       .id = id,
                       .logprob = lane->logprob,
                       .top = lane->top,
                       .n_top = lane->n_top,
                       .text = text.text,
                       .n_text = text.n});
    if (lane->failure) {
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
    } else if (lane->stop.stopped) {
        skv_worker_end(s, lane, SKV_FINISH_STOP, last_text(lane));
    } else if (skv_lane_generated(lane) == p->max_tokens) {
        skv_worker_end(s, lane, SKV_FINISH_LENGTH, last_text(lane));
    } else if (lane->sequence) {
        lane->state = SKV_LANE_DECODE;
    }
}

/* A new branch takes over the pages of the prompt; without room it waits for its own. */
static void share_prompt(skv_scheduler *s, const skv_lane *from, skv_lane *fork)
{
    fork->begun = true;
    if (from->failure) return;
    if (s->n_running >= s->options.max_running) return;
    skv_status status = skv_sequence_create_as(s->engine, fork->job->params.prefill, s->context,
                                               &fork->sequence, NULL);
    if (status != SKV_OK) return;
    if (skv_sequence_share(fork->sequence, from->sequence, from->n_prompt, NULL) != SKV_OK) {
        skv_sequence_free(fork->sequence);
        fork->sequence = NULL;
        return;
    }
    fork->state = SKV_LANE_PROMPT;
    s->n_waiting--;
    s->n_running++;
}

/* Branches stand behind the lane that they come from; new ones have not begun. */
static void accept_forks(skv_scheduler *s, const skv_lane *lane)
{
    skv_lane *next;
    for (skv_lane *fork = lane->next; fork && fork->job == lane->job; fork = next) {
        next = fork->next;
        if (fork->begun) continue;
        share_prompt(s, lane, fork);
        accept_token(s, fork);
    }
}

static void finish_vector(skv_scheduler *s, skv_lane *lane)
{
    if (!skv_pooled_finish(&lane->pooled)) {
        lane->failure = "the model's hidden states are not finite";
    }
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_VECTOR,
                       .logprob = (double)NAN,
                       .vector = lane->pooled.vector,
                       .n_vector = lane->pooled.n});
    skv_worker_end(s, lane, lane->failure ? SKV_FINISH_FAILED : SKV_FINISH_STOP,
                   skv_text_of(lane->failure ? lane->failure : ""));
}

static void finish_prompt(skv_scheduler *s, skv_lane *lane)
{
    if (skv_lane_generated(lane) == 0) skv_worker_remember(s, lane);
    if (lane->has_chosen) return;
    if (lane->job->params.pooling != SKV_POOLING_NONE) {
        finish_vector(s, lane);
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
    pthread_mutex_unlock(&job->lock);
    bool skips = s->engine->runs_swiftkv && !lane->sequence->unskipped &&
                 lane->sequence->plan == &s->engine->plan && span->want != SKV_WANT_ALL &&
                 span->want != SKV_WANT_ALL_HIDDEN;
    *(skips ? &s->tally.prefill_skipped_tokens : &s->tally.prefill_full_tokens) += span->n;
}

static void follow_up(skv_scheduler *s, skv_lane *lane, const skv_span *span)
{
    if (lane->state == SKV_LANE_PROMPT) count_prompt(s, lane, span);
    if (lane->failure) {
        if (lane->i_answer == 0 && lane->has_chosen) accept_forks(s, lane);
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
        return;
    }
    bool evicts = lane->sequence->votes.votes && skv_lane_cached(lane) == lane->n_prompt;
    size_t i_next = (size_t)(span - s->spans) + 1;
    if (evicts && !skv_worker_evict(s, lane, skv_worker_step_needs(s, i_next))) {
        if (lane->i_answer == 0 && lane->has_chosen) accept_forks(s, lane);
        skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(lane->failure));
        return;
    }
    if (skv_lane_cached(lane) < lane->n_ids) return;
    bool has_chosen = lane->has_chosen;
    if (lane->state == SKV_LANE_PROMPT) finish_prompt(s, lane);
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

static void set_stepping(skv_scheduler *s, const skv_job *job)
{
    pthread_mutex_lock(&s->lock);
    s->stepping = job;
    pthread_mutex_unlock(&s->lock);
}

static void take_hidden(void *user, size_t i_layer, const float *x, size_t n_rows)
{
    const pass *p = user;
    skv_worker_take_rows(p->s, i_layer, x, n_rows);
}

static void run_pass(pass *p)
{
    skv_scheduler *s = p->s;
    skv_error err;
    size_t step_row = 0;
    bool keeps = s->step_rows && s->spans[p->first].sequence->plan == &s->engine->plan;
    set_stepping(s, only_job(p));
    skv_status status = skv_engine_forward(s->engine, s->spans + p->first, p->n, take_row,
                                           keeps ? take_hidden : NULL, p, &err);
    set_stepping(s, NULL);
    if (status == SKV_CANCELLED) return; /* whoever it was not meant for is run again */
    for (size_t i = p->first; i < p->first + p->n; i++) {
        skv_lane *lane = s->span_lanes[i];
        if (status == SKV_OK) {
            if (keeps) skv_worker_keep_rows(s, lane, step_row, s->spans[i].n);
            step_row += s->spans[i].n;
            follow_up(s, lane, &s->spans[i]);
        } else {
            skv_worker_end(s, lane, SKV_FINISH_FAILED, skv_text_of(err.text));
        }
    }
}

/* Before the step runs. */
static skv_step_work prompt_work(const skv_scheduler *s, size_t *n_answers)
{
    skv_step_work sum = {0};
    *n_answers = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        const skv_lane *lane = s->span_lanes[i];
        bool is_prompt = lane->state == SKV_LANE_PROMPT;
        *n_answers += !is_prompt;
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
    uint64_t start = skv_clock_ns();
    size_t n_own = 0;
    while (n_own < s->n_spans && s->spans[n_own].sequence->plan == &s->engine->plan) n_own++;
    pass own = {s, 0, n_own}, teacher = {s, n_own, s->n_spans - n_own};
    if (own.n > 0) run_pass(&own);
    if (teacher.n > 0) run_pass(&teacher);
    uint64_t now = skv_clock_ns();
    s->tally.steps++;
    skv_histogram_add(&s->tally.step_time, now - start);
    skv_step_clock_learn(&s->clock, n_answers, work, now - s->busy_ns);
    s->busy_ns = now;
}
