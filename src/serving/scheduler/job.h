/*
 * A job as its reader and the worker share it: the request, and the outputs on their way out. The
 * worker's own part of an answer is a lane (lane.h).
 */
#ifndef SKV_SERVE_JOB_H
#define SKV_SERVE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fail.h"
#include "skv/serve.h"

/* One output in the queue, followed by its tops and text in the same block. */
typedef struct skv_output_node {
    struct skv_output_node *next;
    size_t n_bytes;
    size_t n_counted; /* in the account, beside the short queue */
    skv_output output;
} skv_output_node;

struct skv_job {
    skv_scheduler *scheduler;    /* borrowed; not looked at once `detached` */
    skv_eviction eviction;       /* params.eviction points here */
    skv_speculation speculation; /* params.speculation points here */
    skv_job_params params;       /* its arrays are owned */
    char *stop_bytes;            /* owned: params.stops point into it */
    uint64_t number;             /* in order of submission */
    uint64_t domain;             /* the domain that shares its pages */
    uint64_t owner;              /* its tenant, whatever else the domain is made from */
    uint64_t queued_ns;          /* when it was submitted */
    skv_account *account;        /* borrowed; NULL: none. Holds the fields below, and the outputs */
    size_t own_bytes;            /* of this struct, of all that params point to and of a short
                                  * queue */
    size_t reserved_bytes;       /* for lanes that are not there yet; the worker's */
    bool forked;                 /* the worker's: every answer has its lane */
    atomic_uint references;
    atomic_bool cancelled;

    pthread_mutex_t lock; /* guards the fields below */
    void (*notify)(void *user);
    skv_output_node *first, *last; /* owned, to be read */
    skv_output_node *reading;      /* owned, the one whose pointers the reader has */
    skv_output_node *ends;         /* owned, [n_answers]: an answer can always end */
    size_t n_bytes;                /* of the outputs to be read, and of `reading` */
    size_t n_open;                 /* answers that have not ended */
    skv_job_stats stats;           /* times but prefill_ns are worked out when asked for */
    uint64_t begun_ns, first_token_ns, last_token_ns; /* 0: not yet */
};

/** Makes the checks that do not depend on the engine. The functions below take params that
 * passed. */
SKV_MUST_CHECK skv_status skv_job_check(const skv_job_params *params, skv_error *err);
/** Bytes of a job without its lanes and without outputs beyond a short queue. */
size_t skv_job_bytes(const skv_job_params *params);
/** Copies the params; two references: reader and worker. The job's memory is counted in an account
 * (NULL: none): SKV_MEMORY when that has no room now. */
SKV_MUST_CHECK skv_status skv_job_create(const skv_job_params *params, skv_account *account,
                                         skv_job **out, skv_error *err);
/** Drops one reference. */
void skv_job_drop(skv_job *job);

/** Queues a copy; false: no memory, or the reader is too slow. A short queue is never refused
 * for want of room in the account, so other requests that fill it do not end this job. END
 * outputs are never refused for slowness. */
SKV_MUST_CHECK bool skv_job_put(skv_job *job, const skv_output *output, size_t max_bytes);
/** The part of the time since a job began that no step with tokens of its prompt took. With its
 * lock held. */
uint64_t skv_job_wait_ns(const skv_job *job, uint64_t now);
/** Queues the END of an answer. Never fails: without memory it is a failure for want of it. */
void skv_job_end(skv_job *job, const skv_output *output);

#endif
