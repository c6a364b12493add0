/* The kernels of check_scan.c, every level that this machine runs, as one program of the suite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check_scan.h"

static void test_every_level(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        assert_int_equal(skv_check_scan(seed, false, stdout), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
