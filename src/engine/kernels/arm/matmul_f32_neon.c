/*
 * The f32 matrix product with NEON: a tile of up to 6 rows by 16 columns stays in 24
 * accumulators. Panel [K][16] floats, block [K][m] floats.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"

enum { NR = SKV_NR128, MR = SKV_MR128, KC = SKV_KC128 };

static size_t w_bytes(size_t K)
{
    return K * NR * sizeof(float);
}

static size_t x_bytes(size_t m, size_t K)
{
    return K * m * sizeof(float);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    float *out = panel;
    for (size_t k = 0; k < K; k++, out += NR) {
        for (size_t j = 0; j < NR; j++) out[j] = j < n ? w[j * ldw + k] : 0.0f;
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    float *out = block;
    for (size_t k = 0; k < K; k++, out += m) {
        for (size_t i = 0; i < m; i++) out[i] = x[i * ldx + k];
    }
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile128 t, const float *x,
                                                         const float *w, const size_t m)
{
    float32x4_t sum[MR][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) sum[i][j] = vdupq_n_f32(0.0f);
    }
    for (size_t k = 0; k < t.n_k; k++, x += m, w += NR) {
        float32x4_t w0 = vld1q_f32(w), w1 = vld1q_f32(w + 4);
        float32x4_t w2 = vld1q_f32(w + 8), w3 = vld1q_f32(w + 12);
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
#define W float
#define W_AT (k0 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_f32_neon = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};
