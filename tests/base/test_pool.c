/*
 * The thread pool: every task runs exactly once, on a thread of the team, whatever the shape.
 *
 * Labels: threads
 */
#define _GNU_SOURCE /* sched_setaffinity, pthread_kill */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/size.h"
#include "base/system.h"

enum { TASKS_MAX = 5000 };

/* Processors that this machine seems to have; 0: those it has. */
static size_t seeming_processors;

size_t __real_skv_processors_affinity(pthread_t thread);
size_t __wrap_skv_processors_affinity(pthread_t thread);

size_t __wrap_skv_processors_affinity(pthread_t thread)
{
    return seeming_processors > 0 ? seeming_processors : __real_skv_processors_affinity(thread);
}

typedef struct job {
    size_t n_threads;
    atomic_uchar runs[TASKS_MAX];
    atomic_bool stray;              /* a thread number out of range */
    unsigned char plain[TASKS_MAX]; /* not atomic: the pool orders it */
    size_t per_thread[64][16];      /* written by one thread each, a cache line apart */
} job;

static void run_task(void *arg, size_t i_task, size_t i_thread)
{
    job *j = arg;
    if (i_thread >= j->n_threads) atomic_store(&j->stray, true);
    atomic_fetch_add(&j->runs[i_task], 1);
    j->plain[i_task]++;
    j->per_thread[i_thread][0]++;
}

typedef void run_fn(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg);

static void check_run_by(run_fn *run, skv_pool *pool, job *j, size_t n_tasks)
{
    memset(j->runs, 0, sizeof j->runs);
    memset(j->plain, 0, sizeof j->plain);
    memset(j->per_thread, 0, sizeof j->per_thread);
    run(pool, n_tasks, run_task, j);
    size_t total = 0;
    for (size_t i = 0; i < j->n_threads; i++) total += j->per_thread[i][0];
    assert_int_equal(total, n_tasks);
    for (size_t i = 0; i < TASKS_MAX; i++) {
        if (atomic_load(&j->runs[i]) != (i < n_tasks)) fail_msg("task %zu of %zu", i, n_tasks);
        if (j->plain[i] != (i < n_tasks)) fail_msg("task %zu of %zu, plainly", i, n_tasks);
    }
    assert_false(atomic_load(&j->stray));
}

static void check_run(skv_pool *pool, job *j, size_t n_tasks)
{
    check_run_by(skv_pool_run, pool, j, n_tasks);
    check_run_by(skv_pool_run_stretches, pool, j, n_tasks);
}

static void every_task_runs_once(void **state)
{
    (void)state;
    const size_t teams[] = {1, 2, 3, 5, 8, 17};
    const size_t tasks[] = {0, 1, 2, 3, 7, 8, 9, 64, 1000, TASKS_MAX};
    job *j = skv_alloc_zero(1, sizeof *j);
    skv_error err;
    for (size_t t = 0; t < sizeof teams / sizeof teams[0]; t++) {
        skv_pool *pool;
        assert_int_equal(skv_pool_create(teams[t], &pool, &err), SKV_OK);
        assert_int_equal(skv_pool_threads(pool), teams[t]);
        j->n_threads = teams[t];
        for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
            for (int again = 0; again < 3; again++) check_run(pool, j, tasks[i]);
        }
        skv_pool_free(pool);
    }
    skv_free(j);
}

/* Short runs one after the other, of changing sizes: a late worker must not see the next one. */
static void runs_follow_each_other(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_error err;
    job *j = skv_alloc_zero(1, sizeof *j);
    assert_int_equal(skv_pool_create(4, &pool, &err), SKV_OK);
    j->n_threads = 4;
    for (size_t round = 0; round < 1500; round++) check_run(pool, j, (round * 7) % 12);
    skv_free(j);
    skv_pool_free(pool);
}

static void count_task(void *arg, size_t i_task, size_t i_thread)
{
    (void)i_task;
    (void)i_thread;
    atomic_fetch_add((atomic_size_t *)arg, 1);
}

