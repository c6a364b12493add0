/*
 * Runs the requests of examples on a model, several at a time.
 *
 * Common prefixes are computed once: the beginning of all examples of a batch (a primer) stays in
 * one sequence, the common beginning of an example's requests in another, and every request
 * continues from its example's. Prompts and continuations of many requests share steps. With
 * eviction, each request's prompt ends with an eviction of its own, so its own tokens vote.
 */
#ifndef SKV_EVAL_RUNNER_H
#define SKV_EVAL_RUNNER_H

#include "eval/example.h"
#include "skv/skv.h"
#include "skv/text.h"

typedef struct skv_eval_runner {
    skv_engine *engine;          /* borrowed */
    const skv_vocab *vocab;      /* borrowed */
    skv_sequence *kept;          /* owned: the beginning of all examples of the batch */
    skv_span *spans;             /* owned, [step_tokens] */
    size_t *span_jobs;           /* owned, [step_tokens]: which job a span belongs to */
    size_t *span_starts;         /* owned, [step_tokens]: tokens its sequence had before */
    skv_draft_request *requests; /* owned, [step_tokens]: the drafts of a step */
    skv_eviction eviction;       /* of every prompt, before its continuation */
    size_t context, step_tokens;
    uint64_t n_generated;    /* tokens of answers, */
    skv_draft_counts drafts; /* and the drafts among them */
    size_t block_pages;      /* pages that SKV_EVAL_BLOCK tokens of a sequence take */
} skv_eval_runner;

enum { SKV_EVAL_BLOCK = 64, SKV_EVAL_BATCH_MAX = 64 };

SKV_MUST_CHECK skv_status skv_eval_runner_init(skv_eval_runner *r, skv_engine *engine,
                                               const skv_vocab *vocab, skv_error *err);
void skv_eval_runner_release(skv_eval_runner *r);

/** Blocks of KV memory that an example may take, and how many there are. */
size_t skv_eval_blocks(const skv_eval_runner *r, const skv_eval_example *e);
size_t skv_eval_runner_blocks(const skv_eval_runner *r);

/** Runs all requests of the examples; each has to fit the context. */
SKV_MUST_CHECK skv_status skv_eval_runner_run(skv_eval_runner *r, skv_eval_example *const *examples,
                                              size_t n, skv_error *err);

/* ---- agree.c ---- */

/**
 * Runs both over e->right and sets, over the positions from n_right_context on, how often the most
 * likely tokens are the same and the mean KL(reference || model).
 */
SKV_MUST_CHECK skv_status skv_eval_agree(skv_engine *engine, skv_engine *reference,
                                         skv_eval_example *e, skv_error *err);

#endif
