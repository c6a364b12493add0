/*
 * Budgets: every limit is met exactly, the first one that was exceeded is told, accounts and their
 * parts add up over threads, no part takes the memory from others, and what JSON is counted for
 * covers what jansson takes. Labels: threads
 */
#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/budget_mem.h"
#include "base/rng.h"
#include "base/system.h"
#include "skv/budget.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SKV_OTHER_HEAP 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKV_OTHER_HEAP 1
#endif

static skv_budget small_budget(void)
{
    const skv_limits limits = {.work = 100, .bytes = 1000, .depth = 3};
    skv_budget budget;
    skv_budget_init(&budget, &limits);
    return budget;
}

static void check(const skv_budget *budget, skv_status status, const char *text)
{
    skv_error err = {0};
    assert_int_equal(skv_budget_check(budget, "thing", &err), status);
    if (status != SKV_OK) assert_string_equal(err.text, text);
}

static void test_work(void **state)
{
    (void)state;
    skv_budget budget = small_budget();
    assert_true(skv_budget_work(&budget, 60) && skv_budget_work(&budget, 40));
    check(&budget, SKV_OK, "");
    assert_false(skv_budget_work(&budget, 1));
    assert_false(skv_budget_take(&budget, 1) || skv_budget_enter(&budget));
    check(&budget, SKV_RANGE, "thing: needs more than 100 units of work");
    assert_int_equal(budget.work, 101);
    assert_false(skv_budget_try(&budget, 1));
    budget = small_budget();
    assert_true(skv_budget_work(&budget, 10));
    assert_false(skv_budget_work(&budget, UINT64_MAX));
    assert_true(budget.work == UINT64_MAX);
}

static void test_bytes(void **state)
{
    (void)state;
    skv_budget budget = small_budget();
    assert_true(skv_budget_take(&budget, 600) && skv_budget_take(&budget, 400));
    skv_budget_give(&budget, 500);
    assert_false(skv_budget_try(&budget, 501));
    check(&budget, SKV_OK, "");
    assert_true(skv_budget_try(&budget, 500));
    assert_false(skv_budget_take(&budget, SIZE_MAX));
    assert_int_equal(budget.bytes, 1000);
    check(&budget, SKV_RANGE, "thing: needs more than 1000 bytes of memory");
}

/* An array that is made longer and shorter counts for what it is. */
static void test_resizing(void **state)
{
    skv_limits limits = skv_limits_default();
    skv_budget budget;
    uint32_t *array = NULL;
    size_t n = 0;
    (void)state;
    limits.bytes = 400;
    skv_budget_init(&budget, &limits);
    assert_true(skv_budget_resize(&budget, &array, &n, 100, sizeof *array));
    assert_int_equal(budget.bytes, 400);
    array[99] = 7;
    assert_true(skv_budget_resize(&budget, &array, &n, 25, sizeof *array));
    assert_int_equal(budget.bytes, 100);
    assert_false(skv_budget_resize(&budget, &array, &n, 101, sizeof *array));
    assert_int_equal(n, 25);
    assert_int_equal(budget.bytes, 100);
    assert_false(skv_budget_resize(NULL, &array, &n, SIZE_MAX / 2, sizeof *array));
    skv_budget_free(&budget, array, n, sizeof *array);
    assert_int_equal(budget.bytes, 0);
    assert_false(skv_budget_look(&budget)); /* a limit was exceeded */
    assert_true(skv_budget_look(NULL));
}

static void test_depth(void **state)
{
    (void)state;
    skv_budget budget = small_budget();
    for (int i = 0; i < 3; i++) assert_true(skv_budget_enter(&budget));
    skv_budget_leave(&budget);
    assert_true(skv_budget_enter(&budget));
    assert_false(skv_budget_enter(&budget));
    check(&budget, SKV_RANGE, "thing: nested more than 3 levels deep");
}

static bool say_stop(void *user)
{
    return *(bool *)user;
}

static void test_stop_and_time(void **state)
{
    (void)state;
    bool stop = false;
    skv_budget budget;
    skv_budget_init(&budget, NULL);
    budget.stopped = say_stop;
    budget.user = &stop;
    assert_true(skv_budget_work(&budget, 1 << 15));
    stop = true;
    assert_false(skv_budget_work(&budget, 1 << 15));
    check(&budget, SKV_CANCELLED, "thing: cancelled");

    const skv_limits limits = {.work = UINT64_MAX, .max_ns = 1};
    skv_budget_init(&budget, &limits);
    while (skv_clock_ns() <= budget.deadline_ns) continue;
    assert_false(skv_budget_work(&budget, 1 << 15));
    check(&budget, SKV_RANGE, "thing: takes longer than 1e-09 s");
}

