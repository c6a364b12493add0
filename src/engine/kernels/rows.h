/*
 * Rows of activations: one constant table for each instruction set, and the functions that put
 * those of a level into the kernel table.
 */
#ifndef SKV_KERNELS_ROWS_H
#define SKV_KERNELS_ROWS_H

#include "kernels/kernels.h"

typedef struct skv_row_kernels {
    skv_rmsnorm_fn *rmsnorm;
    skv_rope_fn *rope;
    skv_glu_fn *silu_glu;
    skv_glu_fn *gelu_tanh_glu;
    skv_glu_fn *sigmoid_glu;
    skv_axpy_fn *axpy;
    skv_softcap_fn *softcap;
    skv_logsumexp_fn *logsumexp;
    skv_add_exp_fn *add_exp;
    skv_from_bf16_fn *from_bf16;
    skv_to_bf16_fn *to_bf16;
    skv_dot_fn *dot;
} skv_row_kernels;

/* The specification, in every build. */
extern const skv_row_kernels skv_rows_ref;
/* x86-64 builds only; AArch64 builds only. */
extern const skv_row_kernels skv_rows_avx2, skv_rows_avx512;
extern const skv_row_kernels skv_rows_neon;

void skv_rows_init_ref(skv_kernels *k);
/* The caller has checked the level's own feature. */
void skv_rows_init_avx2(skv_kernels *k);
void skv_rows_init_avx512(skv_kernels *k);
void skv_rows_init_neon(skv_kernels *k);

#endif
