/*
 * The codes and scales of block-quantised types: see dtype.h and base/quant.h. dequant in dtype.c
 * documents the layouts of the blocks; here the same bytes are rearranged, not multiplied.
 */
#include <assert.h>
#include <string.h>

#include "base/float16.h"
#include "format/dtype.h"
#include "format/quant_levels.h"

/* Decodes a block of a type into a row; the row's arrays begin at the block. */
typedef void read_block_fn(skv_quant_row row, const unsigned char *block);

static uint16_t load_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

/* 32 codes from 16 bytes, low nibbles first. */
static void split_nibbles(uint8_t *codes, const unsigned char *q)
{
    for (size_t i = 0; i < 16; i++) {
        codes[i] = q[i] & 15;
        codes[i + 16] = q[i] >> 4;
    }
}

static void read_q4_0(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    split_nibbles(row.codes, b + 2);
}

static void read_q4_1(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    row.mins[0] = load_u16(b + 2);
    split_nibbles(row.codes, b + 4);
}

static void read_q8_0(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    memcpy(row.codes, b + 2, 32);
}

/* Nibbles at q, fifth bits in `high`; from every code `offset` is taken. */
static void join_fifth_bits(uint8_t *codes, const unsigned char *q, uint32_t high, int offset)
{
    split_nibbles(codes, q);
    for (size_t i = 0; i < 32; i++) {
        codes[i] = (uint8_t)((int)(codes[i] | (high >> i & 1) << 4) - offset);
    }
}

static void read_q5_0(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    join_fifth_bits(row.codes, b + 6, load_u32(b + 2), 16);
}

static void read_q5_1(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    row.mins[0] = load_u16(b + 2);
    join_fifth_bits(row.codes, b + 8, load_u32(b + 4), 0);
}

static void read_q2_k(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b + 80);
    row.mins[0] = load_u16(b + 82);
    for (size_t j = 0; j < 16; j++) {
        const unsigned char *q = b + 16 + j / 8 * 32 + j % 2 * 16;
        unsigned shift = (unsigned)(j % 8 / 2 * 2);
        row.fine[j] = (int8_t)(b[j] & 15);
        row.fine_min[j] = b[j] >> 4;
        for (size_t i = 0; i < 16; i++) row.codes[16 * j + i] = q[i] >> shift & 3;
    }
}

static void read_q3_k(skv_quant_row row, const unsigned char *b)
{
    const unsigned char *s = b + 96;
    row.scales[0] = load_u16(b + 108);
    for (size_t j = 0; j < 16; j++) {
        const unsigned char *mask = b + j % 2 * 16, *q = b + 32 + j / 8 * 32 + j % 2 * 16;
        unsigned shift = (unsigned)(j % 8 / 2 * 2), bit = (unsigned)(j / 2);
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4, high = s[8 + j % 4] >> (j / 4 * 2) & 3;
        row.fine[j] = (int8_t)((low | high << 4) - 32);
        for (size_t i = 0; i < 16; i++) {
            row.codes[16 * j + i] = (uint8_t)((q[i] >> shift & 3) + (mask[i] >> bit & 1) * 4 + 4);
        }
    }
}

