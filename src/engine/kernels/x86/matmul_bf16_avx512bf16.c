/*
 * The bf16 matrix product with VDPBF16PS: a tile of up to 6 rows by 64 columns stays in 24
 * accumulators; each pair of k costs four loads of W, six broadcasts of X and 24 dot products.
 * The instruction flushes denormals and rounds each of its two additions.
 * Panel [ceil(K / 2)][64][2], block [ceil(K / 2)][m][2] bfloat16, odd K padded with zeros.
 *
 * The limit of the instruction is at the end.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/x86/math_avx512.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

enum { NR = SKV_NR512, MR = SKV_MR512, KC = SKV_KC512 };
enum { PEAK_CHAINS = 12 };

static size_t w_bytes(size_t K)
{
    return skv_pack_bytes(NR, skv_ceil_div(K, 2));
}

static size_t x_bytes(size_t m, size_t K)
{
    return skv_pack_bytes(m, skv_ceil_div(K, 2)) + SKV_BLOCK_SLACK;
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    skv_pack_w_bf16_avx2(panel, (skv_pack_rows){w, ldw, n, K}, NR);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_bf16_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

/* Sixteen columns of rows k and k + 1 as units; a row beyond K is zero. */
static inline __m512i pair_rows(const float *x, size_t ld, bool both, __mmask16 lanes)
{
    __m256i low = skv_to_bf16_avx512(_mm512_maskz_loadu_ps(lanes, x));
    if (!both) return _mm512_cvtepu16_epi32(low);
    __m256i high = skv_to_bf16_avx512(_mm512_maskz_loadu_ps(lanes, x + ld));
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

static void pack_w_t(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    uint32_t *out = panel;
    for (size_t k = 0; k < K; k += 2, out += NR) {
        for (size_t j = 0; j < NR; j += 16) {
            __mmask16 lanes = j < n ? skv_lanes16(n - j) : 0;
            const float *x = w + k * ldw + (j < n ? j : 0);
            _mm512_storeu_si512(out + j, pair_rows(x, ldw, k + 1 < K, lanes));
        }
    }
}

static void pack_x_t(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    uint32_t *out = block;
    __mmask16 lanes = skv_lanes16(m);
    for (size_t k = 0; k < K; k += 2, out += m) {
        _mm512_mask_storeu_epi32(out, lanes, pair_rows(x + k * ldx, ldx, k + 1 < K, lanes));
    }
}

static inline __m512bh load_pairs(const uint32_t *w)
{
    return (__m512bh)_mm512_loadu_si512(w);
}

/* Inlined once for every constant m, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void
tile_m(skv_tile512 t, const uint32_t *x, const uint32_t *w, const size_t m, const size_t n)
{
    __m512 sum[MR][4];
    skv_tile512_fetch(t, m, n);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n / 16; j++) sum[i][j] = _mm512_setzero_ps();
    }
    for (size_t u = 0; u < t.n_units; u++, x += m, w += NR) {
        __m512bh columns[4];
        for (size_t j = 0; j < n / 16; j++) columns[j] = load_pairs(w + 16 * j);
        for (size_t i = 0; i < m; i++) {
            __m512bh xi = (__m512bh)_mm512_set1_epi32((int)x[i]);
            for (size_t j = 0; j < n / 16; j++) {
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], xi, columns[j]);
            }
        }
    }
    for (size_t i = 0; i < m; i++) skv_tile512_store(t, i, sum[i], n);
}

#define UNIT_K 2
#define HALVED
#define TILE skv_tile512
#define X uint32_t
#define X_AT (k0 / 2 * m)
#define W uint32_t
#define W_AT (k0 / 2 * NR)
#include "kernels/matmul_tile.inc"

const skv_matmul skv_matmul_bf16_avx512bf16 = {
    MATMUL_TILE,      .w_bytes = w_bytes,   .x_bytes = x_bytes,   .pack_w = pack_w,
    .pack_x = pack_x, .pack_w_t = pack_w_t, .pack_x_t = pack_x_t,
};

static double run_peak(const void *a, const void *b, size_t n_rounds)
{
    __m512bh x = (__m512bh)_mm512_loadu_ps(a), y = (__m512bh)_mm512_loadu_ps(b);
    __m512 sum[PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) {
        sum[i] = _mm512_setzero_ps();
        /* Not known for equal, or the compiler might keep one sum for all. */
        __asm__ volatile("" : "+v"(sum[i]));
    }
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], x, y);
    }
    float sums[16 * PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) _mm512_storeu_ps(sums + 16 * i, sum[i]);
    return skv_peak_total_f32(sums, 16 * PEAK_CHAINS);
}

const skv_peak_loop skv_peak_bf16_avx512bf16 = {run_peak, 32 * PEAK_CHAINS, 32,
                                                "VDPBF16PS on 512 bits"};
