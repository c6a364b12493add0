/* The vectors of matmul_i8.inc on 256 bits. */
#ifndef SKV_KERNELS_X86_MATMUL_I8_AVX2_H
#define SKV_KERNELS_X86_MATMUL_I8_AVX2_H

#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx2.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, COLUMNS = SKV_NR256 / LANES, NR = SKV_NR256, MR = SKV_MR256, KC = SKV_KC256 };

typedef __m256 vec;
typedef __m256i ints;

INLINE ints ints_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}

INLINE ints ints_load(const void *x)
{
    return _mm256_loadu_si256(x);
}

INLINE void ints_store(int32_t *y, ints x)
{
    _mm256_storeu_si256((__m256i *)(void *)y, x);
}

/* int8 codes, two to a lane, as int16. */
INLINE ints ints_load_wide(const void *x)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(x));
}

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec vec_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

INLINE void vec_store(float *y, vec x)
{
    _mm256_storeu_ps(y, x);
}

INLINE vec vec_add(vec x, vec y)
{
    return _mm256_add_ps(x, y);
}

INLINE vec vec_load_bf16(const uint16_t *x)
{
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* sum + scales * scale * dot. */
INLINE vec vec_scale(vec sum, ints dot, vec scales, float scale)
{
    vec scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), scales);
    return _mm256_fmadd_ps(scaled, _mm256_set1_ps(scale), sum);
}

#endif
