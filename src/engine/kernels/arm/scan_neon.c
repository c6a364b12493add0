/* Linear attention for NEON: see scan_level.inc. */
#include <arm_neon.h>

#include "kernels/arm/math_neon.h"

#define VEC float32x4_t
#define LANES 4
#define LOAD(p) vld1q_f32(p)
#define STORE(p, v) vst1q_f32(p, v)
#define LOAD_PART(x, i, n) skv_load4_neon(x, i, n)
#define STORE_PART(y, i, n, v) skv_store4_neon(y, i, n, v)
#define ALL(f) vdupq_n_f32(f)
#define ZERO vdupq_n_f32(0.0f)
#define ADD(a, b) vaddq_f32(a, b)
#define MUL(a, b) vmulq_f32(a, b)
#define DIV(a, b) vdivq_f32(a, b)
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define FNMA(a, b, c) vfmsq_f32(c, a, b)
#define EXP(x) skv_exp_neon(x)
#define TILE 4
#define PANELS 2
#define SCAN_TABLE skv_scan_neon
#include "kernels/scan_level.inc"
