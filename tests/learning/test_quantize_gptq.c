/*
 * Rounding that makes up for its errors, against the algorithm as the paper of GPTQ states it: the
 * inverse of H, from which each rounded column is taken, and an update of all columns that are
 * left.
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
#include "train/quantize/quantizer.h"

typedef struct sample {
    size_t K, N;
    float *gram;     /* [K, K] */
    double *h, *inv; /* [K, K]: with damping; its inverse */
    float *w;        /* [N, K] */
    float *scales;   /* [N, K / group] */
} sample;

/* inv = h^-1, by Gauss and Jordan. */
static void invert(const double *h, double *inv, size_t K)
{
    double *a = malloc(K * K * sizeof *a);
    memcpy(a, h, K * K * sizeof *a);
    memset(inv, 0, K * K * sizeof *inv);
    for (size_t i = 0; i < K; i++) inv[i * K + i] = 1;
    for (size_t p = 0; p < K; p++) {
        const double pivot = a[p * K + p];
        for (size_t j = 0; j < K; j++) {
            a[p * K + j] /= pivot;
            inv[p * K + j] /= pivot;
        }
        for (size_t i = 0; i < K; i++) {
            const double factor = a[i * K + p];
            if (i == p) continue;
            for (size_t j = 0; j < K; j++) {
                a[i * K + j] -= factor * a[p * K + j];
                inv[i * K + j] -= factor * inv[p * K + j];
            }
        }
    }
    free(a);
}

/* Inputs whose columns depend on each other, some much larger than others; column 5 is always 0. */
static sample make_sample(size_t K, size_t N, const skv_rounding *r)
{
    sample s = {.K = K, .N = N};
    skv_rng rng;
    skv_rng_init(&rng, K + N);
    s.gram = calloc(K * K, sizeof *s.gram);
    s.h = calloc(K * K, sizeof *s.h);
    s.inv = calloc(K * K, sizeof *s.inv);
    s.w = calloc(N * K, sizeof *s.w);
    s.scales = calloc(N * (K / r->group), sizeof *s.scales);
    double *x = calloc(K, sizeof *x), mean = 0;
    for (size_t t = 0; t < 3 * K; t++) {
        const double shared = skv_rng_normal(&rng);
        for (size_t k = 0; k < K; k++) {
            x[k] = (skv_rng_normal(&rng) + shared) * (1 + (double)(k % 7));
        }
        x[5] = 0;
        for (size_t i = 0; i < K; i++) {
            for (size_t j = 0; j < K; j++) s.h[i * K + j] += x[i] * x[j];
        }
    }
    for (size_t i = 0; i < K * K; i++) {
        s.gram[i] = (float)s.h[i];
        s.h[i] = (double)s.gram[i];
    }
    for (size_t i = 0; i < K; i++) mean += s.h[i * K + i] / (double)K;
    for (size_t i = 0; i < K; i++) s.h[i * K + i] += 0.01 * mean;
    invert(s.h, s.inv, K);
    for (size_t i = 0; i < N * K; i++) s.w[i] = (float)skv_rng_normal(&rng);
    for (size_t i = 0; i < N; i++) {
        skv_round_scales(r, s.w + i * K, NULL, K, s.scales + i * (K / r->group));
    }
    free(x);
    return s;
}

static void free_sample(sample *s)
{
    free(s->gram);
    free(s->h);
    free(s->inv);
    free(s->w);
    free(s->scales);
}

/* (w - q) H (w - q)^T of row i. */
static double loss(const sample *s, const skv_rounding *r, size_t i, const int8_t *codes)
{
    const size_t K = s->K;
    double *e = calloc(K, sizeof *e), sum = 0;
    for (size_t k = 0; k < K; k++) {
        const float scale = s->scales[i * (K / r->group) + k / r->group];
        e[k] = (double)s->w[i * K + k] - (double)codes[k] * (double)scale;
    }
    for (size_t k = 0; k < K; k++) {
        for (size_t j = 0; j < K; j++) sum += e[k] * s->h[k * K + j] * e[j];
    }
    free(e);
    return sum;
}

