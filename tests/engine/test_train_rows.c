/* Rows of a training step at every level against the reference, with lengths that divide nothing.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/train_rows.h"

enum { N_MAX = 3000 };

static const size_t lengths[] = {1, 15, 16, 17, 64, 100, 2999};

typedef struct rows {
    float a[N_MAX], b[N_MAX], c[N_MAX], d[N_MAX];
} rows;

static void fill(rows *r, uint64_t seed)
{
    skv_rng rng;
    skv_rng_init(&rng, seed);
    for (size_t i = 0; i < N_MAX; i++) {
        r->a[i] = (float)(3 * skv_rng_normal(&rng));
        r->b[i] = (float)(3 * skv_rng_normal(&rng));
        r->c[i] = (float)skv_rng_normal(&rng);
        r->d[i] = (float)fabs(skv_rng_normal(&rng));
    }
    r->a[5] = 60; /* the ends of the exponential */
    r->a[6] = -90;
    r->a[7] = -1e5f;
}

static void same(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < N_MAX; i++) {
        /* What is added up is of the order of 1, so that is where rounding begins. */
        float limit = i < n ? 2e-6f * (fabsf(want[i]) + 1.0f) : 0.0f;
        if (!(fabsf(got[i] - want[i]) <= limit)) {
            fail_msg("%s, n %zu: [%zu] %g, expected %g", what, n, i, (double)got[i],
                     (double)want[i]);
        }
    }
}

static void near(double got, double want, const char *what)
{
    if (!(fabs(got - want) <= 1e-5 * (fabs(want) + 1e-3))) fail_msg("%s: %g, %g", what, got, want);
}

static void check(const skv_train_rows *k, size_t n)
{
    const skv_train_rows *ref = &skv_train_rows_ref;
    rows x, y;
    fill(&x, n);
    y = x;
    assert_true(k->max(x.a, n) == ref->max(y.a, n));
    near(k->square_sum(x.c, n), ref->square_sum(y.c, n), "square_sum");
    near((double)k->exp(x.a, 0.5f, 1.0f, n), (double)ref->exp(y.a, 0.5f, 1.0f, n), "exp");
    same(x.a, y.a, n, "exp");
    fill(&x, n + 1);
    y = x;
    k->softmax_back(x.b, x.d, 0.3f, 0.125f, n);
    ref->softmax_back(y.b, y.d, 0.3f, 0.125f, n);
    same(x.b, y.b, n, "softmax_back");
    k->silu_glu_back(x.a, x.b, x.c, n);
    ref->silu_glu_back(y.a, y.b, y.c, n);
    same(x.a, y.a, n, "silu_glu_back, gate");
    same(x.b, y.b, n, "silu_glu_back, up");
    fill(&x, n + 2);
    y = x;
    k->rmsnorm_back(x.a, x.b, x.c, x.d, x.d, 1e-5f, n);
    ref->rmsnorm_back(y.a, y.b, y.c, y.d, y.d, 1e-5f, n);
    same(x.a, y.a, n, "rmsnorm_back, dx");
    same(x.b, y.b, n, "rmsnorm_back, dw");
}

static void check_kl(const skv_train_rows *k, size_t n)
{
    const skv_train_rows *ref = &skv_train_rows_ref;
    rows x, y;
    fill(&x, n + 3);
    double sum_a = 0, sum_b = 0;
    for (size_t i = 0; i < n; i++) {
        sum_a += exp((double)x.b[i]);
        sum_b += exp((double)x.c[i]);
    }
    const skv_kl_row row = {1.0f, (float)log(sum_a), (float)log(sum_b), 0.7f};
    y = x;
    near(k->kl(x.b, x.c, &row, n), ref->kl(y.b, y.c, &row, n), "kl");
    same(x.b, y.b, n, "kl");
    const skv_adamw_row adamw = {0.9f, 0.99f, 1e-3f, 1.5f, 1e-8f, 0.999f, 0.8f};
    k->adamw(x.a, x.b, x.d, x.c, &adamw, n);
    ref->adamw(y.a, y.b, y.d, y.c, &adamw, n);
    same(x.a, y.a, n, "adamw");
}

static void test_levels(void **state)
{
    (void)state;
    const skv_cpu_level levels[] = {SKV_CPU_LEVEL_REF,    SKV_CPU_LEVEL_AVX2, SKV_CPU_LEVEL_AVXVNNI,
                                    SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_NEON, SKV_CPU_LEVEL_BEST};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        skv_train_rows k;
        if (!skv_cpu_level_runs(levels[i], skv_cpu_detect())) continue;
        skv_train_rows_init(&k, levels[i], skv_cpu_detect());
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            check(&k, lengths[j]);
            check_kl(&k, lengths[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
