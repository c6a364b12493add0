/* The simulator: costs, caches, and fleets whose figures are known without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet.h"

/* A millisecond for a prompt token; 10 for a step with an answer, and one more for each further. */
static fleet_costs even_costs(void)
{
    return (fleet_costs){.prompt = {2, {1, 512}, {1, 512}},
                         .answer = {2, {1, 64}, {10, 73}},
                         .kv_bytes_per_token = 1e6,
                         .step_tokens = 512};
}

static void assert_near(double got, double want, double share)
{
    if (fabs(got - want) > share * want) fail_msg("%g, expected %g", got, want);
}

/* ---- parts ---- */

static void test_costs_of_steps(void **state)
{
    (void)state;
    fleet_costs c = even_costs();
    assert_near(fleet_step_ms(&c, &(fleet_step){.n_prompt = 100}), 100, 1e-12);
    assert_near(fleet_step_ms(&c, &(fleet_step){.n_answer = 1}), 10, 1e-12);
    assert_near(fleet_step_ms(&c, &(fleet_step){.n_answer = 11}), 20, 1e-12);
    /* Answers share the layers of prompts with prompts, and have the others for themselves. */
    assert_near(fleet_step_ms(&c, &(fleet_step){.n_prompt = 99, .n_answer = 1}), 109, 1e-12);
    c.answer_context_us = 500;
    assert_near(fleet_step_ms(&c, &(fleet_step){.n_answer = 1, .answer_reads = 4000}), 12, 1e-12);
    assert_true(fleet_step_ms(&c, &(fleet_step){.n_prompt = 1024}) > 1023);
}

static void test_costs_in_a_file(void **state)
{
    (void)state;
    static const char good[] =
        "{\"prompt_ms\":[[1,2],[8,9]],\"answer_ms\":[[1,3]],\"prompt_context_us\":1,"
        "\"answer_context_us\":2,\"kv_bytes_per_token\":3,\"weight_bytes\":4,\"step_tokens\":512}";
    static const struct {
        const char *from, *to, *says;
    } bad[] = {{"[[1,2],[8,9]]", "[[8,2],[1,9]]", "prompt_ms"},
               {"[[1,3]]", "[]", "answer_ms"},
               {"[[1,3]]", "[[1,-3]]", "answer_ms"},
               {"512", "0", "step_tokens"},
               {"\"weight_bytes\":4", "\"x\":4", "weight_bytes"},
               {"{", "[", ""}};
    char path[] = "/tmp/skv_fleet_XXXXXX", error[LOAD_ERROR_MAX];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    fleet_costs costs;
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s", good);
        if (i > 0) {
            const char *at = strstr(good, bad[i - 1].from);
            (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, bad[i - 1].to,
                           at + strlen(bad[i - 1].from));
        }
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
        assert_true(fleet_costs_read(path, &costs, error) == (i == 0));
        if (i > 0 && !strstr(error, bad[i - 1].says)) fail_msg("%s", error);
    }
    assert_int_equal(close(file), 0);
    assert_int_equal(unlink(path), 0);
    assert_false(fleet_costs_read("/nowhere", &costs, error));
}

static void test_blocks_leave_by_age(void **state)
{
    (void)state;
    fleet_blocks blocks;
    const uint64_t names[] = {1, 2, 3, 4, 5};
    assert_true(fleet_blocks_init(&blocks, 3));
    assert_true(fleet_blocks_add(&blocks, names, 3));
    assert_int_equal(fleet_blocks_find(&blocks, names, 5), 3);
    assert_int_equal(fleet_blocks_find(&blocks, names, 1), 1); /* 1 is the newest */
    assert_true(fleet_blocks_add(&blocks, names + 3, 1));      /* 2 leaves */
    assert_int_equal(fleet_blocks_find(&blocks, names, 5), 1);
    assert_int_equal(fleet_blocks_find(&blocks, names + 2, 2), 2);
    fleet_blocks_trim(&blocks, 1);
    assert_int_equal(fleet_blocks_find(&blocks, names + 3, 1), 1);
    assert_int_equal(blocks.lru.n, 1);
    fleet_blocks_release(&blocks);
}

