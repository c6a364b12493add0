/*
 * The driver of NVIDIA's GPUs, libcuda, opened at run time: building needs no header and no library
 * of CUDA, and one program serves machines with and without a GPU. Only what is used is declared,
 * as libcuda.so.1 exports it.
 */
#ifndef SKV_BACKEND_CUDA_API_H
#define SKV_BACKEND_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

typedef int skv_cu_result; /* 0: success */
typedef int skv_cu_device;
typedef unsigned long long skv_cu_address; /* of the device's memory */
typedef struct CUctx_st *skv_cu_context;
typedef struct CUmod_st *skv_cu_module;
typedef struct CUfunc_st *skv_cu_function;
typedef struct CUstream_st *skv_cu_stream;
typedef struct CUevent_st *skv_cu_event;
typedef struct CUgraph_st *skv_cu_graph;
typedef struct CUgraphExec_st *skv_cu_recording; /* a graph that can be launched */

/* Numbers of attributes: of a device, and of a kernel. */
enum {
    SKV_CU_MAJOR = 75,
    SKV_CU_MINOR = 76,
    SKV_CU_SHARED_MAX = 97, /* bytes that a block may ask for */
    SKV_CU_KERNEL_PTX = 5,  /* for which it was compiled: 80, 90, .. */
    SKV_CU_KERNEL_SHARED = 8
};

/* Of a launch: blocks may come before the kernel before it has ended, for which they wait. */
enum { SKV_CU_LAUNCH_CHAINED = 6 };

typedef struct skv_cu_launch_attribute {
    int id;
    int unused;
    uint64_t value[8]; /* 1 */
} skv_cu_launch_attribute;

typedef struct skv_cu_launch {
    unsigned x, y, z, threads, threads_y, threads_z, shared;
    skv_cu_stream stream;
    skv_cu_launch_attribute *attributes; /* [n_attributes] */
    unsigned n_attributes;
} skv_cu_launch;

enum { SKV_CU_OUT_OF_MEMORY = 2 }; /* a result */
enum { SKV_CU_OWN_STREAM = 1 };    /* does not wait for the default one */
enum { SKV_CU_EVENT_UNTIMED = 2 };
enum { SKV_CU_CAPTURE_RELAXED = 2 }; /* whatever other threads and libraries do meanwhile */

/* X(member, exported name, arguments) */
#define SKV_CUDA_FUNCTIONS(X)                                                                      \
    X(init, "cuInit", (unsigned))                                                                  \
    X(error_text, "cuGetErrorString", (skv_cu_result, const char **))                              \
    X(device_count, "cuDeviceGetCount", (int *))                                                   \
    X(device_get, "cuDeviceGet", (skv_cu_device *, int))                                           \
    X(device_name, "cuDeviceGetName", (char *, int, skv_cu_device))                                \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, skv_cu_device))                       \
    X(context_retain, "cuDevicePrimaryCtxRetain", (skv_cu_context *, skv_cu_device))               \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (skv_cu_device))                            \
    X(context_set, "cuCtxSetCurrent", (skv_cu_context))                                            \
    X(module_load, "cuModuleLoadData", (skv_cu_module *, const void *))                            \
    X(module_unload, "cuModuleUnload", (skv_cu_module))                                            \
    X(module_function, "cuModuleGetFunction", (skv_cu_function *, skv_cu_module, const char *))    \
    X(function_set, "cuFuncSetAttribute", (skv_cu_function, int, int))                             \
    X(function_get, "cuFuncGetAttribute", (int *, int, skv_cu_function))                           \
    X(memory_new, "cuMemAlloc_v2", (skv_cu_address *, size_t))                                     \
    X(memory_free, "cuMemFree_v2", (skv_cu_address))                                               \
    X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                        \
    X(host_new, "cuMemAllocHost_v2", (void **, size_t))                                            \
    X(host_free, "cuMemFreeHost", (void *))                                                        \
    X(put, "cuMemcpyHtoDAsync_v2", (skv_cu_address, const void *, size_t, skv_cu_stream))          \
    X(get, "cuMemcpyDtoHAsync_v2", (void *, skv_cu_address, size_t, skv_cu_stream))                \
    X(copy, "cuMemcpyDtoDAsync_v2", (skv_cu_address, skv_cu_address, size_t, skv_cu_stream))       \
    X(copy_peer, "cuMemcpyPeerAsync",                                                              \
      (skv_cu_address, skv_cu_context, skv_cu_address, skv_cu_context, size_t, skv_cu_stream))     \
    X(context_reach, "cuCtxEnablePeerAccess", (skv_cu_context, unsigned))                          \
    X(fill, "cuMemsetD8Async", (skv_cu_address, unsigned char, size_t, skv_cu_stream))             \
    X(stream_create, "cuStreamCreate", (skv_cu_stream *, unsigned))                                \
    X(stream_destroy, "cuStreamDestroy_v2", (skv_cu_stream))                                       \
    X(stream_wait, "cuStreamSynchronize", (skv_cu_stream))                                         \
    X(stream_follow, "cuStreamWaitEvent", (skv_cu_stream, skv_cu_event, unsigned))                 \
    X(capture_begin, "cuStreamBeginCapture_v2", (skv_cu_stream, int))                              \
    X(capture_end, "cuStreamEndCapture", (skv_cu_stream, skv_cu_graph *))                          \
    X(graph_delete, "cuGraphDestroy", (skv_cu_graph))                                              \
    X(recording_make, "cuGraphInstantiateWithFlags",                                               \
      (skv_cu_recording *, skv_cu_graph, unsigned long long))                                      \
    X(recording_delete, "cuGraphExecDestroy", (skv_cu_recording))                                  \
    X(recording_launch, "cuGraphLaunch", (skv_cu_recording, skv_cu_stream))                        \
    X(event_create, "cuEventCreate", (skv_cu_event *, unsigned))                                   \
    X(event_destroy, "cuEventDestroy_v2", (skv_cu_event))                                          \
    X(event_record, "cuEventRecord", (skv_cu_event, skv_cu_stream))                                \
    X(event_wait, "cuEventSynchronize", (skv_cu_event))                                            \
    X(launch, "cuLaunchKernelEx", (const skv_cu_launch *, skv_cu_function, void **, void **))

typedef struct skv_cuda_api {
    void *library;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration */
#define X(member, name, arguments) skv_cu_result(*member) arguments;
    SKV_CUDA_FUNCTIONS(X)
#undef X
} skv_cuda_api;

/** Opens the driver and starts it. SKV_UNSUPPORTED names the missing part. */
SKV_MUST_CHECK skv_status skv_cuda_api_open(skv_cuda_api *api, skv_error *err);
/** After everything that was made through it; also of one that could not be opened. */
void skv_cuda_api_close(skv_cuda_api *api);

/** SKV_OK for 0, SKV_MEMORY where the device has no more, else SKV_IO: "what: the driver's words".
 */
SKV_MUST_CHECK skv_status skv_cuda_check(const skv_cuda_api *api, skv_cu_result result,
                                         const char *what, skv_error *err);

#endif
