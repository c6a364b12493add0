/*
 * Linear attention: one constant table for each instruction set, and the functions that put those
 * of a level into the kernel table.
 */
#ifndef SKV_KERNELS_SCAN_H
#define SKV_KERNELS_SCAN_H

#include "kernels/kernels.h"

/* The specification, in every build. */
extern const skv_scan_kernels skv_scan_ref;
/* x86-64 builds only; AArch64 builds only. */
extern const skv_scan_kernels skv_scan_avx2, skv_scan_avx512;
extern const skv_scan_kernels skv_scan_neon;

void skv_scan_init_ref(skv_kernels *k);
/* The caller has checked the level's own feature. */
void skv_scan_init_avx2(skv_kernels *k);
void skv_scan_init_avx512(skv_kernels *k);
void skv_scan_init_neon(skv_kernels *k);

#endif
