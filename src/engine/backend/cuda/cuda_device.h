/*
 * A GPU: memory, copies and kernels, in order on one stream. Operations cannot fail: the first
 * error is kept, everything after it does nothing, and skv_cuda_wait returns it.
 */
#ifndef SKV_BACKEND_CUDA_DEVICE_H
#define SKV_BACKEND_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/cuda_blas.h"
#include "backend/cuda/kernels/cuda_args.h"

typedef struct skv_cuda_graphs skv_cuda_graphs;

typedef struct skv_cuda_grid {
    uint32_t x, y, z; /* 0: 1 */
    uint32_t shared;  /* bytes a block */
} skv_cuda_grid;

/* A launch that is held: the next one may take it along (skv_join_rows). */
typedef struct skv_cuda_held {
    bool is_there;
    skv_cuda_kernel kernel;
    skv_cuda_grid grid; /* x: rows */
    skv_cuda_first_args args;
} skv_cuda_held;

typedef struct skv_cuda_device {
    skv_cuda_api api;
    skv_cu_device ordinal;
    char name[24];       /* "GPU 0" */
    char capability[24]; /* "9.0" */
    skv_cuda_blas blas;
    skv_cu_context context;
    skv_cu_stream stream;
    skv_cu_module module;
    skv_cu_function functions[SKV_CUDA_KERNEL_COUNT];
    bool wgmma;              /* kernels with wgmma run: those of other cards end with a trap */
    bool chained;            /* kernels wait for the one before (gpu.inc) */
    skv_cuda_graphs *graphs; /* owned; NULL: launches go into the stream at once */
    skv_cuda_held held;
    bool apart;        /* no launch is held: for comparison */
    skv_status failed; /* SKV_OK: nothing has */
    skv_error error;
} skv_cuda_device;

/** The GPU of this number; `image` has the kernels as nvcc has compiled them. SKV_UNSUPPORTED names
 * the missing part. */
SKV_MUST_CHECK skv_status skv_cuda_device_open(skv_cuda_device *device, size_t ordinal,
                                               const void *image, skv_error *err);
/** When it does nothing; also of one that could not be opened. */
void skv_cuda_device_close(skv_cuda_device *device);

/** The calling thread has its context: before calls of libraries. */
void skv_cuda_enter(skv_cuda_device *device);
/** Memory of zeros; SKV_MEMORY. */
SKV_MUST_CHECK skv_status skv_cuda_new(skv_cuda_device *device, size_t n_bytes, void **out,
                                       skv_error *err);
/** When nothing uses it any longer. NULL: nothing happens. */
void skv_cuda_delete(skv_cuda_device *device, void *at);

/** Memory of the host that the device reads and writes by itself (pinned); SKV_MEMORY. */
SKV_MUST_CHECK skv_status skv_cuda_host_new(skv_cuda_device *device, size_t n_bytes, void **out,
                                            skv_error *err);
/** NULL: nothing happens. */
void skv_cuda_host_delete(skv_cuda_device *device, void *at);
/** Events of the stream, for the host to wait for. */
SKV_MUST_CHECK skv_status skv_cuda_event_new(skv_cuda_device *device, skv_cu_event *out,
                                             skv_error *err);
/** NULL: nothing happens. */
void skv_cuda_event_delete(skv_cuda_device *device, skv_cu_event event);
/** It happens when everything so far is done. */
void skv_cuda_event_record(skv_cuda_device *device, skv_cu_event event);
void skv_cuda_event_wait(skv_cuda_device *device, skv_cu_event event);
/** The next work begins when it has happened, on another device maybe. The host goes on. */
void skv_cuda_event_follow(skv_cuda_device *device, skv_cu_event event);
/** What the device has, and how much of it is free; zeros where it does not tell. */
void skv_cuda_memory(const skv_cuda_device *device, size_t *all, size_t *available);

/** The host's memory may change at once, but for that of skv_cuda_host_new: at the next wait. */
void skv_cuda_put(skv_cuda_device *device, void *to, const void *host, size_t n_bytes);
/** The same before all launches that are listed (cuda_graphs.h): none of them uses this memory. */
void skv_cuda_put_first(skv_cuda_device *device, void *to, const void *host, size_t n_bytes);
/** The host's memory is filled at the next skv_cuda_settle. */
void skv_cuda_begin_get(skv_cuda_device *device, void *host, const void *from, size_t n_bytes);
/** Waits until everything is done. An error is kept. */
void skv_cuda_settle(skv_cuda_device *device);
/** Both. */
void skv_cuda_get(skv_cuda_device *device, void *host, const void *from, size_t n_bytes);
/** Memory that does not overlap. */
void skv_cuda_copy(skv_cuda_device *device, void *to, const void *from, size_t n_bytes);
/** Makes it zeros. */
void skv_cuda_clear(skv_cuda_device *device, void *at, size_t n_bytes);
/** Another device's memory may be copied without the host's, where the machine has a way. */
void skv_cuda_reach(skv_cuda_device *device, skv_cu_context other);
/** From memory of another device, whose context `other` is. */
void skv_cuda_copy_from(skv_cuda_device *device, void *to, skv_cu_context other, const void *from,
                        size_t n_bytes);
/** `args` is the kernel's struct. */
void skv_cuda_launch(skv_cuda_device *device, skv_cuda_kernel kernel, skv_cuda_grid grid,
                     const void *args);
/** The same, of norm_rows, move_rows, glu_rows or mix_rows, when the device is asked for anything
 * else, unless skv_cuda_launch_norm takes it along. */
void skv_cuda_hold(skv_cuda_device *device, skv_cuda_kernel kernel, skv_cuda_grid grid,
                   const skv_cuda_first_args *args);
/** The launch that is held, if any. */
void skv_cuda_release(skv_cuda_device *device);
/** The same, and then the launches that are listed: whatever follows comes after them. */
void skv_cuda_flush(skv_cuda_device *device);
/** norm_rows of n_rows rows. If these are what the launch that is held leaves, one launch does
 * both: nothing that the held one reads may be written by this one. */
void skv_cuda_launch_norm(skv_cuda_device *device, size_t n_rows, const skv_cuda_norm_args *args);
/** SKV_UNSUPPORTED: cuBLASLt has no algorithm for the shape. A device that has failed does nothing.
 */
SKV_MUST_CHECK skv_status skv_cuda_product(skv_cuda_device *device, skv_cuda_product_shape shape,
                                           const skv_cuda_operands *operands, skv_error *err);
/** Until everything is done; returns the first error since the device was opened. */
SKV_MUST_CHECK skv_status skv_cuda_wait(skv_cuda_device *device, skv_error *err);

#endif
