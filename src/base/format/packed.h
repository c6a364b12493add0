/*
 * The layout `pack-quantized` of compressed-tensors: a matrix X.weight [N, K] is
 *
 *     X.weight_packed  I32 [N, ceil(K / P)]  P = 32 / bits codes, lowest bits first, + 2^(bits - 1)
 *     X.weight_scale   F32, F16 or BF16 [N, K / group]
 *     X.weight_shape   I64 or I32 [2]        N, K
 *
 *     w[j, k] = code[j, k] * scale[j, k / group]
 *
 * for 4 and 8 bits. The parts tell everything, so config.json is not asked.
 */
#ifndef SKV_FORMAT_PACKED_H
#define SKV_FORMAT_PACKED_H

#include "base/fail.h"
#include "format/tensor.h"

/** Makes the matrix of its parts, in place of `codes`. *unusable: why its codes cannot be used, or
 * NULL. Errors name the field. */
SKV_MUST_CHECK skv_status skv_packed_join(skv_tensor *codes, const skv_tensor *scales,
                                          const skv_tensor *shape, const char **unusable,
                                          skv_error *err);

#endif
