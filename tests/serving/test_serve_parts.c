/* Parts of the scheduler by themselves: stop texts, the time of a step, the most likely tokens,
 * what drafts know of a domain. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "common/stop_text.h"
#include "scheduler/draft_domains.h"
#include "scheduler/step_clock.h"
#include "scheduler/told_values.h"

static void test_top_tokens(void **state)
{
    (void)state;
    const float logits[] = {1, 3, 2, 3, -1};
    skv_look look;
    skv_row_values values;
    assert_int_equal(skv_look_init(&look, 5, SKV_CPU_LEVEL_BEST, NULL), SKV_OK);
    skv_look_at(&look, logits);
    skv_row_values_of(&look, 4, &values);
    assert_int_equal(values.n_top, 4);
    assert_int_equal(values.top[0].id, 1);
    assert_int_equal(values.top[1].id, 3);
    assert_int_equal(values.top[2].id, 2);
    assert_int_equal(values.top[3].id, 0);
    double sum = 0;
    for (size_t i = 0; i < 5; i++) sum += exp((double)logits[i] - values.norm);
    assert_true(fabs(sum - 1) < 1e-12);
    skv_look_release(&look);
}

static void push_text(skv_stop_text *stop, const char *text, bool last, const char *want)
{
    skv_text_piece in = {text, strlen(text)}, out;
    assert_true(skv_stop_text_push(stop, &in, last, &out));
    assert_int_equal(out.n, strlen(want));
    assert_memory_equal(out.text, want, out.n);
}

static void test_stop_texts(void **state)
{
    (void)state;
    const skv_text_piece stops[] = {{"END", 3}, {"\n\n", 2}, {"ENTER", 5}};
    skv_stop_text stop;
    skv_stop_text_init(&stop, stops, 3);
    push_text(&stop, "abc", false, "abc");
    push_text(&stop, "dE", false, "d");
    push_text(&stop, "N", false, "");
    push_text(&stop, "TRY\n", false, "ENTRY");
    push_text(&stop, "x", false, "\nx");
    push_text(&stop, "yEN", false, "y");
    push_text(&stop, "D more", false, "");
    assert_ptr_equal(stop.stopped, &stops[0]);
    push_text(&stop, "z", true, "");
    skv_stop_text_release(&stop);
    skv_stop_text_init(&stop, stops, 3);
    push_text(&stop, "aEN", false, "a");
    push_text(&stop, "", true, "EN");
    assert_null(stop.stopped);
    skv_stop_text_release(&stop);
}

/* A machine with 2 ms for each answer and, for each prompt token, 0.5 ms and 0.5 ms more for every
 * 1000 tokens before it. */
static double machine_ms(size_t n_answers, skv_step_work work)
{
    return 2.0 * (double)n_answers + 0.5 * (double)work.n + 0.0005 * work.n_before;
}

static size_t fit(const skv_step_clock *clock, size_t n_answers, size_t n_seen)
{
    return skv_step_clock_fit(clock, skv_step_clock_room(clock, n_answers, 0), n_seen);
}

static void test_step_clock_keeps_its_target(void **state)
{
    (void)state;
    skv_step_clock clock;
    skv_step_clock_init(&clock, 50);
    assert_int_equal(fit(&clock, 0, 0), 32);
    size_t n_seen = 0;
    for (int i = 0; i < 400; i++) {
        size_t n_answers = i % 3 == 0 ? 0 : 4;
        skv_step_work work = {0};
        if (i % 5 != 0) work = skv_step_work_of(fit(&clock, n_answers, n_seen), n_seen);
        double ms = machine_ms(n_answers, work);
        skv_step_clock_learn(&clock, n_answers, work, (uint64_t)(ms * 1e6));
        n_seen = n_seen > 3000 ? 0 : n_seen + work.n;
    }
    assert_in_range(fit(&clock, 4, 0), 64, 96);   /* (50 - 8) / 0.52 = 80 */
    assert_in_range(fit(&clock, 0, 0), 224, 288); /* 150 / 0.5625 = 266 */
    assert_int_equal(fit(&clock, 100, 0), 0);
    /* Whatever stands before it: a step of a long prompt is not longer. */
    for (size_t seen = 0; seen <= 16000; seen += 2000) {
        double ms = machine_ms(4, skv_step_work_of(fit(&clock, 4, seen), seen));
        assert_true(ms > 35 && ms < 55);
    }
    assert_true(fabs(skv_step_clock_seconds(&clock, 1000) - 1.3) < 0.5);
}

