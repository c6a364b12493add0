/*
 * Attention with AVX-512 and BF16 instructions: tiles of 6 x 64 of VDPBF16PS over pairs. Pages of
 * f32 keep f32 arithmetic (attention_avx512.c); here q, k, v and the weights are bfloat16.
 */
#include "kernels/x86/attention_avx512bf16.h"

#include <immintrin.h>
#include <string.h>

#include "base/size.h"
#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/math_avx512.h"

enum { UNIT = 2, ELEMENT = 2 };

typedef __m512i operand;

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

typedef vec acc;

INLINE acc acc_start(const skv_tile_product *p, size_t column)
{
    (void)p;
    (void)column;
    return vec_zero();
}

INLINE vec acc_end(const skv_tile_product *p, acc c, size_t i)
{
    (void)p;
    (void)i;
    return c;
}

INLINE vec operand_dot(vec c, operand a, operand b)
{
    return skv_dot_pairs_avx512(c, a, b);
}

static float pack_q(void *y, const float *x, float scale, size_t n)
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
        _mm512_mask_storeu_epi16(to + 2 * i, lanes, skv_round_pair_avx512(low, high));
    }
    return 1.0f;
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
        if (whole) {
            skv_columns16_avx512(to, SKV_PAGE_ROWS, rows, row_bytes, Dh / 2);
            continue;
        }
        for (size_t i = 0; i < 16; i++) {
            bool seen = r0 + i >= p->row0 && r0 + i < p->row1;
            for (size_t d = 0; d < Dh; d += 32) {
                __m512i x = _mm512_setzero_si512();
                if (seen) x = skv_load32_avx512(rows + i * row_bytes, type, d, Dh);
                _mm512_storeu_si512(wide + i * ld + d, x);
            }
        }
        skv_columns16_avx512(to, SKV_PAGE_ROWS, (const unsigned char *)wide, ld * 2, Dh / 2);
    }
}

/* Columns d .. d + 31 of two rows of V, interleaved; only the first 16 if the panel ends there. */
INLINE void interleave(unsigned char *to, size_t d, size_t ld_v, __m512i x, __m512i y)
{
    _mm512_storeu_si512(to + d * 4, skv_pairs_low_avx512(x, y));
    if (d + 16 >= ld_v) return;
    _mm512_storeu_si512(to + d * 4 + 64, skv_pairs_high_avx512(x, y));
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
        for (size_t d = 0; d < Dh; d += 32) {
            __m512i x = _mm512_setzero_si512();
            __m512i y = _mm512_setzero_si512();
            if (seen0) x = skv_load32_avx512(row, type, d, Dh);
            if (seen1) y = skv_load32_avx512(row + row_bytes, type, d, Dh);
            interleave(to, d, p->ld_v, x, y);
        }
    }
}

/* Scores x of row r become weights, rounded to bfloat16 in place of the scores. */
INLINE vec weigh(const skv_tile_softmax *t, size_t r, vec x[4])
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
    _mm512_storeu_si512(s, skv_round_pair_avx512(x[0], x[1]));
    _mm512_storeu_si512(s + 16, skv_round_pair_avx512(x[2], x[3]));
    return max;
}

INLINE void weigh_rows(const skv_tile_softmax *t, const vec given[SKV_TILE_ROWS])
{
    (void)t;
    (void)given;
}

#define FEW_Q skv_few_q_avx512bf16
#define FEW_SCORES skv_few_scores_avx512bf16
#define FEW_VALUES skv_few_values_avx512bf16
#include "kernels/attention_pack.inc"
#define TILES const skv_attention_tiles skv_attention_tiles_avx512bf16
#include "kernels/attention_level.inc"

static const skv_attention_ways ways = {
    .f32 = &skv_attention_tiles_avx512,
    .narrow = &skv_attention_tiles_avx512bf16,
    .int8 = &skv_attention_tiles_avx512vnni,
};
#include "kernels/attention_run.inc"

const skv_attention_kernels skv_attention_kernels_avx512bf16 =
    ATTENTION_KERNELS(skv_kv_store_avx512, skv_kv_load_avx512);
