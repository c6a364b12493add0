/*
 * Rows of activations: who fills which entries of the kernel table. Each function overlays what
 * `features` (skv_cpu_detect) can run and leaves the rest as it was; skv_kernels_init calls them
 * in rising order.
 */
#ifndef SKV_KERNELS_ROWS_H
#define SKV_KERNELS_ROWS_H

#include "kernels/kernels.h"

void skv_rows_init_ref(skv_kernels *k, unsigned features);
void skv_rows_init_avx2(skv_kernels *k, unsigned features);
void skv_rows_init_avx512(skv_kernels *k, unsigned features);
void skv_rows_init_neon(skv_kernels *k, unsigned features);

#endif
