/*
 * Attention with AArch64 NEON: f32 tiles of 6 x 16 held in 24 registers. Pages of 16 and 8 bits
 * are widened when they are packed.
 */
#include "kernels/arm/attention_neon.h"

#include <arm_neon.h>
#include <math.h>

#include "kernels/arm/math_neon.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, BLOCK_VECTORS = 4, FEW_VECTORS = 16 };

typedef float32x4_t vec;

#include "kernels/arm/vec_neon.inc"

INLINE vec vec_max(vec x, vec y)
{
    return vmaxq_f32(x, y);
}

INLINE float vec_first(vec x)
{
    return vgetq_lane_f32(x, 0);
}

INLINE float vec_most(vec x)
{
    return vmaxvq_f32(x);
}

INLINE bool vec_any_above(vec x, float limit)
{
    return vmaxvq_f32(x) > limit;
}

INLINE vec vec_exp2(vec x)
{
    return skv_exp2_neon(x);
}

INLINE vec vec_tanh(vec x)
{
    return skv_tanh_neon(x);
}

INLINE vec vec_see(vec x, uint32_t bits)
{
    static const uint32_t lane[LANES] = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), vld1q_u32(lane)), x, vdupq_n_f32(-HUGE_VALF));
}

/* Heads are multiples of four. */
INLINE vec vec_load_kv(const unsigned char *row, skv_kv_type type, size_t d, size_t n)
{
    (void)n;
    return skv_kv4_neon(row, type, d);
}

INLINE void vec_transpose(vec x[LANES])
{
    skv_transpose4_neon(x);
}

INLINE vec vec_sums(const vec x[LANES])
{
    return vpaddq_f32(vpaddq_f32(x[0], x[1]), vpaddq_f32(x[2], x[3]));
}

#include "kernels/attention_f32.inc"
#include "kernels/attention_few_f32.inc"
#define FEW_SCORES few_scores
#define FEW_VALUES few_values
#include "kernels/attention_pack.inc"
#define TILES static const skv_attention_tiles tiles
#include "kernels/attention_level.inc"

static const skv_attention_ways ways = {
    .f32 = &tiles,
    .narrow = &tiles,
};
#include "kernels/attention_run.inc"

const skv_attention_kernels skv_attention_kernels_neon =
    ATTENTION_KERNELS(skv_kv_store_neon, skv_kv_load_neon);
