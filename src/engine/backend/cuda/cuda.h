/* The CUDA back end: NVIDIA's GPUs, by the driver's own interface. */
#ifndef SKV_BACKEND_CUDA_H
#define SKV_BACKEND_CUDA_H

#include "backend/devices.h"

/* Products sum in an order that depends on how many rows they have. */
#define SKV_CUDA_PROMISES SKV_PROMISE_REPEATS

#define SKV_CUDA_NO_KERNELS                                                                        \
    "this program was built without kernels for GPUs (-DSKV_CUDA=ON builds them, with nvcc)"

SKV_MUST_CHECK skv_status skv_backend_cuda_create(const skv_backend_options *options,
                                                  skv_backend **out, skv_error *err);
/** Its kind's `find`. */
bool skv_cuda_find(char *found, size_t room, skv_bytes *memory, skv_bytes *available);

#endif
