/* Rows of logits with AVX2. Compiled without fused multiply-adds: see logits.h. */
#include <immintrin.h>
#include <math.h>

#include "kernels/logits.h"
#include "kernels/x86/math_avx2.h"

static void maxima_avx2(float *maxima, const float *x, size_t n)
{
    float whole[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(n); b++) {
        const float *block = skv_logit_block(x, n, b, -HUGE_VALF, whole);
        __m256 most[2] = {_mm256_set1_ps(-HUGE_VALF), _mm256_set1_ps(-HUGE_VALF)};
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) { /* a NaN is the first operand */
            most[0] = _mm256_max_ps(_mm256_loadu_ps(block + i), most[0]);
            most[1] = _mm256_max_ps(_mm256_loadu_ps(block + i + 8), most[1]);
        }
        maxima[b] = skv_max8_avx2(_mm256_max_ps(most[0], most[1]));
    }
}

typedef struct vectors {
    __m256 low, high;
    __m256d max, factor, highest, per;
} vectors;

static vectors vectors_of(const skv_logit_scale *s)
{
    return (vectors){.low = _mm256_set1_ps(s->low),
                     .high = _mm256_set1_ps(s->high),
                     .max = _mm256_set1_pd((double)s->max),
                     .factor = _mm256_set1_pd(s->factor),
                     .highest = _mm256_set1_pd((double)s->high),
                     .per = _mm256_set1_pd(s->per)};
}

static inline __m256d next_term(__m256d p, __m256d f, double c)
{
    return _mm256_add_pd(_mm256_mul_pd(p, f), _mm256_set1_pd(c));
}

/* skv_logit_weight four times. */
static inline __m256i weigh(const vectors *v, __m256d x)
{
    const __m256d round = _mm256_set1_pd(SKV_LOGIT_ROUND), whole = _mm256_set1_pd(SKV_LOGIT_WHOLE);
    __m256d t = _mm256_mul_pd(_mm256_sub_pd(x, v->max), v->factor);
    t = _mm256_max_pd(t, _mm256_set1_pd(SKV_LOGIT_LOWEST));
    const __m256d rounded = _mm256_add_pd(t, round);
    const __m256d f = _mm256_sub_pd(t, _mm256_sub_pd(rounded, round));
    __m256d p = next_term(_mm256_set1_pd(SKV_LOGIT_C9), f, SKV_LOGIT_C8);
    p = next_term(p, f, SKV_LOGIT_C7);
    p = next_term(p, f, SKV_LOGIT_C6);
    p = next_term(p, f, SKV_LOGIT_C5);
    p = next_term(p, f, SKV_LOGIT_C4);
    p = next_term(p, f, SKV_LOGIT_C3);
    p = next_term(p, f, SKV_LOGIT_C2);
    p = next_term(p, f, SKV_LOGIT_C1);
    p = next_term(p, f, SKV_LOGIT_C0);
    const __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(rounded), SKV_LOGIT_POWER_BITS);
    p = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), power));
    return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(p, whole)),
                            _mm256_castpd_si256(whole));
}

static inline __m256 inside_of(__m256 x, __m256 low, __m256 high)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ), _mm256_cmp_ps(x, high, _CMP_LE_OQ));
}

/* skv_logit_bucket four times. */
static inline __m128i bucket_of(const vectors *v, __m256d x)
{
    const __m256d at = _mm256_mul_pd(_mm256_sub_pd(v->highest, x), v->per);
    return _mm256_cvttpd_epi32(_mm256_min_pd(at, _mm256_set1_pd(SKV_LOGIT_BUCKETS - 1)));
}

/* What is outside becomes minus infinity, which has no weight. */
static inline void spread8(uint64_t *sums, const vectors *v, __m256 x)
{
    uint32_t at[8];
    uint64_t weights[8];
    const __m256 inside = inside_of(x, v->low, v->high);
    if (_mm256_movemask_ps(inside) == 0) return;
    x = _mm256_blendv_ps(_mm256_set1_ps(-HUGE_VALF), x, inside);
    const __m256d first = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d second = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    _mm_storeu_si128((__m128i *)(void *)at, bucket_of(v, first));
    _mm_storeu_si128((__m128i *)(void *)(at + 4), bucket_of(v, second));
    _mm256_storeu_si256((__m256i *)(void *)weights, weigh(v, first));
    _mm256_storeu_si256((__m256i *)(void *)(weights + 4), weigh(v, second));
    for (size_t j = 0; j < 8; j++) sums[at[j]] += weights[j];
}

static void spread_avx2(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    const vectors v = vectors_of(s);
    float whole[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(row->n); b++) {
        if (!(row->maxima[b] >= s->low)) continue;
        const float *block = skv_logit_block(row->x, row->n, b, -HUGE_VALF, whole);
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 8) {
            spread8(sums, &v, _mm256_loadu_ps(block + i));
        }
    }
}

static size_t between_avx2(uint32_t *ids, size_t most, const skv_logit_row *row, float low,
                           float high, size_t *i_block)
{
    const __m256 least = _mm256_set1_ps(low), largest = _mm256_set1_ps(high);
    float whole[SKV_LOGIT_BLOCK];
    size_t n = 0, b = *i_block;
    for (; b < skv_logit_blocks(row->n) && n + SKV_LOGIT_BLOCK <= most; b++) {
        if (!(row->maxima[b] >= low)) continue;
        const float *block = skv_logit_block(row->x, row->n, b, (float)NAN, whole);
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 8) {
            const __m256 x = _mm256_loadu_ps(block + i);
            unsigned found = (unsigned)_mm256_movemask_ps(inside_of(x, least, largest));
            for (; found != 0; found &= found - 1) {
                ids[n++] = (uint32_t)(b * SKV_LOGIT_BLOCK + i) + (uint32_t)__builtin_ctz(found);
            }
        }
    }
    *i_block = b;
    return n;
}

const skv_logit_kernels skv_logits_avx2 = {
    .maxima = maxima_avx2,
    .spread = spread_avx2,
    .between = between_avx2,
};
