/*
 * The scheduler's promises: an answer is the same as in an idle engine, whatever runs beside it
 * and however often it was put back; pages come back; queues are bounded; nobody gets another
 * one's pages.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc_fail.h"
#include "base/rng.h"
#include "bell.h"
#include "held_worker.h"
#include "open_engine.h"
#include "property_seed.h"
#include "skv/serve.h"
#include "temp_folder.h"

#define MODEL SKV_TEST_DATA "/models/llama3-v5"
#define WINDOW_MODEL SKV_TEST_DATA "/models/gemma4-e2b"
#define SWIFTKV_MODEL SKV_TEST_DATA "/models/qwen2-swiftkv-g2"

/* Long enough for attention to be cut into portions, where that is allowed. */
enum { CONTEXT = 640, ANSWER_MAX = 40, VOCAB = 90 };

#define N_JOBS cases_of(24, 4)

/* ---- an engine and a scheduler ---- */

static skv_engine *open_engine(const char *path, size_t kv_tokens)
{
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2; /* rows of a step are chosen from on both */
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = kv_tokens;
    options.step_tokens = 48;
    options.with_teacher = true;
    options.batch_invariant = true;
    return open_or_fail(path, &options);
}

static skv_scheduler *start(skv_engine *engine, const skv_scheduler_options *options)
{
    skv_scheduler *s = NULL;
    skv_error err;
    if (skv_scheduler_create(engine, NULL, options, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

/* ---- answers ---- */

typedef struct answer_ids {
    int32_t ids[ANSWER_MAX];
    size_t n;
    bool ended;
    skv_finish finish;
} answer_ids;

typedef struct script {
    int32_t ids[CONTEXT];
    size_t n_ids;
    skv_job_params params;
    answer_ids want[SKV_JOB_ANSWERS_MAX], got[SKV_JOB_ANSWERS_MAX];
    skv_job *job;
    bool cancelled;
} script;

static bool take_id(void *user, int32_t id)
{
    answer_ids *a = user;
    a->ids[a->n++] = id;
    return true;
}

/* What an idle engine answers, one sequence at a time, in the default chunks. */
static void run_alone(skv_engine *engine, script *s)
{
    for (size_t i = 0; i < s->params.n_answers; i++) {
        skv_sequence *sequence;
        skv_sampler *sampler;
        skv_sampling sampling = s->params.sampling;
        sampling.seed += i;
        skv_generation generation = {.max_tokens = s->params.max_tokens,
                                     .ignore_eos = s->params.ignore_eos,
                                     .on_token = take_id,
                                     .user = &s->want[i]};
        skv_generation_stats stats = {0};
        generation.stats = &stats;
        assert_int_equal(skv_sequence_create_as(engine, s->params.prefill, 0, &sequence, NULL),
                         SKV_OK);
        if (s->params.eviction) {
            assert_int_equal(skv_sequence_set_eviction(sequence, s->params.eviction, NULL), SKV_OK);
        }
        assert_int_equal(skv_sampler_create(&sampling, skv_engine_vocab(engine), &sampler, NULL),
                         SKV_OK);
        generation.sampler = sampler;
        assert_int_equal(skv_generate(engine, sequence, s->ids, s->n_ids, &generation, NULL),
                         SKV_OK);
        s->want[i].finish = stats.ended ? SKV_FINISH_STOP : SKV_FINISH_LENGTH;
        skv_sampler_free(sampler);
        skv_sequence_free(sequence);
    }
}

static void submit(skv_scheduler *scheduler, script *s, bell *b)
{
    skv_error err;
    s->params.ids = s->ids;
    s->params.n_ids = s->n_ids;
    s->params.notify = ring;
    s->params.user = b;
    if (skv_scheduler_submit(scheduler, &s->params, &s->job, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
}

static void read_outputs(script *s)
{
    skv_output o;
    while (s->job && skv_job_next(s->job, &o)) {
        answer_ids *a = &s->got[o.i_answer];
        if (o.kind == SKV_OUTPUT_TOKEN) {
            assert_true(a->n < ANSWER_MAX && !a->ended);
            a->ids[a->n++] = o.id;
            skv_job_stats stats; /* while the worker goes on counting */
            skv_job_get_stats(s->job, &stats);
            assert_true(stats.completion_tokens > 0);
        } else if (o.kind == SKV_OUTPUT_END) {
            assert_false(a->ended);
            a->ended = true;
            a->finish = o.finish;
        }
    }
}

static void read_all(script *scripts, size_t n, bell *b)
{
    for (;;) {
        size_t n_done = 0;
        for (size_t i = 0; i < n; i++) {
            read_outputs(&scripts[i]);
            n_done += !scripts[i].job || skv_job_done(scripts[i].job);
        }
        if (n_done == n) return;
        bell_wait(b);
    }
}

static void compare(const script *s, size_t i_script)
{
    for (size_t i = 0; i < s->params.n_answers; i++) {
        const answer_ids *want = &s->want[i], *got = &s->got[i];
        bool same = got->ended && got->n == want->n && got->finish == want->finish &&
                    memcmp(got->ids, want->ids, want->n * sizeof *want->ids) == 0;
        if (same) continue;
        size_t j = 0;
        while (j < got->n && j < want->n && got->ids[j] == want->ids[j]) j++;
        fail_msg("script %zu (%zu ids), answer %zu: %zu tokens, expected %zu; differs at %zu, "
                 "finish %d, expected %d",
                 i_script, s->n_ids, i, got->n, want->n, j, (int)got->finish, (int)want->finish);
    }
}

/* Rows that stay behind a prompt, of every method. */
static const skv_eviction evictions[] = {
    {.method = SKV_EVICT_SNAPKV, .capacity = 40, .window = 8, .kernel = 5},
    {.method = SKV_EVICT_SNAPKV, .capacity = 200, .window = 30, .kernel = 7, .average = true},
    {.method = SKV_EVICT_H2O, .capacity = 70, .window = 20, .kernel = 1},
    {.method = SKV_EVICT_STREAMING, .capacity = 30, .window = 1, .kernel = 1, .sinks = 4},
    {.method = SKV_EVICT_PYRAMIDKV, .capacity = 50, .window = 8, .kernel = 5, .beta = 10},
    {.method = SKV_EVICT_ADAKV, .capacity = 50, .window = 8, .kernel = 5, .floor = 0.2},
};

enum { N_EVICTIONS = sizeof evictions / sizeof evictions[0] };

static void make_scripts(script *scripts, size_t n, bool swiftkv, skv_rng *rng)
{
    static const skv_prefill methods[] = {SKV_PREFILL_AUTO, SKV_PREFILL_FULL, SKV_PREFILL_TEACHER};
    for (size_t i = 0; i < n; i++) {
        script *s = &scripts[i];
        *s = (script){.params = skv_job_params_default()};
        s->n_ids = 1 + (size_t)skv_rng_below(rng, CONTEXT - ANSWER_MAX - 1);
        /* Texts of a family begin with the same tokens, at most up to their ends. */
        uint64_t family = skv_rng_below(rng, 3), own = skv_rng_below(rng, 200);
        for (size_t t = 0; t < s->n_ids; t++) {
            uint64_t seed = t < own ? family : i + 17;
            s->ids[t] = (int32_t)(skv_mix64(seed * 1000 + t) % VOCAB);
        }
        s->params.max_tokens = 1 + (size_t)skv_rng_below(rng, ANSWER_MAX);
        s->params.n_answers = skv_rng_below(rng, 4) == 0 ? 3 : 1;
        s->params.sampling.temperature = skv_rng_below(rng, 2) ? 1.0 : 0.0;
        s->params.sampling.seed = i;
        s->params.sampling.top_k = i % 3 == 0 ? 30 : 0;
        s->params.sampling.top_p = i / 3 % 2 == 0 ? 0.9 : 1;
        s->params.sampling.min_p = i % 5 == 0 ? 0.02 : 0;
        s->params.sampling.repetition_penalty = skv_rng_below(rng, 3) == 0 ? 1.3 : 1;
        s->params.ignore_eos = skv_rng_below(rng, 2) == 0;
        s->params.tenant = skv_rng_below(rng, 2);
        if (swiftkv) s->params.prefill = methods[skv_rng_below(rng, 3)];
        if (i % 2 == 1) s->params.eviction = &evictions[i / 2 % N_EVICTIONS];
    }
}

static void free_scripts(script *scripts, size_t n)
{
    for (size_t i = 0; i < n; i++) skv_job_release(scripts[i].job);
    test_free(scripts);
}

static skv_scheduler_metrics metrics_of(skv_scheduler *s)
{
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(s, &m);
    return m;
}

/* Until nothing runs or waits; then all pages are free or only kept for prompts. */
static void assert_pages_back(skv_scheduler *s)
{
    skv_scheduler_metrics m = metrics_of(s);
    for (int i = 0; i < 2000 && (m.running > 0 || m.waiting > 0); i++) {
        pause_ms(1);
        m = metrics_of(s);
    }
    assert_int_equal(m.running, 0);
    assert_int_equal(m.waiting, 0);
    assert_int_equal(m.queued_tokens, 0);
    assert_int_equal(m.kv_pages_used, m.kv_pages_cached);
}

/* ---- a worker that is held up ---- */

static script simple_script(size_t n_ids)
{
    script s = {.n_ids = n_ids, .params = skv_job_params_default()};
    for (size_t t = 0; t < n_ids; t++) s.ids[t] = (int32_t)(t * 7 % VOCAB);
    s.params.max_tokens = 4;
    s.params.ignore_eos = true;
    return s;
}

/* A job at whose first token the worker stops until the gate opens: what is submitted meanwhile is
 * there at once, however slow the one who submits is. */
static script held_script(gate *g, size_t n_ids)
{
    script s = simple_script(n_ids);
    s.params.constraint = gate_constraint(g);
    return s;
}

/* ---- the same answers as alone ---- */

static void check_same_answers(const char *path, size_t kv_tokens, bool cached, uint64_t seed)
{
    skv_engine *engine = open_engine(path, kv_tokens);
    skv_rng rng;
    skv_rng_init(&rng, seed);
    script *scripts = test_calloc(N_JOBS, sizeof *scripts);
    make_scripts(scripts, N_JOBS, strcmp(path, SWIFTKV_MODEL) == 0, &rng);
    for (size_t i = 0; i < N_JOBS; i++) run_alone(engine, &scripts[i]);
    skv_scheduler_options options = skv_scheduler_options_default();
    options.no_prefix_cache = !cached;
    options.max_running = 12;
    options.seed = seed;
    skv_scheduler *s = start(engine, &options);
    bell b;
    bell_init(&b);
    gate g;
    script first = held_script(&g, 1);
    submit(s, &first, &b);
    gate_wait(&g);
    for (size_t i = 0; i < N_JOBS; i++) submit(s, &scripts[i], &b);
    atomic_store(&g.open, true);
    read_all(&first, 1, &b);
    read_all(scripts, N_JOBS, &b);
    skv_job_release(first.job);
    for (size_t i = 0; i < N_JOBS; i++) compare(&scripts[i], i);
    assert_pages_back(s);
    skv_scheduler_metrics m = metrics_of(s);
    if (kv_tokens == CONTEXT) assert_true(few_cases() || m.preemptions > 0);
    if (cached && kv_tokens > CONTEXT) assert_true(few_cases() || m.prefix_hits_tokens > 0);
    if (!cached) assert_int_equal(m.kv_pages_used, 0);
    free_scripts(scripts, N_JOBS);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

static void test_answers_are_those_of_an_idle_engine(void **state)
{
    static const char *const paths[] = {SWIFTKV_MODEL, MODEL, MODEL};
    (void)state;
    for (size_t i = 0; i < cases_of(3, 1); i++) {
        check_same_answers(paths[i], 8 * CONTEXT, (i < 2), (i > 0) ? i : 3);
    }
}

static void test_preempted_answers_go_on(void **state)
{
    static const char *const paths[] = {MODEL, WINDOW_MODEL, SWIFTKV_MODEL, MODEL};
    (void)state;
    for (size_t i = 0; i < cases_of(4, 1); i++) {
        check_same_answers(paths[i], CONTEXT, (i < 3), (i > 0) ? 8 - i : 4);
    }
}

/* ---- the same numbers, to the bit ---- */

typedef struct numbers {
    double logprobs[ANSWER_MAX];
    size_t n;
} numbers;

static void read_numbers(script *s, numbers *out, bell *b)
{
    skv_output o;
    while (!skv_job_done(s->job)) {
        if (!skv_job_next(s->job, &o)) {
            bell_wait(b);
        } else if (o.kind == SKV_OUTPUT_TOKEN && o.i_answer == 0) {
            out->logprobs[out->n++] = o.logprob;
        }
    }
    skv_job_release(s->job);
    s->job = NULL;
}

static void test_numbers_are_those_of_an_idle_engine(void **state)
{
    (void)state;
    static const char *const paths[] = {MODEL, SWIFTKV_MODEL, SWIFTKV_MODEL};
    for (size_t k = few_cases(); k < cases_of(3, 2); k++) {
        const bool evicts = k == 2;
        skv_engine *engine = open_engine(paths[k], CONTEXT);
        skv_rng rng;
        skv_rng_init(&rng, 51 + k);
        script *scripts = test_calloc(N_JOBS, sizeof *scripts);
        numbers *want = test_calloc(N_JOBS, sizeof *want), *got = test_calloc(N_JOBS, sizeof *got);
        make_scripts(scripts, N_JOBS, k >= 1, &rng);
        for (size_t i = 0; i < N_JOBS && !evicts; i++) scripts[i].params.eviction = NULL;
        skv_scheduler *s = start(engine, NULL);
        bell b;
        bell_init(&b);
        for (size_t i = 0; i < N_JOBS; i++) {
            scripts[i].params.logprobs = true;
            scripts[i].params.no_prefix_cache = true;
            submit(s, &scripts[i], &b);
            read_numbers(&scripts[i], &want[i], &b);
            scripts[i].params.no_prefix_cache = false;
        }
        for (size_t i = 0; i < N_JOBS; i++) submit(s, &scripts[i], &b);
        for (size_t i = 0; i < N_JOBS; i++) read_numbers(&scripts[i], &got[i], &b);
        /* What is evicted leaves room, so that nobody has to wait. */
        assert_true(evicts || few_cases() || metrics_of(s).preemptions > 0);
        assert_true(evicts || few_cases() || metrics_of(s).prefix_hits_tokens > 0);
        assert_memory_equal(got, want, N_JOBS * sizeof *want);
        skv_scheduler_free(s);
        skv_engine_close(engine);
        test_free(scripts);
        test_free(want);
        test_free(got);
    }
}

/* ---- cancelling ---- */

static void test_pages_come_back_after_cancels(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(SWIFTKV_MODEL, 2 * CONTEXT);
    skv_rng rng;
    skv_rng_init(&rng, 9);
    skv_scheduler *s = start(engine, NULL);
    bell b;
    bell_init(&b);
    for (size_t round = 0; round < cases_of(4, 1); round++) {
        script *scripts = test_calloc(N_JOBS, sizeof *scripts);
        make_scripts(scripts, N_JOBS, true, &rng);
        for (size_t i = 0; i < N_JOBS; i++) submit(s, &scripts[i], &b);
        for (size_t i = 0; i < N_JOBS; i++) {
            script *one = &scripts[skv_rng_below(&rng, N_JOBS)];
            if (skv_rng_below(&rng, 2)) pause_ms((long)skv_rng_below(&rng, 3));
            if (skv_rng_below(&rng, 2)) {
                skv_job_release(one->job);
                one->job = NULL;
            } else if (one->job) {
                skv_job_cancel(one->job);
                one->cancelled = true;
            }
        }
        read_all(scripts, N_JOBS, &b);
        for (size_t i = 0; i < N_JOBS; i++) {
            if (!scripts[i].job) continue;
            for (size_t j = 0; j < scripts[i].params.n_answers; j++) {
                assert_true(scripts[i].got[j].ended);
                bool fine =
                    scripts[i].cancelled || scripts[i].got[j].finish != SKV_FINISH_CANCELLED;
                assert_true(fine && scripts[i].got[j].finish != SKV_FINISH_FAILED);
            }
        }
        assert_pages_back(s);
        free_scripts(scripts, N_JOBS);
    }
    skv_scheduler_free(s);
    skv_engine_stats stats;
    skv_engine_get_stats(engine, &stats);
    assert_int_equal(stats.kv_bytes, 0);
    skv_engine_close(engine);
}

/* ---- bounds ---- */

static void test_queue_is_bounded_and_a_stall_is_seen(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(MODEL, 2 * CONTEXT);
    skv_scheduler_options options = skv_scheduler_options_default();
    options.max_queued = 3;
    options.max_queued_tokens = 250;
    skv_scheduler *s = start(engine, &options);
    bell b;
    bell_init(&b);
    gate g;
    script *scripts = test_calloc(5, sizeof *scripts);
    for (size_t i = 0; i < 5; i++) scripts[i] = simple_script(i == 3 ? 60 : 100);
    scripts[0] = held_script(&g, 100);
    submit(s, &scripts[0], &b);
    gate_wait(&g);
    submit(s, &scripts[1], &b);
    submit(s, &scripts[2], &b);
    skv_error err;
    skv_job *job;
    skv_job_params params = scripts[3].params;
    params.ids = scripts[3].ids;
    params.n_ids = 60;
    assert_int_equal(skv_scheduler_submit(s, &params, &job, &err), SKV_FULL);
    assert_non_null(strstr(err.text, "2 requests with 200 prompt tokens are waiting"));
    params.tries_again = true; /* which is no refusal */
    assert_int_equal(skv_scheduler_submit(s, &params, &job, &err), SKV_FULL);
    params.tries_again = false;
    params.n_ids = 10;
    assert_int_equal(skv_scheduler_submit(s, &params, &scripts[3].job, &err), SKV_OK);
    params.n_ids = 1;
    assert_int_equal(skv_scheduler_submit(s, &params, &job, &err), SKV_FULL);
    /* Somebody else of whom nothing waits is let in, once. */
    params.tenant = 1;
    params.n_ids = 100;
    assert_int_equal(skv_scheduler_submit(s, &params, &scripts[4].job, &err), SKV_OK);
    params.n_ids = 1;
    assert_int_equal(skv_scheduler_submit(s, &params, &job, &err), SKV_FULL);
    pause_ms(20);
    assert_true(skv_scheduler_stalled_ms(s) >= 20);
    assert_true(skv_scheduler_backlog_seconds(s) > 0);
    atomic_store(&g.open, true);
    scripts[3].params.n_answers = 1;
    read_all(scripts, 3, &b);
    assert_int_equal(scripts[0].got[0].n, 4);
    for (size_t i = 0; i < 4; i++) assert_int_equal(scripts[0].got[0].ids[i], 7);
    assert_int_equal(metrics_of(s).rejected_full, 3);
    skv_scheduler_drain(s);
    assert_int_equal(skv_scheduler_submit(s, &params, &job, &err), SKV_CANCELLED);
    free_scripts(scripts, 5);
    assert_pages_back(s);
    assert_int_equal(skv_scheduler_stalled_ms(s), 0);
    skv_scheduler_free(s);
    assert_int_equal(atomic_load(&g.n_released), 1);
    skv_engine_close(engine);
}

static void expect_refusal(skv_scheduler *s, const skv_job_params *params, skv_status want,
                           const char *text)
{
    skv_error err = {0};
    skv_job *job;
    assert_int_equal(skv_scheduler_submit(s, params, &job, &err), want);
    if (!strstr(err.text, text)) fail_msg("%s", err.text);
}

static void test_jobs_are_checked(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(MODEL, CONTEXT);
    skv_scheduler *s = start(engine, NULL);
    script one = simple_script(10);
    skv_job_params p = one.params;
    p.ids = one.ids;
    expect_refusal(s, &p, SKV_ARGUMENT, "prompt: empty");
    p.n_ids = 10;
    p.max_tokens = CONTEXT - 9;
    expect_refusal(s, &p, SKV_RANGE, "prompt: 10 tokens and max_tokens 631, the context is 640");
    p.max_tokens = 1;
    p.prefill = SKV_PREFILL_TEACHER;
    expect_refusal(s, &p, SKV_UNSUPPORTED, "teacher");
    p.prefill = SKV_PREFILL_AUTO;
    p.n_answers = SKV_JOB_ANSWERS_MAX + 1;
    expect_refusal(s, &p, SKV_RANGE, "n: 17 answers");
    p.n_answers = 1;
    p.sampling.top_p = 2;
    expect_refusal(s, &p, SKV_RANGE, "top_p");
    p.sampling.top_p = 1;
    one.ids[4] = -3;
    expect_refusal(s, &p, SKV_ARGUMENT, "prompt[4]: -3, the vocabulary has");
    one.ids[4] = 3;
    p.biases = &(skv_logit_bias){1 << 20, 1};
    p.n_biases = 1;
    expect_refusal(s, &p, SKV_ARGUMENT, "logit_bias");
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

/* ---- turns ---- */

/* One tenant's many jobs do not make another one wait for all of them. */
static void test_tenants_take_turns(void **state)
{
    (void)state;
    enum { N = 6 };
    skv_engine *engine = open_engine(MODEL, 4 * CONTEXT);
    skv_scheduler_options options = skv_scheduler_options_default();
    options.max_running = 1;
    options.no_prefix_cache = true;
    skv_scheduler *s = start(engine, &options);
    bell b;
    bell_init(&b);
    gate g;
    script *scripts = test_calloc(N, sizeof *scripts);
    turn turns[N];
    atomic_size_t n_begun;
    atomic_init(&n_begun, 0);
    for (size_t i = 0; i < N; i++) {
        scripts[i] = i == 0 ? held_script(&g, 100) : simple_script(100);
        if (i > 0) scripts[i].params.constraint = turn_constraint(&turns[i], &n_begun);
    }
    scripts[N - 1].params.tenant = 1;
    for (size_t i = 0; i < N; i++) submit(s, &scripts[i], &b);
    gate_wait(&g);
    atomic_store(&g.open, true);
    read_all(scripts, N, &b);
    assert_true(turns[1].at < turns[2].at);
    assert_true(turns[N - 1].at < turns[2].at);
    free_scripts(scripts, N);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

/* Short prompts do not wait for a long one that came first; a stream of them, of which many always
 * wait, does not keep it from its end. */
static void test_short_prompts_overtake_a_long_one_for_a_while(void **state)
{
    (void)state;
    enum { N = 24, MOST = 400 };
    skv_engine *engine = open_engine(MODEL, 8 * CONTEXT);
    skv_scheduler_options options = skv_scheduler_options_default();
    options.no_prefix_cache = true;
    skv_scheduler *s = start(engine, &options);
    bell b;
    bell_init(&b);
    script *scripts = test_calloc(N, sizeof *scripts), *one = &scripts[0];
    gate g;
    script first = held_script(&g, 1);
    turn turns[2];
    atomic_size_t n_begun;
    atomic_init(&n_begun, 0);
    submit(s, &first, &b);
    gate_wait(&g);
    for (size_t i = 0; i < N; i++) {
        scripts[i] = simple_script(i == 0 ? 600 : 40);
        scripts[i].params.max_tokens = 1;
        if (i < 2) scripts[i].params.constraint = turn_constraint(&turns[i], &n_begun);
        submit(s, &scripts[i], &b);
    }
    scripts[1].params.constraint = (skv_constraint){0};
    atomic_store(&g.open, true);
    read_all(&first, 1, &b);
    skv_job_release(first.job);
    size_t n_short = 0;
    while (read_outputs(one), !skv_job_done(one->job)) {
        for (size_t i = 1; i < N; i++) {
            read_outputs(&scripts[i]);
            if (!skv_job_done(scripts[i].job)) continue;
            skv_job_release(scripts[i].job);
            memset(scripts[i].got, 0, sizeof scripts[i].got);
            submit(s, &scripts[i], &b);
            n_short++;
        }
        if (n_short > MOST) fail_msg("%zu short prompts were read before a long one", n_short);
        bell_wait(&b);
    }
    assert_true(turns[1].at < turns[0].at);
    free_scripts(scripts, N);
    assert_pages_back(s);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

/* ---- without memory ---- */

typedef struct poor {
    skv_scheduler *scheduler;
    script *script;
    bell bell;
} poor;

static bool run_without_memory(void *arg)
{
    poor *p = arg;
    script *one = p->script;
    one->params.ids = one->ids;
    one->params.n_ids = one->n_ids;
    one->params.notify = ring;
    one->params.user = &p->bell;
    memset(one->got, 0, sizeof one->got);
    if (skv_scheduler_submit(p->scheduler, &one->params, &one->job, NULL) != SKV_OK) return false;
    read_all(one, 1, &p->bell);
    bool ok = true;
    for (size_t i = 0; i < one->params.n_answers; i++) {
        assert_true(one->got[i].ended);
        ok = ok && one->got[i].finish == SKV_FINISH_LENGTH && one->got[i].n == 4;
    }
    skv_job_release(one->job);
    one->job = NULL;
    return ok;
}

/* A request that gets no memory fails; the next one does not notice. */
static void test_no_memory_fails_one_request(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(SWIFTKV_MODEL, 2 * CONTEXT);
    poor p = {.scheduler = start(engine, NULL), .script = test_calloc(1, sizeof *p.script)};
    bell_init(&p.bell);
    *p.script = simple_script(100);
    p.script->params.n_answers = 3;
    p.script->params.logprobs = p.script->params.prompt_logprobs = true;
    size_t n = alloc_fail_each(run_without_memory, &p, true);
    assert_true(n > 100 && n < SIZE_MAX);
    assert_true(run_without_memory(&p));
    assert_pages_back(p.scheduler);
    test_free(p.script);
    skv_scheduler_free(p.scheduler);
    skv_engine_close(engine);
}

/* ---- the prefix cache ---- */

static size_t cached_of(skv_scheduler *s, script *one, bell *b)
{
    submit(s, one, b);
    read_all(one, 1, b);
    skv_job_stats stats;
    skv_job_get_stats(one->job, &stats);
    skv_job_release(one->job);
    one->job = NULL;
    if (one->want[0].n > 0) compare(one, 0);
    one->got[0] = (answer_ids){.n = 0};
    assert_int_equal(stats.prompt_tokens, one->n_ids);
    return stats.cached_tokens;
}

static void test_prefixes_are_found_by_their_owner(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(SWIFTKV_MODEL, 4 * CONTEXT);
    skv_scheduler *s = start(engine, NULL);
    bell b;
    bell_init(&b);
    script *one = test_calloc(1, sizeof *one);
    *one = simple_script(200);
    assert_int_equal(cached_of(s, one, &b), 0);
    assert_int_equal(cached_of(s, one, &b), 192);
    one->params.prefill = SKV_PREFILL_FULL; /* the same rows */
    assert_int_equal(cached_of(s, one, &b), 192);
    one->params.prefill = SKV_PREFILL_TEACHER; /* other rows */
    assert_int_equal(cached_of(s, one, &b), 0);
    assert_int_equal(cached_of(s, one, &b), 192);
    one->params.prefill = SKV_PREFILL_AUTO;
    one->params.tenant = 5; /* somebody else's */
    assert_int_equal(cached_of(s, one, &b), 0);
    one->params.tenant = 0;
    one->n_ids = 192; /* its last token is computed all the same */
    assert_int_equal(cached_of(s, one, &b), 128);
    one->ids[100]++;
    assert_int_equal(cached_of(s, one, &b), 64);
    one->params.no_prefix_cache = true;
    assert_int_equal(cached_of(s, one, &b), 0);
    one->params.no_prefix_cache = false;
    one->params.prompt_logprobs = one->params.logprobs = true;
    assert_int_equal(cached_of(s, one, &b), 0);
    assert_pages_back(s);
    test_free(one);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

/* ---- log-probabilities ---- */

/* A prompt whose blocks another scheduler has written, in both forms, is answered as without. */
static void test_blocks_come_back_from_disk(void **state)
{
    assert_int_equal(temp_folder_make(state, "scheduler"), 0);
    script *one = test_calloc(1, sizeof *one);
    bell b;
    bell_init(&b);
    for (int rows = 0; rows < 2; rows++) {
        const skv_scheduler_options options = {.cache_dir = *state, .cache_disk_rows = rows};
        *one = simple_script(200);
        one->params.max_tokens = 20;
        one->params.salt = 1 + (uint64_t)rows;
        skv_engine *engine = open_engine(SWIFTKV_MODEL, 4 * CONTEXT);
        for (int run = 0; run < 3; run++) { /* on one engine twice, and on another one */
            one->want[0] = (answer_ids){0};
            run_alone(engine, one);
            skv_scheduler *s = start(engine, &options);
            assert_int_equal(cached_of(s, one, &b), run == 0 ? 0 : 192);
            skv_scheduler_free(s);
            if (run == 1) skv_engine_close(engine);
            if (run == 1) engine = open_engine(SWIFTKV_MODEL, 4 * CONTEXT);
        }
        skv_engine_close(engine);
    }
    test_free(one);
    assert_int_equal(temp_folder_drop(state), 0);
}

static void check_prompt_logprobs(skv_engine *engine)
{
    enum { N = 150 };
    script *one = test_calloc(1, sizeof *one);
    *one = simple_script(N);
    double want[N];
    assert_int_equal(skv_score(engine, one->ids, N, want, NULL, NULL), SKV_OK);
    skv_scheduler *s = start(engine, NULL);
    bell b;
    bell_init(&b);
    one->params.logprobs = one->params.prompt_logprobs = true;
    one->params.n_top = 3;
    one->params.max_tokens = 1;
    submit(s, one, &b);
    skv_output o;
    size_t n = 0, n_tokens = 0;
    while (!skv_job_done(one->job)) {
        bell_wait(&b);
        while (skv_job_next(one->job, &o)) {
            if (o.kind == SKV_OUTPUT_PROMPT) {
                assert_int_equal(o.id, one->ids[n]);
                if (n == 0) assert_true(isnan(o.logprob));
                if (n > 0) assert_true(fabs(o.logprob - want[n]) < 1e-4);
                if (n > 0) assert_int_equal(o.n_top, 3);
                n++;
            } else if (o.kind == SKV_OUTPUT_TOKEN) {
                assert_int_equal(o.n_top, 3);
                assert_true(o.top[0].id == o.id && o.top[0].logprob == o.logprob);
                assert_true(o.top[1].logprob <= o.top[0].logprob);
                n_tokens++;
            }
        }
    }
    assert_int_equal(n, N);
    assert_int_equal(n_tokens, 1);
    skv_job_release(one->job);
    test_free(one);
    skv_scheduler_free(s);
}

static void test_prompt_logprobs_are_the_scores(void **state)
{
    (void)state;
    skv_engine *engine = open_engine(SWIFTKV_MODEL, CONTEXT);
    check_prompt_logprobs(engine);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_those_of_an_idle_engine),
        cmocka_unit_test(test_preempted_answers_go_on),
        cmocka_unit_test(test_numbers_are_those_of_an_idle_engine),
        cmocka_unit_test(test_pages_come_back_after_cancels),
        cmocka_unit_test(test_queue_is_bounded_and_a_stall_is_seen),
        cmocka_unit_test(test_jobs_are_checked),
        cmocka_unit_test(test_tenants_take_turns),
        cmocka_unit_test(test_short_prompts_overtake_a_long_one_for_a_while),
        cmocka_unit_test(test_no_memory_fails_one_request),
        cmocka_unit_test(test_prefixes_are_found_by_their_owner),
        cmocka_unit_test(test_blocks_come_back_from_disk),
        cmocka_unit_test(test_prompt_logprobs_are_the_scores),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
