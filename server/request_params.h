/*
 * What a generating request may say beside its prompt: one table of fields with their types and
 * ranges. What is outside is refused by name and value; what is not in the table is ignored.
 */
#ifndef SKV_SERVER_REQUEST_PARAMS_H
#define SKV_SERVER_REQUEST_PARAMS_H

#include "json_body.h"

typedef enum param_api {
    PARAM_COMPLETIONS = 1,
    PARAM_CHAT = 2,
    PARAM_EMBEDDINGS = 4,
} param_api;

enum { PARAM_STOPS_MAX = 16, PARAM_STOP_BYTES = 256, PARAM_STOP_IDS_MAX = 64 };

typedef struct request_params {
    double temperature, top_p, min_p;
    double presence_penalty, frequency_penalty, repetition_penalty;
    int64_t top_k;      /* -1, 0: all */
    int64_t max_tokens; /* -1: not given */
    int64_t min_tokens, n, best_of, seed, logprobs, top_logprobs;
    bool seed_given;
    bool stream, include_usage, continuous_usage, return_progress, echo, ignore_eos;
    bool special_text;   /* special tokens have text too */
    bool wants_logprobs; /* with `n_top` of the most likely */
    size_t n_top;
    int64_t dimensions;          /* -1: not given */
    size_t i_method, i_encoding; /* of "auto|full|teacher", "float|base64" */
    size_t i_pooling;            /* of "last|mean" */
    skv_prefill prefill;
    skv_eviction eviction; /* where eviction_given */
    bool eviction_given;
    skv_pooling pooling;                   /* of an embedding */
    skv_text_piece stops[PARAM_STOPS_MAX]; /* they point into the JSON */
    size_t n_stops;
    int32_t *stop_ids; /* owned, [n_stop_ids] */
    size_t n_stop_ids;
    skv_logit_bias *biases; /* owned, [n_biases] */
    size_t n_biases;
} request_params;

/** Reads the members of `body`, which must outlive `out`. */
bool request_params_read(const exchange *ex, const json_t *body, param_api api, request_params *out,
                         api_error *error);
/** Whether an answer of at most max_tokens can have the min_tokens that were asked for. */
bool request_check_min(int64_t min_tokens, int64_t max_tokens, api_error *error);
/** Adds a JSON schema for each field of the table to an object; false: no memory. */
bool request_params_describe(param_api api, json_t *properties);
void request_params_release(request_params *params);
/** "model", where a request names one, has to be the one that is served. */
bool request_check_model(const exchange *ex, const json_t *body, api_error *error);
/** As a job has them, but for its prompt and max_tokens. */
skv_job_params request_params_job(const exchange *ex, const request_params *params);

#endif
