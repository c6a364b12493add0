/* Block-quantised element types of GGUF -> f32. */
#ifndef SKV_FORMAT_DEQUANT_H
#define SKV_FORMAT_DEQUANT_H

#include <stddef.h>

#include "format/dtype.h"

/** Writes one block's elements; `block` has skv_dtype_block_bytes(type) bytes, unaligned. */
typedef void skv_dequant_block_fn(float *out, const unsigned char *block);

/** The function of a block-quantised type, NULL for F32, F16, BF16. */
skv_dequant_block_fn *skv_dequant_block(skv_dtype type);

#endif
