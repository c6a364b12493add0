/*
 * A generating request from its body to its last byte. What the endpoints have in common is here;
 * a dialect says how its prompt is read and its JSON is written.
 */
#ifndef SKV_SERVER_API_ANSWER_H
#define SKV_SERVER_API_ANSWER_H

#include "answer_json.h"
#include "constrain.h"
#include "event_stream.h"
#include "reply_parts.h"
#include "tool_request.h"

/* What has come of one answer and was not written yet: all of it, or with a stream what came since
 * the last event. */
typedef struct api_choice {
    out_text text;
    out_text tokens, token_logprobs, top_logprobs, text_offset; /* insides of JSON arrays */
    size_t n_tokens;   /* whose log-probabilities are in the arrays */
    size_t n_chars;    /* of all tokens so far */
    bool begun, ended; /* begun: something was written */
    skv_finish finish;
    out_text stopped;  /* the stop text that came */
    reply_parts parts; /* of a chat, instead of `text` */
} api_choice;

typedef struct answer {
    const struct answer_dialect *dialect;
    exchange *ex;  /* borrowed */
    json_t *body;  /* owned: as OpenAI's chats and completions say it */
    json_t *asked; /* owned: what another dialect was asked; NULL: the same as body */
    tool_request tools;
    bool has_format; /* the answer follows a response_format or the like */
    request_params params;
    prompt_list prompts;
    generation g;
    api_choice *choices; /* owned, [n_choices]: a prompt's answers stand together */
    size_t n_choices, n_ended;
    int64_t created_s;
    uint64_t written_ns; /* when something was last written */
    size_t n_progress;   /* prompt tokens that were last told */
    size_t n_events;     /* of a stream whose events are counted */
    bool fitted;         /* the answer may be shorter than was asked for, as the context ends */
} answer;

/* How answers are written that are no list of choices. `done` and `failed` end a stream. */
typedef struct answer_shape {
    void (*whole)(answer *a, out_text *out);
    void (*news)(answer *a, out_text *out); /* behind every output */
    void (*quiet)(answer *a, out_text *out);
    void (*done)(answer *a, out_text *out);
    void (*failed)(answer *a, out_text *out, const api_error *error);
} answer_shape;

typedef struct answer_dialect {
    param_api api;
    const char *id_prefix;
    const char *object, *chunk_object;
    size_t default_tokens; /* of an answer, where the request does not say */
    bool in_parts;         /* thoughts, texts and calls are told apart */
    /* The request in OpenAI's words; NULL: it is. */
    json_t *(*translate)(const json_t *asked, api_error *error);
    bool fits_context;         /* an answer that is too long for the context ends there */
    const answer_shape *shape; /* NULL: choices, written by what follows */
    bool (*read_prompts)(const exchange *ex, const json_t *body, prompt_list *out,
                         api_error *error);
    void (*add_logprob)(answer *a, api_choice *c, const skv_output *token);
    /* One element of "choices", with what the choice holds. */
    void (*write_choice)(answer *a, out_text *out, size_t i);       /* of the whole response */
    void (*write_chunk_choice)(answer *a, out_text *out, size_t i); /* of an event */
} answer_dialect;

/** Handles a request of a dialect, stream or not. */
void answer_handle(exchange *ex, const answer_dialect *dialect);
/** "stop", "length", "tool_calls" */
const char *answer_finish_of(const api_choice *c);
/** ,"logprobs":...,"finish_reason":...,"stop_reason":... where the choice has ended. */
void answer_write_finish(out_text *out, const api_choice *c);

#endif
