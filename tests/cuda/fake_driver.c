/*
 * libcuda.so.1 for machines without a GPU: what cuda_api.h declares, on the emulated one. Work that
 * is put in a stream is done at once, but for copies from pinned memory: these are done as late as
 * a driver may, before other work of the stream or when the host waits for them. It refuses what a
 * driver would: a thread without a context, copies beyond an allocation, memory that is freed
 * twice, launches that no card takes. What is not freed by the end is a fault.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_api.h"
#include "emulated_kernels.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    BLOCKS = 4096,
    COPIES = 64,
    PINNED = 256,
    GRID_MAX = 65535
};

typedef struct block {
    unsigned char *at;
    size_t n_bytes;
} block;

/* A copy from pinned memory on its way. */
typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t n;
    unsigned long long number;
} copy;

/* The contents of an event: copies up to this number, as it was recorded. */
typedef struct event {
    unsigned long long number;
} event;

static struct {
    block blocks[BLOCKS], pinned[PINNED];
    copy copies[COPIES]; /* in order */
    unsigned long long n_begun;
    size_t n_blocks, n_pinned, n_copies;
    int n_contexts, n_modules, n_streams, n_events;
} device;
static _Thread_local bool has_context;

__attribute__((destructor)) static void check_end(void)
{
    if (device.n_blocks + device.n_pinned == 0 && device.n_contexts == 0 && device.n_modules == 0 &&
        device.n_streams + device.n_events == 0) {
        return;
    }
    (void)fprintf(stderr,
                  "fake driver: %zu blocks, %zu of the host, %d contexts, %d modules, %d streams, "
                  "%d events are left\n",
                  device.n_blocks, device.n_pinned, device.n_contexts, device.n_modules,
                  device.n_streams, device.n_events);
    abort();
}

/* An address that is not NULL, for what has no contents. */
static void *something(void)
{
    return &device;
}

/* Copies up to this number arrive. */
static void arrive(unsigned long long number)
{
    size_t n = 0;
    for (; n < device.n_copies && device.copies[n].number <= number; n++) {
        memcpy(device.copies[n].to, device.copies[n].from, device.copies[n].n);
    }
    device.n_copies -= n;
    memmove(device.copies, device.copies + n, device.n_copies * sizeof *device.copies);
}

static bool is_pinned(const unsigned char *from)
{
    for (size_t i = 0; i < device.n_pinned; i++) {
        const block *b = &device.pinned[i];
        if (from >= b->at && from < b->at + b->n_bytes) return true;
    }
    return false;
}

/* Memory [at, at + n) within a block, or NULL. */
static unsigned char *within(skv_cu_address at, size_t n)
{
    unsigned char *p = (unsigned char *)(uintptr_t)at;
    for (size_t i = 0; has_context && i < device.n_blocks; i++) {
        const block *b = &device.blocks[i];
        if (p >= b->at && n <= b->n_bytes && (size_t)(p - b->at) <= b->n_bytes - n) return p;
    }
    return NULL;
}

