/* Element types: see dtype.h. */
#include "format/dtype.h"

#include <assert.h>
#include <string.h>

#include "base/float16.h"
#include "base/size.h"
#include "format/quant_levels.h"

typedef struct dtype_facts {
    const char *name;
    size_t elements; /* in a block */
    size_t bytes;    /* of a block */
} dtype_facts;

static const dtype_facts facts[SKV_DTYPE_COUNT] = {
#define SKV_DTYPE_FACTS(name, n, bytes) {#name, n, bytes},
    SKV_DTYPE_LIST(SKV_DTYPE_FACTS)
#undef SKV_DTYPE_FACTS
};

const char *skv_dtype_name(skv_dtype type)
{
    return (unsigned)type < (unsigned)SKV_DTYPE_COUNT ? facts[type].name : "unknown";
}

size_t skv_dtype_block_elements(skv_dtype type)
{
    assert((unsigned)type < (unsigned)SKV_DTYPE_COUNT);
    return facts[type].elements;
}

size_t skv_dtype_block_bytes(skv_dtype type)
{
    assert((unsigned)type < (unsigned)SKV_DTYPE_COUNT);
    return facts[type].bytes;
}

bool skv_dtype_bytes(skv_dtype type, size_t n, size_t *n_bytes)
{
    size_t elements = skv_dtype_block_elements(type);
    if (n % elements != 0) return false;
    return skv_size_mul(n / elements, skv_dtype_block_bytes(type), n_bytes);
}

static uint16_t load_u16(const unsigned char *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return value;
}

static float load_f16(const unsigned char *p)
{
    return skv_float_of_f16(load_u16(p));
}

/*
 * ---- blocks of GGUF ----
 *
 * The layouts are those of ggml. d and m are f16 scales; integers are little endian; "low nibbles
 * first" means that byte i holds elements i and i + n/2. Blocks of the K types ("super-blocks")
 * have 256 elements in 8 or 16 groups, each with a small integer scale of its own.
 */

/* Writes one block's elements; `block` has skv_dtype_block_bytes(type) bytes, unaligned. */
typedef void dequant_block_fn(float *out, const unsigned char *block);

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int load_i8(unsigned char byte)
{
    return (int8_t)byte;
}

/* d | 32 x i8:  x = d q */
static void q8_0(float *out, const unsigned char *b)
{
    float d = load_f16(b);
    for (size_t i = 0; i < 32; i++) out[i] = d * (float)load_i8(b[2 + i]);
}

/* d | 16 bytes, low nibbles first:  x = d (q - 8) */
static void q4_0(float *out, const unsigned char *b)
{
    float d = load_f16(b);
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)((b[2 + i] & 15) - 8);
        out[i + 16] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

/* Four bits of exponent, bias 7, three of mantissa; no infinities, and all ones are no number. */
static void f8_e4m3(float *out, const unsigned char *b)
{
    const uint32_t sign = (uint32_t)(*b & 0x80) << 24, exponent = *b >> 3 & 15, mantissa = *b & 7;
    uint32_t bits = sign | (exponent + 120) << 23 | mantissa << 20;
    if ((*b & 0x7f) == 0x7f) bits = sign | 0x7fc00000;
    memcpy(out, &bits, sizeof *out);
    if (exponent == 0) *out = (sign ? -0x1p-9F : 0x1p-9F) * (float)mantissa;
}

static void i8(float *out, const unsigned char *b)
{
    *out = (float)load_i8(*b);
}

static void i32(float *out, const unsigned char *b)
{
    int32_t value;
    memcpy(&value, b, sizeof value);
    *out = (float)value;
}

static void e8m0(float *out, const unsigned char *b)
{
    out[0] = 2.0f * skv_float_of_bf16(skv_bf16_of_half_e8m0(b[0]));
}

/* d, m | 16 bytes, low nibbles first:  x = d q + m */
static void q4_1(float *out, const unsigned char *b)
{
    float d = load_f16(b), m = load_f16(b + 2);
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)(b[4 + i] & 15) + m;
        out[i + 16] = d * (float)(b[4 + i] >> 4) + m;
    }
}

/* The fifth bits of 32 elements: bit i belongs to element i. Returns 16 or 0. */
static int fifth_bit(uint32_t high, size_t i)
{
    return (int)((high >> i & 1) << 4);
}

/* d | u32 of fifth bits | 16 bytes of nibbles:  x = d (q - 16) */
static void q5_0(float *out, const unsigned char *b)
{
    float d = load_f16(b);
    uint32_t high = load_u32(b + 2);
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)(((b[6 + i] & 15) | fifth_bit(high, i)) - 16);
        out[i + 16] = d * (float)(((b[6 + i] >> 4) | fifth_bit(high, i + 16)) - 16);
    }
}

