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

static inline __m512d next_term(__m512d p, __m512d f, double c)
{
    return _mm512_add_pd(_mm512_mul_pd(p, f), _mm512_set1_pd(c));
}

/* skv_logit_weight eight times. */
static inline __m512i weigh(const vectors *v, __m512d x)
{
    const __m512d round = _mm512_set1_pd(SKV_LOGIT_ROUND), whole = _mm512_set1_pd(SKV_LOGIT_WHOLE);
    __m512d t = _mm512_mul_pd(_mm512_sub_pd(x, v->max), v->factor);
    t = _mm512_max_pd(t, _mm512_set1_pd(SKV_LOGIT_LOWEST));
    const __m512d rounded = _mm512_add_pd(t, round);
    const __m512d f = _mm512_sub_pd(t, _mm512_sub_pd(rounded, round));
    __m512d p = next_term(_mm512_set1_pd(SKV_LOGIT_C9), f, SKV_LOGIT_C8);
    p = next_term(p, f, SKV_LOGIT_C7);
    p = next_term(p, f, SKV_LOGIT_C6);
    p = next_term(p, f, SKV_LOGIT_C5);
    p = next_term(p, f, SKV_LOGIT_C4);
    p = next_term(p, f, SKV_LOGIT_C3);
    p = next_term(p, f, SKV_LOGIT_C2);
    p = next_term(p, f, SKV_LOGIT_C1);
    p = next_term(p, f, SKV_LOGIT_C0);
    const __m512i power = _mm512_slli_epi64(_mm512_castpd_si512(rounded), SKV_LOGIT_POWER_BITS);
    p = _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(p), power));
    return _mm512_sub_epi64(_mm512_castpd_si512(_mm512_add_pd(p, whole)),
                            _mm512_castpd_si512(whole));
}

static inline __mmask16 inside_of(__m512 x, __m512 low, __m512 high)
{
    return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(x, low, _CMP_GE_OQ), x, high, _CMP_LE_OQ);
}

/* skv_logit_bucket eight times. */
static inline __m256i bucket_of(const vectors *v, __m512d x)
{
    const __m512d at = _mm512_mul_pd(_mm512_sub_pd(v->highest, x), v->per);
    return _mm512_cvttpd_epi32(_mm512_min_pd(at, _mm512_set1_pd(SKV_LOGIT_BUCKETS - 1)));
}

/* What is outside becomes minus infinity, which has no weight. */
static inline void spread16(uint64_t *sums, const vectors *v, __m512 x)
{
    uint32_t at[16];
    uint64_t weights[16];
    const __mmask16 inside = inside_of(x, v->low, v->high);
    if (inside == 0) return;
    x = _mm512_mask_blend_ps(inside, _mm512_set1_ps(-HUGE_VALF), x);
    const __m512d first = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d second = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    _mm256_storeu_si256((__m256i *)(void *)at, bucket_of(v, first));
    _mm256_storeu_si256((__m256i *)(void *)(at + 8), bucket_of(v, second));
    _mm512_storeu_si512(weights, weigh(v, first));
    _mm512_storeu_si512(weights + 8, weigh(v, second));
    for (size_t j = 0; j < 16; j++) sums[at[j]] += weights[j];
}

static void spread_avx512(uint64_t *sums, const skv_logit_row *row, const skv_logit_scale *s)
{
    const vectors v = vectors_of(s);
    float whole[SKV_LOGIT_BLOCK];
    for (size_t b = 0; b < skv_logit_blocks(row->n); b++) {
        if (!(row->maxima[b] >= s->low)) continue;
        const float *block = skv_logit_block(row->x, row->n, b, -HUGE_VALF, whole);
        for (size_t i = 0; i < SKV_LOGIT_BLOCK; i += 16) {
            spread16(sums, &v, _mm512_loadu_ps(block + i));
        }
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
    .spread = spread_avx512,
    .between = between_avx512,
};
