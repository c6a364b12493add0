/*
 * Attention with AVX2: f32 tiles of 6 x 16 held in 12 registers. Pages of 16 and 8 bits are
 * widened when they are packed.
 */
#include "kernels/x86/attention_avx2.h"

#include <immintrin.h>
#include <math.h>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx2.h"

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, BLOCK_VECTORS = 2, FEW_VECTORS = 8 };

typedef __m256 vec;

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec vec_set1(float x)
{
    return _mm256_set1_ps(x);
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

INLINE vec vec_sub(vec x, vec y)
{
    return _mm256_sub_ps(x, y);
}

INLINE vec vec_mul(vec x, vec y)
{
    return _mm256_mul_ps(x, y);
}

/* In assembly, since gcc 12 keeps sums of the intrinsic on the stack. */
INLINE vec vec_fma(vec x, vec y, vec z)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(z) : "x"(x), "x"(y));
    return z;
}

INLINE vec vec_max(vec x, vec y)
{
    return _mm256_max_ps(x, y);
}

INLINE float vec_first(vec x)
{
    return _mm256_cvtss_f32(x);
}

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

INLINE vec vec_load_kv(const unsigned char *row, skv_kv_type type, size_t d, size_t n)
{
    return skv_kv8_avx2(row, type, d, n);
}

INLINE void vec_transpose(vec x[LANES])
{
    skv_transpose8_avx2(x);
}

INLINE vec vec_sums(const vec x[LANES])
{
    vec y[4];
    for (size_t i = 0; i < 4; i++) y[i] = _mm256_hadd_ps(x[2 * i], x[2 * i + 1]);
    vec low = _mm256_hadd_ps(y[0], y[1]), high = _mm256_hadd_ps(y[2], y[3]);
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                         _mm256_permute2f128_ps(low, high, 0x31));
}

#include "kernels/attention_f32.inc"
#include "kernels/attention_few_f32.inc"
#define FEW_SCORES few_scores
#define FEW_VALUES few_values
#include "kernels/attention_level.inc"

const skv_attention_kernels skv_attention_kernels_avx2 = {
    .kv_store = skv_kv_store_avx2,
    .kv_load = skv_kv_load_avx2,
    .tokens = skv_attention_tokens_tiles,
    .scratch = skv_attention_scratch_tiles,
    .attention = run,
    .part = run_part,
};
