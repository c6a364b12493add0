/*
 * Looks at rows of logits against a plain sort with exponentials of the C library: the tokens that
 * every combination of options leaves, exactly, how often each is drawn, the largest, the sum, the
 * same draws at every level of the kernels.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/logit_look.h"
#include "base/rng.h"
#include "property_seed.h"

/* AddressSanitizer is slow, and sees the same accesses in fewer. */
#if defined(__SANITIZE_ADDRESS__)
enum { V_MOST = 12000, N_DRAWS = 100, N_CASES = 200, N_ROUNDS = 5 };
#else
enum { V_MOST = 12000, N_DRAWS = 400, N_CASES = 400, N_ROUNDS = 20 };
#endif

/* ---- rows ---- */

typedef enum row_kind {
    ROW_FLAT, /* a narrow normal distribution, as of random weights */
    ROW_NORMAL,
    ROW_PEAKED,    /* a few tokens far above the others */
    ROW_TIES,      /* few different values */
    ROW_EQUAL,     /* one value */
    ROW_STEPS,     /* neighbouring floats, most of them in one bucket */
    ROW_TWO_HILLS, /* half of the tokens far below, as many in one bucket as there are */
    ROW_MASKED,    /* most of them forbidden */
    ROW_ONE,       /* all but one forbidden */
    ROW_ASCENDING,
    ROW_KINDS
} row_kind;

static void make_row(float *x, size_t n, row_kind kind, skv_rng *rng)
{
    for (size_t i = 0; i < n; i++) {
        const double z = skv_rng_normal(rng);
        switch (kind) {
        case ROW_FLAT: x[i] = (float)(0.05 * z); break;
        case ROW_NORMAL: x[i] = (float)(3 * z); break;
        case ROW_PEAKED: x[i] = (float)(2 * z + (i % 97 == 5 ? 14 : 0)); break;
        case ROW_TIES: x[i] = (float)skv_rng_below(rng, 4) - 2; break;
        case ROW_EQUAL: x[i] = -1.25f; break;
        case ROW_STEPS: x[i] = 1 + (float)skv_rng_below(rng, 4000) * FLT_EPSILON; break;
        case ROW_TWO_HILLS: x[i] = (float)(1e-4 * z) - (i % 2 == 0 ? 1.0f : 0.0f); break;
        case ROW_MASKED: x[i] = skv_rng_below(rng, 50) > 0 ? -HUGE_VALF : (float)z; break;
        case ROW_ONE: x[i] = -HUGE_VALF; break;
        case ROW_ASCENDING: x[i] = (float)i * 1e-3f; break;
        case ROW_KINDS: break;
        }
    }
    if (kind == ROW_ONE || kind == ROW_MASKED) x[skv_rng_below(rng, n)] = 0.5f;
}

/* ---- what is right ---- */

typedef struct token {
    int32_t id;
    double logit, p;
} token;

