/* Sampling: greedy ties, the distributions that the filters leave, penalties, reproducibility. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "skv/skv.h"

enum { V = 6, N_DRAWS = 40000 };

static const float logits_of_test[V] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.0f};

static void count_draws(const skv_sampling *sampling, double share[V])
{
    skv_sampler *sampler;
    assert_int_equal(skv_sampler_create(sampling, V, &sampler, NULL), SKV_OK);
    memset(share, 0, V * sizeof *share);
    for (int i = 0; i < N_DRAWS; i++) {
        float logits[V];
        memcpy(logits, logits_of_test, sizeof logits);
        share[skv_sampler_choose(sampler, logits)] += 1.0 / N_DRAWS;
    }
    skv_sampler_free(sampler);
}

/* The distribution over the ids of `kept` at temperature T. */
static void expect_shares(const double share[V], const int *kept, double T)
{
    double total = 0;
    for (int i = 0; i < V; i++) {
        if (kept[i]) total += exp((double)logits_of_test[i] / T);
    }
    for (int i = 0; i < V; i++) {
        double p = kept[i] ? exp((double)logits_of_test[i] / T) / total : 0;
        double sigma = sqrt(p * (1 - p) / N_DRAWS);
        if (fabs(share[i] - p) > 5 * sigma + 1e-12) {
            fail_msg("id %d was drawn with %.4f, expected %.4f", i, share[i], p);
        }
    }
}

static void test_greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    double share[V];
    skv_sampling s = skv_sampling_default();
    count_draws(&s, share);
    assert_true(share[1] > 0.999);
    s.temperature = 1;
    s.top_k = 1;
    count_draws(&s, share);
    assert_true(share[1] > 0.999);
}

static void test_filters(void **state)
{
    (void)state;
    double share[V];
    skv_sampling s = skv_sampling_default();
    s.temperature = 1;
    count_draws(&s, share);
    expect_shares(share, (const int[V]){1, 1, 1, 1, 1, 1}, 1);
    s.temperature = 2;
    s.top_k = 3;
    count_draws(&s, share);
    expect_shares(share, (const int[V]){0, 1, 1, 1, 0, 0}, 2);
    s = skv_sampling_default();
    s.temperature = 1;
    s.min_p = 0.3; /* exp(-1) = 0.37 stays, exp(-2) = 0.14 goes */
    count_draws(&s, share);
    expect_shares(share, (const int[V]){0, 1, 1, 1, 0, 0}, 1);
    /* Probabilities: 0.378, 0.378, 0.139, 0.051, 0.019, 0.007 (ids 1, 3, 2, 0, 5, 4). */
    s.min_p = 0;
    s.top_p = 0.8;
    count_draws(&s, share);
    expect_shares(share, (const int[V]){0, 1, 1, 1, 0, 0}, 1);
    s.top_p = 0.7;
    count_draws(&s, share);
    expect_shares(share, (const int[V]){0, 1, 0, 1, 0, 0}, 1);
    /* After top_k 3 the shares are 0.42, 0.42, 0.16: half of that is two ids. */
    s.top_k = 3;
    s.top_p = 0.5;
    count_draws(&s, share);
    expect_shares(share, (const int[V]){0, 1, 0, 1, 0, 0}, 1);
}

static void test_penalties(void **state)
{
    (void)state;
    skv_sampling s = skv_sampling_default();
    s.repetition_penalty = 2;
    s.presence_penalty = 0.25;
    s.frequency_penalty = 0.5;
    skv_sampler *sampler;
    assert_int_equal(skv_sampler_create(&s, V, &sampler, NULL), SKV_OK);
    skv_sampler_accept(sampler, 1, false); /* in the prompt: repetition only */
    skv_sampler_accept(sampler, 3, true);
    skv_sampler_accept(sampler, 3, true);
    skv_sampler_accept(sampler, 4, true);
    float logits[V];
    memcpy(logits, logits_of_test, sizeof logits);
    assert_int_equal(skv_sampler_choose(sampler, logits), 2);
    const float expected[V] = {1.0f, 1.5f, 2.0f, 0.25f, -2.75f, 0.0f};
    for (int i = 0; i < V; i++) assert_true(fabsf(logits[i] - expected[i]) < 1e-6f);
    skv_sampler_free(sampler);
}

/* Of all tokens but the last two nothing is left; a window of 0 takes no penalty at all. */
static void test_a_window_forgets(void **state)
{
    (void)state;
    static const int64_t windows[] = {2, 0, -1, 100};
    static const float expected[][V] = {{1.0f, 3.0f, 2.0f, 0.75f, -2.75f, 0.0f},
                                        {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.0f},
                                        {1.0f, 1.5f, 2.0f, 0.25f, -2.75f, 0.0f},
                                        {1.0f, 1.5f, 2.0f, 0.25f, -2.75f, 0.0f}};
    for (size_t k = 0; k < 4; k++) {
        skv_sampling s = skv_sampling_default();
        s.repetition_penalty = 2;
        s.presence_penalty = 0.25;
        s.frequency_penalty = 0.5;
        s.penalty_window = windows[k];
        skv_sampler *sampler;
        assert_int_equal(skv_sampler_create(&s, V, &sampler, NULL), SKV_OK);
        skv_sampler_accept(sampler, 1, false);
        skv_sampler_accept(sampler, 3, true);
        skv_sampler_accept(sampler, 3, true);
        skv_sampler_accept(sampler, 4, true);
        float logits[V];
        memcpy(logits, logits_of_test, sizeof logits);
        (void)skv_sampler_choose(sampler, logits);
        for (int i = 0; i < V; i++) {
            assert_true(fabsf(logits[i] - expected[k][i]) < 1e-6f);
        }
        skv_sampler_free(sampler);
    }
}

