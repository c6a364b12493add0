/*
 * The product with quantised weights with AVX2, layouts of quant_panel.h. VPMADDUBSW multiplies
 * unsigned with signed bytes and adds pairs as 16-bit numbers.
 *
 * Even levels: the nibble is the unsigned byte. 8 pairs of at most 15 * 127 * 2 fit 16 bits, so a
 * whole group is added before it is widened, and the panel's bias is taken back afterwards.
 * Other levels and codes of 8 bits: |w| times x with the sign of w is at most 2 * 128 * 127, which
 * fits, and is widened each time.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

enum { MR = 4, UNIT_BYTES = SKV_NR256 * 4 };

typedef enum code_kind { CODES_EVEN, CODES_TABLE, CODES_BYTES } code_kind;

static size_t x_bytes(size_t m, size_t K)
{
    return skv_quant_x_bytes(m, K);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_q_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

/* 8 floats of 16 bits. */
static inline __m256 load_16(const void *from, bool bf16)
{
    __m128i bits = _mm_loadu_si128((const __m128i *)from);
    if (!bf16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* Scales and minimums of the columns for one part of a group. */
typedef struct part_scales {
    _Alignas(32) float scale[SKV_NR256];
    _Alignas(32) float min[SKV_NR256];
} part_scales;

static void decode_fine(part_scales *s, const skv_quant_header *h, const unsigned char *at,
                        const uint16_t *span)
{
    for (size_t j = 0; j < SKV_NR256; j += 8) {
        __m256i fine = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(at + j)));
        __m256 d = load_16(span + j, h->bf16), min = _mm256_setzero_ps();
        _mm256_store_ps(s->scale + j, _mm256_mul_ps(d, _mm256_cvtepi32_ps(fine)));
        if (h->has_min) {
            __m128i bytes = _mm_loadl_epi64((const void *)(at + SKV_NR256 + j));
            __m256 dmin = load_16(span + SKV_NR256 + j, h->bf16);
            min = _mm256_fnmadd_ps(dmin, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), min);
        }
        _mm256_store_ps(s->min + j, min);
    }
}

static inline void decode_scales(part_scales *s, const skv_quant_header *h, const unsigned char *at,
                                 const uint16_t *span)
{
    const uint16_t *scales = (const uint16_t *)(const void *)at;
    if (h->fine) {
        decode_fine(s, h, at, span);
        return;
    }
    for (size_t j = 0; j < SKV_NR256; j += 8) {
        __m256 min = h->has_min ? load_16(scales + SKV_NR256 + j, h->bf16) : _mm256_setzero_ps();
        _mm256_store_ps(s->scale + j, load_16(scales + j, h->bf16));
        _mm256_store_ps(s->min + j, min);
    }
}

/* Part of a group whose elements share a scale. */
typedef struct part_args {
    const float *x_scales;      /* [m] */
    const int32_t *x_sums;      /* [m] */
    const int32_t *x_units;     /* [n_pairs * 2][m] units of four codes */
    const unsigned char *codes; /* of W */
    size_t n_pairs;             /* of units */
    const part_scales *scales;
    int32_t bias;
    bool has_min;
    __m256i table;
} part_args;

/* sum[8] += x_scale * scale * dot. */
static inline void add_scaled(float *sum, __m256i dot, const float *scale, float x_scale)
{
    __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), _mm256_load_ps(scale));
    _mm256_store_ps(sum, _mm256_fmadd_ps(scaled, _mm256_set1_ps(x_scale), _mm256_load_ps(sum)));
}

/* sum[16] += min * all. */
static inline void add_min(float *sum, const part_scales *s, float all)
{
    for (size_t j = 0; j < SKV_NR256; j += 8) {
        __m256 y = _mm256_load_ps(sum + j), min = _mm256_load_ps(s->min + j);
        _mm256_store_ps(sum + j, _mm256_fmadd_ps(min, _mm256_set1_ps(all), y));
    }
}

static inline __m256i low_nibbles(__m256i w)
{
    return _mm256_and_si256(w, _mm256_set1_epi8(15));
}

/* dot += pairs of unsigned bytes of w times signed bytes of x, in 16 bits. As assembly the compiler
 * keeps the accumulators in place; with intrinsics gcc 12 joins the sums of several products first
 * and spills. */
