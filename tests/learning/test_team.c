/*
 * Training in teams, with threads as processes: 2 and 4 give the losses of one, whichever way the
 * rows of a step are dealt; stopped and resumed a team repeats itself bit for bit; whatever goes
 * wrong on one process ends all of them with the same message.
 *
 * Labels: threads
 */
#define _XOPEN_SOURCE 700 /* nftw, barriers */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team_work.h"
#include "skv/train.h"
#include "temp_folder.h"
#include "text_ids.h"
#include "thread_team.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { STEPS = 12, PATH_BYTES = 96 };

/* ---- a team of threads ---- */

/* One process of a run. */
typedef struct process {
    member member;
    skv_team team;
    skv_train_options options;
    double loss[STEPS], norm[STEPS];
    double held, held_first; /* after the last step */
    uint64_t stop_at;        /* 0: never */
    skv_status status;
    skv_error err;
} process;

static bool note(void *user, const skv_train_progress *p)
{
    process *run = user;
    run->loss[p->step - 1] = p->loss;
    run->norm[p->step - 1] = p->norm;
    run->held = p->held;
    run->held_first = p->held_first;
    return p->step != run->stop_at;
}

static void *run_process(void *arg)
{
    process *p = arg;
    p->status = skv_train_run(&p->options, &p->err);
    return NULL;
}

static void open_team(hub *h, process *all, size_t size)
{
    open_hub(h, size);
    for (size_t i = 0; i < size; i++) {
        all[i].team = join_hub(h, &all[i].member, i);
        all[i].options.team = &all[i].team;
        all[i].options.on_step = note;
        all[i].options.user = &all[i];
    }
}

static void run_team(process *all, size_t size)
{
    pthread_t threads[MEMBERS_MAX];
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_process, &all[i]), 0);
    }
    for (size_t i = 0; i < size; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all[0].member.hub->all_here);
}

static void expect_all(const process *all, size_t size, skv_status status)
{
    for (size_t i = 0; i < size; i++) {
        if (all[i].status != status) fail_msg("process %zu: %s", i, all[i].err.text);
        if (status != SKV_OK) assert_string_equal(all[i].err.text, all[0].err.text);
    }
}

/* ---- runs ---- */

typedef struct fixture {
    char root[32], ids[2][PATH_BYTES], out[PATH_BYTES];
    size_t n_out;
} fixture;

static int start(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    memcpy(f->root, "/tmp/skv-team-XXXXXX", 21);
    if (!mkdtemp(f->root)) return -1;
    char root[sizeof f->root]; /* a copy, so that the compiler sees no overlap */
    memcpy(root, f->root, sizeof root);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(f->ids[i], sizeof f->ids[i], "%s/ids-%d.json", root, i);
        if (text_ids_write(f->ids[i], 2000, i + 1) != 0) return -1;
    }
    *state = f;
    return 0;
}

static int finish(void **state)
{
    fixture *f = *state;
    (void)temp_folder_remove(f->root);
    free(f);
    return 0;
}

/* A new folder and options that all processes have. */
static void prepare(fixture *f, process *all, size_t size, size_t rows, size_t accumulate)
{
    char root[sizeof f->root];
    memcpy(root, f->root, sizeof root);
    (void)snprintf(f->out, sizeof f->out, "%s/out-%zu", root, f->n_out++);
    memset(all, 0, size * sizeof *all);
    for (size_t i = 0; i < size; i++) {
        skv_train_options *o = &all[i].options;
        *o = skv_train_options_default(SKV_TRAIN_DISTILL);
        o->model = MODELS "llama-mha";
        o->out = f->out;
        o->kv_layers = 2;
        o->group = 2;
        skv_train_stage *stage = &o->stages[0];
        stage->data[0] = skv_train_data_default(f->ids[0]);
        stage->n_data = 1;
        stage->seq = 32;
        stage->rows = rows;
        stage->accumulate = accumulate;
        stage->steps = STEPS;
        stage->rate = 2e-3;
        o->hidden_mult = 0.5;
        o->checkpoint_every = 4;
        o->threads = 1;
        o->f32 = true;
    }
}

static void expect_same_losses(const process *one, const process *all, size_t size)
{
    for (size_t step = 0; step < STEPS; step++) {
        double loss = all[0].loss[step], norm = all[0].norm[step];
        assert_true(fabs(loss - one->loss[step]) <= 1e-5 * one->loss[step]);
        assert_true(fabs(norm - one->norm[step]) <= 1e-4 * one->norm[step]);
        for (size_t i = 1; i < size; i++) {
            assert_true(all[i].loss[step] == loss && all[i].norm[step] == norm);
        }
    }
}

