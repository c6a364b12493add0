/*
 * The answers of one request on their way: a job for each prompt, some of them at a time, and the
 * client, whose leaving ends them.
 */
#ifndef SKV_SERVER_GENERATION_H
#define SKV_SERVER_GENERATION_H

#include "base/system_sockets.h"
#include "request/request_input.h"

typedef struct generation {
    exchange *ex;               /* borrowed */
    const prompt_list *prompts; /* borrowed */
    skv_job_params job;         /* of every prompt but for its ids and max_tokens */
    int64_t max_tokens;         /* -1: as many as the context leaves, at most default_tokens */
    size_t default_tokens;
    skv_job **jobs;       /* owned, [prompts->n]; NULL: not begun, or done */
    skv_job_stats *stats; /* owned, [prompts->n]: of those that are done */
    size_t n_begun, n_done;
    bool is_full;  /* the last job did not fit: into the queue, or into --memory */
    size_t i_next; /* the prompt whose output is looked for first */
    skv_wake wake; /* rung when there is output */
    uint64_t start_ns;
    bool settled; /* its tokens were counted */
    api_error failure;
} generation;

typedef enum generation_event {
    GENERATION_OUTPUT,
    GENERATION_QUIET, /* nothing for as long as was to be waited */
    GENERATION_DONE,
    GENERATION_GONE,  /* the client has left, or the server stops */
    GENERATION_FAILED /* `failure` tells why */
} generation_event;

/** Begins the first jobs. params and prompts are borrowed until generation_release. */
bool generation_start(generation *g, exchange *ex, const prompt_list *prompts,
                      const request_params *params, size_t default_tokens, api_error *error);
/** The next output and its prompt; waits for at most so many seconds. The pointers of `out` are
 * valid until the next call. */
generation_event generation_next(generation *g, double seconds, size_t *i_prompt, skv_output *out);
/** Why an answer failed, as an error; true when it did. */
bool generation_output_failed(const skv_output *end, api_error *error);
/** Gives all outputs to `take`, with the number of their prompt; false: one failed, the response
 * was refused meanwhile, or the client has left. */
bool generation_gather(generation *g,
                       void (*take)(void *user, size_t i_prompt, const skv_output *o), void *user,
                       api_error *error);
/** The tokens of one prompt's answers so far. */
void generation_prompt_stats(const generation *g, size_t i, skv_job_stats *out);
/** Sums over all prompts. */
void generation_stats(const generation *g, skv_job_stats *out);
/** Cancels the jobs that are left. */
void generation_release(generation *g);

#endif
