/*
 * Rows of logits: one constant table for each instruction set, the weight and the bucket of a
 * single logit, and the functions that put a level's table into the kernel table.
 */
#ifndef SKV_KERNELS_LOGITS_H
#define SKV_KERNELS_LOGITS_H

#include <string.h>

#include "base/size.h"
#include "kernels/kernels.h"

/*
 * The weight of one logit, the specification:
 *
 *     t = (x - max) * factor, at least SKV_LOGIT_LOWEST;  n = t to the nearest whole number
 *     2^n SKV_LOGIT_ONE (1 + c1 f + .. + c9 f^9) with f = t - n, to the nearest whole number
 *
 * in double, without fused multiply-adds. Sums with a large constant do both roundings. The
 * polynomial interpolates 2^f within 1e-13; its terms are added by pairs and pairs of pairs, so
 * that a sum waits for few others.
 */
uint64_t skv_logit_weight(const skv_logit_scale *scale, float x);
/* The bucket of one logit: it never falls as x does. */
uint32_t skv_logit_bucket(const skv_logit_scale *scale, float x);

#define SKV_LOGIT_LOWEST (-64.0)
#define SKV_LOGIT_ROUND 0x1.8p52 /* x + this - this: to the nearest whole number, x of any sign */
#define SKV_LOGIT_WHOLE 0x1p52   /* the low bits of x + this are x as a whole number, x >= 0 */
#define SKV_LOGIT_POWER_BITS 52  /* place of the exponent */
/* SKV_LOGIT_ONE times 1, c1 .. c9. */
#define SKV_LOGIT_C0 0x1p42
#define SKV_LOGIT_C1 0x1.62e42fefa39efp+41
#define SKV_LOGIT_C2 0x1.ebfbdff823cedp+39
#define SKV_LOGIT_C3 0x1.c6b08d7047e52p+37
#define SKV_LOGIT_C4 0x1.3b2ab7181b755p+35
#define SKV_LOGIT_C5 0x1.5d87fe86fe88ep+32
#define SKV_LOGIT_C6 0x1.4308ac85aa947p+29
#define SKV_LOGIT_C7 0x1.ffcb9515a8016p+25
#define SKV_LOGIT_C8 0x1.63d136366db24p+22
#define SKV_LOGIT_C9 0x1.b63880a30e9ffp+18

/* Block b of x [n]; a short one is copied to `whole` and filled up. */
static inline const float *skv_logit_block(const float *x, size_t n, size_t b, float fill,
                                           float whole[SKV_LOGIT_BLOCK])
{
    const size_t first = b * SKV_LOGIT_BLOCK, rest = n - first;
    if (rest >= SKV_LOGIT_BLOCK) return x + first;
    memcpy(whole, x + first, rest * sizeof *whole);
    for (size_t i = rest; i < SKV_LOGIT_BLOCK; i++) whole[i] = fill;
    return whole;
}

static inline size_t skv_logit_blocks(size_t n)
{
    return skv_ceil_div(n, SKV_LOGIT_BLOCK);
}

/* The specification, in every build. */
extern const skv_logit_kernels skv_logits_ref;
/* x86-64 builds only. AArch64 has the specification. */
extern const skv_logit_kernels skv_logits_avx2, skv_logits_avx512;

void skv_logits_init_ref(skv_kernels *k);
/* The caller has checked the level's own feature. */
void skv_logits_init_avx2(skv_kernels *k);
void skv_logits_init_avx512(skv_kernels *k);

#endif
