/* Rows of logits with AVX-512. Compiled without fused multiply-adds: see logits.h. */
#include <immintrin.h>
#include <math.h>

#include "kernels/logits.h"

static void maxima_avx512(float *maxima, const float *x, size_t n)
{
    float whole[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(n); b++) {
        const float *block = skv_logit_block(x, n, b, -HUGE_VALF, whole);
        __m512 most = _mm512_set1_ps(-HUGE_VALF);
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) { /* a NaN is the first operand */
            most = _mm512_max_ps(_mm512_loadu_ps(block + i), most);
        }
        maxima[b] = _mm512_reduce_max_ps(most);
    }
}

typedef struct vectors {
    __m512 low, high;
    __m512d max, factor, highest, per;
} vectors;

static vectors vectors_of(const skv_logit_scale *s)
{
    return (vectors){.low = _mm512_set1_ps(s->low),
                     .high = _mm512_set1_ps(s->high),
                     .max = _mm512_set1_pd((double)s->max),
                     .factor = _mm512_set1_pd(s->factor),
                     .highest = _mm512_set1_pd((double)s->high),
                     .per = _mm512_set1_pd(s->per)};
}

/* a * f + b */
static inline __m512d add(__m512d a, __m512d f, __m512d b)
{
    return _mm512_add_pd(_mm512_mul_pd(a, f), b);
}

static inline __m512d pair(double a, __m512d f, double b)
{
    return add(_mm512_set1_pd(a), f, _mm512_set1_pd(b));
}

/* skv_logit_weight eight times. */
static inline __m512i weigh(const vectors *v, __m512d x)
{
    const __m512d round = _mm512_set1_pd(SKV_LOGIT_ROUND), whole = _mm512_set1_pd(SKV_LOGIT_WHOLE);
    __m512d t = _mm512_mul_pd(_mm512_sub_pd(x, v->max), v->factor);
    t = _mm512_max_pd(t, _mm512_set1_pd(SKV_LOGIT_LOWEST));
    const __m512d rounded = _mm512_add_pd(t, round);
    const __m512d f = _mm512_sub_pd(t, _mm512_sub_pd(rounded, round));
    const __m512d f2 = _mm512_mul_pd(f, f), f4 = _mm512_mul_pd(f2, f2), f8 = _mm512_mul_pd(f4, f4);
    const __m512d p0 =
        add(pair(SKV_LOGIT_C3, f, SKV_LOGIT_C2), f2, pair(SKV_LOGIT_C1, f, SKV_LOGIT_C0));
    const __m512d p4 =
        add(pair(SKV_LOGIT_C7, f, SKV_LOGIT_C6), f2, pair(SKV_LOGIT_C5, f, SKV_LOGIT_C4));
    __m512d p =
        _mm512_add_pd(add(p4, f4, p0), _mm512_mul_pd(pair(SKV_LOGIT_C9, f, SKV_LOGIT_C8), f8));
    const __m512i power = _mm512_slli_epi64(_mm512_castpd_si512(rounded), SKV_LOGIT_POWER_BITS);
    p = _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(p), power));
    return _mm512_sub_epi64(_mm512_castpd_si512(_mm512_add_pd(p, whole)),
                            _mm512_castpd_si512(whole));
}

static inline __mmask16 inside_of(__m512 x, __m512 low, __m512 high)
{
    return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ), x, high, _CMP_LE_OQ);
}

/* What is outside becomes minus infinity, which has no weight. */
static inline __m512 allowed(const vectors *v, __m512 x)
{
    return _mm512_mask_blend_ps(inside_of(x, v->low, v->high), _mm512_set1_ps(-HUGE_VALF), x);
}

/* skv_logit_bucket eight times. */
static inline __m256i bucket_of(const vectors *v, __m512d x)
{
    const __m512d at = _mm512_mul_pd(_mm512_sub_pd(v->highest, x), v->per);
    return _mm512_cvttpd_epi32(_mm512_min_pd(at, _mm512_set1_pd(SKV_LOGIT_BUCKETS - 1)));
}

static void weigh_avx512(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    const vectors v = vectors_of(s);
    float whole[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(row->n); b++) {
        sums[b] = 0;
        if (!(row->maxima[b] >= s->low)) continue;
        const float *block = skv_logit_block(row->x, row->n, b, -HUGE_VALF, whole);
        __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) {
            const __m512 x = allowed(&v, _mm512_loadu_ps(block + i));
            sum[0] =
                _mm512_add_epi64(sum[0], weigh(&v, _mm512_cvtps_pd(_mm512_castps512_ps256(x))));
            sum[1] =
                _mm512_add_epi64(sum[1], weigh(&v, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))));
        }
        sums[b] = (uint64_t)_mm512_reduce_add_epi64(_mm512_add_epi64(sum[0], sum[1]));
    }
}

/* A block as buckets and weights. */
static inline void weigh_block(uint32_t *at, uint64_t *weights, const vectors *v,
                               const float *block)
{
    for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) {
        const __m512 x = allowed(v, _mm512_loadu_ps(block + i));
        const __m512d first = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
        const __m512d second = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
        _mm256_storeu_si256((__m256i *)(void *)(at + i), bucket_of(v, first));
        _mm256_storeu_si256((__m256i *)(void *)(at + i + 8), bucket_of(v, second));
        _mm512_storeu_si512(weights + i, weigh(v, first));
        _mm512_storeu_si512(weights + i + 8, weigh(v, second));
    }
}

static void spread_avx512(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
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

static size_t between_avx512(uint32_t *ids, size_t most, const skv_logit_row *row, float low,
                             float high, size_t *i_block)
{
    const __m512 least = _mm512_set1_ps(low), largest = _mm512_set1_ps(high);
    float whole[SKV_LOGIT_BLOCK];
    size_t n = 0, b = *i_block;
    for (; b < skv_logit_blocks(row->n) && n + SKV_LOGIT_BLOCK <= most; b++) {
        if (!(row->maxima[b] >= low)) continue;
        const float *block = skv_logit_block(row->x, row->n, b, (float)NAN, whole);
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) {
            unsigned found = inside_of(_mm512_loadu_ps(block + i), least, largest);
            for (; found != 0; found &= found - 1) {
                ids[n++] = (uint32_t)(b * SKV_LOGIT_BLOCK + i) + (uint32_t)__builtin_ctz(found);
            }
        }
    }
    *i_block = b;
    return n;
}

const skv_logit_kernels skv_logits_avx512 = {
    .maxima = maxima_avx512,
    .weigh = weigh_avx512,
    .spread = spread_avx512,
    .between = between_avx512,
};
