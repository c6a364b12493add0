/*
 * Attention with AVX-512 and BF16 instructions: tiles of 6 x 64 of VDPBF16PS over pairs. Pages of
 * f32 keep f32 arithmetic (attention_avx512.c); here q, k, v and the weights are bfloat16.
 */
#include <immintrin.h>
#include <string.h>

#include "base/size.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/math_avx512.h"

enum { UNIT = 2, ELEMENT = 2 };

typedef __m512i operand;

/* Two times sixteen f32 rounded to bfloat16, `low` first. */
INLINE __m512i round_pair(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

INLINE operand operand_load(const unsigned char *b)
{
    return _mm512_loadu_si512(b);
}

INLINE operand operand_repeat(const unsigned char *a)
{
    int pair;
    memcpy(&pair, a, sizeof pair);
    return _mm512_set1_epi32(pair);
}

INLINE vec operand_dot(vec c, operand a, operand b)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
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

/* Thirty-two e4m3 codes, in the low halves of 16 bits; each is a bfloat16 exactly. */
INLINE __m512i fp8_to_bf16(__m512i codes)
{
    /* 0, 1, .. 7 times 2^-9: the denormals, whose exponent the shift below would get wrong. */
    const __m512i denormals = _mm512_castsi128_si512(
        _mm_set_epi16(0x3c60, 0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0x0000));
    __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
    __m512i y = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
    __mmask32 denormal = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
    y = _mm512_mask_permutexvar_epi16(y, denormal, magnitude, denormals);
    __m512i sign = _mm512_slli_epi16(_mm512_srli_epi16(codes, 7), 15);
    return _mm512_or_si512(y, sign);
}

/* Elements d .. d + 31 of a row as bfloat16, codes without their scale; zero from n on. */
INLINE __m512i load32(const unsigned char *row, skv_kv_type type, size_t d, size_t n)
{
    __mmask32 lanes = n - d >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << (n - d)) - 1;
    if (type == SKV_KV_TYPE_BF16) return _mm512_maskz_loadu_epi16(lanes, row + 2 * d);
    __m256i codes = _mm256_maskz_loadu_epi8(lanes, row + d);
    if (type == SKV_KV_TYPE_FP8) return fp8_to_bf16(_mm512_cvtepu8_epi16(codes));
    __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes));
    __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1));
    return round_pair(_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high));
}

/* panel [Dh / 2][64][2]: sixteen rows of K, a pair of elements at a time, become columns. */
INLINE void pack_k_of(unsigned char *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    size_t row_bytes = Dh * skv_kv_size(type);
    bool whole = type == SKV_KV_TYPE_BF16 && p->row0 == 0 && p->row1 == SKV_PAGE_ROWS;
    uint16_t wide[16 * SKV_HEAD_DIM_MAX];
    size_t ld = skv_round_up(Dh, 32);
    for (size_t r0 = 0; r0 < SKV_PAGE_ROWS; r0 += 16) {
        const unsigned char *rows = p->page + r0 * row_bytes;
        unsigned char *to = panel + r0 * 4;
        if (p->ahead) skv_fetch_avx512(p->ahead + r0 * row_bytes, 16 * row_bytes);
        if (whole) {
            skv_columns16_avx512(to, SKV_PAGE_ROWS, rows, row_bytes, Dh / 2);
            continue;
        }
        for (size_t i = 0; i < 16; i++) {
            bool seen = r0 + i >= p->row0 && r0 + i < p->row1;
            for (size_t d = 0; d < Dh; d += 32) {
                __m512i x = _mm512_setzero_si512();
                if (seen) x = load32(rows + i * row_bytes, type, d, Dh);
                _mm512_storeu_si512(wide + i * ld + d, x);
            }
        }
        skv_columns16_avx512(to, SKV_PAGE_ROWS, (const unsigned char *)wide, ld * 2, Dh / 2);
    }
}

/* Columns d .. d + 31 of two rows of V, interleaved; only the first 16 if the panel ends there. */
INLINE void interleave(unsigned char *to, size_t d, size_t ld_v, __m512i x, __m512i y)
{
    const __m512i first = _mm512_set_epi32(
        0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007,
        0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    _mm512_storeu_si512(to + d * 4, _mm512_permutex2var_epi16(x, first, y));
    if (d + 16 >= ld_v) return;
    _mm512_storeu_si512(to + d * 4 + 64, _mm512_permutex2var_epi16(x, second, y));
}

/* panel [32][ld_v][2]: pairs of rows of V; zero where nothing is seen. */
INLINE void pack_v_of(unsigned char *panel, const skv_tile_page *p, skv_kv_type type)
{
    size_t Dh = p->head_dim;
    size_t row_bytes = Dh * skv_kv_size(type);
    size_t begin = skv_page_rows_at(type, Dh, 1);
    for (size_t r = 0; r < p->row1; r += 2) {
        const unsigned char *row = p->page + begin + r * row_bytes;
        unsigned char *to = panel + r / 2 * p->ld_v * 4;
        bool seen0 = r >= p->row0;
        bool seen1 = r + 1 >= p->row0 && r + 1 < p->row1;
        if (p->ahead) skv_fetch_avx512(p->ahead + begin + r * row_bytes, 2 * row_bytes);
        for (size_t d = 0; d < Dh; d += 32) {
            __m512i x = _mm512_setzero_si512();
            __m512i y = _mm512_setzero_si512();
            if (seen0) x = load32(row, type, d, Dh);
            if (seen1) y = load32(row + row_bytes, type, d, Dh);
            interleave(to, d, p->ld_v, x, y);
        }
    }
}

/* Scores x of row r become weights, rounded to bfloat16 in place of the scores. */
INLINE void weigh(const skv_tile_softmax *t, size_t r, vec x[4])
{
    float *s = t->s + r * SKV_PAGE_ROWS;
    vec max = vec_set1(t->max[r]);
    for (size_t v = 0; v < 4; v++) x[v] = skv_exp2_coarse_avx512(vec_sub(x[v], max));
    vec sum = vec_add(vec_add(x[0], x[1]), vec_add(x[2], x[3]));
    sum = vec_add(sum, vec_load(t->sums + r * SKV_TILE_SUMS));
    for (size_t v = 0; t->v_scales && v < 4; v++) {
        x[v] = vec_mul(x[v], vec_load(t->v_scales + 16 * v));
    }
    vec_store(t->sums + r * SKV_TILE_SUMS, sum);
    _mm512_storeu_si512(s, round_pair(x[0], x[1]));
    _mm512_storeu_si512(s + 16, round_pair(x[2], x[3]));
}

#include "kernels/attention_level.inc"

/* Pages of f32 are read as they are. */
void skv_attention_avx512bf16(const skv_attention *a, void *scratch)
{
    (a->type == SKV_KV_TYPE_F32 ? skv_attention_avx512 : run)(a, scratch);
}

void skv_attention_part_avx512bf16(const skv_attention *a, size_t row0, size_t row1, float *partial,
                                   void *scratch)
{
    skv_attention_part_fn *part = a->type == SKV_KV_TYPE_F32 ? skv_attention_part_avx512 : run_part;
    part(a, row0, row1, partial, scratch);
}
