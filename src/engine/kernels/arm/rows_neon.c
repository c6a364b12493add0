/* Rows of activations with AArch64 NEON. Tails go through a small copy. */
#include <arm_neon.h>
#include <math.h>

#include "kernels/arm/math_neon.h"
#include "kernels/bf16.h"
#include "kernels/rows.h"

static float dot_neon(const float *x, const float *y, size_t n)
{
    float32x4_t sum[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f),
                          vdupq_n_f32(0.0f)};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (size_t v = 0; v < 4; v++) {
            sum[v] = vfmaq_f32(sum[v], vld1q_f32(x + i + 4 * v), vld1q_f32(y + i + 4 * v));
        }
    }
    for (; i < n; i += 4) {
        sum[0] = vfmaq_f32(sum[0], skv_load4_neon(x, i, n), skv_load4_neon(y, i, n));
    }
    return vaddvq_f32(vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3])));
}

static void rmsnorm_neon(float *y, const float *x, const float *w, float w_offset, float eps,
                         size_t n)
{
    float inverse = 1.0f / sqrtf(dot_neon(x, x, n) / (float)n + eps);
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t v = vmulq_n_f32(skv_load4_neon(x, i, n), inverse);
        if (w) v = vmulq_f32(v, vaddq_f32(skv_load4_neon(w, i, n), vdupq_n_f32(w_offset)));
        skv_store4_neon(y, i, n, v);
    }
}

static void rope_neon(float *x, const float *cos, const float *sin, size_t n_rot)
{
    size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i += 4) {
        float32x4_t a = skv_load4_neon(x, i, half);
        float32x4_t b = skv_load4_neon(x + half, i, half);
        float32x4_t c = skv_load4_neon(cos, i, half);
        float32x4_t s = skv_load4_neon(sin, i, half);
        skv_store4_neon(x, i, half, vfmsq_f32(vmulq_f32(a, c), b, s));
        skv_store4_neon(x + half, i, half, vfmaq_f32(vmulq_f32(b, c), a, s));
    }
}

/* x / (1 + e^-z): e^-z is infinite or 0 at the ends, never a NaN. */
static float32x4_t gated(float32x4_t x, float32x4_t z)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), skv_exp_neon(vnegq_f32(z))));
}

static void silu_glu_neon(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t x = skv_load4_neon(gate, i, n);
        skv_store4_neon(h, i, n, vmulq_f32(gated(x, x), skv_load4_neon(up, i, n)));
    }
}

/* x/2 (1 + tanh(u)) = x / (1 + e^-2u) */
static void gelu_tanh_glu_neon(float *h, const float *gate, const float *up, size_t n)
{
    const float32x4_t c1 = vdupq_n_f32(1.5957691216f); /* 2 sqrt(2 / pi) */
    const float32x4_t c3 = vdupq_n_f32(1.5957691216f * 0.044715f);
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t x = skv_load4_neon(gate, i, n);
        float32x4_t z = vmulq_f32(x, vfmaq_f32(c1, vmulq_f32(x, x), c3));
        skv_store4_neon(h, i, n, vmulq_f32(gated(x, z), skv_load4_neon(up, i, n)));
    }
}

static void sigmoid_glu_neon(float *h, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t x = skv_load4_neon(up, i, n);
        skv_store4_neon(h, i, n, gated(x, skv_load4_neon(gate, i, n)));
    }
}

static void axpy_neon(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t old = skv_load4_neon(y, i, n);
        skv_store4_neon(y, i, n, vfmaq_n_f32(old, skv_load4_neon(x, i, n), a));
    }
}

static void softcap_neon(float *x, float cap, size_t n)
{
    float32x4_t c = vdupq_n_f32(cap);
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t t = skv_tanh_neon(vdivq_f32(skv_load4_neon(x, i, n), c));
        skv_store4_neon(x, i, n, vmulq_f32(c, t));
    }
}

static float max_of(const float *x, size_t n)
{
    float32x4_t most[2] = {vdupq_n_f32(-HUGE_VALF), vdupq_n_f32(-HUGE_VALF)};
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        most[0] = vmaxq_f32(most[0], vld1q_f32(x + i));
        most[1] = vmaxq_f32(most[1], vld1q_f32(x + i + 4));
    }
    float max = vmaxvq_f32(vmaxq_f32(most[0], most[1]));
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    return max;
}

static size_t index_of(const float *x, size_t n, float value)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        if (vmaxvq_u32(vceqq_f32(vld1q_f32(x + i), vdupq_n_f32(value))) != 0) break;
    }
    for (; i < n; i++) {
        if (x[i] == value) return i;
    }
    return 0;
}

static float logsumexp_neon(const float *x, size_t n, size_t *i_max)
{
    float max = max_of(x, n);
    if (i_max) *i_max = index_of(x, n, max);
    if (isinf(max)) return max;
    float32x4_t sum[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    float32x4_t m = vdupq_n_f32(max);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (size_t v = 0; v < 2; v++) {
            sum[v] = vaddq_f32(sum[v], skv_exp_neon(vsubq_f32(vld1q_f32(x + i + 4 * v), m)));
        }
    }
    float all = vaddvq_f32(vaddq_f32(sum[0], sum[1]));
    for (; i < n; i++) all += expf(x[i] - max);
    return max + logf(all);
}

static void add_exp_neon(float *y, const float *x, float shift, size_t n)
{
    const float32x4_t s = vdupq_n_f32(shift);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        float32x4_t e = skv_exp_neon(vsubq_f32(vld1q_f32(x + i), s));
        vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), e));
    }
    for (; i < n; i++) y[i] += expf(x[i] - shift);
}

static void from_bf16_neon(float *y, const uint16_t *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        vst1q_f32(y + i, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x + i), 16)));
    }
    for (; i < n; i++) y[i] = skv_bf16_to_f32(x[i]);
}

static void to_bf16_neon(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) vst1_u16(y + i, skv_to_bf16_neon(vld1q_f32(x + i)));
    for (; i < n; i++) y[i] = skv_f32_to_bf16(x[i]);
}

const skv_row_kernels skv_rows_neon = {
    .rmsnorm = rmsnorm_neon,
    .rope = rope_neon,
    .silu_glu = silu_glu_neon,
    .gelu_tanh_glu = gelu_tanh_glu_neon,
    .sigmoid_glu = sigmoid_glu_neon,
    .axpy = axpy_neon,
    .softcap = softcap_neon,
    .logsumexp = logsumexp_neon,
    .add_exp = add_exp_neon,
    .from_bf16 = from_bf16_neon,
    .to_bf16 = to_bf16_neon,
    .dot = dot_neon,
};
