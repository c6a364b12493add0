/* Products with quantised weights: see check_quant.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "check_quant.h"
#include "format/dtype.h"
#include "kernels/quant_panel.h"

static void test_products(void **state)
{
    (void)state;
    assert_int_equal(skv_check_quant(1, false, stderr), 0);
}

/* A model in memory is as large as its file: panels take what blocks take, but for the minimums of
 * Q4_K, which have 8 bits instead of 6, and headers. */
static void test_panel_bytes(void **state)
{
    enum { NR = 64, K = 2048 };
    const skv_dtype types[] = {SKV_DTYPE_Q4_0, SKV_DTYPE_Q4_K, SKV_DTYPE_Q6_K, SKV_DTYPE_Q8_0};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        size_t in_file = 0;
        assert_true(skv_dtype_bytes(types[i], (size_t)NR * K, &in_file));
        size_t in_panel = skv_quant_panel_bytes(skv_quant_form_of(types[i]), NR, K);
        assert_in_range(in_panel, in_file, in_file + in_file * 3 / 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_panel_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
