/*
 * The int8 matrix product with VPDPBUSD, which multiplies unsigned with signed bytes: the weights
 * are stored as code + 128, and an accumulator starts at -128 times the sum of the row's codes,
 * so that it ends at the sum of the products of the codes. After each group along K the
 * int32 accumulators are scaled and added to f32 sums, which wait in the level 1 cache.
 *
 * Panel: per group [64] bfloat16 scales, [group / 4][64][4] bytes.
 * Block: per group [m] f32 scales, [m] int32 starts, [group / 4][m][4] codes.
 *
 * The limit of the instruction, for int4 weights too, is at the end.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

enum { PEAK_CHAINS = 12 };

static size_t w_bytes(size_t K)
{
    return skv_pack_w_i8_bytes(SKV_NR512, K);
}

static size_t x_bytes(size_t m, size_t K)
{
    return skv_pack_x_i8_bytes(m, K);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    skv_pack_w_i8_avx2(panel, (skv_pack_rows){w, ldw, n, K}, SKV_NR512, 0x80);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_i8_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

/* dot += four unsigned bytes of w times four signed bytes of x in every lane. As an instruction
 * of its own the compiler keeps the accumulator in place; with the intrinsic gcc 12 spills. */
static inline __m512i dot4(__m512i dot, __m512i w, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

static inline __m512 load_scales(const uint16_t *scales)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)scales);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* sum[64] += scales * dot. */
static inline __attribute__((always_inline)) void add_group(float *sum, const __m512i dot[4],
                                                            const __m512 w_scales[4], float x_scale)
{
    __m512 xs = _mm512_set1_ps(x_scale);
    for (size_t j = 0; j < 4; j++, sum += 16) {
        __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[j]), w_scales[j]);
        _mm512_store_ps(sum, _mm512_fmadd_ps(scaled, xs, _mm512_load_ps(sum)));
    }
}

/* One group of n_units. Inlined once for every constant m, so that the accumulators are
 * registers. sum is [m][64], 64-byte aligned. */
static inline __attribute__((always_inline)) void
group_m(float *sum, const unsigned char *x, const unsigned char *w, size_t n_units, const size_t m)
{
    const float *x_scales = (const float *)(const void *)x;
    const int32_t *x_starts = (const int32_t *)(const void *)x + m;
    const int32_t *x_units = x_starts + m;
    const uint16_t *scales = (const uint16_t *)(const void *)w;
    const unsigned char *w_units = w + SKV_NR512 * sizeof *scales;
    __m512i dot[SKV_MR512][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) dot[i][j] = _mm512_set1_epi32(x_starts[i]);
    }
    for (size_t u = 0; u < n_units; u++, x_units += m, w_units += 256) {
        __m512i w0 = _mm512_loadu_si512(w_units), w1 = _mm512_loadu_si512(w_units + 64);
        __m512i w2 = _mm512_loadu_si512(w_units + 128), w3 = _mm512_loadu_si512(w_units + 192);
        for (size_t i = 0; i < m; i++) {
            __m512i xi = _mm512_set1_epi32(x_units[i]);
            dot[i][0] = dot4(dot[i][0], w0, xi);
            dot[i][1] = dot4(dot[i][1], w1, xi);
            dot[i][2] = dot4(dot[i][2], w2, xi);
            dot[i][3] = dot4(dot[i][3], w3, xi);
        }
    }
    __m512 w_scales[4];
    for (size_t j = 0; j < 4; j++) w_scales[j] = load_scales(scales + 16 * j);
    for (size_t i = 0; i < m; i++) {
        add_group(sum + i * SKV_NR512, dot[i], w_scales, x_scales[i]);
    }
}

static inline __attribute__((always_inline)) void
tile_m(skv_tile512 t, const unsigned char *x, const unsigned char *w, size_t length, const size_t m)
{
    _Alignas(64) float sum[SKV_MR512 * SKV_NR512];
    skv_tile512_fetch(t, m);
    for (size_t i = 0; i < m * SKV_NR512; i += 16) _mm512_store_ps(sum + i, _mm512_setzero_ps());
    for (size_t left = t.n_units; left;) {
        size_t n = skv_min_size(left, length / SKV_UNIT);
        group_m(sum, x, w, n, m);
        x += skv_pack_x_i8_group(m, length);
        w += skv_pack_w_i8_group(SKV_NR512, length);
        left -= n;
    }
    for (size_t i = 0; i < m; i++) {
        __m512 row[4];
        for (size_t j = 0; j < 4; j++) row[j] = _mm512_load_ps(sum + i * SKV_NR512 + 16 * j);
        skv_tile512_store(t, i, row);
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, bool add)
{
    size_t length = skv_i8_group(K), i_group = k0 / length;
    const unsigned char *x =
        (const unsigned char *)block + i_group * skv_pack_x_i8_group(m, length);
    const unsigned char *w =
        (const unsigned char *)panel + i_group * skv_pack_w_i8_group(SKV_NR512, length);
    skv_tile512 t = {c, ldc, skv_ceil_div(k1 - k0, 4), add};
    switch (m) {
    case 1: tile_m(t, x, w, length, 1); break;
    case 2: tile_m(t, x, w, length, 2); break;
    case 3: tile_m(t, x, w, length, 3); break;
    case 4: tile_m(t, x, w, length, 4); break;
    case 5: tile_m(t, x, w, length, 5); break;
    default: tile_m(t, x, w, length, 6); break;
    }
}

const skv_matmul skv_matmul_i8_avx512vnni = {
    .nr = SKV_NR512,
    .mr = SKV_MR512,
    .kc = SKV_KC512,
    .w_bytes = w_bytes,
    .x_bytes = x_bytes,
    .pack_w = pack_w,
    .pack_x = pack_x,
    .tile = tile,
};

static double run_peak(const void *a, const void *b, size_t n_rounds)
{
    __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b), sum[PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) {
        sum[i] = _mm512_setzero_si512();
        /* Not known for equal, or the compiler might keep one sum for all. */
        __asm__ volatile("" : "+v"(sum[i]));
    }
    for (size_t r = 0; r < n_rounds; r++) {
        for (size_t i = 0; i < PEAK_CHAINS; i++) sum[i] = dot4(sum[i], x, y);
    }
    int32_t sums[16 * PEAK_CHAINS];
    for (size_t i = 0; i < PEAK_CHAINS; i++) _mm512_storeu_si512(sums + 16 * i, sum[i]);
    return skv_peak_total_i32(sums, 16 * PEAK_CHAINS);
}

const skv_peak_loop skv_peak_i8_avx512vnni = {run_peak, 64 * PEAK_CHAINS, 64,
                                              "VPDPBUSD on 512 bits"};
