/* The vectors of the AVX2 sources of attention, for attention_level.inc. */
#ifndef SKV_KERNELS_X86_ATTENTION_AVX2_H
#define SKV_KERNELS_X86_ATTENTION_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx2.h"
#include "kernels/x86/vec_avx2.h"

skv_kv_store_fn skv_kv_store_avx2;
skv_kv_load_fn skv_kv_load_avx2;
extern const skv_attention_tiles skv_attention_tiles_int8_avx2;

enum { BLOCK_VECTORS = 2 };

INLINE float vec_most(vec x)
{
    return skv_max8_avx2(x);
}

INLINE bool vec_any_above(vec x, float limit)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
}

INLINE vec vec_exp2(vec x)
{
    return skv_exp2_avx2(x);
}

INLINE vec vec_tanh(vec x)
{
    return skv_tanh_avx2(x);
}

INLINE vec vec_see(vec x, uint32_t bits)
{
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i byte = _mm256_set1_epi32((int)(bits & 0xff));
    __m256i seen = _mm256_cmpeq_epi32(_mm256_and_si256(byte, lane), lane);
    return _mm256_blendv_ps(_mm256_set1_ps(-HUGE_VALF), x, _mm256_castsi256_ps(seen));
}

#endif
