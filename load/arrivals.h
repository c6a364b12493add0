/* When requests are to begin, and how long their prompts and answers are to be. */
#ifndef SKV_LOAD_ARRIVALS_H
#define SKV_LOAD_ARRIVALS_H

#include "load.h"

typedef struct load_arrival {
    size_t index;
    double at_s; /* after the run began; 0 for requests that wait for a client alone */
    size_t n_prompt, n_output; /* tokens */
    const uint64_t *blocks;    /* [n_blocks], what the prompt is made of; borrowed from the trace */
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

#endif
