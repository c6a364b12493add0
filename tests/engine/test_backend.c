/*
 * The processor's back end by check_backend.h, on every level that this machine runs and with one
 * thread and several. guarded_backend runs it on the back end whose memory nobody else can touch.
 *
 * Labels: threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "backend/devices.h"
#include "base/system.h"
#include "check_backend.h"
#include "tested_level.h"

static void check_level(skv_cpu_level level, size_t n_threads, uint64_t seed)
{
    skv_backend *be;
    skv_error err;
    skv_pool *pool;
    if (!tested_level(level)) return;
    assert_int_equal(skv_pool_create(n_threads, &pool, &err), SKV_OK);
    if (skv_backend_create(&(skv_backend_options){.threads = pool, .level = level}, &be, &err) ==
        SKV_OK) { /* else: not here */
        print_message("%s, %zu threads\n", be->level, n_threads);
        assert_int_equal(skv_check_backend(be, seed, stdout), 0);
        be->free(be);
    }
    skv_pool_free(pool);
}

static void test_every_level(void **state)
{
    (void)state;
    for (skv_cpu_level level = SKV_CPU_LEVEL_BEST + 1; level <= SKV_CPU_LEVEL_NEON; level++) {
        check_level(level, 1, 1 + level);
        check_level(level, 3, 11 + level);
    }
}

/* ---- products cut for many threads */

enum { SHARED_K = 2100, SHARED_ROWS = 7, SHARED_PANEL = 64 };

static float number(size_t i)
{
    return (float)((i * 2654435761U >> 7) % 2003) / 1001.5f - 1.0f;
}

static void read_weights(const void *ctx, size_t row0, size_t n, float *out)
{
    (void)ctx;
    for (size_t i = 0; i < n * SHARED_K; i++) out[i] = 0.1f * number(row0 * SHARED_K + i + 5);
}

/* y [SHARED_ROWS, n of N] of a product, by that many threads. */
static void multiply(skv_weight_type type, size_t n, bool paired, skv_epilogue epilogue,
                     size_t n_threads, float *y)
{
    const size_t n_y = SHARED_ROWS * n, n_x = SHARED_ROWS * SHARED_K;
    const skv_area_spec specs[] = {{SKV_AREA_F32, SHARED_ROWS, SHARED_K, false, true},
                                   {SKV_AREA_F32, SHARED_ROWS, n, false, true}};
    const skv_backend_limits limits = {.max_rows = SHARED_ROWS,
                                       .max_K = SHARED_K,
                                       .max_heads = 1,
                                       .head_dim = 64,
                                       .max_group = 1,
                                       .max_kv_rows = 64};
    skv_pool *pool;
    skv_backend *be;
    skv_linear *w;
    skv_area *areas[2];
    float bias[16 * SHARED_PANEL];
    for (size_t i = 0; i < n; i++) bias[i] = number(i + 99);
    assert_int_equal(skv_pool_create(n_threads, &pool, NULL), SKV_OK);
    assert_int_equal(skv_backend_create(&(skv_backend_options){.threads = pool}, &be, NULL),
                     SKV_OK);
    assert_int_equal(be->reserve(be, &limits, NULL), SKV_OK);
    const skv_row_source source = {.read = read_weights, .n_rows = n, .bias = bias};
    const skv_row_source parts[] = {source, source};
    const skv_linear_spec spec = {type, parts, paired ? 2 : 1, SHARED_K, paired};
    assert_int_equal(be->linear_create(be, &spec, &w, NULL), SKV_OK);
    assert_int_equal(be->areas_create(be, specs, 2, areas, NULL), SKV_OK);
    const skv_mapped x =
        be->map(be, (skv_rows){areas[0], 0, SHARED_K}, SHARED_ROWS, SHARED_K, SKV_MAP_WRITE);
    for (size_t i = 0; i < n_x; i++) x.at[i] = number(i);
    be->unmap(be, x);
    be->linear(be, &(skv_linear_args){.w = w,
                                      .y = {areas[1], 0, n},
                                      .x = {areas[0], 0, SHARED_K},
                                      .n_rows = SHARED_ROWS,
                                      .epilogue = epilogue});
    const skv_mapped out = be->map(be, (skv_rows){areas[1], 0, n}, SHARED_ROWS, n, SKV_MAP_READ);
    memcpy(y, out.at, n_y * sizeof *y);
    be->unmap(be, out);
    be->areas_free(be, areas, 2);
    be->linear_free(be, w);
    be->free(be);
    skv_pool_free(pool);
}

/* 33 threads halve the panels of some widths, the last of which has columns in both halves, in one,
 * or is whole. */
static void test_halved_panels(void **state)
{
    static const size_t widths[] = {5 * SHARED_PANEL + 40, 4 * SHARED_PANEL + 20, 6 * SHARED_PANEL};
    static const skv_weight_type types[] = {SKV_WEIGHT_BF16, SKV_WEIGHT_I8};
    static float one[SHARED_ROWS * 6 * SHARED_PANEL], many[SHARED_ROWS * 6 * SHARED_PANEL];
    (void)state;
    for (size_t i = 0; i < 2 * 3 * 4; i++) {
        const skv_epilogue epilogue =
            ((skv_epilogue[]){SKV_EPILOGUE_STORE, SKV_EPILOGUE_ADD, SKV_EPILOGUE_RELU2,
                              SKV_EPILOGUE_SILU_GLU})[i % 4];
        const size_t n = widths[i / 4 % 3];
        multiply(types[i / 12], n, i % 4 == 3, epilogue, 1, one);
        multiply(types[i / 12], n, i % 4 == 3, epilogue, 33, many);
        assert_memory_equal(many, one, SHARED_ROWS * n * sizeof *one);
    }
}

static void test_devices(void **state)
{
    (void)state;
    skv_backend *be = NULL;
    skv_error err;
    skv_pool *pool;
    assert_int_equal(skv_pool_create(1, &pool, &err), SKV_OK);
    skv_backend_options options = {.threads = pool, .device = "tape"};
    assert_int_equal(skv_backend_create(&options, &be, &err), SKV_UNSUPPORTED);
    assert_string_equal(err.text, "device tape: unknown, expected cpu, cuda");
    assert_null(be);
    options.device = "cpu";
    assert_int_equal(skv_backend_create(&options, &be, &err), SKV_OK);
    assert_string_equal(be->name, "cpu");
    be->free(be);
    skv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level),
        cmocka_unit_test(test_halved_panels),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
