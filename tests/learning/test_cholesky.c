/*
 * Cholesky's factorisation and substitution: residuals of random systems at sizes around the
 * blocks, matrices that are not positive definite, and independence of the number of threads.
 *
 * Labels: threads
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/ridge.h"

enum { STRIP = SKV_CHOLESKY_STRIP };

/* sum over n + 3 random rows of r r^T: positive definite. */
static double *make_matrix(size_t n, uint64_t seed)
{
    double *a = calloc(n * n, sizeof *a), *row = calloc(n, sizeof *row);
    skv_rng rng;
    skv_rng_init(&rng, seed);
    for (size_t t = 0; t < n + 3; t++) {
        for (size_t i = 0; i < n; i++) row[i] = skv_rng_normal(&rng);
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < n; k++) a[i * n + k] += row[i] * row[k];
        }
    }
    for (size_t i = 0; i < n; i++) a[i * n + i] += 0.1 * (double)n;
    free(row);
    return a;
}

static double *factor(size_t n, size_t n_threads)
{
    skv_pool *pool;
    skv_error err;
    double *a = make_matrix(n, n);
    assert_int_equal(skv_pool_create(n_threads, &pool, &err), SKV_OK);
    assert_true(skv_cholesky_factor(pool, a, n));
    skv_pool_free(pool);
    return a;
}

static void check_size(size_t n)
{
    double *a = make_matrix(n, n), *l = factor(n, 2), *b = calloc(n * STRIP, sizeof *b);
    double *x = calloc(n * STRIP, sizeof *x), worst = 0;
    for (size_t i = 0; i < n * STRIP; i++) b[i] = x[i] = sin((double)i);
    skv_cholesky_solve(l, n, x);
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < STRIP; c++) {
            double sum = -b[i * STRIP + c];
            for (size_t k = 0; k < n; k++) sum += a[i * n + k] * x[k * STRIP + c];
            worst = fmax(worst, fabs(sum));
        }
    }
    if (!(worst < 1e-12 * (double)n)) fail_msg("n %zu: residual %g", n, worst);
    free(a);
    free(l);
    free(b);
    free(x);
}

static void test_residuals(void **state)
{
    static const size_t sizes[] = {1, 2, 15, 31, 32, 33, 47, 48, 64, 65, 100, 161};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_size(sizes[i]);
}

static void test_threads(void **state)
{
    (void)state;
    double *one = factor(150, 1), *three = factor(150, 3);
    assert_memory_equal(one, three, 150 * 150 * sizeof *one);
    free(one);
    free(three);
}

static void test_not_positive_definite(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_error err;
    assert_int_equal(skv_pool_create(1, &pool, &err), SKV_OK);
    static const size_t at[] = {0, 20, 40, 79};
    static const double values[] = {-1e6, 0.0, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 4; j++) {
            double *a = make_matrix(80, 7);
            a[at[i] * 80 + at[i]] = values[j];
            assert_false(skv_cholesky_factor(pool, a, 80));
            free(a);
        }
    }
    skv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_residuals),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_not_positive_definite),
    };
    return cmocka_run_group_tests_name("cholesky", tests, NULL, NULL);
}
