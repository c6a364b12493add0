/* What the AVX-512 matrix products share: the tile's shape, its store, the prefetch. */
#ifndef SKV_KERNELS_X86_MATMUL_TILE_AVX512_H
#define SKV_KERNELS_X86_MATMUL_TILE_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    SKV_NR512 = 64, /* columns of a tile: four registers */
    SKV_MR512 = 6,  /* rows: 6 * 4 accumulators leave 8 registers for W and X */
    SKV_KC512 = 2048,
    SKV_PREFETCH512 = 2048 /* bytes ahead in the panel: with one row the loop waits for memory */
};

typedef struct skv_tile512 {
    float *c;       /* [m, 64] */
    size_t ldc;     /* floats between rows */
    size_t n_units; /* steps along K */
    bool add;       /* onto c */
} skv_tile512;

/* The four lines of W that come SKV_PREFETCH512 bytes later; beyond the panel it does no harm.
 * Assembly, because gcc 12 takes a function of mere prefetches for one without effect. */
static inline __attribute__((always_inline)) void skv_prefetch_units512(const void *w)
{
    const char *ahead = (const char *)w + SKV_PREFETCH512;
    __asm__ volatile("prefetcht0 (%0)\n\tprefetcht0 64(%0)\n\t"
                     "prefetcht0 128(%0)\n\tprefetcht0 192(%0)"
                     :
                     : "r"(ahead));
}

static inline void skv_tile512_store(skv_tile512 t, size_t i, const __m512 sum[4])
{
    float *c = t.c + i * t.ldc;
    for (size_t j = 0; j < 4; j++) {
        __m512 v = sum[j];
        if (t.add) v = _mm512_add_ps(v, _mm512_loadu_ps(c + 16 * j));
        _mm512_storeu_ps(c + 16 * j, v);
    }
}

#endif