/* Rows that are held out: each process measures its own. */
static void expect_same_held(const process *one, const process *all, size_t size)
{
    assert_true(one->held > 0 && one->held < one->held_first);
    assert_true(fabs(all[0].held - one->held) <= 1e-5 * one->held);
    assert_true(fabs(all[0].held_first - one->held_first) <= 1e-5 * one->held_first);
    for (size_t i = 1; i < size; i++) {
        assert_true(all[i].held == all[0].held && all[i].held_first == all[0].held_first);
    }
}

static void compare(fixture *f, size_t size, size_t rows, size_t accumulate)
{
    process one[1], all[MEMBERS_MAX];
    hub h;
    prepare(f, one, 1, rows, accumulate);
    open_team(&h, one, 1);
    run_team(one, 1);
    expect_all(one, 1, SKV_OK);
    assert_true(one->loss[STEPS - 1] < one->loss[0]);
    prepare(f, all, size, rows, accumulate);
    open_team(&h, all, size);
    run_team(all, size);
    expect_all(all, size, SKV_OK);
    expect_same_losses(one, all, size);
    expect_same_held(one, all, size);
}

static void test_same_losses(void **state)
{
    compare(*state, 2, 4, 2); /* half of every batch */
    compare(*state, 4, 4, 1); /* a row each */
    compare(*state, 4, 2, 2); /* a row each, of one batch or the other */
    compare(*state, 2, 1, 4); /* two batches each */
    compare(*state, 2, 3, 2); /* a batch each */
    compare(*state, 4, 6, 2); /* three rows each: half of one batch */
    compare(*state, 3, 2, 3); /* two rows each, some on both sides of a batch's end */
}

/* A second stage with batches of another shape, from another file. */
static void add_stage(const fixture *f, process *all, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        skv_train_options *o = &all[i].options;
        o->n_stages = 2;
        o->stages[1] = o->stages[0];
        o->stages[0].steps = 5;
        o->stages[1].steps = STEPS - 5;
        o->stages[1].seq = 16;
        o->stages[1].rows = 1;
        o->stages[1].accumulate = 2;
        o->stages[1].data[0].file = f->ids[1];
    }
}

/* Stopped inside a stage, and where one ends. */
static void check_resume(fixture *f, uint64_t stop_at)
{
    process whole[2], parts[2];
    hub h;
    prepare(f, whole, 2, 4, 1);
    add_stage(f, whole, 2);
    open_team(&h, whole, 2);
    run_team(whole, 2);
    expect_all(whole, 2, SKV_OK);
    prepare(f, parts, 2, 4, 1);
    add_stage(f, parts, 2);
    parts[1].stop_at = stop_at; /* any process may stop all */
    open_team(&h, parts, 2);
    run_team(parts, 2);
    expect_all(parts, 2, SKV_CANCELLED);
    parts[1].stop_at = 0;
    for (size_t i = 0; i < 2; i++) parts[i].options.resume = true;
    open_team(&h, parts, 2);
    run_team(parts, 2);
    expect_all(parts, 2, SKV_OK);
    assert_true(whole[0].held == parts[0].held && whole[0].held_first == parts[0].held_first);
    assert_memory_equal(whole[0].loss, parts[0].loss, sizeof whole[0].loss);
    assert_memory_equal(whole[1].norm, parts[1].norm, sizeof whole[1].norm);
}

static void test_resume_is_exact(void **state)
{
    check_resume(*state, 2);
    check_resume(*state, 5);
    check_resume(*state, 6);
}

/* ---- what goes wrong ---- */

static void refused(process *all, skv_status status, const char *text)
{
    hub h;
    open_team(&h, all, 2);
    run_team(all, 2);
    expect_all(all, 2, status);
    if (!strstr(all[0].err.text, text)) fail_msg("%s", all[0].err.text);
}

static void test_one_is_enough(void **state)
{
    fixture *f = *state;
    process all[2];
    prepare(f, all, 2, 2, 1);
    all[1].options.model = "/nowhere";
    refused(all, SKV_IO, "process 1 of 2: /nowhere");
    prepare(f, all, 2, 2, 1);
    all[0].options.model = "/nowhere";
    refused(all, SKV_IO, "process 0 of 2: /nowhere");
    prepare(f, all, 2, 2, 1);
    all[1].options.stages[0].data[0].file = f->ids[1];
    refused(all, SKV_ARGUMENT, "process 1 of 2 has read other data than process 0");
    prepare(f, all, 2, 2, 1);
    all[1].options.seed = 1;
    refused(all, SKV_ARGUMENT, "process 1 of 2 has other options than process 0");
    prepare(f, all, 2, 2, 1);
    all[1].options.model = MODELS "llama-bias";
    refused(all, SKV_ARGUMENT, "process 1 of 2 has another model than process 0");
    prepare(f, all, 2, 3, 1);
    refused(all, SKV_ARGUMENT, "training: stage 0: 1 batches of 3 rows are 3 rows a step, which 2");
    prepare(f, all, 2, 2, 1);
    all[0].options.resume = all[1].options.resume = true;
    refused(all, SKV_ARGUMENT, "no checkpoint to continue from");
}

