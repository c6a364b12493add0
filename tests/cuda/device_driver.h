/*
 * The device of the tests is what libcuda.so.1 drives. SKV_CUDA_IMAGE names the kernels as nvcc
 * has compiled them (the target cuda_kernels).
 */
#ifndef SKV_TESTS_DEVICE_DRIVER_H
#define SKV_TESTS_DEVICE_DRIVER_H

#include "backend/cuda/cuda_api.h"

/** Without an image or a GPU it ends the program as skipped, with a line. */
void device_open(void);
void device_close(void);

const skv_cuda_api *device_api(void);
skv_cu_stream device_stream(void);
/** The kernels, as SKV_CUDA_IMAGE has them; the caller frees it. */
void *device_image(void);

#endif
