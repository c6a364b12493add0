/* Memory of a device and of the host. The processor has only the host's. */
#ifndef SKV_BACKEND_BYTES_H
#define SKV_BACKEND_BYTES_H

#include "base/size.h"

typedef struct skv_bytes {
    size_t device, host;
} skv_bytes;

/** SIZE_MAX stands for more than can be counted. */
static inline skv_bytes skv_bytes_add(skv_bytes a, skv_bytes b)
{
    if (!skv_size_add(a.device, b.device, &a.device)) a.device = SIZE_MAX;
    if (!skv_size_add(a.host, b.host, &a.host)) a.host = SIZE_MAX;
    return a;
}

/** Both together, where they share one memory. */
static inline size_t skv_bytes_sum(skv_bytes bytes)
{
    size_t sum;
    return skv_size_add(bytes.device, bytes.host, &sum) ? sum : SIZE_MAX;
}

#endif
