/*
 * Requests before they are sent: when they begin, how long their prompts and answers are, and their
 * bodies. A prompt is a row of pieces, each a function of a number: one piece of its own, or the
 * blocks that a trace names, so that prompts share the blocks that the trace's shared.
 */
#ifndef SKV_LOAD_LOAD_REQUESTS_H
#define SKV_LOAD_LOAD_REQUESTS_H

#include "base/buf.h"
#include "load.h"

typedef struct load_arrival {
    size_t index;
    double at_s; /* after the run began; 0 for requests that wait for a client alone */
    size_t n_prompt, n_output; /* tokens */
    const uint64_t *blocks;    /* [n_blocks], the pieces of the prompt; borrowed from the trace */
    size_t n_blocks, block_tokens;
} load_arrival;

typedef struct arrival_clock {
    const load_options *options; /* borrowed */
    size_t n_total, n_told;
    double at_s, scale;
    uint64_t random_gaps, random_lengths;
} arrival_clock;

arrival_clock arrival_clock_begin(const load_options *options);
/** The next request; false: there is none any more. */
bool arrival_clock_next(arrival_clock *clock, load_arrival *out);

enum { LOAD_BODY_MAX = 1 << 30 }; /* bytes */

/** The body of a request by options with model, vocab and bytes_per_token set, which replaces
 * the contents of `out`. False: no memory. */
bool load_request_body(const load_options *options, const load_arrival *arrival, skv_buf *out);

/** Words at random, about n bytes, for prompts without a text; malloc's, NULL: no memory. */
char *load_request_words(size_t n, uint64_t seed);

#endif
