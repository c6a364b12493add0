/**
 * Several processes that train one model together (data-parallel training).
 *
 * The library knows no network: a program hands it this table, in which each process finds its
 * place and three ways to move bytes. Every process makes the same calls in the same order and
 * waits for the others in each. `swiftkv` fills the table from MPI.
 */
#ifndef SKV_TEAM_H
#define SKV_TEAM_H

#include <stddef.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

enum { SKV_TEAM_MAX = 4096 };

typedef struct skv_team {
    void *ctx;
    size_t rank, size; /* this process, counted from 0, of how many */
    size_t threads;    /* of this process where options leave them open; 0: one a processor */
    /* all [size][n]: what every process gave as `mine` [n], in the order of ranks. */
    skv_status (*gather)(void *ctx, const void *mine, void *all, size_t n, skv_error *err);
    /* to [size][n]: a part for each process; from [size][n]: what each had for this one. */
    skv_status (*exchange)(void *ctx, const void *to, void *from, size_t n, skv_error *err);
    /* data [n] of process 0 goes to all others. */
    skv_status (*share)(void *ctx, void *data, size_t n, skv_error *err);
} skv_team;

SKV_END

#endif
