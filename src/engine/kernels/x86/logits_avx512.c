/* Rows of logits with AVX-512. Compiled without fused multiply-adds: see logits.h. */
#include <immintrin.h>
#include <math.h>

#include "kernels/logits.h"

static void maxima_avx512(float *maxima, const float *x, size_t n)
{
    float copy[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(n); b++) {
        const float *block = skv_logit_block(x, n, b, -HUGE_VALF, copy);
        __m512 most = _mm512_set1_ps(-HUGE_VALF);
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) { /* a NaN is the first operand */
            most = _mm512_max_ps(_mm512_loadu_ps(block + i), most);
        }
        maxima[b] = _mm512_reduce_max_ps(most);
    }
}

enum { LANES = 16 };
typedef __m512 vec;
typedef __mmask16 mask;
typedef __m512d wide;
typedef __m512i whole;

#define vec_load _mm512_loadu_ps
#define vec_set1 _mm512_set1_ps
#define wide_set1 _mm512_set1_pd
#define wide_add _mm512_add_pd
#define wide_sub _mm512_sub_pd
#define wide_mul _mm512_mul_pd
#define wide_max _mm512_max_pd
#define wide_min _mm512_min_pd
#define whole_zero _mm512_setzero_si512
#define whole_add _mm512_add_epi64
#define whole_sub _mm512_sub_epi64
#define whole_shift _mm512_slli_epi64
#define whole_of _mm512_castpd_si512
#define wide_of _mm512_castsi512_pd
#define whole_sum(x) ((uint64_t)_mm512_reduce_add_epi64(x))
#define whole_store _mm512_storeu_si512
#define mask_bits(m) ((unsigned)(m))
#define wide_first(x) _mm512_cvtps_pd(_mm512_castps512_ps256(x))
#define wide_second(x) _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))
#define KERNEL(name) name##_avx512

static inline mask vec_inside(vec x, vec low, vec high)
{
    return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ), x, high, _CMP_LE_OQ);
}

static inline vec vec_allow(mask m, vec x)
{
    return _mm512_mask_blend_ps(m, _mm512_set1_ps(-HUGE_VALF), x);
}

static inline void store_cut(uint32_t *at, wide x)
{
    _mm256_storeu_si256((__m256i *)(void *)at, _mm512_cvttpd_epi32(x));
}

#include "kernels/x86/logits_level.inc"

const skv_logit_kernels skv_logits_avx512 = {
    .maxima = maxima_avx512,
    .weigh = weigh_avx512,
    .spread = spread_avx512,
    .between = between_avx512,
};
