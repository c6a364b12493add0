/* Kernels that no machine of ours has run are compared with plain integers before they are used. */
#ifndef SKV_VERIFY_H
#define SKV_VERIFY_H

#include "kernels/kernels.h"

/** The features without those of SKV_CPU_NEON_I8MM and SKV_CPU_NEON_BF16 whose product is wrong on
 * this processor, or for whose comparison there was no memory. Call it after skv_cpu_detect. */
unsigned skv_kernels_verify(unsigned features);
/** True when a product of any kind but `q` computes what an integer dot product does, bit for bit.
 * False also without memory. */
bool skv_matmul_is_exact(const skv_matmul *mm);

#endif
