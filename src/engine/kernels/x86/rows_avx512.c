/* Rows of activations with AVX-512. Tails are masked, so no element beyond n is touched. */
#include <immintrin.h>
#include <math.h>

#include "kernels/rows.h"
#include "kernels/x86/math_avx512.h"

static __m512 load16(const float *x, size_t i, size_t n)
{
    return _mm512_maskz_loadu_ps(skv_lanes16(n - i), x + i);
}

static void store16(float *y, size_t i, size_t n, __m512 v)
{
    _mm512_mask_storeu_ps(y + i, skv_lanes16(n - i), v);
}

static float dot_avx512(const float *x, const float *y, size_t n)
{
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                     _mm512_setzero_ps()};
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (size_t v = 0; v < 4; v++) {
            __m512 a = _mm512_loadu_ps(x + i + 16 * v);
            sum[v] = _mm512_fmadd_ps(a, _mm512_loadu_ps(y + i + 16 * v), sum[v]);
        }
    }
    for (; i < n; i += 16) sum[0] = _mm512_fmadd_ps(load16(x, i, n), load16(y, i, n), sum[0]);
    __m512 all = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    return _mm512_reduce_add_ps(all);
}

static void rmsnorm_avx512(float *y, const float *x, const float *w, float w_offset, float eps,
                           size_t n)
{
    __m512 inverse = _mm512_set1_ps(1.0f / sqrtf(dot_avx512(x, x, n) / (float)n + eps));
    __m512 offset = _mm512_set1_ps(w_offset);
    for (size_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(load16(x, i, n), inverse);
        if (w) v = _mm512_mul_ps(v, _mm512_add_ps(load16(w, i, n), offset));
        store16(y, i, n, v);
    }
}

static void rope_avx512(float *x, const float *cos, const float *sin, size_t n_rot)
{
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i += 16) {
        __m512 a = load16(x, i, half);
        __m512 b = load16(x + half, i, half);
        __m512 c = load16(cos, i, half);
        __m512 s = load16(sin, i, half);
        store16(x, i, half, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
        store16(x + half, i, half, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
    }
}

/* x / (1 + e^-z): e^-z is infinite or 0 at the ends, never a NaN. */
static __m512 gated(__m512 x, __m512 z)
{
    __m512 e = skv_exp_avx512(_mm512_sub_ps(_mm512_setzero_ps(), z));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

static void silu_glu_avx512(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __m512 x = load16(gate, i, n);
        store16(h, i, n, _mm512_mul_ps(gated(x, x), load16(up, i, n)));
    }
}

/* x/2 (1 + tanh(u)) = x / (1 + e^-2u) */
static void gelu_tanh_glu_avx512(float *h, const float *gate, const float *up, size_t n)
{
    const __m512 c1 = _mm512_set1_ps(1.5957691216f); /* 2 sqrt(2 / pi) */
    const __m512 c3 = _mm512_set1_ps(1.5957691216f * 0.044715f);
    for (size_t i = 0; i < n; i += 16) {
        __m512 x = load16(gate, i, n);
        __m512 z = _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), c3, c1));
        store16(h, i, n, _mm512_mul_ps(gated(x, z), load16(up, i, n)));
    }
}

static void sigmoid_glu_avx512(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        store16(h, i, n, gated(load16(up, i, n), load16(gate, i, n)));
    }
}

static void axpy_avx512(float *y, float a, const float *x, size_t n)
{
    __m512 factor = _mm512_set1_ps(a);
    for (size_t i = 0; i < n; i += 16) {
        store16(y, i, n, _mm512_fmadd_ps(factor, load16(x, i, n), load16(y, i, n)));
    }
}

static void softcap_avx512(float *x, float cap, size_t n)
{
    __m512 c = _mm512_set1_ps(cap);
    for (size_t i = 0; i < n; i += 16) {
        __m512 t = skv_tanh_avx512(_mm512_div_ps(load16(x, i, n), c));
        store16(x, i, n, _mm512_mul_ps(c, t));
    }
}

static float max_of(const float *x, size_t n)
{
    const __m512 low = _mm512_set1_ps(-HUGE_VALF);
    __m512 most[4] = {low, low, low, low};
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (size_t v = 0; v < 4; v++) {
            most[v] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * v), most[v]);
        }
    }
    for (; i < n; i += 16) {
        __m512 v = _mm512_mask_loadu_ps(low, skv_lanes16(n - i), x + i);
        most[0] = _mm512_max_ps(v, most[0]);
    }
    return _mm512_reduce_max_ps(
        _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3])));
}

static size_t index_of(const float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 lanes = skv_lanes16(n - i);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        __mmask16 same = _mm512_mask_cmp_ps_mask(lanes, v, _mm512_set1_ps(value), _CMP_EQ_OQ);
        if (same) return i + (size_t)__builtin_ctz(same);
    }
    return 0;
}

static float logsumexp_avx512(const float *x, size_t n, size_t *i_max)
{
    float max = max_of(x, n);
    if (i_max) *i_max = index_of(x, n, max);
    if (isinf(max)) return max;
    __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 m = _mm512_set1_ps(max);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t v = 0; v < 2; v++) {
            __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + i + 16 * v), m);
            sum[v] = _mm512_add_ps(sum[v], skv_exp_avx512(d));
        }
    }
    for (; i < n; i += 16) {
        __m512 e = skv_exp_avx512(_mm512_sub_ps(load16(x, i, n), m));
        sum[0] = _mm512_mask_add_ps(sum[0], skv_lanes16(n - i), sum[0], e);
    }
    return max + logf(_mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1])));
}

static void add_exp_avx512(float *y, const float *x, float shift, size_t n)
{
    const __m512 s = _mm512_set1_ps(shift);
    for (size_t i = 0; i < n; i += 16) {
        __m512 e = skv_exp_avx512(_mm512_sub_ps(load16(x, i, n), s));
        store16(y, i, n, _mm512_add_ps(load16(y, i, n), e));
    }
}

static void from_bf16_avx512(float *y, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __m512i v = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(skv_lanes16(n - i), x + i));
        store16(y, i, n, _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)));
    }
}

static void to_bf16_avx512(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __m256i v = skv_to_bf16_avx512(load16(x, i, n));
        _mm256_mask_storeu_epi16(y + i, skv_lanes16(n - i), v);
    }
}

const skv_row_kernels skv_rows_avx512 = {
    .rmsnorm = rmsnorm_avx512,
    .rope = rope_avx512,
    .silu_glu = silu_glu_avx512,
    .gelu_tanh_glu = gelu_tanh_glu_avx512,
    .sigmoid_glu = sigmoid_glu_avx512,
    .axpy = axpy_avx512,
    .softcap = softcap_avx512,
    .logsumexp = logsumexp_avx512,
    .add_exp = add_exp_avx512,
    .from_bf16 = from_bf16_avx512,
    .to_bf16 = to_bf16_avx512,
    .dot = dot_avx512,
};
