/* The vectors of matmul_i8.inc on 512 bits. */
#ifndef SKV_KERNELS_X86_MATMUL_I8_AVX512_H
#define SKV_KERNELS_X86_MATMUL_I8_AVX512_H

#include <immintrin.h>

#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/x86/matmul_pack.h"
#include "kernels/x86/matmul_tile_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16, COLUMNS = SKV_NR512 / LANES, NR = SKV_NR512, MR = SKV_MR512, KC = SKV_KC512 };

typedef __m512 vec;
typedef __m512i ints;

INLINE ints ints_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}

INLINE ints ints_load(const void *x)
{
    return _mm512_loadu_si512(x);
}

INLINE void ints_store(int32_t *y, ints x)
{
    _mm512_storeu_si512(y, x);
}

/* int8 codes, two to a lane, as int16. */
INLINE ints ints_load_wide(const void *x)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(x));
}

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec vec_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

INLINE void vec_store(float *y, vec x)
{
    _mm512_storeu_ps(y, x);
}

INLINE vec vec_add(vec x, vec y)
{
    return _mm512_add_ps(x, y);
}

INLINE vec vec_load_bf16(const uint16_t *x)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* sum + scales * scale * dot. */
INLINE vec vec_scale(vec sum, ints dot, vec scales, float scale)
{
    vec scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scales);
    return _mm512_fmadd_ps(scaled, _mm512_set1_ps(scale), sum);
}

#endif
