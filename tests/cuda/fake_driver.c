/*
 * libcuda.so.1 for machines without a GPU: what cuda_api.h declares, on emulated ones, which
 * threads may use side by side. Work that is put in a stream is done at once, but for copies from
 * pinned memory: these are done as late as a driver may, before other work of the stream or when
 * the host waits for them. It refuses what a driver would: a thread without a context, copies
 * beyond an allocation, memory of another GPU, memory that is freed twice, launches that no card
 * takes. A copy from another GPU is refused unless this stream has waited for the kernels there,
 * and so is a kernel whose memory another GPU may still read. What is not freed by the end is a
 * fault.
 */
#include <pthread.h>
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
    NOT_READY = 600,
    BLOCKS = 4096,
    COPIES = 64,
    PINNED = 256,
    GPUS = 4,
    GRID_MAX = 65535
};

/* A copy from pinned memory on its way. */
typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t n;
    unsigned long long number;
} copy;

/* A GPU with its one context and stream, which have its address. Work of the stream is counted;
 * copies have the numbers of their own. */
typedef struct gpu {
    copy copies[COPIES]; /* in order */
    unsigned long long n_begun;
    size_t n_copies;
    unsigned long long n_work, n_kernels;  /* n_kernels: the last work that was a kernel's */
    unsigned long long waited_for[GPUS];   /* work of another one that this stream waits for */
    unsigned long long last_read_by[GPUS]; /* work of another one, the last that reads from here */
} gpu;

typedef struct block {
    unsigned char *at;
    size_t n_bytes;
    const gpu *of;
} block;

/* The contents of an event: copies up to this number and work, as it was recorded. */
typedef struct event {
    gpu *of;
    unsigned long long number, n_work;
} event;

static struct {
    gpu gpus[GPUS];
    block blocks[BLOCKS], pinned[PINNED];
    size_t n_blocks, n_pinned;
    int n_contexts, n_modules, n_streams, n_events;
} device;
static _Thread_local gpu *now; /* of the thread's context; NULL: it has none */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int lock(void)
{
    return pthread_mutex_lock(&mutex);
}

static void unlock(const int *locked)
{
    (void)locked;
    (void)pthread_mutex_unlock(&mutex);
}

/* Until the end of the block. */
#define LOCKED __attribute__((cleanup(unlock), unused)) const int locked = lock()

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

static bool is_gpu(int i)
{
    return i >= 0 && i < GPUS;
}

/* Whether it is that of the thread's context. */
static bool is_now(const void *stream)
{
    return now && stream == now;
}

/* Copies of a GPU up to this number arrive. */
static void arrive(gpu *g, unsigned long long number)
{
    size_t n = 0;
    for (; n < g->n_copies && g->copies[n].number <= number; n++) {
        memcpy(g->copies[n].to, g->copies[n].from, g->copies[n].n);
    }
    g->n_copies -= n;
    memmove(g->copies, g->copies + n, g->n_copies * sizeof *g->copies);
}

/* Whatever is on its way to this GPU arrives: other work begins. */
static void arrive_all(void)
{
    now->n_work++;
    arrive(now, now->n_begun);
}

static bool is_pinned(const unsigned char *from)
{
    for (size_t i = 0; i < device.n_pinned; i++) {
        const block *b = &device.pinned[i];
        if (from >= b->at && from < b->at + b->n_bytes) return true;
    }
    return false;
}

/* Memory [at, at + n) within a block of a GPU, or NULL. */
static unsigned char *within_of(const gpu *g, skv_cu_address at, size_t n)
{
    unsigned char *p = (unsigned char *)(uintptr_t)at;
    for (size_t i = 0; g && i < device.n_blocks; i++) {
        const block *b = &device.blocks[i];
        if (b->of != g) continue;
        if (p >= b->at && n <= b->n_bytes && (size_t)(p - b->at) <= b->n_bytes - n) return p;
    }
    return NULL;
}

static unsigned char *within(skv_cu_address at, size_t n)
{
    return within_of(now, at, n);
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
    *n = GPUS;
    return SUCCESS;
}

