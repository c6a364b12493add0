/*
 * One page of the KV cache, byte for byte: the same for every back end, on disk and in a store.
 *
 * A page holds SKV_PAGE_ROWS rows of one KV head of one KV slot:
 *
 *     K rows [SKV_PAGE_ROWS][Dh] | V rows [SKV_PAGE_ROWS][Dh]
 *     | 8-bit only: K scales [SKV_PAGE_ROWS] | V scales [SKV_PAGE_ROWS]     one byte each
 *
 * K is stored rotated at its true position. An 8-bit row is value = code * skv_scale_decode(s):
 * int8 codes are -127..127, fp8 codes are e4m3 (largest 448). A scale byte s = e * 8 + m stands for
 * (1 + m / 8) * 2^(e - 25), and 0 for zero, rounded up so that no code overflows. Scales reach from
 * 3.4e-8 to 120: rows whose largest magnitude is between 2^-17 and 2^13.9 (int8), 2^-16 and 2^15.7
 * (fp8). Smaller rows take the smallest scale, larger ones are clamped.
 */
#ifndef SKV_KERNELS_KV_PAGE_H
#define SKV_KERNELS_KV_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SKV_PAGE_ROWS = 64 };

typedef enum skv_kv_type {
    SKV_KV_TYPE_F32,
    SKV_KV_TYPE_BF16,
    SKV_KV_TYPE_FP8,
    SKV_KV_TYPE_INT8
} skv_kv_type;

/** Bytes of a whole page, a multiple of 64 for every Dh that is a multiple of 4. */
size_t skv_kv_page_bytes(skv_kv_type type, size_t head_dim);

enum {
    SKV_SCALE_BIAS = 25, /* exponent bias of a scale byte */
    SKV_INT8_MAX = 127,  /* largest int8 code */
    SKV_FP8_MAX = 448    /* largest fp8 value */
};

/** The smallest scale that is at least x; 0 for x <= 0 and NaN; the largest for x beyond it. */
uint8_t skv_scale_encode(float x);
/** OCP 8-bit e4m3 without infinities: nearest even, clamped to +-448; NaN is 0x7f. */
uint8_t skv_fp8_encode(float x);
float skv_fp8_decode(uint8_t code);

static inline float skv_scale_decode(uint8_t s)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = ((uint32_t)s << 20) + ((127u - SKV_SCALE_BIAS) << 23)};
    return s == 0 ? 0.0f : v.f;
}

/** The scale byte for a row whose largest magnitude is amax. */
static inline uint8_t skv_row_scale(skv_kv_type type, float amax)
{
    float largest = type == SKV_KV_TYPE_INT8 ? (float)SKV_INT8_MAX : (float)SKV_FP8_MAX;
    return skv_scale_encode(amax / largest);
}

/** True when every row has a scale. */
static inline bool skv_kv_has_scales(skv_kv_type type)
{
    return type == SKV_KV_TYPE_FP8 || type == SKV_KV_TYPE_INT8;
}

static inline size_t skv_kv_size(skv_kv_type type)
{
    return type == SKV_KV_TYPE_F32 ? 4 : type == SKV_KV_TYPE_BF16 ? 2 : 1;
}

/** Where the K rows (which = 0) or the V rows (which = 1) of a page begin, in bytes. */
static inline size_t skv_page_rows_at(skv_kv_type type, size_t head_dim, size_t which)
{
    return which * SKV_PAGE_ROWS * head_dim * skv_kv_size(type);
}

/** Where the scales of the K rows (which = 0) or V rows (which = 1) of a page begin, in bytes. */
static inline size_t skv_page_scales_at(skv_kv_type type, size_t head_dim, size_t which)
{
    return 2 * SKV_PAGE_ROWS * head_dim * skv_kv_size(type) + which * SKV_PAGE_ROWS;
}

#endif
