#include "backend/cuda/cuda_device.h"

#include <limits.h>
#include <stdio.h>

#include "backend/cuda/cuda_graphs.h"
#include "base/size.h"

static skv_cu_address address(const void *at)
{
    return (skv_cu_address)(uintptr_t)at;
}

/* ---- opening ---- */

static skv_status load_kernels(skv_cuda_device *d, const void *image, skv_error *err)
{
    const skv_cuda_api *api = &d->api;
    int shared = 0, ptx = 0, major = 0, minor = 0;
    SKV_TRY(skv_cuda_check(api, api->module_load(&d->module, image), "the kernels", err));
    SKV_TRY(skv_cuda_check(api, api->device_attribute(&shared, SKV_CU_SHARED_MAX, d->ordinal),
                           "shared memory of the GPU", err));
    SKV_REQUIRE(shared >= (int)SKV_CUDA_SHARED_MAX, err, SKV_UNSUPPORTED,
                "%s: %d bytes of shared memory a block, at least %d", d->name, shared,
                (int)SKV_CUDA_SHARED_MAX);
    SKV_TRY(
        skv_cuda_check(api, api->device_attribute(&major, SKV_CU_MAJOR, d->ordinal), d->name, err));
    SKV_TRY(
        skv_cuda_check(api, api->device_attribute(&minor, SKV_CU_MINOR, d->ordinal), d->name, err));
    (void)snprintf(d->capability, sizeof d->capability, "%d.%d", major, minor);
    d->wgmma = major == 9 && minor == 0 && shared >= (int)SKV_CUDA_WGMMA_SHARED_MAX;
    for (int i = 0; i < SKV_CUDA_KERNEL_COUNT; i++) {
        const char *name = skv_cuda_kernel_name((skv_cuda_kernel)i);
        skv_cu_function *f = &d->functions[i];
        const uint32_t most =
            d->wgmma ? skv_cuda_shared_most((skv_cuda_kernel)i) : (uint32_t)SKV_CUDA_SHARED_MAX;
        SKV_TRY(skv_cuda_check(api, api->module_function(f, d->module, name), name, err));
        SKV_TRY(
            skv_cuda_check(api, api->function_set(*f, SKV_CU_KERNEL_SHARED, (int)most), name, err));
    }
    SKV_TRY(skv_cuda_check(api, api->function_get(&ptx, SKV_CU_KERNEL_PTX, d->functions[0]),
                           d->name, err));
    d->chained = ptx >= 90;
    return SKV_OK;
}

static skv_status open_all(skv_cuda_device *d, const void *image, skv_error *err)
{
    const skv_cuda_api *api = &d->api;
    int n = 0;
    SKV_TRY(skv_cuda_api_open(&d->api, err));
    SKV_TRY(skv_cuda_check(api, api->device_count(&n), "the GPUs", err));
    SKV_REQUIRE(d->ordinal < n, err, SKV_UNSUPPORTED, "%s: this machine has %d", d->name, n);
    SKV_TRY(skv_cuda_check(api, api->context_retain(&d->context, d->ordinal), d->name, err));
    SKV_TRY(skv_cuda_check(api, api->context_set(d->context), d->name, err));
    SKV_TRY(skv_cuda_check(api, api->stream_create(&d->stream, SKV_CU_OWN_STREAM), d->name, err));
    SKV_TRY(load_kernels(d, image, err));
    return skv_cuda_blas_open(&d->blas, api, err);
}

skv_status skv_cuda_device_open(skv_cuda_device *device, size_t ordinal, const void *image,
                                skv_error *err)
{
    *device = (skv_cuda_device){.ordinal = (skv_cu_device)skv_min_size(ordinal, INT_MAX)};
    (void)snprintf(device->name, sizeof device->name, "GPU %d", device->ordinal);
    const skv_status status = open_all(device, image, err);
    if (status != SKV_OK) skv_cuda_device_close(device);
    return status;
}

void skv_cuda_device_close(skv_cuda_device *d)
{
    if (d->blas.library) skv_cuda_blas_close(&d->blas);
    if (d->module) (void)d->api.module_unload(d->module);
    if (d->stream) (void)d->api.stream_destroy(d->stream);
    if (d->context) (void)d->api.context_release(d->ordinal);
    skv_cuda_api_close(&d->api);
    *d = (skv_cuda_device){.failed = SKV_OK};
}

/* ---- work ---- */

/* Whether to go on, after all launches so far. */
static bool begin(skv_cuda_device *d)
{
    skv_cuda_flush(d);
    return skv_cuda_is_ready(d);
}

void skv_cuda_enter(skv_cuda_device *d)
{
    (void)begin(d);
}

static void keep(skv_cuda_device *d, skv_cu_result result, const char *what)
{
    if (d->failed == SKV_OK) d->failed = skv_cuda_check(&d->api, result, what, &d->error);
}

skv_status skv_cuda_new(skv_cuda_device *d, size_t n_bytes, void **out, skv_error *err)
{
    skv_cu_address at = 0;
    const size_t n = n_bytes + (n_bytes == 0);
    SKV_TRY(skv_cuda_check(&d->api, d->api.context_set(d->context), d->name, err));
    SKV_TRY(skv_cuda_check(&d->api, d->api.memory_new(&at, n), d->name, err));
    keep(d, d->api.fill(at, 0, n, d->stream), "cuMemsetD8Async");
    *out = (void *)(uintptr_t)at;
    return SKV_OK;
}

