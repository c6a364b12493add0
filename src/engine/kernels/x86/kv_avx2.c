/* Storing and loading one row of a KV page with AVX2; bit for bit as kv_ref.c does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/kv_page.h"
#include "kernels/x86/attention_avx2.h"
#include "kernels/x86/lanes_avx2.h"

/* e4m3, nearest even, clamped, in 32 bits each; see skv_fp8_encode. */
static __m256i to_fp8(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    __m256 clamped = _mm256_min_ps(ABS(x), _mm256_set1_ps((float)SKV_FP8_MAX));
    __m256i u = _mm256_castps_si256(clamped);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 20), _mm256_set1_epi32(1));
    __m256i code = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7ffff)), odd);
    code = _mm256_sub_epi32(_mm256_srli_epi32(code, 20), _mm256_set1_epi32(120 << 3));
    __m256i small = _mm256_castps_si256(_mm256_add_ps(clamped, _mm256_set1_ps(0x1p14f)));
    small = _mm256_sub_epi32(small, _mm256_set1_epi32(0x46800000));
    __m256 denormal = _mm256_cmp_ps(clamped, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
    code = _mm256_blendv_epi8(code, small, _mm256_castps_si256(denormal));
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(_mm256_or_si256(code, sign), _mm256_set1_epi32(0x7f),
                              _mm256_castps_si256(nan));
}

/* -127 .. 127, nearest even, clamped, in 32 bits each; 0 for NaN. */
static __m256i to_int8(__m256 x)
{
    const float limit = (float)SKV_INT8_MAX;
    x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-limit)), _mm256_set1_ps(limit));
    return _mm256_and_si256(_mm256_cvtps_epi32(x), _mm256_set1_epi32(0xff));
}

static void put_codes(unsigned char *to, size_t i, size_t n, skv_kv_type type, __m256 y)
{
    __m256i code = type == SKV_KV_TYPE_FP8 ? to_fp8(y) : to_int8(y);
    __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
    memcpy(to + i, &bytes, i + 8 <= n ? 8 : 4);
}

static void put_bf16(unsigned char *to, size_t i, size_t n, __m256 y)
{
    __m128i half = skv_to_bf16_avx2(y);
    memcpy(to + 2 * i, &half, i + 8 <= n ? 16 : 8);
}

#define get_lanes(row, type, i, n) skv_kv8_avx2(row, type, i, n)
#include "kernels/kv_level.inc"
