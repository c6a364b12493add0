#include "device_driver.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "device.h"

static const struct {
    const char *name;
    unsigned threads;
} kernels[SKV_CUDA_KERNEL_COUNT] = {
#define X(name, args, n_threads) {#name, n_threads},
    SKV_CUDA_KERNELS(X)
#undef X
};

enum { SKIPPED = 77, IMAGE_BYTES_MAX = 64 * 1024 * 1024 };

static struct {
    skv_cuda_api api;
    skv_cu_context context;
    skv_cu_stream stream;
    skv_cu_module module;
    skv_cu_function functions[SKV_CUDA_KERNEL_COUNT];
    bool wgmma;
} driver;

static void must(skv_cu_result result, const char *what)
{
    skv_error err;
    if (skv_cuda_check(&driver.api, result, what, &err) == SKV_OK) return;
    (void)fprintf(stderr, "%s\n", err.text);
    exit(1);
}

void *device_image(void)
{
    const char *path = getenv("SKV_CUDA_IMAGE");
    FILE *file = path ? fopen(path, "rb") : NULL;
    char *image = calloc(IMAGE_BYTES_MAX, 1);
    if (!file || !image) {
        (void)fprintf(stderr, "skipped: SKV_CUDA_IMAGE: no such file\n");
        exit(SKIPPED);
    }
    const size_t n = fread(image, 1, IMAGE_BYTES_MAX - 1, file);
    (void)fclose(file);
    if (n == 0 || n == IMAGE_BYTES_MAX - 1) abort();
    return image;
}

static void load_kernels(void)
{
    int shared_max = 0;
    void *image = device_image();
    must(driver.api.module_load(&driver.module, image), "cuModuleLoadData");
    free(image);
    must(driver.api.device_attribute(&shared_max, SKV_CU_SHARED_MAX, 0), "cuDeviceGetAttribute");
    for (int i = 0; i < SKV_CUDA_KERNEL_COUNT; i++) {
        skv_cu_function *f = &driver.functions[i];
        must(driver.api.module_function(f, driver.module, kernels[i].name), kernels[i].name);
        must(driver.api.function_set(
                 *f, SKV_CU_KERNEL_SHARED,
                 (int)skv_min_size((size_t)shared_max, skv_cuda_shared_most((skv_cuda_kernel)i))),
             kernels[i].name);
    }
}

void device_close(void)
{
    must(driver.api.module_unload(driver.module), "cuModuleUnload");
    must(driver.api.stream_destroy(driver.stream), "cuStreamDestroy");
    must(driver.api.context_release(0), "cuDevicePrimaryCtxRelease");
    skv_cuda_api_close(&driver.api);
}

void device_open(void)
{
    skv_error err;
    char name[64];
    int major = 0, minor = 0;
    if (skv_cuda_api_open(&driver.api, &err) != SKV_OK) {
        (void)fprintf(stderr, "skipped: %s\n", err.text);
        exit(SKIPPED);
    }
    must(driver.api.context_retain(&driver.context, 0), "cuDevicePrimaryCtxRetain");
    must(driver.api.context_set(driver.context), "cuCtxSetCurrent");
    must(driver.api.stream_create(&driver.stream, SKV_CU_OWN_STREAM), "cuStreamCreate");
    must(driver.api.device_name(name, (int)sizeof name, 0), "cuDeviceGetName");
    must(driver.api.device_attribute(&major, SKV_CU_MAJOR, 0), "cuDeviceGetAttribute");
    must(driver.api.device_attribute(&minor, SKV_CU_MINOR, 0), "cuDeviceGetAttribute");
    driver.wgmma = major == 9 && minor == 0;
    printf("%s, sm_%d%d\n", name, major, minor);
    load_kernels();
}

const skv_cuda_api *device_api(void)
{
    return &driver.api;
}

skv_cu_stream device_stream(void)
{
    return driver.stream;
}

static skv_cu_address address(const void *p)
{
    return (skv_cu_address)(uintptr_t)p;
}

size_t device_orders(void)
{
    return 1;
}

void device_set_order(size_t order)
{
    (void)order;
}

bool device_has_wgmma(void)
{
    return driver.wgmma;
}

unsigned long long device_bank_conflicts(void)
{
    return 0;
}

void *device_new(size_t n_bytes)
{
    skv_cu_address at = 0;
    const size_t n = n_bytes + (n_bytes == 0);
    must(driver.api.memory_new(&at, n), "cuMemAlloc");
    must(driver.api.fill(at, 0xff, n, driver.stream), "cuMemsetD8Async");
    return (void *)(uintptr_t)at;
}

void device_free(void *at)
{
    must(driver.api.stream_wait(driver.stream), "cuStreamSynchronize");
    must(driver.api.memory_free(address(at)), "cuMemFree");
}

void device_put(void *to, const void *host, size_t n_bytes)
{
    must(driver.api.put(address(to), host, n_bytes, driver.stream), "cuMemcpyHtoDAsync");
    must(driver.api.stream_wait(driver.stream), "cuStreamSynchronize");
}

void device_get(void *host, const void *from, size_t n_bytes)
{
    must(driver.api.get(host, address(from), n_bytes, driver.stream), "cuMemcpyDtoHAsync");
    must(driver.api.stream_wait(driver.stream), "cuStreamSynchronize");
}

void device_launch(skv_cuda_kernel kernel, device_grid grid, const void *args)
{
    void *argument = (void *)(uintptr_t)args;
    const skv_cu_launch launch = {.x = grid.x ? grid.x : 1,
                                  .y = grid.y ? grid.y : 1,
                                  .z = grid.z ? grid.z : 1,
                                  .threads = kernels[kernel].threads,
                                  .threads_y = 1,
                                  .threads_z = 1,
                                  .shared = grid.shared,
                                  .stream = driver.stream};
    must(driver.api.launch(&launch, driver.functions[kernel], &argument, NULL),
         kernels[kernel].name);
}