static void check_team(job *j, size_t n_threads)
{
    skv_pool *pool;
    skv_error err;
    assert_int_equal(skv_pool_create(n_threads, &pool, &err), SKV_OK);
    j->n_threads = n_threads;
    for (size_t round = 0; round < 60; round++) check_run(pool, j, (round * 37) % 400);
    skv_pool_free(pool);
}

/* Teams that have several lists, as on a machine with many processors; then some of the threads are
 * parked and come back. */
static void many_threads_work(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_error err;
    job *j = skv_alloc_zero(1, sizeof *j);
    seeming_processors = 48;
    const size_t teams[] = {8, 9, 16, 17, 40};
    for (size_t t = 0; t < sizeof teams / sizeof teams[0]; t++) check_team(j, teams[t]);
    assert_int_equal(skv_pool_create(20, &pool, &err), SKV_OK);
    j->n_threads = 20;
    const size_t processors[] = {20, 3, 11, 1, 48};
    for (size_t p = 0; p < sizeof processors / sizeof processors[0]; p++) {
        atomic_size_t n = 0;
        seeming_processors = processors[p];
        for (int i = 0; i < 4200; i++) skv_pool_run(pool, 2, count_task, &n);
        assert_int_equal(atomic_load(&n), 2 * 4200);
        for (size_t round = 0; round < 20; round++) check_run(pool, j, round * 13);
    }
    skv_pool_free(pool);
    seeming_processors = 0;
    skv_free(j);
}

/* Where threads were bound to. */
static skv_processor_set bound[64];
static size_t n_bound;

bool __wrap_skv_thread_bind(pthread_t thread, const skv_processor_set *processors);

bool __wrap_skv_thread_bind(pthread_t thread, const skv_processor_set *processors)
{
    (void)thread;
    bound[n_bound++ % 64] = *processors;
    return true;
}

static void run_by_nodes(skv_pool *pool, size_t n_tasks, skv_task_fn *fn, void *arg)
{
    /* A node without tasks, and the smaller share of the others first. */
    skv_pool_run_nodes(pool, (const size_t[]){0, n_tasks / 3, n_tasks / 3, n_tasks}, fn, arg);
}

/* Threads of a team are bound to nodes in proportion to the nodes' processors, and every task runs
 * once, whichever node it belongs to and how many threads are parked. */
static void teams_are_divided_among_nodes(void **state)
{
    (void)state;
    static const size_t teams[] = {1, 2, 3, 8, 20, 40};
    const skv_nodes nodes = {.n = 3,
                             .number = {0, 2, 3},
                             .processors = {{.bits = {0xf}}, {.bits = {0xf0}}, {.bits = {0xff00}}},
                             .n_processors = {4, 4, 8}};
    job *j = skv_alloc_zero(1, sizeof *j);
    seeming_processors = 48;
    for (size_t t = 0; t < sizeof teams / sizeof teams[0]; t++) {
        skv_pool *pool;
        size_t n[3] = {1, 0, 0}; /* the caller's */
        n_bound = 0;
        assert_int_equal(skv_pool_create(teams[t], &pool, NULL), SKV_OK);
        assert_int_equal(skv_pool_nodes(pool)->n, 1);
        skv_pool_use_nodes(pool, &nodes);
        assert_int_equal(skv_pool_nodes(pool)->n, 3);
        assert_int_equal(n_bound, teams[t] - 1);
        for (size_t i = 0; i < n_bound; i++) {
            n[bound[i].bits[0] == 0xf ? 0 : bound[i].bits[0] == 0xf0 ? 1 : 2]++;
        }
        if (teams[t] % 4 == 0) {
            assert_int_equal(n[0], teams[t] / 4);
            assert_int_equal(n[1], teams[t] / 4);
        }
        j->n_threads = teams[t];
        for (size_t round = 0; round < 40; round++) {
            check_run_by(run_by_nodes, pool, j, (round * 37) % 400);
            check_run(pool, j, (round * 37) % 400);
        }
        skv_pool_free(pool);
    }
    seeming_processors = 0;
    skv_free(j);
}

