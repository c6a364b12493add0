/* Likelihood: the log-probability of every token given those before it. */
#include <math.h>

#include "base/size.h"
#include "engine/engine.h"

typedef struct score_job {
    const skv_engine *engine;
    const int32_t *ids;
    size_t n, chunk0; /* chunk0: place of the span's first token in ids */
    double *logprobs;
    int32_t *argmax;
} score_job;

/* log p = x - max - log(sum exp(x - max)), summed in double. */
static double log_probability(const float *logits, size_t n, int32_t id, size_t *i_max)
{
    double sum = skv_logits_sum(logits, n, i_max);
    return id < 0 ? 0 : (double)logits[id] - (double)logits[*i_max] - log(sum);
}

static void score_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    const score_job *job = user;
    size_t t = job->chunk0 + i_token, best;
    (void)i_span;
    int32_t next = t + 1 < job->n ? job->ids[t + 1] : -1;
    double logprob = log_probability(logits, job->engine->config->vocab, next, &best);
    if (job->argmax) job->argmax[t] = (int32_t)best;
    if (job->logprobs && next >= 0) job->logprobs[t + 1] = logprob;
}

skv_status skv_score(skv_engine *engine, const int32_t *ids, size_t n, double *logprobs,
                     int32_t *argmax, skv_error *err)
{
    SKV_REQUIRE(n >= 1, err, SKV_ARGUMENT, "score: no tokens");
    score_job job = {engine, ids, n, 0, logprobs, argmax};
    skv_sequence *sequence;
    SKV_TRY(skv_sequence_create(engine, n, &sequence, err));
    if (sequence->reader) sequence->reader->all = true;
    if (logprobs) logprobs[0] = (double)NAN;
    skv_status status = SKV_OK;
    while (job.chunk0 < n && status == SKV_OK) {
        size_t chunk = skv_min_size(n - job.chunk0, engine->options.step_tokens);
        skv_span span = {sequence, ids + job.chunk0, chunk, SKV_WANT_ALL};
        status = skv_step(engine, &span, 1, score_row, &job, err);
        job.chunk0 += chunk;
    }
    skv_sequence_free(sequence);
    return status;
}
