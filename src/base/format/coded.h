/*
 * Matrices W [N, K] of 8 and 4 bits with separate tensors of scales, in the published layouts:
 *
 *     layout  codes                                                   scales
 *     FP8     X.weight F8_E4M3 [N, K]                                 see below
 *     I8      X.weight I8 [N, K]
 *     BYTES   X.weight_packed I32 [N, K / 4], lowest bits first, + 128
 *     PACKED  X.weight_packed I32 [N, K / 8], lowest nibble first     [N, K / group]
 *     E2M1    X.weight_packed U8 [N, K / 2], low nibble first         U8 [N, K / 32]: 2^(s - 127)
 *     E2M1    X_blocks U8 [E, N, K / 32, 16], of experts              X_scales U8 [E, N, K / 32]
 *     GPTQ    X.qweight I32 [K / 8, N], row 8 r + i at bits 4 i       [K / group, N]
 *     AWQ     X.qweight I32 [K, N / 8], columns in AWQ's order        [K / group, N]
 *
 *     w[n, k] = (code[n, k] - zero[n, g]) * scale[n, g],   g = k / group, or g_idx[k]
 *
 * X.weight_scale or X.weight_scale_inv (which multiplies, too) is one number, [N, 1], [N, K /
 * group] or one number a block of rows and columns. Zero points have 4 bits and are stored like the
 * codes, along N: X.weight_zero_point [N / 8, K / group], X.qzeros [K / group, N / 8]; without them
 * codes of 4 bits have 8. X.weight_shape [2] of I64 or I32 is N and K of packed codes.
 */
#ifndef SKV_FORMAT_CODED_H
#define SKV_FORMAT_CODED_H

#include "base/fail.h"
#include "format/tensor.h"

enum { SKV_QUANT_SCHEMES_MAX = 8 };

/* How config.json declares some modules to be quantised; 0: not declared. */
typedef struct skv_quant_scheme {
    size_t bits, group;
    bool ordered; /* a tensor has each column's group */
} skv_quant_scheme;

/* The parts of config.json's quantization_config that the tensors lack, or must agree with. */
typedef struct skv_quant_config {
    char method[24];      /* quant_method, "": none */
    size_t block[2];      /* weight_block_size or block_structure, 0: absent */
    bool zeros_minus_one; /* GPTQ's first format */
    skv_quant_scheme schemes[SKV_QUANT_SCHEMES_MAX];
    size_t n_schemes; /* more than there is room for: none is checked */
} skv_quant_config;

/* The tensors beside the codes; NULL if absent. */
typedef struct skv_coded_parts {
    const skv_tensor *scales, *zeros, *groups, *shape;
} skv_coded_parts;

/** Makes the matrix of its parts, in place of `codes`. *unusable: why its codes cannot be used, or
 * NULL. Errors name the part. */
SKV_MUST_CHECK skv_status skv_coded_join(skv_tensor *codes, const skv_coded_parts *parts,
                                         const char **unusable, skv_error *err);
/** Applies config.json's settings, which must not contradict the tensors. */
SKV_MUST_CHECK skv_status skv_coded_settle(skv_tensor *t, const skv_quant_config *config,
                                           skv_error *err);

/** True for codes of 4 bits, false for 8. */
static inline bool skv_coded_has_nibbles(const skv_tensor_coded *c)
{
    return c->layout >= SKV_CODES_PACKED;
}

/** Reads out [n_rows, n_columns], columns from column0 on (a multiple of 8) of rows from `row` on
 * of the whole matrix that t lies in. Codes stored by columns are read much faster many rows at a
 * time. */
void skv_coded_read_rows(const skv_tensor *t, size_t row, size_t n_rows, size_t column0,
                         size_t n_columns, float *out);
/** Rows [i, i + n_rows) of `rows` = rows->K columns of them as codes: for tensors that have a form.
 */
void skv_coded_read_codes(const skv_tensor *t, size_t row, size_t column0, skv_quant_rows *rows,
                          size_t i, size_t n_rows);
/** As skv_tensor_fp8_group. */
size_t skv_coded_fp8_group(const skv_tensor *t, size_t column0, size_t n_columns);
/** Row `row` of the whole matrix, columns from column0 on: codes [n_columns], and a scale for each
 * group of them. */
void skv_coded_read_fp8(const skv_tensor *t, size_t row, size_t column0, size_t n_columns,
                        uint8_t *codes, float *scales);
/** As skv_tensor_form_of. */
const skv_quant_form *skv_coded_form(const skv_tensor *t, size_t column0, size_t n_columns);
/** Whether the elements of a row are not contiguous. */
bool skv_coded_is_by_column(const skv_tensor *t);
/** As skv_tensor_forget. */
void skv_coded_forget(const skv_tensor *t);
/** Checks that the files of all parts are whole. */
SKV_MUST_CHECK skv_status skv_coded_check(const skv_tensor *t, skv_error *err);
/** "fp8 in blocks of 128x128", cut to size - 1 characters. */
void skv_coded_text(const skv_tensor *t, char *out, size_t size);

#endif
