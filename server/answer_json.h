/* Pieces that the responses of all generating endpoints have in common. */
#ifndef SKV_SERVER_ANSWER_JSON_H
#define SKV_SERVER_ANSWER_JSON_H

#include "generation.h"

/** {"prompt_tokens":...,"prompt_tokens_details":{"cached_tokens":...}} */
void answer_usage(out_text *out, const skv_job_stats *stats);
/** {"prompt_n":...,"prompt_ms":...,"predicted_per_second":...,...} */
void answer_timings(out_text *out, const skv_job_stats *stats);
/** {"total":...,"cache":...,"processed":...,"time_ms":...} of the prompt. */
void answer_progress(out_text *out, const generation *g, const skv_job_stats *stats);
/** "stop", "length" */
const char *answer_finish(skv_finish finish);
/** A token's text as a JSON string. */
void answer_token(const exchange *ex, out_text *out, int32_t id);
/** A token of "logprobs":{"content":[...]} as chats have it. */
void answer_chat_logprob(const exchange *ex, out_text *out, const skv_output *token);
/** Why an answer failed, as an error; true when it did. */
bool answer_failed(const skv_output *end, api_error *error);

#endif
