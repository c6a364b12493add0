/*
 * A look at one row of logits: its most likely tokens, its sum of exponentials, a token drawn from
 * it. Nothing is sorted but what is told, and each value of the row is read once or twice:
 *
 *     skv_look_at     the maxima of blocks of 64, from which `top` and `best` find their few blocks
 *     weigh           the weights (kernels.h) of blocks; a draw falls into one of them
 *     spread          where something is cut off: weights added to 2048 buckets by the logit
 *     cut             the bucket in which top_p, or a large top_k, ends; only its logits, some
 *                     hundreds, are looked at one by one. The draw falls into a bucket
 *
 * Sums are whole numbers, so cuts are exact and the token drawn is a function of the row, the
 * options and the number drawn: not of the level of the kernels, nor of what runs beside.
 *
 * A look is scratch for one thread at a time. It takes 56 KiB, and 12 bytes for each 64 logits.
 * With a team it weighs a row on several threads, with the same results.
 */
#ifndef SKV_CPU_LOGIT_LOOK_H
#define SKV_CPU_LOGIT_LOOK_H

#include "backend/backend.h"
#include "base/pool.h"
#include "kernels/kernels.h"

/* Threads that share the work of a row. */
typedef struct skv_look_team {
    skv_pool *pool; /* borrowed */
    size_t n;       /* parts of a row, at least 1 */
    uint64_t *sums; /* borrowed, [n - 1][SKV_LOGIT_BUCKETS] */
} skv_look_team;

typedef struct skv_look {
    skv_logit_kernels kernels;
    skv_logit_row row;     /* borrowed x */
    size_t best;           /* the first of the largest */
    float max;             /* its logit */
    float *maxima;         /* [blocks] */
    skv_logit_scale scale; /* of `total`, and of the sums that it is of; factor < 0: nothing */
    uint64_t *block_sums;  /* [blocks], of the values that may be drawn of each of them */
    skv_candidate last;    /* the last that may be drawn: smaller logits, and equal ones with larger
                            * ids, may not */
    uint64_t n_tied;       /* logits equal to its own that may not */
    uint64_t *sums;        /* [2][SKV_LOGIT_BUCKETS]: of the row, and of one of its buckets */
    uint64_t total;        /* the weights of the values that may be drawn */
    uint32_t *ids;         /* of a bucket */
    uint64_t *weights;     /* theirs */
    skv_look_team team;
    void *memory; /* owned, where all of it lies; NULL: it is lent */
} skv_look;

/** Bytes of a look at rows of up to `vocab` logits. */
size_t skv_look_bytes(size_t vocab);
/** A look in this memory, which has as many bytes and is aligned for any type. */
void skv_look_lay_out(skv_look *look, size_t vocab, const skv_logit_kernels *kernels,
                      unsigned char *memory);

SKV_MUST_CHECK skv_status skv_look_init(skv_look *look, size_t vocab, skv_cpu_level level,
                                        skv_error *err);
void skv_look_release(skv_look *look);

/** Looks at x [vocab], which is borrowed and must not change as long as it is asked about. */
void skv_look_at(skv_look *look, const float *x);
/** The same for rows of n logits, at most the look's own number, when `maxima` holds theirs
 * already. */
void skv_look_at_blocks(skv_look *look, const float *x, size_t n);
/** The n (at most SKV_PICK_MAX) largest logits, equal ones by id; returns how many there are.
 */
size_t skv_look_top(const skv_look *look, size_t n, skv_candidate *top);
/** log(sum of exp(x)): the logarithm of a token's probability is its logit minus this. */
double skv_look_norm(skv_look *look);
/** A token, by u in [0, 1) and the options' temperature > 0, top_k, min_p and top_p: top_k and
 * min_p leave tokens, and top_p the fewest of those that have this share of their probability.
 * Where no logit is finite, the best. */
int32_t skv_look_draw(skv_look *look, const skv_sampling *sampling, double u);

/** A logit after the penalties for its token. */
float skv_look_penalised(const skv_sampling *sampling, const skv_penalty *penalty, float logit);

#endif
