/* The vectors of the AVX-512 sources of attention, for attention_level.inc. */
#ifndef SKV_KERNELS_X86_ATTENTION_AVX512_H
#define SKV_KERNELS_X86_ATTENTION_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx512.h"
#include "kernels/x86/vec_avx512.h"

skv_kv_store_fn skv_kv_store_avx512;
skv_kv_load_fn skv_kv_load_avx512;
extern const skv_attention_tiles skv_attention_tiles_avx512, skv_attention_tiles_avx512vnni;

enum { BLOCK_VECTORS = 4 };

INLINE float vec_most(vec x)
{
    return _mm512_reduce_max_ps(x);
}

INLINE bool vec_any_above(vec x, float limit)
{
    return _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
}

INLINE vec vec_exp2(vec x)
{
    return skv_exp2_avx512(x);
}

INLINE vec vec_tanh(vec x)
{
    return skv_tanh_avx512(x);
}

INLINE vec vec_see(vec x, uint32_t bits)
{
    return _mm512_mask_mov_ps(_mm512_set1_ps(-HUGE_VALF), (__mmask16)bits, x);
}

#endif
