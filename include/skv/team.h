/**
 * Several processes that train one model together (data-parallel training), or that hold a part of
 * a model each and run it together (tensor parallel: skv/ranks.h).
 *
 * The library does no networking. The program passes this table, which holds the rank of the
 * process and its collective operations. Every process makes the same calls in the same order,
 * and each call waits for all processes. `swiftkv` implements the table with MPI.
 */
#ifndef SKV_TEAM_H
#define SKV_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

enum { SKV_TEAM_MAX = 4096 };

typedef struct skv_team {
    void *ctx;
    size_t rank, size; /* rank of this process, from 0, and the number of processes */
    size_t threads;    /* default number of threads of this process; 0: one per processor */
    /* Collects `mine` [n] of every process in all [size][n], ordered by rank. */
    skv_status (*gather)(void *ctx, const void *mine, void *all, size_t n, skv_error *err);
    /* Sends to[i] [n] to process i and receives from[i] [n] from it. */
    skv_status (*exchange)(void *ctx, const void *to, void *from, size_t n, skv_error *err);
    /* Broadcasts data [n] of process 0 to all others. */
    skv_status (*share)(void *ctx, void *data, size_t n, skv_error *err);
    /* Collects `mine` [n] of every other process in all [size][n] of process 0, ordered by rank.
     * Process 0 gives none, and its part of `all` stays as it is. Only skv/ranks.h needs it: NULL
     * is fine for training. */
    skv_status (*collect)(void *ctx, const void *mine, void *all, size_t n, skv_error *err);
    /* Which of its machine's devices this process computes on, from 0, where it is not the
     * processor: skv_engine_options.device. */
    size_t device;
    /* The processes are threads of one program: an address that `gather` collects is good for all,
     * so their devices can copy from each other. */
    bool one_memory;
} skv_team;

SKV_END

#endif