/* d, m | u32 of fifth bits | 16 bytes of nibbles:  x = d q + m */
static void q5_1(float *out, const unsigned char *b)
{
    float d = load_f16(b), m = load_f16(b + 2);
    uint32_t high = load_u32(b + 4);
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)((b[8 + i] & 15) | fifth_bit(high, i)) + m;
        out[i + 16] = d * (float)((b[8 + i] >> 4) | fifth_bit(high, i + 16)) + m;
    }
}

/* 16 bytes (scale nibble, min nibble) | 64 bytes of 2-bit q | d, dmin.
 * Group j of 16 elements:  x = d scale_j q - dmin min_j.  Each 32 bytes of q hold 128 elements:
 * bits 0-1 the first 32 of them, bits 2-3 the next, and so on. */
static void q2_k(float *out, const unsigned char *b)
{
    float d = load_f16(b + 80), dmin = load_f16(b + 82);
    for (size_t j = 0; j < 16; j++) {
        const unsigned char *q = b + 16 + j / 8 * 32 + j % 2 * 16;
        float scale = d * (float)(b[j] & 15), min = dmin * (float)(b[j] >> 4);
        unsigned shift = (unsigned)(j % 8 / 2 * 2);
        for (size_t i = 0; i < 16; i++) {
            out[16 * j + i] = scale * (float)(q[i] >> shift & 3) - min;
        }
    }
}

/* The 16 six-bit scales of Q3_K, in 12 bytes: low nibbles in bytes 0-7 (scales 0-7 in the low
 * halves, 8-15 in the high ones), two high bits each in bytes 8-11. */
