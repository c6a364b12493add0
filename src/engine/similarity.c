/*
 * SimScore (arXiv:2410.03960, equation 1):
 *     SimScore(x_l) = sum_{j = l+1}^{L} Similarity(x_l, x_j) / (L - l)
 * where x_l is the input of layer l and Similarity the cosine, averaged over tokens. It shows from
 * which layer on the hidden state changes so little that later keys and values can be made there.
 */
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"
#include "model/ffn_skip.h"
#include "skv/tools.h"

typedef struct similarity_job {
    const skv_similarity_text *text;
    size_t L, D;
    float *hidden; /* owned, [L, T, D]: the inputs of all layers in this window */
    size_t n_rows; /* of the window so far */
    size_t T;      /* rows it has room for */
    double *pair;  /* owned, [L, L]: sums of cosines over tokens */
    size_t n_tokens;
} similarity_job;

static void take_hidden(void *user, size_t i_layer, const float *x, size_t n_rows)
{
    similarity_job *job = user;
    if (i_layer >= job->L) return;
    float *to = job->hidden + i_layer * job->T * job->D;
    for (size_t i = 0; i < n_rows * job->D; i++) to[i] = x[i];
    job->n_rows = n_rows;
}

static void add_pairs(similarity_job *job)
{
    for (size_t l = 0; l < job->L; l++) {
        for (size_t j = l + 1; j < job->L; j++) {
            const float *a = job->hidden + l * job->T * job->D;
            const float *b = job->hidden + j * job->T * job->D;
            for (size_t t = 0; t < job->n_rows; t++) {
                job->pair[l * job->L + j] += skv_cosine(a + t * job->D, b + t * job->D, job->D);
            }
        }
    }
    job->n_tokens += job->n_rows;
}

/* One window of at most the engine's context, in steps; each step's rows are added. */
static skv_status run_window(skv_engine *engine, similarity_job *job, const int32_t *ids, size_t n,
                             skv_error *err)
{
    skv_sequence *sequence;
    SKV_TRY(skv_sequence_create(engine, 0, &sequence, err));
    skv_status status = SKV_OK;
    for (size_t done = 0; done < n && status == SKV_OK;) {
        size_t chunk = skv_min_size(n - done, engine->options.step_tokens);
        skv_span span = {sequence, ids + done, chunk, SKV_WANT_NONE};
        status = skv_step_hidden(engine, &span, 1, take_hidden, job, err);
        done += chunk;
        if (status != SKV_OK) break;
        add_pairs(job);
        if (job->text->progress) {
            job->text->progress(job->text->user, job->n_tokens, job->text->n);
        }
    }
    skv_sequence_free(sequence);
    return status;
}

static skv_status run_windows(skv_engine *engine, similarity_job *job, skv_error *err)
{
    const size_t n = job->text->n;
    SKV_REQUIRE(job->hidden && job->pair, err, SKV_MEMORY,
                "similarity: no memory for the hidden states of %zu tokens in %zu layers", job->T,
                job->L);
    for (size_t done = 0; done < n; done += engine->options.context) {
        size_t window = skv_min_size(n - done, engine->options.context);
        SKV_TRY(run_window(engine, job, job->text->ids + done, window, err));
    }
    return SKV_OK;
}

skv_status skv_similarity(skv_engine *engine, const skv_similarity_text *text, double *scores,
                          skv_error *err)
{
    SKV_REQUIRE(engine->options.no_skip, err, SKV_ARGUMENT,
                "similarity: the engine must run every layer (no_skip)");
    SKV_REQUIRE(text->n >= 1, err, SKV_ARGUMENT, "similarity: no tokens");
    similarity_job job = {.text = text,
                          .L = engine->config->n_layers,
                          .D = engine->config->hidden,
                          .T = engine->options.step_tokens};
    size_t n_hidden = job.L * job.D; /* both bounded by skv_config_check */
    job.hidden = skv_alloc(n_hidden, job.T * sizeof *job.hidden);
    job.pair = skv_alloc_zero(job.L * job.L, sizeof *job.pair);
    skv_status status = run_windows(engine, &job, err);
    for (size_t l = 0; status == SKV_OK && l + 1 < job.L; l++) {
        double sum = 0;
        for (size_t j = l + 1; j < job.L; j++) sum += job.pair[l * job.L + j];
        scores[l] = sum / (double)job.n_tokens / (double)(job.L - 1 - l);
    }
    skv_free(job.hidden);
    skv_free(job.pair);
    return status;
}
