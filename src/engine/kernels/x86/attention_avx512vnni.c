/*
 * Attention over pages of int8 with AVX-512 and VNNI instructions: tiles of 6 x 64 of VPDPBUSD,
 * whose first operand has 8 bits without a sign. So Q is stored with 128 added to it, and the sums
 * of its products begin with -128 times the sum of the codes of K.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/math_avx512.h"

enum { UNIT = 4, ELEMENT = 1, Q_ZERO = 128 };

static const float Q_MAX = 127.0f, P_MAX = 255.0f;

typedef __m512i operand;
typedef __m512i acc;

INLINE operand operand_load(const unsigned char *b)
{
    return _mm512_loadu_si512(b);
}

INLINE operand operand_repeat(const unsigned char *a)
{
    int four;
    memcpy(&four, a, sizeof four);
    return _mm512_set1_epi32(four);
}

/* In assembly, since gcc 12 copies the sums of the intrinsic to and fro. */
INLINE acc operand_dot(acc c, operand a, operand b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
}

INLINE acc acc_zero(void)
{
    return _mm512_setzero_si512();
}

INLINE acc acc_load(const int32_t *x)
{
    return _mm512_loadu_si512(x);
}

INLINE vec vec_of(acc c)
{
    return _mm512_cvtepi32_ps(c);
}

INLINE vec vec_abs(vec x)
{
    return _mm512_abs_ps(x);
}

INLINE vec vec_min(vec x, vec y)
{
    return _mm512_min_ps(x, y);
}

INLINE vec vec_load_some(const float *x, size_t n)
{
    return _mm512_maskz_loadu_ps(skv_lanes16(n), x);
}

INLINE vec vec_exp2_weight(vec x)
{
    return skv_exp2_coarse_avx512(x);
}

INLINE void q_store(unsigned char *y, vec x, size_t n)
{
    __m512i number = _mm512_add_epi32(_mm512_cvtps_epi32(x), _mm512_set1_epi32(Q_ZERO));
    _mm_mask_storeu_epi8(y, skv_lanes16(n), _mm512_cvtepi32_epi8(number));
}

INLINE void p_store(float *y, const vec x[4])
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    __m512i n[4];
    for (size_t v = 0; v < 4; v++) n[v] = _mm512_cvtps_epi32(x[v]);
    __m512i codes =
        _mm512_packus_epi16(_mm512_packus_epi32(n[0], n[1]), _mm512_packus_epi32(n[2], n[3]));
    _mm512_storeu_si512(y, _mm512_permutexvar_epi32(order, codes));
}

/* panel [Dh / 4][64][4]: sixteen rows of K, four codes at a time, become columns. */
static void pack_k(void *panel, const skv_tile_page *p)
{
    const __m512i zero = _mm512_set1_epi8((char)Q_ZERO);
    size_t Dh = p->head_dim;
    for (size_t r = 0; r < SKV_PAGE_ROWS; r += 16) {
        unsigned char *to = (unsigned char *)panel + r * UNIT;
        skv_columns16_avx512(to, SKV_PAGE_ROWS, p->page + r * Dh, Dh, Dh / UNIT);
        __m512i sum = _mm512_setzero_si512();
        for (size_t d = 0; d < Dh; d += UNIT) {
            sum = operand_dot(sum, zero, operand_load(to + d * SKV_PAGE_ROWS));
        }
        _mm512_storeu_si512(p->starts + r, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
}

/* panel [16][ld_v][4]: sixteen columns of four rows of V at a time. */
static void pack_v(void *panel, const skv_tile_page *p)
{
    const __m512i quads = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i turn =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    size_t Dh = p->head_dim;
    const unsigned char *rows = p->page + skv_page_rows_at(SKV_KV_TYPE_INT8, Dh, 1);
    unsigned char *to = panel;
    for (size_t r = 0; r < p->row1; r += UNIT, rows += UNIT * Dh) {
        for (size_t d = 0; d < p->ld_v; d += 16, to += 64) {
            __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(rows + d)));
            for (unsigned l = 1; l < 4; l++) {
                __m128i row = _mm_loadu_si128((const void *)(rows + l * Dh + d));
                x = _mm512_mask_broadcast_i32x4(x, (__mmask16)(0xfu << 4 * l), row);
            }
            x = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(quads, x), turn);
            _mm512_storeu_si512(to, x);
        }
    }
}

#include "kernels/attention_whole.inc"
#define TILES const skv_attention_tiles skv_attention_tiles_avx512vnni
#include "kernels/attention_level.inc"

static const skv_attention_ways ways = {
    .f32 = &skv_attention_tiles_avx512,
    .narrow = &skv_attention_tiles_avx512,
    .int8 = &skv_attention_tiles_avx512vnni,
};
#include "kernels/attention_run.inc"

const skv_attention_kernels skv_attention_kernels_avx512vnni =
    ATTENTION_KERNELS(skv_kv_store_avx512, skv_kv_load_avx512);