void skv_cuda_delete(skv_cuda_device *d, void *at)
{
    if (!at || d->api.context_set(d->context) != 0) return;
    skv_cuda_flush(d);
    (void)d->api.stream_wait(d->stream);
    (void)d->api.memory_free(address(at));
}

skv_status skv_cuda_host_new(skv_cuda_device *d, size_t n_bytes, void **out, skv_error *err)
{
    SKV_TRY(skv_cuda_check(&d->api, d->api.context_set(d->context), d->name, err));
    return skv_cuda_check(&d->api, d->api.host_new(out, n_bytes + (n_bytes == 0)),
                          "pinned memory of the host", err);
}

void skv_cuda_host_delete(skv_cuda_device *d, void *at)
{
    if (!at || d->api.context_set(d->context) != 0) return;
    skv_cuda_flush(d);
    (void)d->api.stream_wait(d->stream);
    (void)d->api.host_free(at);
}

skv_status skv_cuda_event_new(skv_cuda_device *d, skv_cu_event *out, skv_error *err)
{
    SKV_TRY(skv_cuda_check(&d->api, d->api.context_set(d->context), d->name, err));
    return skv_cuda_check(&d->api, d->api.event_create(out, SKV_CU_EVENT_UNTIMED), d->name, err);
}

void skv_cuda_event_delete(skv_cuda_device *d, skv_cu_event event)
{
    if (event && d->api.context_set(d->context) == 0) (void)d->api.event_destroy(event);
}

void skv_cuda_event_record(skv_cuda_device *d, skv_cu_event event)
{
    if (begin(d)) keep(d, d->api.event_record(event, d->stream), "cuEventRecord");
}

void skv_cuda_event_wait(skv_cuda_device *d, skv_cu_event event)
{
    if (begin(d)) keep(d, d->api.event_wait(event), "cuEventSynchronize");
}

void skv_cuda_event_follow(skv_cuda_device *d, skv_cu_event event)
{
    if (begin(d)) keep(d, d->api.stream_follow(d->stream, event, 0), "cuStreamWaitEvent");
}

void skv_cuda_memory(const skv_cuda_device *d, size_t *all, size_t *available)
{
    const bool set = d->api.context_set(d->context) == 0;
    if (!set || d->api.memory_info(available, all) != 0) *all = *available = 0;
}

void skv_cuda_put(skv_cuda_device *d, void *to, const void *host, size_t n_bytes)
{
    if (n_bytes == 0 || !begin(d)) return;
    keep(d, d->api.put(address(to), host, n_bytes, d->stream), "cuMemcpyHtoDAsync");
}

void skv_cuda_put_first(skv_cuda_device *d, void *to, const void *host, size_t n_bytes)
{
    if (n_bytes == 0 || !skv_cuda_is_ready(d)) return;
    keep(d, d->api.put(address(to), host, n_bytes, d->stream), "cuMemcpyHtoDAsync");
}

void skv_cuda_begin_get(skv_cuda_device *d, void *host, const void *from, size_t n_bytes)
{
    if (n_bytes == 0 || !begin(d)) return;
    keep(d, d->api.get(host, address(from), n_bytes, d->stream), "cuMemcpyDtoHAsync");
}

void skv_cuda_settle(skv_cuda_device *d)
{
    if (begin(d)) keep(d, d->api.stream_wait(d->stream), "cuStreamSynchronize");
}

void skv_cuda_get(skv_cuda_device *d, void *host, const void *from, size_t n_bytes)
{
    skv_cuda_begin_get(d, host, from, n_bytes);
    skv_cuda_settle(d);
}

void skv_cuda_copy(skv_cuda_device *d, void *to, const void *from, size_t n_bytes)
{
    if (n_bytes == 0 || !begin(d)) return;
    keep(d, d->api.copy(address(to), address(from), n_bytes, d->stream), "cuMemcpyDtoDAsync");
}

void skv_cuda_clear(skv_cuda_device *d, void *at, size_t n_bytes)
{
    if (n_bytes == 0 || !begin(d)) return;
    keep(d, d->api.fill(address(at), 0, n_bytes, d->stream), "cuMemsetD8Async");
}

/* Without a way the driver copies through the host's memory. */
void skv_cuda_reach(skv_cuda_device *d, skv_cu_context other)
{
    if (begin(d)) (void)d->api.context_reach(other, 0);
}

void skv_cuda_copy_from(skv_cuda_device *d, void *to, skv_cu_context other, const void *from,
                        size_t n_bytes)
{
    if (n_bytes == 0 || !begin(d)) return;
    keep(d, d->api.copy_peer(address(to), d->context, address(from), other, n_bytes, d->stream),
         "cuMemcpyPeerAsync");
}

skv_status skv_cuda_product(skv_cuda_device *d, skv_cuda_product_shape shape,
                            const skv_cuda_operands *operands, skv_error *err)
{
    skv_cuda_release(d);
    if (!skv_cuda_is_ready(d)) return SKV_OK;
    SKV_TRY(skv_cuda_blas_prepare(&d->blas, &shape, err));
    if (skv_cuda_graphs_multiply(d, &shape, operands)) return SKV_OK;
    return skv_cuda_multiply(&d->blas, shape, operands, d->stream, err);
}

skv_status skv_cuda_wait(skv_cuda_device *d, skv_error *err)
{
    skv_cuda_settle(d);
    if (d->failed == SKV_OK) return SKV_OK;
    return skv_fail(err, d->failed, "%s", d->error.text);
}
