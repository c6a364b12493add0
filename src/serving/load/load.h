/*
 * Load on an OpenAI-compatible server, for the command `load`.
 *
 * Requests arrive by a clock (a rate, or the times of a trace) or as soon as a client is free, at
 * most `clients` of them at once. Every answer is a stream; the measures have the names and
 * meanings of vLLM's benchmark:
 *
 *     TTFT   from sending the request to the first event with a choice
 *     ITL    between two events with text
 *     TPOT   (end-to-end - TTFT) / (tokens of the answer - 1)
 *     E2EL   end-to-end, to the last event with a choice
 *
 * An event that only tells why an answer ended is no token: it counts for E2EL alone.
 */
#ifndef SKV_LOAD_LOAD_H
#define SKV_LOAD_LOAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "samples.h"
#include "trace_file.h"

enum { LOAD_ERROR_MAX = 512 };

/* The outcome of a request. */
typedef enum load_outcome {
    LOAD_DONE,
    LOAD_UNREACHABLE, /* no connection */
    LOAD_TIMEOUT,
    LOAD_CUT,       /* the connection ended before the answer did */
    LOAD_HTTP,      /* another status than 200 */
    LOAD_MALFORMED, /* the response is no stream of events with JSON */
    LOAD_REFUSED,   /* an event with an error */
    LOAD_EMPTY,     /* an answer without a token */
    LOAD_CANCELLED, /* by us, because that was asked for */
    LOAD_STOPPED,   /* by us, because the run ended */
    LOAD_OUTCOMES
} load_outcome;

/** "timeout", "cut", ...; LOAD_HTTP is told by its status. */
const char *load_outcome_name(load_outcome outcome);

enum { LOAD_STATUS_FIRST = 100, LOAD_STATUSES = 500 };

typedef enum load_arrivals {
    LOAD_AT_ONCE, /* a request begins as soon as a client is free */
    LOAD_POISSON, /* `rate` a second, gaps as of a Poisson process */
    LOAD_FIXED,   /* `rate` a second, equal gaps */
    LOAD_TRACE    /* the trace's times, by `time_scale` or, where a rate is given, at that rate */
} load_arrivals;

/* Latencies of a good answer in milliseconds; negative: not asked for. */
typedef struct load_goals {
    double ttft_ms, tpot_ms, e2el_ms;
} load_goals;

typedef struct load_options {
    const char *url;   /* http://HOST:PORT, with or without /v1 */
    const char *key;   /* NULL: none */
    const char *model; /* NULL: the first of /v1/models */
    bool chat;

    /* Prompts: pieces of a text, or random token ids below `vocab`. */
    const char *text;
    size_t n_text;
    double bytes_per_token;       /* of the text; 0: the server is asked */
    size_t vocab;                 /* 0: the server is asked */
    const size_t *prompt_lengths; /* tokens; each request draws one */
    size_t n_prompt_lengths;
    size_t output_tokens;
    const load_trace *trace; /* NULL: none; its lengths replace those above */
    double length_scale;     /* of the trace */
    uint64_t seed;           /* of prompts, gaps and cancellations */

    load_arrivals arrivals;
    double rate;       /* requests a second; 0: none */
    double time_scale; /* of a trace's times: 2 is half as fast */
    size_t clients;    /* requests at once */
    size_t n_requests; /* at most those of the trace */
    double seconds;    /* nothing begins afterwards; 0: no limit */

    double timeout_seconds;                  /* of a request */
    double cancel_share, cancel_seconds_max; /* cut off at a moment drawn from 0 to the latter */
    bool ignore_eos;
    const char *method;  /* the field `swiftkv`; NULL: not sent */
    const json_t *extra; /* further fields of the body; NULL: none */
    load_goals goals;
    FILE *log; /* gets one JSON object a request; NULL: none */

    /* Called ten times a second; false ends the run. */
    bool (*progress)(void *user, size_t n_done, size_t n_total);
    void *user;
} load_options;

typedef struct load_result {
    char model[256];
    double duration_s;
    size_t n_started, n_completed, n_failed; /* failed: neither done, cancelled nor stopped */
    size_t n_good;                           /* met all goals */
    size_t n_at_once_max;
    size_t n_late; /* begun more than 5 ms after their time, because all clients were busy */
    double lateness_s_max;
    uint64_t input_tokens, cached_tokens, output_tokens; /* of completed requests, */
    size_t n_tell_cached;               /* completed requests that reported cached tokens */
    load_summary ttft, tpot, itl, e2el; /* milliseconds */
    size_t outcomes[LOAD_OUTCOMES];
    size_t statuses[LOAD_STATUSES]; /* those of LOAD_HTTP, from LOAD_STATUS_FIRST on */
    char first_error[256];          /* of the first request that failed */
} load_result;

load_options load_options_default(void);

/** Whether this build can speak HTTP. */
bool load_is_built(void);

/** The server's name of its model and, if it tells them, its vocabulary and the bytes of a token
 * of `text`: fills the fields of `options` that are not set. `name` keeps the model's name. */
bool load_ask_server(load_options *options, char *name, size_t name_room, char *error);

/** Runs the load; false: it could not be run at all. Requests that fail are counted. */
bool load_run(const load_options *options, load_result *out, char *error);

#endif
