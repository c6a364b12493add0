/* Helpers that the BF16 sources of attention share: pairs of bfloat16, and rows of a page as
 * such. */
#ifndef SKV_KERNELS_X86_ATTENTION_AVX512BF16_H
#define SKV_KERNELS_X86_ATTENTION_AVX512BF16_H

#include <immintrin.h>

#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx512.h"

extern const skv_attention_tiles skv_attention_tiles_avx512bf16;
/* attention_few_avx512bf16.c */
float skv_few_q_avx512bf16(void *q, size_t n, skv_kv_type type);
void skv_few_scores_avx512bf16(const skv_tile_few *f, const skv_tile_page *page);
void skv_few_values_avx512bf16(const skv_tile_few *f, const skv_tile_page *page);

/* Two times sixteen f32 rounded to bfloat16, `low` first. */
static inline __attribute__((always_inline)) __m512i skv_round_pair_avx512(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

static inline __attribute__((always_inline)) __m512 skv_dot_pairs_avx512(__m512 sum, __m512i x,
                                                                         __m512i y)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

/* Thirty-two e4m3 codes, in the low halves of 16 bits; each is a bfloat16 exactly. */
static inline __attribute__((always_inline)) __m512i skv_fp8_to_bf16_avx512(__m512i codes)
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
static inline __attribute__((always_inline)) __m512i
skv_load32_avx512(const unsigned char *row, skv_kv_type type, size_t d, size_t n)
{
    bool all = n - d >= 32;
    __mmask32 lanes = all ? 0 : ((__mmask32)1 << (n - d)) - 1;
    if (type == SKV_KV_TYPE_BF16) {
        const void *at = row + 2 * d;
        return all ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi16(lanes, at);
    }
    const void *at = row + d;
    __m256i codes = all ? _mm256_loadu_si256(at) : _mm256_maskz_loadu_epi8(lanes, at);
    if (type == SKV_KV_TYPE_FP8) return skv_fp8_to_bf16_avx512(_mm512_cvtepu8_epi16(codes));
    __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes));
    __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1));
    return skv_round_pair_avx512(_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high));
}

/* Elements 0 .. 15 of x and y, interleaved: x0 y0 x1 y1 .. */
static inline __attribute__((always_inline)) __m512i skv_pairs_low_avx512(__m512i x, __m512i y)
{
    const __m512i order = _mm512_set_epi32(
        0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007,
        0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    return _mm512_permutex2var_epi16(x, order, y);
}

/* The same of elements 16 .. 31. */
static inline __attribute__((always_inline)) __m512i skv_pairs_high_avx512(__m512i x, __m512i y)
{
    const __m512i order = _mm512_set_epi32(
        0x3f001f, 0x3e001e, 0x3d001d, 0x3c001c, 0x3b001b, 0x3a001a, 0x390019, 0x380018, 0x370017,
        0x360016, 0x350015, 0x340014, 0x330013, 0x320012, 0x310011, 0x300010);
    return _mm512_permutex2var_epi16(x, order, y);
}

#endif
