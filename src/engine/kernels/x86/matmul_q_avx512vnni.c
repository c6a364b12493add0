/*
 * The product with quantised weights with VPDPBUSD: values of W are made unsigned by the panel's
 * bias, which the accumulators take back by starting at -bias times the sum of the codes of X.
 * Layouts: quant_panel.h. One function for each way to make bytes of codes: even levels are the
 * nibble itself, others come from a table of 16, codes of 8 bits flip their sign bit.
 */
#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/quant_panel.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

enum { UNIT_BYTES = SKV_NR512 * 4 };

typedef enum code_kind { CODES_EVEN, CODES_TABLE, CODES_BYTES } code_kind;

static size_t x_bytes(size_t m, size_t K)
{
    return skv_quant_x_bytes(m, K);
}

static void pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    skv_pack_x_q_avx2(block, (skv_pack_rows){x, ldx, m, K});
}

/* dot += four unsigned bytes of w times four signed bytes of x in every lane: see i8. */
static inline __m512i dot4(__m512i dot, __m512i w, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(dot) : "v"(w), "v"(x));
    return dot;
}

/* The values, made unsigned, of four elements of 16 columns: those of the low or the high nibbles.
 */
static inline __attribute__((always_inline)) __m512i values(const unsigned char *codes, bool high,
                                                            const code_kind kind, __m512i table)
{
    __m512i w = _mm512_loadu_si512(codes);
    if (kind == CODES_BYTES) return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
    w = _mm512_and_si512(high ? _mm512_srli_epi16(w, 4) : w, _mm512_set1_epi8(15));
    return kind == CODES_TABLE ? _mm512_shuffle_epi8(table, w) : w;
}

/* 16 floats of 16 bits. */
static inline __m512 load_16(const void *from, bool bf16)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)from);
    if (!bf16) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* Scales and minimums of the columns for one part of a group. */
typedef struct part_scales {
    _Alignas(64) float scale[SKV_NR512];
    _Alignas(64) float min[SKV_NR512];
} part_scales;

static void decode_fine(part_scales *s, const skv_quant_header *h, const unsigned char *at,
                        const uint16_t *span)
{
    for (size_t j = 0; j < SKV_NR512; j += 16) {
        __m512i fine = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(at + j)));
        __m512 d = load_16(span + j, h->bf16), min = _mm512_setzero_ps();
        _mm512_store_ps(s->scale + j, _mm512_mul_ps(d, _mm512_cvtepi32_ps(fine)));
        if (h->has_min) {
            __m128i bytes = _mm_loadu_si128((const void *)(at + SKV_NR512 + j));
            __m512 dmin = load_16(span + SKV_NR512 + j, h->bf16);
            min = _mm512_fnmadd_ps(dmin, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), min);
        }
        _mm512_store_ps(s->min + j, min);
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
    for (size_t j = 0; j < SKV_NR512; j += 16) {
        __m512 min = h->has_min ? load_16(scales + SKV_NR512 + j, h->bf16) : _mm512_setzero_ps();
        _mm512_store_ps(s->scale + j, load_16(scales + j, h->bf16));
        _mm512_store_ps(s->min + j, min);
    }
}

/* sum[64] += x_scale * scale * dot. */
static inline __attribute__((always_inline)) void add_scaled(float *sum, const __m512i dot[4],
                                                             const part_scales *s, float x_scale)
{
    __m512 xs = _mm512_set1_ps(x_scale);
    for (size_t j = 0; j < 4; j++) {
        __m512 scaled =
            _mm512_mul_ps(_mm512_cvtepi32_ps(dot[j]), _mm512_load_ps(s->scale + 16 * j));
        __m512 y = _mm512_fmadd_ps(scaled, xs, _mm512_load_ps(sum + 16 * j));
        _mm512_store_ps(sum + 16 * j, y);
    }
}

/* sum[64] += min * all. */
static inline void add_min(float *sum, const part_scales *s, float all)
{
    for (size_t j = 0; j < SKV_NR512; j += 16) {
        __m512 y = _mm512_load_ps(sum + j), min = _mm512_load_ps(s->min + j);
        _mm512_store_ps(sum + j, _mm512_fmadd_ps(min, _mm512_set1_ps(all), y));
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
    __m512i table;
} part_args;

/* sum is [m][64], 64-byte aligned. Inlined once for every constant m, so that the accumulators are
 * registers. */
static inline __attribute__((always_inline)) void part_m(float *sum, part_args a, const size_t m,
                                                         const code_kind kind)
{
    const size_t step =
        kind == CODES_BYTES ? UNIT_BYTES : 0; /* from a unit of a pair to the next */
    __m512i dot[SKV_MR512][4];
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < 4; j++) dot[i][j] = _mm512_set1_epi32(-a.bias * a.x_sums[i]);
    }
