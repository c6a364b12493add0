/*
 * Linear attention: one constant table for each instruction set, and the functions that put those
 * of a level into the kernel table.
 */
#ifndef SKV_KERNELS_SCAN_H
#define SKV_KERNELS_SCAN_H

#include "kernels/kernels.h"

/* The specification, in every build. */
extern const skv_scan_kernels skv_scan_ref;

void skv_scan_init_ref(skv_kernels *k);

#endif
