/*
 * What training and engines need of a team of processes (skv/team.h): sums that are the same bits
 * on every one, and errors that all of them hear of, so that none waits for one that has given up.
 *
 * A team may be NULL, which is one process alone: then nothing is sent and nothing can fail.
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
 * Every process brings the status of what it did alone: SKV_OK if all did well, else the status of
 * the first that did not, and *err says on every process which one it was and what it met.
 */
SKV_MUST_CHECK skv_status skv_team_agree(const skv_team *team, skv_status mine, skv_error *err);

/** Refuses on every process when one has another value than process 0; `what` names it. */
SKV_MUST_CHECK skv_status skv_team_same(const skv_team *team, uint64_t mine, const char *what,
                                        skv_error *err);

/** Whether any process says so. */
SKV_MUST_CHECK skv_status skv_team_any(const skv_team *team, bool mine, bool *any, skv_error *err);

/** x[i] becomes the sum over processes, added in the order of ranks. */
SKV_MUST_CHECK skv_status skv_team_sum_doubles(const skv_team *team, double *x, size_t n,
                                               skv_error *err);

/**
 * The same for many floats. Each process adds up a part of them and sends it to all, so every one
 * has the same bits; a few are sent to all and added up by each. `scratch` has
 * skv_team_scratch(team) floats.
 */
SKV_MUST_CHECK skv_status skv_team_sum(const skv_team *team, float *x, size_t n, float *scratch,
                                       skv_error *err);
size_t skv_team_scratch(const skv_team *team);

/** The bytes of process 0 go to all. */
SKV_MUST_CHECK skv_status skv_team_share(const skv_team *team, void *data, size_t n,
                                         skv_error *err);

/** A hash of n bytes that goes on from another one. */
uint64_t skv_team_hash(uint64_t hash, const void *data, size_t n);

#endif
