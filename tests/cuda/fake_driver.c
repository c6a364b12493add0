/*
 * libcuda.so.1 for machines without a GPU: what cuda_api.h declares, on emulated ones, which
 * threads may use side by side. Work that is put in a stream is done at once, but for copies from
 * and to pinned memory. Those to the device are done as late as a driver may, before other work of
 * the stream or when the host waits for them, and those to the host when it waits: until then it
 * finds NaNs there. It refuses what a driver would: a thread without a context, copies
 * beyond an allocation, memory of another GPU, memory that is freed twice, launches that no card
 * takes. SKV_FAKE_CAPABILITY=G:C: GPU G has compute capability C, of two digits. While a stream
 * records, launches and products are kept with copies of their arguments, and everything else that
 * it could be asked for is refused. A recording that is played ends the program where an argument
 * that was an address of the GPU's memory no longer is one. A copy from
 * another GPU is refused unless this stream has waited for the kernels there, and so is a kernel
 * whose memory another GPU may still read. What is not freed by the end is a fault.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_api.h"
#include "emulated_kernels.h"
#include "fake_recording.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_RECORDING = 901,
    BLOCKS = 4096,
    COPIES = 64,
    PINNED = 256,
    GPUS = 4,
    GRID_MAX = 65535,
    ARGS = 128 /* words */
};

/* A copy from pinned memory on its way. */
typedef struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t n;
    unsigned long long number;
} copy;

/* A launch of a kernel, or what else is to run, with its arguments. */
typedef struct launch {
    const emu_kernel *kernel; /* or NULL: */
    void (*run)(const void *args);
    emu_index grid;
    unsigned shared;
    size_t n_bytes;
    uint64_t args[ARGS];
    bool is_address[ARGS]; /* args[i] was one of the GPU's memory */
} launch;

typedef struct graph {
    const struct gpu *of;
    size_t n;
    launch *launches; /* owned */
} graph;
/* A copy to pinned memory: what it brings. */
typedef struct answer {
    unsigned char *to, *bytes; /* bytes: owned */
    size_t n;
    unsigned long long n_work;
} answer;

/* A GPU with its one context and stream, which have its address. Work of the stream is counted;
 * copies have the numbers of their own. */
typedef struct gpu {
    copy copies[COPIES];    /* in order */
    answer results[COPIES]; /* in order */
    unsigned long long n_begun;
    size_t n_copies, n_results;
    graph *recording;                      /* owned; NULL: the stream does not record */
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
    int n_contexts, n_modules, n_streams, n_events, n_graphs;
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
        device.n_streams + device.n_events + device.n_graphs == 0) {
        return;
    }
    (void)fprintf(stderr,
                  "fake driver: %zu blocks, %zu of the host, %d contexts, %d modules, %d streams, "
                  "%d events, %d recordings are left\n",
                  device.n_blocks, device.n_pinned, device.n_contexts, device.n_modules,
                  device.n_streams, device.n_events, device.n_graphs);
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