static void pause_ms(long ms)
{
    const struct timespec time = {0, ms * 1000000};
    (void)nanosleep(&time, NULL);
}

static void uneven_task(void *arg, size_t i_task, size_t i_thread)
{
    if (i_task % 10 == 0) pause_ms(1);
    run_task(arg, i_task, i_thread);
}

/* Workers fall asleep between runs and are woken; a long task holds nobody up. */
static void sleepers_are_woken(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_error err;
    job *j = skv_alloc_zero(1, sizeof *j);
    assert_int_equal(skv_pool_create(3, &pool, &err), SKV_OK);
    j->n_threads = 3;
    for (int round = 0; round < 20; round++) {
        pause_ms(2);
        skv_pool_run(pool, 40, uneven_task, j);
    }
    for (size_t i = 0; i < 40; i++) assert_int_equal(atomic_load(&j->runs[i]), 20);
    skv_free(j);
    pause_ms(5);
    skv_pool_free(pool); /* while they sleep */
}

/* What a signal handler can reach: it holds up the thread that gets the signal. */
static atomic_bool is_held, may_go;

static void hold_thread(int signal_number)
{
    (void)signal_number;
    atomic_store(&is_held, true);
    while (!atomic_load(&may_go)) pause_ms(1);
}

typedef struct meeting {
    pthread_t other; /* the thread that is not the caller's */
    atomic_size_t n_here;
} meeting;

/* Two tasks that wait for each other, so both threads are inside the run. */
static void meet(void *arg, size_t i_task, size_t i_thread)
{
    meeting *m = arg;
    (void)i_task;
    if (i_thread == 1) m->other = pthread_self();
    atomic_fetch_add(&m->n_here, 1);
    while (atomic_load(&m->n_here) < 2) (void)sched_yield();
}

