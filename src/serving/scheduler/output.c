/*
 * The outputs of a lane for its job's reader: log-probabilities of the prompt, tokens with their
 * text, a vector. A reader that is too slow fails its lane, and no other.
 */
#include <assert.h>
#include <math.h>

#include "base/system.h"
#include "scheduler/worker.h"

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

bool skv_worker_tells_prompt(const skv_lane *lane, size_t t)
{
    return lane->job->params.prompt_logprobs && skv_lane_generated(lane) == 0 &&
           t < lane->n_prompt && t >= lane->output.n_told;
}

void skv_worker_tell_first(const skv_scheduler *s, skv_lane *lane)
{
    skv_output first = {.kind = SKV_OUTPUT_PROMPT, .id = lane->ids[0], .logprob = (double)NAN};
    if (lane->output.n_told > 0) return;
    tell(s, lane, &first);
    lane->output.n_told = 1;
}

void skv_worker_tell_prompt(const skv_scheduler *s, skv_lane *lane, size_t t,
                            const skv_picked *picked)
{
    skv_token_prob top[SKV_JOB_TOP_MAX];
    assert(picked->n_top <= SKV_JOB_TOP_MAX);
    if (!skv_worker_tells_prompt(lane, t)) return;
    for (size_t i = 0; i < picked->n_top; i++) top[i] = skv_row_top(picked, i);
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_PROMPT,
                       .id = lane->ids[t],
                       .logprob = (double)picked->at[0] - picked->norm,
                       .top = top,
                       .n_top = picked->n_top});
    lane->output.n_told = t + 1;
}

/* ---- tokens ---- */

static void count_token(skv_scheduler *s, skv_lane *lane, uint64_t now)
{
    skv_job *job = lane->job;
    pthread_mutex_lock(&job->lock);
    bool is_first = job->first_token_ns == 0;
    const uint64_t waited = is_first ? skv_job_wait_ns(job, now) : 0;
    if (is_first) job->first_token_ns = now;
    job->last_token_ns = now;
    job->stats.completion_tokens++;
    pthread_mutex_unlock(&job->lock);
    s->tally.generated_tokens++;
    if (is_first) {
        skv_histogram_add(&s->tally.ttft, now - job->queued_ns);
        skv_histogram_add(&s->tally.wait_time, waited);
        skv_histogram_add(&s->tally.prefill_time, now - job->begun_ns - waited);
    }
    if (lane->output.last_token_ns)
        skv_histogram_add(&s->tally.inter_token, now - lane->output.last_token_ns);
    lane->output.last_token_ns = now;
}

static size_t count_chars(skv_text_piece text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) n += ((unsigned char)text.text[i] & 0xc0) != 0x80;
    return n;
}

/* The text that id makes certain, up to a stop text. */
static skv_status text_of_token(skv_lane *lane, int32_t id, skv_text_piece *out, skv_error *err)
{
    skv_text_piece text = {"", 0};
    *out = text;
    if (!lane->output.stream) return SKV_OK;
    SKV_TRY(skv_text_stream_push(lane->output.stream, id, &text.text, &text.n, err));
    lane->output.n_chars += count_chars(text);
    SKV_REQUIRE(skv_stop_text_push(&lane->output.stop, &text, false, out), err, SKV_MEMORY,
                "answer: no memory for its text");
    return SKV_OK;
}

skv_text_piece skv_worker_last_text(skv_lane *lane)
{
    skv_text_piece text = {"", 0}, out = {"", 0};
    if (!lane->output.stream || lane->output.stop.stopped) return out;
    if (skv_text_stream_finish(lane->output.stream, &text.text, &text.n, NULL) != SKV_OK)
        text.n = 0;
    if (!skv_stop_text_push(&lane->output.stop, &text, true, &out)) out.n = 0;
    return out;
}

skv_status skv_worker_tell_token(skv_scheduler *s, skv_lane *lane, int32_t id, skv_error *err)
{
    const skv_lane_choice *c = &lane->choice;
    skv_text_piece text, bytes = {"", 0};
    const size_t i_char = lane->output.n_chars;
    count_token(s, lane, skv_clock_ns());
    SKV_TRY(text_of_token(lane, id, &text, err));
    if (lane->output.stream && lane->job->params.logprobs) {
        bytes.text = skv_text_stream_bytes(lane->output.stream, &bytes.n);
    }
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_TOKEN,
                       .i_answer = lane->i_answer,
                       .id = id,
                       .logprob = c->logprob,
                       .top = c->top,
                       .n_top = c->n_top,
                       .text = text.text,
                       .n_text = text.n,
                       .bytes = bytes.text,
                       .n_bytes = bytes.n,
                       .i_char = i_char});
    return SKV_OK;
}

/* The first token is told at once; so is the last, and one that may end the answer by its text. A
 * rank that waits for others in each layer has no time. */
static bool may_owe(const skv_scheduler *s, const skv_lane *lane)
{
    const skv_job_params *p = &lane->job->params;
    const size_t n = skv_lane_generated(lane);
    const bool has_time = s->engine->be->start && !s->engine->ranks;
    return has_time && p->n_stops == 0 && n > 1 && n < p->max_tokens;
}

skv_status skv_worker_tell_soon(skv_scheduler *s, skv_lane *lane, int32_t id, skv_error *err)
{
    if (!may_owe(s, lane)) return skv_worker_tell_token(s, lane, id, err);
    assert(!lane->output.owes && lane->ids[lane->n_ids - 1] == id);
    lane->output.owes = true;
    s->n_owed++;
    return SKV_OK;
}

void skv_worker_tell_owed(skv_scheduler *s, skv_lane *lane)
{
    skv_error err;
    if (!lane->output.owes) return;
    lane->output.owes = false;
    s->n_owed--;
    const int32_t id = lane->ids[lane->n_ids - 1];
    if (skv_worker_tell_token(s, lane, id, &err) == SKV_OK || lane->failure) return;
    lane->failure = "no memory for the text of the answer";
}

void skv_worker_tell_all_owed(skv_scheduler *s)
{
    for (skv_lane *lane = s->oldest; lane && s->n_owed > 0; lane = lane->queue.next) {
        skv_worker_tell_owed(s, lane);
    }
}

/* ---- vectors ---- */

/* With MEAN those come again that a lane had when it was put back. */
void skv_worker_add_hidden(skv_lane *lane, size_t n_seen, const float *hidden)
{
    bool mean = lane->job->params.pooling == SKV_POOLING_MEAN;
    if (lane->output.pooled.n_rows < (mean ? n_seen : 1))
        skv_pooled_add(&lane->output.pooled, hidden);
}

void skv_worker_tell_stored_block(const skv_scheduler *s, skv_lane *lane, const uint8_t *name)
{
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_STORED,
                       .logprob = (double)NAN,
                       .text = (const char *)name,
                       .n_text = SKV_CACHE_NAME_BYTES});
}

void skv_worker_tell_vector(const skv_scheduler *s, skv_lane *lane)
{
    if (!skv_pooled_finish(&lane->output.pooled)) {
        lane->failure = "the model's hidden states are not finite";
    }
    tell(s, lane,
         &(skv_output){.kind = SKV_OUTPUT_VECTOR,
                       .logprob = (double)NAN,
                       .vector = lane->output.pooled.vector,
                       .n_vector = lane->output.pooled.n});
}
