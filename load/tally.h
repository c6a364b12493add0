/* What all requests of a run come to. */
#ifndef SKV_LOAD_TALLY_H
#define SKV_LOAD_TALLY_H

#include "load.h"
#include "stream_answer.h"

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
