/*
 * The f32 matrix product with AVX2 and FMA: a tile of up to 6 rows by 16 columns in 12
 * accumulators. Panel [K][16] floats, block [K][m] floats.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

enum { NR = SKV_NR256, MR = SKV_MR256, KC = SKV_KC256 };

#include "kernels/x86/matmul_f32_pack.inc"

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile256 t, const float *x,
                                                         const float *w, const size_t m)
{
    __m256 sum[MR][2];
    for (size_t i = 0; i < m; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (size_t u = 0; u < t.n_units; u++, x += m, w += NR) {
        __m256 w0 = _mm256_loadu_ps(w), w1 = _mm256_loadu_ps(w + 8);
        for (size_t i = 0; i < m; i++) {
            __m256 xi = _mm256_set1_ps(x[i]);
            sum[i][0] = _mm256_fmadd_ps(xi, w0, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(xi, w1, sum[i][1]);
        }
    }
    for (size_t i = 0; i < m; i++) skv_tile256_store(t, i, sum[i]);
}

#define UNIT_K 1
#define TILE skv_tile256
#define X float
#define X_AT (k0 * m)
#define W float
#define W_AT (k0 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_f32_avx2 = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};
