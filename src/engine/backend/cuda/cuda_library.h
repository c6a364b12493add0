/* Shared libraries that are opened at run time, for functions that the build does not need. */
#ifndef SKV_BACKEND_CUDA_LIBRARY_H
#define SKV_BACKEND_CUDA_LIBRARY_H

#include <stddef.h>

#include "base/fail.h"

/** The first of names [n] that is installed, or NULL. */
void *skv_cuda_library_open(const char *const *names, size_t n);
/** NULL: nothing happens. */
void skv_cuda_library_close(void *library);

/** The address of a function goes to the pointer at `out`. SKV_UNSUPPORTED: "FILE: NAME is missing:
 * WHY". */
SKV_MUST_CHECK skv_status skv_cuda_library_find(void *library, const char *file, const char *name,
                                                const char *why, void *out, skv_error *err);

#endif
