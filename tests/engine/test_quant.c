/* Products with quantised weights: see check_quant.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check_quant.h"

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(skv_check_quant(1, false, stderr), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
