/* Packing of rows as floats, which several plain matrix products share. */
#ifndef SKV_KERNELS_REF_MATMUL_REF_H
#define SKV_KERNELS_REF_MATMUL_REF_H

#include <stddef.h>

static inline size_t skv_ref_x_bytes(size_t m, size_t K)
{
    return K * m * sizeof(float);
}

/* Block [K][m] floats. */
static inline void skv_ref_pack_x(void *block, const float *x, size_t ldx, size_t m, size_t K)
{
    float *out = block;
    for (size_t k = 0; k < K; k++) {
        for (size_t i = 0; i < m; i++) out[k * m + i] = x[i * ldx + k];
    }
}

#endif
