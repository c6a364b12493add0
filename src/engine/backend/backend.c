/* The back ends by the names of their devices. */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda.h"
#include "backend/devices.h"
#include "backend/split/split.h"

enum { NAMES_ROOM = 96 };

typedef struct back_end {
    skv_backend_kind kind;
    skv_status (*create)(const skv_backend_options *options, skv_backend **out, skv_error *err);
} back_end;

static const back_end back_ends[] = {
    {{"cpu", SKV_PROMISE_ALL, skv_cpu_find}, skv_backend_cpu_create},
    {{"cuda", SKV_CUDA_PROMISES, skv_cuda_find}, skv_backend_cuda_create},
};

enum { N_BACK_ENDS = sizeof back_ends / sizeof *back_ends };

const skv_backend_kind *skv_backend_kind_at(size_t i)
{
    return i < N_BACK_ENDS ? &back_ends[i].kind : NULL;
}

/* "cpu, cuda". */
static void list_names(char out[NAMES_ROOM])
{
    size_t n = 0;
    for (size_t i = 0; i < N_BACK_ENDS && n < NAMES_ROOM; i++) {
        const char *between = i > 0 ? ", " : "";
        const int more = snprintf(out + n, NAMES_ROOM - n, "%s%s", between, back_ends[i].kind.name);
        n += more > 0 ? (size_t)more : 0;
    }
}

/* The back end of a device. */
static skv_status find_back_end(const char *device, const back_end **out, skv_error *err)
{
    for (size_t i = 0; i < N_BACK_ENDS; i++) {
        if (device && strcmp(device, back_ends[i].kind.name) != 0) continue;
        *out = &back_ends[i]; /* NULL: the first */
        return SKV_OK;
    }
    char names[NAMES_ROOM];
    list_names(names);
    return skv_fail(err, SKV_UNSUPPORTED, "device %.64s: unknown, expected %s", device, names);
}

skv_status skv_backend_kind_of(const char *device, const skv_backend_kind **out, skv_error *err)
{
    const back_end *found = NULL;
    SKV_TRY(find_back_end(device, &found, err));
    *out = &found->kind;
    return SKV_OK;
}

skv_status skv_backend_create(const skv_backend_options *options, skv_backend **out, skv_error *err)
{
    const back_end *found = NULL;
    skv_backend *first = NULL, *second = NULL;
    SKV_TRY(find_back_end(options->device, &found, err));
    if (options->first_layers == 0) return found->create(options, out, err);
    SKV_TRY(found->create(options, &first, err));
    const skv_status status = skv_backend_cpu_create(options, &second, err);
    if (status != SKV_OK) {
        first->free(first);
        return status;
    }
    return skv_backend_split_create(first, second, options->first_layers, out, err);
}
