/* Vectors of 256 bits. For the sources of a level that has them. */
#ifndef SKV_KERNELS_X86_VEC_AVX2_H
#define SKV_KERNELS_X86_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define V(name) _mm256_##name
#define AND V(and_si256)
#define OR V(or_si256)
#define XOR V(xor_si256)
#define LOAD_BITS(x) _mm256_loadu_si256((const __m256i *)(const void *)(x))
#define STORE_BITS(y, x) _mm256_storeu_si256((__m256i *)(void *)(y), x)
#define LOAD_HALF(x) _mm_loadu_si128((const __m128i *)(const void *)(x))
#define LOAD_QUARTER(x) _mm_loadl_epi64((const __m128i *)(const void *)(x))
#define REPEAT_128(x) _mm256_broadcastsi128_si256(x)
#define BITS_OF_FLOATS(x) V(castps_si256)(x)
#define FLOATS_OF_BITS(x) V(castsi256_ps)(x)

enum { LANES = 8 };

typedef __m256 vec;
typedef __m256i ints;

#include "kernels/x86/vec.inc"

#endif