static void test_accounts(void **state)
{
    (void)state;
    skv_account *account = NULL;
    skv_error err;
    assert_int_equal(skv_account_create(1000, &account, &err), SKV_OK);
    skv_budget one = small_budget(), other = small_budget();
    one.account = other.account = account;
    assert_true(skv_budget_take(&one, 700));
    assert_false(skv_budget_take(&other, 301));
    check(&other, SKV_MEMORY, "thing: other requests hold the memory that it needs");
    assert_int_equal(skv_account_used(account), 700);
    skv_budget_release(&other);
    skv_budget_release(&one);
    assert_int_equal(skv_account_used(account), 0);
    assert_int_equal(skv_account_peak(account), 700);
    assert_false(skv_account_take(account, SIZE_MAX));
    skv_account_take_anyway(account, 1500);
    assert_false(skv_account_take(account, 0));
    skv_account_give(account, 1500);
    assert_int_equal(skv_account_used(account), 0);
    skv_account_free(account);
    assert_true(skv_account_take(NULL, SIZE_MAX));
}

static void *take_and_give(void *arg)
{
    skv_account *account = arg;
    for (size_t i = 0; i < 20000; i++) {
        if (skv_account_take(account, i % 7)) skv_account_give(account, i % 7);
    }
    return NULL;
}

static void test_account_of_threads(void **state)
{
    (void)state;
    enum { N = 4 };
    skv_account *account = NULL;
    pthread_t threads[N];
    assert_int_equal(skv_account_create(12, &account, NULL), SKV_OK);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, account), 0);
    }
    for (size_t i = 0; i < N; i++) (void)pthread_join(threads[i], NULL);
    assert_int_equal(skv_account_used(account), 0);
    assert_true(skv_account_peak(account) <= 12);
    skv_account_free(account);
}

/* ---- parts of an account ---- */

enum { N_PARTS = 4 };

typedef struct shared_account {
    skv_account *whole, *parts[N_PARTS];
    size_t max, used, own[N_PARTS]; /* as they should be */
} shared_account;

static shared_account open_shared(size_t max)
{
    shared_account s = {.max = max};
    assert_int_equal(skv_account_create(max, &s.whole, NULL), SKV_OK);
    for (size_t i = 0; i < N_PARTS; i++) {
        assert_int_equal(skv_account_create_part(s.whole, &s.parts[i], NULL), SKV_OK);
        assert_int_equal(skv_account_max(s.parts[i]), max * 3 / 4);
    }
    return s;
}

static void close_shared(shared_account *s)
{
    assert_int_equal(skv_account_used(s->whole), 0);
    for (size_t i = 0; i < N_PARTS; i++) {
        assert_int_equal(skv_account_used(s->parts[i]), 0);
        skv_account_free(s->parts[i]);
    }
    skv_account_free(s->whole);
}

/* The rule, as it is written in skv/budget.h. */
static bool may_take(const shared_account *s, size_t i, size_t n, size_t times)
{
    return s->used + n <= s->max && s->own[i] + n <= times * (s->max - s->used - n);
}

/* Random takes and gives follow the rule to the byte. */
static void test_parts_follow_the_rule(void **state)
{
    (void)state;
    for (size_t seed = 0; seed < 40; seed++) {
        shared_account s = open_shared(40 + seed * 7);
        skv_rng rng;
        skv_rng_init(&rng, seed);
        for (size_t k = 0; k < 4000; k++) {
            const size_t i = skv_rng_below(&rng, N_PARTS), n = skv_rng_below(&rng, 1 + s.max / 8);
            const bool gives = skv_rng_below(&rng, 3) == 0, early = skv_rng_below(&rng, 2) == 0;
            if (gives) {
                const size_t some = skv_rng_below(&rng, s.own[i] + 1);
                skv_account_give(s.parts[i], some);
                s.own[i] -= some;
                s.used -= some;
                continue;
            }
            const size_t left = skv_account_left(s.parts[i]);
            assert_true(may_take(&s, i, left, 3) || left == 0);
            assert_false(may_take(&s, i, left + 4, 3));
            const bool may = may_take(&s, i, n, early ? 1 : 3);
            assert_int_equal((early ? skv_account_take_early : skv_account_take)(s.parts[i], n),
                             may);
            s.own[i] += may ? n : 0;
            s.used += may ? n : 0;
            assert_int_equal(skv_account_used(s.whole), s.used);
            assert_int_equal(skv_account_used(s.parts[i]), s.own[i]);
        }
        for (size_t i = 0; i < N_PARTS; i++) skv_account_give(s.parts[i], s.own[i]);
        close_shared(&s);
    }
}

