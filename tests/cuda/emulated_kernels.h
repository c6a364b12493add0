/* The kernels for the emulated GPU, by their number. */
#ifndef SKV_TESTS_EMULATED_KERNELS_H
#define SKV_TESTS_EMULATED_KERNELS_H

#include "emulator.h"

typedef struct emu_kernel {
    void (*run)(const void *args);
    unsigned threads;  /* of a block */
    size_t args_bytes; /* its struct's */
    const char *text;  /* its name */
} emu_kernel;

extern const emu_kernel emu_kernels[SKV_CUDA_KERNEL_COUNT];

#endif
