/*
 * What rounding to 4 bits tries at every level. The files that use it are compiled without fused
 * multiply-adds, and add up errors in eight sums that are joined in pairs of neighbours, so that
 * every level chooses the same scales.
 */
#ifndef SKV_KERNELS_ROUND_INT4_H
#define SKV_KERNELS_ROUND_INT4_H

enum {
    SKV_ROUND_TRIES = 9, /* scales that are tried for a group */
    SKV_ROUND_SUMS = 8
};

/** What level the element of largest magnitude gets with scale t. The first is beyond -8, where
 * that element has an error, and the rest may have less. */
static inline float skv_round_level(int t)
{
    return -8.5F + 0.25F * (float)t;
}

#endif
