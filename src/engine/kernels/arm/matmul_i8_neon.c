/*
 * The int8 matrix product with NEON as every AArch64 has it: products of eight codes as int16,
 * added in pairs onto int32. After each group along K the accumulators are scaled and
 * added to f32 sums. Layouts: matmul_pack_neon.h.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_pack_neon.h"
#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"

enum {
    NR = SKV_NR128,
    KC = SKV_KC128,
    MR = 3
}; /* 3 * 8 accumulators leave 8 registers for W, X and products */

/* One group of n_units. Inlined once for every constant m, so that the accumulators are
 * registers. sum is [m][16]. */
static inline __attribute__((always_inline)) void
group_m(float *sum, const unsigned char *x, const unsigned char *w, size_t n_units, const size_t m)
{
    const float *x_scales = (const float *)(const void *)x;
    const int32_t *x_units = (const int32_t *)(const void *)x + m;
    const uint16_t *w_scales = (const uint16_t *)(const void *)w;
    const int8_t *w_units = (const int8_t *)(w_scales + NR);
    int32x4_t dot[MR][8]; /* two lanes to a column */
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 8; j++) dot[i][j] = vdupq_n_s32(0);
    }
    for (size_t u = 0; u < n_units; u++, x_units += m, w_units += 4 * NR) {
        for (size_t i = 0; i < m; i++) {
            int8x8_t xi = vreinterpret_s8_s32(vdup_n_s32(x_units[i]));
            for (size_t j = 0; j < 8; j++) {
                int16x8_t products = vmull_s8(vld1_s8(w_units + 8 * j), xi);
                dot[i][j] = vpadalq_s16(dot[i][j], products);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++, sum += 4) {
            float32x4_t v = vcvtq_f32_s32(vpaddq_s32(dot[i][2 * j], dot[i][2 * j + 1]));
            float32x4_t scaled = vmulq_f32(v, skv_load_bf16_neon(w_scales + 4 * j));
            vst1q_f32(sum, vfmaq_n_f32(vld1q_f32(sum), scaled, x_scales[i]));
        }
    }
}

#define UNIT_K 4
#define THREE_ROWS
#include "kernels/arm/matmul_i8_level.inc"

const skv_matmul skv_matmul_i8_neon = {
    MATMUL_TILE,
    .w_bytes = skv_pack_w_i8_bytes_neon,
    .x_bytes = skv_pack_x_i8_bytes_neon,
    .pack_w = skv_pack_w_i8_neon,
    .pack_x = skv_pack_x_i8_neon,
};