skv_cu_result cuInit(unsigned flags)
{
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuGetErrorString(skv_cu_result result, const char **text)
{
    *text = result == OUT_OF_MEMORY ? "out of memory" : "refused by the fake driver";
    return SUCCESS;
}

skv_cu_result cuDeviceGetCount(int *n)
{
    *n = 1;
    return SUCCESS;
}

skv_cu_result cuDeviceGet(skv_cu_device *out, int i)
{
    *out = i;
    return i == 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDeviceGetName(char *name, int n, skv_cu_device i)
{
    (void)snprintf(name, (size_t)n, "emulated GPU");
    return i == 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDeviceGetAttribute(int *value, int attribute, skv_cu_device i)
{
    *value = attribute == SKV_CU_MAJOR        ? 8
             : attribute == SKV_CU_SHARED_MAX ? (int)SKV_CUDA_SHARED_MAX
                                              : 0;
    return i == 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDevicePrimaryCtxRetain(skv_cu_context *out, skv_cu_device i)
{
    *out = something();
    device.n_contexts++;
    return i == 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDevicePrimaryCtxRelease_v2(skv_cu_device i)
{
    return i == 0 && device.n_contexts-- > 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuCtxSetCurrent(skv_cu_context context)
{
    has_context = context;
    return SUCCESS;
}

skv_cu_result cuModuleLoadData(skv_cu_module *out, const void *image)
{
    *out = something();
    if (!has_context || !image) return INVALID_VALUE;
    device.n_modules++;
    return SUCCESS;
}

skv_cu_result cuModuleUnload(skv_cu_module module)
{
    return module && device.n_modules-- > 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuModuleGetFunction(skv_cu_function *out, skv_cu_module module, const char *name)
{
    for (size_t i = 0; module && i < SKV_CUDA_KERNEL_COUNT; i++) {
        if (strcmp(name, emu_kernels[i].text) != 0) continue;
        *out = (skv_cu_function)(uintptr_t)&emu_kernels[i];
        return SUCCESS;
    }
    return NOT_FOUND;
}

skv_cu_result cuFuncSetAttribute(skv_cu_function function, int attribute, int value)
{
    const bool good = attribute == SKV_CU_KERNEL_SHARED && value <= (int)SKV_CUDA_SHARED_MAX;
    return function && good ? SUCCESS : INVALID_VALUE;
}

/* ---- memory ---- */

skv_cu_result cuMemAlloc_v2(skv_cu_address *out, size_t n_bytes)
{
    void *at = NULL;
    if (!has_context) return INVALID_CONTEXT;
    if (n_bytes == 0) return INVALID_VALUE;
    if (device.n_blocks == BLOCKS || posix_memalign(&at, 256, n_bytes) != 0) return OUT_OF_MEMORY;
    device.blocks[device.n_blocks++] = (block){.at = at, .n_bytes = n_bytes};
    *out = (skv_cu_address)(uintptr_t)at;
    return SUCCESS;
}

skv_cu_result cuMemFree_v2(skv_cu_address at)
{
    for (size_t i = 0; has_context && i < device.n_blocks; i++) {
        if ((skv_cu_address)(uintptr_t)device.blocks[i].at != at) continue;
        free(device.blocks[i].at);
        device.blocks[i] = device.blocks[--device.n_blocks];
        return SUCCESS;
    }
    return INVALID_VALUE;
}

skv_cu_result cuMemGetInfo_v2(size_t *available, size_t *all)
{
    *available = *all = (size_t)1 << 36;
    return has_context ? SUCCESS : INVALID_CONTEXT;
}

skv_cu_result cuMemAllocHost_v2(void **out, size_t n_bytes)
{
    if (!has_context || n_bytes == 0) return INVALID_VALUE;
    *out = device.n_pinned < PINNED ? calloc(1, n_bytes) : NULL;
    if (!*out) return OUT_OF_MEMORY;
    device.pinned[device.n_pinned++] = (block){.at = *out, .n_bytes = n_bytes};
    return SUCCESS;
}

skv_cu_result cuMemFreeHost(void *at)
{
    for (size_t i = 0; has_context && i < device.n_pinned; i++) {
        if (device.pinned[i].at != at) continue;
        arrive(device.n_begun);
        free(at);
        device.pinned[i] = device.pinned[--device.n_pinned];
        return SUCCESS;
    }
    return INVALID_VALUE;
}

skv_cu_result cuMemcpyHtoDAsync_v2(skv_cu_address to, const void *from, size_t n,
                                   skv_cu_stream stream)
{
    unsigned char *at = within(to, n);
    if (!at || !stream) return INVALID_VALUE;
    if (!is_pinned(from) || device.n_copies == COPIES) arrive(device.n_begun);
    device.n_begun++;
    if (is_pinned(from)) {
        device.copies[device.n_copies++] = (copy){at, from, n, device.n_begun};
    } else {
        memcpy(at, from, n);
    }
    return SUCCESS;
}

skv_cu_result cuMemcpyDtoHAsync_v2(void *to, skv_cu_address from, size_t n, skv_cu_stream stream)
{
    const unsigned char *at = within(from, n);
    if (!at || !stream) return INVALID_VALUE;
    arrive(device.n_begun);
    memcpy(to, at, n);
    return SUCCESS;
}

skv_cu_result cuMemcpyDtoDAsync_v2(skv_cu_address to, skv_cu_address from, size_t n,
                                   skv_cu_stream stream)
{
    unsigned char *at = within(to, n);
    const unsigned char *source = within(from, n);
    if (!at || !source || !stream || (at < source + n && source < at + n)) return INVALID_VALUE;
    arrive(device.n_begun);
    memcpy(at, source, n);
    return SUCCESS;
}

skv_cu_result cuMemsetD8Async(skv_cu_address to, unsigned char byte, size_t n, skv_cu_stream stream)
{
    unsigned char *at = within(to, n);
    if (!at || !stream) return INVALID_VALUE;
    arrive(device.n_begun);
    memset(at, byte, n);
    return SUCCESS;
}

/* ---- streams ---- */

skv_cu_result cuStreamCreate(skv_cu_stream *out, unsigned flags)
{
    *out = something();
    if (!has_context || flags != SKV_CU_OWN_STREAM) return INVALID_VALUE;
    device.n_streams++;
    return SUCCESS;
}

skv_cu_result cuStreamDestroy_v2(skv_cu_stream stream)
{
    return stream && device.n_streams-- > 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuStreamSynchronize(skv_cu_stream stream)
{
    arrive(device.n_begun);
    return has_context && stream ? SUCCESS : INVALID_VALUE;
}

/* ---- events ---- */

skv_cu_result cuEventCreate(skv_cu_event *out, unsigned flags)
{
    if (!has_context || flags != SKV_CU_EVENT_UNTIMED) return INVALID_VALUE;
    *out = calloc(1, sizeof(event));
    if (!*out) return OUT_OF_MEMORY;
    device.n_events++;
    return SUCCESS;
}

skv_cu_result cuEventDestroy_v2(skv_cu_event at)
{
    if (!has_context || !at) return INVALID_VALUE;
    free(at);
    device.n_events--;
    return SUCCESS;
}

skv_cu_result cuEventRecord(skv_cu_event at, skv_cu_stream stream)
{
    if (!has_context || !at || !stream) return INVALID_VALUE;
    ((event *)(void *)at)->number = device.n_begun;
    return SUCCESS;
}

skv_cu_result cuEventSynchronize(skv_cu_event at)
{
    if (!has_context || !at) return INVALID_VALUE;
    arrive(((event *)(void *)at)->number);
    return SUCCESS;
}

skv_cu_result cuLaunchKernel(skv_cu_function function, unsigned x, unsigned y, unsigned z,
                             unsigned threads, unsigned threads_y, unsigned threads_z,
                             unsigned shared, skv_cu_stream stream, void **args, void **extra)
{
    const emu_kernel *kernel = (const emu_kernel *)(const void *)function;
    const bool grid = x > 0 && y > 0 && y <= GRID_MAX && z > 0 && z <= GRID_MAX;
    if (!has_context || !kernel || !stream || !args || extra || !grid) return INVALID_VALUE;
    if (threads != kernel->threads || threads_y != 1 || threads_z != 1) return INVALID_VALUE;
    if (shared > SKV_CUDA_SHARED_MAX) return INVALID_VALUE;
    arrive(device.n_begun);
    emu_launch(kernel->run, args[0], (emu_index){x, y, z}, threads, shared);
    return SUCCESS;
}
