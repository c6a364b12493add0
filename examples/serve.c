/*
 * Answers several prompts at once: a scheduler runs them together, and each prints when it ends.
 *     serve MODEL PROMPT...
 * Installed, it builds with: cc serve.c $(pkg-config --cflags --libs skv) -pthread
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <skv/serve.h>

enum { JOBS_MAX = 16 };

/* Wakes main when a job has output: `notify` comes from the scheduler's thread. */
typedef struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    bool news;
} bell;

static void ring(void *user)
{
    bell *b = user;
    (void)pthread_mutex_lock(&b->lock);
    b->news = true;
    (void)pthread_cond_signal(&b->rung);
    (void)pthread_mutex_unlock(&b->lock);
}

static void wait_for(bell *b)
{
    (void)pthread_mutex_lock(&b->lock);
    while (!b->news) (void)pthread_cond_wait(&b->rung, &b->lock);
    b->news = false;
    (void)pthread_mutex_unlock(&b->lock);
}

static skv_status submit(skv_scheduler *scheduler, const skv_vocab *vocab, const char *prompt,
                         bell *b, skv_job **job, skv_error *err)
{
    int32_t *ids = NULL;
    skv_job_params params = skv_job_params_default();
    skv_status status =
        skv_vocab_encode(vocab, (skv_text_piece){prompt, strlen(prompt)},
                         (skv_encode_options){.add_special = true}, &ids, &params.n_ids, err);
    params.ids = ids;
    params.max_tokens = 32;
    params.notify = ring;
    params.user = b;
    if (status == SKV_OK) status = skv_scheduler_submit(scheduler, &params, job, err);
    skv_text_free(ids); /* the job has a copy */
    return status;
}

/* Reads what has come of a job; returns true when it has ended. */
static bool read_job(skv_job *job, size_t number)
{
    skv_output out;
    skv_job_stats stats;
    bool ended = false;
    while (skv_job_next(job, &out)) {
        if (out.kind != SKV_OUTPUT_END) continue;
        skv_job_get_stats(job, &stats);
        (void)printf("prompt %zu: %zu tokens, %zu of %zu prompt tokens cached%s%.*s\n", number + 1,
                     stats.completion_tokens, stats.cached_tokens, stats.prompt_tokens,
                     out.finish == SKV_FINISH_FAILED ? ", failed: " : "",
                     out.finish == SKV_FINISH_FAILED ? (int)out.n_text : 0, out.text);
        ended = true;
    }
    return ended;
}

static skv_status run(skv_scheduler *scheduler, const skv_vocab *vocab, char **prompts, size_t n,
                      skv_error *err)
{
    bell b = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    skv_job *jobs[JOBS_MAX] = {NULL};
    size_t n_jobs = 0, n_open = 0;
    skv_status status = SKV_OK;
    while (status == SKV_OK && n_jobs < n) {
        status = submit(scheduler, vocab, prompts[n_jobs], &b, &jobs[n_jobs], err);
        if (status == SKV_OK) n_jobs++;
    }
    n_open = status == SKV_OK ? n_jobs : 0;
    while (n_open > 0) {
        wait_for(&b);
        for (size_t i = 0; i < n_jobs; i++) {
            if (!jobs[i] || !read_job(jobs[i], i)) continue;
            skv_job_release(jobs[i]);
            jobs[i] = NULL;
            n_open--;
        }
    }
    for (size_t i = 0; i < n_jobs; i++) {
        if (jobs[i]) skv_job_release(jobs[i]);
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc - 2 > JOBS_MAX) {
        (void)fputs("usage: serve MODEL PROMPT... (at most 16)\n", stderr);
        return 2;
    }
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    skv_vocab *vocab = NULL;
    skv_scheduler *scheduler = NULL;
    skv_error err;
    options.context = 1024;
    options.kv_tokens = (size_t)8 * 1024; /* for all answers together */
    skv_status status = skv_engine_open(argv[1], &options, &engine, &err);
    if (status == SKV_OK) status = skv_vocab_open(argv[1], &vocab, &err);
    if (status == SKV_OK) status = skv_scheduler_create(engine, vocab, NULL, &scheduler, &err);
    if (status == SKV_OK) status = run(scheduler, vocab, argv + 2, (size_t)argc - 2, &err);
    if (status != SKV_OK) (void)fprintf(stderr, "serve: %s\n", err.text);
    skv_scheduler_free(scheduler);
    skv_vocab_close(vocab);
    skv_engine_close(engine);
    return status != SKV_OK;
}