/* Parts that take all they can get leave the promised part to the next one. */
static void test_parts_leave_room(void **state)
{
    (void)state;
    for (size_t n_greedy = 1; n_greedy < N_PARTS; n_greedy++) {
        shared_account s = open_shared(13000);
        bool any = true;
        while (any) {
            any = false;
            for (size_t i = 0; i < n_greedy; i++) {
                any = skv_account_take(s.parts[i], 1) || any;
            }
        }
        const size_t share = s.max * 3 / (3 * n_greedy + 1), left = s.max / (3 * n_greedy + 1);
        for (size_t i = 0; i < n_greedy; i++) {
            const size_t used = skv_account_used(s.parts[i]);
            assert_true(used <= share + 4 && used + 4 >= share);
        }
        skv_account *next = s.parts[N_PARTS - 1];
        assert_true(skv_account_take_early(next, left / 2 - 4));
        skv_account_give(next, left / 2 - 4);
        for (size_t i = 0; i < n_greedy; i++) {
            skv_account_give(s.parts[i], skv_account_used(s.parts[i]));
        }
        close_shared(&s);
    }
}

static void test_early_leaves_a_quarter(void **state)
{
    skv_account *account = NULL;
    (void)state;
    assert_int_equal(skv_account_create(1000, &account, NULL), SKV_OK);
    assert_true(skv_account_take_early(account, 750));
    assert_false(skv_account_take_early(account, 1));
    assert_int_equal(skv_account_left(account), 250);
    assert_true(skv_account_take(account, 250));
    assert_false(skv_account_take(account, 1));
    skv_account_give(account, 1000);
    skv_account_free(account);
    assert_true(skv_account_take_early(NULL, 1));
}

static void *take_of_part(void *arg)
{
    skv_account *part = arg;
    for (size_t i = 0; i < 20000; i++) {
        const bool early = i % 2 == 0;
        if (!(early ? skv_account_take_early : skv_account_take)(part, i % 70)) continue;
        if (skv_account_used(part) > skv_account_max(part)) return part;
        skv_account_give(part, i % 70);
    }
    return NULL;
}

static void test_parts_of_threads(void **state)
{
    (void)state;
    pthread_t threads[2 * N_PARTS];
    shared_account s = open_shared(120);
    for (size_t i = 0; i < 2 * N_PARTS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, take_of_part, s.parts[i % N_PARTS]), 0);
    }
    for (size_t i = 0; i < 2 * N_PARTS; i++) {
        void *has_too_much;
        (void)pthread_join(threads[i], &has_too_much);
        assert_null(has_too_much);
    }
    assert_true(skv_account_peak(s.whole) <= 120);
    close_shared(&s);
}

/* ---- waiting for memory ---- */

typedef struct patience {
    skv_account *account;
    size_t n_others, n_waits; /* others' bytes, which they give back */
    bool left;
} patience;

static bool wait_for_others(void *user, size_t n_bytes)
{
    patience *p = user;
    p->n_waits++;
    skv_account_give(p->account, p->n_others);
    p->n_others = 0;
    return skv_account_take(p->account, n_bytes);
}

static bool has_left(void *user)
{
    const patience *p = user;
    return p->left;
}

static void test_a_budget_waits(void **state)
{
    (void)state;
    patience p = {.n_others = 600};
    assert_int_equal(skv_account_create(1000, &p.account, NULL), SKV_OK);
    assert_true(skv_account_take(p.account, p.n_others));
    skv_budget budget = small_budget();
    budget.account = p.account;
    budget.wait = wait_for_others;
    budget.stopped = has_left;
    budget.user = &p;
    assert_true(skv_budget_take(&budget, 150));
    assert_int_equal(p.n_waits, 0);
    assert_false(skv_budget_try(&budget, 1)); /* what can be left out waits for nothing */
    assert_true(skv_budget_take(&budget, 500));
    assert_int_equal(p.n_waits, 1);
    assert_int_equal(budget.bytes, 650);
    assert_true(skv_account_take(p.account, 200));
    assert_false(skv_budget_take(&budget, 250));
    check(&budget, SKV_MEMORY, "thing: other requests hold the memory that it needs");
    budget.exceeded = SKV_EXCEEDED_NONE;
    p.left = true;
    assert_false(skv_budget_take(&budget, 250));
    check(&budget, SKV_CANCELLED, "thing: cancelled");
    skv_account_give(p.account, 200);
    skv_budget_release(&budget);
    assert_int_equal(skv_account_used(p.account), 0);
    skv_account_free(p.account);
}

/* Waiting moves the deadline; a budget without one has none afterwards. */
static void test_waiting_is_no_work(void **state)
{
    (void)state;
    const skv_limits limits = {.work = 1 << 20, .max_ns = 1};
    skv_budget budget;
    skv_budget_init(&budget, &limits);
    skv_budget_waited(&budget, UINT64_C(3600000000000));
    assert_true(skv_budget_work(&budget, 1 << 15));
    budget = small_budget();
    skv_budget_waited(&budget, 5);
    assert_int_equal(budget.deadline_ns, 0);
}