static int q3_k_scale(const unsigned char *s, size_t j)
{
    int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    int high = s[8 + j % 4] >> (j / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

/* 32 bytes of third bits (inverted: a clear bit subtracts 4) | 64 bytes of 2-bit q | scales | d.
 * Third bit of element i: bit i/32 of byte i%32. */
static void q3_k(float *out, const unsigned char *b)
{
    float d = load_f16(b + 108);
    for (size_t j = 0; j < 16; j++) {
        const unsigned char *mask = b + j % 2 * 16, *q = b + 32 + j / 8 * 32 + j % 2 * 16;
        float scale = d * (float)q3_k_scale(b + 96, j);
        unsigned shift = (unsigned)(j % 8 / 2 * 2), bit = (unsigned)(j / 2);
        for (size_t i = 0; i < 16; i++) {
            int value = (q[i] >> shift & 3) + (mask[i] >> bit & 1) * 4 - 4;
            out[16 * j + i] = scale * (float)value;
        }
    }
}

/* The 8 six-bit scales and 8 six-bit mins of Q4_K and Q5_K, in 12 bytes. */
static void k_scale_min(const unsigned char *s, size_t j, float *scale, float *min)
{
    if (j < 4) {
        *scale = (float)(s[j] & 63);
        *min = (float)(s[j + 4] & 63);
    } else {
        *scale = (float)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (float)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
}

/* d, dmin | 12 bytes of scales | 128 bytes of nibbles, each 32 bytes holding 64 elements, low
 * nibbles first. Group j of 32:  x = d scale_j q - dmin min_j */
static void q4_k(float *out, const unsigned char *b)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    const unsigned char *q = b + 16;
    for (size_t j = 0; j < 8; j++) {
        float scale, min;
        k_scale_min(b + 4, j, &scale, &min);
        for (size_t i = 0; i < 32; i++) {
            int value = q[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
            out[j * 32 + i] = d * scale * (float)value - dmin * min;
        }
    }
}

/* As Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte i is group j's. */
static void q5_k(float *out, const unsigned char *b)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    const unsigned char *high = b + 16, *q = b + 48;
    for (size_t j = 0; j < 8; j++) {
        float scale, min;
        k_scale_min(b + 4, j, &scale, &min);
        for (size_t i = 0; i < 32; i++) {
            int value = (q[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | (high[i] >> j & 1) << 4;
            out[j * 32 + i] = d * scale * (float)value - dmin * min;
        }
    }
}

/* 128 bytes of low nibbles | 64 bytes of 2 high bits | 16 x i8 scales | d.  x = d scale (q - 32)
 * In each half of 128 elements: 64 bytes of nibbles (low: elements 0-63, high: 64-127) and 32
 * bytes whose bit pairs belong to elements 0-31, 32-63, 64-95, 96-127. */
static void q6_k(float *out, const unsigned char *b)
{
    float d = load_f16(b + 208);
    for (size_t j = 0; j < 16; j++) {
        const unsigned char *low = b + j / 8 * 64 + j % 4 * 16;
        const unsigned char *high = b + 128 + j / 8 * 32 + j % 2 * 16;
        float scale = d * (float)load_i8(b[192 + j]);
        unsigned low_shift = (unsigned)(j % 8 / 4 * 4), high_shift = (unsigned)(j % 8 / 2 * 2);
        for (size_t i = 0; i < 16; i++) {
            int value = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
            out[16 * j + i] = scale * (float)(value - 32);
        }
    }
}

/* 32 elements from 16 bytes, low nibbles first, that index a table of 16 uneven levels. */
static void from_table(float *out, const unsigned char *q, float d, const int8_t *levels)
{
    for (size_t i = 0; i < 16; i++) {
        out[i] = d * (float)levels[q[i] & 15];
        out[i + 16] = d * (float)levels[q[i] >> 4];
    }
}

static const int8_t iq4_levels[SKV_QUANT_LEVELS] = SKV_IQ4_LEVELS;

/* d | 16 bytes of nibbles */
static void iq4_nl(float *out, const unsigned char *b)
{
    from_table(out, b + 2, load_f16(b), iq4_levels);
}

/* d | u16 of 2 high bits for each scale | 4 bytes of scales' nibbles | 128 bytes of nibbles
 * Group j of 32:  x = d (scale_j - 32) level */
static void iq4_xs(float *out, const unsigned char *b)
{
    float d = load_f16(b);
    for (size_t j = 0; j < 8; j++) {
        int scale = skv_iq4_xs_scale(b, j);
        from_table(out + 32 * j, b + 8 + 16 * j, d * (float)scale, iq4_levels);
    }
}

/* e8m0 | 16 bytes of nibbles in E2M1:  x = 2^(e - 127) value, here half of it times twice that */
static void mxfp4(float *out, const unsigned char *b)
{
    static const int8_t levels[SKV_QUANT_LEVELS] = SKV_E2M1_LEVELS;
    from_table(out, b + 1, skv_float_of_bf16(skv_bf16_of_half_e8m0(b[0])), levels);
}

/* The function of a block-quantised type, NULL for F32, F16, BF16. */
static dequant_block_fn *dequant_block(skv_dtype type)
{
    switch (type) {
    case SKV_DTYPE_Q8_0: return q8_0;
    case SKV_DTYPE_Q4_0: return q4_0;
    case SKV_DTYPE_Q4_1: return q4_1;
    case SKV_DTYPE_Q5_0: return q5_0;
    case SKV_DTYPE_Q5_1: return q5_1;
    case SKV_DTYPE_Q2_K: return q2_k;
    case SKV_DTYPE_Q3_K: return q3_k;
    case SKV_DTYPE_Q4_K: return q4_k;
    case SKV_DTYPE_Q5_K: return q5_k;
    case SKV_DTYPE_Q6_K: return q6_k;
    case SKV_DTYPE_IQ4_NL: return iq4_nl;
    case SKV_DTYPE_IQ4_XS: return iq4_xs;
    case SKV_DTYPE_MXFP4: return mxfp4;
    case SKV_DTYPE_F8_E4M3: return f8_e4m3;
    case SKV_DTYPE_I8: return i8;
    case SKV_DTYPE_U8: return e8m0;
    case SKV_DTYPE_I32: return i32;
    default: return NULL;
    }
}

/* ---- rows of any type ---- */

void skv_dtype_to_f32(skv_dtype type, float *out, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    switch (type) {
    case SKV_DTYPE_F32:
        if (n) memcpy(out, bytes, n * sizeof *out);
        return;
    case SKV_DTYPE_F16:
        for (size_t i = 0; i < n; i++) out[i] = load_f16(bytes + 2 * i);
        return;
    case SKV_DTYPE_BF16:
        for (size_t i = 0; i < n; i++) out[i] = skv_float_of_bf16(load_u16(bytes + 2 * i));
        return;
    default: break;
    }
    dequant_block_fn *block = dequant_block(type);
    size_t elements = skv_dtype_block_elements(type), size = skv_dtype_block_bytes(type);
    assert(block && n % elements == 0);
    for (size_t i = 0; i < n / elements; i++) block(out + i * elements, bytes + i * size);
}

void skv_dtype_from_f32(skv_dtype type, void *out, const float *in, size_t n)
{
    unsigned char *bytes = out;
    assert(type == SKV_DTYPE_F32 || type == SKV_DTYPE_F16 || type == SKV_DTYPE_BF16 ||
           type == SKV_DTYPE_I32);
    if (type == SKV_DTYPE_F32) {
        if (n) memcpy(bytes, in, n * sizeof *in);
        return;
    }
    for (size_t i = 0; type == SKV_DTYPE_I32 && i < n; i++) {
        const int32_t value = in[i] >= -0x1p31F && in[i] < 0x1p31F ? (int32_t)in[i] : INT32_MIN;
        memcpy(bytes + 4 * i, &value, sizeof value);
    }
    if (type == SKV_DTYPE_I32) return;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = type == SKV_DTYPE_BF16 ? skv_bf16_of_float(in[i]) : skv_f16_of_float(in[i]);
        memcpy(bytes + 2 * i, &h, sizeof h);
    }
}
