/* Rows of logits with AVX2. Compiled without fused multiply-adds: see logits.h. */
#include <immintrin.h>
#include <math.h>

#include "kernels/logits.h"
#include "kernels/x86/math_avx2.h"

static void maxima_avx2(float *maxima, const float *x, size_t n)
{
    float copy[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(n); b++) {
        const float *block = skv_logit_block(x, n, b, -HUGE_VALF, copy);
        __m256 most[2] = {_mm256_set1_ps(-HUGE_VALF), _mm256_set1_ps(-HUGE_VALF)};
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) { /* a NaN is the first operand */
            most[0] = _mm256_max_ps(_mm256_loadu_ps(block + i), most[0]);
            most[1] = _mm256_max_ps(_mm256_loadu_ps(block + i + 8), most[1]);
        }
        maxima[b] = skv_max8_avx2(_mm256_max_ps(most[0], most[1]));
    }
}

enum { LANES = 8 };
typedef __m256 vec, mask;
typedef __m256d wide;
typedef __m256i whole;

#define vec_load _mm256_loadu_ps
#define vec_set1 _mm256_set1_ps
#define wide_set1 _mm256_set1_pd
#define wide_add _mm256_add_pd
#define wide_sub _mm256_sub_pd
#define wide_mul _mm256_mul_pd
#define wide_max _mm256_max_pd
#define wide_min _mm256_min_pd
#define whole_zero _mm256_setzero_si256
#define whole_add _mm256_add_epi64
#define whole_sub _mm256_sub_epi64
#define whole_shift _mm256_slli_epi64
#define whole_of _mm256_castpd_si256
#define wide_of _mm256_castsi256_pd
#define mask_bits(m) ((unsigned)_mm256_movemask_ps(m))
#define wide_first(x) _mm256_cvtps_pd(_mm256_castps256_ps128(x))
#define wide_second(x) _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))
#define KERNEL(name) name##_avx2

static inline mask vec_inside(vec x, vec low, vec high)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ), _mm256_cmp_ps(x, high, _CMP_LE_OQ));
}

static inline vec vec_allow(mask m, vec x)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-HUGE_VALF), x, m);
}

static inline void store_cut(uint32_t *at, wide x)
{
    _mm_storeu_si128((__m128i *)(void *)at, _mm256_cvttpd_epi32(x));
}

static inline void whole_store(uint64_t *at, whole x)
{
    _mm256_storeu_si256((__m256i *)(void *)at, x);
}

static inline uint64_t whole_sum(whole x)
{
    uint64_t lanes[4];
    whole_store(lanes, x);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

#include "kernels/x86/logits_level.inc"

const skv_logit_kernels skv_logits_avx2 = {
    .maxima = maxima_avx2,
    .weigh = weigh_avx2,
    .spread = spread_avx2,
    .between = between_avx2,
};
