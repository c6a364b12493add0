#include "backend/cuda/cuda_nccl.h"

#include <stdio.h>

#include "backend/cuda/cuda_library.h"

static skv_status find_all(skv_cuda_nccl *nccl, skv_error *err)
{
#define X(member, name, arguments)                                                                 \
    SKV_TRY(skv_cuda_library_find(nccl->library, "libnccl.so.2", name, "NCCL is too old",          \
                                  &nccl->member, err));
    SKV_NCCL_FUNCTIONS(X)
#undef X
    return SKV_OK;
}

skv_status skv_cuda_nccl_open(skv_cuda_nccl *nccl, skv_error *err)
{
    static const char *const names[] = {"libnccl.so.2"};
    *nccl = (skv_cuda_nccl){.library = skv_cuda_library_open(names, 1)};
    SKV_REQUIRE(nccl->library, err, SKV_UNSUPPORTED, "libnccl.so.2: not found");
    const skv_status status = find_all(nccl, err);
    if (status != SKV_OK) skv_cuda_nccl_close(nccl);
    return status;
}

void skv_cuda_nccl_close(skv_cuda_nccl *nccl)
{
    skv_cuda_library_close(nccl->library);
    nccl->library = NULL;
}

/* Versions are numbers like 22703. */
void skv_cuda_nccl_describe(char *out, size_t room)
{
    skv_cuda_nccl nccl;
    skv_error err;
    int version = 0;
    if (skv_cuda_nccl_open(&nccl, &err) != SKV_OK) {
        (void)snprintf(out, room, "by copies: %s", err.text);
        return;
    }
    if (nccl.version(&version) != 0) version = 0;
    (void)snprintf(out, room, "by NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                   version % 100);
    skv_cuda_nccl_close(&nccl);
}