/* The 8 six-bit scales and 8 six-bit mins of Q4_K and Q5_K, in 12 bytes. */
static void read_k_scales(skv_quant_row row, const unsigned char *s)
{
    for (size_t j = 0; j < 4; j++) {
        row.fine[j] = (int8_t)(s[j] & 63);
        row.fine_min[j] = s[j + 4] & 63;
        row.fine[j + 4] = (int8_t)((s[j + 8] & 15) | (s[j] >> 6) << 4);
        row.fine_min[j + 4] = (uint8_t)((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
    }
}

static void read_q4_k(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    row.mins[0] = load_u16(b + 2);
    read_k_scales(row, b + 4);
    for (size_t i = 0; i < 128; i++) {
        size_t at = i / 32 * 64 + i % 32;
        row.codes[at] = b[16 + i] & 15;
        row.codes[at + 32] = b[16 + i] >> 4;
    }
}

static void read_q5_k(skv_quant_row row, const unsigned char *b)
{
    const unsigned char *high = b + 16;
    row.scales[0] = load_u16(b);
    row.mins[0] = load_u16(b + 2);
    read_k_scales(row, b + 4);
    for (size_t i = 0; i < 128; i++) {
        size_t at = i / 32 * 64 + i % 32, j = i / 32 * 2;
        row.codes[at] = (uint8_t)((b[48 + i] & 15) | (high[i % 32] >> j & 1) << 4);
        row.codes[at + 32] = (uint8_t)((b[48 + i] >> 4) | (high[i % 32] >> (j + 1) & 1) << 4);
    }
}

static void read_q6_k(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b + 208);
    for (size_t j = 0; j < 16; j++) {
        const unsigned char *low = b + j / 8 * 64 + j % 4 * 16;
        const unsigned char *high = b + 128 + j / 8 * 32 + j % 2 * 16;
        unsigned low_shift = (unsigned)(j % 8 / 4 * 4), high_shift = (unsigned)(j % 8 / 2 * 2);
        row.fine[j] = (int8_t)b[192 + j];
        for (size_t i = 0; i < 16; i++) {
            int code = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
            row.codes[16 * j + i] = (uint8_t)(code - 32);
        }
    }
}

static void read_iq4_xs(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = load_u16(b);
    for (size_t j = 0; j < 8; j++) {
        row.fine[j] = (int8_t)skv_iq4_xs_scale(b, j);
        split_nibbles(row.codes + 32 * j, b + 8 + 16 * j);
    }
}

static void read_mxfp4(skv_quant_row row, const unsigned char *b)
{
    row.scales[0] = skv_bf16_of_half_e8m0(b[0]);
    split_nibbles(row.codes, b + 1);
}

#define SIGNED_LEVELS                                                                              \
    {                                                                                              \
        -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7                                     \
    }
#define UNSIGNED_LEVELS                                                                            \
    {                                                                                              \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15                                       \
    }

typedef struct quant_type {
    skv_dtype type;
    read_block_fn *read;
    skv_quant_form form;
} quant_type;

/* type, reader, {bits, group, fine, has_min, bf16, even, levels, zeros} */
static const quant_type types[] = {
    {SKV_DTYPE_Q4_0, read_q4_0, {4, 32, false, false, false, true, SIGNED_LEVELS, false}},
    {SKV_DTYPE_Q4_1, read_q4_1, {4, 32, false, true, false, true, UNSIGNED_LEVELS, false}},
    {SKV_DTYPE_Q4_K, read_q4_k, {4, 32, true, true, false, true, UNSIGNED_LEVELS, false}},
    {SKV_DTYPE_IQ4_NL, read_q4_0, {4, 32, false, false, false, false, SKV_IQ4_LEVELS, false}},
    {SKV_DTYPE_IQ4_XS, read_iq4_xs, {4, 32, true, false, false, false, SKV_IQ4_LEVELS, false}},
    {SKV_DTYPE_MXFP4, read_mxfp4, {4, 32, false, false, true, false, SKV_E2M1_LEVELS, false}},
    {SKV_DTYPE_Q5_0, read_q5_0, {6, 32, false, false, false, false, {0}, false}},
    {SKV_DTYPE_Q5_1, read_q5_1, {6, 32, false, true, false, false, {0}, false}},
    {SKV_DTYPE_Q8_0, read_q8_0, {8, 32, false, false, false, false, {0}, false}},
    {SKV_DTYPE_Q2_K, read_q2_k, {4, 16, true, true, false, true, UNSIGNED_LEVELS, false}},
    {SKV_DTYPE_Q3_K, read_q3_k, {4, 16, true, false, false, true, SIGNED_LEVELS, false}},
    {SKV_DTYPE_Q5_K, read_q5_k, {6, 32, true, true, false, false, {0}, false}},
    {SKV_DTYPE_Q6_K, read_q6_k, {6, 16, true, false, false, false, {0}, false}},
};

/* Where the scales are another tensor, for groups of 32, 64 and 128, of f16 and of bfloat16. */
static const skv_quant_form packed_i4[][2] = {
    {{4, 32, false, false, false, true, SIGNED_LEVELS, false},
     {4, 32, false, false, true, true, SIGNED_LEVELS, false}},
    {{4, 64, false, false, false, true, SIGNED_LEVELS, false},
     {4, 64, false, false, true, true, SIGNED_LEVELS, false}},
    {{4, 128, false, false, false, true, SIGNED_LEVELS, false},
     {4, 128, false, false, true, true, SIGNED_LEVELS, false}},
};
static const skv_quant_form packed_i8[][2] = {
    {{8, 32, false, false, false, false, {0}, false},
     {8, 32, false, false, true, false, {0}, false}},
    {{8, 64, false, false, false, false, {0}, false},
     {8, 64, false, false, true, false, {0}, false}},
    {{8, 128, false, false, false, false, {0}, false},
     {8, 128, false, false, true, false, {0}, false}},
};
static const skv_quant_form packed_e2m1 = {4,    32,    false,           false,
                                           true, false, SKV_E2M1_LEVELS, false};

static const quant_type *find_type(skv_dtype type)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == type) return &types[i];
    }
    return NULL;
}

const skv_quant_form *skv_quant_form_packed(skv_dtype type, size_t group, bool bf16)
{
    switch (type) {
    case SKV_DTYPE_PACKED_I4: return &packed_i4[group / 64][bf16];
    case SKV_DTYPE_PACKED_I8: return &packed_i8[group / 64][bf16];
    case SKV_DTYPE_PACKED_E2M1: return bf16 ? &packed_e2m1 : NULL;
    default: return NULL;
    }
}

const skv_quant_form *skv_quant_form_of(skv_dtype type)
{
    const quant_type *found = find_type(type);
    return found ? &found->form : NULL;
}

void skv_quant_read(skv_quant_rows *rows, size_t i, skv_dtype type, const void *data)
{
    const quant_type *t = find_type(type);
    assert(t);
    skv_quant_row row = skv_quant_row_at(rows, &t->form, i);
    size_t length = skv_dtype_block_elements(type), n_bytes = skv_dtype_block_bytes(type);
    const unsigned char *block = data;
    for (size_t k = 0; k < rows->K; k += length, block += n_bytes) {
        t->read(row, block);
        row.codes += length;
        row.scales++;
        if (row.mins) row.mins++;
        if (row.fine) row.fine += length / t->form.group;
        if (row.fine_min) row.fine_min += length / t->form.group;
    }
}
