/* The tile's shape and its store, which the AVX2 matrix products share. */
#ifndef SKV_KERNELS_X86_MATMUL_TILE_AVX2_H
#define SKV_KERNELS_X86_MATMUL_TILE_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SKV_NR256 = 16, /* columns of a tile: two registers */
    SKV_MR256 = 6,  /* rows: 6 * 2 accumulators leave 4 registers for W and X */
    SKV_KC256 = 1024
};

typedef struct skv_tile256 {
    float *c;       /* [m, 16] */
    size_t ldc;     /* floats between rows */
    size_t n_units; /* steps along K */
    bool add;       /* onto c */
} skv_tile256;

static inline void skv_tile256_store(skv_tile256 t, size_t i, const __m256 sum[2])
{
    float *c = t.c + i * t.ldc;
    for (size_t j = 0; j < 2; j++) {
        __m256 v = sum[j];
        if (t.add) v = _mm256_add_ps(v, _mm256_loadu_ps(c + 8 * j));
        _mm256_storeu_ps(c + 8 * j, v);
    }
}

#endif
