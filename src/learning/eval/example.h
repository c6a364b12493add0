/*
 * An example: the token sequences it asks a model about, the results, and its values.
 *
 * A request with max_new 0 asks for the log-probability of ids[n_context..n) after
 * ids[0..n_context); any other asks for up to max_new tokens after ids[0..n), decoded greedily.
 */
#ifndef SKV_EVAL_EXAMPLE_H
#define SKV_EVAL_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "eval/metric.h"
#include "text/tokenizer.h"

typedef struct skv_eval_request {
    skv_ids ids;
    size_t n_context; /* >= 1: the first token has no probability */
    size_t max_new;
    int32_t stop_id;       /* ends an answer besides the model's own ids; -1: none */
    const char *stop_text; /* a constant; NULL: none */
    double bytes;          /* of the continuation's text, without the space before it */
    bool is_true;          /* of an answer among choices */
    bool is_second_set;    /* choices of TruthfulQA's mc2 */
    /* The results. */
    double logprob;
    bool greedy; /* every token of the continuation was the most likely one */
    skv_ids answer;
} skv_eval_request;

struct skv_eval_format;

typedef struct skv_eval_example {
    const struct skv_eval_format *format;
    size_t index;               /* in its task */
    skv_eval_request *requests; /* owned */
    size_t n_requests, requests_capacity;
    char **answers; /* owned: the accepted answers, [0] as in the record */
    size_t n_answers;
    size_t length; /* tokens of the prompt, or the length asked for; 0: none */
    double depth;  /* the answer's place in the prompt, 0 to 1; NaN: unknown */
    /* The right text, to compare with a reference model on ids[n_right_context..). */
    skv_ids right;
    size_t n_right_context;
    /* Results. */
    bool skipped; /* too long for the context */
    char *said;   /* owned: the generated answer; NULL: none */
    skv_metric_value values[SKV_METRIC_COUNT];
} skv_eval_example;

void skv_eval_example_init(skv_eval_example *e, size_t index);
void skv_eval_example_release(skv_eval_example *e);
/** A new request, zeroed; NULL when there is no memory. Valid until the next one. */
skv_eval_request *skv_eval_request_new(skv_eval_example *e, skv_error *err);
/** One more text that counts as right. */
SKV_MUST_CHECK skv_status skv_eval_answer_add(skv_eval_example *e, const char *text, size_t n,
                                              skv_error *err);
void skv_eval_set(skv_eval_example *e, skv_metric metric, double sum, double weight);
/** Tokens that the longest request needs, its answer included. */
size_t skv_eval_tokens(const skv_eval_example *e);

#endif
