/* Likelihood: the log-probability of every token given those before it. */
#include <math.h>

#include "base/size.h"
#include "engine/engine.h"

typedef struct score_job {
    const skv_engine *engine;
    const skv_scoring *what;
    size_t chunk0; /* place of the span's first token in ids */
} score_job;

/* The token after a row; NULL: none, or one that its step will refuse. */
static const int32_t *next_of(const score_job *job, size_t t)
{
    const skv_scoring *what = job->what;
    if (t + 1 == what->n) return NULL;
    const int32_t *next = &what->ids[t + 1];
    return *next >= 0 && (size_t)*next < job->engine->config->vocab ? next : NULL;
}

static bool wish(void *user, skv_wishes *wishes)
{
    const score_job *job = user;
    skv_pick_row pick = {.ids = next_of(job, job->chunk0 + wishes->i_row)};
    pick.n_ids = pick.ids && job->what->logprobs ? 1 : 0;
    pick.norm = pick.n_ids > 0;
    wishes->picks[wishes->n++] = pick;
    return true;
}

static void take_picked(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    const score_job *job = user;
    const size_t t = job->chunk0 + owner->i_row;
    if (job->what->argmax) job->what->argmax[t] = picked->best.id;
    if (job->what->logprobs && next_of(job, t)) {
        job->what->logprobs[t + 1] = (double)picked->at[0] - picked->norm;
    }
}

skv_status skv_score_watched(skv_engine *engine, const skv_scoring *what, skv_error *err)
{
    const size_t n = what->n;
    SKV_REQUIRE(n >= 1, err, SKV_ARGUMENT, "score: no tokens");
    score_job job = {engine, what, 0};
    const skv_step_sink sink = {.on_wish = wish, .on_picked = take_picked, .user = &job};
    skv_sequence *sequence;
    SKV_TRY(skv_sequence_create(engine, n, &sequence, err));
    if (sequence->reader) sequence->reader->all = true;
    if (what->logprobs) what->logprobs[0] = (double)NAN;
    skv_status status = SKV_OK;
    while (job.chunk0 < n && status == SKV_OK) {
        size_t chunk = skv_min_size(n - job.chunk0, engine->options.step_tokens);
        skv_span span = {sequence, what->ids + job.chunk0, chunk, SKV_WANT_ALL};
        status = skv_engine_step(engine, &span, 1, &sink, err);
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
