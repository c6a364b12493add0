/*
 * Eight numbers at a time: exponentials and hyperbolic tangents, elements of a KV page as f32,
 * and the transposition of an 8 x 8 block. For the AVX2 sources only. The polynomials are those
 * of math_avx512.h.
 */
#ifndef SKV_KERNELS_X86_MATH_AVX2_H
#define SKV_KERNELS_X86_MATH_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/kv_page.h"

/* All ones in the first n (at most 8) lanes. */
static inline __m256i skv_lanes8(size_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), index);
}

static inline __m256 skv_load8_avx2(const float *x, size_t i, size_t n)
{
    return i + 8 <= n ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, skv_lanes8(n - i));
}

static inline void skv_store8_avx2(float *y, size_t i, size_t n, __m256 v)
{
    if (i + 8 <= n) {
        _mm256_storeu_ps(y + i, v);
    } else {
        _mm256_maskstore_ps(y + i, skv_lanes8(n - i), v);
    }
}

static inline float skv_sum8_avx2(__m256 x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline float skv_max8_avx2(__m256 x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

/* 2^n for whole n from -127 (which gives 0) to 127. */
static inline __m256 skv_power8_avx2(__m256 n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

/* 2^x within 2e-7 for softmax weights, x < 127; 0 for x below -127. */
static inline __m256 skv_exp2_avx2(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-127.0f), x);
    __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 f = _mm256_sub_ps(x, n);
    __m256 p = _mm256_set1_ps(0x1.5c08e6p-10f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.3d0c52p-7f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.c6b6e4p-5f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.ebf918p-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.62e428p-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.000002p+0f));
    return _mm256_mul_ps(p, skv_power8_avx2(n));
}

/* With n = round(x log2 e) and f = x log2 e - n: returns 2^f - 1, and n in *n. */
static inline __m256 skv_exp_parts_avx2(__m256 x, __m256 *n)
{
    const __m256 log2e = _mm256_set1_ps(0x1.715476p+0f);
    const __m256 log2e_low = _mm256_set1_ps(0x1.4ae0cp-26f);
    *n = _mm256_round_ps(_mm256_mul_ps(x, log2e), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 f = _mm256_fmadd_ps(x, log2e_low, _mm256_fmsub_ps(x, log2e, *n));
    __m256 p = _mm256_set1_ps(0x1.4308fap-13f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.5f07b4p-10f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.3b2ba0p-7f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.c6af6ep-5f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.ebfbdep-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.62e430p-1f));
    return _mm256_mul_ps(p, f);
}

/* e^x within 1 ulp or so; 0 and infinity beyond the range, NaN for NaN. */
static inline __m256 skv_exp_avx2(__m256 x)
{
    __m256 n;
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-105.0f), x));
    __m256 p = _mm256_add_ps(skv_exp_parts_avx2(x, &n), _mm256_set1_ps(1.0f));
    /* Two factors, since 2^n itself may be beyond the range of a float. */
    __m256 half = _mm256_round_ps(_mm256_mul_ps(n, _mm256_set1_ps(0.5f)),
                                  _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    p = _mm256_mul_ps(p, skv_power8_avx2(half));
    return _mm256_mul_ps(p, skv_power8_avx2(_mm256_sub_ps(n, half)));
}

/* tanh(x) = t / (t + 2) with t = e^2x - 1, which keeps its digits near zero. */
static inline __m256 skv_tanh_avx2(__m256 x)
{
    __m256 n;
    const __m256 one = _mm256_set1_ps(1.0f);
    x = _mm256_min_ps(_mm256_set1_ps(10.0f), _mm256_max_ps(_mm256_set1_ps(-10.0f), x));
    __m256 p = skv_exp_parts_avx2(_mm256_add_ps(x, x), &n);
    __m256 power = skv_power8_avx2(n);
    __m256 t = _mm256_fmadd_ps(p, power, _mm256_sub_ps(power, one));
    return _mm256_div_ps(t, _mm256_add_ps(t, _mm256_set1_ps(2.0f)));
}

/* skv_f32_to_bf16 eight times. */
static inline __m128i skv_to_bf16_avx2(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i top = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    __m256i y = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

/* Eight e4m3 codes in 32 bits each; the code of a NaN is taken for 480. */
static inline __m256 skv_fp8_to_f32_avx2(__m256i codes)
{
    __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7f));
    __m256i bits = _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23));
    __m256i denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), magnitude);
    __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(magnitude), _mm256_set1_ps(0x1p-9f));
    __m256 y = _mm256_blendv_ps(_mm256_castsi256_ps(bits), small, _mm256_castsi256_ps(denormal));
    __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(codes, 7), 31);
    return _mm256_or_ps(y, _mm256_castsi256_ps(sign));
}

/* Elements i .. i + 7 of a row of n (a multiple of 4) in a KV page as f32, 8-bit ones without
 * their scale; lanes from n on are 0 and not read. */
static inline __m256 skv_kv8_avx2(const unsigned char *row, skv_kv_type type, size_t i, size_t n)
{
    bool all = i + 8 <= n;
    if (type == SKV_KV_TYPE_F32) {
        const void *at = row + 4 * i;
        return skv_load8_avx2(at, 0, n - i);
    }
    if (type == SKV_KV_TYPE_BF16) {
        const void *at = row + 2 * i;
        __m128i x = all ? _mm_loadu_si128(at) : _mm_loadl_epi64(at);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    }
    const void *at = row + i;
    __m128i x = all ? _mm_loadl_epi64(at) : _mm_loadu_si32(at);
    return type == SKV_KV_TYPE_FP8 ? skv_fp8_to_f32_avx2(_mm256_cvtepu8_epi32(x))
                                   : _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
}

/* x[i] lane j becomes x[j] lane i. */
static inline void skv_transpose8_avx2(__m256 x[8])
{
    __m256 y[8];
    for (int i = 0; i < 8; i += 4) { /* 4 x 4 blocks within each half */
        __m256 a = _mm256_unpacklo_ps(x[i], x[i + 1]);
        __m256 b = _mm256_unpackhi_ps(x[i], x[i + 1]);
        __m256 c = _mm256_unpacklo_ps(x[i + 2], x[i + 3]);
        __m256 d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
        y[i] = _mm256_shuffle_ps(a, c, 0x44);
        y[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        y[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        y[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* then the halves themselves */
        x[i] = _mm256_permute2f128_ps(y[i], y[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(y[i], y[i + 4], 0x31);
    }
}

#endif