/* A worker that the system does not let run, here held up by a signal, is not waited for. */
static void nobody_waits_for_a_thread_without_work(void **state)
{
    (void)state;
    skv_pool *pool;
    skv_error err;
    meeting m = {.n_here = 0};
    atomic_size_t n = 0;
    struct sigaction hold = {.sa_handler = hold_thread}, before;
    if (skv_processors_affinity(pthread_self()) < 2) skip();
    assert_int_equal(sigaction(SIGUSR1, &hold, &before), 0);
    assert_int_equal(skv_pool_create(2, &pool, &err), SKV_OK);
    skv_pool_run(pool, 2, meet, &m);
    assert_int_equal(pthread_kill(m.other, SIGUSR1), 0);
    while (!atomic_load(&is_held)) pause_ms(1);
    for (int i = 0; i < 1000; i++) skv_pool_run(pool, 100, count_task, &n);
    assert_int_equal(atomic_load(&n), 100000);
    atomic_store(&may_go, true);
    m.n_here = 0;
    skv_pool_run(pool, 2, meet, &m); /* it is back */
    skv_pool_free(pool);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

/* Keeps the thread for a millisecond, so that every thread that may take part does. */
static void slow_task(void *arg, size_t i_task, size_t i_thread)
{
    pause_ms(1);
    run_task(arg, i_task, i_thread);
}

static size_t threads_that_work(skv_pool *pool, job *j)
{
    size_t n = 0;
    memset(j->per_thread, 0, sizeof j->per_thread);
    skv_pool_run(pool, 64, slow_task, j);
    for (size_t i = 0; i < 64; i++) n += j->per_thread[i][0] > 0;
    return n;
}

/* More threads than processors: as many work as there are processors, also after a change. */
static void processors_limit_who_works(void **state)
{
#ifdef SKV_NO_AFFINITY
    skip();
#endif
    (void)state;
    cpu_set_t all, one;
    skv_pool *pool;
    skv_error err;
    atomic_size_t n = 0;
    job *j = skv_alloc_zero(1, sizeof *j);
    size_t n_processors = skv_processors_affinity(pthread_self());
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all) && !CPU_COUNT(&one)) CPU_SET(i, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(skv_pool_create(8, &pool, &err), SKV_OK);
    assert_int_equal(skv_pool_threads(pool), 8);
    j->n_threads = 8;
    assert_int_equal(threads_that_work(pool, j), 1);
    skv_pool_free(pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(skv_pool_create(8, &pool, &err), SKV_OK);
    assert_int_equal(threads_that_work(pool, j), skv_min_size(8, n_processors));
    /* The affinity of the other threads is read again every some thousand runs. */
    if (n_processors == 2) {
        meeting m = {.n_here = 0};
        skv_pool_run(pool, 2, meet, &m);
        assert_int_equal(pthread_setaffinity_np(m.other, sizeof one, &one), 0);
        for (int i = 0; i < 5000; i++) skv_pool_run(pool, 2, count_task, &n);
        assert_int_equal(threads_that_work(pool, j), 1);
        assert_int_equal(pthread_setaffinity_np(m.other, sizeof all, &all), 0);
        for (int i = 0; i < 5000; i++) skv_pool_run(pool, 2, count_task, &n);
        assert_int_equal(threads_that_work(pool, j), 2);
    }
    skv_pool_free(pool);
    skv_free(j);
}

typedef struct outer {
    skv_pool *inner[4]; /* one for each thread of the outer pool */
    atomic_size_t n;
} outer;

static void outer_task(void *arg, size_t i_task, size_t i_thread)
{
    outer *o = arg;
    skv_pool_run(o->inner[i_thread], i_task, count_task, &o->n);
}

/* A task may drive a pool of its own. */
static void pools_nest(void **state)
{
    (void)state;
    outer o = {0};
    skv_pool *pool;
    skv_error err;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(skv_pool_create(i + 1, &o.inner[i], &err), SKV_OK);
    }
    assert_int_equal(skv_pool_create(4, &pool, &err), SKV_OK);
    skv_pool_run(pool, 101, outer_task, &o);
    assert_int_equal(atomic_load(&o.n), 100 * 101 / 2);
    skv_pool_free(pool);
    for (size_t i = 0; i < 4; i++) skv_pool_free(o.inner[i]);
}

static void sizes_of_teams(void **state)
{
    (void)state;
    skv_pool *pool = NULL;
    skv_error err;
    assert_int_equal(skv_pool_create(0, &pool, &err), SKV_OK);
    assert_true(skv_pool_threads(pool) >= 1);
    skv_pool_free(pool);
    pool = NULL;
    assert_int_equal(skv_pool_create(100000, &pool, &err), SKV_RANGE);
    assert_null(pool);
    assert_string_equal(err.text, "threads: 100000, at most 1024");
    skv_pool_free(NULL);
}

static bool create_and_run(void *arg)
{
    (void)arg;
    skv_pool *pool = NULL;
    skv_error err;
    if (skv_pool_create(3, &pool, &err) != SKV_OK) {
        assert_null(pool);
        assert_int_equal(err.status, SKV_MEMORY);
        return false;
    }
    atomic_size_t n = 0;
    size_t before = alloc_fail_count();
    for (int i = 0; i < 10; i++) skv_pool_run(pool, 100, count_task, &n);
    assert_int_equal(atomic_load(&n), 1000);
    assert_int_equal(alloc_fail_count(), before); /* running allocates nothing */
    skv_pool_free(pool);
    return true;
}

static void survives_running_out_of_memory(void **state)
{
    (void)state;
    assert_int_equal(alloc_fail_each(create_and_run, NULL, false), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(runs_follow_each_other),
        cmocka_unit_test(many_threads_work),
        cmocka_unit_test(teams_are_divided_among_nodes),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(pools_nest),
        cmocka_unit_test(nobody_waits_for_a_thread_without_work),
        cmocka_unit_test(processors_limit_who_works),
        cmocka_unit_test(sizes_of_teams),
        cmocka_unit_test(survives_running_out_of_memory),
    };
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
