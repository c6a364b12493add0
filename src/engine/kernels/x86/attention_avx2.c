/*
 * Attention with AVX2: f32 tiles of 6 x 16 held in 12 registers. Pages of 16 and 8 bits are
 * widened when they are packed; prompts over pages of int8 go to attention_int8_avx2.c.
 */
#include "kernels/x86/attention_avx2.h"

#include <immintrin.h>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"
#include "kernels/x86/math_avx2.h"

enum { FEW_VECTORS = 8 };

/* In assembly, since gcc 12 keeps sums of the intrinsic on the stack. */
INLINE vec vec_fma(vec x, vec y, vec z)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(z) : "x"(x), "x"(y));
    return z;
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
#include "kernels/attention_pack.inc"
#define TILES static const skv_attention_tiles tiles
#include "kernels/attention_level.inc"

static const skv_attention_ways ways = {
    .f32 = &tiles,
    .narrow = &tiles,
    .int8 = &skv_attention_tiles_int8_avx2,
};
#include "kernels/attention_run.inc"

const skv_attention_kernels skv_attention_kernels_avx2 =
    ATTENTION_KERNELS(skv_kv_store_avx2, skv_kv_load_avx2);