#pragma GCC unroll 1
    for (size_t p = 0; p < a.n_pairs; p++) {
        for (size_t high = 0; high < 2; high++, a.x_units += m, a.codes += step) {
            __m512i w0 = values(a.codes, high, kind, a.table);
            __m512i w1 = values(a.codes + 64, high, kind, a.table);
            __m512i w2 = values(a.codes + 128, high, kind, a.table);
            __m512i w3 = values(a.codes + 192, high, kind, a.table);
            for (size_t i = 0; i < m; i++) {
                __m512i xi = _mm512_set1_epi32(a.x_units[i]);
                dot[i][0] = dot4(dot[i][0], w0, xi);
                dot[i][1] = dot4(dot[i][1], w1, xi);
                dot[i][2] = dot4(dot[i][2], w2, xi);
                dot[i][3] = dot4(dot[i][3], w3, xi);
            }
        }
        a.codes += UNIT_BYTES - step;
    }
    for (size_t i = 0; i < m; i++) {
        add_scaled(sum + i * SKV_NR512, dot[i], a.scales, a.x_scales[i]);
    }
    for (size_t i = 0; a.has_min && i < m; i++) {
        add_min(sum + i * SKV_NR512, a.scales, a.x_scales[i] * (float)a.x_sums[i]);
    }
}

/* Where a tile stands in its panel and block. */
typedef struct tile_args {
    skv_tile512 to;
    const skv_quant_header *h;
    const unsigned char *x; /* of group0 */
    size_t K, group0, group1;
} tile_args;

/* Parts of a group are all of it, or its halves. */
static inline __attribute__((always_inline)) void group_m(float *sum, tile_args *t,
                                                          const unsigned char *w, part_args a,
                                                          const size_t m, const code_kind kind)
{
    const size_t n_parts = t->h->n_parts, scale_bytes = skv_quant_scale_bytes(t->h, SKV_NR512);
    const int32_t *sums = (const int32_t *)(const void *)t->x + m; /* [2][m] */
    const uint16_t *span = skv_quant_span(t->h, SKV_NR512, t->group0);
    part_scales scales;
    int32_t both[SKV_MR512];
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
    _Alignas(64) float sum[SKV_MR512 * SKV_NR512];
    const size_t group_bytes = skv_quant_group_bytes(t.h, SKV_NR512);
    const unsigned char *w = skv_quant_group(t.h, SKV_NR512, t.K, t.group0);
    part_args a = {.bias = t.h->bias, .has_min = t.h->has_min};
    a.table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)t.h->biased));
    skv_tile512_fetch(t.to, m);
    for (size_t i = 0; i < m * SKV_NR512; i += 16) _mm512_store_ps(sum + i, _mm512_setzero_ps());
    for (; t.group0 < t.group1; t.group0++) {
        group_m(sum, &t, w, a, m, kind);
        w += group_bytes;
        t.x += skv_quant_x_group(m);
    }
    for (size_t i = 0; i < m; i++) {
        __m512 row[4];
        for (size_t j = 0; j < 4; j++) row[j] = _mm512_load_ps(sum + i * SKV_NR512 + 16 * j);
        skv_tile512_store(t.to, i, row);
    }
}

static inline __attribute__((always_inline)) void tile_of_kind(tile_args t, size_t m,
                                                               const code_kind kind)
{
    switch (m) {
    case 1: tile_m(t, 1, kind); break;
    case 2: tile_m(t, 2, kind); break;
    case 3: tile_m(t, 3, kind); break;
    case 4: tile_m(t, 4, kind); break;
    case 5: tile_m(t, 5, kind); break;
    default: tile_m(t, 6, kind); break;
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

const skv_matmul skv_matmul_q_avx512vnni = {
    .nr = SKV_NR512,
    .mr = SKV_MR512,
    .kc = SKV_KC512,
    .x_bytes = x_bytes,
    .pack_x = pack_x,
    .tile = tile,
};
