/* Storing and loading one row of a KV page with NEON; bit for bit as kv_ref.c does. */
#include <arm_neon.h>
#include <string.h>

#include "kernels/arm/attention_neon.h"
#include "kernels/arm/lanes_neon.h"
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

/* head_dim is a multiple of 4, so every vector is whole. */
static void put_codes(unsigned char *to, size_t i, size_t n, skv_kv_type type, float32x4_t y)
{
    (void)n;
    uint16x4_t words = vmovn_u32(type == SKV_KV_TYPE_FP8 ? to_fp8(y) : to_int8(y));
    uint8x8_t bytes = vmovn_u16(vcombine_u16(words, words));
    uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
    memcpy(to + i, &four, sizeof four);
}

#define put_bf16(to, i, n, y) vst1_u8((to) + 2 * (i), vreinterpret_u8_u16(skv_to_bf16_neon(y)))
#define get_lanes(row, type, i, n) skv_kv4_neon(row, type, i)
#include "kernels/kv_level.inc"