skv_cu_result cuDeviceGet(skv_cu_device *out, int i)
{
    *out = i;
    return is_gpu(i) ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDeviceGetName(char *name, int n, skv_cu_device i)
{
    (void)snprintf(name, (size_t)n, "emulated GPU");
    return is_gpu(i) ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDeviceGetAttribute(int *value, int attribute, skv_cu_device i)
{
    *value = attribute == SKV_CU_MAJOR        ? 9
             : attribute == SKV_CU_SHARED_MAX ? (int)SKV_CUDA_WGMMA_SHARED_MAX
                                              : 0;
    return is_gpu(i) ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuDevicePrimaryCtxRetain(skv_cu_context *out, skv_cu_device i)
{
    LOCKED;
    if (!is_gpu(i)) return INVALID_VALUE;
    *out = (skv_cu_context)(void *)&device.gpus[i];
    device.n_contexts++;
    return SUCCESS;
}

skv_cu_result cuDevicePrimaryCtxRelease_v2(skv_cu_device i)
{
    LOCKED;
    return is_gpu(i) && device.n_contexts-- > 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuCtxSetCurrent(skv_cu_context context)
{
    now = (gpu *)(void *)context;
    return SUCCESS;
}

skv_cu_result cuCtxEnablePeerAccess(skv_cu_context other, unsigned flags)
{
    return now && other && !is_now(other) && flags == 0 ? SUCCESS : INVALID_CONTEXT;
}

skv_cu_result cuModuleLoadData(skv_cu_module *out, const void *image)
{
    LOCKED;
    *out = (skv_cu_module)(void *)now;
    if (!now || !image) return INVALID_VALUE;
    device.n_modules++;
    return SUCCESS;
}

skv_cu_result cuModuleUnload(skv_cu_module module)
{
    LOCKED;
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

static size_t shared_most(skv_cu_function function)
{
    const emu_kernel *kernel = (const emu_kernel *)(const void *)function;
    return skv_cuda_shared_most((skv_cuda_kernel)(kernel - emu_kernels));
}

skv_cu_result cuFuncSetAttribute(skv_cu_function function, int attribute, int value)
{
    if (!function || attribute != SKV_CU_KERNEL_SHARED) return INVALID_VALUE;
    return value <= (int)shared_most(function) ? SUCCESS : INVALID_VALUE;
}

/* ---- memory ---- */

skv_cu_result cuMemAlloc_v2(skv_cu_address *out, size_t n_bytes)
{
    LOCKED;
    void *at = NULL;
    if (!now) return INVALID_CONTEXT;
    if (n_bytes == 0) return INVALID_VALUE;
    if (device.n_blocks == BLOCKS || posix_memalign(&at, 256, n_bytes) != 0) return OUT_OF_MEMORY;
    device.blocks[device.n_blocks++] = (block){.at = at, .n_bytes = n_bytes, .of = now};
    *out = (skv_cu_address)(uintptr_t)at;
    return SUCCESS;
}

skv_cu_result cuMemFree_v2(skv_cu_address at)
{
    LOCKED;
    for (size_t i = 0; now && i < device.n_blocks; i++) {
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
    return now ? SUCCESS : INVALID_CONTEXT;
}

skv_cu_result cuMemAllocHost_v2(void **out, size_t n_bytes)
{
    LOCKED;
    if (!now || n_bytes == 0) return INVALID_VALUE;
    *out = device.n_pinned < PINNED ? calloc(1, n_bytes) : NULL;
    if (!*out) return OUT_OF_MEMORY;
    device.pinned[device.n_pinned++] = (block){.at = *out, .n_bytes = n_bytes, .of = now};
    return SUCCESS;
}

skv_cu_result cuMemFreeHost(void *at)
{
    LOCKED;
    for (size_t i = 0; now && i < device.n_pinned; i++) {
        if (device.pinned[i].at != at) continue;
        arrive(now, now->n_begun);
        free(at);
        device.pinned[i] = device.pinned[--device.n_pinned];
        return SUCCESS;
    }
    return INVALID_VALUE;
}

skv_cu_result cuMemcpyHtoDAsync_v2(skv_cu_address to, const void *from, size_t n,
                                   skv_cu_stream stream)
{
    LOCKED;
    unsigned char *at = within(to, n);
    if (!at || !is_now(stream)) return INVALID_VALUE;
    if (!is_pinned(from) || now->n_copies == COPIES) arrive_all();
    now->n_begun++;
    now->n_work++;
    if (is_pinned(from)) {
        now->copies[now->n_copies++] = (copy){at, from, n, now->n_begun};
    } else {
        memcpy(at, from, n);
    }
    return SUCCESS;
}

skv_cu_result cuMemcpyDtoHAsync_v2(void *to, skv_cu_address from, size_t n, skv_cu_stream stream)
{
    LOCKED;
    const unsigned char *at = within(from, n);
    if (!at || !is_now(stream)) return INVALID_VALUE;
    arrive_all();
    memcpy(to, at, n);
    return SUCCESS;
}

skv_cu_result cuMemcpyDtoDAsync_v2(skv_cu_address to, skv_cu_address from, size_t n,
                                   skv_cu_stream stream)
{
    LOCKED;
    unsigned char *at = within(to, n);
    const unsigned char *source = within(from, n);
    if (!at || !source || !is_now(stream) || (at < source + n && source < at + n))
        return INVALID_VALUE;
    arrive_all();
    memcpy(at, source, n);
    return SUCCESS;
}

skv_cu_result cuMemcpyPeerAsync(skv_cu_address to, skv_cu_context to_context, skv_cu_address from,
                                skv_cu_context from_context, size_t n, skv_cu_stream stream)
{
    LOCKED;
    gpu *other = (gpu *)(void *)from_context;
    unsigned char *at = within(to, n);
    const unsigned char *source = within_of(other, from, n);
    if (!at || !source || !is_now(stream) || !is_now(to_context)) return INVALID_VALUE;
    if (other != now && now->waited_for[other - device.gpus] < other->n_kernels) return NOT_READY;
    arrive_all();
    other->last_read_by[now - device.gpus] = other == now ? 0 : now->n_work;
    memcpy(at, source, n);
    return SUCCESS;
}

skv_cu_result cuMemsetD8Async(skv_cu_address to, unsigned char byte, size_t n, skv_cu_stream stream)
{
    LOCKED;
    unsigned char *at = within(to, n);
    if (!at || !is_now(stream)) return INVALID_VALUE;
    arrive_all();
    memset(at, byte, n);
    return SUCCESS;
}

/* ---- streams ---- */

skv_cu_result cuStreamCreate(skv_cu_stream *out, unsigned flags)
{
    LOCKED;
    *out = (skv_cu_stream)(void *)now;
    if (!now || flags != SKV_CU_OWN_STREAM) return INVALID_VALUE;
    device.n_streams++;
    return SUCCESS;
}

skv_cu_result cuStreamDestroy_v2(skv_cu_stream stream)
{
    LOCKED;
    return stream && device.n_streams-- > 0 ? SUCCESS : INVALID_VALUE;
}

skv_cu_result cuStreamSynchronize(skv_cu_stream stream)
{
    LOCKED;
    if (!is_now(stream)) return INVALID_VALUE;
    arrive(now, now->n_begun);
    return SUCCESS;
}

skv_cu_result cuStreamWaitEvent(skv_cu_stream stream, skv_cu_event at, unsigned flags)
{
    LOCKED;
    const event *e = (const event *)(const void *)at;
    if (!is_now(stream) || !e || flags != 0) return INVALID_VALUE;
    if (!e->of) return SUCCESS; /* it was not recorded */
    unsigned long long *waited = &now->waited_for[e->of - device.gpus];
    arrive(e->of, e->number);
    if (*waited < e->n_work) *waited = e->n_work;
    return SUCCESS;
}

/* ---- events ---- */

skv_cu_result cuEventCreate(skv_cu_event *out, unsigned flags)
{
    LOCKED;
    if (!now || flags != SKV_CU_EVENT_UNTIMED) return INVALID_VALUE;
    *out = calloc(1, sizeof(event));
    if (!*out) return OUT_OF_MEMORY;
    device.n_events++;
    return SUCCESS;
}

skv_cu_result cuEventDestroy_v2(skv_cu_event at)
{
    LOCKED;
    if (!now || !at) return INVALID_VALUE;
    free(at);
    device.n_events--;
    return SUCCESS;
}

skv_cu_result cuEventRecord(skv_cu_event at, skv_cu_stream stream)
{
    LOCKED;
    if (!at || !is_now(stream)) return INVALID_VALUE;
    *(event *)(void *)at = (event){now, now->n_begun, now->n_work};
    return SUCCESS;
}

skv_cu_result cuEventSynchronize(skv_cu_event at)
{
    LOCKED;
    const event *e = (const event *)(const void *)at;
    if (!now || !e) return INVALID_VALUE;
    if (e->of) arrive(e->of, e->number);
    return SUCCESS;
}

/* What came before a kernel arrives, unless another GPU may still read what it writes. */
static skv_cu_result begin_kernel(void)
{
    LOCKED;
    for (size_t i = 0; i < GPUS; i++) {
        if (now->waited_for[i] < now->last_read_by[i]) return NOT_READY;
    }
    arrive_all();
    now->n_kernels = now->n_work;
    return SUCCESS;
}

skv_cu_result cuLaunchKernel(skv_cu_function function, unsigned x, unsigned y, unsigned z,
                             unsigned threads, unsigned threads_y, unsigned threads_z,
                             unsigned shared, skv_cu_stream stream, void **args, void **extra)
{
    const emu_kernel *kernel = (const emu_kernel *)(const void *)function;
    const bool grid = x > 0 && y > 0 && y <= GRID_MAX && z > 0 && z <= GRID_MAX;
    if (!kernel || !is_now(stream) || !args || extra || !grid) return INVALID_VALUE;
    if (threads != kernel->threads || threads_y != 1 || threads_z != 1) return INVALID_VALUE;
    const size_t most = shared_most(function);
    if (shared > most) return INVALID_VALUE;
    const skv_cu_result begun = begin_kernel();
    if (begun == SUCCESS) {
        emu_launch(kernel->run, args[0], (emu_index){x, y, z}, threads, shared, most);
    }
    return begun;
}