static int by_rank(const void *a, const void *b)
{
    const token *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The tokens that are left, the likeliest first, with what they have of 1; *sure: no rounding of
 * sums could leave another one. */
static size_t keep_right(const float *x, size_t n, const skv_sampling *s, token *out, bool *sure)
{
    double total = 0, kept = 0;
    size_t n_left = 0, n_kept = 0;
    for (size_t i = 0; i < n; i++) out[i] = (token){.id = (int32_t)i, .logit = (double)x[i]};
    qsort(out, n, sizeof *out, by_rank);
    *sure = true;
    for (size_t i = 0; i < n && (s->top_k == 0 || i < s->top_k); i++) {
        const double p = exp((out[i].logit - out[0].logit) / s->temperature);
        if (fabs(p - s->min_p) < 1e-9) *sure = false;
        if (p < s->min_p || p < 0x1p-43) break;
        out[i].p = p;
        total += p;
        n_left++;
    }
    const double need = s->top_p * total;
    while (n_kept < n_left && (s->top_p >= 1 || kept < need)) {
        kept += out[n_kept++].p;
        if (s->top_p < 1 && fabs(kept - need) < 1e-9 * total) *sure = false;
    }
    for (size_t i = 0; i < n_kept; i++) out[i].p /= kept;
    return n_kept;
}

static skv_sampling random_options(size_t n, skv_rng *rng)
{
    static const double temperatures[] = {0.05, 0.7, 1, 1, 2.5, 90}, min_ps[] = {0, 0, 0.05, 0.4};
    static const double top_ps[] = {1, 1, 0.95, 0.8, 0.3, 0.01};
    const size_t top_ks[] = {0, 0, 0, 2, 20, 40, 256, 257, 300, n / 2, n};
    skv_sampling s = skv_sampling_default();
    s.temperature = temperatures[skv_rng_below(rng, 6)];
    s.top_p = top_ps[skv_rng_below(rng, 6)];
    s.min_p = min_ps[skv_rng_below(rng, 4)];
    s.top_k = top_ks[skv_rng_below(rng, 11)];
    return s;
}

/* Numbers in equal steps draw each token as often as it has of 1, but for the ends of its part. */
static void check_draws(skv_look *look, const skv_sampling *s, const token *right, size_t n_right,
                        const char *what)
{
    double *share = calloc(look->row.n, sizeof *share);
    assert_non_null(share);
    for (size_t i = 0; i < N_DRAWS; i++) {
        skv_look_at(look, look->row.x);
        const int32_t id = skv_look_draw(look, s, ((double)i + 0.5) / N_DRAWS);
        assert_in_range(id, 0, look->row.n - 1);
        share[id] += 1.0 / N_DRAWS;
    }
    for (size_t i = 0; i < n_right; i++) {
        if (fabs(share[right[i].id] - right[i].p) > 1.001 / N_DRAWS + 1e-9) {
            fail_msg("%s: id %d was drawn with %.5f, expected %.5f", what, right[i].id,
                     share[right[i].id], right[i].p);
        }
        share[right[i].id] = 0;
    }
    for (size_t i = 0; i < look->row.n; i++) {
        if (share[i] > 0) fail_msg("%s: id %zu was drawn, which was cut off", what, i);
    }
    free(share);
}

/* Where the options go by the whole row, the last token that they leave is known. */
static void check_last(const skv_look *look, const skv_sampling *s, const token *right, size_t n)
{
    const bool cuts = s->top_p < 1 || (s->top_k > SKV_PICK_MAX && s->top_k < look->row.n);
    if (!cuts || (s->top_k > 0 && s->top_k <= SKV_PICK_MAX)) return;
    const token *last = &right[n - 1];
    if (look->last.id == INT32_MAX) { /* min_p cuts off more */
        assert_true((double)look->last.logit <= last->logit);
        return;
    }
    assert_int_equal(look->last.id, last->id);
    assert_true(!((double)look->last.logit < last->logit) &&
                !((double)look->last.logit > last->logit));
}

static void test_options(void **state)
{
    (void)state;
    static const size_t sizes[] = {2, 6, 63, 64, 65, 129, 300, 1000, 4097, V_MOST};
    float *x = calloc(V_MOST, sizeof *x);
    token *right = calloc(V_MOST, sizeof *right);
    skv_rng rng;
    size_t n_sure = 0;
    skv_rng_init(&rng, property_seed(11));
    assert_true(x && right);
    for (size_t i = 0; i < N_CASES; i++) {
        const size_t n = sizes[skv_rng_below(&rng, 10)];
        const row_kind kind = (row_kind)(i % ROW_KINDS);
        skv_look look;
        bool sure;
        char what[160];
        make_row(x, n, kind, &rng);
        const skv_sampling s = random_options(n, &rng);
        snprintf(what, sizeof what, "case %zu: row %d of %zu, T %g, top_k %zu, top_p %g, min_p %g",
                 i, (int)kind, n, s.temperature, s.top_k, s.top_p, s.min_p);
        const size_t n_right = keep_right(x, n, &s, right, &sure);
        if (!sure) continue;
        n_sure++;
        assert_int_equal(skv_look_init(&look, n, SKV_CPU_LEVEL_BEST, NULL), SKV_OK);
        skv_look_at(&look, x);
        assert_int_equal(look.best, right[0].id);
        check_draws(&look, &s, right, n_right, what);
        check_last(&look, &s, right, n_right);
        skv_look_release(&look);
    }
    assert_true(n_sure > N_CASES * 3 / 4);
    print_message("%zu cases\n", n_sure + 3 * ROW_KINDS);
    free(x);
    free(right);
}

/* The tokens that a sampler with this seed draws: how far they are from what is right, which has
 * chi-squared's distribution. Tokens that should come fewer than five times are one bin. */
static double chi_squared(const float *x, size_t n, const skv_sampling *s, const token *right,
                          size_t n_right, size_t n_draws, size_t *freedom)
{
    float *row = calloc(n, sizeof *row);
    size_t *counts = calloc(n, sizeof *counts);
    skv_sampler *sampler;
    double sum = 0, rare = 0, rare_found = 0;
    assert_true(row && counts);
    assert_int_equal(skv_sampler_create(s, n, &sampler, NULL), SKV_OK);
    for (size_t draw = 0; draw < n_draws; draw++) {
        memcpy(row, x, n * sizeof *x);
        counts[skv_sampler_choose(sampler, row)]++;
    }
    skv_sampler_free(sampler);
    *freedom = 0;
    for (size_t j = 0; j < n_right; j++) {
        const double expected = right[j].p * (double)n_draws, found = (double)counts[right[j].id];
        if (expected < 5) {
            rare += expected;
            rare_found += found;
            continue;
        }
        sum += (found - expected) * (found - expected) / expected;
        ++*freedom;
    }
    free(row);
    free(counts);
    return rare >= 5 ? sum + (rare_found - rare) * (rare_found - rare) / rare : sum;
}

/* What chance makes is rarely beyond the bound, and not a second time with other numbers; what a
 * fault makes is, and grows with the draws. */
static void test_seeds_draw_by_probability(void **state)
{
    (void)state;
    enum { DRAWS = 8000, N = 700, N_KINDS = 3 * ROW_KINDS };
    float x[N];
    token right[N];
    skv_rng rng;
    skv_rng_init(&rng, property_seed(3));
    for (size_t i = 0; i < N_KINDS; i++) {
        const size_t n = i % 3 == 0 ? N : i % 3 == 1 ? 130 : 9;
        skv_sampling s = random_options(n, &rng);
        bool sure, close = false;
        make_row(x, n, (row_kind)(i / 3), &rng);
        const size_t n_right = keep_right(x, n, &s, right, &sure);
        for (size_t k = 0; k < 2 && !close; k++) {
            size_t freedom;
            s.seed = property_seed(i + k * N_KINDS);
            const double sum =
                chi_squared(x, n, &s, right, n_right, (size_t)DRAWS << 2 * k, &freedom);
            close = sum <= (double)freedom + 6 * sqrt(2 * (double)freedom) + 6;
            if (!close) print_message("case %zu: chi-squared is %g of %zu\n", i, sum, freedom);
        }
        if (sure && !close) fail_msg("case %zu: chi-squared is too large twice", i);
    }
}

static void test_the_largest_and_the_sum(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 5, 64, 65, 300, 4097, V_MOST};
    float *x = calloc(V_MOST, sizeof *x);
    token *right = calloc(V_MOST, sizeof *right);
    skv_candidate top[SKV_PICK_MAX];
    skv_rng rng;
    skv_rng_init(&rng, property_seed(5));
    assert_true(x && right);
    for (size_t i = 0; i < 7 * ROW_KINDS; i++) {
        const size_t n = sizes[i % 7], n_top = 1 + (size_t)skv_rng_below(&rng, SKV_PICK_MAX);
        skv_look look;
        double sum = 0;
        make_row(x, n, (row_kind)(i / 7), &rng);
        assert_int_equal(skv_look_init(&look, n, SKV_CPU_LEVEL_BEST, NULL), SKV_OK);
        skv_look_at(&look, x);
        for (size_t j = 0; j < n; j++) {
            right[j] = (token){.id = (int32_t)j, .logit = (double)x[j]};
            sum += exp((double)x[j] - (double)look.max);
        }
        qsort(right, n, sizeof *right, by_rank);
        const size_t n_found = skv_look_top(&look, n_top, top);
        assert_int_equal(n_found, n < n_top ? n : n_top);
        for (size_t j = 0; j < n_found; j++) assert_int_equal(top[j].id, right[j].id);
        /* Each weight is rounded, to 2^-42 of the largest. */
        const double bound = 0.5 * (double)n * 0x1p-42 / sum + 1e-12;
        assert_true(fabs(skv_look_norm(&look) - (double)look.max - log(sum)) < bound);
        skv_look_release(&look);
    }
    free(x);
    free(right);
}

