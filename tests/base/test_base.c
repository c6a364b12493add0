/* The foundations: errors, sizes, arenas, buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fail.h"
#include "base/size.h"

/* Whatever bytes come in, the text stays one terminated line. */
static void error_is_one_line(void **state)
{
    (void)state;
    skv_error err;
    assert_int_equal(skv_fail(&err, SKV_FORMAT, "%s: field %d", "a\nb\r\t\x1b[31m\x7f", 7),
                     SKV_FORMAT);
    assert_int_equal(err.status, SKV_FORMAT);
    assert_string_equal(err.text, "a?b???[31m?: field 7");
}

static void error_is_cut_at_its_end(void **state)
{
    (void)state;
    skv_error err;
    char longer[2 * SKV_ERROR_TEXT_MAX];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(skv_fail(&err, SKV_IO, "%s", longer), SKV_IO);
    assert_int_equal(strlen(err.text), SKV_ERROR_TEXT_MAX - 1);
    assert_int_equal(skv_fail_within(&err, err.status, "file"), SKV_IO);
    assert_int_equal(strlen(err.text), SKV_ERROR_TEXT_MAX - 1);
    assert_memory_equal(err.text, "file: xxx", 9);
}

static void error_may_be_absent(void **state)
{
    (void)state;
    assert_int_equal(skv_fail(NULL, SKV_RANGE, "%d", 1), SKV_RANGE);
    assert_int_equal(skv_fail_within(NULL, SKV_RANGE, "x"), SKV_RANGE);
}

static void error_gains_a_prefix(void **state)
{
    (void)state;
    skv_error err;
    (void)skv_fail(&err, SKV_RANGE, "n_layers: %d", 9);
    assert_int_equal(skv_fail_within(&err, err.status, "m\n/config.json"), SKV_RANGE);
    assert_string_equal(err.text, "m?/config.json: n_layers: 9");
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < SKV_STATUS_COUNT; i++) {
        assert_string_not_equal(skv_status_name((skv_status)i), "unknown status");
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(skv_status_name((skv_status)i), skv_status_name((skv_status)j));
        }
    }
    assert_string_equal(skv_status_name((skv_status)SKV_STATUS_COUNT), "unknown status");
    assert_string_equal(skv_status_name((skv_status)-1), "unknown status");
}

/* Sizes around the edges of size_t, against arithmetic in 128 bits. */
static void sizes_are_checked(void **state)
{
    (void)state;
    const size_t edges[] = {0,
                            1,
                            2,
                            3,
                            63,
                            64,
                            65,
                            SIZE_MAX / 3,
                            1ull << 31,
                            (1ull << 32) - 1,
                            1ull << 32,
                            (1ull << 32) + 1,
                            SIZE_MAX / 2,
                            SIZE_MAX / 2 + 1,
                            SIZE_MAX - 1,
                            SIZE_MAX};
    const size_t n = sizeof edges / sizeof edges[0];
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            size_t a = edges[i], b = edges[j], out = 12345;
            bool fits = a <= SIZE_MAX - b;
            assert_int_equal(skv_size_add(a, b, &out), fits);
            assert_int_equal(out, fits ? a + b : 12345);
            out = 12345;
            fits = b == 0 || a <= SIZE_MAX / b;
            assert_int_equal(skv_size_mul(a, b, &out), fits);
            assert_int_equal(out, fits ? a * b : 12345);
            assert_int_equal(skv_min_size(a, b), a < b ? a : b);
            assert_int_equal(skv_max_size(a, b), a < b ? b : a);
            if (b) assert_int_equal(skv_ceil_div(a, b), a ? (a - 1) / b + 1 : 0);
        }
    }
    assert_int_equal(skv_round_up(0, 64), 0);
    assert_int_equal(skv_round_up(1, 64), 64);
    assert_int_equal(skv_round_up(64, 64), 64);
    assert_int_equal(skv_round_up(65, 64), 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_one_line),       cmocka_unit_test(error_is_cut_at_its_end),
        cmocka_unit_test(error_may_be_absent),     cmocka_unit_test(error_gains_a_prefix),
        cmocka_unit_test(every_status_has_a_name), cmocka_unit_test(sizes_are_checked),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
