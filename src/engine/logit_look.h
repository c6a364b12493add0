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
 */
#ifndef SKV_ENGINE_LOGIT_LOOK_H
#define SKV_ENGINE_LOGIT_LOOK_H

#include "base/fail.h"
#include "kernels/kernels.h"
#include "skv/skv.h"

enum { SKV_LOOK_TOP_MAX = 256 };

typedef struct skv_candidate {
    int32_t id;
    float logit;
} skv_candidate;

typedef struct skv_look {
    skv_logit_kernels kernels;
    skv_logit_row row;     /* borrowed x */
    size_t best;           /* the first of the largest */
    float max;             /* its logit */
    float *maxima;         /* owned */
    skv_logit_scale scale; /* of `total`, and of the sums that it is of; factor < 0: nothing */
    uint64_t *block_sums;  /* owned, of what may be drawn of each block */
    skv_candidate last;    /* the last that may be drawn: smaller logits, and equal ones with larger
                            * ids, may not */
    uint64_t n_tied;       /* logits equal to its own that may not */
    uint64_t *sums;    /* owned, [2][SKV_LOGIT_BUCKETS]: of the row, and of one of its buckets */
    uint64_t total;    /* the weights of what may be drawn */
    uint32_t *ids;     /* owned, of a bucket */
    uint64_t *weights; /* owned, theirs */
} skv_look;

SKV_MUST_CHECK skv_status skv_look_init(skv_look *look, size_t vocab, skv_cpu_level level,
                                        skv_error *err);
void skv_look_release(skv_look *look);

/** Looks at x [vocab], which is borrowed and must not change as long as it is asked about. */
void skv_look_at(skv_look *look, const float *x);
/** The n (at most SKV_LOOK_TOP_MAX) largest logits, equal ones by id; returns how many there are.
 */
size_t skv_look_top(const skv_look *look, size_t n, skv_candidate *top);
/** log(sum of exp(x)): the logarithm of a token's probability is its logit minus this. */
double skv_look_norm(skv_look *look);
/** A token, by u in [0, 1) and the options' temperature > 0, top_k, min_p and top_p: top_k and
 * min_p leave tokens, and top_p the fewest of those that have this share of their probability.
 * Where no logit is finite, the best. */
int32_t skv_look_draw(skv_look *look, const skv_sampling *sampling, double u);

/** Whether a row of logits [n] gives its best one a probability of `sure` or more. */
bool skv_logits_are_sure(const float *logits, size_t n, size_t best, double sure);

#endif
