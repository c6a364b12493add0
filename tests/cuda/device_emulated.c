/* The device of the tests is the emulated GPU, whose memory is the host's. */
#include "device.h"

#include <stdlib.h>
#include <string.h>

#include "emulated_kernels.h"

size_t device_orders(void)
{
    return EMU_ORDER_COUNT;
}

void device_set_order(size_t order)
{
    emu_set_order((emu_order)order);
}

bool device_has_wgmma(void)
{
    return true;
}

unsigned long long device_bank_conflicts(void)
{
    return emu_bank_conflicts();
}

void *device_new(size_t n_bytes)
{
    void *at = NULL;
    if (posix_memalign(&at, 256, n_bytes + (n_bytes == 0)) != 0) abort();
    return memset(at, 0xff, n_bytes);
}

void device_free(void *at)
{
    free(at);
}

void device_put(void *to, const void *host, size_t n_bytes)
{
    memcpy(to, host, n_bytes);
}

void device_get(void *host, const void *from, size_t n_bytes)
{
    memcpy(host, from, n_bytes);
}

void device_launch(skv_cuda_kernel kernel, device_grid grid, const void *args)
{
    const emu_kernel *k = &emu_kernels[kernel];
    const emu_index blocks = {grid.x ? grid.x : 1, grid.y ? grid.y : 1, grid.z ? grid.z : 1};
    emu_launch(k->run, args, blocks, k->threads, grid.shared, skv_cuda_shared_most(kernel));
}
