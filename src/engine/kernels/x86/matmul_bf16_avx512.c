/*
 * The products with bfloat16 weights, with AVX-512 but without its bfloat16 instructions: pairs of
 * weights are widened to f32 in registers, once for the up to 6 rows of the tile; bf16 rounds rows
 * when they are packed, wide does not, and both store them as f32.
 * Panel [ceil(K / 2)][64][2] bfloat16, block [2 * ceil(K / 2)][m] floats.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

enum { NR = SKV_NR512, MR = SKV_MR512, KC = SKV_KC512 };

#include "kernels/x86/matmul_bf16_pack.inc"

/* One k of the tile: w holds 64 weights as f32. */
static inline __attribute__((always_inline)) void
multiply(__m512 sum[MR][4], const __m512 w[4], const float *x, const size_t m, const size_t n)
{
    for (size_t i = 0; i < m; i++) {
        __m512 xi = _mm512_set1_ps(x[i]);
        for (size_t j = 0; j < n / 16; j++) sum[i][j] = _mm512_fmadd_ps(xi, w[j], sum[i][j]);
    }
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void
tile_m(skv_tile512 t, const float *x, const uint32_t *w, const size_t m, const size_t n)
{
    const __m512i high_half = _mm512_set1_epi32(-65536);
    __m512 sum[MR][4], even[4], odd[4];
    skv_tile512_fetch(t, m, n);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n / 16; j++) sum[i][j] = _mm512_setzero_ps();
    }
    for (size_t u = 0; u < t.n_units; u++, x += 2 * m, w += NR) {
        for (size_t j = 0; j < n / 16; j++) {
            even[j] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(w + 16 * j), 16));
        }
        multiply(sum, even, x, m, n);
        for (size_t j = 0; j < n / 16; j++) {
            __m512i pair = _mm512_loadu_si512(w + 16 * j);
            odd[j] = _mm512_castsi512_ps(_mm512_and_si512(pair, high_half));
        }
        multiply(sum, odd, x + m, m, n);
    }
    for (size_t i = 0; i < m; i++) skv_tile512_store(t, i, sum[i], n);
}

#define UNIT_K 2
#define HALVED
#define TILE skv_tile512
#define X float
#define X_AT (k0 * m)
#define W uint32_t
#define W_AT (k0 / 2 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_wide_avx512 = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x_wide,
};

const skv_matmul skv_matmul_bf16_avx512 = {
    MATMUL_TILE, .w_bytes = w_bytes, .x_bytes = x_bytes, .pack_w = pack_w, .pack_x = pack_x,
};
