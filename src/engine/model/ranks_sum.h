/*
 * A model in parts: the part that each rank holds, and sums over all of them (tensor
 * parallel, skv/ranks.h).
 *
 *     q|k|v, gate|up, stack   output rows: heads, KV heads and FFN columns [rank F / n, ..)
 *     o, down                 input columns, the same ones; their results are parts of a sum
 *     embedding, head         ids [rank part, ..) of the vocabulary
 *     norms, router           whole
 *
 * A rank's engine sees a configuration with 1/n of the heads and of the FFN width, so plans, caches
 * and the workspace need no more. All ranks have the same x at every boundary, to the bit:
 * decisions made from x are the same on all.
 *
 * A sum cannot fail in the middle of a layer: the first failure is kept, and the step asks for it
 * between layers.
 */
#ifndef SKV_MODEL_RANKS_SUM_H
#define SKV_MODEL_RANKS_SUM_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/team_work.h"
#include "format/config.h"
#include "skv/ranks.h"

typedef struct skv_ranks {
    const skv_team *team; /* borrowed: the program's */
    skv_team counted;     /* the same, by way of functions that count the bytes sent */
    uint64_t *bytes;      /* where they count: a member of `traffic` */
    skv_ranks_traffic traffic;
    float *scratch; /* owned, [scratch_floats], mapped */
    size_t scratch_floats;
    skv_buf out;       /* rank 0: a message on its way */
    bool open;         /* rank 0: the others have the engine */
    skv_status status; /* of the first operation that failed */
    skv_error error;
} skv_ranks;

/* The ids of a rank: [first, first + n), n at most `part`, which is the same for all. */
typedef struct skv_ranks_ids {
    size_t first, n, part;
} skv_ranks_ids;

static inline size_t skv_ranks_size(const skv_ranks *ranks)
{
    return ranks ? ranks->team->size : 1;
}

static inline size_t skv_ranks_rank(const skv_ranks *ranks)
{
    return ranks ? ranks->team->rank : 0;
}

/** True without ranks. */
static inline bool skv_ranks_lead(const skv_ranks *ranks)
{
    return skv_ranks_rank(ranks) == 0;
}

/** *out is NULL for a team of one, or none. */
SKV_MUST_CHECK skv_status skv_ranks_create(const skv_team *team, skv_ranks **out, skv_error *err);
/** Before the first sum: the memory that they take for a model. */
SKV_MUST_CHECK skv_status skv_ranks_reserve(skv_ranks *ranks, size_t vocab, skv_error *err);
void skv_ranks_free(skv_ranks *ranks);
/** Memory beside weights and workspace. */
size_t skv_ranks_bytes(const skv_team *team, size_t vocab);

/** The configuration of one of n ranks on the heap, skv_free'd with its layers by
 * skv_ranks_config_free. SKV_UNSUPPORTED names the size that cannot be divided. */
SKV_MUST_CHECK skv_status skv_ranks_config(const skv_config *whole, size_t n, skv_config **out,
                                           skv_error *err);
void skv_ranks_config_free(skv_config *config);
/** Whole panels of 16 ids each, but for small vocabularies. */
skv_ranks_ids skv_ranks_vocab(size_t vocab, size_t rank, size_t n);

/** x [n] of the host becomes the sum over ranks, the same bits on each. */
void skv_ranks_sum(skv_ranks *ranks, float *x, size_t n);
/** Ranks of a team with one memory meet: `all` [size][n] becomes `mine` [n] of each. Their devices
 * add up n_summed floats by it, which are counted. */
SKV_MUST_CHECK bool skv_ranks_meet(skv_ranks *ranks, const void *mine, void *all, size_t n,
                                   size_t n_summed);
/** Rows of logits, one every ld numbers: those after its own of rank 0, [n_rows, vocab - own], are
 * written, and the parts of the others, [n_rows, part] close together, are sent. */
void skv_ranks_collect(skv_ranks *ranks, float *rows, size_t ld, size_t n_rows, size_t vocab);
/** Bytes from rank 0 to all. */
void skv_ranks_share(skv_ranks *ranks, void *data, size_t n);
/** The first failure of the operations above. */
SKV_MUST_CHECK skv_status skv_ranks_check(const skv_ranks *ranks, skv_error *err);
void skv_ranks_fail(skv_ranks *ranks, skv_status status, const skv_error *error);

#endif
