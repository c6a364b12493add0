/*
 * Packing for the x86 matrix products, AVX2 and AVX-512 alike. A "unit" is 4 bytes of one row
 * along K: one f32, two bfloat16 or four int8. With U = ceil(K / elements of a unit):
 *
 *   f32, bf16   panel [U][nr] units                     block [U][m] units, 32 bytes unused
 *   int8        per group along K (skv_i8_group):       per group:
 *               [nr] bfloat16 scales                    [m] f32 scales
 *               [U_group][nr] units                     [m] int32 sums of the codes times -128
 *                                                       [U_group][m] units; 32 bytes unused at
 *                                                       the end
 *   int8 as     the same with units in halves:          the same with codes of 16 bits in halves:
 *   pairs       [U_group][2][nr] pairs of codes         [U_group][2][m] pairs
 *
 * K that is no whole number of units is padded with zeros. The unused bytes let the packing
 * store whole vectors. Reading a panel or a block from front to back is one contiguous stream.
 */
#ifndef SKV_KERNELS_X86_MATMUL_PACK_H
#define SKV_KERNELS_X86_MATMUL_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/size.h"
#include "kernels/kernels.h"

enum { SKV_UNIT = 4, SKV_BLOCK_SLACK = 32 };

/* A weight matrix to pack: w [n, K], rows `ld` floats apart. */
typedef struct skv_pack_rows {
    const float *rows;
    size_t ld, n, K;
} skv_pack_rows;

void skv_pack_w_f32_avx2(void *panel, skv_pack_rows w, size_t nr);
void skv_pack_w_bf16_avx2(void *panel, skv_pack_rows w, size_t nr);
/* Groups of `length` along K. The codes are xored with `flip`: 0 leaves them signed, 0x80 adds
 * 128. */
void skv_pack_w_i8_avx2(void *panel, skv_pack_rows w, size_t nr, size_t length, uint8_t flip);
void skv_pack_w_i8_pairs_avx2(void *panel, skv_pack_rows w, size_t nr);

void skv_pack_x_f32_avx2(void *block, skv_pack_rows x);
void skv_pack_x_bf16_avx2(void *block, skv_pack_rows x);
/* Rounded to bfloat16 but stored as f32, one unit an element. */
void skv_pack_x_rounded_avx2(void *block, skv_pack_rows x);
/* `code` is the bytes of a code: 1, or 2 for pairs. */
void skv_pack_x_i8_avx2(void *block, skv_pack_rows x, size_t code);
/* For quantised weights: the layout is quant_panel.h's. */
void skv_pack_x_q_avx2(void *block, skv_pack_rows x);

static inline size_t skv_pack_bytes(size_t rows, size_t units)
{
    return rows * units * SKV_UNIT;
}

static inline size_t skv_pack_w_i8_bytes(size_t nr, size_t K)
{
    size_t n_groups = skv_ceil_div(K, skv_i8_group(K));
    return n_groups * nr * sizeof(uint16_t) + skv_pack_bytes(nr, skv_ceil_div(K, 4));
}

static inline size_t skv_pack_x_i8_bytes(size_t m, size_t K, size_t code)
{
    size_t n_groups = skv_ceil_div(K, skv_i8_group(K));
    return skv_pack_bytes(m, 2 * n_groups + code * skv_ceil_div(K, 4)) + SKV_BLOCK_SLACK;
}

/* Bytes of one whole int8 group of `length` codes along K. */
static inline size_t skv_pack_w_i8_group(size_t nr, size_t length)
{
    return nr * (sizeof(uint16_t) + length);
}

static inline size_t skv_pack_x_i8_group(size_t m, size_t length, size_t code)
{
    return m * (2 * SKV_UNIT + code * length);
}

#endif
