/*
 * Products of few rows with AVX-512 on the operands of AMX, with the sums of its tiles to the bit:
 * matmul_amx.inc's form `few`. The layouts are those of form `paired`.
 */
#ifndef SKV_KERNELS_X86_MATMUL_FEW_H
#define SKV_KERNELS_X86_MATMUL_FEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SKV_FEW_ROWS = 4, SKV_FEW_COLUMNS = 32 };

typedef struct skv_few_rows {
    const unsigned char *x; /* [n_steps][m][step bytes], 1 <= m <= SKV_FEW_ROWS */
    const unsigned char *w; /* [n_steps][step / 4][SKV_FEW_COLUMNS] units of 4 bytes */
    size_t n_steps, step, m;
} skv_few_rows;

/* dot [m, SKV_FEW_COLUMNS] = products of signed codes. step is 32 or 64. */
void skv_few_i8_avx512vnni(int32_t *dot, const skv_few_rows *rows);
/* c [m, SKV_FEW_COLUMNS], rows ldc floats apart, (+)= products of bfloat16. step is 64. */
void skv_few_bf16_avx512vnni(float *c, size_t ldc, const skv_few_rows *rows, bool add);

#endif
