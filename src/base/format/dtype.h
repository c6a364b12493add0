/* Element types of tensors in files, and reading their rows as f32. */
#ifndef SKV_FORMAT_DTYPE_H
#define SKV_FORMAT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/quant.h"

/*
 * name, elements in a block, bytes of a block
 *
 * F8_E4M3, I8 and PACKED: codes with scales in another tensor (skv_tensor.coded); only that path
 * reads packed codes. U8 as f32 has its value as a scale of MXFP4 (E8M0): 2^(u - 127). I32 is a
 * list of ids, which f32 holds exactly (no vocabulary is above 2^24), or is written and never read,
 * as I64 is.
 */
#define SKV_DTYPE_LIST(X)                                                                          \
    X(F32, 1, 4)                                                                                   \
    X(F16, 1, 2)                                                                                   \
    X(BF16, 1, 2)                                                                                  \
    X(Q8_0, 32, 34)                                                                                \
    X(Q4_0, 32, 18)                                                                                \
    X(Q4_1, 32, 20)                                                                                \
    X(Q5_0, 32, 22)                                                                                \
    X(Q5_1, 32, 24)                                                                                \
    X(Q2_K, 256, 84)                                                                               \
    X(Q3_K, 256, 110)                                                                              \
    X(Q4_K, 256, 144)                                                                              \
    X(Q5_K, 256, 176)                                                                              \
    X(Q6_K, 256, 210)                                                                              \
    X(IQ4_NL, 32, 18)                                                                              \
    X(IQ4_XS, 256, 136)                                                                            \
    X(MXFP4, 32, 17)                                                                               \
    X(PACKED_I4, 8, 4)                                                                             \
    X(PACKED_I8, 4, 4)                                                                             \
    X(F8_E4M3, 1, 1)                                                                               \
    X(I8, 1, 1)                                                                                    \
    X(PACKED_E2M1, 2, 1)                                                                           \
    X(U8, 1, 1)                                                                                    \
    X(I32, 1, 4)                                                                                   \
    X(I64, 1, 8)

typedef enum skv_dtype {
#define SKV_DTYPE_ENUM(name, n, bytes) SKV_DTYPE_##name,
    SKV_DTYPE_LIST(SKV_DTYPE_ENUM)
#undef SKV_DTYPE_ENUM
        SKV_DTYPE_COUNT
} skv_dtype;

const char *skv_dtype_name(skv_dtype type);
size_t skv_dtype_block_elements(skv_dtype type);
size_t skv_dtype_block_bytes(skv_dtype type);
/** Bytes of n elements; false when n is not whole blocks or the size does not fit. */
bool skv_dtype_bytes(skv_dtype type, size_t n, size_t *n_bytes);
/** out[0..n) = the n elements at data as f32; n is whole blocks. data needs no alignment. */
void skv_dtype_to_f32(skv_dtype type, float *out, const void *data, size_t n);
/** out[0..n) = in[0..n) rounded to F32, F16 or BF16 (to nearest, ties to even), or to I32 where
 * they are whole numbers that it holds; no other type. */
void skv_dtype_from_f32(skv_dtype type, void *out, const float *in, size_t n);

/* Their codes as they are: quant.h. */

/** The form of a block-quantised type; NULL for types that hold floats. */
const skv_quant_form *skv_quant_form_of(skv_dtype type);
/** The form of a PACKED type with scales of bfloat16 or f16 for groups of 32, 64 or 128 (of E2M1
 * always 32), NULL for any other type. */
const skv_quant_form *skv_quant_form_packed(skv_dtype type, size_t group, bool bf16);
/** Row i of `rows` = the K elements at data, blocks of a type that skv_quant_form_of knows. */
void skv_quant_read(skv_quant_rows *rows, size_t i, skv_dtype type, const void *data);

#endif
