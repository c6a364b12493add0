/*
 * The CUDA back end on the emulated GPU, by way of fake_driver.c and fake_blas.c: its operations
 * against plain C, its models against the processor, and what it refuses.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/cuda_image.h"
#include "check_backend.h"
#include "engine/engine.h"

/* The fake driver has the kernels itself: any image will do. */
const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return "kernels";
}

static void its_operations_are_right(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_backend *be;
    skv_error err;
    assert_int_equal(skv_pool_create(1, &pool, NULL), SKV_OK);
    const skv_backend_options options = {
        .device = "cuda", .threads = pool, .level = SKV_CPU_LEVEL_BEST};
    if (skv_backend_create(&options, &be, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_string_equal(be->name, "cuda");
    assert_int_equal(skv_check_backend(be, 5, stdout), 0);
    be->free(be);
    skv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_operations_are_right),
    };
    return cmocka_run_group_tests_name("CUDA back end", tests, NULL, NULL);
}
