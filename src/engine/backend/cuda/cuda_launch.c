/* Launches of kernels, in a context that is set. */
#include <assert.h>

#include "backend/cuda/cuda_graphs.h"

static const struct {
    const char *name;
    unsigned threads;
} kernels[SKV_CUDA_KERNEL_COUNT] = {
#define X(name, args, n_threads) {#name, n_threads},
    SKV_CUDA_KERNELS(X)
#undef X
};

const char *skv_cuda_kernel_name(skv_cuda_kernel kernel)
{
    return kernels[kernel].name;
}

bool skv_cuda_is_ready(skv_cuda_device *d)
{
    return d->failed == SKV_OK && d->api.context_set(d->context) == 0;
}

void skv_cuda_issue(skv_cuda_device *d, skv_cuda_kernel kernel, skv_cuda_grid grid,
                    const void *args)
{
    void *argument = (void *)(uintptr_t)args;
    static_assert(sizeof(skv_cu_launch_attribute) == 72 && sizeof(skv_cu_launch) == 56,
                  "as the driver has them");
    skv_cu_launch_attribute chained = {.id = SKV_CU_LAUNCH_CHAINED, .value = {1}};
    const skv_cu_launch launch = {.x = grid.x ? grid.x : 1,
                                  .y = grid.y ? grid.y : 1,
                                  .z = grid.z ? grid.z : 1,
                                  .threads = kernels[kernel].threads,
                                  .threads_y = 1,
                                  .threads_z = 1,
                                  .shared = grid.shared,
                                  .stream = d->stream,
                                  .attributes = &chained,
                                  .n_attributes = d->chained ? 1 : 0};
    d->failed =
        skv_cuda_check(&d->api, d->api.launch(&launch, d->functions[kernel], &argument, NULL),
                       kernels[kernel].name, &d->error);
}
