/*
 * The int8 matrix product with SMMLA: two rows by two columns and eight codes along K to an
 * instruction, a tile of up to 6 rows by 16 columns. The last row of an odd number is its own
 * partner. After each group along K the int32 accumulators are scaled and added to f32 sums.
 * Layouts: matmul_pack_neon.h. The limit of the instruction is at the end.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_pack_neon.h"
#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"

enum { NR = SKV_NR128, MR = SKV_MR128, KC = SKV_KC128, PEAK_CHAINS = 16 };

/* Row i of four columns, from the dot products of its pair with two columns each. */
static inline int32x4_t row_of(int32x4_t left, int32x4_t right, size_t i)
{
    if (i % 2 == 0) return vcombine_s32(vget_low_s32(left), vget_low_s32(right));
    return vcombine_s32(vget_high_s32(left), vget_high_s32(right));
}

/* One group of n_units. Inlined once for every constant m, so that the accumulators are
 * registers. sum is [m][16]. */
static inline __attribute__((always_inline)) void
group_m(float *sum, const unsigned char *x, const unsigned char *w, size_t n_units, const size_t m)
{
    const float *x_scales = (const float *)(const void *)x;
    const int8_t *x_units = (const int8_t *)(x_scales + m);
    const uint16_t *w_scales = (const uint16_t *)(const void *)w;
    const int8_t *w_units = (const int8_t *)(w_scales + NR);
    int32x4_t dot[MR / 2][8];
    for (size_t p = 0; p < (m + 1) / 2; p++) {
        for (size_t j = 0; j < 8; j++) dot[p][j] = vdupq_n_s32(0);
    }
    for (size_t u = 0; u < n_units; u++, x_units += 8 * m, w_units += 8 * NR) {
        int8x16_t pair[MR / 2];
        for (size_t p = 0; p < (m + 1) / 2; p++) {
            size_t last = skv_min_size(2 * p + 1, m - 1);
            pair[p] = vcombine_s8(vld1_s8(x_units + 16 * p), vld1_s8(x_units + 8 * last));
        }
        for (size_t j = 0; j < 8; j++) {
            int8x16_t columns = vld1q_s8(w_units + 16 * j);
            for (size_t p = 0; p < (m + 1) / 2; p++) {
                dot[p][j] = vmmlaq_s32(dot[p][j], pair[p], columns);
            }
        }
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++, sum += 4) {
            int32x4_t row = row_of(dot[i / 2][2 * j], dot[i / 2][2 * j + 1], i);
            float32x4_t scaled =
                vmulq_f32(vcvtq_f32_s32(row), skv_load_bf16_neon(w_scales + 4 * j));
            vst1q_f32(sum, vfmaq_n_f32(vld1q_f32(sum), scaled, x_scales[i]));
        }
    }
}

#define UNIT_K 8
#include "kernels/arm/matmul_i8_level.inc"

const skv_matmul skv_matmul_i8_neoni8mm = {
    MATMUL_TILE,
    .w_bytes = skv_pack_w_i8_bytes_neoni8mm,
    .x_bytes = skv_pack_x_i8_bytes_neoni8mm,
    .pack_w = skv_pack_w_i8_neoni8mm,
    .pack_x = skv_pack_x_i8_neoni8mm,
};

/* Both rows of each operand are the same eight codes. */
static double run_peak(const void *a, const void *b, size_t n_rounds)
{
    int8x8_t a8 = vld1_s8(a), b8 = vld1_s8(b);
    int8x16_t x = vcombine_s8(a8, a8), y = vcombine_s8(b8, b8);
    int32x4_t sum[PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) {
        sum[i] = vdupq_n_s32(0);
        /* Not known for equal, or the compiler might keep one sum for all. */
        __asm__ volatile("" : "+w"(sum[i]));
    }
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < PEAK_CHAINS; i++) sum[i] = vmmlaq_s32(sum[i], x, y);
    }
    int32_t sums[4 * PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) vst1q_s32(sums + 4 * i, sum[i]);
    return skv_peak_total_i32(sums, 4 * PEAK_CHAINS);
}

const skv_peak_loop skv_peak_i8_neoni8mm = {run_peak, 32 * PEAK_CHAINS, 8, "SMMLA"};
