/*
 * Recorded launches. The launches and products of a short step go to a list of the host, with
 * copies of their arguments. When the step needs something else of the stream, mostly its results,
 * the list goes there: as a CUDA graph that was recorded from an equal list, by one call, or one by
 * one. Lists are compared byte for byte, so a recording is never played with other arguments. What
 * differs from step to step lies in lists of the device that are copied before (cuda_steps.c).
 */
#ifndef SKV_BACKEND_CUDA_GRAPHS_H
#define SKV_BACKEND_CUDA_GRAPHS_H

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"

enum { SKV_CUDA_RECORDINGS = 64, SKV_CUDA_LISTS_SEEN = 64 };

typedef struct skv_cuda_recording {
    skv_cu_recording at; /* NULL: none */
    unsigned char *list; /* borrowed: LIST_BYTES, of which n_bytes are used */
    size_t n_bytes;
    uint64_t last_used;
} skv_cuda_recording;

struct skv_cuda_graphs {
    bool off;     /* launches are listed, but go one by one: for tests, or the driver refused */
    bool listing; /* launches go to `list` */
    unsigned char *lists; /* owned: of all recordings, and the newest */
    unsigned char *list;  /* borrowed: LIST_BYTES, of which n_bytes are used */
    size_t n_bytes, n_launches;
    uint64_t n_lists; /* that have begun */
    skv_cuda_recording recordings[SKV_CUDA_RECORDINGS];
    uint64_t seen[SKV_CUDA_LISTS_SEEN]; /* hashes of lists that went one by one, a ring */
    uint64_t n_seen, n_ends;
    uint64_t n_recorded, n_played; /* for tests */
};

/** What skv_cuda_graphs_open takes, and recordings may. */
skv_bytes skv_cuda_graphs_bytes(void);
/** device->graphs, with no recording. */
SKV_MUST_CHECK skv_status skv_cuda_graphs_open(skv_cuda_device *device, skv_error *err);
/** Waits. Also where there are none. */
void skv_cuda_graphs_close(skv_cuda_device *device);

/* ---- cuda_launch.c: launches that are not listed ---- */

/** Whether to go on. A context belongs to the thread that has set it, and any thread may call. */
bool skv_cuda_is_ready(skv_cuda_device *device);
const char *skv_cuda_kernel_name(skv_cuda_kernel kernel);
/** Puts a kernel into the stream of a device that has not failed; the thread has its context. */
void skv_cuda_issue(skv_cuda_device *device, skv_cuda_kernel kernel, skv_cuda_grid grid,
                    const void *args);

/* ---- cuda_graphs.c ---- */

/** From here on launches are listed, until skv_cuda_graphs_end or other work of the stream. */
void skv_cuda_graphs_begin(skv_cuda_device *device);
/** Puts the listed work into the stream; does nothing if the list is empty. */
void skv_cuda_graphs_end(skv_cuda_device *device);
/** Of the list that launches go to, from 1 on; 0: they are not listed. */
uint64_t skv_cuda_graphs_number(const skv_cuda_device *device);
/** Lists a launch, or puts it into the stream. `args` is the kernel's struct. */
void skv_cuda_graphs_launch(skv_cuda_device *device, skv_cuda_kernel kernel, skv_cuda_grid grid,
                            const void *args);
/** Whether a product is listed, which the caller knows to be possible; else it is the caller's. */
bool skv_cuda_graphs_multiply(skv_cuda_device *device, const skv_cuda_product_shape *shape,
                              const skv_cuda_operands *operands);

#endif
