/*
 * Attention with AVX-512 and BF16 instructions: tiles of 6 x 64 of VDPBF16PS over pairs. Pages of
 * f32 keep f32 arithmetic (attention_avx512.c); here q, k, v and the weights are bfloat16.
 */
#include <immintrin.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/math_avx512.h"

#define INLINE static inline __attribute__((always_inline))

/* Two times sixteen f32 rounded to bfloat16, `low` first. */
INLINE __m512i round_pair(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

INLINE __m512 dot_pairs(__m512 sum, __m512i x, __m512i y)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

static void pack_q(void *y, const float *x, float scale, size_t n)
{
    unsigned char *to = y;
    __m512 factor = _mm512_set1_ps(scale);
    for (size_t i = 0; i < n; i += 32) {
        __mmask16 lanes0 = skv_lanes16(n - i);
        __mmask16 lanes1 = n - i > 16 ? skv_lanes16(n - i - 16) : 0;
        __m512 low = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes0, x + i), factor);
        __m512 high = _mm512_setzero_ps();
        if (lanes1) high = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes1, x + i + 16), factor);
        __mmask32 lanes = (__mmask32)lanes1 << 16 | lanes0;
        _mm512_mask_storeu_epi16(to + 2 * i, lanes, round_pair(low, high));
    }
}

/* Elements d .. d + 31 of a row as bfloat16; elements from n on are zero. */
INLINE __m512i load32(const unsigned char *row, skv_kv_type type, size_t d, size_t n, float scale)
{
    __mmask16 lanes0 = skv_lanes16(n - d);
    __mmask16 lanes1 = n - d > 16 ? skv_lanes16(n - d - 16) : 0;
    if (type == SKV_KV_TYPE_BF16) {
        return _mm512_maskz_loadu_epi16((__mmask32)lanes1 << 16 | lanes0, row + 2 * d);
    }
    __m512 low = skv_kv16_avx512(row, type, d, scale, lanes0);
    __m512 high = skv_kv16_avx512(row, type, d + 16, scale, lanes1);
    return round_pair(low, high);
}

/* panel [Dh / 2][64][2]: sixteen rows of K, a pair of elements at a time, become columns. */
INLINE void pack_k_of(unsigned char *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    size_t row_bytes = Dh * skv_kv_size(type);
    const unsigned char *scales = p->page + skv_page_scales_at(type, Dh, 0);
    for (size_t r0 = 0; r0 < SKV_PAGE_ROWS; r0 += 16) {
        for (size_t d = 0; d < Dh; d += 32) {
            __m512i x[16];
            for (size_t i = 0; i < 16; i++) {
                size_t r = r0 + i;
                x[i] = _mm512_setzero_si512();
                if (r < p->row0 || r >= p->row1) continue;
                float scale = skv_kv_has_scales(type) ? skv_scale_decode(scales[r]) : 1.0f;
                x[i] = load32(p->page + r * row_bytes, type, d, Dh, scale);
            }
            skv_transpose16_avx512(x);
            size_t pairs = Dh - d < 32 ? (Dh - d) / 2 : 16;
            unsigned char *to = panel + (d / 2 * SKV_PAGE_ROWS + r0) * 4;
            for (size_t i = 0; i < pairs; i++) {
                _mm512_storeu_si512(to + i * SKV_PAGE_ROWS * 4, x[i]);
            }
        }
    }
}

static void pack_k(void *panel, const skv_tile_page *p)
{
    switch (p->type) {
    case SKV_KV_TYPE_F32: break; /* f32 pages take the f32 tiles */
    case SKV_KV_TYPE_BF16: pack_k_of(panel, p, SKV_KV_TYPE_BF16); break;
    case SKV_KV_TYPE_FP8: pack_k_of(panel, p, SKV_KV_TYPE_FP8); break;
    case SKV_KV_TYPE_INT8: pack_k_of(panel, p, SKV_KV_TYPE_INT8); break;
    }
}

