/*
 * A simulation of several machines that serve one model: how long the requests of a trace would
 * take. Costs of steps are measured (costs.h), the scheduler's rules are those of the server
 * (fleet_machine.h); the network is a link for each machine and one for the store.
 *
 *     replicas   every machine reads and answers; requests that begin alike go to the same one,
 *                while it is not much busier than the others
 *     store      the same without affinity: all machines share the blocks of prompts in a store
 *     readers    some machines only read prompts; their blocks go to the store and from there to
 *                the machine that answers
 */
#ifndef SKV_FLEET_FLEET_H
#define SKV_FLEET_FLEET_H

#include "fleet_machine.h"

typedef enum fleet_design {
    FLEET_REPLICAS,
    FLEET_STORE,
    FLEET_READERS,
    FLEET_DESIGNS
} fleet_design;

/** "replicas", "store", "readers". */
const char *fleet_design_name(fleet_design design);

typedef struct fleet_options {
    fleet_costs costs;
    fleet_limits limits; /* of a machine */
    fleet_design design;
    size_t n_machines, n_readers; /* readers: of the machines */
    double link_gbs, store_gbs;   /* 10^9 bytes a second: of a machine's network, of the store's */
    double latency_ms;            /* until the first byte of a block */
    double store_gb;              /* memory of the store, 10^9 bytes */
    size_t read_above;            /* uncached tokens of a prompt for which a reader is asked */

    const load_trace *trace;
    double rate;         /* requests a second; 0: the trace's */
    double seconds;      /* of arrivals; infinity: the whole trace */
    double length_scale; /* of prompts and answers */
    uint64_t seed;
    load_goals goals;
    double bad_share_most; /* stop when more requests miss the goals; 1: never */
} fleet_options;

typedef struct fleet_result {
    size_t n_requests, n_good, n_refused; /* refused: larger than a machine's memory */
    bool stopped;                         /* early: bad_share_most */
    double rate;                          /* that arrived */
    load_summary ttft, tpot, e2el;        /* milliseconds */
    double found_share;                   /* of prompt tokens: in a cache or in the store */
    double answer_busy, reader_busy;      /* share of time, on average */
    double store_link, most_link; /* share of time: the store's network, the busiest machine's */
    uint64_t n_steps;
} fleet_result;

fleet_options fleet_options_default(void);
/** False: the simulation could not be run; `error` says why. */
bool fleet_run(const fleet_options *options, fleet_result *out, char *error);

/* ---- arrivals.c ---- */

typedef struct fleet_arrival {
    double at_s;
    uint32_t row, copy; /* of the trace; of the trace's copies, each with other users */
} fleet_arrival;

/**
 * Arrivals of a trace at a rate, in order, on the heap: as many copies of it as come closest to the
 * rate, each begun at another place, stretched to the rate. NULL: no memory, or too many.
 */
fleet_arrival *fleet_arrivals(const load_trace *trace, double rate, double seconds, uint64_t seed,
                              size_t *n);

#endif
