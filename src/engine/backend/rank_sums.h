/*
 * Ranks that hold parts of one model, as a back end sees them: how the host adds up rows over all
 * of them, and how those of one program exchange addresses, by which their devices do it.
 */
#ifndef SKV_BACKEND_RANK_SUMS_H
#define SKV_BACKEND_RANK_SUMS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct skv_backend_ranks {
    size_t rank, n; /* n 0: there are none */
    void *ctx;      /* borrowed until the next `reserve` */
    /* x [n] of the host becomes its sum over ranks, in their order, the same bits on each. */
    void (*sum)(void *ctx, float *x, size_t n);
    /* Waits for all ranks: `all` [ranks][n] becomes `mine` [n] of each one, whose addresses
     * are good for all. Of two meetings a sum has, the first counts its n_summed floats, the other
     * none. False: it has failed, which the step will tell. NULL: ranks share no memory. */
    bool (*meet)(void *ctx, const void *mine, void *all, size_t n, size_t n_summed);
} skv_backend_ranks;

#endif