/* The paper's algorithm for row i. */
static void round_as_paper(const sample *s, const skv_rounding *r, const uint32_t *order, size_t i,
                           int8_t *codes)
{
    const size_t K = s->K;
    double *inv = malloc(K * K * sizeof *inv), *w = malloc(K * sizeof *w);
    memcpy(inv, s->inv, K * K * sizeof *inv);
    for (size_t k = 0; k < K; k++) w[k] = (double)s->w[i * K + k];
    for (size_t step = 0; step < K; step++) {
        const size_t p = order[step];
        const double scale = (double)s->scales[i * (K / r->group) + p / r->group];
        const double most = (double)(1 << (r->bits - 1));
        const double code = fmin(fmax(rint(w[p] / scale), -most), most - 1);
        const double error = (w[p] - code * scale) / inv[p * K + p], pivot = inv[p * K + p];
        codes[p] = (int8_t)code;
        for (size_t k = 0; k < K; k++) w[k] -= error * inv[p * K + k];
        for (size_t a = 0; a < K; a++) {
            const double factor = inv[a * K + p] / pivot;
            for (size_t b = 0; b < K && a != p; b++) inv[a * K + b] -= factor * inv[p * K + b];
        }
        for (size_t b = 0; b < K; b++) inv[p * K + b] = 0;
    }
    free(inv);
    free(w);
}

static void check_shape(size_t K, size_t N, const skv_rounding *r)
{
    sample s = make_sample(K, N, r);
    skv_compensation c;
    skv_pool *pool;
    skv_error err;
    assert_int_equal(skv_pool_create(2, &pool, &err), SKV_OK);
    assert_int_equal(skv_compensation_init(&c, pool, s.gram, K, &err), SKV_OK);
    float *errors = calloc(N * K, sizeof *errors);
    int8_t *codes = calloc(N * K, 1), *paper = calloc(K, 1), *nearest = calloc(K, 1);
    skv_round_compensated(r, &c, s.w, s.scales, N, errors, codes);
    double ours = 0, theirs = 0, plain = 0;
    size_t n_unlike = 0;
    for (size_t i = 0; i < N; i++) {
        round_as_paper(&s, r, c.order, i, paper);
        skv_round_row(r, s.w + i * K, s.scales + i * (K / r->group), K, nearest);
        ours += loss(&s, r, i, codes + i * K);
        theirs += loss(&s, r, i, paper);
        plain += loss(&s, r, i, nearest);
        n_unlike += memcmp(paper, codes + i * K, K) != 0;
    }
    /* A tie that f32 breaks the other way changes the rest of its row. */
    assert_true(n_unlike <= N / 8);
    assert_true(fabs(ours - theirs) <= 0.02 * theirs);
    if (!(ours < 0.7 * plain)) fail_msg("K %zu: loss %g, to nearest %g", K, ours, plain);
    skv_compensation_release(&c);
    skv_pool_free(pool);
    free(errors);
    free(codes);
    free(paper);
    free(nearest);
    free_sample(&s);
}

static void test_equals_paper(void **state)
{
    (void)state;
    check_shape(32, 16, &(skv_rounding){4, 32, SKV_DTYPE_F16});
    check_shape(96, 24, &(skv_rounding){4, 32, SKV_DTYPE_BF16});
    check_shape(256, 16, &(skv_rounding){4, 128, SKV_DTYPE_F16});
    check_shape(64, 8, &(skv_rounding){8, 32, SKV_DTYPE_F16});
}

static void test_moments_out_of_range(void **state)
{
    enum { K = 32 };
    (void)state;
    float gram[K * K] = {0};
    skv_compensation c;
    skv_pool *pool;
    skv_error err;
    assert_int_equal(skv_pool_create(1, &pool, &err), SKV_OK);
    /* A text that a layer sees nothing of: plain rounding. */
    assert_int_equal(skv_compensation_init(&c, pool, gram, K, &err), SKV_OK);
    for (size_t k = 1; k < K; k++) assert_true(gram[k * K] == 0.0F);
    skv_compensation_release(&c);
    gram[3 * K + 3] = NAN;
    assert_int_equal(skv_compensation_init(&c, pool, gram, K, &err), SKV_RANGE);
    gram[3 * K + 3] = INFINITY;
    assert_int_equal(skv_compensation_init(&c, pool, gram, K, &err), SKV_RANGE);
    skv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_paper),
        cmocka_unit_test(test_moments_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