static inline __m256i dot2(__m256i dot, __m256i w, __m256i x)
{
    __m256i pairs;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(dot), "=&x"(pairs)
            : "x"(w), "x"(x));
    return dot;
}

/* Even levels: sums of 16 bits. sum is [m][16], 32-byte aligned. Inlined once for every constant m,
 * so that the accumulators are registers. */
static inline __attribute__((always_inline)) void part_even_m(float *sum, part_args a,
                                                              const size_t m)
{
    __m256i dot[MR][2];
    for (size_t i = 0; i < m; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t p = 0; p < a.n_pairs; p++, a.codes += UNIT_BYTES) {
        const __m256i *from = (const __m256i *)(const void *)a.codes;
        for (size_t high = 0; high < 2; high++, a.x_units += m) {
            __m256i w0 = _mm256_loadu_si256(from), w1 = _mm256_loadu_si256(from + 1);
            w0 = low_nibbles(high ? _mm256_srli_epi16(w0, 4) : w0);
            w1 = low_nibbles(high ? _mm256_srli_epi16(w1, 4) : w1);
            for (size_t i = 0; i < m; i++) {
                __m256i xi = _mm256_set1_epi32(a.x_units[i]);
                dot[i][0] = dot2(dot[i][0], w0, xi);
                dot[i][1] = dot2(dot[i][1], w1, xi);
            }
        }
    }
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t i = 0; i < m; i++) {
        __m256i start = _mm256_set1_epi32(-a.bias * a.x_sums[i]);
        float *to = sum + i * SKV_NR256;
        add_scaled(to, _mm256_add_epi32(_mm256_madd_epi16(dot[i][0], ones), start), a.scales->scale,
                   a.x_scales[i]);
        add_scaled(to + 8, _mm256_add_epi32(_mm256_madd_epi16(dot[i][1], ones), start),
                   a.scales->scale + 8, a.x_scales[i]);
    }
}

/* The signed values of four elements of 8 columns. */
static inline __attribute__((always_inline)) __m256i values(const unsigned char *codes, bool high,
                                                            const code_kind kind, __m256i table)
{
    __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    if (kind == CODES_BYTES) return w;
    return _mm256_shuffle_epi8(table, low_nibbles(high ? _mm256_srli_epi16(w, 4) : w));
}

/* dot += four signed bytes of w times four signed bytes of x in every lane; aw is |w|. */
static inline __m256i dot4(__m256i dot, __m256i w, __m256i aw, __m256i x)
{
    __m256i pairs;
    __asm__("vpsignb %2, %4, %1\n\tvpmaddubsw %1, %3, %1\n\t"
            "vpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(dot), "=&x"(pairs)
            : "x"(w), "x"(aw), "x"(x), "x"(_mm256_set1_epi16(1)));
    return dot;
}

