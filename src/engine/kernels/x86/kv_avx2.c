/* Storing and loading one row of a KV page with AVX2; bit for bit as kv_ref.c does. */
#include <immintrin.h>
#include <string.h>

#include "kernels/kv_page.h"
#include "kernels/x86/attention_avx2.h"
#include "kernels/x86/math_avx2.h"

static __m256 magnitude(__m256 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* e4m3, nearest even, clamped, in 32 bits each; see skv_fp8_encode. */
static __m256i to_fp8(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    __m256 clamped = _mm256_min_ps(magnitude(x), _mm256_set1_ps((float)SKV_FP8_MAX));
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

static void store_8bit(unsigned char *codes, unsigned char *scale, skv_kv_type type, const float *x,
                       size_t n)
{
    __m256 most = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += 8) {
        /* The second operand stays when one is a NaN. */
        most = _mm256_max_ps(magnitude(skv_load8_avx2(x, i, n)), most);
    }
    *scale = skv_row_scale(type, skv_max8_avx2(most));
    float inverse = *scale == 0 ? 0.0f : 1.0f / skv_scale_decode(*scale);
    for (size_t i = 0; i < n; i += 8) {
        __m256 y = _mm256_mul_ps(skv_load8_avx2(x, i, n), _mm256_set1_ps(inverse));
        __m256i code = type == SKV_KV_TYPE_FP8 ? to_fp8(y) : to_int8(y);
        __m128i words =
            _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
        int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
        memcpy(codes + i, &bytes, i + 8 <= n ? 8 : 4);
    }
}

static void store_half(unsigned char *page, skv_kv_type type, size_t row, size_t which,
                       const float *x, size_t n)
{
    unsigned char *at = page + skv_page_rows_at(type, n, which) + row * n * skv_kv_size(type);
    if (skv_kv_has_scales(type)) {
        store_8bit(at, page + skv_page_scales_at(type, n, which) + row, type, x, n);
        return;
    }
    if (type == SKV_KV_TYPE_F32) {
        memcpy(at, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i += 8) {
        __m128i y = skv_to_bf16_avx2(skv_load8_avx2(x, i, n));
        memcpy(at + 2 * i, &y, i + 8 <= n ? 16 : 8);
    }
}

static void load_half(const unsigned char *page, skv_kv_type type, size_t row, size_t which,
                      float *y, size_t n)
{
    const unsigned char *at = page + skv_page_rows_at(type, n, which) + row * n * skv_kv_size(type);
    float scale = 1.0f;
    if (skv_kv_has_scales(type)) {
        scale = skv_scale_decode(page[skv_page_scales_at(type, n, which) + row]);
    }
    for (size_t i = 0; i < n; i += 8) {
        __m256 x = skv_kv8_avx2(at, type, i, n);
        skv_store8_avx2(y, i, n, _mm256_mul_ps(x, _mm256_set1_ps(scale)));
    }
}

void skv_kv_store_avx2(void *page, skv_kv_type type, size_t row, const float *k, const float *v,
                       size_t head_dim)
{
    store_half(page, type, row, 0, k, head_dim);
    store_half(page, type, row, 1, v, head_dim);
}

void skv_kv_load_avx2(const void *page, skv_kv_type type, size_t row, float *k, float *v,
                      size_t head_dim)
{
    if (k) load_half(page, type, row, 0, k, head_dim);
    if (v) load_half(page, type, row, 1, v, head_dim);
}