/* ---- fleets ---- */

enum { ROWS = 40 };

/* A request every `gap` seconds; the prompt's blocks are `shared` of the group's and then its own.
 */
static load_trace make_trace(double gap, uint32_t n_prompt, uint32_t n_output, uint32_t shared,
                             uint32_t groups)
{
    const uint32_t n_blocks = n_prompt / TRACE_BLOCK_TOKENS;
    load_trace t = {.rows = calloc(ROWS, sizeof *t.rows),
                    .n = ROWS,
                    .blocks = calloc((size_t)ROWS * n_blocks + 1, sizeof *t.blocks)};
    for (uint32_t i = 0; i < ROWS; i++) {
        t.rows[i] =
            (load_trace_row){gap * i, n_prompt, n_output, shared > 0 ? n_blocks : 0, t.n_blocks};
        for (uint32_t b = 0; b < n_blocks && shared > 0; b++) {
            t.blocks[t.n_blocks++] = b < shared ? (i % groups) * 1000 + b : 1000000 + i * 1000 + b;
        }
    }
    return t;
}

static fleet_options options_of(const load_trace *trace, fleet_design design, size_t n_machines,
                                size_t n_readers)
{
    fleet_options o = fleet_options_default();
    o.costs = even_costs();
    o.trace = trace;
    o.design = design;
    o.n_machines = n_machines;
    o.n_readers = n_readers;
    o.seconds = 1e6;
    o.link_gbs = o.store_gbs = 10;
    return o;
}

static fleet_result run(const fleet_options *o)
{
    fleet_result r;
    char error[LOAD_ERROR_MAX];
    if (!fleet_run(o, &r, error)) fail_msg("%s", error);
    return r;
}

/* Alone, a prompt of n tokens takes n ms and its last row's deep layers, an answer 10 ms a token.
 */
static void test_one_request_at_a_time(void **state)
{
    (void)state;
    load_trace trace = make_trace(60, 1024, 21, 0, 1);
    fleet_options o = options_of(&trace, FLEET_REPLICAS, 1, 0);
    const fleet_result r = run(&o);
    assert_int_equal(r.n_requests, ROWS);
    assert_int_equal(r.n_good, ROWS);
    assert_near(r.ttft.median, 1024 + 9, 1e-6);
    assert_near(r.ttft.p99, 1024 + 9, 1e-6);
    assert_near(r.tpot.median, 10, 1e-6);
    assert_near(r.e2el.mean, 1033 + 200, 1e-6);
    assert_near(r.answer_busy, ROWS * 1.233 / (39 * 60 + 1.233), 1e-3);
    load_trace_release(&trace);
}

/* Twice what a machine can do waits; so many machines as there are requests at once do not. */
static void test_machines_take_their_share(void **state)
{
    (void)state;
    load_trace trace = make_trace(0.5, 1000, 2, 0, 1);
    fleet_options o = options_of(&trace, FLEET_REPLICAS, 1, 0);
    o.goals.ttft_ms = 1500;
    const fleet_result one = run(&o);
    assert_true(one.ttft.p99 > 10000 && one.n_good < ROWS / 2);
    assert_near(one.answer_busy, 1, 0.05);
    o.n_machines = 3;
    const fleet_result three = run(&o);
    assert_int_equal(three.n_good, ROWS);
    assert_near(three.ttft.p99, 1009, 1e-3);
    assert_near(three.answer_busy, 2.0 / 3, 0.1);
    o.n_machines = 1;
    o.bad_share_most = 0.1;
    assert_true(run(&o).stopped);
    load_trace_release(&trace);
}

/* Prompts of a group share 3 of 4 blocks. One machine finds them by itself; four find them with a
 * store or when a group goes to one machine. */
