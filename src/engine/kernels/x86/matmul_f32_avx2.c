/*
 * The f32 matrix product with AVX2 and FMA: a tile of up to 6 rows by 16 columns in 12
 * accumulators. Panel [K][16] floats, block [K][m] floats.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

static size_t w_bytes(size_t K)
{
    return skv_pack_bytes(SKV_NR256, K);
}

static size_t x_bytes(size_t m, size_t K)
{
    return skv_pack_bytes(m, K) + SKV_BLOCK_SLACK;
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    skv_pack_w_f32_avx2(panel, (skv_pack_rows){w, ldw, n, K}, SKV_NR256);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_f32_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile256 t, const float *x,
                                                         const float *w, const size_t m)
{
    __m256 sum[SKV_MR256][2];
    for (size_t i = 0; i < m; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (size_t u = 0; u < t.n_units; u++, x += m, w += SKV_NR256) {
        __m256 w0 = _mm256_loadu_ps(w), w1 = _mm256_loadu_ps(w + 8);
        for (size_t i = 0; i < m; i++) {
            __m256 xi = _mm256_set1_ps(x[i]);
            sum[i][0] = _mm256_fmadd_ps(xi, w0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(xi, w1, sum[i][1]);
        }
    }
    for (size_t i = 0; i < m; i++) skv_tile256_store(t, i, sum[i]);
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, unsigned mode)
{
    const bool add = mode & SKV_TILE_ADD;
    const float *x = (const float *)block + k0 * m;
    const float *w = (const float *)panel + k0 * SKV_NR256;
    skv_tile256 t = {c, ldc, k1 - k0, add};
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

const skv_matmul skv_matmul_f32_avx2 = {
    .nr = SKV_NR256,
    .mr = SKV_MR256,
    .kc = SKV_KC256,
    .w_bytes = w_bytes,
    .x_bytes = x_bytes,
    .pack_w = pack_w,
    .pack_x = pack_x,
    .tile = tile,
};
