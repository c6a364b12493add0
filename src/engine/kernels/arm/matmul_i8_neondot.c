/*
 * The int8 matrix product with SDOT: a tile of up to 6 rows by 16 columns, four codes along K to
 * a step. After each group along K the int32 accumulators are scaled and added to f32
 * sums. Layouts: matmul_pack_neon.h. The limit of the instruction, for int4 weights too, is at the
 * end.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_pack_neon.h"
#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"

enum { NR = SKV_NR128, MR = SKV_MR128, KC = SKV_KC128, PEAK_CHAINS = 16 };

/* One group of n_units. Inlined once for every constant m, so that the accumulators are
 * registers. sum is [m][16]. */
static inline __attribute__((always_inline)) void
group_m(float *sum, const unsigned char *x, const unsigned char *w, size_t n_units, const size_t m)
{
    const float *x_scales = (const float *)(const void *)x;
    const int32_t *x_units = (const int32_t *)(const void *)x + m;
    const uint16_t *w_scales = (const uint16_t *)(const void *)w;
    const int8_t *w_units = (const int8_t *)(w_scales + NR);
    int32x4_t dot[MR][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) dot[i][j] = vdupq_n_s32(0);
    }
    for (size_t u = 0; u < n_units; u++, x_units += m, w_units += 4 * NR) {
        int8x16_t w0 = vld1q_s8(w_units), w1 = vld1q_s8(w_units + 16);
        int8x16_t w2 = vld1q_s8(w_units + 32), w3 = vld1q_s8(w_units + 48);
        for (size_t i = 0; i < m; i++) {
            int8x16_t xi = vreinterpretq_s8_s32(vdupq_n_s32(x_units[i]));
            dot[i][0] = vdotq_s32(dot[i][0], w0, xi);
            dot[i][1] = vdotq_s32(dot[i][1], w1, xi);
            dot[i][2] = vdotq_s32(dot[i][2], w2, xi);
            dot[i][3] = vdotq_s32(dot[i][3], w3, xi);
        }
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++, sum += 4) {
            float32x4_t scaled =
                vmulq_f32(vcvtq_f32_s32(dot[i][j]), skv_load_bf16_neon(w_scales + 4 * j));
            vst1q_f32(sum, vfmaq_n_f32(vld1q_f32(sum), scaled, x_scales[i]));
        }
    }
}

#define UNIT_K 4
#include "kernels/arm/matmul_i8_level.inc"

const skv_matmul skv_matmul_i8_neondot = {
    MATMUL_TILE,
    .w_bytes = skv_pack_w_i8_bytes_neon,
    .x_bytes = skv_pack_x_i8_bytes_neon,
    .pack_w = skv_pack_w_i8_neon,
    .pack_x = skv_pack_x_i8_neon,
};

static double run_peak(const void *a, const void *b, size_t n_rounds)
{
    int8x16_t x = vld1q_s8(a), y = vld1q_s8(b);
    int32x4_t sum[PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) {
        sum[i] = vdupq_n_s32(0);
        /* Not known for equal, or the compiler might keep one sum for all. */
        __asm__ volatile("" : "+w"(sum[i]));
    }
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < PEAK_CHAINS; i++) sum[i] = vdotq_s32(sum[i], x, y);
    }
    int32_t sums[4 * PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) vst1q_s32(sums + 4 * i, sum[i]);
    return skv_peak_total_i32(sums, 4 * PEAK_CHAINS);
}

const skv_peak_loop skv_peak_i8_neondot = {run_peak, 16 * PEAK_CHAINS, 16, "SDOT"};