/* Any signed values: sums of 32 bits. */
static inline __attribute__((always_inline)) void
part_signed_m(float *sum, part_args a, const size_t m, const code_kind kind)
{
    const size_t step =
        kind == CODES_BYTES ? UNIT_BYTES : 0; /* from a unit of a pair to the next */
    __m256i dot[MR][2];
    for (size_t i = 0; i < m; i++) dot[i][0] = dot[i][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (size_t p = 0; p < a.n_pairs; p++) {
        for (size_t high = 0; high < 2; high++, a.x_units += m, a.codes += step) {
            __m256i w0 = values(a.codes, high, kind, a.table), aw0 = _mm256_abs_epi8(w0);
            __m256i w1 = values(a.codes + 32, high, kind, a.table), aw1 = _mm256_abs_epi8(w1);
            for (size_t i = 0; i < m; i++) {
                __m256i xi = _mm256_set1_epi32(a.x_units[i]);
                dot[i][0] = dot4(dot[i][0], w0, aw0, xi);
                dot[i][1] = dot4(dot[i][1], w1, aw1, xi);
            }
        }
        a.codes += UNIT_BYTES - step;
    }
    for (size_t i = 0; i < m; i++) {
        float *to = sum + i * SKV_NR256;
        add_scaled(to, dot[i][0], a.scales->scale, a.x_scales[i]);
        add_scaled(to + 8, dot[i][1], a.scales->scale + 8, a.x_scales[i]);
    }
}

static inline __attribute__((always_inline)) void part_m(float *sum, part_args a, const size_t m,
                                                         const code_kind kind)
{
    if (kind == CODES_EVEN) {
        part_even_m(sum, a, m);
    } else {
        part_signed_m(sum, a, m, kind);
    }
    for (size_t i = 0; a.has_min && i < m; i++) {
        add_min(sum + i * SKV_NR256, a.scales, a.x_scales[i] * (float)a.x_sums[i]);
    }
}

/* Where a tile stands in its panel and block. */
typedef struct tile_args {
    skv_tile256 to;
    const skv_quant_header *h;
    const unsigned char *x; /* of group0 */
    size_t K, group0, group1;
} tile_args;

/* Parts of a group are all of it, or its halves. */
static inline __attribute__((always_inline)) void group_m(float *sum, tile_args *t,
                                                          const unsigned char *w, part_args a,
                                                          const size_t m, const code_kind kind)
{
    const size_t n_parts = t->h->n_parts, scale_bytes = skv_quant_scale_bytes(t->h, SKV_NR256);
    const int32_t *sums = (const int32_t *)(const void *)t->x + m; /* [2][m] */
    const uint16_t *span = skv_quant_span(t->h, SKV_NR256, t->group0);
    part_scales scales;
    int32_t both[MR];
    for (size_t i = 0; i < m; i++) both[i] = sums[i] + sums[m + i];
    a.x_scales = (const float *)(const void *)t->x;
    a.x_units = sums + 2 * m;
    a.codes = w + n_parts * scale_bytes;
    a.scales = &scales;
    a.n_pairs = 4 / n_parts;
    for (size_t part = 0; part < n_parts; part++) {
        decode_scales(&scales, t->h, w + part * scale_bytes, span);
        a.x_sums = n_parts == 1 ? both : sums + part * m;
        part_m(sum, a, m, kind);
        a.x_units += a.n_pairs * 2 * m;
        a.codes += a.n_pairs * UNIT_BYTES * (kind == CODES_BYTES ? 2 : 1);
    }
}

static inline __attribute__((always_inline)) void tile_m(tile_args t, const size_t m,
                                                         const code_kind kind)
{
    _Alignas(32) float sum[MR * SKV_NR256];
    const size_t group_bytes = skv_quant_group_bytes(t.h, SKV_NR256);
    const unsigned char *w = skv_quant_group(t.h, SKV_NR256, t.K, t.group0);
    part_args a = {.bias = t.h->bias, .has_min = t.h->has_min};
    a.table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)t.h->levels));
    for (size_t i = 0; i < m * SKV_NR256; i += 8) _mm256_store_ps(sum + i, _mm256_setzero_ps());
    for (; t.group0 < t.group1; t.group0++) {
        group_m(sum, &t, w, a, m, kind);
        w += group_bytes;
        t.x += skv_quant_x_group(m);
    }
    for (size_t i = 0; i < m; i++) {
        const float *from = sum + i * SKV_NR256;
        __m256 row[2] = {_mm256_load_ps(from), _mm256_load_ps(from + 8)};
        skv_tile256_store(t.to, i, row);
    }
}

static inline __attribute__((always_inline)) void tile_of_kind(tile_args t, size_t m,
                                                               const code_kind kind)
{
    switch (m) {
    case 1: tile_m(t, 1, kind); break;
    case 2: tile_m(t, 2, kind); break;
    case 3: tile_m(t, 3, kind); break;
    default: tile_m(t, 4, kind); break;
    }
}

static void tile(float *c, size_t ldc, const void *block, const void *panel, size_t m, size_t K,
                 size_t k0, size_t k1, bool add)
{
    size_t group0 = k0 / SKV_QUANT_GROUP, group1 = k1 / SKV_QUANT_GROUP;
    tile_args t = {.to = {c, ldc, 0, add},
                   .h = panel,
                   .x = (const unsigned char *)block + group0 * skv_quant_x_group(m),
                   .K = K,
                   .group0 = group0,
                   .group1 = group1};
    if (t.h->bits == 8) {
        tile_of_kind(t, m, CODES_BYTES);
    } else if (t.h->even) {
        tile_of_kind(t, m, CODES_EVEN);
    } else {
        tile_of_kind(t, m, CODES_TABLE);
    }
}

const skv_matmul skv_matmul_q_avx2 = {
    .nr = SKV_NR256,
    .mr = MR,
    .kc = SKV_KC256,
    .x_bytes = x_bytes,
    .pack_x = pack_x,
    .tile = tile,
};
