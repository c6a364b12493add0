/*
 * The trainer's products against naive ones in double precision, on shapes that divide nothing,
 * all four orders of the operands, on all threads and on one.
 * Labels: threads
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/bf16.h"
#include "tested_level.h"
#include "train/gemm.h"

typedef struct shape {
    size_t M, N, K;
} shape;

static const shape shapes[] = {{1, 1, 1},   {7, 65, 3},     {6, 64, 128}, {50, 17, 129},
                               {129, 5, 2}, {33, 200, 257}, {97, 70, 64}, {9, 66, 2300}};

static float *random_matrix(size_t n, skv_rng *rng)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)skv_rng_normal(rng);
    return x;
}

/* As the product sees an operand: rounded in bf16. */
static double seen(float x, bool bf16)
{
    return (double)(bf16 ? skv_bf16_to_f32(skv_f32_to_bf16(x)) : x);
}

static void check(const skv_gemm_args *g, const float *before, bool bf16)
{
    for (size_t i = 0; i < g->M; i++) {
        for (size_t j = 0; j < g->N; j++) {
            double sum = g->add ? (double)before[i * g->ldc + j] : 0.0, size = 1.0;
            for (size_t k = 0; k < g->K; k++) {
                double a = seen(g->a_t ? g->a[k * g->lda + i] : g->a[i * g->lda + k], bf16);
                double b = seen(g->b_t ? g->b[j * g->ldb + k] : g->b[k * g->ldb + j], bf16);
                sum += a * b;
                size += fabs(a * b);
            }
            double got = (double)g->c[i * g->ldc + j];
            if (!(fabs(got - sum) <= 1e-6 * size)) {
                fail_msg("%zux%zux%zu at %d bt %d: [%zu,%zu] %g, expected %g", g->M, g->N, g->K,
                         g->a_t, g->b_t, i, j, got, sum);
            }
        }
        for (size_t j = g->N; j < g->ldc; j++) { /* what lies between rows is not touched */
            assert_true(g->c[i * g->ldc + j] == before[i * g->ldc + j]);
        }
    }
}

static void check_shape(skv_gemm *gemm, shape s, unsigned variant, bool bf16)
{
    skv_rng rng;
    skv_rng_init(&rng, variant + 77 * s.M);
    skv_gemm_args g = {.M = s.M, .N = s.N, .K = s.K};
    g.a_t = variant & 1;
    g.b_t = variant >> 1 & 1;
    g.add = variant >> 2 & 1;
    g.lda = (g.a_t ? s.M : s.K) + 3;
    g.ldb = (g.b_t ? s.K : s.N) + 1;
    g.ldc = s.N + 2;
    float *a = random_matrix((g.a_t ? s.K : s.M) * g.lda, &rng);
    float *b = random_matrix((g.b_t ? s.N : s.K) * g.ldb, &rng);
    float *before = random_matrix(s.M * g.ldc, &rng);
    float *c = malloc(s.M * g.ldc * sizeof *c);
    for (size_t i = 0; i < s.M * g.ldc; i++) c[i] = before[i];
    g.a = a;
    g.b = b;
    g.c = c;
    skv_gemm_packed packed = {0};
    if (variant >> 4 & 1) {
        skv_error err;
        assert_int_equal(skv_gemm_pack(gemm, &g, &packed, &err), SKV_OK);
        g.packed = &packed;
    }
    if (variant >> 3 & 1) {
        skv_gemm_serial(gemm, &g, 1);
    } else {
        skv_gemm_run(gemm, &g);
    }
    skv_gemm_packed_release(&packed);
    check(&g, before, bf16);
    free(a);
    free(b);
    free(c);
    free(before);
}

static void check_level(skv_cpu_level level, bool bf16)
{
    if (level != SKV_CPU_LEVEL_BEST && !tested_level(level)) return;
    skv_kernels kernels;
    skv_pool *pool;
    skv_gemm *gemm;
    skv_error err;
    skv_kernels_init(&kernels, level, skv_cpu_detect());
    assert_int_equal(skv_pool_create(3, &pool, &err), SKV_OK);
    assert_int_equal(skv_gemm_create(pool, bf16 ? &kernels.bf16 : &kernels.f32, &gemm, &err),
                     SKV_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (unsigned variant = 0; variant < 32; variant++) {
            check_shape(gemm, shapes[i], variant, bf16);
        }
    }
    skv_gemm_free(gemm);
    skv_pool_free(pool);
}

static void test_f32(void **state)
{
    (void)state;
    check_level(SKV_CPU_LEVEL_REF, false);
    check_level(SKV_CPU_LEVEL_AVX2, false);
    check_level(SKV_CPU_LEVEL_BEST, false);
}

static void test_bf16(void **state)
{
    (void)state;
    check_level(SKV_CPU_LEVEL_REF, true);
    check_level(SKV_CPU_LEVEL_AVX2, true);
    check_level(SKV_CPU_LEVEL_BEST, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
