/*
 * The processor's features, less those whose kernels differ from the reference. Kernels that no
 * machine of ours has run are compared with plain integers before they are used.
 */
#ifndef SKV_CPU_VERIFY_H
#define SKV_CPU_VERIFY_H

#include "base/quant.h"
#include "kernels/kernels.h"

/** skv_cpu_detect without those of AMX, I8MM and BF16 of ARM whose product is wrong here,
 * or for whose comparison there was no memory. Takes about a millisecond where there is something
 * to compare. */
unsigned skv_cpu_verified(void);
/** True when a product of any kind but `q` equals an integer dot product, bit for bit. False
 * also without memory. */
bool skv_matmul_is_exact(const skv_matmul *mm);
/** True when two forms of a product have the same bits, for blocks of any number of rows. `form`:
 * of the weights of `q`; else NULL. False also without memory. */
bool skv_matmul_agrees(const skv_matmul *mm, const skv_matmul *usual, const skv_quant_form *form);
/** The same of `q`, for forms of all kinds. */
bool skv_matmul_q_agrees(const skv_matmul *mm, const skv_matmul *usual);
/** True when the attention of two tables over pages of bf16 and of int8 differs by no more than
 * rounding allows. `below` fills the pages. False also without memory. */
bool skv_attention_agrees(const skv_kernels *k, const skv_kernels *below);

#endif
