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

/* a * f + b */
static inline __m256d add(__m256d a, __m256d f, __m256d b)
{
    return _mm256_add_pd(_mm256_mul_pd(a, f), b);
}

static inline __m256d pair(double a, __m256d f, double b)
{
    return add(_mm256_set1_pd(a), f, _mm256_set1_pd(b));
}

/* skv_logit_weight four times. */
static inline __m256i weigh(const vectors *v, __m256d x)
{
    const __m256d round = _mm256_set1_pd(SKV_LOGIT_ROUND), whole = _mm256_set1_pd(SKV_LOGIT_WHOLE);
    __m256d t = _mm256_mul_pd(_mm256_sub_pd(x, v->max), v->factor);
    t = _mm256_max_pd(t, _mm256_set1_pd(SKV_LOGIT_LOWEST));
    const __m256d rounded = _mm256_add_pd(t, round);
    const __m256d f = _mm256_sub_pd(t, _mm256_sub_pd(rounded, round));
    const __m256d f2 = _mm256_mul_pd(f, f), f4 = _mm256_mul_pd(f2, f2), f8 = _mm256_mul_pd(f4, f4);
    const __m256d p0 =
        add(pair(SKV_LOGIT_C3, f, SKV_LOGIT_C2), f2, pair(SKV_LOGIT_C1, f, SKV_LOGIT_C0));
    const __m256d p4 =
        add(pair(SKV_LOGIT_C7, f, SKV_LOGIT_C6), f2, pair(SKV_LOGIT_C5, f, SKV_LOGIT_C4));
    __m256d p =
        _mm256_add_pd(add(p4, f4, p0), _mm256_mul_pd(pair(SKV_LOGIT_C9, f, SKV_LOGIT_C8), f8));
    const __m256i power = _mm256_slli_epi64(_mm256_castpd_si256(rounded), SKV_LOGIT_POWER_BITS);
    p = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(p), power));
    return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(p, whole)),
                            _mm256_castpd_si256(whole));
}

static inline __m256 inside_of(__m256 x, __m256 low, __m256 high)
{
    return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_GE_OQ), _mm256_cmp_ps(x, high, _CMP_LE_OQ));
}

/* What is outside becomes minus infinity, which has no weight. */
static inline __m256 allowed(const vectors *v, __m256 x)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-HUGE_VALF), x, inside_of(x, v->low, v->high));
}

/* skv_logit_bucket four times. */
static inline __m128i bucket_of(const vectors *v, __m256d x)
{
    const __m256d at = _mm256_mul_pd(_mm256_sub_pd(v->highest, x), v->per);
    return _mm256_cvttpd_epi32(_mm256_min_pd(at, _mm256_set1_pd(SKV_LOGIT_BUCKETS - 1)));
}

static void weigh_avx2(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    const vectors v = vectors_of(s);
    float whole[SKV_LOGIT_BLOCK];
    uint64_t lanes[4];
    for (size_t b = 0; b < skv_logit_blocks(row->n); b++) {
        sums[b] = 0;
        if (!(row->maxima[b] >= s->low)) continue;
        const float *block = skv_logit_block(row->x, row->n, b, -HUGE_VALF, whole);
        __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 8) {
            const __m256 x = allowed(&v, _mm256_loadu_ps(block + i));
            sum[0] =
                _mm256_add_epi64(sum[0], weigh(&v, _mm256_cvtps_pd(_mm256_castps256_ps128(x))));
            sum[1] =
                _mm256_add_epi64(sum[1], weigh(&v, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))));
        }
        _mm256_storeu_si256((__m256i *)(void *)lanes, _mm256_add_epi64(sum[0], sum[1]));
        for (size_t i = 0; i < 4; i++) sums[b] += lanes[i];
    }
}

/* A block as buckets and weights. */
static inline void weigh_block(uint32_t *at, uint64_t *weights, const vectors *v,
                               const float *block)
{
    for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 8) {
        const __m256 x = allowed(v, _mm256_loadu_ps(block + i));
        const __m256d first = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
        const __m256d second = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
        _mm_storeu_si128((__m128i *)(void *)(at + i), bucket_of(v, first));
        _mm_storeu_si128((__m128i *)(void *)(at + i + 4), bucket_of(v, second));
        _mm256_storeu_si256((__m256i *)(void *)(weights + i), weigh(v, first));
        _mm256_storeu_si256((__m256i *)(void *)(weights + i + 4), weigh(v, second));
    }
}

static void spread_avx2(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    const vectors v = vectors_of(s);
    float whole[SKV_LOGIT_BLOCK];
    uint32_t at[SKV_LOGIT_BLOCK];
    uint64_t weights[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(row->n); b++) {
        if (!(row->maxima[b] >= s->low)) continue;
        weigh_block(at, weights, &v, skv_logit_block(row->x, row->n, b, -HUGE_VALF, whole));
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i++) sums[at[i]] += weights[i];
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
    .weigh = weigh_avx2,
    .spread = spread_avx2,
    .between = between_avx2,
};