/* What is told before a draw does not change it. */
static void test_a_sum_before_a_draw(void **state)
{
    (void)state;
    enum { N = 1000 };
    float x[N];
    skv_look a, b;
    skv_rng rng;
    skv_rng_init(&rng, property_seed(2));
    make_row(x, N, ROW_NORMAL, &rng);
    assert_int_equal(skv_look_init(&a, N, SKV_CPU_LEVEL_BEST, NULL), SKV_OK);
    assert_int_equal(skv_look_init(&b, N, SKV_CPU_LEVEL_BEST, NULL), SKV_OK);
    for (int i = 0; i < 200; i++) {
        skv_sampling s = random_options(N, &rng);
        const double u = skv_rng_uniform(&rng);
        skv_look_at(&a, x);
        skv_look_at(&b, x);
        const double norm = skv_look_norm(&a);
        const int32_t id = skv_look_draw(&b, &s, u);
        assert_int_equal(skv_look_draw(&a, &s, u), id);
        assert_int_equal(skv_look_draw(&a, &s, u), id);
        assert_true(fabs(skv_look_norm(&a) - norm) <= 0);
    }
    skv_look_release(&a);
    skv_look_release(&b);
}

/* An answer does not depend on the level of the kernels beyond what its logits do. */
static void test_levels_draw_the_same(void **state)
{
    (void)state;
    static const skv_cpu_level levels[] = {SKV_CPU_LEVEL_REF, SKV_CPU_LEVEL_AVX2,
                                           SKV_CPU_LEVEL_AVX512, SKV_CPU_LEVEL_NEON};
    float *x = calloc(V_MOST, sizeof *x);
    skv_rng rng;
    assert_non_null(x);
    for (size_t k = 1; k < sizeof levels / sizeof *levels; k++) {
        skv_look ref, level;
        if (!skv_cpu_level_runs(levels[k], skv_cpu_detect())) continue;
        skv_rng_init(&rng, property_seed(31));
        for (size_t i = 0; i < N_ROUNDS * ROW_KINDS; i++) {
            const size_t n = 1 + (size_t)skv_rng_below(&rng, V_MOST);
            make_row(x, n, (row_kind)(i % ROW_KINDS), &rng);
            assert_int_equal(skv_look_init(&ref, n, levels[0], NULL), SKV_OK);
            assert_int_equal(skv_look_init(&level, n, levels[k], NULL), SKV_OK);
            skv_look_at(&ref, x);
            skv_look_at(&level, x);
            const double a = skv_look_norm(&ref), b = skv_look_norm(&level);
            assert_memory_equal(&a, &b, sizeof a);
            for (size_t j = 0; j < 10; j++) {
                const skv_sampling s = random_options(n, &rng);
                const double u = skv_rng_uniform(&rng);
                assert_int_equal(skv_look_draw(&ref, &s, u), skv_look_draw(&level, &s, u));
            }
            skv_look_release(&ref);
            skv_look_release(&level);
        }
    }
    free(x);
}

