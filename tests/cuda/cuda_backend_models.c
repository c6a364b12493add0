#include "cuda_backend_models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_image.h"
#include "golden.h"
#include "guarded_backend.h"
#include "open_engine.h"

enum { CONTEXT = 96 };

static const void *the_image;

const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return the_image;
}

void cuda_image_set(const void *image)
{
    the_image = image;
}

skv_status __real_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err);
skv_status __wrap_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err);

skv_status __wrap_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err)
{
    const bool emulated = options->device && strcmp(options->device, "emulated") == 0;
    return emulated ? guarded_create(options, out, err)
                    : __real_skv_backend_create(options, out, err);
}

skv_engine_options cuda_options(const char *device, skv_weights weights)
{
    skv_engine_options o = skv_engine_options_default();
    o.device = device;
    o.threads = 1;
    o.weights = weights;
    o.kv = SKV_KV_BF16;
    o.context = CONTEXT;
    return o;
}

const golden *golden_find(const golden *all, size_t n, const char *name)
{
    size_t i = 0;
    while (i < n && strcmp(all[i].name, name) != 0) i++;
    if (i == n) fail_msg("%s: there is no such model", name);
    return &all[i];
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double usual_distance(double *squares, size_t n)
{
    double sum = 0;
    qsort(squares, n, sizeof *squares, by_size);
    n -= n / 20;
    for (size_t i = 0; i < n; i++) sum += squares[i];
    return sqrt(sum / (double)n);
}
