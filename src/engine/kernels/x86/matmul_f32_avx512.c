/*
 * The f32 matrix product with AVX-512: a tile of up to 6 rows by 64 columns stays in 24
 * accumulators; each k costs four loads of W, six broadcasts of X and 24 multiply-adds.
 * Panel [K][64] floats, block [K][m] floats.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/math_avx512.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

enum { NR = SKV_NR512, MR = SKV_MR512, KC = SKV_KC512 };

#include "kernels/x86/matmul_f32_pack.inc"

static void pack_w_t(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    float *out = panel;
    for (size_t k = 0; k < K; k++, out += NR) {
        for (size_t j = 0; j < NR; j += 16) {
            __mmask16 lanes = j < n ? skv_lanes16(n - j) : 0;
            const float *x = w + k * ldw + (j < n ? j : 0);
            _mm512_storeu_ps(out + j, _mm512_maskz_loadu_ps(lanes, x));
        }
    }
}

static void pack_x_t(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    float *out = block;
    __mmask16 lanes = skv_lanes16(m);
    for (size_t k = 0; k < K; k++, out += m) {
        _mm512_mask_storeu_ps(out, lanes, _mm512_maskz_loadu_ps(lanes, x + k * ldx));
    }
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void tile_m(skv_tile512 t, const float *x,
                                                         const float *w, const size_t m)
{
    __m512 sum[MR][4];
    skv_tile512_fetch(t, m, NR);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) sum[i][j] = _mm512_setzero_ps();
    }
    for (size_t u = 0; u < t.n_units; u++, x += m, w += NR) {
        __m512 w0 = _mm512_loadu_ps(w), w1 = _mm512_loadu_ps(w + 16);
        __m512 w2 = _mm512_loadu_ps(w + 32), w3 = _mm512_loadu_ps(w + 48);
        for (size_t i = 0; i < m; i++) {
            __m512 xi = _mm512_set1_ps(x[i]);
            sum[i][0] = _mm512_fmadd_ps(xi, w0, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(xi, w1, sum[i][1]);
            sum[i][2] = _mm512_fmadd_ps(xi, w2, sum[i][2]);
            sum[i][3] = _mm512_fmadd_ps(xi, w3, sum[i][3]);
        }
    }
    for (size_t i = 0; i < m; i++) skv_tile512_store(t, i, sum[i], NR);
}

#define UNIT_K 1
#define TILE skv_tile512
#define X float
#define X_AT (k0 * m)
#define W float
#define W_AT (k0 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_f32_avx512 = {
    MATMUL_TILE,      .w_bytes = w_bytes,   .x_bytes = x_bytes,   .pack_w = pack_w,
    .pack_x = pack_x, .pack_w_t = pack_w_t, .pack_x_t = pack_x_t,
};
