/* The matrix products and the choice of kernels: see check_matmul.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "check_matmul.h"
#include "kernels/kernels.h"

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(skv_check_matmul(1, false, stderr), 0);
}

static void test_level_names(void **state)
{
    (void)state;
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_BEST, SKV_CPU_LEVEL_REF, SKV_CPU_LEVEL_AVX2,
                                    SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_NEON};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        skv_cpu_level parsed;
        assert_true(skv_cpu_level_parse(skv_cpu_level_name(levels[i]), &parsed));
        assert_int_equal(parsed, levels[i]);
    }
    skv_cpu_level untouched = SKV_CPU_LEVEL_NEON;
    assert_false(skv_cpu_level_parse("avx3", &untouched));
    assert_int_equal(untouched, SKV_CPU_LEVEL_NEON);
}

static void test_levels_are_clamped(void **state)
{
    (void)state;
    skv_kernels k;
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, 0);
    assert_int_equal(k.level, SKV_CPU_LEVEL_REF);
    skv_kernels_init(&k, SKV_CPU_LEVEL_AVX512, 0);
    assert_int_equal(k.level, SKV_CPU_LEVEL_REF);
    assert_true(skv_cpu_level_runs(SKV_CPU_LEVEL_REF, 0));
    assert_false(skv_cpu_level_runs(SKV_CPU_LEVEL_AVX2, 0));
#if defined(__x86_64__)
    skv_kernels_init(&k, SKV_CPU_LEVEL_AVX512, SKV_CPU_AVX2);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX2);
    skv_kernels_init(&k, SKV_CPU_LEVEL_BEST, SKV_CPU_AVX2 | SKV_CPU_AVX512);
    assert_int_equal(k.level, SKV_CPU_LEVEL_AVX512);
#endif
    skv_kernels_init(&k, SKV_CPU_LEVEL_REF, ~0u);
    assert_int_equal(k.level, SKV_CPU_LEVEL_REF);
}

static void test_cpu_name(void **state)
{
    (void)state;
    char name[128], cut[4];
    skv_cpu_name(name, sizeof name);
    assert_true(strlen(name) > 0);
    skv_cpu_name(cut, sizeof cut);
    assert_true(strlen(cut) <= 3);
    assert_memory_equal(cut, name, strlen(cut));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_level_names),
        cmocka_unit_test(test_levels_are_clamped),
        cmocka_unit_test(test_cpu_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
