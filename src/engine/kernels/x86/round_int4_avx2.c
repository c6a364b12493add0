/*
 * Rounding floats to 4 bits with AVX2: a group is four vectors, and all its scales are made at
 * once.
 */
#include <immintrin.h>
#include <math.h>

#include "base/quant.h"
#include "kernels/matmul.h"
#include "kernels/round_int4.h"

enum {
    LANES = SKV_ROUND_SUMS, /* 8 floats, a sum a lane */
    VECTORS = SKV_QUANT_GROUP / LANES,
    TRIES = 2 * LANES /* scales are made for whole vectors */
};

/* The scales that are tried: as f16, as floats, and their inverses, 0 for 0. */
typedef struct scales_tried {
    uint16_t halves[TRIES];
    float values[TRIES], inverses[TRIES];
} scales_tried;

static inline __m256 nearest_level(__m256 v)
{
    v = _mm256_max_ps(v, _mm256_set1_ps(-8.0F));
    v = _mm256_min_ps(v, _mm256_set1_ps(7.0F));
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* The first element of largest magnitude of a group. */
static inline float extreme(const float *x, const __m256 v[VECTORS])
{
    const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 most = _mm256_setzero_ps();
    unsigned where = 0;
    for (size_t i = 0; i < VECTORS; i++) most = _mm256_max_ps(_mm256_and_ps(v[i], no_sign), most);
    most = _mm256_max_ps(most, _mm256_permute2f128_ps(most, most, 1));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, _MM_SHUFFLE(1, 0, 3, 2)));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, _MM_SHUFFLE(2, 3, 0, 1)));
    for (size_t i = 0; i < VECTORS; i++) {
        __m256 is = _mm256_cmp_ps(_mm256_and_ps(v[i], no_sign), most, _CMP_EQ_OQ);
        where |= (unsigned)_mm256_movemask_ps(is) << i * LANES;
    }
    return _mm256_cvtss_f32(most) > 0.0F ? x[__builtin_ctz(where)] : 0.0F;
}

static inline void make_scales(scales_tried *s, float most)
{
    const __m256 one = _mm256_set1_ps(1.0F), zero = _mm256_setzero_ps();
    for (int t = 0; t < TRIES; t += LANES) {
        float levels[LANES];
        for (int i = 0; i < LANES; i++) levels[i] = skv_round_level(t + i);
        __m256 exact = _mm256_div_ps(_mm256_set1_ps(most), _mm256_loadu_ps(levels));
        __m128i half = _mm256_cvtps_ph(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m256 value = _mm256_cvtph_ps(half);
        __m256 is_zero = _mm256_cmp_ps(value, zero, _CMP_EQ_OQ);
        _mm_storeu_si128((__m128i *)(void *)(s->halves + t), half);
        _mm256_storeu_ps(s->values + t, value);
        _mm256_storeu_ps(s->inverses + t, _mm256_andnot_ps(is_zero, _mm256_div_ps(one, value)));
    }
}

/* The squared errors of a group for a scale, in eight sums. */
static inline __m256 error_sums(const __m256 v[VECTORS], float scale, float inverse)
{
    const __m256 by = _mm256_set1_ps(scale), with = _mm256_set1_ps(inverse);
    __m256 sums = _mm256_setzero_ps();
    for (size_t i = 0; i < VECTORS; i++) {
        __m256 level = nearest_level(_mm256_mul_ps(v[i], with));
        __m256 miss = _mm256_sub_ps(_mm256_mul_ps(level, by), v[i]);
        sums = _mm256_add_ps(sums, _mm256_mul_ps(miss, miss));
    }
    return sums;
}

/* The totals of four times eight sums, added in pairs of neighbours; infinity for NaN. */
static inline __m128 totals(const __m256 s[4])
{
    __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
    __m128 all = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
    return _mm_min_ps(all, _mm_set1_ps(INFINITY));
}

/* The first scale of least error; TRIES where none has a finite one. Without branches: which scale
 * is best cannot be predicted. */
static inline unsigned choose(const __m256 v[VECTORS], const scales_tried *s)
{
    _Static_assert((int)SKV_ROUND_TRIES == LANES + 1, "errors of two fours and one");
    __m256 sums[SKV_ROUND_TRIES];
    for (size_t t = 0; t < SKV_ROUND_TRIES; t++) {
        sums[t] = error_sums(v, s->values[t], s->inverses[t]);
    }
    const __m256 last[4] = {sums[8], sums[8], sums[8], sums[8]};
    const __m128 a = totals(sums), b = totals(sums + 4), c = totals(last);
    __m128 least = _mm_min_ps(_mm_min_ps(a, b), c);
    least = _mm_min_ps(least, _mm_movehl_ps(least, least));
    least = _mm_min_ss(least, _mm_movehdup_ps(least));
    if (!(_mm_cvtss_f32(least) < INFINITY)) return TRIES;
    least = _mm_shuffle_ps(least, least, 0);
    return (unsigned)__builtin_ctz((unsigned)_mm_movemask_ps(_mm_cmpeq_ps(a, least)) |
                                   (unsigned)_mm_movemask_ps(_mm_cmpeq_ps(b, least)) << 4 |
                                   (unsigned)_mm_movemask_ps(_mm_cmpeq_ps(c, least)) << 8);
}

/* codes [32] of a group for the inverse of its scale. */
static inline void put_codes(uint8_t *codes, const __m256 v[VECTORS], float inverse)
{
    const __m256 with = _mm256_set1_ps(inverse);
    __m256i n[VECTORS];
    for (size_t i = 0; i < VECTORS; i++) {
        n[i] = _mm256_cvtps_epi32(nearest_level(_mm256_mul_ps(v[i], with)));
    }
    /* Packing works within halves of 128 bits, so fours of bytes are in turns of halves then. */
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    bytes = _mm256_add_epi8(bytes, _mm256_set1_epi8(8));
    _mm256_storeu_si256((__m256i *)(void *)codes, bytes);
}

void skv_round_int4_avx2(uint8_t *codes, uint16_t *scales, const float *x, size_t K)
{
    for (size_t k = 0; k < K; k += SKV_QUANT_GROUP) {
        scales_tried s;
        __m256 v[VECTORS];
        for (size_t i = 0; i < VECTORS; i++) v[i] = _mm256_loadu_ps(x + k + i * LANES);
        make_scales(&s, extreme(x + k, v));
        const unsigned t = choose(v, &s);
        scales[k / SKV_QUANT_GROUP] = t < TRIES ? s.halves[t] : 0;
        put_codes(codes + k, v, t < TRIES ? s.inverses[t] : 0.0F);
    }
}
