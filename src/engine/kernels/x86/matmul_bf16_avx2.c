/*
 * The products with bfloat16 weights, with AVX2: pairs of weights are widened to f32 in registers,
 * once for the up to 6 rows of the tile; bf16 rounds rows when they are packed, wide does not, and
 * both store them as f32.
 * Panel [ceil(K / 2)][16][2] bfloat16, block [2 * ceil(K / 2)][m] floats.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

enum { NR = SKV_NR256, MR = SKV_MR256, KC = SKV_KC256 };

#include "kernels/x86/matmul_bf16_pack.inc"

/* sum + x * w. In assembly, because with the intrinsic gcc 12 spills accumulators, and each waits
 * for memory in between. */
static inline __m256 add_product(__m256 sum, __m256 x, __m256i w)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(w));
    return sum;
}

/* One k of the tile. */
static inline __attribute__((always_inline)) void
multiply(__m256 sum[MR][2], __m256i w0, __m256i w1, const float *x, const size_t m)
{
    for (size_t i = 0; i < m; i++) {
        __m256 xi = _mm256_set1_ps(x[i]);
        sum[i][0] = add_product(sum[i][0], xi, w0);
        sum[i][1] = add_product(sum[i][1], xi, w1);
    }
}

static inline __m256i load_pairs(const uint32_t *w)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)w);
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile256 t, const float *x,
                                                         const uint32_t *w, const size_t m)
{
    const __m256i high = _mm256_set1_epi32(-65536);
    __m256 sum[MR][2];
    for (size_t i = 0; i < m; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (size_t u = 0; u < t.n_units; u++, x += 2 * m, w += NR) {
        __m256i w0 = load_pairs(w), w1 = load_pairs(w + 8);
        multiply(sum, _mm256_slli_epi32(w0, 16), _mm256_slli_epi32(w1, 16), x, m);
        w0 = _mm256_and_si256(load_pairs(w), high);
        w1 = _mm256_and_si256(load_pairs(w + 8), high);
        multiply(sum, w0, w1, x + m, m);
    }
    for (size_t i = 0; i < m; i++) skv_tile256_store(t, i, sum[i]);
}

#define UNIT_K 2
#define TILE skv_tile256
#define X float
#define X_AT (k0 * m)
#define W uint32_t
#define W_AT (k0 / 2 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_wide_avx2 = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x_wide,
};

const skv_matmul skv_matmul_bf16_avx2 = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};