/* On a machine whose steps take a tenth more or less, few are late, and little of the time is lost.
 */
static void test_few_steps_are_late(void **state)
{
    (void)state;
    enum { N = 6000, N_FIRST = 1000 };
    skv_step_clock clock;
    skv_rng rng;
    skv_rng_init(&rng, 1);
    skv_step_clock_init(&clock, 50);
    size_t n_late = 0;
    double sum = 0;
    for (size_t i = 0; i < N; i++) {
        bool is_prompt = i % 5 != 0;
        skv_step_work work = {0};
        if (is_prompt) work = skv_step_work_of(fit(&clock, 4, 100), 100);
        double noise = 0;
        for (int k = 0; k < 12; k++) noise += (double)skv_rng_below(&rng, 1000) / 1000 - 0.5;
        double ms = machine_ms(4, work) * (1 + 0.1 * noise);
        skv_step_clock_learn(&clock, 4, work, (uint64_t)(ms * 1e6));
        if (i < N_FIRST || !is_prompt) continue;
        n_late += ms > 50;
        sum += ms;
    }
    double n = (N - N_FIRST) * 4.0 / 5;
    assert_true((double)n_late < 0.04 * n);
    assert_true(sum / n > 0.7 * 50);
}

/* What a domain was marked with; 0: it is new. */
static double mark_of(skv_draft_domains *all, uint64_t id)
{
    return skv_draft_domains_of(all, id)->learnt.spare_ns;
}

static void test_idle_domains_give_way(void **state)
{
    (void)state;
    skv_draft_domains *all = calloc(1, sizeof *all);
    assert_non_null(all);
    for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS; id++) {
        assert_true(mark_of(all, id) == 0);
        skv_draft_domains_of(all, id)->learnt.spare_ns = (double)id;
    }
    for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS; id++) {
        assert_true(mark_of(all, id) == (double)id);
    }
    assert_true(mark_of(all, 1) == 1);
    assert_true(mark_of(all, 1000) == 0); /* in the place of the second, which was idle longest */
    assert_true(mark_of(all, 1) == 1);
    assert_true(mark_of(all, 3) == 3);
    assert_true(mark_of(all, 2) == 0);
    skv_draft_domains_release(all);
    free(all);
}

/* Answers of the domains that were used last are kept, as many as the account has room for. */
static void test_answers_are_counted(void **state)
{
    (void)state;
    static const int32_t answer[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const size_t one = skv_draft_history_bytes(SKV_HISTORY_TOKENS);
    const struct {
        size_t max, used_by_others, n_kept;
    } cases[] = {{0, 0, SKV_HISTORIES},
                 {(size_t)1 << 30, 0, SKV_HISTORIES},
                 {3 * SKV_HISTORY_PART * one, 0, 3},
                 {3 * SKV_HISTORY_PART * one, (3 * SKV_HISTORY_PART - 2) * one, 2},
                 {3 * SKV_HISTORY_PART * one, 3 * SKV_HISTORY_PART * one, 0},
                 {one, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_draft_domains *all = calloc(1, sizeof *all);
        assert_non_null(all);
        if (cases[i].max > 0) {
            assert_int_equal(skv_account_create(cases[i].max, &all->account, NULL), SKV_OK);
            skv_account_take_anyway(all->account, cases[i].used_by_others);
        }
        skv_draft_domains_add(all, 99, answer, SKV_HISTORY_TOKENS_MIN - 1);
        assert_int_equal(all->n_histories, 0);
        for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS - 1; id++) {
            skv_draft_domains_add(all, id, answer, 8);
        }
        assert_int_equal(all->n_histories, cases[i].n_kept);
        const size_t counted = all->account ? cases[i].n_kept * one : 0;
        assert_int_equal(skv_account_used(all->account), cases[i].used_by_others + counted);
        for (uint64_t id = 1; id <= SKV_DRAFT_DOMAINS - 1; id++) {
            const bool kept = id >= SKV_DRAFT_DOMAINS - cases[i].n_kept;
            const bool found = skv_draft_domains_of(all, id)->history;
            assert_int_equal(found, kept);
        }
        skv_draft_domains_release(all);
        assert_int_equal(skv_account_used(all->account), cases[i].used_by_others);
        skv_account_free(all->account);
        free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_tokens),
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_step_clock_keeps_its_target),
        cmocka_unit_test(test_few_steps_are_late),
        cmocka_unit_test(test_idle_domains_give_way),
        cmocka_unit_test(test_answers_are_counted),
    };
    return cmocka_run_group_tests_name("serve parts", tests, NULL, NULL);
}