/* panel [32][ld_v][2]: two rows of V, interleaved; zero where nothing is seen. */
INLINE void pack_v_of(unsigned char *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    const unsigned char *rows = p->page + skv_page_rows_at(type, Dh, 1);
    const unsigned char *scales = p->page + skv_page_scales_at(type, Dh, 1);
    const __m512i first = _mm512_set_epi32(
        0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007,
        0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (size_t r = 0; r < p->row1; r += 2) {
        float scale[2] = {1.0f, 1.0f};
        bool seen[2];
        for (size_t i = 0; i < 2; i++) {
            seen[i] = r + i >= p->row0 && r + i < p->row1;
            if (seen[i] && skv_kv_has_scales(type)) scale[i] = skv_scale_decode(scales[r + i]);
        }
        const unsigned char *row = rows + r * Dh * skv_kv_size(type);
        unsigned char *to = panel + r / 2 * p->ld_v * 4;
        for (size_t d = 0; d < Dh; d += 32) {
            __m512i x = _mm512_setzero_si512();
            __m512i y = _mm512_setzero_si512();
            if (seen[0]) x = load32(row, type, d, Dh, scale[0]);
            if (seen[1]) y = load32(row + Dh * skv_kv_size(type), type, d, Dh, scale[1]);
            _mm512_storeu_si512(to + d * 4, _mm512_permutex2var_epi16(x, first, y));
            if (d + 16 >= p->ld_v) break;
            _mm512_storeu_si512(to + d * 4 + 64, _mm512_permutex2var_epi16(x, second, y));
        }
    }
}

static void pack_v(void *panel, const skv_tile_page *p)
{
    switch (p->type) {
    case SKV_KV_TYPE_F32: break;
    case SKV_KV_TYPE_BF16: pack_v_of(panel, p, SKV_KV_TYPE_BF16); break;
    case SKV_KV_TYPE_FP8: pack_v_of(panel, p, SKV_KV_TYPE_FP8); break;
    case SKV_KV_TYPE_INT8: pack_v_of(panel, p, SKV_KV_TYPE_INT8); break;
    }
}

/* Columns [16 nv] of the product; m and nv are constants where this is inlined. */
INLINE void block(const skv_tile_product *p, size_t column, size_t m, size_t nv)
{
    __m512 c[SKV_TILE_ROWS][4];
    float *out = p->c + column;
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < nv; v++) c[i][v] = _mm512_setzero_ps();
    }
    const unsigned char *a = p->a;
    const unsigned char *b = p->b + column * 4;
    for (size_t k = 0; k < p->k; k += 2) {
        __m512i x[4];
        for (size_t v = 0; v < nv; v++) x[v] = _mm512_loadu_si512(b + 64 * v);
        for (size_t i = 0; i < m; i++) {
            int pair;
            memcpy(&pair, a + i * p->lda, sizeof pair);
            __m512i y = _mm512_set1_epi32(pair);
            for (size_t v = 0; v < nv; v++) c[i][v] = dot_pairs(c[i][v], y, x[v]);
        }
        a += 4;
        b += p->ldb * 4;
    }
    for (size_t i = 0; i < m; i++) {
        for (size_t v = 0; v < nv; v++) {
            float *to = out + i * p->ldc + 16 * v;
            if (p->add) c[i][v] = _mm512_add_ps(c[i][v], _mm512_loadu_ps(to));
            _mm512_storeu_ps(to, c[i][v]);
        }
    }
}

INLINE void product_of(const skv_tile_product *p, size_t m)
{
    size_t n = 0;
    for (; n + 64 <= p->n; n += 64) block(p, n, m, 4);
    if (p->n - n == 48) {
        block(p, n, m, 3);
    } else if (p->n - n == 32) {
        block(p, n, m, 2);
    } else if (p->n - n == 16) {
        block(p, n, m, 1);
    }
}

static void product(const skv_tile_product *p)
{
    switch (p->m) {
    case 1: product_of(p, 1); break;
    case 2: product_of(p, 2); break;
    case 3: product_of(p, 3); break;
    case 4: product_of(p, 4); break;
    case 5: product_of(p, 5); break;
    default: product_of(p, 6); break;
    }
}

static bool softmax(const skv_tile_softmax *t)
{
    bool grown = false;
    for (size_t r = 0; r < t->m; r++) {
        float *s = t->s + r * SKV_PAGE_ROWS;
        __m512 x[4];
        skv_softmax_load_avx512(t, r, x);
        grown |= skv_softmax_raise_avx512(t, r, x);
        __m512 max = _mm512_set1_ps(t->max[r]);
        for (size_t v = 0; v < 4; v++) x[v] = skv_exp2_coarse_avx512(_mm512_sub_ps(x[v], max));
        __m512 sum = _mm512_add_ps(_mm512_add_ps(x[0], x[1]), _mm512_add_ps(x[2], x[3]));
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(t->sums + r * SKV_TILE_SUMS));
        _mm512_storeu_ps(t->sums + r * SKV_TILE_SUMS, sum);
        _mm512_storeu_si512(s, round_pair(x[0], x[1]));
        _mm512_storeu_si512(s + 16, round_pair(x[2], x[3]));
    }
    return grown;
}

static const skv_attention_tiles tiles = {
    .unit = 2,
    .element = 2,
    .pack_q = pack_q,
    .pack_k = pack_k,
    .pack_v = pack_v,
    .product = product,
    .softmax = softmax,
};

static const skv_attention_tiles *tiles_for(skv_kv_type type)
{
    return type == SKV_KV_TYPE_F32 ? &skv_attention_tiles_avx512 : &tiles;
}

void skv_attention_avx512bf16(const skv_attention *a, void *scratch)
{
    skv_attention_run(a, tiles_for(a->type), scratch);
}

void skv_attention_part_avx512bf16(const skv_attention *a, size_t row0, size_t row1, float *partial,
                                   void *scratch)
{
    skv_attention_run_part(a, tiles_for(a->type), row0, row1, partial, scratch);
}
