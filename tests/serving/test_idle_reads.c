/*
 * What is read while nothing waits: a job that comes meanwhile waits for one step at most, the
 * prompt that follows is found and answered as ever, and what saves little is left out.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "held_worker.h"
#include "property_seed.h"
#include "skv/budget.h"
#include "skv/serve.h"

#define MODEL SKV_TEST_DATA "/models/llama3-v5"
#define WINDOW_MODEL SKV_TEST_DATA "/models/gemma4-e2b"
#define HYBRID_MODEL SKV_TEST_DATA "/models/qwen3-5"

enum { CONTEXT = 640, VOCAB = 90, ANSWER = 12, BLOCK = 64, KV_TOKENS = 4 * CONTEXT };

typedef struct server {
    skv_engine *engine;
    skv_scheduler *scheduler;
    skv_account *account;
} server;

static server start(const char *path, double share)
{
    server out;
    skv_error err;
    skv_engine_options options = skv_engine_options_default();
    options.threads = 1;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = KV_TOKENS;
    options.step_tokens = 16;
    options.batch_invariant = true;
    options.kv_checkpoints = 4; /* of the hybrid model */
    if (skv_engine_open(path, &options, &out.engine, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_account_create((size_t)64 << 20, &out.account, NULL), SKV_OK);
    skv_scheduler_options how = skv_scheduler_options_default();
    how.idle_share = share;
    how.seed = 5;
    how.account = out.account;
    if (skv_scheduler_create(out.engine, NULL, &how, &out.scheduler, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return out;
}

static void stop(server *s)
{
    skv_scheduler_free(s->scheduler);
    assert_int_equal(skv_account_used(s->account), 0);
    skv_account_free(s->account);
    skv_engine_close(s->engine);
}

/* A text of its own for each `which`. */
static void make_ids(int32_t *ids, size_t n, size_t which)
{
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7 + i / 11 + which * 13) % VOCAB);
}

static void expect_text(server *s, const int32_t *ids, size_t n, uint64_t tenant)
{
    skv_job_params p = skv_job_params_default();
    p.ids = ids;
    p.n_ids = n;
    p.tenant = tenant;
    assert_int_equal(skv_scheduler_expect(s->scheduler, &p, NULL), SKV_OK);
}

static skv_scheduler_metrics metrics_of(server *s)
{
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(s->scheduler, &m);
    return m;
}

static size_t ended(const skv_scheduler_metrics *m)
{
    return (size_t)(m->idle_reads + m->idle_left_out);
}

static void wait_ended(server *s, size_t n)
{
    for (skv_scheduler_metrics m = metrics_of(s); ended(&m) < n; m = metrics_of(s)) pause_ms(1);
}

/* Answers a prompt; returns how much of it was found. */
static size_t ask(server *s, const int32_t *ids, size_t n, uint64_t tenant, int32_t *answer)
{
    skv_job *job;
    skv_output o;
    skv_job_stats stats;
    size_t n_answer = 0;
    skv_job_params p = skv_job_params_default();
    p.ids = ids;
    p.n_ids = n;
    p.tenant = tenant;
    p.max_tokens = ANSWER;
    p.ignore_eos = true;
    assert_int_equal(skv_scheduler_submit(s->scheduler, &p, &job, NULL), SKV_OK);
    while (!skv_job_done(job)) {
        if (!skv_job_next(job, &o)) {
            pause_ms(1);
        } else if (o.kind == SKV_OUTPUT_TOKEN) {
            answer[n_answer++] = o.id;
        }
    }
    assert_int_equal(n_answer, ANSWER);
    skv_job_get_stats(job, &stats);
    skv_job_release(job);
    return stats.cached_tokens;
}

/* What was read is found by its own key, once counted as saved, and changes no answer. */
static void check_found(const char *path)
{
    server s = start(path, 1), plain = start(path, 0);
    int32_t ids[500], got[ANSWER], want[ANSWER];
    make_ids(ids, 500, 1);
    expect_text(&s, ids, 480, 7);
    expect_text(&plain, ids, 480, 7);
    wait_ended(&s, 1);
    assert_int_equal(metrics_of(&s).idle_tokens, 448);
    assert_int_equal(ask(&s, ids, 500, 8, got), 0);
    assert_int_equal(metrics_of(&s).idle_saved_tokens, 0);
    assert_int_equal(ask(&s, ids, 500, 7, got), 448);
    assert_int_equal(ask(&plain, ids, 500, 7, want), 0);
    assert_memory_equal(got, want, sizeof got);
    skv_scheduler_metrics m = metrics_of(&s);
    assert_int_equal(m.idle_saved_tokens, 448);
    assert_int_equal(m.idle_reads, 1);
    assert_int_equal(m.idle_dropped, 0);
    ask(&s, ids, 500, 7, got);
    assert_int_equal(metrics_of(&s).idle_saved_tokens, 448);
    assert_int_equal(metrics_of(&plain).idle_steps, 0);
    stop(&s);
    stop(&plain);
}