/* Random tokens of prompts and answers, against counting them in the window again each time. */
static void test_windows_of_many_tokens(void **state)
{
    (void)state;
    enum { N = 400 };
    static const int64_t windows[] = {1, 2, 5, 30, N + 1, -1};
    int32_t ids[N];
    bool generated[N];
    skv_rng rng;
    skv_rng_init(&rng, 8);
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
        skv_sampling s = skv_sampling_default();
        s.repetition_penalty = 1.5;
        s.presence_penalty = 0.25;
        s.frequency_penalty = 0.125;
        s.penalty_window = windows[k];
        skv_sampler *sampler;
        assert_int_equal(skv_sampler_create(&s, V, &sampler, NULL), SKV_OK);
        for (size_t i = 0; i < N; i++) {
            float logits[V];
            ids[i] = (int32_t)skv_rng_below(&rng, V);
            generated[i] = skv_rng_below(&rng, 3) > 0;
            skv_sampler_accept(sampler, ids[i], generated[i]);
            memcpy(logits, logits_of_test, sizeof logits);
            (void)skv_sampler_choose(sampler, logits);
            const size_t first =
                windows[k] < 0 || (size_t)windows[k] > i ? 0 : i + 1 - (size_t)windows[k];
            for (int id = 0; id < V; id++) {
                int n_seen = 0, n_generated = 0;
                for (size_t t = first; t <= i; t++) {
                    n_seen += ids[t] == id;
                    n_generated += ids[t] == id && generated[t];
                }
                double x = (double)logits_of_test[id];
                if (n_seen > 0) x = x > 0 ? x / 1.5 : x * 1.5;
                x -= (n_generated > 0 ? 0.25 : 0) + 0.125 * n_generated;
                assert_true(fabs((double)logits[id] - x) < 1e-5);
            }
        }
        skv_sampler_free(sampler);
    }
}

static void test_a_seed_repeats(void **state)
{
    (void)state;
    skv_sampling s = skv_sampling_default();
    s.temperature = 1.5;
    s.seed = 42;
    skv_sampler *a, *b;
    assert_int_equal(skv_sampler_create(&s, V, &a, NULL), SKV_OK);
    assert_int_equal(skv_sampler_create(&s, V, &b, NULL), SKV_OK);
    for (int i = 0; i < 200; i++) {
        float x[V], y[V];
        memcpy(x, logits_of_test, sizeof x);
        memcpy(y, logits_of_test, sizeof y);
        assert_int_equal(skv_sampler_choose(a, x), skv_sampler_choose(b, y));
    }
    skv_sampler_free(a);
    skv_sampler_free(b);
}

/* Without a filter the same tokens as with one that keeps all of them, for peaks, flat logits and
 * forbidden tokens. */
static void test_the_whole_distribution(void **state)
{
    (void)state;
    enum { WORDS = 300, DRAWS = 400 };
    const float spreads[] = {0, 0.1F, 3, 40};
    skv_sampling all = skv_sampling_default(), sorted;
    all.temperature = 1;
    all.seed = 5;
    sorted = all;
    sorted.top_k = WORDS;
    skv_sampler *a, *b;
    assert_int_equal(skv_sampler_create(&all, WORDS, &a, NULL), SKV_OK);
    assert_int_equal(skv_sampler_create(&sorted, WORDS, &b, NULL), SKV_OK);
    for (size_t draw = 0; draw < DRAWS; draw++) {
        float one[WORDS], two[WORDS];
        for (size_t i = 0; i < WORDS; i++) {
            one[i] = spreads[draw % 4] * (float)((i * 7919 + draw) % 101) / 101;
            if (i % 3 == draw % 5) one[i] = -HUGE_VALF;
        }
        memcpy(two, one, sizeof two);
        const int32_t id = skv_sampler_choose(a, one);
        assert_int_equal(id, skv_sampler_choose(b, two));
        assert_int_not_equal(id % 3, draw % 5);
    }
    skv_sampler_free(a);
    skv_sampler_free(b);
}

static void test_bad_values_are_named(void **state)
{
    (void)state;
    skv_error err;
    skv_sampler *sampler;
    skv_sampling s = skv_sampling_default();
    s.top_p = -0.5;
    assert_int_equal(skv_sampler_create(&s, V, &sampler, &err), SKV_RANGE);
    assert_string_equal(err.text, "top_p: -0.5 is not between 0 and 1");
    s = skv_sampling_default();
    s.temperature = (double)NAN;
    assert_int_equal(skv_sampler_create(&s, V, &sampler, &err), SKV_RANGE);
    s = skv_sampling_default();
    s.repetition_penalty = 0;
    assert_int_equal(skv_sampler_create(&s, V, &sampler, &err), SKV_RANGE);
    s = skv_sampling_default();
    s.min_p = 1;
    assert_int_equal(skv_sampler_create(&s, V, &sampler, &err), SKV_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_a_window_forgets),
        cmocka_unit_test(test_windows_of_many_tokens),
        cmocka_unit_test(test_a_seed_repeats),
        cmocka_unit_test(test_the_whole_distribution),
        cmocka_unit_test(test_bad_values_are_named),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
