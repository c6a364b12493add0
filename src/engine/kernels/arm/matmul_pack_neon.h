/*
 * Packing for the NEON int8 matrix products, with 16 rows of W to a panel. A unit is four codes
 * (eight for SMMLA: `_neoni8mm`) of one row along K, the last one padded with zeros.
 *
 *   panel: per group along K (skv_i8_group)      block: per group
 *     [16] bfloat16 scales                         [m] f32 scales
 *     [U_group][16] units                          [U_group][m] units
 */
#ifndef SKV_KERNELS_ARM_MATMUL_PACK_NEON_H
#define SKV_KERNELS_ARM_MATMUL_PACK_NEON_H

#include <stddef.h>
#include <stdint.h>

#include "base/size.h"
#include "kernels/kernels.h"

enum { SKV_I8_NR128 = 16 };

size_t skv_pack_w_i8_bytes_neon(size_t K);
size_t skv_pack_x_i8_bytes_neon(size_t m, size_t K);
void skv_pack_w_i8_neon(void *panel, const float *w, size_t ldw, size_t n, size_t K);
void skv_pack_x_i8_neon(void *block, const float *x, size_t ldx, size_t m, size_t K);
size_t skv_pack_w_i8_bytes_neoni8mm(size_t K);
size_t skv_pack_x_i8_bytes_neoni8mm(size_t m, size_t K);
void skv_pack_w_i8_neoni8mm(void *panel, const float *w, size_t ldw, size_t n, size_t K);
void skv_pack_x_i8_neoni8mm(void *block, const float *x, size_t ldx, size_t m, size_t K);

/* Bytes of one whole group of `length` codes along K. */
static inline size_t skv_pack_w_i8_group_neon(size_t length)
{
    return SKV_I8_NR128 * (sizeof(uint16_t) + length);
}

static inline size_t skv_pack_x_i8_group_neon(size_t m, size_t length)
{
    return m * (sizeof(float) + length);
}

#endif
