/*
 * The f32 matrix product, plainly.
 *
 * Panel  [K][NR] floats: entry k, j is w[j, k].
 * Block  [K][m] floats: entry k, i is x[i, k].
 */
#include "kernels/matmul.h"
#include "kernels/ref/matmul_ref.h"

static size_t w_bytes(size_t K)
{
    return K * NR * sizeof(float);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    float *out = panel;
    for (size_t k = 0; k < K; k++) {
        for (size_t j = 0; j < NR; j++) out[k * NR + j] = j < n ? w[j * ldw + k] : 0.0f;
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    const float *x = block;
    const float *w = panel;
    (void)K;
    for (size_t i = 0; i < m; i++) {
        float sum[NR] = {0};
        for (size_t k = k0; k < k1; k++) {
            for (size_t j = 0; j < NR; j++) sum[j] += x[k * m + i] * w[k * NR + j];
        }
        for (size_t j = 0; j < NR; j++) c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

const skv_matmul skv_matmul_f32_ref = {
    SKV_REF_TILE,     .w_bytes = w_bytes,       .x_bytes = skv_ref_x_bytes,
    .pack_w = pack_w, .pack_x = skv_ref_pack_x, .tile = tile,
};
