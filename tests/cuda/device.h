/*
 * Where the tests of kernels run: memory and launches of a device, in order. device_emulated.c has
 * them on the emulated GPU itself, device_driver.c on whatever libcuda.so.1 drives: a GPU, or
 * fake_driver.c. What fails ends the program.
 */
#ifndef SKV_TESTS_DEVICE_H
#define SKV_TESTS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/kernels/cuda_args.h"

/** Orders of lanes and warps that can be chosen: one on a GPU. */
size_t device_orders(void);
void device_set_order(size_t order);

/** Whether kernels with wgmma run. */
bool device_has_wgmma(void);

/** Cycles that ldmatrix has lost so far to rows that meet in a bank; 0 where it is not known. */
unsigned long long device_bank_conflicts(void);

/** Memory of the device, full of bytes 0xff, which are NaNs in every type of numbers. */
void *device_new(size_t n_bytes);
void device_free(void *at);
void device_put(void *to, const void *host, size_t n_bytes);
void device_get(void *host, const void *from, size_t n_bytes);

typedef struct device_grid {
    uint32_t x, y, z; /* 0: 1 */
    uint32_t shared;  /* bytes a block */
} device_grid;

/** `args` is the kernel's struct. */
void device_launch(skv_cuda_kernel kernel, device_grid grid, const void *args);

#endif
