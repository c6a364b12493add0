/* Vectors of four floats, named as rows_level.inc, kv_level.inc and scan_level.inc name them. For
 * the NEON sources only. */
#ifndef SKV_KERNELS_ARM_LANES_NEON_H
#define SKV_KERNELS_ARM_LANES_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <string.h>

#include "kernels/arm/math_neon.h"

/* x[i .. n), with minus infinity beyond. */
static inline float32x4_t skv_last4_neon(const float *x, size_t i, size_t n)
{
    float part[4] = {-HUGE_VALF, -HUGE_VALF, -HUGE_VALF, -HUGE_VALF};
    memcpy(part, x + i, (n - i < 4 ? n - i : 4) * sizeof *x);
    return vld1q_f32(part);
}

#define KERNEL(name) name##_neon
#define VEC float32x4_t
#define LANES 4
#define LOAD(p) vld1q_f32(p)
#define STORE(p, v) vst1q_f32(p, v)
#define LOAD_PART(x, i, n) skv_load4_neon(x, i, n)
#define STORE_PART(y, i, n, v) skv_store4_neon(y, i, n, v)
#define LOAD_LAST(x, i, n) skv_last4_neon(x, i, n)
#define LOAD_BF16(p) vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))
#define STORE_BF16(p, v) vst1_u16(p, skv_to_bf16_neon(v))
#define ALL(f) vdupq_n_f32(f)
#define ZERO vdupq_n_f32(0.0f)
#define ADD(a, b) vaddq_f32(a, b)
#define SUB(a, b) vsubq_f32(a, b)
#define MUL(a, b) vmulq_f32(a, b)
#define DIV(a, b) vdivq_f32(a, b)
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define FMS(a, b, c) vnegq_f32(vfmsq_f32(c, a, b))
#define FNMA(a, b, c) vfmsq_f32(c, a, b)
#define MAX(x, most) vmaxnmq_f32(x, most)
#define ABS(x) vabsq_f32(x)
#define EXP(x) skv_exp_neon(x)
#define TANH(x) skv_tanh_neon(x)
#define SUM(x) vaddvq_f32(x)
#define LARGEST(x) vmaxvq_f32(x)
#define ANY_EQUAL(a, b) (vmaxvq_u32(vceqq_f32(a, b)) != 0)

#endif
