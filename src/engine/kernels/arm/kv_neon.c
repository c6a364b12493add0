/* Storing and loading one row of a KV page with NEON; bit for bit as kv_ref.c does. */
#include <arm_neon.h>
#include <string.h>

#include "kernels/arm/attention_neon.h"
#include "kernels/arm/math_neon.h"
#include "kernels/kv_page.h"

/* e4m3, nearest even, clamped, in 32 bits each; see skv_fp8_encode. */
static uint32x4_t to_fp8(float32x4_t x)
{
    uint32x4_t sign = vandq_u32(vshrq_n_u32(vreinterpretq_u32_f32(x), 24), vdupq_n_u32(0x80));
    float32x4_t clamped = vminq_f32(vabsq_f32(x), vdupq_n_f32((float)SKV_FP8_MAX));
    uint32x4_t u = vreinterpretq_u32_f32(clamped);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 20), vdupq_n_u32(1));
    uint32x4_t code = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7ffff)), odd), 20);
    code = vsubq_u32(code, vdupq_n_u32(120u << 3));
    uint32x4_t small = vreinterpretq_u32_f32(vaddq_f32(clamped, vdupq_n_f32(0x1p14f)));
    small = vsubq_u32(small, vdupq_n_u32(0x46800000u));
    code = vbslq_u32(vcltq_f32(clamped, vdupq_n_f32(0x1p-6f)), small, code);
    return vbslq_u32(vceqq_f32(x, x), vorrq_u32(code, sign), vdupq_n_u32(0x7f));
}

/* -127 .. 127, nearest even, clamped, in 32 bits each; 0 for NaN. */
static uint32x4_t to_int8(float32x4_t x)
{
    const float32x4_t limit = vdupq_n_f32((float)SKV_INT8_MAX);
    x = vminq_f32(vmaxq_f32(x, vnegq_f32(limit)), limit);
    return vreinterpretq_u32_s32(vcvtnq_s32_f32(x)); /* a NaN converts to 0 */
}

static void store_8bit(unsigned char *codes, unsigned char *scale, skv_kv_type type, const float *x,
                       size_t n)
{
    float32x4_t most = vdupq_n_f32(0.0f);
    /* The "number" maximum passes over a NaN. */
    for (size_t i = 0; i < n; i += 4) most = vmaxnmq_f32(most, vabsq_f32(vld1q_f32(x + i)));
    *scale = skv_row_scale(type, vmaxvq_f32(most));
    float inverse = *scale == 0 ? 0.0f : 1.0f / skv_scale_decode(*scale);
    for (size_t i = 0; i < n; i += 4) {
        float32x4_t y = vmulq_n_f32(vld1q_f32(x + i), inverse);
        uint16x4_t words = vmovn_u32(type == SKV_KV_TYPE_FP8 ? to_fp8(y) : to_int8(y));
        uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
        uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
        memcpy(codes + i, &four, sizeof four);
    }
}

static void store_half(unsigned char *page, skv_kv_type type, size_t row, size_t which,
                       const float *x, size_t n)
{
    unsigned char *at = page + skv_page_rows_at(type, n, which) + row * n * skv_kv_size(type);
    if (skv_kv_has_scales(type)) {
        store_8bit(at, page + skv_page_scales_at(type, n, which) + row, type, x, n);
        return;
    }
    if (type == SKV_KV_TYPE_F32) {
        memcpy(at, x, n * sizeof *x);
        return;
    }
    for (size_t i = 0; i < n; i += 4) {
        vst1_u8(at + 2 * i, vreinterpret_u8_u16(skv_to_bf16_neon(vld1q_f32(x + i))));
    }
}

static void load_half(const unsigned char *page, skv_kv_type type, size_t row, size_t which,
                      float *y, size_t n)
{
    const unsigned char *at = page + skv_page_rows_at(type, n, which) + row * n * skv_kv_size(type);
    float scale = 1.0f;
    if (skv_kv_has_scales(type)) {
        scale = skv_scale_decode(page[skv_page_scales_at(type, n, which) + row]);
    }
    for (size_t i = 0; i < n; i += 4) {
        vst1q_f32(y + i, vmulq_n_f32(skv_kv4_neon(at, type, i), scale));
    }
}

void skv_kv_store_neon(void *page, skv_kv_type type, size_t row, const float *k, const float *v,
                       size_t head_dim)
{
    store_half(page, type, row, 0, k, head_dim);
    store_half(page, type, row, 1, v, head_dim);
}

void skv_kv_load_neon(const void *page, skv_kv_type type, size_t row, float *k, float *v,
                      size_t head_dim)
{
    if (k) load_half(page, type, row, 0, k, head_dim);
    if (v) load_half(page, type, row, 1, v, head_dim);
}
