/* Likelihood: the log-probability of every token given those before it. */
#include <math.h>

#include "base/size.h"
#include "engine/engine.h"

typedef struct score_job {
    const skv_engine *engine;
    const skv_scoring *what;
    size_t chunk0; /* place of the span's first token in ids */
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
    const skv_scoring *what = job->what;
    size_t t = job->chunk0 + i_token, best;
    (void)i_span;
    int32_t next = t + 1 < what->n ? what->ids[t + 1] : -1;
    double logprob = log_probability(logits, job->engine->config->vocab, next, &best);
    if (what->argmax) what->argmax[t] = (int32_t)best;
    if (what->logprobs && next >= 0) what->logprobs[t + 1] = logprob;
}

skv_status skv_score_watched(skv_engine *engine, const skv_scoring *what, skv_error *err)
{
    const size_t n = what->n;
    SKV_REQUIRE(n >= 1, err, SKV_ARGUMENT, "score: no tokens");
    score_job job = {engine, what, 0};
    skv_sequence *sequence;
    SKV_TRY(skv_sequence_create(engine, n, &sequence, err));
    if (sequence->reader) sequence->reader->all = true;
    if (what->logprobs) what->logprobs[0] = (double)NAN;
    skv_status status = SKV_OK;
    while (job.chunk0 < n && status == SKV_OK) {
        size_t chunk = skv_min_size(n - job.chunk0, engine->options.step_tokens);
        skv_span span = {sequence, what->ids + job.chunk0, chunk, SKV_WANT_ALL};
        status = skv_step(engine, &span, 1, score_row, &job, err);
        job.chunk0 += chunk;
        if (status == SKV_OK && what->progress) what->progress(what->user, job.chunk0, n);
    }
    skv_sequence_free(sequence);
    return status;
}

skv_status skv_score(skv_engine *engine, const int32_t *ids, size_t n, double *logprobs,
                     int32_t *argmax, skv_error *err)
{
    const skv_scoring what = {.ids = ids, .n = n, .logprobs = logprobs, .argmax = argmax};
    return skv_score_watched(engine, &what, err);
}
