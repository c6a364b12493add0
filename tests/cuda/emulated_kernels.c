/* The kernels of src/engine/backend/cuda, compiled for the emulated GPU, and a table of them. */
#include "emulated_kernels.h"

#include "backend/cuda/kernels/all_kernels.inc"

#define X(name, args, n_threads)                                                                   \
    static void run_##name(const void *p)                                                          \
    {                                                                                              \
        name(*(const args *)p);                                                                    \
    }
SKV_CUDA_KERNELS(X)
#undef X

const emu_kernel emu_kernels[SKV_CUDA_KERNEL_COUNT] = {
#define X(name, args, n_threads)                                                                   \
    {.run = run_##name, .threads = n_threads, .args_bytes = sizeof(args), .text = #name},
    SKV_CUDA_KERNELS(X)
#undef X
};
