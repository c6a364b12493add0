/**
 * One model on several processes or GPUs (tensor parallel). Each of them, a rank, holds a part of
 * every matrix and of the KV cache: rows of q|k|v and gate|up, columns of o and down, KV heads, and
 * ids of the vocabulary. After o and after down the results are added up over all ranks, in the
 * order of ranks, so the same number of ranks gives the same bits. NCCL has an order of its own
 * (skv_engine_options.sums).
 *
 * Rank 0 uses engines and sequences as usual; it only sets skv_engine_options.team. The other ranks
 * call skv_ranks_follow, which opens the same engines and mirrors the operations of rank 0. Files
 * must have the same path on all machines.
 */
#ifndef SKV_RANKS_H
#define SKV_RANKS_H

#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"
#include "skv/skv.h"
#include "skv/team.h"

SKV_BEGIN

/** Runs a rank other than 0: executes the commands of rank 0 until rank 0 calls skv_ranks_end.
 * After an error this rank can no longer follow; the program must end the other ranks, which would
 * otherwise wait for it. */
SKV_CHECKED skv_status skv_ranks_follow(const skv_team *team, skv_error *err);
/** Rank 0, when its engines are closed: the others return from skv_ranks_follow. */
SKV_CHECKED skv_status skv_ranks_end(const skv_team *team, skv_error *err);

/* ---- ranks that are threads of this program, such as one for each GPU ---- */

enum { SKV_RANKS_THREADS_MAX = 16 };

typedef struct skv_ranks_threads skv_ranks_threads;

/** Starts the threads of ranks 1 to n - 1, which follow; rank i computes on device i of the kind
 * that skv_engine_options.device names. */
SKV_CHECKED skv_status skv_ranks_threads_start(size_t n, skv_ranks_threads **out, skv_error *err);
/** The team of rank 0, for skv_engine_options.team, until skv_ranks_threads_end. */
SKV_API const skv_team *skv_ranks_threads_team(const skv_ranks_threads *threads);
/** Ends and frees them when all engines are closed, in place of skv_ranks_end; returns the failure
 * that has ended one before. NULL: nothing happens. */
SKV_CHECKED skv_status skv_ranks_threads_end(skv_ranks_threads *threads, skv_error *err);

/* Bytes that all ranks of an engine together have sent since it was opened. */
typedef struct skv_ranks_traffic {
    size_t ranks;        /* 1: nothing is sent */
    uint64_t sum_bytes;  /* sums of rows [D] */
    uint64_t head_bytes; /* logits, to rank 0 */
    uint64_t told_bytes; /* commands of rank 0 */
    uint64_t n_sums;
    const char *sums_by; /* "host", "copies" or "nccl" */
} skv_ranks_traffic;

/** Counted by rank 0. */
SKV_API skv_ranks_traffic skv_engine_traffic(const skv_engine *engine);

SKV_END

#endif