/* The same of one that takes work: it does not record. */
static bool is_free(const void *stream)
{
    return is_now(stream) && !now->recording;
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

/* The host has waited for work up to this number. */
static void bring(gpu *g, unsigned long long n_work)
{
    size_t n = 0;
    for (; n < g->n_results && g->results[n].n_work <= n_work; n++) {
        memcpy(g->results[n].to, g->results[n].bytes, g->results[n].n);
        free(g->results[n].bytes);
    }
    g->n_results -= n;
    memmove(g->results, g->results + n, g->n_results * sizeof *g->results);
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

static int capability_of(skv_cu_device i)
{
    const char *text = getenv("SKV_FAKE_CAPABILITY");
    char *end = NULL;
    if (!text || strtol(text, &end, 10) != i) return 90;
    return (int)strtol(end + 1, NULL, 10);
}

skv_cu_result cuDeviceGetAttribute(int *value, int attribute, skv_cu_device i)
{
    const int capability = capability_of(i);
    const bool wgmma = capability == 90;
    *value = attribute == SKV_CU_MAJOR   ? capability / 10
             : attribute == SKV_CU_MINOR ? capability % 10
             : attribute == SKV_CU_SHARED_MAX
                 ? (int)(wgmma ? SKV_CUDA_WGMMA_SHARED_MAX : SKV_CUDA_SHARED_MAX)
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

skv_cu_result cuFuncGetAttribute(int *value, int attribute, skv_cu_function function)
{
    *value = 90;
    return function && attribute == SKV_CU_KERNEL_PTX ? SUCCESS : INVALID_VALUE;
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
        memset(device.blocks[i].at, 0xff, device.blocks[i].n_bytes);
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
        bring(now, now->n_work);
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
    if (!at || !is_free(stream)) return INVALID_VALUE;
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
    if (!at || !is_free(stream)) return INVALID_VALUE;
    arrive_all();
    unsigned char *bytes = is_pinned(to) && now->n_results < COPIES ? malloc(n) : NULL;
    memcpy(bytes ? bytes : to, at, n);
    if (!bytes) return SUCCESS;
    memset(to, 0xff, n);
    now->results[now->n_results++] = (answer){to, bytes, n, now->n_work};
    return SUCCESS;
}

skv_cu_result cuMemcpyDtoDAsync_v2(skv_cu_address to, skv_cu_address from, size_t n,
                                   skv_cu_stream stream)
{
    LOCKED;
    unsigned char *at = within(to, n);
    const unsigned char *source = within(from, n);
    if (!at || !source || !is_free(stream) || (at < source + n && source < at + n))
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
    if (!at || !source || !is_free(stream) || !is_now(to_context)) return INVALID_VALUE;
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
    if (!at || !is_free(stream)) return INVALID_VALUE;
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
    if (!is_free(stream)) return INVALID_VALUE;
    arrive(now, now->n_begun);
    bring(now, now->n_work);
    return SUCCESS;
}

skv_cu_result cuStreamWaitEvent(skv_cu_stream stream, skv_cu_event at, unsigned flags)
{
    LOCKED;
    const event *e = (const event *)(const void *)at;
    if (!is_free(stream) || !e || flags != 0) return INVALID_VALUE;
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
    if (!at || !is_free(stream)) return INVALID_VALUE;
    *(event *)(void *)at = (event){now, now->n_begun, now->n_work};
    return SUCCESS;
}

skv_cu_result cuEventSynchronize(skv_cu_event at)
{
    LOCKED;
    const event *e = (const event *)(const void *)at;
    if (!now || !e) return INVALID_VALUE;
    if (e->of) {
        arrive(e->of, e->number);
        bring(e->of, e->n_work);
    }
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

/* ---- launches and recordings ---- */

static void run_launch(const launch *l)
{
    if (l->kernel) {
        const uint32_t most = skv_cuda_shared_most((skv_cuda_kernel)(l->kernel - emu_kernels));
        emu_launch(l->kernel->run, l->args, l->grid, l->kernel->threads, l->shared, most);
    } else {
        l->run(l->args);
    }
}

static skv_cu_result keep_launch(launch *l)
{
    LOCKED;
    graph *g = now->recording;
    launch *more = realloc(g->launches, (g->n + 1) * sizeof *more);
    if (!more) return OUT_OF_MEMORY;
    for (size_t i = 0; i < l->n_bytes / sizeof *l->args; i++) {
        l->is_address[i] = (bool)within(l->args[i], 1);
    }
    g->launches = more;
    g->launches[g->n++] = *l;
    return SUCCESS;
}

/* Now, or for the recording. */
static skv_cu_result do_launch(launch *l, const void *args)
{
    if (l->n_bytes > sizeof l->args) return INVALID_VALUE;
    memcpy(l->args, args, l->n_bytes);
    if (now->recording) return keep_launch(l);
    const skv_cu_result begun = begin_kernel();
    if (begun == SUCCESS) run_launch(l);
    return begun;
}

/* Kernels may be chained: the emulated ones run one after the other anyway. */
static bool is_launch(const skv_cu_launch *l, const emu_kernel *kernel)
{
    const bool grid = l->x > 0 && l->y > 0 && l->y <= GRID_MAX && l->z > 0 && l->z <= GRID_MAX;
    const bool threads = l->threads == kernel->threads && l->threads_y == 1 && l->threads_z == 1;
    bool known = l->n_attributes <= 1;
    for (unsigned i = 0; known && i < l->n_attributes; i++) {
        known = l->attributes[i].id == SKV_CU_LAUNCH_CHAINED && l->attributes[i].value[0] == 1;
    }
    const uint32_t most = skv_cuda_shared_most((skv_cuda_kernel)(kernel - emu_kernels));
    return grid && threads && known && l->shared <= most;
}

skv_cu_result cuLaunchKernelEx(const skv_cu_launch *how, skv_cu_function function, void **args,
                               void **extra)
{
    const emu_kernel *kernel = (const emu_kernel *)(const void *)function;
    if (!kernel || !is_now(how->stream) || !args || extra || !is_launch(how, kernel)) {
        return INVALID_VALUE;
    }
    launch l = {.kernel = kernel,
                .grid = {how->x, how->y, how->z},
                .shared = how->shared,
                .n_bytes = kernel->args_bytes};
    return do_launch(&l, args[0]);
}

bool fake_do(void *stream, void (*run)(const void *args), const void *args, size_t n_bytes)
{
    launch l = {.run = run, .n_bytes = n_bytes};
    return is_now(stream) && do_launch(&l, args) == SUCCESS;
}

static void free_graph(graph *g)
{
    free(g->launches);
    free(g);
}

static graph *new_graph(const gpu *of, const graph *from)
{
    graph *g = calloc(1, sizeof *g);
    const size_t n = from ? from->n : 0;
    if (!g) return NULL;
    *g = (graph){.of = of, .n = n, .launches = calloc(n + 1, sizeof *g->launches)};
    if (!g->launches) {
        free(g);
        return NULL;
    }
    if (n > 0) memcpy(g->launches, from->launches, n * sizeof *g->launches);
    return g;
}

skv_cu_result cuStreamBeginCapture_v2(skv_cu_stream stream, int mode)
{
    LOCKED;
    if (!is_free(stream) || mode != SKV_CU_CAPTURE_RELAXED) return INVALID_VALUE;
    now->recording = new_graph(now, NULL);
    return now->recording ? SUCCESS : OUT_OF_MEMORY;
}

skv_cu_result cuStreamEndCapture(skv_cu_stream stream, skv_cu_graph *out)
{
    LOCKED;
    *out = NULL;
    if (!is_now(stream) || !now->recording) return NOT_RECORDING;
    *out = (skv_cu_graph)(void *)now->recording;
    now->recording = NULL;
    device.n_graphs++;
    return SUCCESS;
}

skv_cu_result cuGraphDestroy(skv_cu_graph at)
{
    LOCKED;
    if (!at) return INVALID_VALUE;
    free_graph((graph *)(void *)at);
    device.n_graphs--;
    return SUCCESS;
}

skv_cu_result cuGraphInstantiateWithFlags(skv_cu_recording *out, skv_cu_graph at,
                                          unsigned long long flags)
{
    LOCKED;
    const graph *g = (const graph *)(const void *)at;
    if (!now || now->recording || !g || g->of != now || flags != 0) return INVALID_VALUE;
    *out = (skv_cu_recording)(void *)new_graph(now, g);
    if (!*out) return OUT_OF_MEMORY;
    device.n_graphs++;
    return SUCCESS;
}

skv_cu_result cuGraphExecDestroy(skv_cu_recording at)
{
    return cuGraphDestroy((skv_cu_graph)(void *)at);
}

static void check_addresses(const launch *l)
{
    LOCKED;
    for (size_t i = 0; i < ARGS; i++) {
        if (!l->is_address[i] || within(l->args[i], 1)) continue;
        (void)fprintf(stderr, "fake driver: %s is played with memory that was freed\n",
                      l->kernel ? l->kernel->text : "a product");
        abort();
    }
}

skv_cu_result cuGraphLaunch(skv_cu_recording at, skv_cu_stream stream)
{
    const graph *g = (const graph *)(const void *)at;
    if (!g || !is_free(stream) || g->of != now) return INVALID_VALUE;
    for (size_t i = 0; i < g->n; i++) {
        check_addresses(&g->launches[i]);
        const skv_cu_result begun = begin_kernel();
        if (begun != SUCCESS) return begun;
        run_launch(&g->launches[i]);
    }
    return SUCCESS;
}
