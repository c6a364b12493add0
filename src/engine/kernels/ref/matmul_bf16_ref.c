/*
 * The matrix products with bfloat16 weights, plainly: bf16 rounds the rows to bfloat16 too, wide
 * leaves them f32. Sums are f32.
 *
 * Panel  [K][NR] bfloat16: entry k, j is w[j, k].
 * Block  [K][m] bfloat16 (bf16) or floats (wide): entry k, i is x[i, k].
 */
#include "kernels/bf16.h"
#include "kernels/matmul.h"
#include "kernels/ref/matmul_ref.h"

static size_t w_bytes(size_t K)
{
    return K * NR * sizeof(uint16_t);
}

static size_t x_bytes(size_t m, size_t K)
{
    return K * m * sizeof(uint16_t);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    uint16_t *out = panel;
    for (size_t k = 0; k < K; k++) {
        for (size_t j = 0; j < NR; j++) {
            out[k * NR + j] = j < n ? skv_f32_to_bf16(w[j * ldw + k]) : 0;
        }
    }
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    uint16_t *out = block;
    for (size_t k = 0; k < K; k++) {
        for (size_t i = 0; i < m; i++) out[k * m + i] = skv_f32_to_bf16(x[i * ldx + k]);
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    const uint16_t *x = block;
    const uint16_t *w = panel;
    (void)K;
    for (size_t i = 0; i < m; i++) {
        float sum[NR] = {0};
        for (size_t k = k0; k < k1; k++) {
            float xk = skv_bf16_to_f32(x[k * m + i]);
            for (size_t j = 0; j < NR; j++) sum[j] += xk * skv_bf16_to_f32(w[k * NR + j]);
        }
        for (size_t j = 0; j < NR; j++) c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

static void tile_wide(float *c, size_t ldc, const void *block, const void *panel, size_t m,
                      size_t K, size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    const float *x = block;
    const uint16_t *w = panel;
    (void)K;
    for (size_t i = 0; i < m; i++) {
        float sum[NR] = {0};
        for (size_t k = k0; k < k1; k++) {
            for (size_t j = 0; j < NR; j++) sum[j] += x[k * m + i] * skv_bf16_to_f32(w[k * NR + j]);
        }
        for (size_t j = 0; j < NR; j++) c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

const skv_matmul skv_matmul_wide_ref = {
    SKV_REF_TILE,     .w_bytes = w_bytes,       .x_bytes = skv_ref_x_bytes,
    .pack_w = pack_w, .pack_x = skv_ref_pack_x, .tile = tile_wide,
};

const skv_matmul skv_matmul_bf16_ref = {
    SKV_REF_TILE,     .w_bytes = w_bytes, .x_bytes = x_bytes,
    .pack_w = pack_w, .pack_x = pack_x,   .tile = tile,
};
