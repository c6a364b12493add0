/* Rows of activations with AVX2 and FMA. Tails are masked or done one by one. */
#include <immintrin.h>
#include <math.h>

#include "kernels/bf16.h"
#include "kernels/rows.h"
#include "kernels/x86/math_avx2.h"

static float dot_avx2(const float *x, const float *y, size_t n)
{
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t v = 0; v < 4; v++) {
            __m256 a = _mm256_loadu_ps(x + i + 8 * v);
            sum[v] = _mm256_fmadd_ps(a, _mm256_loadu_ps(y + i + 8 * v), sum[v]);
        }
    }
    for (; i < n; i += 8) {
        sum[0] = _mm256_fmadd_ps(skv_load8_avx2(x, i, n), skv_load8_avx2(y, i, n), sum[0]);
    }
    return skv_sum8_avx2(
        _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3])));
}

static void rmsnorm_avx2(float *y, const float *x, const float *w, float w_offset, float eps,
                         size_t n)
{
    __m256 inverse = _mm256_set1_ps(1.0f / sqrtf(dot_avx2(x, x, n) / (float)n + eps));
    __m256 offset = _mm256_set1_ps(w_offset);
    for (size_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(skv_load8_avx2(x, i, n), inverse);
        if (w) v = _mm256_mul_ps(v, _mm256_add_ps(skv_load8_avx2(w, i, n), offset));
        skv_store8_avx2(y, i, n, v);
    }
}

static void rope_avx2(float *x, const float *cos, const float *sin, size_t n_rot)
{
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i += 8) {
        __m256 a = skv_load8_avx2(x, i, half);
        __m256 b = skv_load8_avx2(x + half, i, half);
        __m256 c = skv_load8_avx2(cos, i, half);
        __m256 s = skv_load8_avx2(sin, i, half);
        skv_store8_avx2(x, i, half, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        skv_store8_avx2(x + half, i, half, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
}

/* x / (1 + e^-z): e^-z is infinite or 0 at the ends, never a NaN. */
static __m256 gated(__m256 x, __m256 z)
{
    __m256 e = skv_exp_avx2(_mm256_sub_ps(_mm256_setzero_ps(), z));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

static void silu_glu_avx2(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        __m256 x = skv_load8_avx2(gate, i, n);
        skv_store8_avx2(h, i, n, _mm256_mul_ps(gated(x, x), skv_load8_avx2(up, i, n)));
    }
}

/* x/2 (1 + tanh(u)) = x / (1 + e^-2u) */
static void gelu_tanh_glu_avx2(float *h, const float *gate, const float *up, size_t n)
{
    const __m256 c1 = _mm256_set1_ps(1.5957691216f); /* 2 sqrt(2 / pi) */
    const __m256 c3 = _mm256_set1_ps(1.5957691216f * 0.044715f);
    for (size_t i = 0; i < n; i += 8) {
        __m256 x = skv_load8_avx2(gate, i, n);
        __m256 z = _mm256_mul_ps(x, _mm256_fmadd_ps(_mm256_mul_ps(x, x), c3, c1));
        skv_store8_avx2(h, i, n, _mm256_mul_ps(gated(x, z), skv_load8_avx2(up, i, n)));
    }
}

static void sigmoid_glu_avx2(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        __m256 x = skv_load8_avx2(up, i, n);
        skv_store8_avx2(h, i, n, gated(x, skv_load8_avx2(gate, i, n)));
    }
}

static void axpy_avx2(float *y, float a, const float *x, size_t n)
{
    __m256 factor = _mm256_set1_ps(a);
    for (size_t i = 0; i < n; i += 8) {
        __m256 old = skv_load8_avx2(y, i, n);
        skv_store8_avx2(y, i, n, _mm256_fmadd_ps(factor, skv_load8_avx2(x, i, n), old));
    }
}

static void softcap_avx2(float *x, float cap, size_t n)
{
    __m256 c = _mm256_set1_ps(cap);
    for (size_t i = 0; i < n; i += 8) {
        __m256 t = skv_tanh_avx2(_mm256_div_ps(skv_load8_avx2(x, i, n), c));
        skv_store8_avx2(x, i, n, _mm256_mul_ps(c, t));
    }
}

static float max_of(const float *x, size_t n)
{
    const __m256 low = _mm256_set1_ps(-HUGE_VALF);
    __m256 most[4] = {low, low, low, low};
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (size_t v = 0; v < 4; v++) {
            most[v] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * v), most[v]);
        }
    }
    float max = skv_max8_avx2(
        _mm256_max_ps(_mm256_max_ps(most[0], most[1]), _mm256_max_ps(most[2], most[3])));
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

static size_t index_of(const float *x, size_t n, float value)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 same = _mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(value), _CMP_EQ_OQ);
        unsigned bits = (unsigned)_mm256_movemask_ps(same);
        if (bits) return i + (size_t)__builtin_ctz(bits);
    }
    for (; i < n; i++) {
        if (x[i] == value) return i;
    }
    return 0;
}

static float logsumexp_avx2(const float *x, size_t n, size_t *i_max)
{
    float max = max_of(x, n);
    if (i_max) *i_max = index_of(x, n, max);
    if (isinf(max)) return max;
    __m256 sum = _mm256_setzero_ps();
    __m256 m = _mm256_set1_ps(max);
    for (size_t i = 0; i < n; i += 8) {
        __m256 e = skv_exp_avx2(_mm256_sub_ps(skv_load8_avx2(x, i, n), m));
        if (i + 8 > n) e = _mm256_and_ps(e, _mm256_castsi256_ps(skv_lanes8(n - i)));
        sum = _mm256_add_ps(sum, e);
    }
    return max + logf(skv_sum8_avx2(sum));
}

static void add_exp_avx2(float *y, const float *x, float shift, size_t n)
{
    const __m256 s = _mm256_set1_ps(shift);
    for (size_t i = 0; i < n; i += 8) {
        __m256 e = skv_exp_avx2(_mm256_sub_ps(skv_load8_avx2(x, i, n), s));
        skv_store8_avx2(y, i, n, _mm256_add_ps(skv_load8_avx2(y, i, n), e));
    }
}

static void from_bf16_avx2(float *y, const uint16_t *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(x + i)));
        _mm256_storeu_ps(y + i, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
    for (; i < n; i++) y[i] = skv_bf16_to_f32(x[i]);
}

static void to_bf16_avx2(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm_storeu_si128((void *)(y + i), skv_to_bf16_avx2(_mm256_loadu_ps(x + i)));
    }
    for (; i < n; i++) y[i] = skv_f32_to_bf16(x[i]);
}

const skv_row_kernels skv_rows_avx2 = {
    .rmsnorm = rmsnorm_avx2,
    .rope = rope_avx2,
    .silu_glu = silu_glu_avx2,
    .gelu_tanh_glu = gelu_tanh_glu_avx2,
    .sigmoid_glu = sigmoid_glu_avx2,
    .axpy = axpy_avx2,
    .softcap = softcap_avx2,
    .logsumexp = logsumexp_avx2,
    .add_exp = add_exp_avx2,
    .from_bf16 = from_bf16_avx2,
    .to_bf16 = to_bf16_avx2,
    .dot = dot_avx2,
};
