/*
 * Team operations (skv/team.h) for training and engines: sums that are bit-identical on every
 * process, and errors that reach all of them, so that no process waits for one that has failed.
 *
 * A NULL team is a single process: nothing is sent and nothing can fail.
 */
#ifndef SKV_BASE_TEAM_WORK_H
#define SKV_BASE_TEAM_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "skv/team.h"

static inline size_t skv_team_size(const skv_team *team)
{
    return team ? team->size : 1;
}

static inline bool skv_team_leads(const skv_team *team)
{
    return !team || team->rank == 0;
}

SKV_MUST_CHECK skv_status skv_team_check(const skv_team *team, skv_error *err);

/**
 * Combines the statuses of all processes: SKV_OK if all succeeded, else the status of the first
 * that failed. *err then names that process and its error on every process.
 */
SKV_MUST_CHECK skv_status skv_team_agree(const skv_team *team, skv_status mine, skv_error *err);

/** Fails on every process if any value differs from that of process 0; `what` names the value. */
SKV_MUST_CHECK skv_status skv_team_same(const skv_team *team, uint64_t mine, const char *what,
                                        skv_error *err);

/** Sets *any on every process if `mine` is true on one of them. */
SKV_MUST_CHECK skv_status skv_team_any(const skv_team *team, bool mine, bool *any, skv_error *err);

/** x[i] becomes the sum over processes, added in the order of ranks. */
SKV_MUST_CHECK skv_status skv_team_sum_doubles(const skv_team *team, double *x, size_t n,
                                               skv_error *err);

/**
 * As above, for many floats. Each process adds up a part of them and sends it to all, so all have
 * the same bits. A few floats are sent to all and added up by each. `scratch` has
 * skv_team_scratch(team) floats.
 */
SKV_MUST_CHECK skv_status skv_team_sum(const skv_team *team, float *x, size_t n, float *scratch,
                                       skv_error *err);
size_t skv_team_scratch(const skv_team *team);

/** The bytes of process 0 go to all. */
SKV_MUST_CHECK skv_status skv_team_share(const skv_team *team, void *data, size_t n,
                                         skv_error *err);

/** Hashes n bytes, continuing from another hash. */
uint64_t skv_team_hash(uint64_t hash, const void *data, size_t n);

#endif
