/*
 * Texts that the next prompts are expected to begin with. The worker reads them into the prefix
 * cache while it has nothing else to do, a step at a time, and any job ends that within the step
 * that is running (idle_reads.c). A text stays until a prompt follows it, to count the tokens that
 * it saved, or until newer ones take its place.
 */
#ifndef SKV_SERVE_IDLE_READS_H
#define SKV_SERVE_IDLE_READS_H

#include "scheduler/job.h"

enum { SKV_IDLE_READS = 8 };

typedef struct skv_idle_read {
    skv_job *job; /* owned: has the ids and their domain; it has no lanes */
    bool begun, done;
    size_t from, to; /* once begun: the tokens that were read for it */
    size_t kept;     /* the state that goes along stands after so many tokens; 0: none */
} skv_idle_read;

typedef struct skv_idle {
    /* Guarded by the scheduler's lock: */
    skv_job *inbox[SKV_IDLE_READS]; /* owned: not seen by the worker, the oldest first */
    size_t n_inbox;
    bool stepping; /* the step that is running is one of these */
    /* The worker's own: */
    skv_idle_read at[SKV_IDLE_READS]; /* the oldest first */
    size_t n;
    skv_sequence *sequence; /* owned: of the read that is under way; NULL: none */
    const skv_job *reading; /* its job */
    uint64_t due_ns;        /* no step before: the share of the time is used up until then */
} skv_idle;

#endif