/* ---- JSON ---- */

static char *repeat_json(const char *open, const char *unit, const char *close, size_t n)
{
    size_t room = n * (strlen(unit) + 24) + 16, at = 0;
    char *text = malloc(room);
    assert_non_null(text);
    at += (size_t)snprintf(text, room, "%s", open);
    for (size_t i = 0; i < n; i++) {
        char numbered[256];
        const char *hash = strchr(unit, '#');
        int before = hash ? (int)(hash - unit) : (int)strlen(unit);
        (void)snprintf(numbered, sizeof numbered, "%.*s", before, unit);
        if (hash)
            (void)snprintf(numbered + before, sizeof numbered - (size_t)before, "%zu%s", i,
                           hash + 1);
        at += (size_t)snprintf(text + at, room - at, "%s%s", i > 0 ? "," : "", numbered);
    }
    (void)snprintf(text + at, room - at, "%s", close);
    return text;
}

/* What the values hold when all have been read. */
static size_t bytes_of_json(const char *text)
{
#if defined(SKV_OTHER_HEAP)
    (void)text;
    return 0;
#else
    struct mallinfo2 before = mallinfo2();
    json_t *json = json_loads(text, 0, NULL);
    struct mallinfo2 after = mallinfo2();
    assert_non_null(json);
    json_decref(json);
    return after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
#endif
}

static void test_json_covers_its_memory(void **state)
{
    (void)state;
    static const char *const units[] = {"{}",
                                        "[]",
                                        "1",
                                        "-1.5e3",
                                        "\"\"",
                                        "true",
                                        "{\"a\":1}",
                                        "[1]",
                                        "[[[]]]",
                                        "\"a text of some length, which is copied\"",
                                        "[1,2,3,4,5,6,7,8,9]",
                                        "{\"a\":{},\"b\":[],\"c\":\"\",\"d\":{\"e\":1}}",
                                        "\"\\u0041\\n\\\"\""};
    for (size_t i = 0; i <= sizeof units / sizeof units[0]; i++) {
        bool members = i == sizeof units / sizeof units[0];
        for (size_t n = 1; n <= 3000; n = n * 7 + 1) {
            char *text =
                members ? repeat_json("{", "\"k#\":1", "}", n) : repeat_json("[", units[i], "]", n);
            skv_budget budget;
            skv_json_bytes counted;
            skv_budget_init(&budget, NULL);
            assert_true(skv_budget_json(&budget, text, strlen(text), &counted));
            assert_int_equal(counted.values + counted.reader, budget.bytes);
            if (counted.values < bytes_of_json(text))
                fail_msg("%zu times %s: counted as %zu", n, members ? "a member" : units[i],
                         counted.values);
            free(text);
        }
    }
}

static void test_json_limits(void **state)
{
    (void)state;
    skv_budget budget = small_budget();
    skv_json_bytes bytes;
    budget.max.work = 100000;
    budget.max.bytes = 100000;
    assert_true(skv_budget_json(&budget, "[[[]]]", 6, &bytes));
    assert_true(skv_budget_json(&budget, "[\"[[[[[[\\\"[[[[\"]", 16, &bytes));
    assert_true(skv_budget_json(&budget, "]]]]\"", 5, &bytes)); /* not JSON: no harm */
    assert_true(skv_budget_json(&budget, "\"\\", 2, &bytes));
    assert_true(skv_budget_enter(&budget));
    assert_false(skv_budget_json(&budget, "[[[]]]", 6, &bytes));
    assert_int_equal(budget.depth, 1);
    check(&budget, SKV_RANGE, "thing: nested more than 3 levels deep");

    budget = small_budget();
    char *text = repeat_json("[", "{}", "]", 100);
    budget.max.work = 100000;
    assert_false(skv_budget_json(&budget, text, strlen(text), &bytes));
    check(&budget, SKV_RANGE, "thing: needs more than 1000 bytes of memory");
    budget = small_budget();
    assert_false(skv_budget_json(&budget, text, strlen(text), &bytes));
    check(&budget, SKV_RANGE, "thing: needs more than 100 units of work");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_resizing),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_stop_and_time),
        cmocka_unit_test(test_accounts),
        cmocka_unit_test(test_account_of_threads),
        cmocka_unit_test(test_parts_follow_the_rule),
        cmocka_unit_test(test_parts_leave_room),
        cmocka_unit_test(test_early_leaves_a_quarter),
        cmocka_unit_test(test_parts_of_threads),
        cmocka_unit_test(test_a_budget_waits),
        cmocka_unit_test(test_waiting_is_no_work),
        cmocka_unit_test(test_json_covers_its_memory),
        cmocka_unit_test(test_json_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
