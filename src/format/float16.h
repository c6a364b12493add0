/* The two 16-bit float formats, widened exactly. */
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

static inline float skv_float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24, exact in f32 */
        float value = (float)mantissa * 0x1p-24F;
        return sign ? -value : value;
    }
    if (exponent == 31) return skv_float_of_bits(sign | 0x7f800000u | mantissa << 13);
    return skv_float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

#endif
