/* Lanes: see lane.h. */
#include "serve/lane.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"

enum { CONTEXT_IDS = 16 }; /* of the prompt: they settle first spaces and halves of characters */

/* The text stream stands behind the prompt. */
static skv_status start_stream(skv_lane *lane, const skv_vocab *vocab, skv_error *err)
{
    if (!vocab) return SKV_OK;
    const bool special = lane->job->params.special_text;
    SKV_TRY(skv_text_stream_create(vocab, special, &lane->stream, err));
    size_t n = lane->n_prompt, first = n > CONTEXT_IDS ? n - CONTEXT_IDS : 0;
    for (size_t i = first; i < n; i++) {
        const char *text;
        size_t n_text;
        SKV_TRY(skv_text_stream_push(lane->stream, lane->ids[i], &text, &n_text, err));
    }
    return SKV_OK;
}

static skv_status start_sampler(skv_lane *lane, size_t vocab_size, skv_error *err)
{
    skv_sampling sampling = lane->job->params.sampling;
    sampling.seed += lane->i_answer;
    SKV_TRY(skv_sampler_create(&sampling, vocab_size, &lane->sampler, err));
    for (size_t i = 0; i < lane->n_prompt; i++) {
        skv_sampler_accept(lane->sampler, lane->ids[i], false);
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
    SKV_TRY(start_stream(lane, vocab, err));
    if (!p->constraint.begin) return SKV_OK;
    lane->constraint = p->constraint.begin(p->constraint.user);
    SKV_REQUIRE(lane->constraint, err, SKV_MEMORY, "job: no memory for its constraint");
    return SKV_OK;
}

skv_status skv_lane_create(skv_job *job, size_t i_answer, size_t vocab_size, const skv_vocab *vocab,
                           skv_lane **out, skv_error *err)
{
    skv_lane *lane = skv_alloc_zero(1, sizeof *lane);
    SKV_REQUIRE(lane, err, SKV_MEMORY, "job: no memory");
    lane->job = job;
    lane->i_answer = i_answer;
    skv_stop_text_init(&lane->stop, job->params.stops, job->params.n_stops);
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
    skv_spill_fetch_end(lane->fetch);
    skv_sequence_free(lane->sequence);
    skv_sampler_free(lane->sampler);
    skv_text_stream_free(lane->stream);
    skv_stop_text_release(&lane->stop);
    skv_pooled_release(&lane->pooled);
    if (lane->constraint) lane->job->params.constraint.end(lane->constraint);
    skv_free(lane->rows);
    skv_free(lane->ids);
    skv_free(lane);
}

size_t skv_lane_cached(const skv_lane *lane)
{
    return lane->sequence ? skv_sequence_length(lane->sequence) : 0;
}