/* Kernels that round as the reference does may work beside it; others are refused. */
static void test_other_processor(void **state)
{
    fixture *f = *state;
    process all[2];
    hub h;
    prepare(f, all, 2, 2, 1);
    all[1].options.cpu = "ref";
    open_team(&h, all, 2);
    run_team(all, 2);
    if (all[0].status == SKV_OK) {
        expect_all(all, 2, SKV_OK);
        return;
    }
    expect_all(all, 2, SKV_ARGUMENT);
    assert_string_equal(all[0].err.text,
                        "process 1 of 2 has a processor that rounds otherwise than process 0");
}

static void test_not_finite(void **state)
{
    fixture *f = *state;
    process all[2];
    prepare(f, all, 2, 2, 1);
    for (size_t i = 0; i < 2; i++) {
        all[i].options.stages[0].rate = 1e38;
        all[i].options.stages[0].warmup_share = 0;
        all[i].options.max_norm = 0;
    }
    refused(all, SKV_RANGE, "last good checkpoint");
}

/* Every gather of a short run fails in its turn: all processes come to an end. */
static void test_cut_wire(void **state)
{
    fixture *f = *state;
    process all[2];
    for (size_t at = 1;; at++) {
        hub h;
        prepare(f, all, 2, 2, 1);
        all[0].options.stages[0].steps = all[1].options.stages[0].steps = 1;
        open_team(&h, all, 2);
        h.fails_at = at;
        run_team(all, 2);
        if (h.n_calls < at) break;
        expect_all(all, 2, SKV_IO);
    }
    expect_all(all, 2, SKV_OK);
}

static void test_wants_a_whole_team(void **state)
{
    process p = {.team = {.size = 2, .rank = 2}};
    skv_error err;
    (void)state;
    p.options = skv_train_options_default(SKV_TRAIN_DISTILL);
    p.options.team = &p.team;
    assert_int_equal(skv_train_run(&p.options, &err), SKV_ARGUMENT);
    p.team.rank = 1;
    assert_int_equal(skv_train_run(&p.options, &err), SKV_ARGUMENT);
    assert_string_equal(err.text, "team: a function is missing");
}

/* ---- sums ---- */

typedef struct summer {
    process p;
    size_t n;
    float *x;
} summer;

static void *run_sum(void *arg)
{
    summer *s = arg;
    float *scratch = skv_alloc(skv_team_scratch(&s->p.team), sizeof *scratch);
    s->p.status = skv_team_sum(&s->p.team, s->x, s->n, scratch, &s->p.err);
    skv_free(scratch);
    return NULL;
}

/* Sums of every length around the blocks, against the plain loop in the order of ranks. */
static void check_sum(size_t size, size_t n)
{
    summer all[MEMBERS_MAX];
    process places[MEMBERS_MAX];
    pthread_t threads[MEMBERS_MAX];
    hub h;
    skv_rng rng;
    float *want = calloc(n + 1, sizeof *want);
    skv_rng_init(&rng, n);
    open_team(&h, places, size);
    for (size_t i = 0; i < size; i++) {
        all[i] = (summer){.p = places[i], .n = n, .x = calloc(n + 1, sizeof(float))};
        for (size_t k = 0; k < n; k++) all[i].x[k] = (float)skv_rng_normal(&rng);
        for (size_t k = 0; k < n; k++) want[k] = i ? want[k] + all[i].x[k] : all[i].x[k];
        all[i].x[n] = 7.0f;
    }
    for (size_t i = 0; i < size; i++) pthread_create(&threads[i], NULL, run_sum, &all[i]);
    for (size_t i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].p.status, SKV_OK);
        assert_memory_equal(all[i].x, want, n * sizeof *want);
        assert_true(all[i].x[n] == 7.0f);
        free(all[i].x);
    }
    free(want);
    pthread_barrier_destroy(&h.all_here);
}

static void test_sums(void **state)
{
    static const size_t lengths[] = {0, 1, 3, 4, 1000, 131071, 131072, 131073, 300001};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (size_t size = 1; size <= MEMBERS_MAX; size++) check_sum(size, lengths[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_same_losses),
                                       cmocka_unit_test(test_resume_is_exact),
                                       cmocka_unit_test(test_one_is_enough),
                                       cmocka_unit_test(test_other_processor),
                                       cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_cut_wire),
                                       cmocka_unit_test(test_wants_a_whole_team)};
    return cmocka_run_group_tests(tests, start, finish);
}
