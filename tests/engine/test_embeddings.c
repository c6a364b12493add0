/*
 * Prompts that become vectors: the same as an independent implementation's hidden states
 * (tests/data/embeddings.json), the same to the bit whatever runs beside them and however often
 * they were put back, and without any effect on answers beside them.
 * Labels: threads
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "alloc_fail.h"
#include "property_seed.h"
#include "skv/serve.h"

enum { CONTEXT = 256, STEP = 16, D_MAX = 64, IDS_MAX = CONTEXT, ANSWER = 120 };

#define N_MIXED cases_of(16, 8)

static skv_engine *open_engine(const char *name, size_t kv_tokens)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/models/%s", SKV_TEST_DATA, name);
    skv_engine_options options = skv_engine_options_default();
    options.threads = 2;
    options.weights = SKV_WEIGHTS_F32;
    options.context = CONTEXT;
    options.kv_tokens = kv_tokens;
    options.step_tokens = STEP;
    options.with_teacher = true;
    options.batch_invariant = true;
    skv_engine *engine = NULL;
    skv_error err;
    if (skv_engine_open(path, &options, &engine, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true(skv_engine_hidden(engine) <= D_MAX);
    return engine;
}

static skv_scheduler *start(skv_engine *engine)
{
    skv_scheduler *s = NULL;
    skv_error err;
    if (skv_scheduler_create(engine, NULL, NULL, &s, &err) != SKV_OK) fail_msg("%s", err.text);
    return s;
}

/* ---- a job and what comes of it ---- */

typedef struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    bool rings;
} bell;

