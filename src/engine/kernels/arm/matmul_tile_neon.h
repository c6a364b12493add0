/* The tile's shape and its store, which the NEON matrix products share. */
#ifndef SKV_KERNELS_ARM_MATMUL_TILE_NEON_H
#define SKV_KERNELS_ARM_MATMUL_TILE_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SKV_NR128 = 16, /* columns of a tile: four registers */
    SKV_MR128 = 6,  /* rows: 6 * 4 accumulators leave 8 registers for W and X */
    SKV_KC128 = 1024
};

static inline float32x4_t skv_widen_neon(uint16x4_t bf16)
{
    return vreinterpretq_f32_u32(vshll_n_u16(bf16, 16));
}

static inline float32x4_t skv_load_bf16_neon(const uint16_t *x)
{
    return skv_widen_neon(vld1_u16(x));
}

typedef struct skv_tile128 {
    float *c;   /* [m, 16] */
    size_t ldc; /* floats between rows */
    size_t n_k; /* steps along K */
    bool add;   /* onto c */
} skv_tile128;

static inline void skv_tile128_store(skv_tile128 t, size_t i, const float32x4_t sum[4])
{
    float *c = t.c + i * t.ldc;
    for (size_t j = 0; j < 4; j++) {
        float32x4_t v = sum[j];
        if (t.add) v = vaddq_f32(v, vld1q_f32(c + 4 * j));
        vst1q_f32(c + 4 * j, v);
    }
}

#endif
