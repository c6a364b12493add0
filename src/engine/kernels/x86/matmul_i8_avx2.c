/*
 * The int8 matrix product with AVX2, which multiplies unsigned with signed bytes and adds pairs
 * with saturation: |x| times the weight with the sign of x is at most 2 * 127 * 127 and never
 * saturates. A tile has 4 rows, since a product needs three registers beside its accumulator.
 *
 * Panel: per group [16] bfloat16 scales, [group / 4][16][4] codes.
 * Block: per group [m] f32 scales, [m] int32 that are not used here, [group / 4][m][4] codes.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

enum { MR = 4 };

static size_t w_bytes(size_t K)
{
    return skv_pack_w_i8_bytes(SKV_NR256, K);
}

static size_t x_bytes(size_t m, size_t K)
{
    return skv_pack_x_i8_bytes(m, K);
}

static void pack_w(void *panel, const float *w, size_t ldw, size_t n, size_t K)
{
    skv_pack_w_i8_avx2(panel, (skv_pack_rows){w, ldw, n, K}, SKV_NR256, 0);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_i8_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

/* dot += four signed bytes of w times four signed bytes of x in every lane; ax is |x|. */
static inline __m256i dot4(__m256i dot, __m256i w, __m256i x, __m256i ax)
{
    __m256i pairs = _mm256_maddubs_epi16(ax, _mm256_sign_epi8(w, x));
    return _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline __m256 load_scales(const uint16_t *scales)
{
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)scales);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* sum[8] += scales * dot. */
static inline void add_group(float *sum, __m256i dot, __m256 w_scales, float x_scale)
{
    __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), w_scales);
    _mm256_store_ps(sum, _mm256_fmadd_ps(scaled, _mm256_set1_ps(x_scale), _mm256_load_ps(sum)));
}

/* One group of n_units. Inlined once for every constant m, so that the accumulators are
 * registers. sum is [m][16], 32-byte aligned. */
static inline __attribute__((always_inline)) void
group_m(float *sum, const unsigned char *x, const unsigned char *w, size_t n_units, const size_t m)
{
    const float *x_scales = (const float *)(const void *)x;
    const int32_t *x_units = (const int32_t *)(const void *)x + 2 * m;
    const uint16_t *scales = (const uint16_t *)(const void *)w;
    const __m256i *w_units = (const __m256i *)(const void *)(scales + SKV_NR256);
    __m256i dot[MR][2];
    for (size_t i = 0; i < m; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
    for (size_t u = 0; u < n_units; u++, x_units += m, w_units += 2) {
        __m256i w0 = _mm256_loadu_si256(w_units), w1 = _mm256_loadu_si256(w_units + 1);
        for (size_t i = 0; i < m; i++) {
            __m256i xi = _mm256_set1_epi32(x_units[i]), ax = _mm256_abs_epi8(xi);
            dot[i][0] = dot4(dot[i][0], w0, xi, ax);
            dot[i][1] = dot4(dot[i][1], w1, xi, ax);
        }
    }
    __m256 scales0 = load_scales(scales), scales1 = load_scales(scales + 8);
    for (size_t i = 0; i < m; i++, sum += SKV_NR256) {
        add_group(sum, dot[i][0], scales0, x_scales[i]);
        add_group(sum + 8, dot[i][1], scales1, x_scales[i]);
    }
}

static inline __attribute__((always_inline)) void
tile_m(skv_tile256 t, const unsigned char *x, const unsigned char *w, size_t length, const size_t m)
{
    _Alignas(32) float sum[MR * SKV_NR256];
    for (size_t i = 0; i < m * SKV_NR256; i += 8) _mm256_store_ps(sum + i, _mm256_setzero_ps());
    for (size_t left = t.n_units; left;) {
        size_t n = skv_min_size(left, length / SKV_UNIT);
        group_m(sum, x, w, n, m);
        x += skv_pack_x_i8_group(m, length);
        w += skv_pack_w_i8_group(SKV_NR256, length);
        left -= n;
    }
    for (size_t i = 0; i < m; i++) {
        const float *from = sum + i * SKV_NR256;
        __m256 row[2] = {_mm256_load_ps(from), _mm256_load_ps(from + 8)};
        skv_tile256_store(t, i, row);
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, bool add)
{
    size_t length = skv_i8_group(K), i_group = k0 / length;
    const unsigned char *x =
        (const unsigned char *)block + i_group * skv_pack_x_i8_group(m, length);
    const unsigned char *w =
        (const unsigned char *)panel + i_group * skv_pack_w_i8_group(SKV_NR256, length);
    skv_tile256 t = {c, ldc, skv_ceil_div(k1 - k0, 4), add};
    switch (m) {
    case 1: tile_m(t, x, w, length, 1); break;
    case 2: tile_m(t, x, w, length, 2); break;
    case 3: tile_m(t, x, w, length, 3); break;
    default: tile_m(t, x, w, length, 4); break;
    }
}

const skv_matmul skv_matmul_i8_avx2 = {
    .nr = SKV_NR256,
    .mr = MR,
    .kc = SKV_KC256,
    .w_bytes = w_bytes,
    .x_bytes = x_bytes,
    .pack_w = pack_w,
    .pack_x = pack_x,
    .tile = tile,
};
