/* The vectors of matmul_i8.inc and matmul_q_level.inc on 512 bits. */
#ifndef SKV_KERNELS_X86_MATMUL_VEC_AVX512_H
#define SKV_KERNELS_X86_MATMUL_VEC_AVX512_H

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

INLINE ints ints_add(ints x, ints y)
{
    return _mm512_add_epi32(x, y);
}

INLINE ints ints_mul(ints x, ints y)
{
    return _mm512_mullo_epi32(x, y);
}

/* The low or the high nibbles, one to a byte. */
INLINE ints ints_load_nibbles(const void *x, bool high)
{
    ints bytes = ints_load(x);
    return _mm512_and_si512(high ? _mm512_srli_epi16(bytes, 4) : bytes, _mm512_set1_epi8(15));
}

/* x + 16 times bits 2u and 2u + 1 of every byte. */
INLINE ints ints_add_high(ints x, ints bits, const size_t u)
{
    switch (u) {
    case 0: bits = _mm512_slli_epi16(bits, 4); break;
    case 1: bits = _mm512_slli_epi16(bits, 2); break;
    case 2: break;
    default: bits = _mm512_srli_epi16(bits, 2); break;
    }
    return _mm512_or_si512(x, _mm512_and_si512(bits, _mm512_set1_epi8(0x30)));
}

/* Signed bytes + 128. */
INLINE ints ints_flip_signs(ints x)
{
    return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80));
}

/* A table of 16 bytes, and those of it that bytes of 0 to 15 name. */
INLINE ints ints_load_table(const void *x)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128(x));
}

INLINE ints ints_look_up(ints table, ints x)
{
    return _mm512_shuffle_epi8(table, x);
}

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec vec_set1(float x)
{
    return _mm512_set1_ps(x);
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

INLINE vec vec_sub(vec x, vec y)
{
    return _mm512_sub_ps(x, y);
}

INLINE vec vec_mul(vec x, vec y)
{
    return _mm512_mul_ps(x, y);
}

/* x * y + z. */
INLINE vec vec_fma(vec x, vec y, vec z)
{
    return _mm512_fmadd_ps(x, y, z);
}

INLINE vec vec_of_ints(ints x)
{
    return _mm512_cvtepi32_ps(x);
}

INLINE vec vec_load_bf16(const uint16_t *x)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

INLINE vec vec_load_f16(const uint16_t *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

INLINE vec vec_load_i8(const void *x)
{
    return vec_of_ints(_mm512_cvtepi8_epi32(_mm_loadu_si128(x)));
}

INLINE vec vec_load_u8(const void *x)
{
    return vec_of_ints(_mm512_cvtepu8_epi32(_mm_loadu_si128(x)));
}

/* Fetches the lines of a row of c to write while the tile is computed: they come from far away.
 * Assembly, because gcc 12 takes a function of mere prefetches for one without effect. */
INLINE void vec_fetch(const float *c)
{
    for (size_t j = 0; j < NR; j += 16) __asm__ volatile("prefetchw %0" : : "m"(c[j]));
}

/* sum + scales * scale * dot. */
INLINE vec vec_scale(vec sum, ints dot, vec scales, float scale)
{
    vec scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scales);
    return _mm512_fmadd_ps(scaled, _mm512_set1_ps(scale), sum);
}

#endif
