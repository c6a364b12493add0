/* What tests of models on the CUDA back end share: its kernels, the emulated device beside it, and
 * distances from the oracle. Programs that use it are linked with --wrap of skv_cuda_image and
 * skv_backend_create. */
#ifndef SKV_TESTS_CUDA_BACKEND_MODELS_H
#define SKV_TESTS_CUDA_BACKEND_MODELS_H

#include <stddef.h>

#include "skv/skv.h"

struct golden;

/** The kernels that SKV_CUDA_IMAGE names become those of the program; NULL: it has none. The fake
 * driver has the kernels itself: any image will do. */
void cuda_image_set(const void *image);

/** One thread, pages of bf16, a context for each golden. The device "emulated" is that of
 * guarded_backend.h. */
skv_engine_options cuda_options(const char *device, skv_weights weights);

/** Fails the test where there is no such model. */
const struct golden *golden_find(const struct golden *all, size_t n, const char *name);

/** The root mean square of `squares` [n] without the largest of 20. It sorts them. */
double usual_distance(double *squares, size_t n);

#endif
