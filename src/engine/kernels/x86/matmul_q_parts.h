/*
 * What the product of matmul_q_amx.inc does without tiles: unpacking codes and scales of a panel,
 * and scaling the sums of tiles. With AVX-512 here; the tests have it in plain C as well.
 */
#ifndef SKV_KERNELS_X86_MATMUL_Q_PARTS_H
#define SKV_KERNELS_X86_MATMUL_Q_PARTS_H

#include "kernels/quant_panel.h"

enum {
    SKV_Q_NR = 64,   /* columns of a panel */
    SKV_Q_TILE = 16, /* rows and columns of a tile of sums */
    SKV_Q_SUMS = 4   /* most parts whose sums are scaled together */
};

/*
 * What becomes of the sums of n <= SKV_Q_SUMS parts, of one tile:
 *     sum [rows, 16]    = 0, or what is there; += dot scale, then += x_sum min; part after part
 *     scaled [rows, 64] += sum x_scale, after the last
 * by fused multiply-adds.
 */
typedef struct skv_q_end {
    size_t n, rows;
    bool first, last;
    const int32_t *dots;             /* [n][16][16], 64-byte aligned */
    const float *scales, *mins;      /* [n], SKV_Q_NR apart; mins NULL: none */
    const float *x_sums[SKV_Q_SUMS]; /* [rows] each */
    const float *x_scales;           /* [rows] */
    float *sum, *scaled;             /* [16][16], [.., SKV_Q_NR] */
} skv_q_end;

/* to [4][64] units = the values of SKV_QUANT_HALF elements whose codes stand at `codes`. */
void skv_q_values_avx512(int8_t *to, const unsigned char *codes, const skv_quant_header *h);
/* Scales [64] of a part, which stand at `at` or belong to the span, and its mins, if it has any. */
void skv_q_scales_avx512(float *scales, float *mins, const skv_quant_header *h,
                         const unsigned char *at, const uint16_t *span);
void skv_q_end_avx512(const skv_q_end *e);

#endif
