#include "backend/cuda/cuda_library.h"

#include <dlfcn.h>
#include <string.h>

void *skv_cuda_library_open(const char *const *names, size_t n)
{
    void *library = NULL;
    for (size_t i = 0; i < n && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

void skv_cuda_library_close(void *library)
{
    if (library) (void)dlclose(library);
}

/* Functions and objects have addresses of one size (POSIX says so of dlsym). */
skv_status skv_cuda_library_find(void *library, const char *file, const char *name, const char *why,
                                 void *out, skv_error *err)
{
    void *symbol = dlsym(library, name);
    SKV_REQUIRE(symbol, err, SKV_UNSUPPORTED, "%s: %s is missing: %s", file, name, why);
    memcpy(out, &symbol, sizeof symbol);
    return SKV_OK;
}
