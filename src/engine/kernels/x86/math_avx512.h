/*
 * Sixteen numbers at a time: exponentials and hyperbolic tangents, elements of a KV page as f32,
 * and the transposition of a 16 x 16 block. For the AVX-512 sources only.
 *
 * The polynomials are minimax fits of 2^f (weighted by its value) made for these kernels.
 */
#ifndef SKV_KERNELS_X86_MATH_AVX512_H
#define SKV_KERNELS_X86_MATH_AVX512_H

#include <immintrin.h>

#include "kernels/kv_page.h"

/* The first n (at most 16) lanes. */
static inline __mmask16 skv_lanes16(size_t n)
{
    if (n >= 16) return 0xffff;
    return (__mmask16)((1u << n) - 1u);
}

/* The nearest whole numbers, without an exception. Without optimisation the intrinsic of gcc 12 is
 * a macro, which gives its builtin a mask of the other sign. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
static inline __m512 skv_nearest16(__m512 x)
{
    return _mm512_roundscale_ps(x, 0x08);
}
#pragma GCC diagnostic pop

/* 2^x within 2e-7 for softmax weights; minus infinity and deep underflow give 0. */
static inline __m512 skv_exp2_avx512(__m512 x)
{
    __m512 f = _mm512_reduce_ps(x, 0x09); /* x - floor(x), without an exception */
    __m512 p = _mm512_set1_ps(0x1.ec320ap-10f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.26900cp-7f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.c95446p-5f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ebd5a8p-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62e4f6p-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.fffffep-1f));
    return _mm512_scalef_ps(p, x); /* multiplies by 2^floor(x) */
}

/* 2^x within 8e-5, for weights that are rounded to bfloat16 next. */
static inline __m512 skv_exp2_coarse_avx512(__m512 x)
{
    __m512 f = _mm512_reduce_ps(x, 0x09);
    __m512 p = _mm512_set1_ps(0x1.3f96a4p-4f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.cefc4cp-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.64444cp-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.fff632p-1f));
    return _mm512_scalef_ps(p, x);
}

/* With n = round(x log2 e) and f = x log2 e - n: returns 2^f - 1, and n in *n. */
static inline __m512 skv_exp_parts_avx512(__m512 x, __m512 *n)
{
    const __m512 log2e = _mm512_set1_ps(0x1.715476p+0f);
    const __m512 log2e_low = _mm512_set1_ps(0x1.4ae0cp-26f);
    *n = skv_nearest16(_mm512_mul_ps(x, log2e));
    __m512 f = _mm512_fmadd_ps(x, log2e_low, _mm512_fmsub_ps(x, log2e, *n));
    __m512 p = _mm512_set1_ps(0x1.4308fap-13f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.5f07b4p-10f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.3b2ba0p-7f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.c6af6ep-5f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ebfbdep-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62e430p-1f));
    return _mm512_mul_ps(p, f);
}

/* e^x within 1 ulp or so; 0 and infinity beyond the range, NaN for NaN. */
static inline __m512 skv_exp_avx512(__m512 x)
{
    __m512 n;
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-105.0f), x));
    __m512 p = skv_exp_parts_avx512(x, &n);
    return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

/* tanh(x) = t / (t + 2) with t = e^2x - 1, which keeps its digits near zero. */
static inline __m512 skv_tanh_avx512(__m512 x)
{
    __m512 n;
    const __m512 one = _mm512_set1_ps(1.0f);
    x = _mm512_min_ps(_mm512_set1_ps(10.0f), _mm512_max_ps(_mm512_set1_ps(-10.0f), x));
    __m512 p = skv_exp_parts_avx512(_mm512_add_ps(x, x), &n);
    __m512 power = _mm512_scalef_ps(one, n);
    __m512 t = _mm512_fmadd_ps(p, power, _mm512_sub_ps(power, one));
    return _mm512_div_ps(t, _mm512_add_ps(t, _mm512_set1_ps(2.0f)));
}

/* skv_f32_to_bf16 sixteen times: exact for denormals too, where VCVTNEPS2BF16 is not. */
static inline __m256i skv_to_bf16_avx512(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i top = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i y = _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, top, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(y);
}

/* Sixteen e4m3 codes; the code of a NaN is taken for 480. */
static inline __m512 skv_fp8_to_f32_avx512(__m128i codes)
{
    __m512i c = _mm512_cvtepu8_epi32(codes);
    __m512i magnitude = _mm512_and_si512(c, _mm512_set1_epi32(0x7f));
    __m512i bits = _mm512_add_epi32(_mm512_slli_epi32(magnitude, 20), _mm512_set1_epi32(120 << 23));
    __mmask16 denormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(8));
    __m512 y = _mm512_mask_mul_ps(_mm512_castsi512_ps(bits), denormal,
                                  _mm512_cvtepi32_ps(magnitude), _mm512_set1_ps(0x1p-9f));
    __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(c, 7), 31);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(y), sign));
}

/* Elements i .. i + 15 of a row of a KV page as f32, 8-bit ones without their scale; lanes
 * outside `lanes` are 0 and not read. */
static inline __m512 skv_kv16_avx512(const unsigned char *row, skv_kv_type type, size_t i,
                                     __mmask16 lanes)
{
    if (type == SKV_KV_TYPE_F32) return _mm512_maskz_loadu_ps(lanes, row + 4 * i);
    if (type == SKV_KV_TYPE_BF16) {
        __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row + 2 * i));
        return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    }
    __m128i codes = _mm_maskz_loadu_epi8(lanes, row + i);
    return type == SKV_KV_TYPE_FP8 ? skv_fp8_to_f32_avx512(codes)
                                   : _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

/*
 * Sixteen rows of n units of 32 bits, `stride` bytes apart, become n rows of sixteen units,
 * ld units apart. Reads the rows in pieces of four units: beyond n in the last piece. Writes a row
 * more where n is odd.
 */
static inline void skv_columns16_avx512(unsigned char *to, size_t ld, const unsigned char *from,
                                        size_t stride, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        __m512i x[4];
        for (size_t r = 0; r < 4; r++) { /* lane l of x[r] is a piece of row 4 l + r */
            const unsigned char *at = from + r * stride + 4 * i;
            x[r] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)at));
            for (unsigned l = 1; l < 4; l++) {
                __m128i piece = _mm_loadu_si128((const void *)(at + 4 * l * stride));
                x[r] = _mm512_mask_broadcast_i32x4(x[r], (__mmask16)(0xfu << 4 * l), piece);
            }
        }
        __m512i a = _mm512_unpacklo_epi32(x[0], x[1]);
        __m512i b = _mm512_unpackhi_epi32(x[0], x[1]);
        __m512i c = _mm512_unpacklo_epi32(x[2], x[3]);
        __m512i d = _mm512_unpackhi_epi32(x[2], x[3]);
        unsigned char *row = to + i * ld * 4;
        _mm512_storeu_si512(row, _mm512_unpacklo_epi64(a, c));
        _mm512_storeu_si512(row + ld * 4, _mm512_unpackhi_epi64(a, c));
        if (i + 2 >= n) break;
        _mm512_storeu_si512(row + ld * 8, _mm512_unpacklo_epi64(b, d));
        _mm512_storeu_si512(row + ld * 12, _mm512_unpackhi_epi64(b, d));
    }
}

#endif
