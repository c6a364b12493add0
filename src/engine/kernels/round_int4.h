/*
 * The search that rounds floats to 4 bits: the rules that its implementations
 * (ref/round_int4_ref.c, x86/round_int4_avx2.c) must share.
 *
 * A group of 32 floats gets one scale and codes for the levels -8 to 7. Nine scales are tried. The
 * first maps the element of largest magnitude to -8.5, the last to -6.5; codes are rounded, and the
 * scale with the least squared error over the group is kept, the first of equals.
 *
 * A model must not depend on the processor that opened it, so all implementations choose the same
 * scales. Errors are sums of floats, so this takes two rules: the files are compiled without fused
 * multiply-adds, and element k is added to sum k % 8, after which sums 2j and 2j + 1 are added
 * until one is left.
 */
#ifndef SKV_KERNELS_ROUND_INT4_H
#define SKV_KERNELS_ROUND_INT4_H

enum {
    SKV_ROUND_TRIES = 9, /* scales that are tried for a group */
    SKV_ROUND_SUMS = 8
};

/** Where scale t of the nine puts the element of largest magnitude. Beyond -8 this element is
 * clamped to -8, which costs it an error, but the smaller steps may gain the others more. */
static inline float skv_round_level(int t)
{
    return -8.5F + 0.25F * (float)t;
}

#endif