static void test_caches(void **state)
{
    (void)state;
    load_trace trace = make_trace(10, 2048, 2, 3, 2);
    fleet_options o = options_of(&trace, FLEET_REPLICAS, 1, 0);
    const double expected = (ROWS - 2) * 0.75 / ROWS;
    const fleet_result alone = run(&o);
    assert_near(alone.found_share, expected, 1e-6);
    assert_near(alone.ttft.median, 512 + 9, 1e-6);
    o.n_machines = 4;
    assert_near(run(&o).found_share, expected, 1e-6);
    o.design = FLEET_STORE;
    const fleet_result shared = run(&o);
    assert_near(shared.found_share, expected, 1e-6);
    /* 1536 tokens of 1 MB at 10 GB/s, and the latency, where another machine had them. */
    assert_near(shared.ttft.p99, 2048 + 9, 0.1);
    assert_true(shared.ttft.median < 512 + 9 + 154.2);
    assert_true(shared.store_link > 0);
    o.store_gb = 0.001; /* nothing fits: each machine for itself */
    assert_true(run(&o).found_share < expected);
    load_trace_release(&trace);
}

/* A reader's prompt costs nobody a token: answers go on at 10 ms a token, or a little more for two.
 */
static void test_readers_leave_answers_alone(void **state)
{
    (void)state;
    load_trace trace = make_trace(1, 640, 150, 0, 1);
    fleet_options o = options_of(&trace, FLEET_REPLICAS, 2, 0);
    const fleet_result together = run(&o);
    o = options_of(&trace, FLEET_READERS, 2, 1);
    const fleet_result apart = run(&o);
    assert_true(apart.tpot.p99 < 13 && together.tpot.p99 > apart.tpot.p99 + 2);
    /* 576 tokens there, the bytes of the last step's twice, 64 here. */
    assert_true(apart.ttft.median > 640 && apart.ttft.median < 900);
    assert_near(apart.reader_busy, 0.576, 0.05);
    o.read_above = 10000; /* nobody asks it */
    assert_true(run(&o).reader_busy == 0);
    load_trace_release(&trace);
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    load_trace trace = make_trace(1, 4096, 10, 0, 1);
    fleet_options o = options_of(&trace, FLEET_REPLICAS, 1, 0);
    o.limits.kv_tokens = 4000;
    const fleet_result r = run(&o);
    assert_int_equal(r.n_refused, ROWS);
    assert_int_equal(r.n_good, 0);
    char error[LOAD_ERROR_MAX];
    fleet_result unused;
    o.n_readers = 1;
    assert_false(fleet_run(&o, &unused, error));
    assert_non_null(strstr(error, "readers"));
    load_trace_release(&trace);
}

/* Twice the rate of a trace is two of it, and every figure is the same in every run. */
static void test_rates(void **state)
{
    (void)state;
    load_trace trace = make_trace(1, 100, 5, 0, 1);
    size_t n = 0;
    fleet_arrival *all = fleet_arrivals(&trace, 4, 30, 7, &n);
    assert_in_range(n, 115, 125);
    for (size_t i = 1; i < n; i++) assert_true(all[i].at_s >= all[i - 1].at_s);
    free(all);
    fleet_options o = options_of(&trace, FLEET_STORE, 3, 0);
    o.rate = 12;
    o.seconds = 100;
    const fleet_result one = run(&o), other = run(&o);
    assert_near(one.rate, 12, 0.05);
    assert_memory_equal(&one, &other, sizeof one);
    load_trace_release(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs_of_steps),
        cmocka_unit_test(test_costs_in_a_file),
        cmocka_unit_test(test_blocks_leave_by_age),
        cmocka_unit_test(test_one_request_at_a_time),
        cmocka_unit_test(test_machines_take_their_share),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_readers_leave_answers_alone),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
        cmocka_unit_test(test_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
