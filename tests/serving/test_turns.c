/*
 * Whose prompt is read next, played through without an engine: prompts arrive, a step reads so many
 * tokens, and time is counted in tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/size.h"
#include "scheduler/turns.h"

enum { STEP = 256, PROMPTS_MAX = 4096 };

typedef struct prompt {
    uint64_t tenant;
    size_t arrives, n, n_left, ends; /* 0: not yet */
} prompt;

typedef struct play {
    skv_turns turns;
    prompt prompts[PROMPTS_MAX]; /* in the order of their arrival */
    size_t n, now;
} play;

static play game;

static void add(size_t arrives, uint64_t tenant, size_t n)
{
    assert_true(game.n < PROMPTS_MAX &&
                (game.n == 0 || game.prompts[game.n - 1].arrives <= arrives));
    game.prompts[game.n++] = (prompt){tenant, arrives, n, n, 0};
}

static prompt *next(void)
{
    prompt *best = NULL;
    for (size_t i = 0; i < game.n; i++) {
        prompt *p = &game.prompts[i];
        if (p->arrives > game.now || p->n_left == 0) continue;
        if (!best ||
            skv_turns_overtakes(&game.turns, p->tenant, p->n_left, best->tenant, best->n_left)) {
            best = p;
        }
    }
    return best;
}

/* A step; prompts that it ends, end with it. */
static void step(void)
{
    skv_turns_begin(&game.turns);
    for (size_t i = 0; i < game.n; i++) {
        const prompt *p = &game.prompts[i];
        if (p->arrives <= game.now && p->n_left > 0) skv_turns_see(&game.turns, p->tenant);
    }
    skv_turns_settle(&game.turns);
    size_t end = game.now + STEP;
    for (size_t budget = STEP; budget > 0;) {
        prompt *p = next();
        if (!p) break;
        size_t n = skv_min_size(budget, p->n_left);
        p->n_left -= n;
        if (p->n_left == 0) p->ends = end;
        budget -= n;
        skv_turns_give(&game.turns, p->tenant, n);
    }
    game.now = end;
}

static void play_until(size_t end)
{
    while (game.now < end) step();
}

static int begin_game(void **state)
{
    (void)state;
    game = (play){.n = 0};
    return 0;
}

static double mean_wait(void)
{
    double sum = 0;
    for (size_t i = 0; i < game.n; i++) {
        assert_true(game.prompts[i].ends > 0);
        sum += (double)(game.prompts[i].ends - game.prompts[i].arrives);
    }
    return sum / (double)game.n;
}

/* Equal prompts are read one after the other, in the order in which they came. */
static void test_equals_come_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) add(0, 0, 8 * (size_t)STEP);
    play_until(64 * (size_t)STEP);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(game.prompts[i].ends, (i + 1) * 8 * STEP);
    }
}

/* So are those of as many tenants: to share every step among them would end all of them late. */
static void test_tenants_with_a_prompt_each_come_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 8; i++) add(0, i, 8 * (size_t)STEP);
    play_until(64 * (size_t)STEP);
    assert_true(mean_wait() <= 4.5 * 8 * STEP);
}

static void test_short_ones_overtake(void **state)
{
    (void)state;
    add(0, 0, 40 * (size_t)STEP);
    add(10 * (size_t)STEP, 0, 100);
    add(10 * (size_t)STEP, 0, 100);
    play_until(50 * (size_t)STEP);
    assert_true(game.prompts[1].ends <= 12 * STEP && game.prompts[2].ends <= 12 * STEP);
    assert_int_equal(game.prompts[0].ends, 41 * STEP);
}

/* Short prompts that fill every step do not keep a long one waiting: a quarter of the steps is the
 * oldest one's. */
static void test_a_long_one_does_not_starve(void **state)
{
    (void)state;
    enum { LONG = 20 };
    add(0, 0, (size_t)LONG * STEP);
    for (size_t i = 0; i < 2000; i++) add(i * STEP / 2, 0, STEP / 2);
    play_until(8 * (size_t)LONG * STEP);
    size_t ends = game.prompts[0].ends;
    assert_true(ends > 0 && ends <= (LONG + 1) * SKV_TURNS_OLDEST * STEP);
}

/* One tenant's stream of short prompts is not dearer to anybody than another one's long ones. */
static void test_tenants_get_equal_shares(void **state)
{
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        add(i * 64, 0, 64);
        add(i * 64, 0, 64);
        if (i % 100 == 0) add(i * 64, 1, 24 * (size_t)STEP);
    }
    for (size_t i = 0; i < 200; i++) {
        step();
        uint64_t a = game.turns.tenants[0].given, b = game.turns.tenants[1].given;
        assert_true((a > b ? a - b : b - a) <= SKV_TURNS_AHEAD + 2 * STEP);
    }
}

/* Who comes back after a while neither collects what others were given, nor pays for all of the
 * time when he was alone. */
static void test_time_without_prompts_does_not_count(void **state)
{
    (void)state;
    const size_t later = 400 * (size_t)STEP;
    add(0, 0, 100 * (size_t)STEP);
    add(0, 1, STEP);
    play_until(later);
    for (size_t i = 0; i < 40; i++) {
        add(later, 0, 10 * (size_t)STEP);
        add(later, 1, 10 * (size_t)STEP);
    }
    const skv_turns_tenant *t = game.turns.tenants;
    uint64_t a = t[0].given, b = t[1].given;
    assert_true(a > b + 4 * SKV_TURNS_AHEAD);
    play_until(later + 400 * (size_t)STEP);
    uint64_t got_a = 0, got_b = 0;
    for (size_t i = 2; i < game.n; i++) {
        *(game.prompts[i].tenant ? &got_b : &got_a) += game.prompts[i].n - game.prompts[i].n_left;
    }
    assert_true((got_a > got_b ? got_a - got_b : got_b - got_a) <= 2 * SKV_TURNS_AHEAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_equals_come_in_order, begin_game),
        cmocka_unit_test_setup(test_tenants_with_a_prompt_each_come_in_order, begin_game),
        cmocka_unit_test_setup(test_short_ones_overtake, begin_game),
        cmocka_unit_test_setup(test_a_long_one_does_not_starve, begin_game),
        cmocka_unit_test_setup(test_tenants_get_equal_shares, begin_game),
        cmocka_unit_test_setup(test_time_without_prompts_does_not_count, begin_game),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
