/* The two 16-bit float formats: widened exactly, and rounded to. */
#ifndef SKV_FORMAT_FLOAT16_H
#define SKV_FORMAT_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline float skv_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float skv_float_of_bf16(uint16_t h)
{
    return skv_float_of_bits((uint32_t)h << 16);
}

/* Without branches, so that loops over it become vector code: both cases are computed. */
static inline float skv_float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    /* Normal numbers: 224 more in the exponent turns 31 (infinity, NaN) into 255, which stays; the
     * product with 2^-112 brings the others to f32's bias, 127 - 15 = 224 - 112. */
    float normal = skv_float_of_bits((magnitude << 13) + (224u << 23)) * 0x1p-112F;
    /* Subnormal ones are units of 2^-24: beside 0.5 in the last places, then 0.5 less. */
    float subnormal = skv_float_of_bits(magnitude | 126u << 23) - 0.5F;
    float value = magnitude < 0x400u ? subnormal : normal;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return skv_float_of_bits(bits | sign);
}

/* Returns the bfloat16 2^(e - 128), half the value of e as an E8M0 exponent. The two smallest are
 * subnormal; all are exact. */
static inline uint16_t skv_bf16_of_half_e8m0(uint8_t e)
{
    return (uint16_t)(e < 2 ? 0x20u << e : (e - 1u) << 7);
}

static inline uint32_t skv_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t skv_bf16_of_float(float value)
{
    uint32_t bits = skv_bits_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Rounds to nearest, ties to even; values that are too large become infinite. */
static inline uint16_t skv_f16_of_float(float value)
{
    uint32_t bits = skv_bits_of_float(value), sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 2^16 and beyond */
    if (magnitude < 0x38800000u) { /* below 2^-14: let f32 addition round to units of 2^-24 */
        float shifted = skv_float_of_bits(magnitude) + 0.5F;
        return (uint16_t)(sign | (skv_bits_of_float(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

#endif
