/* One answer as it arrives: the times of its events, its usage, and how it ends; and the totals
 * of all answers of a run. */
#ifndef SKV_LOAD_STREAM_ANSWER_H
#define SKV_LOAD_STREAM_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "load.h"

/* Server-sent events out of the pieces in which they arrive. */
typedef struct event_reader {
    char *line; /* owned: the line that is not whole yet */
    size_t n, room;
} event_reader;

/* Times are seconds on one clock; negative: not yet. */
typedef struct stream_answer {
    event_reader reader;
    double begun_s, first_s, last_s;
    float *gaps_ms; /* owned: between events with text, [n_gaps] */
    size_t n_gaps, gaps_room;
    size_t n_tokens; /* events with text; `output_tokens` is the server's own count */
    uint64_t input_tokens, cached_tokens, output_tokens; /* 0: not told */
    bool tells_cached;                                   /* 0 of them too */
    bool ended;                                          /* data: [DONE] */
    load_outcome outcome;                                /* LOAD_DONE so far, or the failure */
    char detail[256];
} stream_answer;

/** A new answer in place of an old one; it takes over the memory. */
void stream_answer_begin(stream_answer *answer, double now_s);
/** The next bytes; false: no more is wanted, `outcome` tells why. */
bool stream_answer_feed(stream_answer *answer, const char *bytes, size_t n, double now_s);
/** The outcome of a response that ended without an error of HTTP. */
load_outcome stream_answer_finish(stream_answer *answer);
void stream_answer_release(stream_answer *answer);

double stream_answer_e2el_ms(const stream_answer *answer);
/** 0 where the answer has one token. */
double stream_answer_tpot_ms(const stream_answer *answer);

/* ---- all answers of a run ---- */

typedef struct load_tally {
    load_samples ttft, tpot, itl, e2el; /* milliseconds */
    bool no_memory;
} load_tally;

/** Counts a request that has ended. */
void tally_add(load_tally *tally, const load_goals *goals, const stream_answer *answer,
               load_outcome outcome, int status, load_result *result);
void tally_finish(load_tally *tally, load_result *result);
void tally_release(load_tally *tally);

#endif
