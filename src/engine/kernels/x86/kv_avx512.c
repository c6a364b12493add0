/* Storing and loading one row of a KV page with AVX-512; bit for bit as kv_ref.c does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/kv_page.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/lanes_avx512.h"

/* e4m3, nearest even, clamped; see skv_fp8_encode. */
static __m128i to_fp8(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    __m512 clamped = _mm512_min_ps(ABS(x), _mm512_set1_ps((float)SKV_FP8_MAX));
    __m512i u = _mm512_castps_si512(clamped);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 20), _mm512_set1_epi32(1));
    __m512i code = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7ffff)), odd);
    code = _mm512_sub_epi32(_mm512_srli_epi32(code, 20), _mm512_set1_epi32(120 << 3));
    __m512i small =
        _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(clamped, _mm512_set1_ps(0x1p14f))),
                         _mm512_set1_epi32(0x46800000));
    __mmask16 denormal = _mm512_cmp_ps_mask(clamped, _mm512_set1_ps(0x1p-6f), _CMP_LT_OQ);
    code = _mm512_or_si512(_mm512_mask_mov_epi32(code, denormal, small), sign);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi8(_mm512_mask_mov_epi32(code, nan, _mm512_set1_epi32(0x7f)));
}

/* -127 .. 127, nearest even, clamped; 0 for NaN. */
static __m128i to_int8(__m512 x)
{
    const __m512 limit = _mm512_set1_ps((float)SKV_INT8_MAX);
    __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    x = _mm512_maskz_min_ps(number, x, limit);
    x = _mm512_max_ps(x, _mm512_sub_ps(_mm512_setzero_ps(), limit));
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
}

static void put_codes(unsigned char *to, size_t i, size_t n, skv_kv_type type, __m512 y)
{
    __m128i code = type == SKV_KV_TYPE_FP8 ? to_fp8(y) : to_int8(y);
    _mm_mask_storeu_epi8(to + i, skv_lanes16(n - i), code);
}

static void put_bf16(unsigned char *to, size_t i, size_t n, __m512 y)
{
    _mm256_mask_storeu_epi16(to + 2 * i, skv_lanes16(n - i), skv_to_bf16_avx512(y));
}

#define get_lanes(row, type, i, n) skv_kv16_avx512(row, type, i, skv_lanes16((n) - (i)))
#include "kernels/kv_level.inc"
