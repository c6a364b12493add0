/*
 * The f32 matrix product with NEON: a tile of up to 6 rows by 16 columns stays in 24
 * accumulators. Panel [K][16] floats, block [K][m] floats.
 */
#include <arm_neon.h>

#include "kernels/arm/matmul_tile_neon.h"
#include "kernels/matmul.h"

static size_t w_bytes(size_t K)
{
    return K * SKV_NR128 * sizeof(float);
}

static size_t x_bytes(size_t m, size_t K)
{
    return K * m * sizeof(float);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    float *out = panel;
    for (size_t k = 0; k < K; k++, out += SKV_NR128) {
        for (size_t j = 0; j < SKV_NR128; j++) out[j] = j < n ? w[j * ldw + k] : 0.0f;
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
    float32x4_t sum[SKV_MR128][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) sum[i][j] = vdupq_n_f32(0.0f);
    }
    for (size_t k = 0; k < t.n_k; k++, x += m, w += SKV_NR128) {
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

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    const float *x = (const float *)block + k0 * m;
    const float *w = (const float *)panel + k0 * SKV_NR128;
    skv_tile128 t = {c, ldc, k1 - k0, add};
    (void)K;
    switch (m) {
    case 1: tile_m(t, x, w, 1); break;
    case 2: tile_m(t, x, w, 2); break;
    case 3: tile_m(t, x, w, 3); break;
    case 4: tile_m(t, x, w, 4); break;
    case 5: tile_m(t, x, w, 5); break;
    default: tile_m(t, x, w, 6); break;
    }
}

const skv_matmul skv_matmul_f32_neon = {
    .nr = SKV_NR128,
    .mr = SKV_MR128,
    .kc = SKV_KC128,
    .w_bytes = w_bytes,
    .x_bytes = x_bytes,
    .pack_w = pack_w,
    .pack_x = pack_x,
    .tile = tile,
};
