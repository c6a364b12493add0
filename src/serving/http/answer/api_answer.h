/*
 * A generating request from its body to its last byte. The code that endpoints share is here; a
 * dialect defines how its prompt is read and its JSON is written.
 */
#ifndef SKV_SERVER_API_ANSWER_H
#define SKV_SERVER_API_ANSWER_H

#include "answer/generation.h"
#include "answer/reply_parts.h"

/* The part of one answer that was not written yet: all of it, or in a stream the part since the
 * last event. */
typedef struct api_choice {
    const struct api_choice *echo; /* borrowed: the text in front of its own; NULL: none */
    skv_buf text;
    skv_buf tokens, token_logprobs, top_logprobs, text_offset; /* insides of JSON arrays */
    size_t n_tokens;         /* the answer whose log-probabilities are in the arrays */
    size_t n_chars;          /* of an echo: of its tokens so far */
    size_t n_text_chars;     /* of an echo: of its text */
    skv_text_stream *reader; /* owned: the text of an echo's tokens; NULL: not wanted */
    bool begun, ended;       /* begun: something was written */
    bool has_line_end;       /* in the text so far, where the dialect looks */
    skv_finish finish;
    skv_buf stopped;   /* the stop text that came */
    reply_parts parts; /* of a chat, instead of `text` */
} api_choice;

typedef struct answer {
    const struct answer_dialect *dialect;
    exchange *ex;  /* borrowed */
    json_t *body;  /* owned: as OpenAI's chats and completions say it */
    json_t *asked; /* owned: the request in another dialect; NULL: the same as body */
    tool_request tools;
    request_params params;
    size_t i_slot; /* of slots.h; SIZE_MAX: it fills none */
    skv_buf said;  /* the ids of its answer, where it fills a slot */
    prompt_list prompts;
    generation g;
    api_choice *choices; /* owned, [n_choices]: a prompt's answers stand together */
    api_choice *echoes;  /* owned, [prompts.n]: prompts that are wanted back; NULL: they are not */
    size_t n_choices, n_ended;
    int64_t created_s;
    uint64_t written_ns;    /* when something was last written */
    size_t n_progress;      /* prompt tokens that were last told */
    size_t n_events;        /* of a stream whose events are counted */
    size_t n_asked;         /* bytes of the request's fields, if events repeat them; 0: not told
                             * yet */
    size_t n_taken, n_told; /* tokens of all answers: that came, and that events have told */
    bool fitted;            /* the answer may be shorter than was asked for, as the context ends */
} answer;

/* How the answers to a request are written. */
typedef struct answer_shape {
    /* A response with one answer; NULL: it is written as a list. */
    void (*whole)(answer *a, skv_buf *out);
    /* A response with a list of answers; all three are NULL if there is only one answer. */
    void (*front)(answer *a, skv_buf *out);
    void (*element)(answer *a, skv_buf *out, size_t i);
    void (*back)(answer *a, skv_buf *out);
    bool repeats_asked; /* the request's fields stand in each element */
    /* Of a stream: after every output, of its choice; a sign of life; and the two ends. */
    void (*news)(answer *a, skv_buf *out, size_t i);
    void (*quiet)(answer *a, skv_buf *out);
    void (*done)(answer *a, skv_buf *out);
    void (*failed)(answer *a, skv_buf *out, const api_error *error);
    /* How far the prompt has been read, where that is wanted; NULL: it is not told. */
    void (*progress)(answer *a, skv_buf *out, const skv_job_stats *stats);
} answer_shape;

typedef struct answer_dialect {
    param_api api;
    const char *id_prefix;
    const char *object, *chunk_object;
    size_t default_tokens;   /* of an answer, where the request does not say */
    bool in_parts;           /* thoughts, texts and calls are told apart */
    bool every_token;        /* add_logprob also gets tokens whose log-probability is not wanted */
    bool whole_calls;        /* a stream tells a call when it is whole */
    const char *stream_type; /* of the body of a stream; NULL: server-sent events */
    const char *call_prefix; /* of the ids of calls; NULL: "call_" */
    const error_shape *errors; /* NULL: errors_openai */
    /* Writes the response to a request that wants nothing generated; NULL: there are none. False:
     * this is another. */
    bool (*at_once)(exchange *ex, const json_t *asked, skv_buf *out);
    /* The request in OpenAI's words; NULL: it is. */
    json_t *(*translate)(exchange *ex, const json_t *asked, api_error *error);
    const answer_shape *shape;
    bool (*read_prompts)(const exchange *ex, const json_t *body, prompt_list *out,
                         api_error *error);
    void (*add_logprob)(answer *a, api_choice *c, const skv_output *token);
    /* One element of "choices" (answer_choices), with the contents of the choice. */
    void (*write_choice)(answer *a, skv_buf *out, size_t i);       /* of the whole response */
    void (*write_chunk_choice)(answer *a, skv_buf *out, size_t i); /* of an event */
} answer_dialect;

/** Handles a request of a dialect, stream or not. */
void answer_handle(exchange *ex, const answer_dialect *dialect);

/* ---- answer_choices.c: a list of choices, as OpenAI writes it ---- */

extern const answer_shape answer_choices;
/** Empties the written parts, but not those of a chat. */
void answer_clear_choice(api_choice *c);
/** The echo that has to be written before the choice's own text; NULL: none, or it was. */
const api_choice *answer_echo_of(const api_choice *c);
/** ,"logprobs":...,"finish_reason":...,"stop_reason":... where the choice has ended. */
void answer_write_finish(skv_buf *out, const api_choice *c);

/* ---- answer_json.c: pieces that the responses of all generating endpoints have in common ---- */

/** {"cached_tokens":...,"cache_write_tokens":...} */
void answer_cached(skv_buf *out, const skv_job_stats *stats);
/** ,"swiftkv_cache_miss":{"reason":...}, or nothing where all was found: at the end of a usage, in
 * a field that no API of others has. */
void answer_miss(skv_buf *out, const exchange *ex, const skv_cache_miss *miss);
/** {"prompt_tokens":...,"prompt_tokens_details":{"cached_tokens":...}} */
void answer_usage(skv_buf *out, const exchange *ex, const skv_job_stats *stats);
/** {"prompt_n":...,"prompt_ms":...,"predicted_per_second":...,...} */
void answer_timings(skv_buf *out, const skv_job_stats *stats);
/** {"total":...,"cache":...,"processed":...,"time_ms":...} of the prompt. */
void answer_progress(skv_buf *out, const generation *g, const skv_job_stats *stats);
/** Characters of a text in UTF-8. */
size_t answer_count_chars(const char *text, size_t n);
/** "stop", "length" */
const char *answer_finish(skv_finish finish);
/** A token's text as a JSON string. */
void answer_token(const exchange *ex, skv_buf *out, int32_t id);
/** Adds the text of ids, piece by piece, so that no more is held than `out` has. Without memory it
 * fails as `out` does. */
void answer_ids_text(const exchange *ex, skv_id_piece ids, bool with_special,
                     void (*add)(skv_buf *out, const char *text, size_t n), skv_buf *out);
/** A token of "logprobs":{"content":[...]} as chats have it. */
void answer_chat_logprob(const exchange *ex, skv_buf *out, const skv_output *token);

#endif
