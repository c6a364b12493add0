/* The tile's shape and its store, which the AVX-512 matrix products share. */
#ifndef SKV_KERNELS_X86_MATMUL_TILE_AVX512_H
#define SKV_KERNELS_X86_MATMUL_TILE_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SKV_NR512 = 64, /* columns of a tile: four registers */
    SKV_MR512 = 6,  /* rows: 6 * 4 accumulators leave 8 registers for W and X */
    SKV_KC512 = 2048
};

typedef struct skv_tile512 {
    float *c;       /* [m, 64] */
    size_t ldc;     /* floats between rows */
    size_t n_units; /* steps along K */
    bool add;       /* onto c */
} skv_tile512;

/* Fetches the lines of n columns of c to write while the tile is computed: they come from far away.
 * Assembly, because gcc 12 takes a function of mere prefetches for one without effect. */
static inline __attribute__((always_inline)) void skv_tile512_fetch(skv_tile512 t, size_t m,
                                                                    const size_t n)
{
    for (size_t i = 0; i < m; i++) {
        float *c = t.c + i * t.ldc;
        for (size_t j = 0; j < n; j += 16) __asm__ volatile("prefetchw %0" : : "m"(c[j]));
    }
}

static inline void skv_tile512_store(skv_tile512 t, size_t i, const __m512 sum[4], const size_t n)
{
    float *c = t.c + i * t.ldc;
    for (size_t j = 0; j < n / 16; j++) {
        __m512 v = sum[j];
        if (t.add) v = _mm512_add_ps(v, _mm512_loadu_ps(c + 16 * j));
        _mm512_storeu_ps(c + 16 * j, v);
    }
}

#endif
