/*
 * Quantised matrices as files hold them: codes, and scales for groups of 16 to 128 of them.
 * Computing with the codes is lossless.
 *
 *   w[j, k] = scale[j, g] * value(code[j, k]) + min[j, g],   g = k / group
 *
 * With fine scales, scale = d * fine and min = -dmin * fine_min, where d and dmin belong to
 * SKV_QUANT_SPAN elements.
 */
#ifndef SKV_QUANT_H
#define SKV_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/size.h"

enum {
    SKV_QUANT_GROUP = 32, /* K of a quantised matrix is a multiple of it */
    SKV_QUANT_WIDE = 128, /* largest group with a scale of its own */
    SKV_QUANT_SPAN = 256, /* elements that share d and dmin, with fine scales */
    SKV_QUANT_LEVELS = 16 /* values of a code of 4 bits */
};

typedef struct skv_quant_form {
    uint8_t bits;  /* 4: a code is 0..15, its value levels[code]; 6: value = (int8_t)code, which is
                      -32..31; 8: value = (int8_t)code */
    uint8_t group; /* 16, 32, 64 or 128 elements share a scale; with fine scales 16 or 32 */
    bool fine;     /* scales are d * fine */
    bool has_min;  /* false: min = 0 */
    bool bf16;     /* scales and mins are bfloat16; false: f16 */
    bool even;     /* 4 bits: levels[c] == levels[0] + c */
    int8_t levels[SKV_QUANT_LEVELS];
    bool zeros; /* mins are multiples of the scale, whose product with it is the min */
} skv_quant_form;

/* Rows [n, K] of a matrix. G = K / group. S = G without fine scales; with them, the number of
 * spans, ceil(K / SKV_QUANT_SPAN). Fields that the form does not use are NULL. */
typedef struct skv_quant_rows {
    size_t n, K;
    uint8_t *codes;    /* [n, K] */
    uint16_t *scales;  /* [n, S] bits of f16 or bfloat16: the scale, or d */
    uint16_t *mins;    /* [n, S] the min, its multiple of the scale, or dmin */
    int8_t *fine;      /* [n, G] */
    uint8_t *fine_min; /* [n, G] */
} skv_quant_rows;

/** The form in which floats are rounded to 4 bits: 16 even levels from -8, one scale for 32. */
const skv_quant_form *skv_quant_form_int4(void);

/** Codes with a zero point of 4 bits: 16 even levels from -8, and 8 - zero as the multiple of the
 * scale that is the min, so that nothing is rounded. Scales of bfloat16 or f16, for groups of 32,
 * 64 or 128. */
const skv_quant_form *skv_quant_form_zeros(size_t group, bool bf16);

/* One row of skv_quant_rows; fields that the form does not use are NULL. */
typedef struct skv_quant_row {
    uint8_t *codes;
    uint16_t *scales, *mins;
    int8_t *fine;
    uint8_t *fine_min;
} skv_quant_row;

/** Row i of `rows`. */
skv_quant_row skv_quant_row_at(const skv_quant_rows *rows, const skv_quant_form *form, size_t i);

/** Bytes that skv_quant_rows_init needs for n rows. */
size_t skv_quant_rows_bytes(const skv_quant_form *form, size_t n, size_t K);
/** Points `rows` into `memory`, 64-byte aligned. */
void skv_quant_rows_init(skv_quant_rows *rows, const skv_quant_form *form, size_t n, size_t K,
                         void *memory);
/** out [K] = row i as f32. */
void skv_quant_row_to_f32(const skv_quant_rows *rows, const skv_quant_form *form, size_t i,
                          float *out);

/** The first scale or min of row i that is NaN or infinite; 0 where all are finite. */
float skv_quant_row_fault(const skv_quant_rows *rows, const skv_quant_form *form, size_t i);
/** The first of x [n] that is NaN or infinite; 0 where all are finite. */
float skv_quant_fault(const float *x, size_t n);

/** S above. */
static inline size_t skv_quant_spans(const skv_quant_form *form, size_t K)
{
    return form->fine ? skv_ceil_div(K, SKV_QUANT_SPAN) : K / form->group;
}

#endif
