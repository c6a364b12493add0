/*
 * The processor's back end by check_backend.h, on every level that this machine runs and with one
 * thread and several. guarded_backend runs it on the back end whose memory nobody else can touch.
 *
 * Labels: threads
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
