#include "backend/cuda/cuda_api.h"

#include "backend/cuda/cuda_library.h"

static skv_status find_all(skv_cuda_api *api, skv_error *err)
{
#define X(member, name, arguments)                                                                 \
    SKV_TRY(skv_cuda_library_find(api->library, "libcuda.so.1", name, "the driver is too old",     \
                                  &api->member, err));
    SKV_CUDA_FUNCTIONS(X)
#undef X
    return SKV_OK;
}

static const char *words_of(const skv_cuda_api *api, skv_cu_result result)
{
    const char *text = NULL;
    return api->error_text(result, &text) == 0 && text ? text : "an unknown error";
}

skv_status skv_cuda_api_open(skv_cuda_api *api, skv_error *err)
{
    static const char *const names[] = {"libcuda.so.1"};
    *api = (skv_cuda_api){.library = skv_cuda_library_open(names, 1)};
    SKV_REQUIRE(api->library, err, SKV_UNSUPPORTED,
                "libcuda.so.1: not found: NVIDIA's driver is not installed");
    skv_status status = find_all(api, err);
    if (status == SKV_OK) {
        const skv_cu_result result = api->init(0);
        if (result == 0) return SKV_OK;
        status = skv_fail(err, SKV_UNSUPPORTED, "cuInit: %s (%d)", words_of(api, result), result);
    }
    skv_cuda_api_close(api);
    return status;
}

void skv_cuda_api_close(skv_cuda_api *api)
{
    skv_cuda_library_close(api->library);
    api->library = NULL;
}

skv_status skv_cuda_check(const skv_cuda_api *api, skv_cu_result result, const char *what,
                          skv_error *err)
{
    if (result == 0) return SKV_OK;
    const skv_status status = result == SKV_CU_OUT_OF_MEMORY ? SKV_MEMORY : SKV_IO;
    return skv_fail(err, status, "%s: %s (%d)", what, words_of(api, result), result);
}
