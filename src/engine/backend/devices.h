/* The back ends of this build, by the names of their devices. */
#ifndef SKV_BACKEND_DEVICES_H
#define SKV_BACKEND_DEVICES_H

#include "backend/backend.h"
#include "base/pool.h"
#include "skv/skv.h"

/* A kind of back end of this build. */
typedef struct skv_backend_kind {
    const char *name; /* of its devices: "cpu" */
    unsigned promises;
    /* The device that it finds here: `found` gets one line, which says why it cannot be used where
     * `false` is returned. *memory is that of the device; of the processor, that of the host. */
    bool (*find)(char *found, size_t room, skv_bytes *memory, skv_bytes *available);
} skv_backend_kind;

/** The i-th kind, or NULL after the last. */
const skv_backend_kind *skv_backend_kind_at(size_t i);
/** That of a device; SKV_UNSUPPORTED lists those that there are. NULL: "cpu". */
SKV_MUST_CHECK skv_status skv_backend_kind_of(const char *device, const skv_backend_kind **out,
                                              skv_error *err);

typedef struct skv_backend_options {
    const char *device;  /* the name of a kind; NULL: "cpu" */
    skv_pool *threads;   /* the host's, which "cpu" computes on; borrowed until `free` */
    skv_cpu_level level; /* of the processor's kernels */
    const struct skv_matmul_form *form; /* of its products; NULL: the fastest, by timing them */
    size_t ordinal;                     /* which device of its kind, from 0; "cpu" is one */
    bool several;                       /* with others of this program it holds one model */
    skv_sums sums;                      /* how these add up */
    bool f32;                           /* keys and values are: activations are too */
    size_t first_layers; /* only layers before it are the device's, and others the processor's; 0:
                          * all are the device's */
} skv_backend_options;

/** SKV_UNSUPPORTED: there is no such device, or it cannot be used here. */
SKV_MUST_CHECK skv_status skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                             skv_error *err);

#endif
