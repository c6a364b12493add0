/*
 * Four numbers at a time: exponentials and hyperbolic tangents, elements of a KV page as f32, and
 * the transposition of a 4 x 4 block. For the NEON sources only. The polynomials are those of
 * math_avx512.h.
 */
#ifndef SKV_KERNELS_ARM_MATH_NEON_H
#define SKV_KERNELS_ARM_MATH_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "kernels/kv_page.h"

/* x[i .. i + 3], with zeros from n on. */
static inline float32x4_t skv_load4_neon(const float *x, size_t i, size_t n)
{
    if (i + 4 <= n) return vld1q_f32(x + i);
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    memcpy(part, x + i, (n - i) * sizeof *x);
    return vld1q_f32(part);
}

static inline void skv_store4_neon(float *y, size_t i, size_t n, float32x4_t v)
{
    if (i + 4 <= n) {
        vst1q_f32(y + i, v);
        return;
    }
    float part[4];
    vst1q_f32(part, v);
    memcpy(y + i, part, (n - i) * sizeof *y);
}

/* 2^n for whole n from -127 (which gives 0) to 127. */
static inline float32x4_t skv_power4_neon(float32x4_t n)
{
    int32x4_t e = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}

/* 2^x within 2e-7 for softmax weights, x < 127; 0 for x below -127. */
static inline float32x4_t skv_exp2_neon(float32x4_t x)
{
    x = vmaxq_f32(x, vdupq_n_f32(-127.0f));
    float32x4_t n = vrndnq_f32(x);
    float32x4_t f = vsubq_f32(x, n);
    float32x4_t p = vdupq_n_f32(0x1.5c08e6p-10f);
    p = vfmaq_f32(vdupq_n_f32(0x1.3d0c52p-7f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.c6b6e4p-5f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.ebf918p-3f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.62e428p-1f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.000002p+0f), p, f);
    return vmulq_f32(p, skv_power4_neon(n));
}

/* With n = round(x log2 e) and f = x log2 e - n: returns 2^f - 1, and n in *n. */
static inline float32x4_t skv_exp_parts_neon(float32x4_t x, float32x4_t *n)
{
    const float32x4_t log2e = vdupq_n_f32(0x1.715476p+0f);
    *n = vrndnq_f32(vmulq_f32(x, log2e));
    float32x4_t f = vfmaq_f32(vnegq_f32(*n), x, log2e);
    f = vfmaq_f32(f, x, vdupq_n_f32(0x1.4ae0cp-26f));
    float32x4_t p = vdupq_n_f32(0x1.4308fap-13f);
    p = vfmaq_f32(vdupq_n_f32(0x1.5f07b4p-10f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.3b2ba0p-7f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.c6af6ep-5f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.ebfbdep-3f), p, f);
    p = vfmaq_f32(vdupq_n_f32(0x1.62e430p-1f), p, f);
    return vmulq_f32(p, f);
}

/* e^x within 1 ulp or so; 0 and infinity beyond the range, NaN for NaN. */
static inline float32x4_t skv_exp_neon(float32x4_t x)
{
    float32x4_t n;
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-105.0f)), vdupq_n_f32(89.0f));
    float32x4_t p = vaddq_f32(skv_exp_parts_neon(x, &n), vdupq_n_f32(1.0f));
    /* Two factors, since 2^n itself may be beyond the range of a float. */
    float32x4_t half = vrndmq_f32(vmulq_n_f32(n, 0.5f));
    p = vmulq_f32(p, skv_power4_neon(half));
    return vmulq_f32(p, skv_power4_neon(vsubq_f32(n, half)));
}

/* tanh(x) = t / (t + 2) with t = e^2x - 1, which keeps its digits near zero. */
static inline float32x4_t skv_tanh_neon(float32x4_t x)
{
    float32x4_t n;
    x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-10.0f)), vdupq_n_f32(10.0f));
    float32x4_t p = skv_exp_parts_neon(vaddq_f32(x, x), &n);
    float32x4_t power = skv_power4_neon(n);
    float32x4_t t = vfmaq_f32(vsubq_f32(power, vdupq_n_f32(1.0f)), p, power);
    return vdivq_f32(t, vaddq_f32(t, vdupq_n_f32(2.0f)));
}

/* skv_f32_to_bf16 four times. */
static inline uint16x4_t skv_to_bf16_neon(float32x4_t x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x);
    uint32x4_t top = vshrq_n_u32(u, 16);
    uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd);
    uint32x4_t number = vceqq_f32(x, x);
    uint32x4_t quiet = vorrq_u32(top, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(number, vshrq_n_u32(up, 16), quiet));
}

/* Four e4m3 codes in 32 bits each; the code of a NaN is taken for 480. */
static inline float32x4_t skv_fp8_to_f32_neon(uint32x4_t codes)
{
    uint32x4_t magnitude = vandq_u32(codes, vdupq_n_u32(0x7f));
    uint32x4_t bits = vaddq_u32(vshlq_n_u32(magnitude, 20), vdupq_n_u32(120u << 23));
    float32x4_t small = vmulq_n_f32(vcvtq_f32_u32(magnitude), 0x1p-9f);
    uint32x4_t denormal = vcltq_u32(magnitude, vdupq_n_u32(8));
    bits = vbslq_u32(denormal, vreinterpretq_u32_f32(small), bits);
    uint32x4_t sign = vshlq_n_u32(vshrq_n_u32(codes, 7), 31);
    return vreinterpretq_f32_u32(vorrq_u32(bits, sign));
}

/* Elements i .. i + 3 of a row of a KV page as f32, 8-bit ones without their scale. */
static inline float32x4_t skv_kv4_neon(const unsigned char *row, skv_kv_type type, size_t i)
{
    if (type == SKV_KV_TYPE_F32) return vreinterpretq_f32_u8(vld1q_u8(row + 4 * i));
    if (type == SKV_KV_TYPE_BF16) {
        uint16x4_t x = vreinterpret_u16_u8(vld1_u8(row + 2 * i));
        return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
    }
    uint32_t codes;
    memcpy(&codes, row + i, sizeof codes);
    uint8x8_t x = vreinterpret_u8_u32(vdup_n_u32(codes));
    if (type == SKV_KV_TYPE_FP8) {
        return skv_fp8_to_f32_neon(vmovl_u16(vget_low_u16(vmovl_u8(x))));
    }
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(x)))));
}

/* x[i] lane j becomes x[j] lane i. */
static inline void skv_transpose4_neon(float32x4_t x[4])
{
    float32x4x2_t a = vtrnq_f32(x[0], x[1]);
    float32x4x2_t b = vtrnq_f32(x[2], x[3]);
    x[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    x[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    x[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    x[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

#endif