/* Rows without an order: nothing allowed, infinities, NaN. */
static void test_odd_rows(void **state)
{
    (void)state;
    enum { N = 70 };
    float x[N];
    skv_look look;
    skv_sampling s = skv_sampling_default();
    s.temperature = 1;
    s.top_p = 0.9;
    assert_int_equal(skv_look_init(&look, N, SKV_CPU_LEVEL_BEST, NULL), SKV_OK);
    for (size_t i = 0; i < N; i++) x[i] = -HUGE_VALF;
    skv_look_at(&look, x);
    assert_int_equal(skv_look_draw(&look, &s, 0.5), 0);
    x[66] = HUGE_VALF;
    skv_look_at(&look, x);
    assert_int_equal(skv_look_draw(&look, &s, 0.5), 66);
    for (size_t i = 0; i < N; i++) x[i] = (float)NAN;
    skv_look_at(&look, x);
    assert_int_equal(skv_look_draw(&look, &s, 0.5), 0);
    x[3] = -2;
    skv_look_at(&look, x);
    assert_int_equal(skv_look_draw(&look, &s, 0.999), 3);
    s.temperature = DBL_MIN;
    x[4] = -2.0001f;
    skv_look_at(&look, x);
    assert_int_equal(skv_look_draw(&look, &s, 0.999), 3);
    skv_look_release(&look);
    skv_error err;
    assert_int_equal(skv_look_init(&look, 0, SKV_CPU_LEVEL_BEST, &err), SKV_RANGE);
    assert_int_equal(skv_look_init(&look, SIZE_MAX, SKV_CPU_LEVEL_BEST, &err), SKV_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_seeds_draw_by_probability),
        cmocka_unit_test(test_the_largest_and_the_sum),
        cmocka_unit_test(test_a_sum_before_a_draw),
        cmocka_unit_test(test_levels_draw_the_same),
        cmocka_unit_test(test_odd_rows),
    };
    return cmocka_run_group_tests_name("logit_look", tests, NULL, NULL);
}
