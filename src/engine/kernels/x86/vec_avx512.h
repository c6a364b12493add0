/* Vectors of 512 bits. For the sources of a level that has them. */
#ifndef SKV_KERNELS_X86_VEC_AVX512_H
#define SKV_KERNELS_X86_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define V(name) _mm512_##name
#define AND V(and_si512)
#define OR V(or_si512)
#define XOR V(xor_si512)
#define LOAD_BITS(x) _mm512_loadu_si512(x)
#define STORE_BITS(y, x) _mm512_storeu_si512(y, x)
#define LOAD_HALF(x) _mm256_loadu_si256((const __m256i *)(const void *)(x))
#define LOAD_QUARTER(x) _mm_loadu_si128((const __m128i *)(const void *)(x))
#define REPEAT_128(x) _mm512_broadcast_i32x4(x)
#define BITS_OF_FLOATS(x) V(castps_si512)(x)
#define FLOATS_OF_BITS(x) V(castsi512_ps)(x)

enum { LANES = 16 };

typedef __m512 vec;
typedef __m512i ints;

#include "kernels/x86/vec.inc"

#endif