static void test_what_was_read_is_found(void **state)
{
    (void)state;
    if (!few_cases()) check_found(MODEL);
    check_found(WINDOW_MODEL);
    check_found(HYBRID_MODEL); /* at a checkpoint of its state */
}

/* Steps are counted, not times: those that the worker has told of when a job is in its inbox, and
 * when it is held in the middle of that job. A step in between was running already. */
static void test_a_job_waits_for_one_step_at_most(void **state)
{
    (void)state;
    server s = start(MODEL, 1);
    int32_t ids[CONTEXT], short_ids[8];
    size_t n_interrupted = 0;
    for (size_t round = 0; round < cases_of(40, 2); round++) {
        gate held;
        skv_job *job;
        skv_job_params p = skv_job_params_default();
        make_ids(ids, 600, 100 + round);
        make_ids(short_ids, 8, 200 + round);
        p.ids = short_ids;
        p.n_ids = 8;
        p.max_tokens = 1;
        p.constraint = gate_constraint(&held);
        const uint64_t before = metrics_of(&s).idle_steps;
        expect_text(&s, ids, 600, 0);
        if (round % 2 > 0) {
            while (metrics_of(&s).idle_steps == before) pause_ms(0);
        }
        assert_int_equal(skv_scheduler_submit(s.scheduler, &p, &job, NULL), SKV_OK);
        const uint64_t come = metrics_of(&s).idle_steps;
        gate_wait(&held);
        const skv_scheduler_metrics m = metrics_of(&s);
        assert_in_range(m.idle_steps - come, 0, 1);
        n_interrupted += ended(&m) < round + 1;
        atomic_store(&held.open, true);
        while (!skv_job_done(job)) {
            skv_output o;
            if (!skv_job_next(job, &o)) pause_ms(1);
        }
        skv_job_release(job);
        wait_ended(&s, round + 1); /* it goes on where it was */
        assert_int_equal(metrics_of(&s).idle_reads, round + 1);
    }
    assert_true(n_interrupted > 0);
    stop(&s);
}

static void test_what_saves_little_is_left_out(void **state)
{
    (void)state;
    server s = start(MODEL, 1);
    int32_t ids[CONTEXT], got[ANSWER];
    make_ids(ids, CONTEXT, 3);
    ask(&s, ids, 5 * BLOCK + 3, 0, got);
    expect_text(&s, ids, 5 * BLOCK + 255, 0); /* 3 whole blocks more than there are */
    wait_ended(&s, 1);
    assert_int_equal(metrics_of(&s).idle_left_out, 1);
    expect_text(&s, ids, 9 * BLOCK, 0); /* four more */
    wait_ended(&s, 2);
    assert_int_equal(metrics_of(&s).idle_reads, 1);
    assert_int_equal(metrics_of(&s).idle_tokens, 4 * BLOCK);
    stop(&s);
}

static void test_a_prompt_that_came_first_drops_it(void **state)
{
    (void)state;
    server s = start(MODEL, 1e-15); /* one step, and then none for ever */
    int32_t ids[CONTEXT], other[CONTEXT], got[ANSWER];
    make_ids(ids, CONTEXT, 4);
    make_ids(other, CONTEXT, 5);
    expect_text(&s, ids, 500, 0);
    while (metrics_of(&s).idle_steps == 0) pause_ms(1);
    ask(&s, other, 500, 0, got);
    assert_int_equal(metrics_of(&s).idle_dropped, 0);
    ask(&s, ids, 500, 0, got);
    assert_int_equal(metrics_of(&s).idle_dropped, 1);
    for (size_t i = 0; i < 30; i++) expect_text(&s, ids, 500 - i, i);
    stop(&s);
}

static void test_bad_ids_are_refused(void **state)
{
    (void)state;
    server s = start(MODEL, 1);
    int32_t ids[CONTEXT + 1];
    skv_job_params p = skv_job_params_default();
    make_ids(ids, CONTEXT + 1, 6);
    p.ids = ids;
    p.n_ids = CONTEXT;
    assert_int_equal(skv_scheduler_expect(s.scheduler, &p, NULL), SKV_RANGE);
    p.n_ids = 400;
    ids[399] = (int32_t)skv_engine_vocab(s.engine);
    assert_int_equal(skv_scheduler_expect(s.scheduler, &p, NULL), SKV_ARGUMENT);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_read_is_found),
        cmocka_unit_test(test_a_job_waits_for_one_step_at_most),
        cmocka_unit_test(test_what_saves_little_is_left_out),
        cmocka_unit_test(test_a_prompt_that_came_first_drops_it),
        cmocka_unit_test(test_bad_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