static void ring(void *user)
{
    bell *b = user;
    pthread_mutex_lock(&b->lock);
    b->rings = true;
    pthread_cond_signal(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

static void wait_for(bell *b)
{
    pthread_mutex_lock(&b->lock);
    while (!b->rings) pthread_cond_wait(&b->rung, &b->lock);
    b->rings = false;
    pthread_mutex_unlock(&b->lock);
}

typedef struct asked {
    int32_t ids[IDS_MAX];
    skv_job_params params;
    skv_job *job;
    bell bell;
    float vector[D_MAX];
    size_t n_vectors, n_answer;
    int32_t answer[ANSWER];
    skv_finish finish;
} asked;

static void submit(skv_scheduler *s, asked *a)
{
    skv_error err;
    pthread_mutex_init(&a->bell.lock, NULL);
    pthread_cond_init(&a->bell.rung, NULL);
    a->bell.rings = false;
    a->n_vectors = a->n_answer = 0;
    a->params.ids = a->ids;
    a->params.notify = ring;
    a->params.user = &a->bell;
    if (skv_scheduler_submit(s, &a->params, &a->job, &err) != SKV_OK) fail_msg("%s", err.text);
}

static void finish(asked *a)
{
    skv_output o;
    while (!skv_job_done(a->job)) {
        if (!skv_job_next(a->job, &o)) {
            wait_for(&a->bell);
        } else if (o.kind == SKV_OUTPUT_VECTOR) {
            assert_true(o.n_vector <= D_MAX);
            memcpy(a->vector, o.vector, o.n_vector * sizeof *o.vector);
            a->n_vectors++;
        } else if (o.kind == SKV_OUTPUT_TOKEN) {
            a->answer[a->n_answer++] = o.id;
        } else {
            a->finish = o.finish;
        }
    }
    skv_job_release(a->job);
    a->job = NULL;
}

static void ask(skv_scheduler *s, asked *a)
{
    submit(s, a);
    finish(a);
}

static void want_vector(asked *a, skv_pooling pooling, skv_prefill prefill)
{
    a->params = skv_job_params_default();
    a->params.max_tokens = 0;
    a->params.pooling = pooling;
    a->params.prefill = prefill;
}

static skv_scheduler_metrics metrics_of(skv_scheduler *s)
{
    skv_scheduler_metrics m;
    skv_scheduler_get_metrics(s, &m);
    return m;
}

/* ---- against transformers ---- */

static void check_vector(const asked *a, const json_t *want, const char *name)
{
    assert_int_equal(a->n_vectors, 1);
    assert_int_equal(a->finish, SKV_FINISH_STOP);
    double square = 0;
    for (size_t i = 0; i < json_array_size(want); i++) {
        const double x = json_number_value(json_array_get(want, i)), y = (double)a->vector[i];
        square += y * y;
        if (!(fabs(x - y) < 2e-5)) fail_msg("%s: number %zu is %g, expected %g", name, i, y, x);
    }
    assert_true(fabs(square - 1) < 1e-5);
}

static void check_mode(const char *model, const char *mode, const json_t *cases)
{
    skv_engine *engine = open_engine(model, CONTEXT * 4);
    skv_scheduler *s = start(engine);
    skv_prefill prefill = SKV_PREFILL_AUTO;
    assert_true(skv_prefill_parse(mode, &prefill));
    asked a = {.finish = SKV_FINISH_FAILED};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *ids = json_object_get(one, "ids");
        for (int round = 0; round < 4; round++) { /* twice each: the second finds a cache */
            skv_pooling pooling = round % 2 ? SKV_POOLING_MEAN : SKV_POOLING_LAST;
            want_vector(&a, pooling, prefill);
            a.params.n_ids = json_array_size(ids);
            for (size_t t = 0; t < a.params.n_ids; t++) {
                a.ids[t] = (int32_t)json_integer_value(json_array_get(ids, t));
            }
            ask(s, &a);
            check_vector(&a, json_object_get(one, round % 2 ? "mean" : "last"), model);
        }
    }
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

static void test_vectors_are_those_of_transformers(void **state)
{
    (void)state;
    json_error_t problem;
    json_t *all = json_load_file(SKV_TEST_DATA "/embeddings.json", 0, &problem);
    if (!all) fail_msg("embeddings.json: %s", problem.text);
    assert_int_equal(json_object_size(all), 5);
    const char *model, *mode;
    json_t *modes, *cases;
    json_object_foreach(all, model, modes)
    {
        json_object_foreach(modes, mode, cases) check_mode(model, mode, cases);
    }
    json_decref(all);
}

/* ---- beside others ---- */

/* Vectors of both kinds and answers, by every method; some begin alike. */
static void make_mixed(asked *all, size_t n)
{
    static const skv_prefill methods[] = {SKV_PREFILL_AUTO, SKV_PREFILL_FULL, SKV_PREFILL_TEACHER};
    for (size_t i = 0; i < n; i++) {
        asked *a = &all[i];
        want_vector(a, i % 2 ? SKV_POOLING_MEAN : SKV_POOLING_LAST, methods[i % 3]);
        a->params.n_ids = 70 + i * 2;
        for (size_t t = 0; t < a->params.n_ids; t++) {
            a->ids[t] = (int32_t)((t * 31 + (t < 66 ? i / 4 : i) * 7) % 90);
        }
        if (i % 4 < 2) continue;
        a->params.pooling = SKV_POOLING_NONE;
        a->params.max_tokens = ANSWER;
        a->params.ignore_eos = true;
    }
}

static void check_beside_others(size_t kv_tokens)
{
    skv_engine *engine = open_engine("qwen2-swiftkv-g2", kv_tokens);
    skv_scheduler *s = start(engine);
    asked *alone = test_calloc(N_MIXED, sizeof *alone),
          *beside = test_calloc(N_MIXED, sizeof *alone);
    make_mixed(alone, N_MIXED);
    make_mixed(beside, N_MIXED);
    for (size_t i = 0; i < N_MIXED; i++) {
        alone[i].params.no_prefix_cache = true;
        ask(s, &alone[i]);
    }
    for (size_t i = 0; i < N_MIXED; i++) submit(s, &beside[i]);
    for (size_t i = 0; i < N_MIXED; i++) finish(&beside[i]);
    for (size_t i = 0; i < N_MIXED; i++) {
        assert_int_equal(alone[i].n_vectors, i % 4 < 2);
        assert_int_equal(beside[i].n_vectors, alone[i].n_vectors);
        assert_memory_equal(beside[i].vector, alone[i].vector, sizeof alone[i].vector);
        assert_int_equal(beside[i].n_answer, alone[i].n_answer);
        assert_memory_equal(beside[i].answer, alone[i].answer, sizeof alone[i].answer);
    }
    skv_scheduler_metrics m = metrics_of(s);
    if (kv_tokens < 2 * CONTEXT) assert_true(m.preemptions > 0);
    assert_true(m.prefill_skipped_tokens > 0);
    test_free(alone);
    test_free(beside);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

static void test_vectors_do_not_depend_on_the_load(void **state)
{
    (void)state;
    check_beside_others(16 * CONTEXT);
    check_beside_others(CONTEXT + 64);
}

/* ---- bounds ---- */

static void test_a_whole_context_has_a_vector(void **state)
{
    (void)state;
    skv_engine *engine = open_engine("llama3-v5", CONTEXT);
    skv_scheduler *s = start(engine);
    asked a = {.finish = SKV_FINISH_FAILED};
    want_vector(&a, SKV_POOLING_LAST, SKV_PREFILL_AUTO);
    a.params.n_ids = CONTEXT;
    ask(s, &a);
    assert_int_equal(a.n_vectors, 1);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    skv_engine *engine = open_engine("llama3-v5", CONTEXT);
    skv_scheduler *s = start(engine);
    asked a = {.finish = SKV_FINISH_FAILED};
    for (int i = 0; i < 4; i++) {
        want_vector(&a, SKV_POOLING_MEAN, SKV_PREFILL_AUTO);
        a.params.ids = a.ids;
        a.params.n_ids = i == 3 ? CONTEXT + 1 : 4;
        a.params.max_tokens = i == 0;
        a.params.n_answers = i == 1 ? 2 : 1;
        a.params.prompt_logprobs = i == 2;
        skv_status want = i == 3 ? SKV_RANGE : SKV_ARGUMENT;
        assert_int_equal(skv_scheduler_submit(s, &a.params, &a.job, NULL), want);
    }
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

typedef struct poor {
    skv_scheduler *scheduler;
    asked *asked;
} poor;

/* Refused, failed or answered: then by the right vector. */
static bool ask_without_memory(void *arg)
{
    const poor *p = arg;
    asked *a = p->asked;
    a->n_vectors = 0;
    if (skv_scheduler_submit(p->scheduler, &a->params, &a->job, NULL) != SKV_OK) return false;
    finish(a);
    assert_true(a->n_vectors == 1 || a->finish == SKV_FINISH_FAILED);
    return a->finish == SKV_FINISH_STOP;
}

static void test_no_memory_fails_one_vector(void **state)
{
    (void)state;
    skv_engine *engine = open_engine("llama3-v5", 4 * CONTEXT);
    skv_scheduler *s = start(engine);
    asked a = {.finish = SKV_FINISH_FAILED};
    want_vector(&a, SKV_POOLING_MEAN, SKV_PREFILL_AUTO);
    a.params.n_ids = 20;
    ask(s, &a);
    float want[D_MAX];
    memcpy(want, a.vector, sizeof want);
    a.params.no_prefix_cache = true;
    poor p = {s, &a};
    assert_true(alloc_fail_each(ask_without_memory, &p, true) != SIZE_MAX);
    assert_memory_equal(a.vector, want, sizeof want);
    skv_scheduler_free(s);
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_are_those_of_transformers),
        cmocka_unit_test(test_vectors_do_not_depend_on_the_load),
        cmocka_unit_test(test_a_whole_context_has_a_vector),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
        cmocka_unit_test(test_no_memory_fails_one_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
