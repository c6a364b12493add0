/* Random numbers: the published generator, the same numbers for the same seed, fair draws. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

/* xoshiro256** from the state 1, 2, 3, 4: the first values, worked out by hand from the recipe
 * rotl(s1 * 5, 7) * 9. */
static void follows_the_recipe(void **state)
{
    (void)state;
    skv_rng rng = {{1, 2, 3, 4}};
    assert_int_equal(skv_rng_next(&rng), 11520);      /* rotl(10, 7) * 9 */
    assert_int_equal(skv_rng_next(&rng), 0);          /* s1 = 2 ^ 3 ^ 1 = 0 */
    assert_int_equal(skv_rng_next(&rng), 1509978240); /* s1 = 0 ^ (3 ^ 1 ^ 2 << 17) ^ ... */
}

/* splitmix64 of the multiples of its own increment: its published sequence from seed 0. */
static void mixes_as_published(void **state)
{
    (void)state;
    assert_true(skv_mix64(0) == 0xe220a8397b1dcdafu);
    assert_true(skv_mix64(0x9e3779b97f4a7c15u) == 0x6e789e6aa1b965f4u);
    assert_true(skv_mix64(2 * 0x9e3779b97f4a7c15u) == 0x06c45d188009454fu);
}

static void same_seed_same_numbers(void **state)
{
    (void)state;
    skv_rng a, b, c;
    skv_rng_init(&a, 42);
    skv_rng_init(&b, 42);
    skv_rng_init(&c, 43);
    int differ = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = skv_rng_next(&a);
        assert_true(x == skv_rng_next(&b));
        differ += x != skv_rng_next(&c);
    }
    assert_int_equal(differ, 1000);
    b = a; /* the state is plain data */
    assert_true(skv_rng_next(&a) == skv_rng_next(&b));
}

static void draws_below_are_fair(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 1);
    size_t counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint64_t x = skv_rng_below(&rng, 7);
        assert_true(x < 7);
        counts[x]++;
    }
    /* Six standard deviations of a binomial with p = 1/7 are 556. */
    for (int i = 0; i < 7; i++) assert_in_range(counts[i], 10000 - 560, 10000 + 560);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(skv_rng_below(&rng, 1), 0);
        assert_true(skv_rng_below(&rng, UINT64_MAX) < UINT64_MAX);
    }
}

static void moments_are_right(void **state)
{
    (void)state;
    skv_rng rng;
    skv_rng_init(&rng, 5);
    enum { N = 200000 };
    double sum_u = 0, sum = 0, sum2 = 0, sum4 = 0;
    for (int i = 0; i < N; i++) {
        double u = skv_rng_uniform(&rng), x = skv_rng_normal(&rng);
        assert_true(u >= 0 && u < 1);
        assert_true(isfinite(x));
        sum_u += u;
        sum += x;
        sum2 += x * x;
        sum4 += x * x * x * x;
    }
    /* Six standard errors each. */
    assert_true(fabs(sum_u / N - 0.5) < 6 * sqrt(1.0 / 12 / N));
    assert_true(fabs(sum / N) < 6 * sqrt(1.0 / N));
    assert_true(fabs(sum2 / N - 1) < 6 * sqrt(2.0 / N));
    assert_true(fabs(sum4 / N - 3) < 6 * sqrt(96.0 / N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_recipe),     cmocka_unit_test(mixes_as_published),
        cmocka_unit_test(same_seed_same_numbers), cmocka_unit_test(draws_below_are_fair),
        cmocka_unit_test(moments_are_right),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
