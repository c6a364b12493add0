/*
 * The kernels of the CUDA back end on the emulated GPU, with its lanes and warps in three orders:
 * which order finds a missing barrier depends on the barrier. cuda_driver is the same on a GPU. An
 * argument is a pattern of the tests that run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda_case.h"

_Static_assert((int)SKV_CUDA_KV_BF16 == (int)SKV_KV_TYPE_BF16, "types of pages are kv_page.h's");
_Static_assert((int)SKV_CUDA_KV_FP8 == (int)SKV_KV_TYPE_FP8, "types of pages are kv_page.h's");
_Static_assert((int)SKV_CUDA_KV_INT8 == (int)SKV_KV_TYPE_INT8, "types of pages are kv_page.h's");
_Static_assert((int)SKV_CUDA_PAGE_ROWS == (int)SKV_PAGE_ROWS, "rows of a page are kv_page.h's");

static void test_rows(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_rows, 100), 0);
}

static void test_picks(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_picks, 800), 0);
}

static void test_place(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_place, 200), 0);
}

/* Rows of tiles are swizzled so that ldmatrix loses no cycle to them. */
static void test_attention(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_attention, 300), 0);
    assert_int_equal(device_bank_conflicts(), 0);
}

static void test_votes(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_votes, 400), 0);
}

static void test_codes(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_codes, 500), 0);
}

static void test_pages(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_pages, 600), 0);
}

static void test_experts(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_experts, 700), 0);
    assert_int_equal(device_bank_conflicts(), 0);
}

static void test_states(void **state)
{
    (void)state;
    assert_int_equal(cuda_run(check_cuda_states, 800), 0);
    assert_int_equal(device_bank_conflicts(), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_place),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_votes),
        cmocka_unit_test(test_codes),     cmocka_unit_test(test_pages),
        cmocka_unit_test(test_experts),   cmocka_unit_test(test_states),
        cmocka_unit_test(test_picks),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
