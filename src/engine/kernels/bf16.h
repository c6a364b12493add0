/* bfloat16 and float, one number at a time: the rounding of every level. */
#ifndef SKV_KERNELS_BF16_H
#define SKV_KERNELS_BF16_H

#include <stdint.h>

static inline float skv_bf16_to_f32(uint16_t x)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)x << 16};
    return v.f;
}

/** Rounds to nearest even; a NaN stays a NaN. */
static inline uint16_t skv_f32_to_bf16(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(v.u >> 16 | 0x40u);
    return (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16);
}

#endif
