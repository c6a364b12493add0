/* Lanes: see lane.h. */
#include "scheduler/lane.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

enum { CONTEXT_IDS = 16 }; /* of the prompt: they settle first spaces and halves of characters */

/* The text stream begins after the prompt. */
static skv_status start_stream(skv_lane *lane, const skv_vocab *vocab, skv_error *err)
{
    if (!vocab) return SKV_OK;
    const bool special = lane->job->params.special_text;
    SKV_TRY(skv_text_stream_create(vocab, special, &lane->output.stream, err));
    size_t n = lane->n_prompt, first = n > CONTEXT_IDS ? n - CONTEXT_IDS : 0;
    for (size_t i = first; i < n; i++) {
        const char *text;
        size_t n_text;
        SKV_TRY(skv_text_stream_push(lane->output.stream, lane->ids[i], &text, &n_text, err));
    }
    return SKV_OK;
}

static skv_status start_sampler(skv_lane *lane, size_t vocab_size, skv_error *err)
{
    skv_sampling sampling = lane->job->params.sampling;
    sampling.seed += lane->i_answer;
    SKV_TRY(skv_sampler_create_bare(&sampling, vocab_size, &lane->choice.sampler, err));
    for (size_t i = 0; i < lane->n_prompt; i++) {
        skv_sampler_accept(lane->choice.sampler, lane->ids[i], false);
    }
    return SKV_OK;
}

static skv_status start_lane(skv_lane *lane, size_t vocab_size, const skv_vocab *vocab,
                             skv_error *err)
{
    const skv_job_params *p = &lane->job->params;
    size_t n_ids;
    bool fits = skv_size_add(p->n_ids, p->max_tokens, &n_ids);
    lane->ids = fits ? skv_alloc(n_ids, sizeof *lane->ids) : NULL;
    SKV_REQUIRE(lane->ids, err, SKV_MEMORY, "job: no memory for %zu and %zu tokens", p->n_ids,
                p->max_tokens);
    memcpy(lane->ids, p->ids, p->n_ids * sizeof *p->ids);
    lane->n_prompt = lane->n_ids = p->n_ids;
    SKV_TRY(start_sampler(lane, vocab_size, err));
    return start_stream(lane, vocab, err);
}

skv_status skv_lane_constrain(skv_lane *lane, const skv_lane *from, skv_error *err)
{
    const skv_constraint *c = &lane->job->params.constraint;
    if (!c->begin) return SKV_OK;
    bool copies = from && c->copy;
    lane->mask.constraint = copies ? c->copy(from->mask.constraint) : c->begin(c->user);
    SKV_REQUIRE(lane->mask.constraint, err, SKV_MEMORY, "job: no memory for its constraint");
    if (copies) lane->mask.ready = from->mask.ready;
    return SKV_OK;
}

size_t skv_lane_bytes(const skv_job_params *p, size_t vocab_size)
{
    return (p->n_ids + p->max_tokens) * sizeof(int32_t) + sizeof(skv_lane) +
           skv_sampler_bytes(&p->sampling, vocab_size);
}

bool skv_lane_reserve(skv_job *job, size_t vocab_size, bool anyway)
{
    size_t n_bytes = (job->params.n_answers - 1) * skv_lane_bytes(&job->params, vocab_size);
    if (n_bytes == 0 || job->reserved_bytes > 0 || job->forked) return true;
    if (anyway) {
        skv_account_take_anyway(job->account, n_bytes);
    } else if (!skv_account_take(job->account, n_bytes)) {
        return false;
    }
    job->reserved_bytes = n_bytes;
    return true;
}

/* From the reserved bytes, or else from the account. */
static skv_status count(skv_job *job, size_t n_bytes, skv_error *err)
{
    if (job->reserved_bytes >= n_bytes) {
        job->reserved_bytes -= n_bytes;
        return SKV_OK;
    }
    SKV_REQUIRE(skv_account_take(job->account, n_bytes), err, SKV_MEMORY,
                "job: the memory for an answer of %zu tokens is in use by other requests",
                job->params.max_tokens);
    return SKV_OK;
}

skv_status skv_lane_create(skv_job *job, size_t i_answer, size_t vocab_size, const skv_vocab *vocab,
                           skv_lane **out, skv_error *err)
{
    size_t n_bytes = skv_lane_bytes(&job->params, vocab_size);
    SKV_TRY(count(job, n_bytes, err));
    skv_lane *lane = skv_alloc_zero(1, sizeof *lane);
    if (!lane) {
        skv_account_give(job->account, n_bytes);
        return skv_fail(err, SKV_MEMORY, "job: no memory");
    }
    lane->job = job;
    lane->i_answer = i_answer;
    lane->own_bytes = n_bytes;
    skv_stop_text_init(&lane->output.stop, job->params.stops, job->params.n_stops);
    skv_status status = start_lane(lane, vocab_size, vocab, err);
    if (status != SKV_OK) {
        skv_lane_free(lane);
        return status;
    }
    *out = lane;
    return SKV_OK;
}

void skv_lane_free(skv_lane *lane)
{
    if (!lane) return;
    skv_spill_fetch_end(lane->disk.fetch);
    skv_sequence_free(lane->sequence);
    skv_sampler_free(lane->choice.sampler);
    skv_text_stream_free(lane->output.stream);
    skv_stop_text_release(&lane->output.stop);
    skv_pooled_release(&lane->output.pooled);
    if (lane->mask.constraint) lane->job->params.constraint.end(lane->mask.constraint);
    skv_free(lane->rows.bytes);
    skv_free(lane->ids);
    skv_account_give(lane->job->account, lane->own_bytes);
    skv_free(lane);
}

size_t skv_lane_cached(const skv_lane *lane)
{
    return lane->sequence ? skv_sequence_length(lane->sequence) : 0;
}
