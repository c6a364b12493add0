/*
 * The products with bfloat16 weights, with NEON: weights are widened to f32 in registers, once for
 * the up to 6 rows of the tile; bf16 rounds rows when they are packed, wide does not, and both
 * store them as f32.
 * Panel [K][16] bfloat16, block [K][m] floats.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/bf16.h"
#include "kernels/matmul.h"

enum { NR = SKV_NR128, MR = SKV_MR128, KC = SKV_KC128 };

static size_t w_bytes(size_t K)
{
    return K * NR * sizeof(uint16_t);
}

static size_t x_bytes(size_t m, size_t K)
{
    return K * m * sizeof(float);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    uint16_t *out = panel;
    for (size_t k = 0; k < K; k++, out += NR) {
        for (size_t j = 0; j < NR; j++) {
            out[j] = j < n ? skv_f32_to_bf16(w[j * ldw + k]) : 0;
        }
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    float *out = block;
    for (size_t k = 0; k < K; k++, out += m) {
        for (size_t i = 0; i < m; i++) out[i] = skv_bf16_to_f32(skv_f32_to_bf16(x[i * ldx + k]));
    }
}

static void pack_x_wide(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    float *out = block;
    for (size_t k = 0; k < K; k++, out += m) {
        for (size_t i = 0; i < m; i++) out[i] = x[i * ldx + k];
    }
}

static inline float32x4_t widen(uint16x4_t x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile128 t, const float *x,
                                                         const uint16_t *w, const size_t m)
{
    float32x4_t sum[MR][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) sum[i][j] = vdupq_n_f32(0.0f);
    }
    for (size_t k = 0; k < t.n_k; k++, x += m, w += NR) {
        uint16x8_t low = vld1q_u16(w), high = vld1q_u16(w + 8);
        float32x4_t w0 = widen(vget_low_u16(low)), w1 = widen(vget_high_u16(low));
        float32x4_t w2 = widen(vget_low_u16(high)), w3 = widen(vget_high_u16(high));
        for (size_t i = 0; i < m; i++) {
            sum[i][0] = vfmaq_n_f32(sum[i][0], w0, x[i]);
            sum[i][1] = vfmaq_n_f32(sum[i][1], w1, x[i]);
            sum[i][2] = vfmaq_n_f32(sum[i][2], w2, x[i]);
            sum[i][3] = vfmaq_n_f32(sum[i][3], w3, x[i]);
        }
    }
    for (size_t i = 0; i < m; i++) skv_tile128_store(t, i, sum[i]);
}

#define UNIT_K 1
#define TILE skv_tile128
#define X float
#define X_AT (k0 * m)
#define W uint16_t
#define W_AT (k0 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_wide_neon = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x_wide,
};

const skv_matmul skv_matmul_bf16_neon = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};
