/* Storing and loading one row of a KV page with AVX-512; bit for bit as kv_ref.c does. */
#include <immintrin.h>

#include "kernels/kv_page.h"
#include "kernels/x86/attention_avx512.h"
#include "kernels/x86/math_avx512.h"

static __m512 load16(const float *x, size_t i, size_t n)
{
    return _mm512_maskz_loadu_ps(skv_lanes16(n - i), x + i);
}

/* e4m3, nearest even, clamped; see skv_fp8_encode. */
static __m128i to_fp8(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    __m512 y = _mm512_abs_ps(x);
    __m512 clamped = _mm512_min_ps(y, _mm512_set1_ps((float)SKV_FP8_MAX));
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

static void store_8bit(unsigned char *codes, unsigned char *scale, skv_kv_type type, const float *x,
                       size_t n)
{
    __m512 most = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 16) {
        /* The second operand stays when one is a NaN. */
        most = _mm512_max_ps(_mm512_abs_ps(load16(x, i, n)), most);
    }
    *scale = skv_row_scale(type, _mm512_reduce_max_ps(most));
    float inverse = *scale == 0 ? 0.0f : 1.0f / skv_scale_decode(*scale);
    for (size_t i = 0; i < n; i += 16) {
        __m512 y = _mm512_mul_ps(load16(x, i, n), _mm512_set1_ps(inverse));
        __m128i code = type == SKV_KV_TYPE_FP8 ? to_fp8(y) : to_int8(y);
        _mm_mask_storeu_epi8(codes + i, skv_lanes16(n - i), code);
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
    for (size_t i = 0; i < n; i += 16) {
        __m512 y = load16(x, i, n);
        if (type == SKV_KV_TYPE_F32) {
            _mm512_mask_storeu_ps(at + 4 * i, skv_lanes16(n - i), y);
        } else {
            _mm256_mask_storeu_epi16(at + 2 * i, skv_lanes16(n - i), skv_to_bf16_avx512(y));
        }
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
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = skv_lanes16(n - i);
        __m512 x = skv_kv16_avx512(at, type, i, lanes);
        _mm512_mask_storeu_ps(y + i, lanes, _mm512_mul_ps(x, _mm512_set1_ps(scale)));
    }
}

void skv_kv_store_avx512(void *page, skv_kv_type type, size_t row, const float *k, const float *v,
                         size_t head_dim)
{
    store_half(page, type, row, 0, k, head_dim);
    store_half(page, type, row, 1, v, head_dim);
}

void skv_kv_load_avx512(const void *page, skv_kv_type type, size_t row, float *k, float *v,
                        size_t head_dim)
{
    if (k) load_half(page, type, row, 0, k, head_dim);
    if (v) load_half(page, type, row, 1, v, head_dim);
}
