/* The tile of the plain matrix products, and the packing of rows that several of them share. */
#ifndef SKV_KERNELS_REF_MATMUL_REF_H
#define SKV_KERNELS_REF_MATMUL_REF_H

#include <math.h>
#include <stddef.h>

enum { NR = 16, MR = 4, KC = 2048 };
#define SKV_REF_TILE .nr = NR, .mr = MR, .kc = KC

static inline float skv_ref_largest(const float *x, size_t n)
{
    float amax = 0.0f;
    for (size_t k = 0; k < n; k++) amax = fmaxf(amax, fabsf(x[k]));
    return amax;
}

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
